//! Reflections.

use rustorch_ir::{OpKind, Signature};
use rustorch_math::linalg::Field;
use rustorch_runtime::{KernelEntry, Layouts};

use super::matrices::{self, with_entry};
use crate::kernel::{Args, Misuse};
use crate::launch::Launch;

pub(crate) const KERNEL: KernelEntry<Launch> = KernelEntry {
    kind: OpKind::Geqrf,
    accepts,
    layouts: Layouts::Contiguous,
    launch: Launch::Whole(launch),
};

fn accepts(_: &Signature) -> bool {
    true
}

fn launch(mut args: Args) -> Result<(), Misuse> {
    let [m, n] = matrices::sizes(&args.inputs[0]);
    with_entry!(args.output.dtype(), T => {
        let factors = matrices::map::<T, _>(&args, |_, mut a| {
            let tau = Field::reflections(&mut a, m, n);
            (a, tau)
        });
        matrices::store::<T>(&mut args.output, factors.iter().map(|(a, _)| a));
        matrices::store::<T>(&mut args.others[0], factors.iter().map(|(_, tau)| tau));
        Ok(())
    })
}
