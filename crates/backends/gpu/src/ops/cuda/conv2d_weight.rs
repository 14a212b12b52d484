//! Gradients of convolutions' weights on the tensor cores of compute capability 9.0, see
//! `kernels/cuda/conv2d_weight.cu`.

use rustorch_ir::ops::Conv2dWeight;
use rustorch_ir::{DType, Op, Signature};
use rustorch_runtime::{Place, Step};

use super::conv2d::{Images, Sharing};
use super::matmul::Memory;
use crate::emit::Emitter;
use crate::kernel::Kernel;
use crate::ops::conv2d::windows;
use crate::ops::views::for_each;

/// Returns whether there is a kernel for this.
pub(crate) fn accepts(s: &Signature) -> bool {
    let is_half = matches!(s.output().dtype, DType::F16 | DType::BF16);
    let has_elements = s.types().all(|ty| ty.shape.elements() > 0);
    matches!(s.op, Op::Conv2dWeight(op) if op.conv.groups == 1) && is_half && has_elements
}

/// Appends its launches.
pub(crate) fn emit(step: &Step, emitter: &mut Emitter) {
    if let Op::Conv2dWeight(op) = &step.last().op {
        let operands = [&step.inputs[0], &step.inputs[1]];
        sum(op, operands, step.output(), emitter);
    }
}

/// Pixels that are multiplied at a time.
const DEPTH: usize = 64;

/// Channels of a column of local memory.
const BLOCK: usize = 64;

/// Channels of elements of windows in a tile, and the tile's time relative to the widest.
const COLUMNS: [(usize, f64); 3] = [(64, 0.45), (128, 0.65), (256, 1.0)];

/// Sharing of pixels: tiles, and the groups for each of them.
struct Tiling {
    rows: usize,
    columns: usize,
    tiles: usize,
    parts: usize,
}

impl Tiling {
    /// The fastest tiling for these numbers of output channels, channels of elements of windows, and
    /// steps of pixels.
    fn new([outputs, columns]: [usize; 2], chunks: usize, units: usize) -> Self {
        /// Time for the beginning and the end of a tile, in steps of the widest tiles.
        const ENDS: f64 = 12.0;
        /// Bytes of parts of sums that a unit writes and reads in that time.
        const BYTES: f64 = 1e4;
        let units = units.max(1);
        let rows = if outputs <= BLOCK { BLOCK } else { 2 * BLOCK };
        let mut best = (f64::INFINITY, COLUMNS[0].0, 1);
        for (width, slowness) in COLUMNS {
            let tiles = outputs.div_ceil(rows) * columns.div_ceil(width);
            for parts in 1..=chunks.min((2 * units).div_ceil(tiles).max(16)) {
                let rounds = (tiles * parts).div_ceil(units) as f64;
                let steps = chunks.div_ceil(parts) as f64 + ENDS;
                let bytes = (parts * outputs * columns * 8) as f64;
                let time = rounds * steps * slowness + bytes / (units as f64 * BYTES);
                if time < best.0 {
                    best = (time, width, parts);
                }
            }
        }
        let (_, width, parts) = best;
        Self {
            rows,
            columns: width,
            tiles: outputs.div_ceil(rows) * columns.div_ceil(width),
            parts,
        }
    }
}

