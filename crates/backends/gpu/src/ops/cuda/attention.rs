//! Attention on tensor cores: for few rows of queries, also with the operations in front of it for
//! a token; and for many.

use rustorch_ir::ops::{Attention, RopeLayout};
use rustorch_ir::{DType, Layout, Op, Shape, Signature, TensorType};
use rustorch_runtime::{Place, Step};

use super::matmul::Numbers;
use crate::emit::Emitter;
use crate::kernel::{Kernel, Scratch};
use crate::ops::attention::{operand, options, others, result, shape, strides, totals};
use crate::ops::rope::turns;
use crate::ops::views::{dims, walk};

/// Queries of a head up to which groups share its keys.
const FEW: usize = 16;

/// Groups that share a head's keys, a cluster: the most that any device has.
const SPLITS: usize = 8;

/// Work-items of a warp.
const WARP: usize = 32;

/// Work-items of a group for few rows. Registers of each hold a tile's keys, values and sums: heads of 256 features take
/// twice as many.
fn group_of_few(d: usize) -> usize {
    if d > 128 { 256 } else { 512 }
}

/// Rows of queries of a group of few, at most.
const ROWS_OF_FEW: usize = 8;

/// Rows of queries of a warpgroup, and its work-items.
const ROWS_OF_WARPGROUP: usize = 64;
const WARPGROUP: usize = 128;

/// Keys that groups of many rows take at a time.
const KEYS: usize = 128;

/// Bytes of keys and values that the second-level cache keeps for sure.
const CACHED: usize = 24 << 20;

macro_rules! text {
    ($($name:literal),*) => {
        concat!($(include_str!(concat!("../../../kernels/", $name))),*)
    };
}

/// The text of a kernel whose warpgroups make products, with their common parts.
macro_rules! text_of_warpgroups {
    ($($name:literal),*) => {
        text!(
            "attention.h",
            "cuda/async.h",
            "cuda/attention.h",
            "cuda/warpgroups.h",
            $($name),*
        )
    };
}

/// Returns whether there are kernels for this attention. Rows of keys and values are loaded in pieces of 16 bytes.
pub(crate) fn accepts(op: &Attention, [q, k, v]: [&TensorType; 3]) -> bool {
    let width = |ty: &TensorType| ty.shape.last().copied();
    let is_half = |dtype: DType| matches!(dtype, DType::F16 | DType::BF16);
    let are_halves = is_half(k.dtype) && (q.dtype == DType::F32 || is_half(q.dtype));
    let are_single = [q, k, v].iter().all(|ty| ty.dtype == DType::F32);
    let is_many = q.shape[q.rank() - 2] > FEW;
    // Kernels for single precision have no window.
    let is_seen = op.window.is_none() || are_halves;
    !op.mask
        && is_seen
        && op.soft_cap.is_none()
        && op.scale.0 > 0.0
        && (is_many || are_halves)
        && (are_halves || are_single)
        && k.shape.elements() > 0
        && (matches!(width(k), Some(64 | 128)) || width(k) == Some(256) && !is_many)
        && width(v) == width(k)
}

/// Are results written to rows that begin anywhere? Then the operation is one that there is a kernel for.
pub(crate) fn writes_rows(s: &Signature) -> bool {
    match (s.op, s.inputs) {
        (Op::Attention(op), &[q, k, v, ..]) => {
            accepts(op, [q, k, v]) && q.shape[q.rank() - 2] > FEW
        }
        (Op::AttentionBackward(_), _) => true,
        _ => false,
    }
}

/// Definitions for all kernels.
fn define(kernel: &mut Kernel, operands: [&Place; 3]) {
    let [_, k, _] = operands;
    kernel.define("D", k.ty.shape[k.ty.rank() - 1]);
    kernel.define("MMA", format!("\"{}\"", k.ty.dtype.name()));
    shape(kernel, operands, SPLITS);
}

