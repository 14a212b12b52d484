//! Cholesky factors.

use rustorch_ir::{Op, OpKind, Signature};
use rustorch_math::linalg::Field;
use rustorch_runtime::{KernelEntry, Layouts};

use super::matrices::{self, with_entry};
use crate::kernel::{Args, Misuse};
use crate::launch::Launch;

pub(crate) const KERNEL: KernelEntry<Launch> = KernelEntry {
    kind: OpKind::Cholesky,
    accepts,
    layouts: Layouts::Contiguous,
    launch: Launch::Whole(launch),
};

fn accepts(_: &Signature) -> bool {
    true
}

fn launch(mut args: Args) -> Result<(), Misuse> {
    let Op::Cholesky(op) = args.op else {
        return Err(Misuse("not a cholesky".to_owned()));
    };
    let [n, _] = matrices::sizes(&args.inputs[0]);
    with_entry!(args.output.dtype(), T => {
        let factors = matrices::map::<T, _>(&args, |_, mut a| {
            let minor = Field::cholesky(&mut a, n);
            (a, minor.unwrap_or(0))
        });
        if let Some(i) = factors.iter().position(|(_, minor)| op.check && *minor > 0) {
            let order = factors[i].1;
            let what = format!(
                "is not positive definite: its leading minor of order {order} is not positive"
            );
            return Err(matrices::misuse(&args, i, &what));
        }
        matrices::store::<T>(&mut args.output, factors.iter().map(|(l, _)| l));
        matrices::store_numbers(&mut args.others[0], factors.iter().map(|(_, minor)| *minor));
        Ok(())
    })
}
