//! Products with a few rows of activations: one loop over the rows of several matrices of weights,
//! and over the operations on the results.

use super::decode::STREAMS;
use super::tile::{Output, Tile};
use super::weight::Weight;
use super::{Scratch, convert_all};
use crate::math::{Real, gelu_tanh, relu, silu};
use crate::pool::Pool;
use crate::simd::{Arithmetic, Kernel, Level, Simd};
use rustorch_ir::ops::ActivationKind;
use smallvec::SmallVec;
use std::ops::Range;

/// Bytes of weights that are worth a chunk of their own.
pub(super) const CHUNK_BYTES: usize = 8 << 10;
/// Chunks for each thread, so that one which is late is not a great loss: no more, as each begins with
/// a wait for memory.
const CHUNKS: usize = 4;

/// `y [t, n] = x [t, k] · wᵀ + bias`.
pub(crate) struct Projection<'a> {
    pub(crate) w: Weight<'a>,
    pub(crate) bias: Option<&'a [f32]>,
    pub(crate) y: &'a mut [f32],
}

/// Operations on the results, which lie where the first product's do.
#[derive(Clone, Copy)]
pub(crate) enum Epilogue<'a> {
    Nothing,
    /// `y + other`, of one product.
    Add(&'a [f32]),
    /// `activation(y₀) · y₁`, of two products.
    Gate(ActivationKind),
}

/// Computes the products of `t` rows `x` and the operations on them.
///
/// # Panics
/// Panics unless all sizes match.
pub(crate) fn multiply(
    pool: &Pool,
    level: Level,
    (x, t): (&[f32], usize),
    products: &mut [Projection<'_>],
    epilogue: Epilogue<'_>,
    scratch: &mut Scratch,
) {
    for product in &*products {
        let (n, k, y) = (product.w.n(), product.w.k(), product.y.len());
        assert!(
            x.len() == t * k,
            "{t} rows of {k} activations in {}",
            x.len()
        );
        assert!(y == t * n, "{t} rows of {n} results in {y} values");
        assert!(
            product.bias.is_none_or(|bias| bias.len() == n),
            "{n} biases"
        );
    }
    let x = Activations::new(pool, level, (x, t), products, scratch);
    let is_gated = matches!(epilogue, Epilogue::Gate(_));
    if let Epilogue::Add(other) = epilogue {
        assert!(other.len() == products[0].y.len(), "operands of a sum");
    }
    let tracks = tracks(products, is_gated, pool.threads());
    let inputs: SmallVec<[_; 3]> = products.iter().map(|p| (p.w, p.bias)).collect();
    let results: SmallVec<[_; 3]> = (products.iter_mut())
        .map(|p| Output::new(p.y, p.w.n()))
        .collect();
    let chunks = tracks.last().map_or(0, |track| track.chunks.end);
    pool.run(chunks, &|chunk| {
        let Some(track) = tracks.iter().find(|track| chunk < track.chunks.end) else {
            return;
        };
        let first = (chunk - track.chunks.start) * track.rows;
        let rows = first..track.n.min(first + track.rows);
        // SAFETY: chunks have different columns, and a chunk's tiles of one result are used one
        // after the other.
        let tile = |i: usize| unsafe { results[i].tile(0..t, rows.clone()) };
        for i in track.products.clone() {
            let (w, bias) = &inputs[i];
            (w.weight_type().kernels().stream)(level, w, first, x.of(i), tile(i));
            if let Some(bias) = bias {
                level.run(AddBias(tile(i), &bias[rows.clone()]));
            }
        }
        match epilogue {
            Epilogue::Nothing => {}
            Epilogue::Add(other) => level.run(Add {
                y: tile(0),
                other: &other[first..],
                stride: track.n,
            }),
            Epilogue::Gate(kind) => level.run(Gate {
                kind,
                gate: tile(0),
                up: tile(1),
            }),
        }
    });
}

/// The rows of activations in the form that each product reads.
struct Activations<'a> {
    bytes: &'a [u8],
    /// For each product, its part of the bytes.
    parts: SmallVec<[Range<usize>; 3]>,
}

