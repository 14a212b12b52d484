//! Exchanges of rows as permutations.

use rustorch_ir::{Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts};

use crate::kernel::{Args, Misuse};
use crate::launch::Launch;

pub(crate) const KERNEL: KernelEntry<Launch> = KernelEntry {
    kind: OpKind::LuPivotsToPermutation,
    accepts,
    layouts: Layouts::Contiguous,
    launch: Launch::Whole(launch),
};

fn accepts(_: &Signature) -> bool {
    true
}

fn launch(mut args: Args) -> Result<(), Misuse> {
    let Op::LuPivotsToPermutation(op) = args.op else {
        return Err(Misuse("not an lu_pivots_to_permutation".to_owned()));
    };
    let pivots = args.inputs[0];
    let count = pivots.shape().last().map_or(0, |&count| count);
    let pivots: &[i32] = pivots.data();
    let all: &mut [i64] = args.output.data();
    for (matrix, rows) in all.chunks_exact_mut(op.rows.max(1)).enumerate() {
        rows.iter_mut().zip(0..).for_each(|(row, i)| *row = i);
        for (i, &pivot) in pivots[matrix * count..][..count].iter().enumerate() {
            let with = usize::try_from(pivot)
                .ok()
                .and_then(|pivot| pivot.checked_sub(1));
            let Some(with) = with.filter(|&with| with < op.rows) else {
                let range = format!("outside the rows 1 to {}", op.rows);
                return Err(Misuse(format!("the pivot {pivot} is {range}")));
            };
            rows.swap(i, with);
        }
    }
    Ok(())
}
