//! Products of the same few rows in one loop, with the norm before them and the operations behind.
//! Decoding a token takes many short loops, so one loop less shows.

use std::cell::RefCell;

use rustorch_ir::ops::{Epilogue, FusedLinear};
use rustorch_ir::{DType, Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts};
use smallvec::SmallVec;

use super::linear::{SCRATCH, weight, weight_type};
use crate::kernel::{Args, Misuse};
use crate::kernels::rms_norm::Line;
use crate::launch::Launch;
use crate::qmatmul::MAX_FEW;
use crate::qmatmul::few::{self, Projection};
use crate::simd::Level;

pub(crate) const KERNEL: KernelEntry<Launch> = KernelEntry {
    kind: OpKind::FusedLinear,
    accepts,
    layouts: Layouts::Contiguous,
    launch: Launch::Whole(launch),
};

thread_local! {
    /// Rows after the norm.
    static NORMED: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
    /// The product that a gate is multiplied with.
    static GATED: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

/// Few rows: with more, a product is long enough by itself.
fn accepts(s: &Signature) -> bool {
    let Op::FusedLinear(op) = s.op else {
        return false;
    };
    let (x, width) = (s.inputs[0], s.inputs[0].shape.last().copied());
    let weights = &s.inputs[op.weight(0)..op.weight(op.count)];
    x.dtype == DType::F32
        && x.shape.elements() <= MAX_FEW * width.unwrap_or(1)
        && weights.iter().all(|w| weight_type(w.dtype).is_some())
        && s.outputs.iter().all(|y| y.shape.elements() > 0)
}

fn launch(mut args: Args) -> Result<(), Misuse> {
    let Op::FusedLinear(op) = args.op else {
        return Err(Misuse("not a fused_linear".to_owned()));
    };
    let width = args.inputs[0].shape().last().copied().unwrap_or(1);
    let x: &[f32] = args.inputs[0].data();
    let Some(prologue) = &op.norm else {
        return multiply(op, &mut args, x, width);
    };
    let norm_weight: Option<&[f32]> = op.norm_weight().map(|i| args.inputs[i].data());
    NORMED.with_borrow_mut(|normed| {
        normed.resize(x.len(), 0.0);
        // A norm of few rows is not a loop to share.
        for (y, x) in normed
            .chunks_exact_mut(width.max(1))
            .zip(x.chunks_exact(width.max(1)))
        {
            Level::current().run(Line {
                x,
                eps: prologue.norm.eps.0 as f32,
                weight: norm_weight,
                y,
            });
        }
        multiply(op, &mut args, normed, width)
    })
}

/// The products of the rows `x`, of `width` each, and the operations on them.
fn multiply(op: &FusedLinear, args: &mut Args, x: &[f32], width: usize) -> Result<(), Misuse> {
    let rows = x.len() / width.max(1);
    let epilogue = match (op.epilogue, op.other()) {
        (Some(Epilogue::Gate(kind)), _) => few::Epilogue::Gate(kind),
        (_, Some(other)) => few::Epilogue::Add(args.inputs[other].data()),
        _ => few::Epilogue::Nothing,
    };
    GATED.with_borrow_mut(|gated| {
        let mut results: SmallVec<[&mut [f32]; 3]> = SmallVec::new();
        results.push(args.output.data());
        results.extend(args.others.iter_mut().map(|y| y.data()));
        if results.len() < op.count {
            gated.resize(results[0].len(), 0.0);
            results.push(gated);
        }
        let mut products: SmallVec<[Projection; 3]> = SmallVec::new();
        for (i, y) in results.into_iter().enumerate() {
            products.push(Projection {
                w: weight(&args.inputs[op.weight(i)])?,
                bias: op.bias(i).map(|i| args.inputs[i].data()),
                y,
            });
        }
        SCRATCH.with_borrow_mut(|scratch| {
            let (level, rows) = (Level::current(), (x, rows));
            few::multiply(args.pool, level, rows, &mut products, epilogue, scratch);
        });
        Ok(())
    })
}