/// Appends the launch of an attention.
pub(crate) fn emit(step: &Step, emitter: &mut Emitter) {
    let Op::Attention(op) = &step.last().op else {
        return;
    };
    let [q, k, v] = [0, 1, 2].map(|i| &step.inputs[i]);
    let terms = Numbers::of(k.ty.dtype).terms;
    match q.ty.shape[q.ty.rank() - 2] {
        _ if terms > 1 => emit_single(op, terms, step, emitter),
        ..=FEW => emit_few(op, step, emitter),
        _ => {
            let all = [q, k, v, step.output()].map(Place::clone);
            emit_many(op, all, step.outputs.get(1).cloned(), step, emitter);
        }
    }
}

/// Appends the launch for few rows.
fn emit_few(op: &Attention, step: &Step, emitter: &mut Emitter) {
    let operands = [0, 1, 2].map(|i| &step.inputs[i]);
    let (mut kernel, groups) = few(operands);
    for (name, place) in ["q", "k", "v"].into_iter().zip(operands) {
        operand(&mut kernel, name, place);
    }
    let [q, k, _] = operands;
    options(op, [q, k], others(op, step), step, &mut kernel, emitter);
    kernel.define("NEW_TOKEN", 0);
    result(&mut kernel, "y", step.output());
    totals(&mut kernel, step.outputs.get(1));
    emitter.launch(kernel.groups(groups, 1, 1));
}

/// Appends the launches for many rows of halves: one, or, where a tensor's batch is not a single
/// dimension, one for each index of the first.
fn emit_many(
    op: &Attention,
    all: [Place; 4],
    logs: Option<Place>,
    step: &Step,
    emitter: &mut Emitter,
) {
    let Some([q, k, v, y]) = with_one_batch(&all) else {
        for i in 0..all[0].ty.shape[0] {
            let logs = logs.as_ref().map(|logs| at_index(logs, i));
            emit_many(
                op,
                all.each_ref().map(|place| at_index(place, i)),
                logs,
                step,
                emitter,
            );
        }
        return;
    };
    let [batch, heads, t, d] = [0, 1, 2, 3].map(|i| q.ty.shape[i]);
    let (kv_heads, s) = (k.ty.shape[1], k.ty.shape[2]);
    let converts = q.ty.dtype != k.ty.dtype;
    // Narrow heads leave registers for a third warpgroup, and none for queries.
    let (warpgroups, stages, q_tiles) = match (converts, d) {
        (true, _) => (2, 3, 0),
        (false, 64) => (3, 2, 2),
        _ => (2, 3, 1),
    };
    let text = text_of_warpgroups!("cuda/tiles.h", "cuda/attention_many.cu");
    // One warpgroup loads, and the others compute.
    let group = WARPGROUP * (warpgroups + 1);
    let mut kernel = Kernel::new("attention_many", text, group as u32);
    define(&mut kernel, [&q, &k, &v]);
    let rows = ROWS_OF_WARPGROUP * warpgroups;
    for (name, value) in [
        ("WARPGROUPS", warpgroups),
        ("KEYS", KEYS),
        ("STAGES", stages),
        ("Q_TILES", q_tiles),
        ("Q_IN_REGISTERS", usize::from(warpgroups == 2)),
    ] {
        kernel.define(name, value);
    }
    for (name, place) in [("q", &q), ("k", &k), ("v", &v)] {
        operand(&mut kernel, name, place);
    }
    if q_tiles > 0 {
        kernel.tiles("q", &q, rows);
    }
    kernel.tiles("k", &k, KEYS);
    kernel.tiles("v", &v, KEYS);
    // The tiles begin at a multiple of 1024.
    let row_bytes = d * size_of::<u16>();
    kernel.dynamic_local((q_tiles * rows + 2 * stages * KEYS) * row_bytes + 1024);
    let items = Items {
        heads: batch * heads,
        keys: s,
        tiles: t.div_ceil(rows),
        // With a causal mask, the first rows see the fewest keys. The first tile lacks this many rows.
        absent_rows: if op.causal {
            t.next_multiple_of(rows) - t
        } else {
            0
        },
        rows,
        is_causal: op.causal,
        groups: emitter.limits.compute_units,
    };
    let most = CACHED / (2 * s * row_bytes) * (heads / kv_heads);
    for (name, value) in [
        ("all_heads", items.heads),
        ("together", items.together(most)),
        ("tiles", items.tiles),
        ("items", items.count()),
        ("absent_rows", items.absent_rows),
    ] {
        kernel.word(name, value);
    }
    options(op, [&q, &k], others(op, step), step, &mut kernel, emitter);
    result(&mut kernel, "y", &y);
    totals(&mut kernel, logs.as_ref());
    let groups = items.count().min(items.groups);
    emitter.launch(kernel.groups(groups, 1, 1));
}

