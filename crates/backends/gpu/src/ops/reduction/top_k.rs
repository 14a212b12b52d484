//! The best elements along a dimension, and where they are: runs of it are sorted in local memory,
//! and merged by twos where there are several.

use rustorch_ir::{DType, Layout, Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts, Place, Step};

use super::arg_reduce::better;
use crate::driver::Limits;
use crate::emit::{Emitter, GpuKernel};
use crate::kernel::Kernel;
use crate::ops::cuda::top_k::few;
use crate::ops::views::{Memory, for_each, nearest, split, walk};

pub(crate) const KERNELS: [KernelEntry<GpuKernel>; 3] = [
    few(OpKind::TopKSoftmax),
    few(OpKind::TopK),
    KernelEntry {
        kind: OpKind::TopK,
        accepts,
        layouts: Layouts::Any,
        launch: GpuKernel::everywhere(emit),
    },
];

/// Bytes of the keys that a group sorts.
const KEY_BYTES: usize = 16 << 10;

/// Keys that a lane sorts at a time, and the fewest that there are.
const EACH: usize = 16;

/// Work-items of a group, where they take turns.
const PROCESSOR_GROUP: usize = 16;

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

/// Keys of lines that a group sorts in local memory: the Rust side of `sort.h`.
pub(in crate::ops) struct Sorted {
    /// Keys of a group, at most.
    pub(in crate::ops) tile: usize,
    /// Places for a line's keys.
    pub(in crate::ops) size: usize,
    /// Lines of a group.
    pub(in crate::ops) lines: usize,
    group: usize,
}

impl Sorted {
    /// Keys of a group, each of `bytes`.
    pub(in crate::ops) fn tile(limits: &Limits, bytes: usize) -> usize {
        let mut tile = KEY_BYTES / bytes;
        while tile > EACH && (tile + tile / EACH) * bytes > limits.local_bytes * 3 / 4 {
            tile /= 2;
        }
        tile
    }

    /// For `count` lines of `len` keys of `bytes` each, no more than a [tile](Self::tile).
    pub(in crate::ops) fn new(limits: &Limits, bytes: usize, count: usize, len: usize) -> Self {
        let tile = Self::tile(limits, bytes);
        let size = len.next_power_of_two().max(EACH);
        let mut lines = tile / size;
        while lines > 1 && count.div_ceil(lines) < limits.compute_units {
            lines /= 2;
        }
        let group = match limits.is_processor {
            true => PROCESSOR_GROUP.min(tile / EACH),
            false => tile / EACH,
        };
        Self {
            tile,
            size,
            lines,
            group: group.min(limits.max_group.max(1)),
        }
    }

    /// The kernel `name` of `text`, which begins with `sort.h`, for keys of a type.
    pub(in crate::ops) fn kernel(
        &self,
        name: &'static str,
        text: &'static str,
        key: &str,
    ) -> Kernel {
        let mut kernel = Kernel::new(name, text, self.group as u32);
        kernel.define("KEY", key);
        kernel.define("TILE", self.tile);
        kernel.word("size_bits", self.size.ilog2() as usize);
        kernel.word("line_bits", self.lines.ilog2() as usize);
        kernel
    }
}

/// An expression of `v`, of 64 bits if `dtype` has as many, else of 32: an unsigned number in the
/// order of numbers, or in the opposite one.
fn order(dtype: DType, largest: bool) -> String {
    let order = match dtype {
        DType::F64 => "order_of_f64(v)",
        d if d.is_float() => "order_of_f32(v)",
        DType::I64 => "((ulong)(v) ^ (ulong)1 << 63)",
        DType::U64 => "(v)",
        d if d.is_unsigned() => "((uint)(v))",
        _ => "((uint)(int)(v) ^ 1u << 31)",
    };
    let sign = if largest { "~" } else { "" };
    format!("{sign}{order}")
}

