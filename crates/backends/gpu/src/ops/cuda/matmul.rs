//! Products of many rows on the tensor cores of compute capability 9.0, see
//! `kernels/cuda/gemm.cu`.

use rustorch_ir::ops::ActivationKind;
use rustorch_ir::{BlockFormat, DType, TensorType};
use rustorch_runtime::Place;
use smallvec::{SmallVec, smallvec};

use crate::emit::Emitter;
use crate::kernel::{Kernel, Scratch};
use crate::ops::blocks;
use crate::ops::expert_linear::{Behind, Experts, Sorted};
use crate::ops::fused_linear::{Linear, Linears, Norm, with_gate};
use crate::ops::product::{Factor, Product};

/// The gate in the kernel's text, and its argument.
const GATE: [&str; 2] = ["__fdividef(sums[i], 1 + __expf(-sums[i]))", "sums[i]"];

/// Rows that are worth the preparations, at least.
const MANY: usize = 9;

/// Numbers of a row in a panel, and their bytes.
const PANEL: usize = 64;
const LINE: usize = 128;

/// Values of a row of blocks that are in local memory together, and how often there is room.
const SLAB: usize = 256;
const SLABS: usize = 2;

/// Rows of w that a group multiplies at a time, where it is alone on its unit.
const ROWS: usize = 128;

/// Work-items of a warpgroup; a group has one warpgroup that copies.
const WARPGROUP: usize = 128;

/// Rows of w that a warpgroup multiplies.
const OF_WARPGROUP: usize = 64;

/// The w, y and bias of one launch.
const MOST_SETS: usize = 3;

/// Layout of w in memory; the names are the kernel's.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Blocks(BlockFormat),
    /// Rows that begin at multiples of 16 bytes.
    Lines,
    Panels,
    /// Pixels that the windows of a convolution see.
    Pixels,
}

impl Kind {
    /// Rows of a tile, if experts have `rows` each on average. Few experts have more rows than a tile: unpacking the same
    /// blocks again takes longer than multiplying columns that do not exist.
    fn columns_of_experts(self, rows: usize) -> usize {
        /// With the most rows on average that each is taken for.
        const OF_BLOCKS: [(usize, usize); 2] = [(38, 48), (66, 80)];
        let fitting = match self {
            Self::Blocks(_) => OF_BLOCKS.iter().find(|(most, _)| rows <= *most),
            _ => None,
        };
        match fitting {
            Some(&(_, columns)) => columns,
            None => COLUMNS[usize::from(rows > COLUMNS[0])],
        }
    }
}