impl<'a> Activations<'a> {
    /// Converts the rows once for each type of weights.
    fn new(
        pool: &Pool,
        level: Level,
        (x, t): (&[f32], usize),
        products: &[Projection<'_>],
        scratch: &'a mut Scratch,
    ) -> Self {
        let mut parts: SmallVec<[Range<usize>; 3]> = SmallVec::new();
        let mut bytes = 0;
        let same = |i: usize, w: &Weight<'_>| products[i].w.weight_type() == w.weight_type();
        for Projection { w, .. } in products {
            let part = (0..parts.len())
                .find(|&i| same(i, w))
                .map(|i| parts[i].clone());
            parts.push(part.unwrap_or_else(|| bytes..bytes + w.scratch_bytes(t)));
            bytes = bytes.max(parts[parts.len() - 1].end);
        }
        let slabs = scratch.slabs::<u8>(bytes);
        let mut converted = 0;
        for (Projection { w, .. }, part) in products.iter().zip(&parts) {
            if part.end > converted {
                convert_all(level, pool, w, (x, t), &mut slabs[part.clone()]);
                converted = part.end;
            }
        }
        Self {
            bytes: slabs,
            parts,
        }
    }

    fn of(&self, product: usize) -> &[u8] {
        &self.bytes[self.parts[product].clone()]
    }
}

/// Products whose rows are gone through together, and how they are cut into chunks.
struct Track {
    products: Range<usize>,
    /// Rows of weights.
    n: usize,
    /// Rows of a chunk.
    rows: usize,
    chunks: Range<usize>,
}

/// One track for each product, or one for all where their results meet.
fn tracks(products: &[Projection<'_>], is_one: bool, threads: usize) -> SmallVec<[Track; 3]> {
    let bytes =
        |products: &[Projection<'_>]| -> usize { products.iter().map(|p| p.w.bytes().len()).sum() };
    let chunk_bytes = (bytes(products) / (CHUNKS * threads)).max(CHUNK_BYTES);
    let each = if is_one { products.len() } else { 1 };
    let mut tracks: SmallVec<[Track; 3]> = SmallVec::new();
    for (i, of_track) in products.chunks(each).enumerate() {
        let n = of_track[0].w.n();
        let row_bytes = bytes(of_track) / n.max(1);
        let rows = (chunk_bytes / row_bytes.max(1))
            .max(1)
            .next_multiple_of(STREAMS);
        let start = tracks.last().map_or(0, |track| track.chunks.end);
        tracks.push(Track {
            products: i * each..i * each + of_track.len(),
            n,
            rows,
            chunks: start..start + n.div_ceil(rows),
        });
    }
    tracks
}

struct AddBias<'a>(Tile<'a>, &'a [f32]);

impl Kernel for AddBias<'_> {
    #[inline(always)]
    fn run<S: Simd>(mut self, _: S) {
        for row in 0..self.0.rows() {
            let row = self.0.row(row);
            row.iter_mut().zip(self.1).for_each(|(y, bias)| *y += bias);
        }
    }
}

struct Add<'a> {
    y: Tile<'a>,
    /// The rows are `stride` values apart.
    other: &'a [f32],
    stride: usize,
}

impl Kernel for Add<'_> {
    #[inline(always)]
    fn run<S: Simd>(mut self, _: S) {
        for row in 0..self.y.rows() {
            let other = &self.other[row * self.stride..];
            let sums = self.y.row(row).iter_mut();
            sums.zip(other).for_each(|(y, other)| *y += other);
        }
    }
}

struct Gate<'a> {
    kind: ActivationKind,
    gate: Tile<'a>,
    up: Tile<'a>,
}

impl Gate<'_> {
    #[inline(always)]
    fn apply(mut self, activation: impl Fn(f32) -> f32) {
        for row in 0..self.gate.rows() {
            let gates = self.gate.row(row).iter_mut();
            let up = self.up.row(row).iter();
            gates
                .zip(up)
                .for_each(|(gate, up)| *gate = activation(*gate) * up);
        }
    }
}

impl Kernel for Gate<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let m = Arithmetic::of(s);
        match self.kind {
            ActivationKind::Relu => self.apply(relu),
            ActivationKind::Sigmoid => self.apply(|x| x.sigmoid(m)),
            ActivationKind::Silu => self.apply(|x| silu(m, x)),
            ActivationKind::Gelu => self.apply(|x| x.gelu(m)),
            ActivationKind::GeluTanh => self.apply(|x| gelu_tanh(m, x)),
        }
    }
}