/// The type of keys that are made of such numbers and an index.
fn key(is_wide: bool) -> (&'static str, &'static str, usize) {
    match is_wide {
        true => (
            "ulong2",
            "((a).x > (b).x || ((a).x == (b).x && (a).y > (b).y))",
            16,
        ),
        false => ("ulong", "((a) > (b))", 8),
    }
}

/// Places of the best elements of lines.
pub(in crate::ops) struct Best<'a> {
    /// The tensor.
    pub(in crate::ops) x: &'a Place,
    /// The dimension that its lines are along.
    pub(in crate::ops) dim: usize,
    /// Are the largest the best?
    pub(in crate::ops) largest: bool,
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
    pub(in crate::ops) fn find(
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
        let (_, _, bytes) = key(self.is_wide());
        let mut levels = vec![level(Sorted::tile(emitter.limits, bytes))];
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

    /// Are elements of 64 bits?
    fn is_wide(&self) -> bool {
        self.x.ty.dtype.size() == Some(8)
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
        let dtype = self.x.ty.dtype;
        let mut kernel = match from {
            None => self.sort(to, emitter.limits),
            Some((level, runs)) => {
                let text = include_str!("../../../kernels/top_k_merge.c");
                let items = count * level.runs * level.kept;
                let mut kernel = for_each("top_k_merge", text, items);
                kernel.define("BETTER(a, b)", better(dtype, self.largest, self.largest));
                // The earlier first of those that are equal.
                let earlier = "(!BETTER(b, a) && (i) < (j))";
                kernel.define("BEFORE(a, i, b, j)", format!("(BETTER(a, b) || {earlier})"));
                runs.read(&mut kernel, "runs");
                kernel.word("run", level.run);
                kernel.word("runs_of_line", level.runs);
                kernel.word("kept", level.kept);
                kernel.word("y_kept", to.kept);
                kernel
            }
        };
        kernel.define_dtype("X", dtype);
        kernel.define_dtype("Y", y.dtype());
        kernel.read("x", self.x);
        y.write(&mut kernel, "y");
        kernel.define("HAS_VALUES", u8::from(values.is_some()));
        if let Some(values) = values {
            kernel.write("values", values);
        }
        walk(&mut kernel, "x_lines", &[("x", &lines)]);
        walk(&mut kernel, "y_lines", &[("y", y_lines)]);
        kernel.word("len", len);
        kernel.word("x_step", along.strides[0]);
        kernel.word("y_step", y_along.strides[0]);
        emitter.launch(kernel);
    }

    /// The kernel that sorts the runs of a level.
    fn sort(&self, level: &Level, limits: &Limits) -> Kernel {
        let (lines, along) = split(&self.x.layout, self.dim);
        let count = lines.elements() * level.runs;
        let run = level.run.min(along.elements());
        let (key, after, bytes) = key(self.is_wide());
        let sorted = Sorted::new(limits, bytes, count, run);
        let text = concat!(
            include_str!("../../../kernels/sort.h"),
            include_str!("../../../kernels/top_k.c")
        );
        let mut kernel = sorted.kernel("top_k", text, key);
        kernel.define("AFTER(a, b)", after);
        kernel.define("IS_WIDE", u8::from(self.is_wide()));
        kernel.define("ORDER_OF(v)", order(self.x.ty.dtype, self.largest));
        let kept = level.kept.next_power_of_two().max(EACH);
        kernel.word("kept_bits", kept.ilog2() as usize);
        kernel.word("count", count);
        kernel.word("runs", level.runs);
        kernel.word("run", level.run);
        kernel.word("kept", level.kept);
        kernel.word("is_across", usize::from(is_across(&lines, &along)));
        kernel.groups(count.div_ceil(sorted.lines), 1, 1)
    }
}

/// Are neighbours in memory in different lines?
pub(in crate::ops) fn is_across(lines: &Layout, along: &Layout) -> bool {
    match (nearest(lines), nearest(along)) {
        (Some(lines), Some(along)) => lines < along,
        _ => false,
    }
}