/// A launch: `y = x · wᵀ + bias`.
pub(super) struct Launch<'a> {
    pub(super) m: usize,
    pub(super) k: usize,
    pub(super) x: Panels,
    pub(super) kind: Kind,
    /// Elements from one row of w to the next; of panels, their rows.
    pub(super) w_stride: usize,
    pub(super) weights: SmallVec<[Weights<'a>; MOST_SETS]>,
    /// Results: one for each of the weights, or one for two, the first of which are gates.
    pub(super) results: SmallVec<[Memory<'a>; MOST_SETS]>,
    /// Added to the result.
    pub(super) other: Option<&'a Place>,
    /// The result is this of the first product times the second.
    pub(super) gate: Option<ActivationKind>,
    /// Are columns of a convolution's result neighbours in memory, in vectors?
    pub(super) is_wide: bool,
    /// x and w themselves and their strides, where their panels are of several terms.
    pub(super) given: Option<[(&'a Place, Vec<usize>); 2]>,
    /// The tiles of the rows of x, and a tile's rows, if w has those of several experts.
    pub(super) experts: Option<(&'a Sorted, usize)>,
    /// Operations on results of experts.
    pub(super) behind: Option<&'a Behind<'a>>,
    /// Further parameters of a kind.
    pub(super) words: Vec<(&'static str, Vec<usize>)>,
}

/// `[n, k]`, and a bias `[n]`.
pub(super) struct Weights<'a> {
    pub(super) w: Memory<'a>,
    pub(super) n: usize,
    pub(super) bias: Option<&'a Place>,
}

impl<'a> Weights<'a> {
    fn of(linear: &Linear<'a>) -> Self {
        Self {
            w: Memory::Place(linear.w),
            n: linear.rows(),
            bias: linear.bias,
        }
    }
}

#[derive(Clone, Copy)]
pub(crate) enum Memory<'a> {
    Place(&'a Place),
    Scratch(Scratch),
}

impl Memory<'_> {
    /// Dtype of a result; in scratch memory it is single precision.
    fn dtype(self) -> DType {
        match self {
            Self::Place(place) => place.ty.dtype,
            Self::Scratch(_) => DType::F32,
        }
    }
}

/// Can rows of these be multiplied with weights of those?
fn is_possible(x: DType, w: DType) -> bool {
    matches!(x, DType::F32 | DType::F16 | DType::BF16)
        && matches!(w, DType::Block(_) | DType::F16 | DType::BF16)
}

/// Is `x · wᵀ` one of those products? Rows of weights begin at multiples of 16 bytes.
pub(crate) fn accepts(x: &TensorType, w: &TensorType) -> bool {
    let (n, k) = (w.shape[0], w.shape[1]);
    is_possible(x.dtype, w.dtype)
        && n > 0
        && k > 0
        && x.shape.elements() / k >= MANY
        && (w.dtype.is_block() || k.is_multiple_of(8))
}

/// Do rows of 16-bit numbers begin at multiples of 16 bytes?
fn begins_aligned(w: &Place, stride: usize) -> bool {
    w.layout.offset.is_multiple_of(8) && stride.is_multiple_of(8)
}

/// Appends the launches of products that are all accepted, of weights of one dtype.
pub(crate) fn emit(linears: &Linears, emitter: &mut Emitter) {
    let first = linears.each[0].w;
    let k = first.ty.shape[1];
    let m = linears.x.ty.shape.elements() / k;
    let (kind, operand) = kind_of(first.ty.dtype);
    let x = Panels::new(m, k, kind, Numbers::of(operand), emitter);
    x.fill(&rows_of(linears.x, k), linears.norm, None, emitter);
    for each in linears.each.chunks(MOST_SETS) {
        let launch = Launch {
            m,
            k,
            x,
            kind,
            w_stride: k,
            weights: each.iter().map(Weights::of).collect(),
            results: (each.iter())
                .filter_map(|linear| linear.y.map(Memory::Place))
                .collect(),
            other: linears.other,
            gate: linears.gate,
            is_wide: false,
            given: None,
            experts: None,
            behind: None,
            words: Vec::new(),
        };
        launch.emit(emitter);
    }
}

/// How weights lie, and what they and activations are multiplied as.
fn kind_of(weights: DType) -> (Kind, DType) {
    match weights {
        DType::Block(format) => (Kind::Blocks(format), DType::BF16),
        dtype => (Kind::Lines, dtype),
    }
}

/// Rows of `k` activations, one after the other.
fn rows_of(x: &Place, k: usize) -> Factor<'_> {
    Factor {
        place: x,
        outer: k,
        inner: 1,
        batch: Vec::new(),
    }
}

/// Can products of these dtypes and sizes be made whose weights each row chooses?
pub(crate) fn accepts_experts(x: &TensorType, w: &TensorType) -> bool {
    is_possible(x.dtype, w.dtype)
        && w.shape.elements() > 0
        && (w.dtype.is_block() || w.shape[2].is_multiple_of(8))
}

/// Appends the launches of one of those, or of two that make one result.
pub(crate) fn emit_experts(
    (x, weights, y): (&Place, &[Place], Memory),
    experts: &Experts,
    behind: Option<&Behind>,
    emitter: &mut Emitter,
) {
    let w = &weights[0];
    let [n, k] = [1, 2].map(|d| w.ty.shape[d]);
    let (kind, operand) = kind_of(w.ty.dtype);
    let columns = kind.columns_of_experts(experts.rows_of_each());
    let sorted = experts.sort(columns, emitter);
    let m = sorted.count * columns;
    let panels = Panels::new(m, k, kind, Numbers::of(operand), emitter);
    panels.fill(&rows_of(x, k), None, Some((&sorted, columns)), emitter);
    let launch = Launch {
        m,
        k,
        x: panels,
        kind,
        w_stride: k,
        weights: (weights.iter())
            .map(|w| Weights {
                w: Memory::Place(w),
                n,
                bias: None,
            })
            .collect(),
        results: smallvec![y],
        other: None,
        gate: None,
        is_wide: false,
        given: None,
        experts: Some((&sorted, columns)),
        behind,
        words: Vec::new(),
    };
    launch.emit(emitter);
}

/// Can a product of these dtypes and sizes m, n and k be made of dense matrices?
pub(crate) fn accepts_dense([a, b]: [DType; 2], [m, n, k]: [usize; 3]) -> bool {
    let is_possible = is_possible(a, b) || [a, b] == [DType::F32; 2];
    is_possible && m.min(n) >= MANY && k > 0
}

/// Returns whether tensor cores compute this product of single precision faster than the library, as sums of terms.
pub(crate) fn is_worth_terms(product: &Product<'_>) -> bool {
    /// Multiplications and additions, as measured on an H200.
    const LARGE: usize = 1 << 33;
    /// Rows of the smaller factor: with fewer it takes longer to make terms than to multiply.
    const ENOUGH: usize = 2 * ROWS;
    let Product { m, k, n, .. } = *product;
    let is_single = |factor: &Factor<'_>| factor.place.ty.dtype == DType::F32;
    is_single(&product.a)
        && is_single(&product.b)
        && product.batch.iter().product::<usize>() == 1
        && m.min(n) >= ENOUGH
        && m.saturating_mul(n).saturating_mul(k) >= LARGE
}

/// Appends its launches.
pub(crate) fn emit_dense<'a>(product: &Product<'a>, emitter: &mut Emitter) {
    let Product { m, k, n, .. } = *product;
    let numbers = Numbers::of(product.b.place.ty.dtype);
    let is_aligned = product.b.inner == 1 && begins_aligned(product.b.place, product.b.outer);
    let kind = match numbers.terms == 1 && is_aligned {
        true => Kind::Lines,
        false => Kind::Panels,
    };
    let x = Panels::new(m, k, kind, numbers, emitter);
    x.fill(&product.a, None, None, emitter);
    let (w, w_stride) = match kind {
        Kind::Panels => {
            let panels = Panels::new(n, k, kind, numbers, emitter);
            panels.fill(&product.b, None, None, emitter);
            (Memory::Scratch(panels.memory), panels.stride)
        }
        _ => (Memory::Place(product.b.place), product.b.outer),
    };
    let bias = product.bias;
    let given = |factor: &Factor<'a>| (factor.place, vec![factor.outer, factor.inner]);
    let launch = Launch {
        m,
        k,
        x,
        kind,
        w_stride,
        weights: smallvec![Weights { w, n, bias }],
        results: smallvec![Memory::Place(product.y)],
        other: None,
        gate: None,
        is_wide: false,
        given: (numbers.terms > 1).then(|| [given(&product.a), given(&product.b)]),
        experts: None,
        behind: None,
        words: Vec::new(),
    };
    launch.emit(emitter);
}

/// The numbers that tensor cores are given.
#[derive(Clone, Copy)]
pub(super) struct Numbers {
    pub(super) dtype: DType,
    /// Numbers that each element is the sum of.
    pub(super) terms: usize,
}

impl Numbers {
    /// Numbers for elements of a dtype: single precision has as many digits as three bf16 numbers.
    pub(super) fn of(dtype: DType) -> Self {
        match dtype {
            DType::F32 => Self {
                dtype: DType::BF16,
                terms: 3,
            },
            dtype => Self { dtype, terms: 1 },
        }
    }
}

/// Rows that `kernels/cuda/panels.cu` makes.
#[derive(Clone, Copy)]
pub(super) struct Panels {
    rows: usize,
    k: usize,
    numbers: Numbers,
    is_shuffled: bool,
    /// Numbers that are rounded with one scale, as for weights in blocks of that length; or 0.
    rounds: usize,
    /// Panels, and lines of each: whole tiles.
    pub(super) count: usize,
    pub(super) stride: usize,
    pub(super) memory: Scratch,
}

impl Panels {
    /// Memory for `rows` rows of `k`, to be multiplied with weights of a kind.
    pub(super) fn new(
        rows: usize,
        k: usize,
        kind: Kind,
        numbers: Numbers,
        emitter: &mut Emitter,
    ) -> Self {
        let is_shuffled = matches!(kind, Kind::Blocks(_));
        let rounds = match kind {
            Kind::Blocks(format) => format.block_len(),
            _ => 0,
        };
        let count = match is_shuffled {
            true => k.div_ceil(SLAB) * (SLAB / PANEL),
            false => k.div_ceil(PANEL),
        };
        let stride = rows.next_multiple_of(COLUMNS[2]);
        Self {
            rows,
            k,
            numbers,
            is_shuffled,
            rounds,
            count,
            stride,
            memory: emitter.scratch(numbers.terms * count * stride * LINE),
        }
    }

    /// Appends the launch that makes them of a matrix, or of its norm.
    /// With experts the rows are in their order, in tiles of so many.
    fn fill(
        &self,
        x: &Factor<'_>,
        norm: Option<Norm<'_>>,
        experts: Option<(&Sorted, usize)>,
        emitter: &mut Emitter,
    ) {
        const GROUP: usize = 256;
        const PARTS: usize = PANEL / 16;
        let bytes = x.place.ty.dtype.size().unwrap_or(1);
        let is_aligned = |elements: usize| (elements * bytes).is_multiple_of(16);
        let weight = norm.and_then(|norm| norm.weight);
        let is_dense = x.inner == 1
            && is_aligned(x.outer)
            && is_aligned(x.place.layout.offset)
            && weight.is_none_or(|weight| is_aligned(weight.layout.offset));
        let text = include_str!("../../../kernels/cuda/panels.cu");
        let mut kernel = Kernel::new("panels", text, GROUP as u32);
        kernel.define_dtype("X", x.place.ty.dtype);
        kernel.define_dtype("OPERAND", self.numbers.dtype);
        kernel.define("TERMS", self.numbers.terms);
        kernel.define("IS_SHUFFLED", u8::from(self.is_shuffled));
        kernel.define("ROUNDS", self.rounds);
        kernel.define("IS_DENSE", u8::from(is_dense));
        kernel.define("IS_ALONG_ROWS", u8::from(x.inner != 1 && x.outer == 1));
        kernel.read("x", x.place);
        kernel.scratch("panels", self.numbers.dtype, self.memory, true);
        for (name, size) in [
            ("rows", self.rows),
            ("k", self.k),
            ("panels_count", self.count),
            ("outer", x.outer),
            ("inner", x.inner),
            ("stride", self.stride),
        ] {
            kernel.word(name, size);
        }
        kernel.define("BY_EXPERT", u8::from(experts.is_some()));
        if let Some((sorted, columns)) = experts {
            kernel.define("COLUMNS", columns);
            sorted.pass(&mut kernel, false);
        }
        kernel.define("HAS_NORM", u8::from(norm.is_some()));
        kernel.define("HAS_WEIGHT", u8::from(weight.is_some()));
        if let Some(weight) = weight {
            kernel.read("weight", weight);
        }
        let groups = match norm {
            Some(norm) => {
                kernel.float("eps", norm.eps as f32);
                self.rows
            }
            None => (self.rows * self.count * PARTS).div_ceil(GROUP),
        };
        emitter.launch(kernel.groups(groups, 1, 1));
    }
}

impl Launch<'_> {
    pub(super) fn emit(self, emitter: &mut Emitter) {
        let is_gated = self.weights.len() > self.results.len();
        let Numbers { dtype, terms } = self.x.numbers;
        let form = match self.experts {
            Some((_, columns)) => Form::of_experts(self.kind, columns),
            None => Form::new(self.kind, [self.m, self.k], terms),
        };
        let tile_rows = if is_gated { form.rows / 2 } else { form.rows };
        let sets = &self.weights[..self.results.len()];
        let row_tiles = sets.iter().map(|set| set.n.div_ceil(tile_rows)).sum();
        let units = emitter.limits.compute_units;
        let tiling = match self.experts {
            Some((sorted, columns)) => {
                Tiling::of_experts(row_tiles * sorted.count, columns, units * form.resident)
            }
            None => Tiling::new(row_tiles, [self.m, self.k], self.kind, terms, form, units),
        };
        let local_bytes = emitter.limits.local_bytes;
        let local = Local::new(self.kind, tiling.columns, terms, form, local_bytes);

        let text = include_str!("../../../kernels/cuda/gemm.cu");
        let text = with_gate(text, GATE, self.gate);
        let text = match self.behind {
            Some(behind) => behind.with_gate(&text).into(),
            None => text,
        };
        let group = form.group() as u32;
        let (mut kernel, name) = match self.kind {
            Kind::Blocks(format) => {
                let mut kernel = blocks::kernel("gemm", &text, group, format);
                let is_bytes = blocks::has_signed_codes(format);
                kernel.define("IS_BYTES", u8::from(is_bytes));
                (kernel, "BLOCKS")
            }
            Kind::Lines => (Kernel::new("gemm", text, group), "LINES"),
            Kind::Panels => (Kernel::new("gemm", text, group), "PANELS"),
            Kind::Pixels => (Kernel::new("gemm", text, group), "PIXELS"),
        };
        kernel.define("W_KIND", name);
        kernel.residence(group, form.resident as u32);
        kernel.define("RESIDENT", form.resident);
        kernel.define("ROWS", form.rows);
        kernel.define("COLUMNS", tiling.columns);
        kernel.define("STAGES", local.stages);
        kernel.define("SLABS", SLABS);
        kernel.define("PIECES", local.pieces);
        kernel.dynamic_local(local.bytes);
        kernel.define("SETS", self.results.len());
        kernel.define("IS_GATED", u8::from(is_gated));
        kernel.define("IS_WIDE", u8::from(self.is_wide));
        kernel.define("BY_EXPERT", u8::from(self.experts.is_some()));
        if let Some((sorted, _)) = self.experts {
            sorted.pass(&mut kernel, false);
        }
        kernel.define(
            "TABLES",
            self.behind.map_or(0, |behind| behind.tables.len()),
        );
        if let Some(behind) = self.behind {
            behind.pass(&mut kernel);
        }
        kernel.define_dtype("OPERAND", dtype);
        kernel.define("TERMS", terms);
        kernel.scratch("x", dtype, self.x.memory, false);
        kernel.define_dtype("Y", self.results[0].dtype());
        for (at, set) in self.weights.iter().enumerate() {
            let of_set = |name: &str| match at {
                0 => name.to_owned(),
                _ => format!("{name}_{at}"),
            };
            match set.w {
                Memory::Place(place) => kernel.read(&of_set("w"), place),
                Memory::Scratch(memory) => {
                    kernel.scratch(&of_set("w"), dtype, memory, false);
                }
            }
            let bias = of_set("bias");
            let added = set.bias.map_or("0".to_owned(), |place| {
                kernel.read(&bias, place);
                let stride = place.layout.strides.last().copied().unwrap_or(1);
                kernel.word(&format!("{bias}_stride"), stride);
                format!("LOAD(Y, {bias}, (i) * p.{bias}_stride)")
            });
            kernel.define(&format!("{}(i)", bias.to_uppercase()), added);
            match self.results.get(at) {
                Some(&Memory::Place(y)) => kernel.write(&of_set("y"), y),
                Some(&Memory::Scratch(y)) => kernel.scratch(&of_set("y"), DType::F32, y, true),
                None => {}
            }
        }
        kernel.define("HAS_OTHER", u8::from(self.other.is_some()));
        if let Some(other) = self.other {
            kernel.read("other", other);
        }
        let (bytes, words) = match tiling.shared_tiles {
            0 => (0, 0),
            _ => (form.rows * tiling.columns * 4, form.rows / 16),
        };
        let shares = emitter.scratch(tiling.sharers * bytes);
        kernel.scratch("parts", DType::F32, shares, true);
        kernel.counters("ready", emitter.zeroed(tiling.sharers * words));
        kernel.word("m", self.m);
        kernel.word("k", self.k);
        let rows: SmallVec<[usize; MOST_SETS]> = sets.iter().map(|set| set.n).collect();
        kernel.words("n", &rows);
        for (name, size) in [
            ("x_stride", self.x.stride),
            ("w_stride", self.w_stride),
            ("tiles", tiling.tiles),
            ("shared_tiles", tiling.shared_tiles),
            ("sharers", tiling.sharers),
        ] {
            kernel.word(name, size);
        }
        for (name, (place, strides)) in ["x", "w"].iter().zip(self.given.iter().flatten()) {
            kernel.read(&format!("given_{name}"), place);
            kernel.words(&format!("{name}_strides"), strides);
        }
        for (name, words) in &self.words {
            match words[..] {
                [word] => kernel.word(name, word),
                _ => kernel.words(name, words),
            }
        }
        emitter.launch(kernel.groups(tiling.groups, 1, 1));
    }
}

