//! The product of two matrices, or batches of them: the common part of `matmul` and `linear`.

use rustorch_ir::{DType, Layout, TensorType};
use rustorch_runtime::Place;

use super::expert_linear::{self, Experts};
use super::simd_tile;
use super::tile::{CHAIN, Tile};
use crate::driver::{Gemm, Matrix};
use crate::emit::Emitter;
use crate::kernel::{Kernel, accumulator, name, position};
use crate::ops::cuda;

/// A product `y = a · b + bias`, `[m, k] · [k, n]` for each index of the batch.
pub(crate) struct Product<'a> {
    pub(crate) m: usize,
    pub(crate) k: usize,
    pub(crate) n: usize,
    /// Sizes of the batch's dimensions.
    pub(crate) batch: Vec<usize>,
    pub(crate) a: Factor<'a>,
    pub(crate) b: Factor<'a>,
    /// `[n]`.
    pub(crate) bias: Option<&'a Place>,
    /// Contiguous.
    pub(crate) y: &'a Place,
    /// The experts that the rows chose, if `b` has the matrices of several. Few rows are a batch of
    /// rows; many are the rows of one product.
    pub(crate) experts: Option<Experts<'a>>,
}

/// A matrix, or a batch of them, with any strides.
pub(crate) struct Factor<'a> {
    pub(crate) place: &'a Place,
    /// The stride along the dimension that the result keeps.
    pub(crate) outer: usize,
    /// The stride along the dimension that is summed over.
    pub(crate) inner: usize,
    /// The strides of the batch's dimensions.
    pub(crate) batch: Vec<usize>,
}

/// The strides of a matrix as the kernels see them: where neighbours are in memory is known when
/// they are compiled.
#[derive(PartialEq)]
enum Neighbours {
    AlongInner,
    AlongOuter,
    Neither,
}

impl Factor<'_> {
    fn neighbours(&self) -> Neighbours {
        match (self.inner, self.outer) {
            (1, _) => Neighbours::AlongInner,
            (_, 1) => Neighbours::AlongOuter,
            _ => Neighbours::Neither,
        }
    }

    /// Defines the operand `name` in the kernel. `outer` is its dimension that the result keeps.
    fn define(&self, kernel: &mut Kernel, name: &str, outer: &str) {
        let operand = name.to_lowercase();
        kernel.define_dtype(name, self.place.ty.dtype);
        kernel.read(&operand, self.place);
        kernel.word(&format!("{operand}_outer"), self.outer);
        kernel.word(&format!("{operand}_inner"), self.inner);
        kernel.words(&format!("{operand}_batch"), &self.batch);
        let neighbours = self.neighbours();
        let mut stride = |dimension: &str, part: &str, is_one| match is_one {
            true => kernel.define(&format!("{name}_{dimension}"), "1"),
            false => kernel.define(
                &format!("{name}_{dimension}"),
                format!("p.{operand}_{part}"),
            ),
        };
        stride(outer, "outer", neighbours == Neighbours::AlongOuter);
        stride("K", "inner", neighbours == Neighbours::AlongInner);
        let along_k = neighbours != Neighbours::AlongOuter;
        kernel.define(&format!("{name}_ALONG_K"), u8::from(along_k));
    }
}

/// The most rows of a result that are made together by reading the other factor once.
const FEW: usize = 8;

/// For results that give all of a GPU's units work.
const LARGE: Tile = Tile {
    lanes: [16, 16],
    each: [8, 8],
    of_one: false,
};

const SMALL: Tile = Tile {
    lanes: [16, 16],
    each: [4, 4],
    of_one: false,
};

/// Tile for elements of 16 bytes.
const WIDE: Tile = Tile {
    lanes: [16, 16],
    each: [2, 2],
    of_one: false,
};

/// Tile for processors.
const OF_ONE: Tile = Tile {
    lanes: [8, 4],
    each: [8, 16],
    of_one: true,
};

