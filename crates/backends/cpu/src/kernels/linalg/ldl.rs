//! Factors of symmetric and Hermitian matrices.

use rustorch_ir::{Op, OpKind, Signature};
use rustorch_math::linalg::Field;
use rustorch_runtime::{KernelEntry, Layouts};

use super::matrices::{self, with_entry};
use crate::kernel::{Args, Misuse};
use crate::launch::Launch;

pub(crate) const KERNEL: KernelEntry<Launch> = KernelEntry {
    kind: OpKind::Ldl,
    accepts,
    layouts: Layouts::Contiguous,
    launch: Launch::Whole(launch),
};

fn accepts(_: &Signature) -> bool {
    true
}

fn launch(mut args: Args) -> Result<(), Misuse> {
    let Op::Ldl(op) = args.op else {
        return Err(Misuse("not an ldl".to_owned()));
    };
    let [n, _] = matrices::sizes(&args.inputs[0]);
    with_entry!(args.output.dtype(), T => {
        let factors = matrices::map::<T, _>(&args, |_, mut a| {
            let found = Field::ldl(&mut a, n, op.hermitian);
            (a, found.pivots, found.zero.map_or(0, |block| block + 1))
        });
        if let Some(i) = factors.iter().position(|(.., zero)| op.check && *zero > 0) {
            let what = format!("is singular: the block {} of its D is 0", factors[i].2);
            return Err(matrices::misuse(&args, i, &what));
        }
        matrices::store::<T>(&mut args.output, factors.iter().map(|(ld, ..)| ld));
        let pivots: &mut [i32] = args.others[0].data();
        let found = factors.iter().flat_map(|(_, pivots, _)| pivots);
        pivots.iter_mut().zip(found).for_each(|(to, &pivot)| *to = pivot);
        matrices::store_numbers(&mut args.others[1], factors.iter().map(|(.., zero)| *zero));
        Ok(())
    })
}
