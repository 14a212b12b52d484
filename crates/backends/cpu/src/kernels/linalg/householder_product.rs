//! Products of reflections.

use rustorch_ir::{OpKind, Signature};
use rustorch_math::linalg::Field;
use rustorch_runtime::{KernelEntry, Layouts};

use super::matrices::{self, with_entry};
use crate::kernel::{Args, Misuse};
use crate::launch::Launch;

pub(crate) const KERNEL: KernelEntry<Launch> = KernelEntry {
    kind: OpKind::HouseholderProduct,
    accepts,
    layouts: Layouts::Contiguous,
    launch: Launch::Whole(launch),
};

fn accepts(_: &Signature) -> bool {
    true
}

fn launch(mut args: Args) -> Result<(), Misuse> {
    let [m, n] = matrices::sizes(&args.inputs[0]);
    let tau = args.inputs[1];
    let count = tau.shape().last().map_or(0, |&count| count);
    with_entry!(args.output.dtype(), T => {
        let products = matrices::map::<T, _>(&args, |i, mut a| {
            let tau = matrices::part::<T>(&tau, i, count);
            Field::product_of_reflections(&mut a, m, n, &tau);
            a
        });
        matrices::store::<T>(&mut args.output, products.iter());
        Ok(())
    })
}
