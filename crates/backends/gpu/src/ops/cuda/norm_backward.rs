//! Gradients of norms by teams of whole warps.

use rustorch_ir::DType;
use rustorch_runtime::Place;

use crate::emit::{Emitter, SIMD_WIDTH};
use crate::kernel::Kernel;
use crate::ops::lines::Rows;
use crate::ops::views::Memory;

/// Neighbours that sums are kept of.
const FOUR: usize = 4;

/// Are rows in vectors, and short enough to be held together with the other operands?
pub(in crate::ops) fn accepts(dtype: DType, rows: &Rows) -> bool {
    dtype != DType::F64
        && rows.vector.is_multiple_of(FOUR)
        && rows.tile.team.is_multiple_of(SIMD_WIDTH)
        && rows.held <= Rows::HELD
}

/// The kernel for rows of `len` elements.
pub(in crate::ops) fn kernel(rows: &Rows, len: usize) -> Kernel {
    let text = concat!(
        include_str!("../../../kernels/vectors.h"),
        include_str!("../../../kernels/cuda/halves.h"),
        include_str!("../../../kernels/cuda/norm_backward.cu")
    );
    let mut kernel = Kernel::new("norm_backward", text, rows.tile.group());
    kernel.define("TEAM", rows.tile.team);
    kernel.define("HELD", rows.held);
    kernel.define("VECTOR", rows.vector);
    kernel.define("IS_WHOLE", u8::from(rows.tile.team * rows.held == len));
    kernel
}

/// Appends the launch that adds up `rows` rows of `len` to the gradients of weight and bias.
pub(in crate::ops) fn add_up(
    partial: &[Memory],
    results: &[Place],
    [rows, len]: [usize; 2],
    emitter: &mut Emitter,
) {
    let text = include_str!("../../../kernels/cuda/norm_sums.cu");
    let mut kernel = Kernel::new("norm_sums", text, 256);
    kernel.define_dtype("X", results[0].ty.dtype);
    kernel.define("HAS_BIAS", u8::from(results.len() > 1));
    let names = [("of_weight", "weight"), ("of_bias", "bias")];
    for ((from, to), (memory, result)) in names.into_iter().zip(partial.iter().zip(results)) {
        memory.read(&mut kernel, from);
        kernel.write(to, result);
    }
    kernel.word("rows", rows);
    kernel.word("len", len);
    emitter.launch(kernel.groups(len.div_ceil(SIMD_WIDTH), results.len(), 1));
}
