//! Running sums along a dimension: where lines are few and long, of segments, which begin with
//! the running sums of the segments before.

use rustorch_ir::ops::ReduceOp;
use rustorch_ir::{DType, Layout, Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts, Step};

use super::lines::Tile;
use super::reduce::{Lines, accumulator, start, sum};
use super::views::{Memory, split, walk};
use crate::emit::{Emitter, GpuKernel};
use crate::kernel::Kernel;

pub(crate) const KERNEL: KernelEntry<GpuKernel> = KernelEntry {
    kind: OpKind::Cumsum,
    accepts,
    layouts: Layouts::Any,
    launch: GpuKernel::everywhere(emit),
};

/// Elements that a lane adds up at a time.
const EACH: usize = 4;

fn accepts(_: &Signature) -> bool {
    true
}

fn emit(step: &Step, emitter: &mut Emitter) {
    let Op::Cumsum(op) = &step.last().op else {
        return;
    };
    let (x, y) = (&step.inputs[0], step.output());
    let (x_lines, x_along) = split(&x.layout, op.dim);
    let (count, len) = (x_lines.elements(), x_along.elements());
    let tile = Tile::new(emitter.limits, &x_lines, &x_along);
    let segment = tile.segment(count, len);
    let segments = len.div_ceil(segment);
    let dtype = accumulator(ReduceOp::Sum, x.ty.dtype);
    let carries = (segments > 1).then(|| {
        let bytes = count * segments * dtype.size().unwrap_or(0);
        let [sums, carries] = [(); 2].map(|()| Memory::Scratch(dtype, emitter.scratch(bytes)));
        let lines = Lines {
            x: Memory::Place(x),
            starts: x_lines,
            along: x_along,
        };
        lines.pass(ReduceOp::Sum, segment, sums, [segments, 1], emitter);
        let view = Layout::contiguous(&[count, segments].into());
        let running = Running {
            dtype,
            memory: [sums, carries],
            views: [&view, &view],
            dim: 1,
        };
        running.pass(None, segments, emitter);
        carries
    });
    let running = Running {
        dtype,
        memory: [Memory::Place(x), Memory::Place(y)],
        views: [&x.layout, &Layout::contiguous(&y.ty.shape)],
        dim: op.dim,
    };
    running.pass(carries, segment, emitter);
}

/// Elements, and where their running sums are to be.
struct Running<'a> {
    /// Type of the sums.
    dtype: DType,
    memory: [Memory<'a>; 2],
    views: [&'a Layout; 2],
    dim: usize,
}

impl Running<'_> {
    /// Goes through the segments of `segment` elements, which begin with `carries`.
    fn pass(&self, carries: Option<Memory>, segment: usize, emitter: &mut Emitter) {
        let [(x_lines, x_along), (y_lines, y_along)] = self.views.map(|v| split(v, self.dim));
        let (count, len) = (x_lines.elements(), x_along.elements());
        let tile = Tile::new(emitter.limits, &x_lines, &x_along);
        let text = concat!(
            include_str!("../../kernels/lines.h"),
            include_str!("../../kernels/cumsum.c")
        );
        let mut kernel = Kernel::new("cumsum", text, tile.group());
        let [x, y] = self.memory;
        kernel.define_dtype("X", x.dtype());
        kernel.define_dtype("A", self.dtype);
        kernel.define_dtype("Y", y.dtype());
        kernel.define("COMBINE(a, b)", sum(self.dtype));
        kernel.define("ZERO", start(ReduceOp::Sum, self.dtype));
        kernel.define("EACH", EACH);
        kernel.define("HAS_CARRIES", u8::from(carries.is_some()));
        x.read(&mut kernel, "x");
        y.write(&mut kernel, "y");
        if let Some(carries) = carries {
            carries.read(&mut kernel, "carries");
        }
        tile.declare(&mut kernel);
        walk(&mut kernel, "starts", [("x", &x_lines), ("y", &y_lines)]);
        let segments = len.div_ceil(segment);
        kernel.word("count", count);
        kernel.word("len", len);
        kernel.word("segment", segment);
        kernel.word("segments", segments);
        kernel.word("x_step", x_along.strides[0]);
        kernel.word("y_step", y_along.strides[0]);
        emitter.launch(kernel.groups(tile.groups(count), segments, 1));
    }
}
