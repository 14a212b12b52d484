//! The gradient of the cross entropy of `f32` rows with a class each.

use rustorch_ir::{DType, Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts};

use super::softmax::Line;
use crate::kernel::{Args, Misuse, for_rows};
use crate::launch::Launch;
use crate::simd::Level;

pub(crate) const KERNEL: KernelEntry<Launch> = KernelEntry {
    kind: OpKind::CrossEntropyBackward,
    accepts,
    layouts: Layouts::Contiguous,
    launch: Launch::Whole(launch),
};

/// Cost of an element beside an addition.
const WORK: usize = 4;

fn accepts(s: &Signature) -> bool {
    let Op::CrossEntropyBackward(op) = s.op else {
        return false;
    };
    let x = s.inputs[0];
    x.dtype == DType::F32 && op.loss.dim + 1 == x.shape.len() && !op.also_loss
}

fn launch(mut args: Args) -> Result<(), Misuse> {
    let Op::CrossEntropyBackward(op) = args.op else {
        return Err(Misuse("not a cross_entropy_backward".to_owned()));
    };
    let classes = *args.output.shape().last().unwrap_or(&1);
    let x: &[f32] = args.inputs[0].data();
    let class: &[i64] = args.inputs[1].data();
    let ct: &[f32] = args.inputs[2].data();
    let out = args.output.data();
    for_rows(args.pool, out, classes, WORK * classes, |first, part| {
        for (row, y) in (first..).zip(part.chunks_exact_mut(classes)) {
            if class[row] == op.loss.ignore_index {
                y.fill(0.0);
                continue;
            }
            let x = &x[row * classes..(row + 1) * classes];
            Level::current().run(Line { x, y });
            let own = usize::try_from(class[row]).ok();
            if let Some(y) = own.and_then(|class| y.get_mut(class)) {
                *y -= 1.0;
            }
            y.iter_mut().for_each(|y| *y *= ct[row]);
        }
    });
    Ok(())
}
