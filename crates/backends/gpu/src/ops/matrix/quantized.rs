//! The product with weights in blocks. Activations are rounded to 8 bits, as on the CPU. They are
//! multiplied in integers with the codes as they are in the blocks.

use rustorch_ir::{BlockFormat, DType};
use rustorch_runtime::{Place, Step};

use super::expert_linear::{self, Experts};
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
    /// Scales, one for each chunk.
    scales: Scratch,
    /// Sums of codes that meet values with one scale, for kernels that multiply integers.
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
    multiply([x, w, y], step.inputs.get(2), None, emitter);
}

/// Appends the launches that make `y` of `x` and `w`. With experts, `w` has the matrices of all, and
/// each row of `y` chose one.
pub(crate) fn multiply(
    [x, w, y]: [&Place; 3],
    bias: Option<&Place>,
    experts: Option<Experts<'_>>,
    emitter: &mut Emitter,
) {
    let Some(format) = blocks::format(w.ty.dtype) else {
        return;
    };
    let rank = w.ty.rank();
    let (n, k) = (w.ty.shape[rank - 2], w.ty.shape[rank - 1]);
    let m = y.ty.shape.elements() / n;
    let x_rows = x.ty.shape.elements() / k;
    let rounded = Rounded::new(emitter, x_rows * k);

    let text = include_str!("../../../kernels/quantize.c");
    let group = if emitter.limits.is_processor { 1 } else { 64 };
    let mut kernel = blocks::kernel("quantize", text, group, format);
    kernel.define_dtype("X", x.ty.dtype);
    kernel.read("x", x);
    rounded.pass(&mut kernel, true);
    kernel.word("k", k);
    emitter.launch(kernel.groups(x_rows * k.div_ceil(SLAB), 1, 1));

    let few = if emitter.limits.is_processor { 4 } else { 8 };
    // Rows of a launch's product, and how many products it makes.
    let (rows, products, is_few) = match &experts {
        Some(experts) if experts.are_few() => (1, m, true),
        Some(experts) => (experts.rows_of_each(), 1, false),
        None => (m, 1, m <= few),
    };
    let has_simd_groups = emitter.dialect.has_simd_groups();
    let (mut kernel, tile) = match (has_simd_groups, is_few) {
        (true, true) => (simd_matvec(format, [rows, n], products), [0; 2]),
        (true, false) => (simd_matmul(format, [m, n]), simd_tile::SIZES),
        (false, true) => (matvec(format, [rows, k, n], products, emitter), [0; 2]),
        (false, false) => matmul(format, [m, n], rows, emitter),
    };
    kernel.define("EXPERT_ROWS", "p.n");
    kernel.define("BY_EXPERT", u8::from(experts.is_some()));
    match &experts {
        Some(experts) if is_few => experts.define(&mut kernel),
        Some(experts) => {
            let sorted = experts.sort(tile[0], emitter);
            sorted.pass(&mut kernel, false);
            kernel = kernel.groups(sorted.count * n.div_ceil(tile[1]), 1, 1);
        }
        None => (),
    }
    rounded.pass(&mut kernel, false);
    kernel.read("w", w);
    kernel.define_dtype("Y", y.ty.dtype);
    kernel.write("y", y);
    kernel.define("HAS_BIAS", u8::from(bias.is_some()));
    if let Some(bias) = bias {
        kernel.read("bias", bias);
    }
    let m = if is_few { rows } else { m };
    for (name, size) in [("m", m), ("k", k), ("n", n)] {
        kernel.word(name, size);
    }
    emitter.launch(kernel);
}

/// The kernel for few rows of activations, in each of some products.
fn matvec(
    format: BlockFormat,
    [m, k, n]: [usize; 3],
    products: usize,
    emitter: &Emitter,
) -> Kernel {
    let (lanes_k, lanes_n, lane_n) = match emitter.limits.is_processor {
        true => (1, 1, 16),
        // One lane for each chunk, if possible.
        false => {
            let lanes = (k / CHUNK).clamp(4, 32);
            let lanes = 1 << lanes.ilog2();
            (lanes, 128 / lanes, 1)
        }
    };
    let text = expert_linear::text(include_str!("../../../kernels/qmatvec.c"));
    let mut kernel = blocks::kernel("qmatvec", &text, lanes_k * lanes_n, format);
    kernel.define("M", m.next_power_of_two());
    kernel.define("LANES_K", lanes_k);
    kernel.define("LANES_N", lanes_n);
    kernel.define("LANE_N", lane_n);
    kernel.groups(n.div_ceil((lanes_n * lane_n) as usize) * products, 1, 1)
}

/// The same in SIMD-groups.
fn simd_matvec(format: BlockFormat, [m, n]: [usize; 2], products: usize) -> Kernel {
    const SIMD_GROUPS: usize = 2;
    let lanes = if format.block_len() == 256 { 8 } else { 4 };
    // Rows of blocks that meet an activation while it is in a register.
    let columns = match m {
        1 => 4,
        2..=4 => 2,
        _ => 1,
    };
    let text = expert_linear::text(include_str!("../../../kernels/metal/qmatvec.metal"));
    let group = (SIMD_GROUPS * SIMD_WIDTH) as u32;
    let mut kernel = blocks::kernel("qmatvec", &text, group, format);
    kernel.define("M", m.next_power_of_two());
    kernel.define("LANES", lanes);
    kernel.define("WORDS", format.block_len() / 4 / lanes);
    kernel.define("COLUMNS", columns);
    kernel.groups(n.div_ceil(SIMD_GROUPS * columns) * products, 1, 1)
}

/// The kernel for many rows of activations, and a tile's rows and columns. `alike` is the number of rows
/// with the same weights.
fn matmul(
    format: BlockFormat,
    [m, n]: [usize; 2],
    alike: usize,
    emitter: &Emitter,
) -> (Kernel, [usize; 2]) {
    let of_one = emitter.limits.is_processor;
    let (lanes, each) = match of_one {
        true => ([alike.div_ceil(8).next_power_of_two().min(8), 4], [8, 16]),
        false => ([(alike / 4).next_power_of_two().min(16), 16], [4, 4]),
    };
    let tile = Tile {
        lanes,
        each,
        of_one,
    };
    let text = expert_linear::text(include_str!("../../../kernels/qmatmul.c"));
    let mut kernel = blocks::kernel("qmatmul", &Tile::text(&text), tile.group(), format);
    tile.define(&mut kernel, 4);
    kernel.define("SLAB", 1);
    // Processors have wide vectors of floats, and GPUs instructions for packed integers.
    kernel.define("IS_PACKED", u8::from(!of_one));
    let kernel = kernel.groups(tile.count(m, n), 1, 1);
    (kernel, [tile.rows(), tile.columns()])
}

/// The same in matrices of SIMD-groups.
fn simd_matmul(format: BlockFormat, [m, n]: [usize; 2]) -> Kernel {
    let text = expert_linear::text(include_str!("../../../kernels/metal/qmatmul.metal"));
    let kernel = blocks::kernel("qmatmul", &simd_tile::text(&text), simd_tile::GROUP, format);
    kernel.groups(simd_tile::count(m, n), 1, 1)
}
