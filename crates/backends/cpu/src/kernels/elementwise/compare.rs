//! Comparisons of two operands.

use rustorch_ir::ops::CompareOp;
use rustorch_ir::{Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts};

use crate::element::{Element, unknown, with_type};
use crate::elementwise::{Function, Loop2};
use crate::kernel::Misuse;
use crate::launch::Launch;
use crate::simd::apply2;

pub(crate) const KERNEL: KernelEntry<Launch> = KernelEntry {
    kind: OpKind::Compare,
    accepts,
    layouts: Layouts::Any,
    launch: Launch::Elementwise {
        function,
        check: None,
    },
};

fn accepts(_: &Signature) -> bool {
    true
}

fn function(signature: &Signature) -> Result<Function, Misuse> {
    let Op::Compare(op) = signature.op else {
        return Err(Misuse("not a compare".to_owned()));
    };
    let dtype = signature.inputs[0].dtype;
    let function = match dtype {
        d if d.is_complex() => with_type!(d, complex T => Ok(loops::<T>(equality(op.op))))?,
        d => with_type!(d, reals T => Ok(loops::<T>(order(op.op).or(equality(op.op)))))?,
    };
    function.ok_or_else(|| unknown(dtype))
}

fn loops<T: Element>(f: Option<Loop2<T::Compute, u8>>) -> Option<Function> {
    Some(Function::binary::<T, u8>(1, f?))
}

fn equality<T: PartialEq + Copy>(op: CompareOp) -> Option<Loop2<T, u8>> {
    Some(match op {
        CompareOp::Eq => |a, b, out| apply2(a, b, out, |a, b| (a == b).into()),
        CompareOp::Ne => |a, b, out| apply2(a, b, out, |a, b| (a != b).into()),
        _ => return None,
    })
}

fn order<T: PartialOrd + Copy>(op: CompareOp) -> Option<Loop2<T, u8>> {
    Some(match op {
        CompareOp::Lt => |a, b, out| apply2(a, b, out, |a, b| (a < b).into()),
        CompareOp::Le => |a, b, out| apply2(a, b, out, |a, b| (a <= b).into()),
        CompareOp::Gt => |a, b, out| apply2(a, b, out, |a, b| (a > b).into()),
        CompareOp::Ge => |a, b, out| apply2(a, b, out, |a, b| (a >= b).into()),
        _ => return None,
    })
}