/// Returns whether it is a product that the driver's library makes of operands as they are.
pub(super) fn is_of_library(x: &TensorType, w: &TensorType) -> bool {
    is_dense(x, w) && x.dtype == w.dtype
}

/// Returns whether it is a product of dense matrices that tensor cores can make.
pub(super) fn is_dense(x: &TensorType, w: &TensorType) -> bool {
    let (n, k) = (w.shape[0], w.shape[1]);
    let m = x.shape.elements().checked_div(k).unwrap_or(0);
    !w.dtype.is_block() && cuda::matmul::accepts_dense([x.dtype, w.dtype], [m, n, k])
}

impl<'a> Product<'a> {
    /// `y = x · wᵀ + bias`.
    pub(super) fn of_rows(
        x: &'a Place,
        w: &'a Place,
        bias: Option<&'a Place>,
        y: &'a Place,
    ) -> Self {
        let (n, k) = (w.ty.shape[0], w.ty.shape[1]);
        let rows = |place| Factor {
            place,
            outer: k,
            inner: 1,
            batch: Vec::new(),
        };
        Self {
            m: y.ty.shape.elements() / n,
            k,
            n,
            batch: Vec::new(),
            a: rows(x),
            b: rows(w),
            bias,
            y,
            experts: None,
        }
    }
}

