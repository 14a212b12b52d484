//! Block formats in the portable dialect, and the dequantisation of them.

use rustorch_ir::{BlockFormat, DType};
use rustorch_runtime::Place;

use crate::kernel::Kernel;

/// What kernels know of a format's blocks. Each text defines
///
/// * `SPAN`: the number of values that share a scale, 16 or 32;
/// * `ZERO_POINT` and `HAS_MINIMUM`: a value is scale × (code − zero point), minus the minimum;
/// * `codes_at(block, i)`: codes `4i` to `4i + 3`, as bytes;
/// * `scale_of(block, span)` and, if there is one, `minimum_of(block, span)`.
pub(crate) fn description(format: BlockFormat) -> &'static str {
    macro_rules! texts {
        ($($name:literal)*) => {
            concat!($(include_str!(concat!("../../kernels/formats/", $name, ".h"))),*)
        };
    }
    match format {
        BlockFormat::Q4_0 => texts!("q4_0"),
        BlockFormat::Q4_1 => texts!("q4_1"),
        BlockFormat::Q5_0 => texts!("q5_0"),
        BlockFormat::Q5_1 => texts!("q5_1"),
        BlockFormat::Q8_0 => texts!("q8_0"),
        BlockFormat::Q8_1 => texts!("q8_1"),
        BlockFormat::Q2K => texts!("q2_k"),
        BlockFormat::Q3K => texts!("q3_k"),
        BlockFormat::Q4K => texts!("packed_scales" "q4_k"),
        BlockFormat::Q5K => texts!("packed_scales" "q5_k"),
        BlockFormat::Q6K => texts!("q6_k"),
        BlockFormat::Q8K => texts!("q8_k"),
    }
}

/// The kernel `name` of `text`, for blocks of a format.
pub(crate) fn kernel(name: &'static str, text: &str, group: u32, format: BlockFormat) -> Kernel {
    let text = format!("{}\n{text}", description(format));
    let mut kernel = Kernel::new(name, text, group);
    kernel.define("BLOCK_LENGTH", format.block_len());
    kernel.define("BLOCK_BYTES", format.block_bytes());
    kernel
}

/// Work-items of a group.
const GROUP: u32 = 64;

/// The kernel that writes the values of the blocks `w` to `y`: all of them, or the rows of the
/// listed ids, if the caller says so.
pub(crate) fn dequantize(format: BlockFormat, w: &Place, y: &Place) -> Kernel {
    let text = include_str!("../../kernels/dequantize.c");
    let mut kernel = kernel("dequantize", text, GROUP, format);
    kernel.read("w", w);
    kernel.define_dtype("Y", y.ty.dtype);
    kernel.write("y", y);
    // Blocks hold a multiple of four values.
    let n = y.ty.shape.elements() / 4;
    kernel.word("n", n);
    kernel.groups(n.div_ceil(GROUP as usize), 1, 1)
}

/// The format of a dtype of blocks.
pub(crate) fn format(dtype: DType) -> Option<BlockFormat> {
    match dtype {
        DType::Block(format) => Some(format),
        _ => None,
    }
}
