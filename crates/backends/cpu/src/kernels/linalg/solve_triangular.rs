//! Triangular systems.

use rustorch_ir::{Op, OpKind, Signature};
use rustorch_math::linalg::{Field, Triangle};
use rustorch_runtime::{KernelEntry, Layouts};

use super::matrices::{self, with_entry};
use crate::kernel::{Args, Misuse};
use crate::launch::Launch;

pub(crate) const KERNEL: KernelEntry<Launch> = KernelEntry {
    kind: OpKind::SolveTriangular,
    accepts,
    layouts: Layouts::Contiguous,
    launch: Launch::Whole(launch),
};

fn accepts(_: &Signature) -> bool {
    true
}

fn launch(mut args: Args) -> Result<(), Misuse> {
    let Op::SolveTriangular(op) = args.op else {
        return Err(Misuse("not a solve_triangular".to_owned()));
    };
    let triangle = Triangle {
        upper: op.upper,
        unit: op.unitriangular,
    };
    let b = args.inputs[1];
    let [n, k] = matrices::sizes(&b);
    with_entry!(args.output.dtype(), T => {
        let solutions = matrices::map::<T, _>(&args, |i, a| {
            let mut b = matrices::matrix::<T>(&b, i);
            Field::solve_triangular(&a, triangle, &mut b, n, k);
            b
        });
        matrices::store::<T>(&mut args.output, solutions.iter());
        Ok(())
    })
}
