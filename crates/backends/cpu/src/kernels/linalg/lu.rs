//! LU factors.

use bytemuck::Zeroable;
use rustorch_ir::{Op, OpKind, Signature};
use rustorch_math::linalg::Field;
use rustorch_runtime::{KernelEntry, Layouts};

use super::matrices::{self, Entry, with_entry};
use crate::kernel::{Args, Misuse};
use crate::launch::Launch;

pub(crate) const KERNEL: KernelEntry<Launch> = KernelEntry {
    kind: OpKind::Lu,
    accepts,
    layouts: Layouts::Contiguous,
    launch: Launch::Whole(launch),
};

fn accepts(_: &Signature) -> bool {
    true
}

fn launch(mut args: Args) -> Result<(), Misuse> {
    let Op::Lu(op) = args.op else {
        return Err(Misuse("not an lu".to_owned()));
    };
    let [m, n] = matrices::sizes(&args.inputs[0]);
    with_entry!(args.output.dtype(), T => {
        let factors = matrices::map::<T, _>(&args, |_, mut a| {
            let exchanges = Field::lu(&mut a, m, n);
            let zero = (0..m.min(n)).find(|i| T::narrow(a[i * n + i]) == T::zeroed());
            (a, exchanges, zero.map_or(0, |i| i + 1))
        });
        if let Some(i) = factors.iter().position(|(.., zero)| op.check && *zero > 0) {
            let what = format!("is singular: its pivot {} is 0", factors[i].2);
            return Err(matrices::misuse(&args, i, &what));
        }
        matrices::store::<T>(&mut args.output, factors.iter().map(|(lu, ..)| lu));
        let exchanges = factors.iter().flat_map(|(_, exchanges, _)| exchanges);
        matrices::store_numbers(&mut args.others[0], exchanges.map(|row| row + 1));
        matrices::store_numbers(&mut args.others[1], factors.iter().map(|(.., zero)| *zero));
        Ok(())
    })
}
