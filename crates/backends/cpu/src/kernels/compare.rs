//! Comparisons of two operands.

use rustorch_ir::ops::CompareOp;
use rustorch_ir::{Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts};

use crate::element::{Element, unknown, with_type};
use crate::elementwise::map2;
use crate::kernel::{Args, Launch, Misuse};

pub(crate) const KERNEL: KernelEntry<Launch> = KernelEntry {
    kind: OpKind::Compare,
    accepts,
    layouts: Layouts::Any,
    launch,
};

fn accepts(_: &Signature) -> bool {
    true
}

/// A loop over blocks of two operands.
type Loop<X> = fn(&[X], &[X], &mut [u8]);

fn launch(mut args: Args) -> Result<(), Misuse> {
    let Op::Compare(op) = args.op else {
        return Err(Misuse("not a compare".to_owned()));
    };
    match args.inputs[0].dtype() {
        d if d.is_complex() => with_type!(d, complex T => {
            run::<T>(&mut args, equality(op.op))
        }),
        d => with_type!(d, reals T => run::<T>(&mut args, order(op.op).or(equality(op.op)))),
    }
}

fn run<T: Element>(args: &mut Args, f: Option<Loop<T::Compute>>) -> Result<(), Misuse> {
    let f = f.ok_or_else(|| unknown(args.inputs[0].dtype()))?;
    map2::<T, u8>(args, 1, f);
    Ok(())
}

/// `out[i] = f(a[i], b[i])`.
fn each<X>(a: &[X], b: &[X], out: &mut [u8], f: impl Fn(&X, &X) -> bool) {
    for ((out, a), b) in out.iter_mut().zip(a).zip(b) {
        *out = f(a, b).into();
    }
}

fn equality<T: PartialEq>(op: CompareOp) -> Option<Loop<T>> {
    Some(match op {
        CompareOp::Eq => |a, b, out| each(a, b, out, T::eq),
        CompareOp::Ne => |a, b, out| each(a, b, out, T::ne),
        _ => return None,
    })
}

fn order<T: PartialOrd>(op: CompareOp) -> Option<Loop<T>> {
    Some(match op {
        CompareOp::Lt => |a, b, out| each(a, b, out, T::lt),
        CompareOp::Le => |a, b, out| each(a, b, out, T::le),
        CompareOp::Gt => |a, b, out| each(a, b, out, T::gt),
        CompareOp::Ge => |a, b, out| each(a, b, out, T::ge),
        _ => return None,
    })
}
