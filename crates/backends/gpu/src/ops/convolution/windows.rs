//! Common parts of kernels that go through 2-D windows.

use rustorch_ir::ops::ChannelsLast;
use rustorch_runtime::{Place, Step};

use crate::kernel::{Kernel, accumulator};
use crate::ops::tile::CHAIN;
use crate::ops::views::{PARTS, WIDEST, for_each, vector};

/// Layout of windows.
pub(in crate::ops) struct Windows {
    /// Elements of a window.
    pub(in crate::ops) kernel_size: [usize; 2],
    /// Distance between windows.
    pub(in crate::ops) stride: [usize; 2],
    /// Rows and columns around the tensor that has windows.
    pub(in crate::ops) padding: [usize; 2],
    /// Distance between the elements of a window.
    pub(in crate::ops) dilation: [usize; 2],
}

/// The kernel `name` of `text` with a work-item for each of `count` numbers, for a result
/// `[n, c, h, w]`. It has the operand `x`, and its strides.
pub(in crate::ops) fn kernel(
    name: &'static str,
    text: &'static str,
    [x, result]: [&Place; 2],
    windows: &Windows,
    count: usize,
) -> Kernel {
    let mut kernel = for_each(name, text, count);
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

/// Number of neighbouring channels of images that can be moved as 16 bytes: all images have their channels last in
/// memory. `images[0]` has the wide numbers.
pub(in crate::ops) fn channels_together(images: &[&Place]) -> usize {
    let dtype = images[0].ty.dtype;
    let wide = dtype.size().map_or(1, |size| WIDEST / size);
    let seen = |place: &&Place| place.layout.permute(&ChannelsLast::ORDER);
    let layouts: Vec<_> = images.iter().map(seen).collect();
    let fits = PARTS.contains(&dtype) && vector(WIDEST / wide, &layouts, &[], &[]) == wide;
    if fits { wide } else { 1 }
}

/// Channels of the result that a work-item of a convolution computes from elements that it reads
/// once.
const OUTPUTS: usize = 8;

/// The same for a convolution in `groups` groups of channels, which also has operands `w` and
/// perhaps `b`. Work-items that do not compute several channels compute `places` rows.
pub(in crate::ops) fn convolution(
    name: &'static str,
    text: &'static str,
    step: &Step,
    windows: &Windows,
    groups: usize,
    places: usize,
) -> Kernel {
    let (weight, result) = (&step.inputs[1], &step.output().ty.shape);
    let group_outputs = result[1] / groups;
    let [outputs, places] = match group_outputs.is_multiple_of(OUTPUTS) {
        true => [OUTPUTS, 1],
        false => [1, places],
    };
    let planes = result[0] * result[1] / outputs;
    let count = planes * result[2].div_ceil(places) * result[3];
    let operands = [&step.inputs[0], step.output()];
    let mut kernel = kernel(name, text, operands, windows, count);
    kernel.define("OUTPUTS", outputs);
    kernel.define("PLACES", places);
    kernel.define("CHAIN", CHAIN);
    kernel.read("w", weight);
    kernel.words("w_strides", &weight.layout.strides);
    kernel.define("HAS_BIAS", step.inputs.len() - 2);
    if let Some(bias) = step.inputs.get(2) {
        kernel.read("b", bias);
        kernel.words("b_strides", &bias.layout.strides);
    }
    kernel.word("group_channels", step.inputs[0].ty.shape[1] / groups);
    kernel.word("group_outputs", group_outputs);
    kernel
}
