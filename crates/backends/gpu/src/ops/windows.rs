//! What kernels that go through 2-D windows have in common.

use rustorch_runtime::Step;

use super::views::for_each;
use crate::kernel::{Kernel, accumulator};

/// How windows lie. Pairs are (height, width).
pub(super) struct Windows {
    /// Elements of a window.
    pub(super) kernel_size: [usize; 2],
    /// Distance between windows.
    pub(super) stride: [usize; 2],
    /// Rows and columns around the tensor that has windows.
    pub(super) padding: [usize; 2],
    /// Distance between the elements of a window.
    pub(super) dilation: [usize; 2],
}

/// The kernel `name` of `text` with a work-item for each element of `result`, `[n, c, h, w]`.
/// It has the operand `x`, and its strides.
pub(super) fn kernel(
    name: &'static str,
    text: &'static str,
    step: &Step,
    windows: &Windows,
) -> Kernel {
    let (x, result) = (&step.inputs[0], &step.output);
    let mut kernel = for_each(name, text, result.ty.shape.elements());
    kernel.define_dtype("X", x.ty.dtype);
    kernel.define("ACCUMULATOR", accumulator(x.ty.dtype));
    kernel.read("x", x);
    kernel.write("result", result);
    kernel.words("x_strides", &x.layout.strides);
    kernel.words("size", &x.ty.shape[2..]);
    kernel.words("out", &result.ty.shape);
    kernel.words("kernel_size", &windows.kernel_size);
    kernel.words("stride", &windows.stride);
    kernel.words("padding", &windows.padding);
    kernel.words("dilation", &windows.dilation);
    kernel
}

/// Adds what convolutions have more: operands `w` and perhaps `b`, and the channels of each of
/// `groups` groups.
pub(super) fn add_weights(kernel: &mut Kernel, step: &Step, groups: usize) {
    let weight = &step.inputs[1];
    kernel.read("w", weight);
    kernel.words("w_strides", &weight.layout.strides);
    kernel.define("HAS_BIAS", step.inputs.len() - 2);
    if let Some(bias) = step.inputs.get(2) {
        kernel.read("b", bias);
        kernel.words("b_strides", &bias.layout.strides);
    }
    kernel.word("group_channels", step.inputs[0].ty.shape[1] / groups);
    kernel.word("group_outputs", step.output.ty.shape[1] / groups);
}
