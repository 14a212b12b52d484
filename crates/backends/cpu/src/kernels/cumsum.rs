//! Running sums.

use num_traits::Zero;
use rustorch_ir::{Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts};

use crate::element::{Element, with_type};
use crate::fold::Addend;
use crate::kernel::{Args, Misuse};
use crate::launch::Launch;
use crate::lines::map_lines;

pub(crate) const KERNEL: KernelEntry<Launch> = KernelEntry {
    kind: OpKind::Cumsum,
    accepts,
    layouts: Layouts::Any,
    launch: Launch::Whole(launch),
};

fn accepts(_: &Signature) -> bool {
    true
}

fn launch(mut args: Args) -> Result<(), Misuse> {
    let Op::Cumsum(op) = args.op else {
        return Err(Misuse("not a cumsum".to_owned()));
    };
    match args.inputs[0].dtype() {
        d if d.is_float() => with_type!(d, floats T => cumsum::<T, T>(&mut args, op.dim)),
        d if d.is_complex() => with_type!(d, complex T => cumsum::<T, T>(&mut args, op.dim)),
        d => with_type!(d, ints T => cumsum::<T, i64>(&mut args, op.dim)),
    }
}

fn cumsum<T, Y>(args: &mut Args, dim: usize) -> Result<(), Misuse>
where
    T: Element<Compute: Addend<Result = Y::Compute>>,
    Y: Element,
{
    map_lines::<T, Y>(args, dim, 1, |x, y| {
        let mut sum = Zero::zero();
        for (y, x) in y.iter_mut().zip(x) {
            sum = sum + x.widen();
            *y = T::Compute::narrow(sum);
        }
    });
    Ok(())
}
