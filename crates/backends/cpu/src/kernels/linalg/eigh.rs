//! Eigenvalues of Hermitian matrices.

use rustorch_ir::{Op, OpKind, Signature};
use rustorch_math::linalg::Field;
use rustorch_runtime::{KernelEntry, Layouts};

use super::matrices::{self, Entry, with_entry};
use crate::kernel::{Args, Misuse};
use crate::launch::Launch;

pub(crate) const KERNEL: KernelEntry<Launch> = KernelEntry {
    kind: OpKind::Eigh,
    accepts,
    layouts: Layouts::Contiguous,
    launch: Launch::Whole(launch),
};

fn accepts(_: &Signature) -> bool {
    true
}

fn launch(mut args: Args) -> Result<(), Misuse> {
    let Op::Eigh(op) = args.op else {
        return Err(Misuse("not an eigh".to_owned()));
    };
    let [n, _] = matrices::sizes(&args.inputs[0]);
    with_entry!(args.inputs[0].dtype(), T => {
        type Value = <T as Entry>::Real;
        let found = matrices::map::<T, _>(&args, |_, a| Field::eigh(&a, n, op.vectors));
        let found = matrices::converged(&args, found)?;
        matrices::store::<Value>(&mut args.output, found.iter().map(|found| &found.values));
        if let [vectors] = &mut args.others[..] {
            matrices::store::<T>(vectors, found.iter().map(|found| &found.vectors));
        }
        Ok(())
    })
}
