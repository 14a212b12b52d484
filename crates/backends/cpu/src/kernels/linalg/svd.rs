//! Singular values and vectors.

use rustorch_ir::ops::SvdVectors;
use rustorch_ir::{Op, OpKind, Signature};
use rustorch_math::linalg::{Field, Vectors};
use rustorch_runtime::{KernelEntry, Layouts};

use super::matrices::{self, Entry, with_entry};
use crate::kernel::{Args, Misuse};
use crate::launch::Launch;

pub(crate) const KERNEL: KernelEntry<Launch> = KernelEntry {
    kind: OpKind::Svd,
    accepts,
    layouts: Layouts::Contiguous,
    launch: Launch::Whole(launch),
};

fn accepts(_: &Signature) -> bool {
    true
}

fn launch(mut args: Args) -> Result<(), Misuse> {
    let Op::Svd(op) = args.op else {
        return Err(Misuse("not an svd".to_owned()));
    };
    let vectors = match op.vectors {
        SvdVectors::No => Vectors::No,
        SvdVectors::Reduced => Vectors::Reduced,
        SvdVectors::Full => Vectors::Full,
    };
    let [m, n] = matrices::sizes(&args.inputs[0]);
    with_entry!(args.inputs[0].dtype(), T => {
        type Real = <T as Entry>::Real;
        let found = matrices::map::<T, _>(&args, |_, a| Field::svd(&a, m, n, vectors));
        let found = matrices::converged(&args, found)?;
        let values = found.iter().map(|svd| &svd.s);
        match &mut args.others[..] {
            [s, vh] => {
                matrices::store::<T>(&mut args.output, found.iter().map(|svd| &svd.u));
                matrices::store::<Real>(s, values);
                matrices::store::<T>(vh, found.iter().map(|svd| &svd.vh));
            }
            _ => matrices::store::<Real>(&mut args.output, values),
        }
        Ok(())
    })
}
