//! Operations that take, write or turn rows.

use rustorch_ir::ops::RopeLayout;
use rustorch_ir::{DType, Op, OpKind, Signature, TensorType};
use rustorch_runtime::{KernelEntry, Place, Step};

use super::product::{block_text, weight};
use super::{GROUP, entry, is_float, is_known, launch_for_each, places, split};
use crate::emit::{Emitter, GpuKernel};
use crate::kernel::Kernel;

/// Pairs of features that turn, of which the frequencies are parameters.
const MOST_PAIRS: usize = 256;

pub(super) const KERNELS: [KernelEntry<GpuKernel>; 5] = [
    entry(OpKind::Contiguous, is_moved, copy),
    entry(OpKind::Embedding, is_embedding, embedding),
    entry(OpKind::IndexSelect, is_selected, index_select),
    entry(OpKind::UpdateSlice, is_update, update_slice),
    entry(OpKind::Rope, is_rope, rope),
];

/// A copy of elements that nothing computes with.
fn is_moved(signature: &Signature) -> bool {
    let dtype = signature.output().dtype;
    !is_known(dtype) && !dtype.is_block()
}

/// Copies elements as words, or as bytes.
fn copy(step: &Step, emitter: &mut Emitter) {
    let [x, y] = [&step.inputs[0], step.output()].map(in_words);
    let n = y.ty.shape.elements();
    let mut kernel = Kernel::new("copy", "", GROUP);
    kernel.read("x", &x);
    kernel.write("y", &y);
    kernel.word("n", n);
    let mut text = places(&mut kernel, "x", &x.layout);
    text += include_str!("../../../kernels/wgsl/copy.wgsl");
    kernel.set_text(text);
    launch_for_each(emitter, kernel, n);
}

/// The place of elements seen as words, with one more dimension, or as bytes.
fn in_words(place: &Place) -> Place {
    let words = place.ty.dtype.size().unwrap_or(1) / size_of::<u32>();
    let mut place = place.clone();
    if words == 0 {
        place.ty.dtype = DType::U8;
        return place;
    }
    let layout = &mut place.layout;
    layout.strides.iter_mut().for_each(|step| *step *= words);
    layout.strides.push(1);
    layout.shape.to_mut().push(words);
    layout.offset *= words;
    place.ty = TensorType::new(layout.shape.clone(), DType::U32);
    place
}

fn is_embedding(signature: &Signature) -> bool {
    let table = signature.inputs[0].dtype;
    is_float(signature.output().dtype) && (is_float(table) || block_text(table).is_some())
}

fn is_selected(signature: &Signature) -> bool {
    is_known(signature.inputs[0].dtype)
}

fn is_update(signature: &Signature) -> bool {
    let [state, source] = [0, 1].map(|i| signature.inputs[i].dtype);
    is_known(state) && (state == source || is_float(state) && is_float(source))
}

/// A frequency that is divided by a factor would have too few digits for a distant position.
fn is_rope(signature: &Signature) -> bool {
    let Op::Rope(op) = signature.op else {
        return false;
    };
    signature.inputs.len() == 2
        && is_float(signature.output().dtype)
        && (1..=MOST_PAIRS).contains(&(op.dims / 2))
}

fn embedding(step: &Step, emitter: &mut Emitter) {
    let (table, ids) = (&step.inputs[0], &step.inputs[1]);
    let (rows, width) = (table.ty.shape[0], table.ty.shape[1]);
    let n = step.output().ty.shape.elements();
    let mut kernel = Kernel::new("embedding", "", GROUP);
    kernel.read("w", table);
    kernel.read("ids", ids);
    kernel.write("y", step.output());
    kernel.word("n", n);
    kernel.word("rows", rows);
    kernel.word("width", width);
    let code = emitter.outside(step, ids, rows, format!("a table of {rows} rows"));
    kernel.status("status", code);
    let mut text = weight(&mut kernel, table.ty.dtype, &table.layout);
    text += &places(&mut kernel, "ids", &ids.layout);
    text += include_str!("../../../kernels/wgsl/embedding.wgsl");
    kernel.set_text(text);
    launch_for_each(emitter, kernel, n);
}

