//! Attention on tensor cores: of few rows of queries, also with what comes in front of it for
//! a token; and of many.

use rustorch_ir::ops::{Attention, Rope, RopeLayout};
use rustorch_ir::{DType, Op};
use rustorch_runtime::{Place, Step};

use super::HOPPER;
use crate::driver::Dialect;
use crate::emit::Emitter;
use crate::kernel::Kernel;
use crate::ops::attention::{operand, options, shape, strides};
use crate::ops::rope::turns;
use rustorch_runtime::merge::CachedAttention;

/// Queries of a head up to which groups share its keys.
const FEW: usize = 16;

/// Groups that share a head's keys, a cluster: the most that any device has.
const SPLITS: usize = 8;

/// Work-items of a group for few rows, and of those in a warp.
const GROUP_OF_FEW: usize = 512;
const WARP: usize = 32;

/// Rows of queries of a group: of few, at most, and of many.
const ROWS_OF_FEW: usize = 8;
const ROWS_OF_MANY: usize = 128;

/// Keys of a tile of the kernel for many rows, and its tiles of keys and of values.
const KEYS: usize = 128;
const TILES: usize = 4;

/// Bytes of keys and values that the second-level cache keeps for sure.
const CACHED: usize = 24 << 20;

macro_rules! text {
    ($($name:literal),*) => {
        concat!($(include_str!(concat!("../../../kernels/", $name))),*)
    };
}

/// Can pieces of 16 bytes of rows be loaded?
fn in_pieces(place: &Place) -> bool {
    let Some((&last, others)) = place.layout.strides.split_last() else {
        return false;
    };
    let whole = |&elements: &usize| elements.is_multiple_of(8);
    last == 1 && others.iter().all(whole) && whole(&place.layout.offset)
}

/// Are there kernels for this attention, of operands in these places?
fn suits(op: &Attention, [q, k, v]: [&Place; 3], emitter: &Emitter) -> bool {
    let width = |place: &Place| place.ty.shape.last().copied();
    let is_half = |dtype: DType| matches!(dtype, DType::F16 | DType::BF16);
    emitter.dialect() == Dialect::Cuda
        && emitter.limits.cuda_capability == HOPPER
        && !op.mask
        && op.soft_cap.is_none()
        && op.scale.0 > 0.0
        && is_half(k.ty.dtype)
        && (q.ty.dtype == DType::F32 || is_half(q.ty.dtype))
        && matches!(width(k), Some(64 | 128))
        && width(v) == width(k)
        && [q, k, v].into_iter().all(in_pieces)
}

/// What all kernels are told.
fn define(kernel: &mut Kernel, operands: [&Place; 3]) {
    let [_, k, _] = operands;
    kernel.define("D", k.ty.shape[k.ty.rank() - 1]);
    kernel.define("MMA", format!("\"{}\"", k.ty.dtype.name()));
    shape(kernel, operands, SPLITS);
}

/// Appends the launch of an attention, if there is a kernel.
pub(crate) fn emit_alone(op: &Attention, step: &Step, emitter: &mut Emitter) -> bool {
    let [q, k, v] = [0, 1, 2].map(|i| &step.inputs[i]);
    if !suits(op, [q, k, v], emitter) {
        return false;
    }
    let t = q.ty.shape[q.ty.rank() - 2];
    let (mut kernel, groups) = match t <= FEW {
        true => few([q, k, v]),
        false => many([q, k, v]),
    };
    for (name, place) in [("q", q), ("k", k), ("v", v)] {
        operand(&mut kernel, name, place);
    }
    options(op, step, &mut kernel, emitter);
    kernel.define("NEW_TOKEN", 0);
    kernel.write("y", step.output());
    emitter.launch(kernel.groups(groups, 1, 1));
    true
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
    let mut kernel = Kernel::new("attention_few", text, GROUP_OF_FEW as u32);
    define(&mut kernel, operands);
    kernel.define("ROWS", rows);
    kernel.define("SPLITS", SPLITS);
    kernel.cluster(SPLITS as u32);
    // Sums of each warp, in rows that begin in different banks.
    let row_bytes = (d + 8) * size_of::<f32>();
    kernel.dynamic_local(GROUP_OF_FEW / WARP * rows * row_bytes);
    (kernel, heads * all_rows.div_ceil(rows) * SPLITS)
}

