//! Evenly spaced numbers.

use rustorch_ir::{Op, OpKind, Scalar, Signature};
use rustorch_runtime::{KernelEntry, Layouts};

use crate::element::{FromScalar, with_type};
use crate::kernel::{Args, Misuse, for_rows};
use crate::launch::Launch;

pub(crate) const KERNEL: KernelEntry<Launch> = KernelEntry {
    kind: OpKind::Arange,
    accepts,
    layouts: Layouts::Any,
    launch: Launch::Whole(launch),
};

fn accepts(_: &Signature) -> bool {
    true
}

fn launch(mut args: Args) -> Result<(), Misuse> {
    let Op::Arange(op) = args.op else {
        return Err(Misuse("not an arange".to_owned()));
    };
    let dtype = args.output.dtype();
    // Computed in the widest type, and rounded or wrapped once.
    let at = |i: usize| match dtype.is_float() {
        true => Scalar::from(op.start.as_f64() + i as f64 * op.step.as_f64()),
        false => {
            let distance = op.step.as_i64().wrapping_mul(i as i64);
            Scalar::from(op.start.as_i64().wrapping_add(distance))
        }
    };
    with_type!(dtype, reals T => {
        for_rows(args.pool, args.output.data::<T>(), 1, 2, |first, part| {
            for (i, y) in (first..).zip(part) {
                *y = T::from_scalar(at(i));
            }
        });
        Ok(())
    })
}