/// The tensors with their batch as one dimension, if strides allow.
fn with_one_batch(all: &[Place; 4]) -> Option<[Place; 4]> {
    let merged = all.iter().map(|place| {
        let lead = place.ty.rank() - 3;
        let (batch, matrices) = place.ty.shape.split_at(lead);
        let shape = [batch.iter().product()].into_iter();
        let shape: Shape = shape.chain(matrices.iter().copied()).collect();
        let mut merged = place.clone();
        merged.layout = place.layout.reshape(&shape)?;
        merged.ty.shape = shape;
        Some(merged)
    });
    let merged: Option<Vec<Place>> = merged.collect();
    merged?.try_into().ok()
}

/// A tensor at index `i` of its first dimension.
fn at_index(place: &Place, i: usize) -> Place {
    let mut at = place.clone();
    at.layout = place.layout.slice(0, i, 1, 1);
    let shape: Shape = place.ty.shape[1..].iter().copied().collect();
    at.layout = Layout {
        strides: at.layout.strides[1..].into(),
        shape: shape.clone(),
        ..at.layout
    };
    at.ty.shape = shape;
    at
}

/// Sharing of attention for many rows: items are tiles of rows of a head, the longest first, of some
/// heads at a time. Groups take items by turns from the front and from the end.
struct Items {
    heads: usize,
    keys: usize,
    /// Tiles of a head's rows.
    tiles: usize,
    rows: usize,
    absent_rows: usize,
    is_causal: bool,
    /// Groups that work at a time.
    groups: usize,
}

impl Items {
    fn count(&self) -> usize {
        self.heads * self.tiles
    }

    /// Number of heads whose items follow each other. It is at most `most`, so that their keys stay in
    /// the cache. The group with the most work should have little more than others.
    fn together(&self, most: usize) -> usize {
        let most = most.clamp(1, self.heads);
        if !self.is_causal || most == self.heads {
            return most;
        }
        let candidates = (most.div_ceil(2)..=most).rev().take(16);
        candidates
            .min_by_key(|&n| self.most_tiles(n))
            .unwrap_or(most)
    }

    /// Tiles of keys that the group with the most to do goes through, with `together` heads at a time;
    /// beginning an item takes about as long as one.
    fn most_tiles(&self, together: usize) -> usize {
        let groups = self.groups.min(self.count());
        let mut tiles = vec![0; groups];
        for item in 0..self.count() {
            let section = item / (self.tiles * together) * together;
            let width = together.min(self.heads - section);
            let tile = self.tiles - 1 - (item - section * self.tiles) / width;
            let end = ((tile + 1) * self.rows - self.absent_rows).min(self.keys);
            let (round, place) = (item / groups, item % groups);
            let group = if round % 2 == 0 {
                place
            } else {
                groups - 1 - place
            };
            tiles[group] += end.div_ceil(KEYS) + 1;
        }
        tiles.into_iter().max().unwrap_or(0)
    }
}