impl Product<'_> {
    /// Appends the launch.
    pub(crate) fn emit(self, emitter: &mut Emitter) {
        if !self.emit_by_library(emitter) {
            self.emit_in_tiles(emitter);
        }
    }

    /// The same for a product that [`cuda::matmul::accepts_dense`].
    pub(crate) fn emit_on_tensor_cores(self, emitter: &mut Emitter) {
        if cuda::matmul::is_worth_terms(&self) || !self.emit_by_library(emitter) {
            cuda::matmul::emit_dense(&self, emitter);
        }
    }

    /// Appends the launch of the driver's library, if there is one and it can do that.
    fn emit_by_library(&self, emitter: &mut Emitter) -> bool {
        let gemm = self.of_library(emitter);
        let operands = [self.a.place, self.b.place, self.y].into_iter();
        let operands = operands.chain(self.bias).map(position).collect();
        gemm.map(|gemm| emitter.gemm(gemm, operands)).is_some()
    }

    /// Appends the launch of a kernel of tiles.
    fn emit_in_tiles(mut self, emitter: &mut Emitter) {
        let is_swapped = self.n < self.m && self.experts.is_none();
        if is_swapped {
            // yᵀ = bᵀ · aᵀ
            std::mem::swap(&mut self.m, &mut self.n);
            std::mem::swap(&mut self.a, &mut self.b);
        }
        let is_few = match &self.experts {
            Some(experts) => experts.are_few(),
            None => self.m <= FEW,
        };
        let has_matrices = emitter.dialect.has_simd_groups() && self.y.ty.dtype.is_float();
        let mut kernel = match is_few {
            true => self.few(emitter),
            false if has_matrices => self.in_matrices(emitter),
            false => self.many(emitter),
        };
        arithmetic(&mut kernel, self.y.ty.dtype);
        self.a.define(&mut kernel, "A", "ROW");
        self.b.define(&mut kernel, "B", "COLUMN");
        kernel.define_dtype("Y", self.y.ty.dtype);
        kernel.write("y", self.y);
        for (name, size) in [("m", self.m), ("k", self.k), ("n", self.n)] {
            kernel.word(name, size);
        }
        let [y_row, y_column] = match is_swapped {
            true => [1, self.m],
            false => [self.n, 1],
        };
        kernel.word("y_row", y_row);
        kernel.word("y_column", y_column);
        kernel.define("BATCH_RANK", self.batch.len());
        kernel.words("batch", &self.batch);
        kernel.define("HAS_BIAS", u8::from(self.bias.is_some()));
        if let Some(bias) = self.bias {
            kernel.read("bias", bias);
            kernel.define("BIAS_ROW", u8::from(is_swapped));
            kernel.define("BIAS_COLUMN", u8::from(!is_swapped));
        }
        emitter.launch(kernel);
    }

    fn batches(&self) -> usize {
        self.batch.iter().product()
    }

    /// The same for the driver's library, if there is one and it can do that.
    fn of_library(&self, emitter: &Emitter) -> Option<Gemm> {
        let dtype = self.y.ty.dtype;
        let is_same = [&self.a, &self.b].iter().all(|x| x.place.ty.dtype == dtype);
        // The library documents biases for these types only.
        let has_epilogue = matches!(dtype, DType::F32 | DType::F16 | DType::BF16);
        let is_possible = is_same
            && self.experts.is_none()
            && (dtype.is_float() || dtype.is_complex())
            && (self.bias.is_none() || has_epilogue)
            && self.batch.len() <= 1
            && self.m.min(self.n) > FEW
            && self.k > 0
            && (emitter.has_gemm)();
        is_possible.then_some(())?;
        let matrix = |transposed, stride, batch_stride| Matrix {
            dtype,
            transposed,
            stride,
            batch_stride,
        };
        let of = |factor: &Factor, size: usize, is_b: bool| {
            let batch_stride = factor.batch.first().copied().unwrap_or(0);
            match (factor.inner, factor.outer) {
                (1, stride) if stride >= self.k => Some(matrix(is_b, stride, batch_stride)),
                (stride, 1) if stride >= size => Some(matrix(!is_b, stride, batch_stride)),
                _ => None,
            }
        };
        Some(Gemm {
            m: self.m,
            n: self.n,
            k: self.k,
            batch: self.batches(),
            a: of(&self.a, self.m, false)?,
            b: of(&self.b, self.n, true)?,
            y: matrix(false, self.n, self.m * self.n),
            has_bias: self.bias.is_some(),
        })
    }

    /// The kernel for few rows.
    fn few(&self, emitter: &Emitter) -> Kernel {
        let along_k = self.b.neighbours() != Neighbours::AlongOuter;
        // Work-items along k and along the columns; terms and columns of each.
        let ([lanes_k, lanes_n], [lane_k, lane_n]) = match (emitter.limits.is_processor, along_k) {
            (true, true) => ([1, 1], [32, 1]),
            (true, false) => ([1, 1], [1, 64]),
            (false, true) => ([32, 4], [4, 1]),
            (false, false) => ([8, 32], [4, 1]),
        };
        let text = expert_linear::text(include_str!("../../../kernels/matvec.c"));
        let mut kernel = Kernel::new("matvec", text, lanes_k * lanes_n);
        kernel.define("EXPERT_ROWS", "p.n");
        kernel.define("BY_EXPERT", u8::from(self.experts.is_some()));
        if let Some(experts) = &self.experts {
            experts.define(&mut kernel);
        }
        kernel.define("M", self.m.max(1).next_power_of_two());
        kernel.define("LANES_K", lanes_k);
        kernel.define("LANES_N", lanes_n);
        kernel.define("LANE_K", lane_k);
        kernel.define("LANE_N", lane_n);
        kernel.define("CHAIN", if self.is_rounded() { CHAIN } else { 0 });
        let columns = self.n.div_ceil((lanes_n * lane_n) as usize);
        kernel.groups(columns * self.batches(), 1, 1)
    }

    /// The kernel for many rows and columns.
    fn many(&self, emitter: &mut Emitter) -> Kernel {
        let groups = |tile: &Tile| tile.count(self.m, self.n) * self.batches();
        let (tile, depth) = match self.y.ty.dtype.size() {
            _ if emitter.limits.is_processor => (OF_ONE, 64),
            Some(16) => (WIDE, 16),
            _ if self.experts.is_some() => (SMALL, 16),
            Some(1..=4) if groups(&LARGE) >= emitter.limits.compute_units => (LARGE, 16),
            _ => (SMALL, 16),
        };
        let text = expert_linear::text(include_str!("../../../kernels/matmul.c"));
        let mut kernel = Kernel::new("matmul", Tile::text(&text), tile.group());
        tile.define(&mut kernel, 2);
        kernel.define("DEPTH", depth);
        self.define_chain(&mut kernel);
        let tiles = self.sorted(&mut kernel, [tile.rows(), tile.columns()], emitter);
        kernel.groups(tiles.unwrap_or_else(|| groups(&tile)), 1, 1)
    }

    /// Lets the kernel go through tiles of rows that chose one expert. Returns their number, if there are experts.
    fn sorted(
        &self,
        kernel: &mut Kernel,
        [rows, columns]: [usize; 2],
        emitter: &mut Emitter,
    ) -> Option<usize> {
        kernel.define("EXPERT_ROWS", "p.n");
        kernel.define("BY_EXPERT", u8::from(self.experts.is_some()));
        let sorted = self.experts.as_ref()?.sort(rows, emitter);
        sorted.pass(kernel, false);
        Some(sorted.count * self.n.div_ceil(columns))
    }

    /// Says how many products a tile adds before it adds to what is in memory.
    fn define_chain(&self, kernel: &mut Kernel) {
        match self.is_rounded() {
            true => kernel.define("CHAIN", CHAIN),
            false => kernel.define("CHAIN", "p.k"),
        }
    }

    /// Is each step of a sum rounded to the digits of the result?
    fn is_rounded(&self) -> bool {
        let dtype = self.y.ty.dtype;
        dtype.is_complex() || matches!(dtype, DType::F32 | DType::F64)
    }

    /// The same for real numbers, in matrices of SIMD-groups.
    fn in_matrices(&self, emitter: &mut Emitter) -> Kernel {
        let text = expert_linear::text(include_str!("../../../kernels/metal/matmul.metal"));
        let mut kernel = Kernel::new("matmul", simd_tile::text(&text), simd_tile::GROUP);
        self.define_chain(&mut kernel);
        let tiles = self.sorted(&mut kernel, simd_tile::SIZES, emitter);
        let all = || simd_tile::count(self.m, self.n) * self.batches();
        kernel.groups(tiles.unwrap_or_else(all), 1, 1)
    }
}

