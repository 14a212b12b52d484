//! The best element along a dimension and its index, in two passes where lines are few and long.

use rustorch_ir::{DType, Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts, Place, Step};

use super::lines::{Tile, VECTORS, vector};
use crate::emit::{Emitter, GpuKernel};
use crate::kernel::Kernel;
use crate::ops::views::{Memory, split, walk};

pub(crate) const KERNEL: KernelEntry<GpuKernel> = KernelEntry {
    kind: OpKind::ArgReduce,
    accepts,
    layouts: Layouts::Any,
    launch: GpuKernel::everywhere(emit),
};

fn accepts(_: &Signature) -> bool {
    true
}

fn emit(step: &Step, emitter: &mut Emitter) {
    let Op::ArgReduce(op) = &step.last().op else {
        return;
    };
    let choice = Choice {
        x: &step.inputs[0],
        dim: op.dim,
        largest: op.largest,
    };
    let (starts, along) = split(&choice.x.layout, op.dim);
    let (count, len) = (starts.elements(), along.elements());
    let vector = vector(Memory::Place(choice.x), &starts, &along, len);
    let tile = Tile::of_vectors(emitter.limits, &starts, &along, vector);
    let segment = tile.segment(count, len);
    let segments = len.div_ceil(segment);
    let (values, indices) = match &step.outputs[..] {
        [values, indices] => (Some(values), indices),
        _ => (None, step.output()),
    };
    let y = Memory::Place(indices);
    if segments == 1 {
        return choice.pass(None, len, segment, (y, values), emitter);
    }
    let index = DType::U32;
    let bytes = count * segments * index.size().unwrap_or(0);
    let candidates = Memory::Scratch(index, emitter.scratch(bytes));
    choice.pass(None, len, segment, (candidates, None), emitter);
    choice.pass(Some(candidates), segments, segments, (y, values), emitter);
}

/// The choice of the best element, and its index.
struct Choice<'a> {
    x: &'a Place,
    dim: usize,
    largest: bool,
}

impl Choice<'_> {
    /// The best of each segment of `segment` among `len` candidates of each line: its index, and
    /// the element where a line is one segment.
    fn pass(
        &self,
        candidates: Option<Memory>,
        len: usize,
        segment: usize,
        (y, values): (Memory, Option<&Place>),
        emitter: &mut Emitter,
    ) {
        let (starts, along) = split(&self.x.layout, self.dim);
        let count = starts.elements();
        let vector = match candidates {
            None => vector(Memory::Place(self.x), &starts, &along, segment),
            Some(_) => 1,
        };
        let tile = Tile::of_vectors(emitter.limits, &starts, &along, vector);
        let text = concat!(
            include_str!("../../../kernels/lines.h"),
            include_str!("../../../kernels/vectors.h"),
            include_str!("../../../kernels/arg_reduce.c")
        );
        let mut kernel = Kernel::new("arg_reduce", text, tile.group());
        kernel.define_dtype("X", self.x.ty.dtype);
        kernel.define_dtype("Y", y.dtype());
        kernel.define("BEATS(a, b)", better(self.x.ty.dtype, self.largest, true));
        kernel.define("VECTOR", vector);
        kernel.define("EACH", VECTORS);
        kernel.define("HAS_CANDIDATES", u8::from(candidates.is_some()));
        kernel.read("x", self.x);
        if let Some(candidates) = candidates {
            candidates.read(&mut kernel, "candidates");
        }
        y.write(&mut kernel, "y");
        kernel.define("HAS_EXTREMES", u8::from(values.is_some()));
        if let Some(values) = values {
            kernel.write("extremes", values);
        }
        tile.declare(&mut kernel);
        walk(&mut kernel, "starts", &[("starts", &starts)]);
        let segments = len.div_ceil(segment);
        kernel.word("count", count);
        kernel.word("len", len);
        kernel.word("segment", segment);
        kernel.word("segments", segments);
        kernel.word("step", along.strides[0]);
        emitter.launch(kernel.groups(tile.groups(count), segments, 1));
    }
}

/// Is `a` better than `b`: larger, or smaller, and NaN better than numbers, or worse?
pub(in crate::ops) fn better(dtype: DType, largest: bool, nan_is_best: bool) -> String {
    let sign = if largest { ">" } else { "<" };
    if !dtype.is_float() {
        return format!("((a) {sign} (b))");
    }
    let (nan, number) = if nan_is_best { ("a", "b") } else { ("b", "a") };
    format!("((a) {sign} (b) || (({nan}) != ({nan}) && ({number}) == ({number})))")
}
