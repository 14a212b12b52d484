//! Cross entropy of lines along a dimension with a class each, and its gradient.

use rustorch_ir::ops::CrossEntropy;
use rustorch_ir::{DType, Layout, Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts, Step};

use super::softmax::lowest;
use crate::dialect::Dialect;
use crate::emit::{Emitter, GpuKernel};
use crate::kernel::{Kernel, accumulator, halves};
use crate::ops::cuda;
use crate::ops::lines::{Tile, vector};
use crate::ops::views::{Memory, split, walk};

const fn entry(kind: OpKind, emit: fn(&Step, &mut Emitter)) -> KernelEntry<GpuKernel> {
    KernelEntry {
        kind,
        accepts,
        layouts: Layouts::Any,
        launch: GpuKernel::everywhere(emit),
    }
}

pub(crate) const KERNELS: [KernelEntry<GpuKernel>; 2] = [
    entry(OpKind::CrossEntropy, emit),
    entry(OpKind::CrossEntropyBackward, emit_backward),
];

fn accepts(_: &Signature) -> bool {
    true
}

/// Operands of both kernels: the operand's lines, and their classes.
struct Classified<'a> {
    step: &'a Step,
    loss: &'a CrossEntropy,
    starts: Layout,
    along: Layout,
    tile: Tile,
    /// The exponential function's name.
    exp: &'static str,
}

impl<'a> Classified<'a> {
    fn new(step: &'a Step, loss: &'a CrossEntropy, emitter: &Emitter) -> Self {
        let (starts, along) = split(&step.inputs[0].layout, loss.dim);
        let tile = Tile::whole_lines(emitter.limits, &starts, &along);
        Self {
            step,
            loss,
            starts,
            along,
            tile,
            exp: match (emitter.dialect, step.inputs[0].ty.dtype) {
                // Less precise than single precision, and more than halves.
                (Dialect::Cuda, DType::F16 | DType::BF16) => "__expf",
                _ => "exp",
            },
        }
    }

    /// Number of neighbours of the operand's lines that lanes load at a time.
    fn vector(&self) -> usize {
        let x = Memory::Place(&self.step.inputs[0]);
        vector(x, &self.starts, &self.along, self.along.elements())
    }

    /// The kernel, whose lines are walked through with those of further `views`.
    fn kernel(
        &self,
        name: &'static str,
        text: &'static str,
        vector: usize,
        views: &[(&str, &Layout)],
    ) -> Kernel {
        let (x, classes) = (&self.step.inputs[0], &self.step.inputs[1]);
        let mut kernel = Kernel::new(name, text, self.tile.group());
        let dtype = x.ty.dtype;
        kernel.define_dtype("X", dtype);
        kernel.define("ACCUMULATOR", accumulator(dtype));
        kernel.define("LOWEST", lowest(dtype));
        kernel.define("EXP", self.exp);
        kernel.define("HELD", 0);
        kernel.define("VECTOR", vector);
        kernel.read("x", x);
        kernel.read("classes", classes);
        kernel.write("y", self.step.output());
        self.tile.declare(&mut kernel);
        let own = [("x", &self.starts), ("class", &classes.layout)];
        walk(&mut kernel, "starts", &[&own, views].concat());
        kernel.word("count", self.starts.elements());
        kernel.word("len", self.along.elements());
        kernel.word("x_step", self.along.strides[0]);
        kernel.words("ignored", &halves(self.loss.ignore_index as u64));
        kernel
    }

    /// Defines the losses' dtype in the kernel, and its report of mistakes.
    fn losses(&self, kernel: &mut Kernel, emitter: &mut Emitter) {
        let dtype = self.step.outputs[self.step.outputs.len() - 1].ty.dtype;
        kernel.define_dtype("Y", dtype);
        // The message names no class: an ignored class may lie outside as well.
        let (len, x) = (self.along.elements(), &self.step.inputs[0].ty);
        let classes = format!("the {len} classes of dimension {} of {x}", self.loss.dim);
        let message = format!("a class is outside {classes}");
        kernel.status("status", emitter.mistake(self.step, 0, message));
    }

    fn groups(&self) -> usize {
        self.tile.groups(self.starts.elements())
    }
}

fn emit(step: &Step, emitter: &mut Emitter) {
    let Op::CrossEntropy(op) = &step.last().op else {
        return;
    };
    let text = concat!(
        include_str!("../../../kernels/lines.h"),
        include_str!("../../../kernels/vectors.h"),
        include_str!("../../../kernels/log_sum.h"),
        include_str!("../../../kernels/cross_entropy.c")
    );
    let lines = Classified::new(step, op, emitter);
    let mut kernel = lines.kernel("cross_entropy", text, lines.vector(), &[]);
    lines.losses(&mut kernel, emitter);
    emitter.launch(kernel.groups(lines.groups(), 1, 1));
}

fn emit_backward(step: &Step, emitter: &mut Emitter) {
    let Op::CrossEntropyBackward(op) = &step.last().op else {
        return;
    };
    let mut text = concat!(
        include_str!("../../../kernels/lines.h"),
        include_str!("../../../kernels/vectors.h"),
        include_str!("../../../kernels/log_sum.h"),
        include_str!("../../../kernels/cross_entropy_backward.c")
    );
    let mut lines = Classified::new(step, &op.loss, emitter);
    let whole = Layout::contiguous(&step.output().ty.shape);
    let (starts, along) = split(&whole, op.loss.dim);
    let of_y = vector(
        Memory::Place(step.output()),
        &starts,
        &along,
        along.elements(),
    );
    let vector = lines.vector().min(of_y);
    let ct = &step.inputs[2];
    let views = [("y", &starts), ("ct", &ct.layout)];
    let len = lines.along.elements();
    let bytes = len * step.inputs[0].ty.dtype.size().unwrap_or(0);
    let is_local = cuda::cross_entropy::accepts(step.inputs[0].ty.dtype, vector, bytes, emitter);
    if is_local {
        text = cuda::cross_entropy::BACKWARD;
        lines.tile = Tile::of_groups(cuda::cross_entropy::GROUP);
    }
    let mut kernel = lines.kernel("cross_entropy_backward", text, vector, &views);
    if is_local {
        let is_half = step.inputs[0].ty.dtype != DType::F32;
        kernel.define("IS_HALF", u8::from(is_half));
        kernel.dynamic_local(bytes);
    }
    kernel.define("HAS_LOSS", u8::from(op.also_loss));
    if op.also_loss {
        lines.losses(&mut kernel, emitter);
        kernel.write("losses", &step.outputs[1]);
    }
    kernel.define_dtype("CT", ct.ty.dtype);
    kernel.read("cts", ct);
    kernel.word("y_step", along.strides[0]);
    emitter.launch(kernel.groups(lines.groups(), 1, 1));
}
