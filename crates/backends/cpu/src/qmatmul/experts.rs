//! Products whose weights are chosen row by row: rows that choose one expert are multiplied together.

use super::activations::SLAB;
use super::decode::{MAX_TOKENS, STREAMS};
use super::few::CHUNK_BYTES;
use super::operand::ROWS;
use super::tile::Output;
use super::{CHUNK_SLABS, CHUNK_TOKENS, CHUNKS, Many, Rows, Scratch, Weight};
use crate::kernel::SharedMut;
use crate::pool::Pool;
use crate::simd::Level;
use rustorch_ir::order::order;
use std::ops::Range;

/// `y[i] = x[i / sharing] · w[chosen[i]]ᵀ` for each row `i` of the result.
pub(crate) struct Experts<'a> {
    /// The rows of all experts, `n` of each.
    pub(crate) w: Weight<'a>,
    pub(crate) n: usize,
    pub(crate) x: &'a [f32],
    /// Rows of the result that one row of activations is for.
    pub(crate) sharing: usize,
    /// The expert of each row of the result, one of those in `w`.
    pub(crate) chosen: &'a [usize],
    pub(crate) y: &'a mut [f32],
}

/// Rows of the result that chose one expert.
struct Group {
    expert: usize,
    /// Its rows among those that are sorted by expert.
    rows: Range<usize>,
    /// The first slab of its activations.
    slab: usize,
}

/// A rectangle of a group's results.
struct Part {
    group: usize,
    tokens: Range<usize>,
    columns: Range<usize>,
}

/// Slabs of a group's activations.
struct Piece {
    group: usize,
    slabs: Range<usize>,
}

impl Experts<'_> {
    /// Computes the products. A result depends on its own row, and on the number of rows that chose its expert: a
    /// few are multiplied as a few, and many as many.
    ///
    /// # Panics
    /// Panics unless the sizes match.
    // Inlined, so that builds without the feature `llm`, which do not call it, compile no product.
    #[inline]
    pub(crate) fn run(self, pool: &Pool, scratch: &mut Scratch) {
        let (n, k, rows) = (self.n, self.w.k(), self.chosen.len());
        let (x, y) = (self.x.len(), self.y.len());
        assert!(
            x * self.sharing == rows * k,
            "{rows} rows of {k} activations"
        );
        assert!(y == rows * n, "{rows} rows of {n} results in {y} values");
        if k == 0 {
            self.y.fill(0.0);
        } else if y > 0 {
            self.multiply(pool, Level::current(), scratch);
        }
    }

    pub(super) fn multiply(self, pool: &Pool, level: Level, scratch: &mut Scratch) {
        let Self { w, n, x, .. } = self;
        let kernels = w.weight_type().kernels();
        let places = order(self.chosen.len(), &|a, b| {
            self.chosen[a].cmp(&self.chosen[b])
        });
        let sources: Vec<usize> = places.iter().map(|place| place / self.sharing).collect();
        let (groups, pieces, slabs) = self.groups(&places, &sources);
        let bytes = scratch.slabs::<u8>(slabs * kernels.slab);
        let shared = SharedMut::new(bytes);
        pool.run(pieces.len(), &|i| {
            let Piece { group, slabs } = &pieces[i];
            let group = &groups[*group];
            let rows = Rows {
                x,
                k: w.k(),
                numbers: Some(&sources[group.rows.clone()]),
            };
            let start = (group.slab + slabs.start) * kernels.slab;
            // SAFETY: the slabs of all pieces are within the bytes, and no two have one of them.
            let bytes = unsafe { shared.range(start, slabs.len() * kernels.slab) };
            (kernels.convert)(level, rows, slabs.start, bytes);
        });
        let bytes = &*bytes;
        let y = Output::new(self.y, n);
        let parts = parts(&groups, &w, n, level, pool.threads());
        pool.run(parts.len(), &|i| {
            let Part {
                group,
                tokens,
                columns,
            } = &parts[i];
            let group = &groups[*group];
            let slabs = w.k().div_ceil(SLAB) * group.rows.len();
            let x = &bytes[group.slab * kernels.slab..][..slabs * kernels.slab];
            let places = &places[group.rows.clone()][tokens.clone()];
            // SAFETY: parts have different rows or different columns.
            let y = unsafe { y.scattered(places, columns.clone()) };
            let first = group.expert * n + columns.start;
            if group.rows.len() <= MAX_TOKENS {
                (kernels.stream)(level, &w, first, x, y);
            } else {
                let (tokens, token) = (group.rows.len(), tokens.start);
                let many = Many {
                    first,
                    x,
                    tokens,
                    token,
                    y,
                };
                (kernels.many)(level, &w, many);
            }
        });
    }

    /// The groups, the pieces that their activations are converted in, and the number of slabs. Groups of one row
    /// that have the same activations share them.
    fn groups(&self, places: &[usize], sources: &[usize]) -> (Vec<Group>, Vec<Piece>, usize) {
        let each = self.w.k().div_ceil(SLAB);
        let mut converted: Vec<Option<usize>> = vec![None; sources.len() / self.sharing];
        let (mut groups, mut pieces) = (Vec::new(), Vec::new());
        let (mut start, mut slabs) = (0, 0);
        for alike in places.chunk_by(|&a, &b| self.chosen[a] == self.chosen[b]) {
            let rows = start..start + alike.len();
            let known = converted[sources[start]].filter(|_| alike.len() == 1);
            let slab = known.unwrap_or(slabs);
            if known.is_none() {
                let count = each * alike.len();
                pieces.extend((0..count).step_by(CHUNK_SLABS).map(|start| Piece {
                    group: groups.len(),
                    slabs: start..count.min(start + CHUNK_SLABS),
                }));
                slabs += count;
            }
            if alike.len() == 1 {
                converted[sources[start]] = Some(slab);
            }
            start = rows.end;
            groups.push(Group {
                expert: self.chosen[alike[0]],
                rows,
                slab,
            });
        }
        (groups, pieces, slabs)
    }
}

/// Shares the columns of all groups among the threads, as products of few and of many rows are shared.
fn parts(groups: &[Group], w: &Weight<'_>, n: usize, level: Level, threads: usize) -> Vec<Part> {
    let row_bytes = (w.bytes().len() / w.n()).max(1);
    let share = groups.len() * n / (CHUNKS * threads);
    let few = share.max(CHUNK_BYTES / row_bytes).max(1);
    let few = few.next_multiple_of(STREAMS);
    let pairs = (w.weight_type().kernels().most_rows)(level) / (2 * ROWS);
    let many = 2 * ROWS * (share / (2 * ROWS)).clamp(1, pairs);
    let mut parts = Vec::new();
    for (group, Group { rows, .. }) in groups.iter().enumerate() {
        let (count, width) = match rows.len() {
            ..=MAX_TOKENS => (rows.len(), few),
            all => (all.div_ceil(all.div_ceil(CHUNK_TOKENS)), many),
        };
        for start in (0..n).step_by(width) {
            let columns = start..n.min(start + width);
            parts.extend((0..rows.len()).step_by(count).map(|token| Part {
                group,
                tokens: token..rows.len().min(token + count),
                columns: columns.clone(),
            }));
        }
    }
    parts
}