/// Share of a unit that a group takes.
#[derive(Clone, Copy)]
struct Form {
    /// Rows of w that it multiplies at a time.
    rows: usize,
    /// Groups that a unit has at work at a time.
    resident: usize,
}

impl Form {
    /// A group that is alone on its unit.
    const ALONE: Self = Self {
        rows: ROWS,
        resident: 1,
    };

    /// The form for rows of experts, in tiles of so many. Unpacking blocks for few rows takes longer than multiplying
    /// them, and is done by more warps.
    fn of_experts(kind: Kind, columns: usize) -> Self {
        match matches!(kind, Kind::Blocks(_)) && columns < COLUMNS[1] {
            true => Self {
                rows: ROWS,
                resident: 2,
            },
            false => Self::ALONE,
        }
    }

    /// The form for products of `m` rows along `k` numbers.
    fn new(kind: Kind, [m, k]: [usize; 2], terms: usize) -> Self {
        /// Largest depth at which writing results takes longer than multiplying. One group then writes
        /// while another multiplies.
        const FEW: usize = PANEL;
        // With few rows, copying the pixels' windows takes longer than multiplying them: two groups copy.
        match kind == Kind::Pixels && terms == 1 && (k <= FEW || m <= COLUMNS[0]) {
            true => Self {
                rows: OF_WARPGROUP,
                resident: 2,
            },
            false => Self::ALONE,
        }
    }

