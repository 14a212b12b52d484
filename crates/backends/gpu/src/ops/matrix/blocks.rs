//! Block formats in the portable dialect, and the dequantisation of them.

use rustorch_ir::{BlockFormat, DType};
use rustorch_runtime::Place;

use crate::kernel::Kernel;

macro_rules! descriptions {
    ($($variant:ident $module:ident $block:ident),+) => {
        /// Texts about a format's blocks for kernels, in the file of its name. Each text defines
        ///
        /// * `SPAN`: the number of values that share a scale, 16 or 32;
        /// * `ZERO_POINT` and `HAS_MINIMUM`: a value is scale × (code − zero point), minus the
        ///   minimum;
        /// * `codes_at(block, i)`: codes `4i` to `4i + 3`, as bytes;
        /// * `scale_of(block, span)` and, if there is one, `minimum_of(block, span)`.
        const fn own_description(format: BlockFormat) -> &'static str {
            match format {
                $(BlockFormat::$variant => include_str!(concat!(
                    "../../../kernels/formats/", stringify!($module), ".h"
                ))),+
            }
        }
    };
}

rustorch_quant::for_each_format!(descriptions);

/// Texts that formats have in common, each with a function that it defines.
const SHARED: [(&str, &str); 2] = [
    (
        "packed_scale(",
        include_str!("../../../kernels/formats/packed_scales.h"),
    ),
    (
        "e2m1_codes(",
        include_str!("../../../kernels/formats/e2m1.h"),
    ),
];

/// [`own_description`], behind what formats have in common that it needs.
pub(crate) fn description(format: BlockFormat) -> String {
    let own = own_description(format);
    let needed = SHARED.iter().filter(|(name, _)| own.contains(name));
    needed.map(|&(_, text)| text).chain([own]).collect()
}

/// Are codes bytes with sign? They are where neither a zero point nor a minimum makes negative
/// values of them.
pub(crate) fn has_signed_codes(format: BlockFormat) -> bool {
    let text = own_description(format);
    let has_none = |name: &str| text.contains(&format!("#define {name} 0\n"));
    has_none("ZERO_POINT") && has_none("HAS_MINIMUM")
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
    let text = include_str!("../../../kernels/dequantize.c");
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