fn index_select(step: &Step, emitter: &mut Emitter) {
    let Op::IndexSelect(op) = &step.last().op else {
        return;
    };
    let (x, ids) = (&step.inputs[0], &step.inputs[1]);
    let (n, size) = (step.output().ty.shape.elements(), x.ty.shape[op.dim]);
    let (others, along) = split(&x.layout, &[op.dim]);
    let mut kernel = Kernel::new("index_select", "", GROUP);
    kernel.read("x", x);
    kernel.read("ids", ids);
    kernel.write("y", step.output());
    kernel.word("n", n);
    kernel.word("size", size);
    kernel.word("stride", along.strides[0]);
    kernel.word("count", ids.ty.shape.elements());
    kernel.word("rest", x.ty.shape[op.dim + 1..].iter().product());
    let code = emitter.outside(step, ids, size, format!("{size} in dim {}", op.dim));
    kernel.status("status", code);
    let mut text = places(&mut kernel, "others", &others);
    text += &places(&mut kernel, "ids", &ids.layout);
    text += include_str!("../../../kernels/wgsl/index_select.wgsl");
    kernel.set_text(text);
    launch_for_each(emitter, kernel, n);
}

fn update_slice(step: &Step, emitter: &mut Emitter) {
    let Op::UpdateSlice(op) = &step.last().op else {
        return;
    };
    let (x, start, y) = (&step.inputs[1], &step.inputs[2], step.output());
    let (count, size) = (x.ty.shape[op.dim], y.ty.shape[op.dim]);
    let n = x.ty.shape.elements();
    let mut kernel = Kernel::new("update_slice", "", GROUP);
    kernel.read("x", x);
    kernel.read("start", start);
    kernel.write("y", y);
    kernel.word("n", n);
    kernel.word("last", size - count);
    kernel.word("stride", y.layout.strides[op.dim]);
    let message = format!(
        "the start leaves no room for {count} in dim {} of {}",
        op.dim, y.ty
    );
    kernel.status("status", emitter.mistake(step, 0, message));
    let mut text = places(&mut kernel, "x", &x.layout);
    text += &places(&mut kernel, "y", &y.layout.slice(op.dim, 0, count, 1));
    text += include_str!("../../../kernels/wgsl/update_slice.wgsl");
    kernel.set_text(text);
    // A group even for no elements: the start may be a mistake.
    launch_for_each(emitter, kernel, n.max(1));
}

fn rope(step: &Step, emitter: &mut Emitter) {
    let Op::Rope(op) = &step.last().op else {
        return;
    };
    let (x, positions) = (&step.inputs[0], &step.inputs[1]);
    let rank = x.ty.rank();
    let (t, d) = (x.ty.shape[rank - 2], x.ty.shape[rank - 1]);
    let (rows, row) = split(&x.layout, &[rank - 1]);
    let n = rows.shape.elements();
    let mut kernel = Kernel::new("rope", "", GROUP);
    let is_interleaved = op.layout == RopeLayout::Interleaved;
    kernel.define("INTERLEAVED", format!("{}u", u8::from(is_interleaved)));
    kernel.read("x", x);
    kernel.read("positions", positions);
    kernel.write("y", step.output());
    kernel.word("n", n);
    kernel.word("t", t);
    kernel.word("d", d);
    kernel.word("pairs", op.dims / 2);
    kernel.word("stride", row.strides[0]);
    kernel.word("position_stride", positions.layout.strides[0]);
    let (frequencies, magnitude) = op.frequencies(None);
    kernel.float("magnitude", magnitude as f32);
    let words: Vec<usize> = frequencies.iter().copied().flat_map(fraction).collect();
    kernel.words("frequencies", &words);
    let mut text = places(&mut kernel, "rows", &rows);
    text += include_str!("../../../kernels/wgsl/rope.wgsl");
    kernel.set_text(text);
    let items = n * (d - op.dims / 2);
    launch_for_each(emitter, kernel, items);
}

/// The turns of a frequency behind the point, in units of 2⁻⁶⁴: the low and the high word.
fn fraction(frequency: f64) -> [usize; 2] {
    let turns = (frequency / std::f64::consts::TAU).rem_euclid(1.0);
    crate::kernel::halves((turns * 2f64.powi(64)) as u64)
}