    /// Work-items of a group.
    fn group(self) -> usize {
        (1 + self.rows / OF_WARPGROUP) * WARPGROUP
    }

    /// The most columns that registers have room for.
    fn most_columns(self) -> usize {
        COLUMNS[COLUMNS.len() - self.resident]
    }
}

/// Local memory of a group.
struct Local {
    /// Panels of x, and of w if that is not blocks.
    stages: usize,
    /// Copies of 16 bytes for a slab of a row of blocks, wherever it begins: an odd number, which
    /// puts the beginnings of eight rows into different banks.
    pieces: usize,
    bytes: usize,
}

impl Local {
    /// The swizzle's unit: panels begin at a multiple of it.
    const ALIGNMENT: usize = 1024;
    /// Bytes of the two barriers of each stage and slab.
    const BARRIERS: usize = 16;

    /// Bytes that the device takes of it for each group.
    const TAKEN: usize = 1024;

    fn new(kind: Kind, columns: usize, terms: usize, form: Form, most: usize) -> Self {
        let most = most / form.resident - (form.resident - 1) * Self::TAKEN;
        let (pieces, fixed, w_bytes) = match kind {
            Kind::Blocks(format) => {
                let bytes = SLAB / format.block_len() * format.block_bytes();
                let pieces = (bytes + 15).div_ceil(16) | 1;
                (pieces, SLABS * (ROWS * pieces * 16 + Self::BARRIERS), 0)
            }
            Kind::Lines | Kind::Panels | Kind::Pixels => (0, 0, form.rows * LINE),
        };
        let fixed = Self::ALIGNMENT + fixed;
        let stage = terms * (columns * LINE + w_bytes) + Self::BARRIERS;
        let room = most.saturating_sub(fixed) / stage;
        let enough = match kind {
            // The other local memory is the cache, where pixels are found again.
            Kind::Pixels => 4,
            _ => 8,
        };
        let stages = room.clamp(2, enough);
        Self {
            stages,
            pieces,
            bytes: fixed + stages * stage,
        }
    }
}

