//! QR factors.

use rustorch_ir::{Op, OpKind, Signature};
use rustorch_math::linalg::Field;
use rustorch_runtime::{KernelEntry, Layouts};

use super::matrices::{self, with_entry};
use crate::kernel::{Args, Misuse};
use crate::launch::Launch;

pub(crate) const KERNEL: KernelEntry<Launch> = KernelEntry {
    kind: OpKind::Qr,
    accepts,
    layouts: Layouts::Contiguous,
    launch: Launch::Whole(launch),
};

fn accepts(_: &Signature) -> bool {
    true
}

fn launch(mut args: Args) -> Result<(), Misuse> {
    let Op::Qr(op) = args.op else {
        return Err(Misuse("not a qr".to_owned()));
    };
    let [m, n] = matrices::sizes(&args.inputs[0]);
    with_entry!(args.output.dtype(), T => {
        let factors = matrices::map::<T, _>(&args, |_, a| Field::qr(&a, m, n, op.complete));
        matrices::store::<T>(&mut args.output, factors.iter().map(|(q, _)| q));
        matrices::store::<T>(&mut args.others[0], factors.iter().map(|(_, r)| r));
        Ok(())
    })
}
