//! The product with weights in blocks: activations are rounded to 8 bits, as on the CPU, and
//! multiplied in integers with the codes as they are in the blocks.

use rustorch_ir::{BlockFormat, DType};
use rustorch_runtime::Step;

use super::tile::Tile;
use super::{blocks, simd_tile};
use crate::emit::{Emitter, SIMD_WIDTH};
use crate::kernel::{Kernel, Scratch};

/// Values of a chunk, the unit in which kernels go along a row.
const CHUNK: usize = 32;

/// Values that share a scale in the blocks, at least.
const LEAST_SPAN: usize = 16;

/// Values that a group of the rounding kernel takes.
const SLAB: usize = 256;

/// Rounded activations, `[rows, k]`.
#[derive(Clone, Copy)]
struct Rounded {
    /// Four a word.
    codes: Scratch,
    /// One for each chunk.
    scales: Scratch,
    /// Of the codes that meet values with one scale, for kernels that multiply integers.
    sums: Option<Scratch>,
}

impl Rounded {
    fn new(emitter: &mut Emitter, values: usize) -> Self {
        Self {
            codes: emitter.scratch(values),
            scales: emitter.scratch(values / CHUNK * 4),
            sums: (!emitter.dialect.has_simd_groups())
                .then(|| emitter.scratch(values / LEAST_SPAN * 4)),
        }
    }

    fn pass(self, kernel: &mut Kernel, written: bool) {
        kernel.scratch("x_codes", DType::U32, self.codes, written);
        kernel.scratch("x_scales", DType::F32, self.scales, written);
        kernel.define("HAS_SUMS", u8::from(self.sums.is_some()));
        if let Some(sums) = self.sums {
            kernel.scratch("x_sums", DType::I32, sums, written);
        }
    }
}

/// Appends the launches of `x · wᵀ + bias` with `w` in blocks.
pub(crate) fn emit(step: &Step, emitter: &mut Emitter) {
    let (x, w, y) = (&step.inputs[0], &step.inputs[1], step.output());
    let Some(format) = blocks::format(w.ty.dtype) else {
        return;
    };
    let (n, k) = (w.ty.shape[0], w.ty.shape[1]);
    let m = y.ty.shape.elements() / n;
    let rounded = Rounded::new(emitter, m * k);

    let text = include_str!("../../kernels/quantize.c");
    let group = if emitter.limits.is_processor { 1 } else { 64 };
    let mut kernel = blocks::kernel("quantize", text, group, format);
    kernel.define_dtype("X", x.ty.dtype);
    kernel.read("x", x);
    rounded.pass(&mut kernel, true);
    kernel.word("k", k);
    emitter.launch(kernel.groups(m * k.div_ceil(SLAB), 1, 1));

    let few = if emitter.limits.is_processor { 4 } else { 8 };
    let mut kernel = match (emitter.dialect.has_simd_groups(), m <= few) {
        (true, true) => simd_matvec(format, [m, n]),
        (true, false) => simd_matmul(format, [m, n]),
        (false, true) => matvec(format, [m, k, n], emitter),
        (false, false) => matmul(format, [m, n], emitter),
    };
    rounded.pass(&mut kernel, false);
    kernel.read("w", w);
    kernel.define_dtype("Y", y.ty.dtype);
    kernel.write("y", y);
    kernel.define("HAS_BIAS", u8::from(step.inputs.len() > 2));
    if let Some(bias) = step.inputs.get(2) {
        kernel.read("bias", bias);
    }
    for (name, size) in [("m", m), ("k", k), ("n", n)] {
        kernel.word(name, size);
    }
    emitter.launch(kernel);
}

/// The kernel for few rows of activations.
fn matvec(format: BlockFormat, [m, k, n]: [usize; 3], emitter: &Emitter) -> Kernel {
    let (lanes_k, lanes_n, lane_n) = match emitter.limits.is_processor {
        true => (1, 1, 16),
        // As many as there are chunks, if possible.
        false => {
            let lanes = (k / CHUNK).clamp(4, 32);
            let lanes = 1 << lanes.ilog2();
            (lanes, 128 / lanes, 1)
        }
    };
    let text = include_str!("../../kernels/qmatvec.c");
    let mut kernel = blocks::kernel("qmatvec", text, lanes_k * lanes_n, format);
    kernel.define("M", m.next_power_of_two());
    kernel.define("LANES_K", lanes_k);
    kernel.define("LANES_N", lanes_n);
    kernel.define("LANE_N", lane_n);
    kernel.groups(n.div_ceil((lanes_n * lane_n) as usize), 1, 1)
}

/// The same in SIMD-groups.
fn simd_matvec(format: BlockFormat, [m, n]: [usize; 2]) -> Kernel {
    const SIMD_GROUPS: usize = 2;
    let lanes = if format.block_len() == 256 { 8 } else { 4 };
    // Rows of blocks that meet an activation while it is in a register.
    let columns = match m {
        1 => 4,
        2..=4 => 2,
        _ => 1,
    };
    let text = include_str!("../../kernels/metal/qmatvec.metal");
    let group = (SIMD_GROUPS * SIMD_WIDTH) as u32;
    let mut kernel = blocks::kernel("qmatvec", text, group, format);
    kernel.define("M", m.next_power_of_two());
    kernel.define("LANES", lanes);
    kernel.define("WORDS", format.block_len() / 4 / lanes);
    kernel.define("COLUMNS", columns);
    kernel.groups(n.div_ceil(SIMD_GROUPS * columns), 1, 1)
}

/// The kernel for many rows of activations.
fn matmul(format: BlockFormat, [m, n]: [usize; 2], emitter: &Emitter) -> Kernel {
    let of_one = emitter.limits.is_processor;
    let (lanes, each) = match of_one {
        true => ([m.div_ceil(8).next_power_of_two().min(8), 4], [8, 16]),
        false => ([(m / 4).next_power_of_two().min(16), 16], [4, 4]),
    };
    let tile = Tile {
        lanes,
        each,
        of_one,
    };
    let text = Tile::text(include_str!("../../kernels/qmatmul.c"));
    let mut kernel = blocks::kernel("qmatmul", &text, tile.group(), format);
    tile.define(&mut kernel, 4);
    kernel.define("SLAB", 1);
    // Processors have wide vectors of floats, and GPUs instructions for packed integers.
    kernel.define("IS_PACKED", u8::from(!of_one));
    kernel.groups(tile.count(m, n), 1, 1)
}

/// The same in matrices of SIMD-groups.
fn simd_matmul(format: BlockFormat, [m, n]: [usize; 2]) -> Kernel {
    let text = simd_tile::text(include_str!("../../kernels/metal/qmatmul.metal"));
    let kernel = blocks::kernel("qmatmul", &text, simd_tile::GROUP, format);
    kernel.groups(simd_tile::count(m, n), 1, 1)
}
