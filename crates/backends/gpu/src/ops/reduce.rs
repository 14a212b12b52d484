//! Reductions over any dimensions, in two passes where results are few and elements many.

use rustorch_ir::ops::ReduceOp;
use rustorch_ir::{DType, Layout, Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts, Step};

use super::lines::{Tile, VECTORS, vector};
use super::views::{Memory, define_rank, dims, walk};
use crate::driver::Limits;
use crate::emit::{Emitter, GpuKernel};
use crate::kernel::{Kernel, name};

pub(crate) const KERNEL: KernelEntry<GpuKernel> = KernelEntry {
    kind: OpKind::Reduce,
    accepts,
    layouts: Layouts::Any,
    launch: GpuKernel::everywhere(emit),
};

/// Elements, or vectors of them, that a lane reads at a time.
const EACH: usize = VECTORS;

fn accepts(_: &Signature) -> bool {
    true
}

fn emit(step: &Step, emitter: &mut Emitter) {
    let Op::Reduce(op) = &step.last().op else {
        return;
    };
    let x = &step.inputs[0];
    let strides = &x.layout.strides;
    let (mut along, kept): (Vec<usize>, Vec<usize>) =
        (0..strides.len()).partition(|d| op.dims.contains(d));
    // Any order will do; that of memory reads it in order.
    along.sort_by_key(|&d| std::cmp::Reverse(strides[d]));
    let lines = Lines {
        x: Memory::Place(x),
        starts: dims(&x.layout, kept.into_iter()),
        along: dims(&x.layout, along.into_iter()),
    };
    let combination = Combination::of(op.op, x.ty.dtype);
    lines.reduce(&combination, Memory::Place(step.output()), emitter);
}

/// Lines whose elements are combined.
pub(super) struct Lines<'a> {
    /// Their memory.
    pub(super) x: Memory<'a>,
    /// Where they start.
    pub(super) starts: Layout,
    /// Where a line's elements are from there.
    pub(super) along: Layout,
}

impl Lines<'_> {
    /// Writes each line's result to `y`, which lies without gaps.
    fn reduce(&self, combination: &Combination, y: Memory, emitter: &mut Emitter) {
        let (count, len) = (self.starts.elements(), self.along.elements());
        let tile = self.tile(emitter.limits, len);
        let segment = tile.segment(count, len);
        if segment >= len {
            return self.pass(combination, len, y, [1, 0], emitter);
        }
        let segments = len.div_ceil(segment);
        let dtype = combination.dtype;
        let bytes = dtype.size().unwrap_or(0) * count * segments;
        let partial = Memory::Scratch(dtype, emitter.scratch(bytes));
        // Partial results lie as the elements do.
        let strides = match tile.is_across {
            true => [1, count],
            false => [segments, 1],
        };
        self.pass(combination, segment, partial, strides, emitter);
        let line = |n: usize, stride: usize| Layout {
            shape: [n].into(),
            strides: [stride].into_iter().collect(),
            offset: 0,
        };
        let partial = Lines {
            x: partial,
            starts: line(count, strides[0]),
            along: line(segments, strides[1]),
        };
        partial.reduce(combination, y, emitter);
    }

    /// How many neighbours lanes load at a time, of segments of `segment` elements.
    fn vector(&self, segment: usize) -> usize {
        vector(self.x, &self.starts, &self.along, segment)
    }

    fn tile(&self, limits: &Limits, segment: usize) -> Tile {
        Tile::of_vectors(limits, &self.starts, &self.along, self.vector(segment))
    }

    /// Reduces each segment of `segment` elements of each line. Results are in steps of
    /// `strides` for the line and the segment.
    pub(super) fn pass(
        &self,
        combination: &Combination,
        segment: usize,
        y: Memory,
        strides: [usize; 2],
        emitter: &mut Emitter,
    ) {
        let (count, len) = (self.starts.elements(), self.along.elements());
        let vector = self.vector(segment);
        let tile = self.tile(emitter.limits, segment);
        let text = concat!(
            include_str!("../../kernels/lines.h"),
            include_str!("../../kernels/vectors.h"),
            include_str!("../../kernels/reduce.c")
        );
        let text = combination.functions.to_owned() + text;
        let mut kernel = Kernel::new("reduce", text, tile.group());
        kernel.define_dtype("X", self.x.dtype());
        kernel.define_dtype("Y", y.dtype());
        combination.define(&mut kernel);
        kernel.define("EACH", EACH);
        kernel.define("VECTOR", vector);
        self.x.read(&mut kernel, "x");
        y.write(&mut kernel, "y");
        tile.declare(&mut kernel);
        walk(&mut kernel, "starts", [("starts", &self.starts)]);
        let rank = walk(&mut kernel, "along", [("along", &self.along)]);
        define_rank(&mut kernel, "ALONG_RANK", rank, "along_rank");
        kernel.word("count", count);
        kernel.word("len", len);
        kernel.word("segment", segment);
        kernel.word("y_line", strides[0]);
        kernel.word("y_segment", strides[1]);
        let segments = len.div_ceil(segment.max(1)).max(1);
        emitter.launch(kernel.groups(tile.groups(count), segments, 1));
    }
}

