//! Systems with symmetric and Hermitian matrices that were factorised.

use rustorch_ir::{Op, OpKind, Signature};
use rustorch_math::linalg::Field;
use rustorch_runtime::{KernelEntry, Layouts};

use super::matrices::{self, with_entry};
use crate::kernel::{Args, Misuse};
use crate::launch::Launch;

pub(crate) const KERNEL: KernelEntry<Launch> = KernelEntry {
    kind: OpKind::LdlSolve,
    accepts,
    layouts: Layouts::Contiguous,
    launch: Launch::Whole(launch),
};

fn accepts(_: &Signature) -> bool {
    true
}

fn launch(mut args: Args) -> Result<(), Misuse> {
    let Op::LdlSolve(op) = args.op else {
        return Err(Misuse("not an ldl_solve".to_owned()));
    };
    let (pivots, b) = (args.inputs[1], args.inputs[2]);
    let sizes = matrices::sizes(&b);
    let pivots: &[i32] = pivots.data();
    with_entry!(args.output.dtype(), T => {
        let solutions = matrices::map::<T, _>(&args, |i, factors| {
            let mut b = matrices::matrix::<T>(&b, i);
            let pivots = &pivots[i * sizes[0]..][..sizes[0]];
            Field::ldl_solve(factors, pivots, op.hermitian, &mut b, sizes)?;
            Some(b)
        });
        if let Some(i) = solutions.iter().position(Option::is_none) {
            let what = format!("has pivots outside its rows 1 to {}", sizes[0]);
            return Err(matrices::misuse(&args, i, &what));
        }
        matrices::store::<T>(&mut args.output, solutions.iter().flatten());
        Ok(())
    })
}