/// The kernel for many rows, and its number of groups.
fn many(operands: [&Place; 3]) -> (Kernel, usize) {
    let [q, k, _] = operands;
    let lead = k.ty.rank() - 3;
    let (s, d) = (k.ty.shape[lead + 1], k.ty.shape[lead + 2]);
    let heads: usize = q.ty.shape[..=lead].iter().product();
    let each = q.ty.shape[lead] / k.ty.shape[lead];
    let text = text!(
        "attention.h",
        "cuda/async.h",
        "cuda/attention.h",
        "cuda/attention_many.cu"
    );
    // A warpgroup that loads and two that compute.
    let mut kernel = Kernel::new("attention_many", text, 384);
    define(&mut kernel, operands);
    kernel.define("CONVERTS", u8::from(q.ty.dtype != k.ty.dtype));
    let row_bytes = d * size_of::<u16>();
    // The tiles begin at a multiple of 1024.
    kernel.dynamic_local((ROWS_OF_MANY + TILES * KEYS) * row_bytes + 1024);
    kernel.word("all_heads", heads);
    kernel.word("together", (CACHED / (2 * s * row_bytes)).max(1) * each);
    let tiles = q.ty.shape[lead + 1].div_ceil(ROWS_OF_MANY);
    (kernel, heads * tiles)
}

/// The operations of a token's attention, if they are those of the kernel.
fn parts<'a>(a: &CachedAttention<'a>) -> Option<(&'a Attention, &'a Rope)> {
    let (attention, rope_q, rope_k) = (a.attention.last(), a.rope_q.last(), a.rope_k.last());
    match (&attention.op, &rope_q.op, &rope_k.op) {
        (Op::Attention(attention), Op::Rope(q), Op::Rope(k)) if q == k => Some((attention, q)),
        _ => None,
    }
}

/// Is it of one token, and are its parts those of the kernel?
pub(crate) fn accepts(a: &CachedAttention, emitter: &Emitter) -> bool {
    let Some((op, rope)) = parts(a) else {
        return false;
    };
    let [q, new_k, new_v] = [
        &a.rope_q.inputs[0],
        &a.rope_k.inputs[0],
        &a.update_v.inputs[1],
    ];
    let [k, v] = [1, 2].map(|i| &a.attention.inputs[i]);
    let is_one = |place: &Place| {
        let shape = &place.ty.shape;
        let is_vector = place.layout.strides.last() == Some(&1);
        place.ty.dtype == DType::F32 && shape.len() == 3 && shape[1] == 1 && is_vector
    };
    let same = |a: &Place, b: &Place| a.slot == b.slot && a.layout == b.layout;
    let is_dim = |step: &Step| matches!(&step.last().op, Op::UpdateSlice(op) if op.dim == 1);
    let past = a.attention.inputs.last();
    let starts_there = |step: &Step| past.is_some_and(|past| same(past, &step.inputs[2]));
    suits(op, [q, k, v], emitter)
        && [q, new_k, new_v].into_iter().all(is_one)
        && a.attention.output.ty.dtype == DType::F32
        && op.causal
        && op.past
        && [a.update_k, a.update_v]
            .into_iter()
            .all(|step| is_dim(step) && starts_there(step))
        && a.rope_q.inputs.len() == a.rope_k.inputs.len()
        && (a.rope_q.inputs[1..].iter().zip(&a.rope_k.inputs[1..])).all(|(q, k)| same(q, k))
        && rope.dims.is_multiple_of(2)
}

/// Appends the launch.
pub(crate) fn emit(a: &CachedAttention, emitter: &mut Emitter) {
    let Some((op, rope)) = parts(a) else {
        return;
    };
    let [q, new_k, new_v] = [
        &a.rope_q.inputs[0],
        &a.rope_k.inputs[0],
        &a.update_v.inputs[1],
    ];
    let [k, v] = [1, 2].map(|i| &a.attention.inputs[i]);
    let (mut kernel, groups) = few([q, k, v]);
    kernel.define("NEW_TOKEN", 1);
    // The kernel reads these before earlier launches have ended; caches where it writes nothing.
    let mut given = a.rope_q.inputs[1..].iter().chain(a.attention.inputs.last());
    if given.all(|place| emitter.is_constant(place))
        && [k, v]
            .into_iter()
            .all(|cache| emitter.is_written_once(cache))
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
    options(op, a.attention, &mut kernel, emitter);
    kernel.read("positions", &a.rope_q.inputs[1]);
    let factors = a.rope_q.inputs.get(2);
    kernel.define("HAS_FACTORS", u8::from(factors.is_some()));
    if let Some(factors) = factors {
        kernel.read("factors", factors);
        kernel.word("factor_stride", factors.layout.strides[0]);
    }
    let is_interleaved = rope.layout == RopeLayout::Interleaved;
    kernel.define("INTERLEAVED", u8::from(is_interleaved));
    kernel.word("dims", rope.dims);
    let (frequencies, magnitude) = rope.frequencies(None);
    let words: Vec<usize> = frequencies.into_iter().flat_map(turns).collect();
    kernel.words("frequencies", &words);
    kernel.real("MAGNITUDE", DType::F32, magnitude);
    kernel.write("y", a.attention.output());
    emitter.launch(kernel.groups(groups, 1, 1));
}