/// How elements are combined.
pub(super) struct Combination {
    /// The type that they are combined in.
    pub(super) dtype: DType,
    /// What kernels need to be told before.
    pub(super) functions: &'static str,
    /// `a` and `b` combined.
    pub(super) combine: String,
    /// What changes nothing when it is combined with a line's elements.
    pub(super) start: String,
}

impl Combination {
    /// A reduction of elements of `dtype`.
    pub(super) fn of(op: ReduceOp, dtype: DType) -> Self {
        let dtype = match op.output(dtype) {
            DType::F16 | DType::BF16 => DType::F32,
            other => other,
        };
        Self {
            dtype,
            functions: "",
            combine: combination(op, dtype),
            start: start(op, dtype),
        }
    }

    /// Tells a kernel.
    pub(super) fn define(&self, kernel: &mut Kernel) {
        kernel.define_dtype("A", self.dtype);
        kernel.define("COMBINE(a, b)", &self.combine);
        kernel.define("START", &self.start);
    }
}

/// `a` and `b` combined, of what elements are combined in.
pub(super) fn combination(op: ReduceOp, dtype: DType) -> String {
    match op {
        ReduceOp::Sum => sum(dtype),
        ReduceOp::Prod if dtype.is_complex() => format!("mul_{}(a, b)", name(dtype)),
        ReduceOp::Prod if dtype.is_float() => "((a) * (b))".to_owned(),
        // Through unsigned numbers, whose overflow is defined.
        ReduceOp::Prod => format!("((compute_{dtype})((ulong)(a) * (ulong)(b)))"),
        ReduceOp::Max => "MAX_OR_NAN(a, b)".to_owned(),
        ReduceOp::Min => "MIN_OR_NAN(a, b)".to_owned(),
    }
}

/// The sum of `a` and `b`, computed in the type that elements of `dtype` are.
pub(super) fn sum(dtype: DType) -> String {
    let name = name(dtype);
    match dtype {
        d if d.is_complex() => format!("add_{name}(a, b)"),
        d if d.is_float() => "((a) + (b))".to_owned(),
        _ => format!("((compute_{name})((ulong)(a) + (ulong)(b)))"),
    }
}

/// What changes nothing when it is combined with a line's elements.
fn start(op: ReduceOp, dtype: DType) -> String {
    let number = match op {
        ReduceOp::Sum => "0",
        ReduceOp::Prod => "1",
        // Such lines have elements, and the first may be taken twice.
        ReduceOp::Max | ReduceOp::Min => "LOAD(X, x, x_start)",
    };
    match dtype.is_complex() {
        true => format!("make_{}({number}, 0)", name(dtype)),
        false => number.to_owned(),
    }
}