/// The arithmetic of sums of products of a dtype.
fn arithmetic(kernel: &mut Kernel, dtype: DType) {
    if dtype.is_complex() {
        let t = name(dtype);
        kernel.define("ACCUMULATOR", t);
        kernel.define("ZERO", format!("make_{t}(0, 0)"));
        kernel.define("ADD(a, b)", format!("add_{t}(a, b)"));
        kernel.define(
            "ADD_PRODUCT(sum, a, b)",
            format!("add_{t}(sum, mul_{t}(a, b))"),
        );
        return;
    }
    kernel.define("ZERO", "0");
    kernel.define("ADD(a, b)", "((a) + (b))");
    if dtype.is_float() {
        kernel.define("ACCUMULATOR", accumulator(dtype));
        kernel.define("ADD_PRODUCT(sum, a, b)", "MULTIPLY_ADD(a, b, sum)");
    } else {
        // Unsigned numbers wrap, and their low bits are those of numbers with a sign.
        let wide = dtype.size() == Some(8);
        kernel.define("ACCUMULATOR", if wide { "ulong" } else { "uint" });
        // Two u16 would be multiplied as int, and overflow.
        let product = match dtype {
            DType::U16 => "((sum) + (uint)(a) * (uint)(b))",
            _ => "((sum) + (a) * (b))",
        };
        kernel.define("ADD_PRODUCT(sum, a, b)", product);
    }
}

/// The batch that two operands are broadcast to, with as few dimensions as possible, and each
/// one's strides in it.
pub(crate) fn batch(a: &Layout, b: &Layout) -> (Vec<usize>, [Vec<usize>; 2]) {
    let both = Layout::collapse([a, b]);
    let strides = [&both[0], &both[1]].map(|layout| layout.strides.to_vec());
    (both[0].shape.to_vec(), strides)
}
