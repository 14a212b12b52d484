//! Products whose weights are chosen row by row, for `f32` activations, from weights as they lie in memory.

use rustorch_ir::{DType, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts};
use smallvec::SmallVec;

use super::linear::{SCRATCH, weight_type};
use crate::kernel::{Args, Misuse};
use crate::launch::Launch;
use crate::qmatmul::{Experts, Weight};
use crate::view::View;

pub(crate) const KERNEL: KernelEntry<Launch> = KernelEntry {
    kind: OpKind::ExpertLinear,
    accepts,
    layouts: Layouts::Contiguous,
    launch: Launch::Whole(launch),
};

fn accepts(s: &Signature) -> bool {
    s.inputs[0].dtype == DType::F32 && weight_type(s.inputs[1].dtype).is_some()
}

fn launch(mut args: Args) -> Result<(), Misuse> {
    let [x, w, ids] = [&args.inputs[0], &args.inputs[1], &args.inputs[2]];
    let [experts, n, k] = [0, 1, 2].map(|d| w.shape()[d]);
    let weights = weight_type(w.dtype())
        .ok_or_else(|| Misuse("weights of no known type".to_owned()))
        .and_then(|weight_type| {
            let weights = Weight::new(weight_type, w.dense_bytes(), experts * n, k);
            weights.map_err(|e| Misuse(e.to_string()))
        })?;
    let chosen = chosen(ids, experts)?;
    let product = Experts {
        w: weights,
        n,
        x: x.data(),
        sharing: match x.shape()[1] {
            1 => ids.shape()[1].max(1),
            _ => 1,
        },
        chosen: &chosen,
        y: args.output.data(),
    };
    SCRATCH.with_borrow_mut(|scratch| product.run(args.pool, scratch));
    Ok(())
}

/// The experts that ids name.
fn chosen(ids: &View<'_>, experts: usize) -> Result<SmallVec<[usize; 16]>, Misuse> {
    let slots = ids.shape()[1];
    let expert = |(at, id): (usize, i64)| match usize::try_from(id) {
        Ok(expert) if expert < experts => Ok(expert),
        _ => Err(Misuse(format!(
            "the id {id} at [{}, {}] is outside {experts} experts",
            at / slots,
            at % slots
        ))),
    };
    match ids.dtype() {
        DType::I32 => {
            let ids = ids.data::<i32>().iter().map(|&id| id.into());
            ids.enumerate().map(expert).collect()
        }
        _ => ids
            .data::<i64>()
            .iter()
            .copied()
            .enumerate()
            .map(expert)
            .collect(),
    }
}
