//! The sum of two `f32` tensors and its root-mean-square norm.

use rustorch_ir::{DType, Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts};

use super::rms_norm::Line;
use crate::kernel::{Args, Misuse, SharedMut, for_ranges};
use crate::launch::Launch;
use crate::simd::Level;

pub(crate) const KERNEL: KernelEntry<Launch> = KernelEntry {
    kind: OpKind::AddRmsNorm,
    accepts,
    layouts: Layouts::Contiguous,
    launch: Launch::Whole(launch),
};

fn accepts(s: &Signature) -> bool {
    s.output().dtype == DType::F32
}

fn launch(mut args: Args) -> Result<(), Misuse> {
    let Op::AddRmsNorm(op) = args.op else {
        return Err(Misuse("not an add_rms_norm".to_owned()));
    };
    let eps = op.norm.eps.0 as f32;
    let width = *args.output.shape().last().unwrap_or(&1);
    let [a, b] = [0, 1].map(|i| args.inputs[i].data::<f32>());
    let weight: Option<&[f32]> = args.inputs.get(2).map(|w| w.data());
    let rows = a.len() / width.max(1);
    let sums = SharedMut::new(args.output.data::<f32>());
    let norms = SharedMut::new(args.others[0].data::<f32>());
    for_ranges(args.pool, rows, 3 * width, |rows| {
        for row in rows {
            let at = row * width..(row + 1) * width;
            // SAFETY: ranges are disjoint, and rows lie inside the results.
            let (x, y) = unsafe { (sums.range(at.start, width), norms.range(at.start, width)) };
            let operands = a[at.clone()].iter().zip(&b[at]);
            x.iter_mut()
                .zip(operands)
                .for_each(|(x, (a, b))| *x = a + b);
            Level::current().run(Line { x, eps, weight, y });
        }
    });
    Ok(())
}