/// Appends the launches for numbers in single precision, as sums of `terms` terms.
fn emit_single(op: &Attention, terms: usize, step: &Step, emitter: &mut Emitter) {
    let [q, k, v] = [0, 1, 2].map(|i| &step.inputs[i]);
    let lead = k.ty.rank() - 3;
    let (s, d) = (k.ty.shape[lead + 1], k.ty.shape[lead + 2]);
    let heads: usize = q.ty.shape[..=lead].iter().product();
    let each = q.ty.shape[lead] / k.ty.shape[lead];
    let text = text_of_warpgroups!(
        "cuda/attention_rows.h",
        "cuda/terms.h",
        "cuda/attention_many_f32.cu"
    );
    // A warpgroup that loads and two that compute.
    let mut kernel = Kernel::new("attention_many_f32", text, 3 * WARPGROUP as u32);
    define(&mut kernel, [q, &of_halves(k), &of_halves(v)]);
    kernel.define("TERMS", terms);
    operand(&mut kernel, "q", q);
    let halves = split([k, v], terms, emitter);
    for ((name, place), halves) in [("k", k), ("v", v)].into_iter().zip(halves) {
        kernel.scratch(name, DType::BF16, halves, false);
        strides(&mut kernel, name, &of_halves(place));
        operand(&mut kernel, &format!("given_{name}"), place);
        kernel.word(&format!("{name}_term"), place.ty.shape.elements());
    }
    // Local memory has room for so many keys and stages.
    const KEYS: usize = 64;
    let stages = if d == 64 { 2 } else { 1 };
    kernel.define("KEYS", KEYS);
    kernel.define("STAGES", stages);
    let rows = 2 * ROWS_OF_WARPGROUP;
    let row_bytes = terms * d * size_of::<u16>();
    // The tiles begin at a multiple of 1024.
    kernel.dynamic_local((rows + 2 * stages * KEYS) * row_bytes + 1024);
    kernel.word("all_heads", heads);
    let together = (CACHED / (2 * s * row_bytes)).max(1) * each;
    kernel.word("together", together.min(heads));
    let items = heads * q.ty.shape[lead + 1].div_ceil(rows);
    kernel.word("items", items);
    options(op, [q, k], others(op, step), step, &mut kernel, emitter);
    result(&mut kernel, "y", step.output());
    totals(&mut kernel, step.outputs.get(1));
    emitter.launch(kernel.groups(items, 1, 1));
}

/// A dense tensor of its shape in bf16.
fn of_halves(place: &Place) -> Place {
    let mut halves = place.clone();
    halves.ty.dtype = DType::BF16;
    halves.layout = Layout::contiguous(&place.ty.shape);
    halves
}

/// Appends the launch that turns keys and values, of one shape, into sums of bf16 tensors. The
/// tensors of each lie one after the other.
fn split([k, v]: [&Place; 2], terms: usize, emitter: &mut Emitter) -> [Scratch; 2] {
    const GROUP: usize = 256;
    const EACH: usize = 4;
    let elements = k.ty.shape.elements();
    let memory = [(); 2].map(|()| emitter.scratch(terms * elements * size_of::<u16>()));
    let text = text!("cuda/terms.h", "cuda/terms.cu");
    let mut kernel = Kernel::new("terms", text, GROUP as u32);
    kernel.define("TERMS", terms);
    kernel.read("k", k);
    kernel.read("v", v);
    kernel.scratch("k_terms", DType::BF16, memory[0], true);
    kernel.scratch("v_terms", DType::BF16, memory[1], true);
    let last = k.layout.rank() - 1;
    let rows = [k, v].map(|place| dims(&place.layout, 0..last));
    walk(&mut kernel, "rows", &[("k", &rows[0]), ("v", &rows[1])]);
    kernel.word("d", k.ty.shape[last]);
    kernel.word("count", elements);
    emitter.launch(kernel.groups(elements.div_ceil(GROUP * EACH), 2, 1));
    memory
}

