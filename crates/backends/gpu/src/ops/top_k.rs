//! The best elements along a dimension, and where they are: runs of it are sorted, and merged by
//! twos.

use rustorch_ir::{DType, Layout, Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts, Place, Step};

use super::arg_reduce::better;
use super::views::{Memory, for_each, split, walk};
use crate::emit::{Emitter, GpuKernel};

pub(crate) const KERNEL: KernelEntry<GpuKernel> = KernelEntry {
    kind: OpKind::TopK,
    accepts,
    layouts: Layouts::Any,
    launch: GpuKernel::everywhere(emit),
};

/// Elements of a run that is sorted by counting, whose work grows with their square.
const RUN: usize = 64;

fn accepts(_: &Signature) -> bool {
    true
}

fn emit(step: &Step, emitter: &mut Emitter) {
    let Op::TopK(op) = &step.last().op else {
        return;
    };
    let best = Best {
        x: &step.inputs[0],
        dim: op.dim,
        largest: op.largest,
    };
    let [values, indices] = [0, 1].map(|result| &step.outputs[result]);
    let view = Layout::contiguous(&indices.ty.shape);
    best.find(Memory::Place(indices), Some(values), &view, emitter);
}

/// Where the best elements of lines are.
pub(super) struct Best<'a> {
    /// The tensor.
    pub(super) x: &'a Place,
    /// The dimension that its lines are along.
    pub(super) dim: usize,
    /// Are the largest the best?
    pub(super) largest: bool,
}

/// Lines whose best elements are known for each of several runs.
struct Level {
    /// Elements of a run.
    run: usize,
    /// Runs of a line.
    runs: usize,
    /// Indices that are kept of a run, the best first.
    kept: usize,
}

impl Best<'_> {
    /// Writes as many indices for each line, in order, as lines of `y` have, and to `values` the
    /// elements; `view` is that of both.
    pub(super) fn find(
        &self,
        y: Memory,
        values: Option<&Place>,
        view: &Layout,
        emitter: &mut Emitter,
    ) {
        let (lines, along) = split(&self.x.layout, self.dim);
        let (count, len) = (lines.elements(), along.elements());
        let level = |run: usize| Level {
            run,
            runs: len.div_ceil(run),
            kept: view.shape[self.dim].min(run),
        };
        let mut levels = vec![level(RUN)];
        while let Some(last) = levels.last().filter(|last| last.runs > 1) {
            levels.push(level(last.run * 2));
        }
        // Levels but the last take turns in memory.
        let indices = |level: &Level| level.runs * level.kept;
        let most = levels.iter().map(indices).max().unwrap_or(0);
        let inner = levels.len() - 1;
        let scratch: Vec<Memory> = (0..inner.min(2))
            .map(|_| {
                let bytes = DType::U32.size().unwrap_or(0) * count * most;
                Memory::Scratch(DType::U32, emitter.scratch(bytes))
            })
            .collect();
        for (at, to) in levels.iter().enumerate() {
            let from = at.checked_sub(1).map(|at| (&levels[at], scratch[at % 2]));
            if at == inner {
                self.pass(from, to, (y, values), &split(view, self.dim), emitter);
            } else {
                let inside = Layout::contiguous(&[count, indices(to)].into());
                self.pass(
                    from,
                    to,
                    (scratch[at % 2], None),
                    &split(&inside, 1),
                    emitter,
                );
            }
        }
    }

    /// Sorts runs, or merges those of a level `from`, to lines of `y`, and of `values`.
    fn pass(
        &self,
        from: Option<(&Level, Memory)>,
        to: &Level,
        (y, values): (Memory, Option<&Place>),
        (y_lines, y_along): &(Layout, Layout),
        emitter: &mut Emitter,
    ) {
        let (lines, along) = split(&self.x.layout, self.dim);
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
        let dtype = self.x.ty.dtype;
        kernel.define("BETTER(a, b)", better(dtype, self.largest, self.largest));
        // The earlier first of those that are equal.
        let earlier = "(!BETTER(b, a) && (i) < (j))";
        kernel.define("BEFORE(a, i, b, j)", format!("(BETTER(a, b) || {earlier})"));
        kernel.define_dtype("X", dtype);
        kernel.define_dtype("Y", y.dtype());
        kernel.read("x", self.x);
        y.write(&mut kernel, "y");
        kernel.define("HAS_VALUES", u8::from(values.is_some()));
        if let Some(values) = values {
            kernel.write("values", values);
        }
        walk(&mut kernel, "x_lines", [("x", &lines)]);
        walk(&mut kernel, "y_lines", [("y", y_lines)]);
        kernel.word("len", len);
        kernel.word("x_step", along.strides[0]);
        kernel.word("y_step", y_along.strides[0]);
        emitter.launch(kernel);
    }
}