/// Appends the launches that compute the gradient `y` of a weight. Operands are the convolution's operand and the
/// gradient of its result.
pub(crate) fn sum(op: &Conv2dWeight, [x, ct]: [&Place; 2], y: &Place, emitter: &mut Emitter) {
    const PIECE: usize = 8;
    let sharing = Sharing::of(&op.conv, x.ty.shape[1], x.ty.dtype);
    let images = Images::new(x, sharing, emitter);
    let gradients = Images::new(ct, Sharing::NONE, emitter);
    let windows = sharing.windows(windows(&op.conv, &y.ty.shape));
    let shape = &ct.ty.shape;
    let [count, outputs, height, width] = [shape[0], shape[1], shape[2], shape[3]];
    let padded = images.pieces * PIECE;
    let columns = windows.kernel_size.iter().product::<usize>() * padded;
    let chunks = (count * height * width).div_ceil(DEPTH);
    let tiling = Tiling::new([outputs, columns], chunks, emitter.limits.compute_units);
    let parts = emitter.scratch(tiling.parts * outputs * columns * size_of::<f32>());

    let text = concat!(
        include_str!("../../../kernels/cuda/async.h"),
        include_str!("../../../kernels/cuda/warpgroups.h"),
        include_str!("../../../kernels/cuda/conv2d_weight.cu")
    );
    // A warpgroup that copies, and one for each block of rows.
    let group = 128 * (1 + tiling.rows / BLOCK);
    let mut kernel = Kernel::new("conv2d_weight", text, group as u32);
    let stage = (tiling.rows + tiling.columns) / BLOCK * DEPTH * 128;
    let room = emitter.limits.local_bytes.saturating_sub(2048) / stage;
    let stages = room.clamp(2, 4);
    kernel.dynamic_local(stages * stage + 1024);
    kernel.define("MMA", format_args!("\"{}\"", x.ty.dtype));
    kernel.define("ROWS", tiling.rows);
    kernel.define("COLUMNS", tiling.columns);
    kernel.define("STAGES", stages);
    for (name, source) in [("x", &images), ("ct", &gradients)] {
        match source.memory {
            Memory::Place(place) => kernel.read(name, place),
            Memory::Scratch(memory) => kernel.scratch(name, x.ty.dtype, memory, false),
        }
    }
    kernel.scratch("parts", DType::F32, parts, true);
    let plane = height * width;
    for (name, word) in [
        ("tiles", tiling.tiles),
        ("row_tiles", outputs.div_ceil(tiling.rows)),
        ("chunks", chunks),
        ("chunks_each", chunks.div_ceil(tiling.parts)),
        ("images", count),
        ("plane", plane),
        ("out_height", height),
        ("out_width", width),
        ("pieces_count", images.pieces),
        ("ct_channels", gradients.pieces * PIECE),
        ("outputs", outputs),
        ("columns", columns),
    ] {
        kernel.word(name, word);
    }
    // Images, rows and pixels of DEPTH pixels.
    let step = [DEPTH / plane, DEPTH / width % height, DEPTH % width];
    kernel.words("step", &step);
    kernel.words("size", &[x.ty.shape[2], sharing.width(x.ty.shape[3])]);
    kernel.words("kernel_size", &windows.kernel_size);
    kernel.words("stride", &windows.stride);
    kernel.words("padding", &windows.padding);
    kernel.words("dilation", &windows.dilation);
    emitter.launch(kernel.groups(tiling.tiles * tiling.parts, 1, 1));

    let text = include_str!("../../../kernels/cuda/conv2d_weight_sum.cu");
    let mut kernel = for_each("conv2d_weight_sum", text, outputs * columns);
    kernel.define_dtype("Y", y.ty.dtype);
    kernel.scratch("parts", DType::F32, parts, false);
    kernel.write("y", y);
    kernel.word("columns", columns);
    kernel.word("padded", padded);
    kernel.word("channels", x.ty.shape[1]);
    kernel.word("parts_count", tiling.parts);
    kernel.define("TOGETHER", sharing.together);
    kernel.word("kernel_width", op.kernel[1]);
    kernel.word("kernel_pieces", windows.kernel_size[1]);
    kernel.words("strides", &y.layout.strides);
    emitter.launch(kernel);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_tiles_are_shared_by_all_units() {
        // 1 × 1 from 256 to 64 channels: one tile, which all units add to.
        let tiling = Tiling::new([64, 256], 12544, 132);
        assert_eq!([tiling.rows, tiling.tiles], [64, 1]);
        assert!((120..=132).contains(&tiling.parts), "{}", tiling.parts);
        // 3 × 3 of 512: more tiles than a half of the units.
        let tiling = Tiling::new([512, 4608], 196, 132);
        assert_eq!([tiling.rows, tiling.columns, tiling.tiles], [128, 256, 72]);
        assert!(tiling.parts > 1);
    }
}