/// Rows of x that a group may multiply at a time.
const COLUMNS: [usize; 3] = [64, 128, 256];

/// Making of tiles by groups.
#[derive(Clone, Copy)]
struct Tiling {
    columns: usize,
    tiles: usize,
    /// Tiles that the first `sharers` groups share, in equal parts along k.
    shared_tiles: usize,
    sharers: usize,
    groups: usize,
}

impl Tiling {
    /// Whole tiles, of which some may be empty.
    fn of_experts(tiles: usize, columns: usize, units: usize) -> Self {
        Self {
            columns,
            tiles,
            shared_tiles: 0,
            sharers: 1,
            groups: units.clamp(1, tiles.max(1)),
        }
    }

    /// The fastest one, on a device with this number of units.
    fn new(
        row_tiles: usize,
        [m, k]: [usize; 2],
        kind: Kind,
        terms: usize,
        form: Form,
        units: usize,
    ) -> Self {
        // Figures measured on an H200: how much slower small tiles are for their size; the time to exchange
        // parts of tiles at all, and the time to add one, both in panels.
        let (slowness, exchange, addition) = match kind {
            Kind::Blocks(_) => ([2.2, 1.45, 1.0], 9.0, 2.1),
            Kind::Lines | Kind::Panels | Kind::Pixels => ([1.6, 1.2, 1.0], 40.0, 5.0),
        };
        let units = units.max(1) * form.resident;
        let mut best = (
            f64::INFINITY,
            Self {
                columns: COLUMNS[0],
                tiles: 0,
                shared_tiles: 0,
                sharers: 1,
                groups: 0,
            },
        );
        // Two stages of the widest tile do not fit when there are several terms.
        let columns = COLUMNS.into_iter().zip(slowness);
        let columns = columns
            .filter(|&(columns, _)| terms == 1 || columns < COLUMNS[2])
            .filter(|&(columns, _)| columns <= form.most_columns());
        // The number of products of terms.
        let work = (terms * (terms + 1) / 2) as f64;
        for (columns, slowness) in columns {
            let tiles = row_tiles * m.div_ceil(columns);
            // The unit is the time of one panel and one column.
            let of_tile = (k.div_ceil(PANEL) * columns) as f64 * slowness * work;
            let mut propose = |time: f64, shared_tiles: usize, sharers: usize, groups: usize| {
                if time < best.0 {
                    let tiling = Self {
                        columns,
                        tiles,
                        shared_tiles,
                        sharers,
                        groups,
                    };
                    best = (time, tiling);
                }
            };
            let whole = tiles.div_ceil(units) as f64 * of_tile;
            propose(whole, 0, 1, units.min(tiles));
            let left = tiles % units;
            if left == 0 {
                continue;
            }
            // All groups share the tiles that are left, or as many groups as divide each tile into equally many
            // parts.
            for sharers in [units, units / left * left] {
                // Parts that do not begin with a tile count one more.
                let parts = sharers as f64 / left as f64;
                let added = if sharers % left == 0 {
                    parts - 1.0
                } else {
                    parts
                };
                let exchanges = (exchange + addition * added) * columns as f64;
                let rounds = (tiles / units) as f64 + left as f64 / sharers as f64;
                propose(rounds * of_tile + exchanges, left, sharers, units);
            }
        }
        best.1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An H200's.
    const UNITS: usize = 132;
    const LOCAL_BYTES: usize = 227 << 10;

    #[test]
    fn tiles_of_experts_fit_into_local_memory() {
        for format in BlockFormat::ALL {
            let kind = Kind::Blocks(*format);
            for (rows, columns) in [(1, 48), (38, 48), (39, 80), (66, 80), (67, 128)] {
                assert_eq!(kind.columns_of_experts(rows), columns);
                let form = Form::of_experts(kind, columns);
                assert_eq!(form.resident, if columns < 128 { 2 } else { 1 });
                let local = Local::new(kind, columns, 1, form, LOCAL_BYTES);
                let taken = (local.bytes + Local::TAKEN) * form.resident - Local::TAKEN;
                assert!(taken <= LOCAL_BYTES, "{format:?}, {columns} columns");
            }
        }
        assert_eq!(Kind::Lines.columns_of_experts(30), 64);
    }

    #[test]
    fn every_format_fits_into_local_memory_with_copies_ahead() {
        let blocks = BlockFormat::ALL.iter().map(|&format| Kind::Blocks(format));
        for kind in blocks.chain([Kind::Lines, Kind::Panels, Kind::Pixels]) {
            for columns in COLUMNS {
                let local = Local::new(kind, columns, 1, Form::ALONE, LOCAL_BYTES);
                assert!(local.bytes <= LOCAL_BYTES && local.stages >= 3, "{columns}");
            }
        }
    }

    #[test]
    fn two_stages_of_several_terms_fit_into_local_memory() {
        let Numbers { terms, .. } = Numbers::of(DType::F32);
        for m in [64, 128, 1 << 20] {
            let tiling = Tiling::new(64, [m, 4096], Kind::Panels, terms, Form::ALONE, UNITS);
            let local = Local::new(
                Kind::Panels,
                tiling.columns,
                terms,
                Form::ALONE,
                LOCAL_BYTES,
            );
            assert!(local.bytes <= LOCAL_BYTES && local.stages >= 2, "{m}");
        }
    }

    #[test]
    fn two_groups_fit_into_a_unit_where_there_is_little_to_multiply() {
        for ([m, k], columns) in [([256, 64], 128), ([64, 576], 64)] {
            let form = Form::new(Kind::Pixels, [m, k], 1);
            assert_eq!([form.rows, form.resident, form.group()], [64, 2, 256]);
            let tiling = Tiling::new(12544, [m, k], Kind::Pixels, 1, form, UNITS);
            assert_eq!([tiling.columns, tiling.groups], [columns, 2 * UNITS]);
            let local = Local::new(Kind::Pixels, tiling.columns, 1, form, LOCAL_BYTES);
            assert_eq!(local.stages, 4);
            assert!(2 * (local.bytes + Local::TAKEN) <= LOCAL_BYTES + Local::TAKEN);
        }
        assert_eq!(Form::new(Kind::Pixels, [128, 128], 1).resident, 1);
        assert_eq!(Form::new(Kind::Lines, [64, 64], 1).resident, 1);
    }

    #[test]
    fn tiles_are_shared_where_groups_would_be_idle() {
        let q4_k = Kind::Blocks(BlockFormat::Q4K);
        // 64 tiles: two groups each.
        let tiling = Tiling::new(32, [512, 4096], q4_k, 1, Form::ALONE, UNITS);
        assert_eq!(
            [tiling.columns, tiling.shared_tiles, tiling.sharers],
            [256, 64, 128]
        );
        // 128 small ones for 132 groups.
        let tiling = Tiling::new(32, [512, 4096], Kind::Lines, 1, Form::ALONE, UNITS);
        assert_eq!(
            [tiling.columns, tiling.shared_tiles, tiling.groups],
            [128, 0, 128]
        );
        // Many more tiles than groups.
        let tiling = Tiling::new(224, [4096, 4096], q4_k, 1, Form::ALONE, UNITS);
        assert_eq!([tiling.columns, tiling.groups], [256, UNITS]);
    }
}
