//! Random numbers by their definition in the operation.

use std::f64::consts::FRAC_1_SQRT_2;

use rustorch_ir::{Op, OpKind, Scalar, Signature};
use rustorch_runtime::{KernelEntry, Layouts};

use crate::element::{FromScalar, with_type};
use crate::kernel::{Args, Misuse, for_rows};
use crate::launch::Launch;

pub(crate) const KERNEL: KernelEntry<Launch> = KernelEntry {
    kind: OpKind::Random,
    accepts,
    layouts: Layouts::Any,
    launch: Launch::Whole(launch),
};

fn accepts(_: &Signature) -> bool {
    true
}

/// Cost of a number beside an addition.
const WORK: usize = 32;

fn launch(mut args: Args) -> Result<(), Misuse> {
    let Op::Random(op) = args.op else {
        return Err(Misuse("not a random".to_owned()));
    };
    let dtype = args.output.dtype();
    let words = args.inputs[0].data::<i64>();
    let key = [words[0], words[words.len() - 1]];
    let at = |i: u64| match dtype.is_complex() {
        true => {
            let part = |i| (op.draw(key, i) * FRAC_1_SQRT_2).into();
            Scalar::Complex(part(2 * i), part(2 * i + 1))
        }
        false => op.draw(key, i).into(),
    };
    with_type!(dtype, numbers T => {
        for_rows(args.pool, args.output.data::<T>(), 1, WORK, |first, part| {
            for (i, y) in (first as u64..).zip(part) {
                *y = T::from_scalar(at(i));
            }
        });
        Ok(())
    })
}
