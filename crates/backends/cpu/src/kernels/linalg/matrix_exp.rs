//! Exponentials of matrices.

use rustorch_ir::{OpKind, Signature};
use rustorch_math::linalg::Field;
use rustorch_runtime::{KernelEntry, Layouts};

use super::matrices::{self, with_entry};
use crate::kernel::{Args, Misuse};
use crate::launch::Launch;

pub(crate) const KERNEL: KernelEntry<Launch> = KernelEntry {
    kind: OpKind::MatrixExp,
    accepts,
    layouts: Layouts::Contiguous,
    launch: Launch::Whole(launch),
};

fn accepts(_: &Signature) -> bool {
    true
}

fn launch(mut args: Args) -> Result<(), Misuse> {
    let [n, _] = matrices::sizes(&args.inputs[0]);
    with_entry!(args.output.dtype(), T => {
        let results = matrices::map::<T, _>(&args, |_, mut a| {
            Field::exponential(&mut a, n);
            a
        });
        matrices::store::<T>(&mut args.output, results.iter());
        Ok(())
    })
}