/// The kernel for few rows, and its number of groups.
fn few(operands: [&Place; 3]) -> (Kernel, usize) {
    let [q, k, _] = operands;
    let lead = k.ty.rank() - 3;
    let d = k.ty.shape[lead + 2];
    let heads: usize = k.ty.shape[..=lead].iter().product();
    let all_rows = q.ty.shape[lead] / k.ty.shape[lead] * q.ty.shape[lead + 1];
    let rows = all_rows.min(ROWS_OF_FEW);
    let text = text!(
        "rope.h",
        "attention.h",
        "cuda/async.h",
        "cuda/attention.h",
        "cuda/attention_few.cu"
    );
    let group = group_of_few(d);
    let mut kernel = Kernel::new("attention_few", text, group as u32);
    define(&mut kernel, operands);
    kernel.define("ROWS", rows);
    kernel.define("SPLITS", SPLITS);
    kernel.cluster(SPLITS as u32);
    // Sums of each warp, in rows that begin in different banks.
    let row_bytes = (d + 8) * size_of::<f32>();
    kernel.dynamic_local(group / WARP * rows * row_bytes);
    (kernel, heads * all_rows.div_ceil(rows) * SPLITS)
}

/// Returns whether there is a kernel for the gradients of this attention.
pub(crate) fn accepts_backward(op: &Attention, [q, k, v]: [&TensorType; 3]) -> bool {
    let is_half = matches!(q.dtype, DType::F16 | DType::BF16);
    let is_plain = !op.past && op.window.is_none() && k.shape.last() != Some(&256);
    accepts(op, [q, k, v]) && is_half && q.dtype == k.dtype && is_plain && q.shape.elements() > 0
}

/// Rows of keys or queries of a group, and those of the other side that it takes at a time.
const ROWS: usize = 128;
const STEP: usize = 64;

/// Appends the launches that make the gradient of the queries, and those of keys and values.
pub(crate) fn emit_backward(step: &Step, emitter: &mut Emitter) {
    let Op::AttentionBackward(op) = &step.last().op else {
        return;
    };
    let [q, k, v, totals, d_y, delta] = [0, 1, 2, 3, 4, 5].map(|i| &step.inputs[i]);
    let lead = k.ty.rank() - 3;
    let [heads, s, d] = [0, 1, 2].map(|i| k.ty.shape[lead + i]);
    let (q_heads, t) = (q.ty.shape[lead], q.ty.shape[lead + 1]);
    let each = q_heads / heads;
    let batch: usize = q.ty.shape[..lead].iter().product();
    let text = text_of_warpgroups!("cuda/attention_rows.h", "cuda/attention_backward.cu");
    let row_bytes = d * size_of::<u16>();
    // Tiles of columns in local memory.
    let stages = if d == 64 { 4 } else { 3 };
    for of_keys in [false, true] {
        // A warpgroup that loads and two that compute.
        let mut kernel = Kernel::new("attention_backward", text, 384);
        define(&mut kernel, [q, k, v]);
        kernel.define("OF_KEYS", u8::from(of_keys));
        kernel.define("STEP", STEP);
        kernel.define("STAGES", stages);
        for (name, place) in [("q", q), ("k", k), ("v", v), ("d_y", d_y)] {
            operand(&mut kernel, name, place);
        }
        for (name, place) in [("totals", totals), ("delta", delta)] {
            kernel.read(name, place);
            let (lead, strides) = place.layout.strides.split_at(lead);
            kernel.words(&format!("{name}_lead"), lead);
            kernel.words(&format!("{name}_strides"), strides);
        }
        options(&op.attention, [q, k], [None; 2], step, &mut kernel, emitter);
        // Rows of all heads, and what those of a head are multiplied by.
        let (all_heads, rows, columns, shared) = match of_keys {
            true => (batch * heads, s, each * t, 1),
            false => (batch * q_heads, t, s, each),
        };
        let items = all_heads * rows.div_ceil(ROWS);
        kernel.word("all_heads", all_heads);
        kernel.word("tiles", rows.div_ceil(ROWS));
        kernel.word("items", items);
        let together = (CACHED / (2 * columns * row_bytes)).max(1) * shared;
        kernel.word("together", together.min(all_heads));
        let outputs: &[(&str, usize)] = match of_keys {
            true => &[("d_k", 1), ("d_v", 2)],
            false => &[("d_q", 0)],
        };
        for &(name, i) in outputs {
            result(&mut kernel, name, &step.outputs[i]);
        }
        // Rows and columns, each of two operands; then two numbers for each column.
        let tiles = 2 * (ROWS + stages * STEP) * row_bytes;
        kernel.dynamic_local(tiles + stages * 2 * STEP * size_of::<f32>() + 1024);
        let groups = items.min(emitter.limits.compute_units);
        emitter.launch(kernel.groups(groups, 1, 1));
    }
}

