//! Indices of the best elements along a dimension: runs of it are sorted, and merged by twos.

use rustorch_ir::{DType, Layout, Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts, Step};

use super::arg_reduce::better;
use super::views::{Memory, for_each, split, walk};
use crate::emit::{Emit, Emitter};
use crate::kernel::Kernel;

pub(crate) const KERNEL: KernelEntry<Emit> = KernelEntry {
    kind: OpKind::TopK,
    accepts,
    layouts: Layouts::Any,
    launch: emit,
};

/// Elements of a run that is sorted by counting, whose work grows with their square.
const RUN: usize = 256;

fn accepts(_: &Signature) -> bool {
    true
}

fn emit(step: &Step, emitter: &mut Emitter) {
    let Op::TopK(op) = &step.last().op else {
        return;
    };
    let dtype = step.inputs[0].ty.dtype;
    let best = Best {
        step,
        dim: op.dim,
        better: better(dtype, op.largest, op.largest),
    };
    let (lines, along) = split(&step.inputs[0].layout, op.dim);
    let (count, len) = (lines.elements(), along.elements());
    let index = DType::U32;
    let size = index.size().unwrap_or(0);
    let level = |run: usize| Level {
        run,
        runs: len.div_ceil(run),
        kept: op.k.min(run),
    };
    let mut levels = vec![level(RUN)];
    while let Some(last) = levels.last().filter(|last| last.runs > 1) {
        levels.push(level(last.run * 2));
    }
    let most = levels.iter().map(|l| l.runs * l.kept).max().unwrap_or(0);
    let inner = levels.len() - 1;
    let memory: Vec<Memory> = (0..inner.min(2))
        .map(|_| Memory::Scratch(index, emitter.scratch(count * most * size)))
        .collect();
    for (at, to) in levels.iter().enumerate() {
        let y = memory.get(at % 2).filter(|_| at < inner);
        let from = at
            .checked_sub(1)
            .map(|from| (&levels[from], memory[from % 2]));
        best.pass(from, to, y.copied(), emitter);
    }
}

/// Lines whose best elements have been found in runs.
struct Level {
    /// Elements of a run.
    run: usize,
    /// Runs of a line.
    runs: usize,
    /// Indices that are kept of a run, the best first.
    kept: usize,
}

struct Best<'a> {
    step: &'a Step,
    dim: usize,
    /// Is `a` better than `b`?
    better: String,
}

impl Best<'_> {
    /// Sorts runs, or merges those of a level `from`; indices go to `y`, or else are the result.
    fn pass(
        &self,
        from: Option<(&Level, Memory)>,
        to: &Level,
        y: Option<Memory>,
        emitter: &mut Emitter,
    ) {
        let (x, result) = (&self.step.inputs[0], &self.step.output);
        let (lines, along) = split(&x.layout, self.dim);
        let (count, len) = (lines.elements(), along.elements());
        let mut kernel = match from {
            None => {
                let text = include_str!("../../kernels/top_k.c");
                let mut kernel = for_each("top_k", text, count * len);
                kernel.word("run", to.run);
                kernel.word("kept", to.kept);
                kernel
            }
            Some((level, runs)) => {
                let text = include_str!("../../kernels/top_k_merge.c");
                let items = count * level.runs * level.kept;
                let mut kernel = for_each("top_k_merge", text, items);
                runs.read(&mut kernel, "runs");
                kernel.word("run", level.run);
                kernel.word("runs_of_line", level.runs);
                kernel.word("kept", level.kept);
                kernel.word("y_kept", to.kept);
                kernel
            }
        };
        self.declare_order(&mut kernel);
        kernel.define_dtype("X", x.ty.dtype);
        kernel.read("x", x);
        let y_view = match y {
            Some(_) => Layout::contiguous(&[lines.elements(), to.runs * to.kept].into()),
            None => Layout::contiguous(&result.ty.shape),
        };
        let (y_lines, y_along) = split(&y_view, if y.is_some() { 1 } else { self.dim });
        let y = y.unwrap_or(Memory::Place(result));
        kernel.define_dtype("Y", y.dtype());
        y.write(&mut kernel, "y");
        walk(&mut kernel, "x_lines", [("x", &lines)]);
        walk(&mut kernel, "y_lines", [("y", &y_lines)]);
        kernel.word("len", len);
        kernel.word("x_step", along.strides[0]);
        kernel.word("y_step", y_along.strides[0]);
        emitter.launch(kernel);
    }

    /// The order of elements, the earlier first of those that are equal.
    fn declare_order(&self, kernel: &mut Kernel) {
        kernel.define("BETTER(a, b)", &self.better);
        let earlier = "(!BETTER(b, a) && (i) < (j))";
        kernel.define("BEFORE(a, i, b, j)", format!("(BETTER(a, b) || {earlier})"));
    }
}