/// Appends the launch of the attention of a token that is rotated and written to the cache on the
/// way.
pub(crate) fn emit_cached(step: &Step, emitter: &mut Emitter) {
    let Op::CachedAttention(op) = &step.last().op else {
        return;
    };
    let [q, new_k, new_v, k, v, positions] = [0, 1, 2, 3, 4, 5].map(|i| &step.inputs[i]);
    let factors = op.factors().map(|i| &step.inputs[i]);
    let past = op.past().map(|i| &step.inputs[i]);
    let (mut kernel, groups) = few([q, k, v]);
    kernel.define("NEW_TOKEN", 1);
    totals(&mut kernel, None);
    // The kernel reads these before earlier launches have ended; caches where it writes nothing.
    let mut given = [Some(positions), factors, past].into_iter().flatten();
    let mut caches = [k, v].into_iter();
    if given.all(|place| emitter.is_constant(place))
        && caches.all(|cache| emitter.is_written_once(cache))
    {
        kernel.define("STARTS_EARLY", 1);
    }
    operand(&mut kernel, "q", q);
    for (name, place) in [("k", k), ("v", v)] {
        kernel.write(name, place);
        strides(&mut kernel, name, place);
    }
    for (name, place) in [("new_k", new_k), ("new_v", new_v)] {
        kernel.read(name, place);
        kernel.word(&format!("{name}_stride"), place.layout.strides[0]);
    }
    let others = [None, past];
    options(&op.attention, [q, k], others, step, &mut kernel, emitter);
    kernel.read("positions", positions);
    kernel.define("HAS_FACTORS", u8::from(factors.is_some()));
    if let Some(factors) = factors {
        kernel.read("factors", factors);
        kernel.word("factor_stride", factors.layout.strides[0]);
    }
    let is_interleaved = op.rope.layout == RopeLayout::Interleaved;
    kernel.define("INTERLEAVED", u8::from(is_interleaved));
    kernel.word("dims", op.rope.dims);
    let (frequencies, magnitude) = op.rope.frequencies(None);
    let mut words: Vec<usize> = frequencies.into_iter().flat_map(turns).collect();
    // So that one kernel serves all numbers of features that turn.
    words.resize(k.ty.shape[k.ty.rank() - 1], 0);
    kernel.words("frequencies", &words);
    kernel.real("MAGNITUDE", DType::F32, magnitude);
    kernel.write("y", step.output());
    emitter.launch(kernel.groups(groups, 1, 1));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn items(heads: usize, keys: usize) -> Items {
        Items {
            heads,
            keys,
            tiles: keys.div_ceil(128),
            rows: 128,
            absent_rows: keys.next_multiple_of(128) - keys,
            is_causal: true,
            groups: 132,
        }
    }

    #[test]
    fn heads_at_a_time_leave_no_group_with_much_more_than_others() {
        for (heads, keys, most) in [
            (128, 4096, 12),
            (128, 4096, 8),
            (32, 16384, 3),
            (48, 1000, 20),
        ] {
            let items = items(heads, keys);
            let together = items.together(most);
            assert!((1..=most).contains(&together), "{heads} {keys}: {together}");
            // The most that a group does, by what each does on average.
            let all: usize = (0..items.tiles)
                .map(|tile| ((tile + 1) * 128).min(keys + 127) / 128 + 1)
                .sum();
            let mean = heads * all / items.groups.min(items.count());
            let worst = items.most_tiles(together);
            assert!(
                worst * 10 <= mean * 13,
                "{heads} {keys} {together}: {worst} of {mean}"
            );
        }
    }

    #[test]
    fn all_heads_are_taken_together_where_their_keys_fit() {
        assert_eq!(items(32, 1024).together(96), 32);
        assert_eq!(items(32, 1024).together(0), 1);
    }
}
