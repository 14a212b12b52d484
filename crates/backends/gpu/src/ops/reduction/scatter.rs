//! Elements are put to places along a dimension, or combined with the elements there. The order is always the
//! same.

use rustorch_ir::ops::{ReduceOp, Scatter, ScatterMode};
use rustorch_ir::{DType, Layout, Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts, Place, Step};

use super::gather::outside;
use super::reduce::combination;
use super::top_k::{Best, Sorted, is_across};
use crate::driver::Limits;
use crate::emit::{Emitter, GpuKernel};
use crate::kernel::Kernel;
use crate::ops::concat::copy;
use crate::ops::views::{Memory, dimensions, for_each, split, walk, words};

pub(crate) const KERNEL: KernelEntry<GpuKernel> = KernelEntry {
    kind: OpKind::Scatter,
    accepts,
    layouts: Layouts::Any,
    launch: GpuKernel::everywhere(emit),
};

/// Elements of a line of the index that each place looks through.
const FEW_PICKS: usize = 32;

/// Lines that keep a device busy, with a work-item for each.
const MANY_LINES: usize = 1024;

/// Neighbouring lines whose elements devices read at once.
const READ_AT_ONCE: usize = 8;

/// Elements of a group's part of a line, for each of the index: sorting costs less.
const SEGMENT: usize = 4;

/// Largest number of elements of sorted lines that a work-item goes through. `LEAST_OF_PART` is the
/// least, and `AHEAD` the number loaded at once.
const MOST_OF_PART: usize = 64;
const LEAST_OF_PART: usize = 8;
const AHEAD: usize = 16;

/// Work-items that keep a compute unit busy.
const ITEMS_PER_UNIT: usize = 1024;

/// Work-items of a group that chains elements, and bytes of its local memory, at most.
const CHAIN_GROUP: usize = 256;
const CHAIN_BYTES: usize = 32 << 10;

fn accepts(_: &Signature) -> bool {
    true
}

fn emit(step: &Step, emitter: &mut Emitter) {
    let Op::Scatter(op) = &step.last().op else {
        return;
    };
    let (lines, along) = split(&distinct(&step.inputs[1], op.dim).layout, op.dim);
    if along.elements() <= FEW_PICKS {
        by_places(step, op, emitter);
    } else if let Some(chains) = Chains::of(step, op, emitter) {
        by_chains(step, op, &chains, emitter);
    } else if let Some(sorted) = tile(step, op, emitter.limits) {
        by_tiles(step, op, &sorted, emitter);
    } else if lines.elements() >= MANY_LINES {
        by_lines(step, op, emitter);
    } else {
        by_parts(step, op, emitter);
    }
}

/// Chains of the elements that go to one place, in a group's local memory.
struct Chains {
    /// The function that exchanges one of its words.
    exchange: &'static str,
    /// Words that there are: a place's first element, and the next of each element.
    cells: usize,
}

impl Chains {
    /// Chains of a line of the result, if there is room for them. There are none if neighbouring lines
    /// are read at once.
    fn of(step: &Step, op: &Scatter, emitter: &Emitter) -> Option<Self> {
        let exchange = emitter.dialect.local_exchange()?;
        let whole = Layout::contiguous(&step.output().ty.shape);
        let (lines, along) = split(&whole, op.dim);
        let picks = step.inputs[1].layout.shape[op.dim];
        let cells = (along.elements() + picks).next_power_of_two();
        let room = emitter.limits.local_bytes.min(CHAIN_BYTES) / size_of::<u32>();
        let fits = cells <= room && !is_across(&lines, &along);
        fits.then_some(Self { exchange, cells })
    }
}

/// Groups chain the elements of a line of the index by their places, and make a line of the result.
fn by_chains(step: &Step, op: &Scatter, chains: &Chains, emitter: &mut Emitter) {
    let group = match emitter.limits.is_processor {
        true => 16,
        false => CHAIN_GROUP.min(emitter.limits.max_group.max(1)),
    };
    let text = include_str!("../../../kernels/scatter_chains.c");
    let mut kernel = Kernel::new("scatter_chains", text, group as u32);
    kernel.define("CELLS", chains.cells);
    kernel.define("EXCHANGE", chains.exchange);
    let place = declare(step, op, &mut kernel, emitter);
    kernel.read("x", &place(&step.inputs[0]));
    let (lines, _) = describe_lines(step, op, &mut kernel);
    emitter.launch(kernel.groups(lines.elements(), 1, 1));
}

/// Adds the parameters by which groups find lines of the operands and of the result. Returns the
/// result's lines, and the elements along them.
fn describe_lines(step: &Step, op: &Scatter, kernel: &mut Kernel) -> (Layout, Layout) {
    let [x, index, source] = [0, 1, 2].map(|i| split(&step.inputs[i].layout, op.dim));
    let y = split(&Layout::contiguous(&step.output().ty.shape), op.dim);
    kernel.word("rank", y.0.rank());
    dimensions(kernel, "shape", &y.0.shape);
    dimensions(kernel, "index_shape", &index.0.shape);
    let views = [("y", &y), ("x", &x), ("index", &index), ("source", &source)];
    for (name, (lines, _)) in views {
        dimensions(kernel, &format!("{name}_strides"), &lines.strides);
    }
    kernel.word("x_step", x.1.strides[0]);
    kernel.word("y_step", y.1.strides[0]);
    y
}

/// Plan by which groups sort lines of the index in local memory. It needs room for a line, and for
/// as many neighbours as are read at once.
fn tile(step: &Step, op: &Scatter, limits: &Limits) -> Option<Sorted> {
    let (lines, along) = split(&step.inputs[1].layout, op.dim);
    let bytes = size_of::<u32>();
    let tile = Sorted::tile(limits, bytes);
    let size = along.elements().next_power_of_two();
    let whole = Layout::contiguous(&step.output().ty.shape);
    let (y_lines, y_along) = split(&whole, op.dim);
    // Many lines that lie across can be gone through side by side.
    let read_at_once = match lines.elements() >= MANY_LINES && is_across(&y_lines, &y_along) {
        true => READ_AT_ONCE,
        false => 1,
    };
    // A key is where an element goes, and its position in the line.
    let keys = y_along.elements().checked_mul(size)?;
    let fits = size.checked_mul(read_at_once)? <= tile && u32::try_from(keys).is_ok();
    fits.then(|| Sorted::new(limits, bytes, y_lines.elements(), along.elements()))
}

/// Groups sort lines of the index and make lines of the result, or segments of them.
fn by_tiles(step: &Step, op: &Scatter, sorted: &Sorted, emitter: &mut Emitter) {
    let text = concat!(
        include_str!("../../../kernels/sort.h"),
        include_str!("../../../kernels/scatter_tile.c")
    );
    let mut kernel = sorted.kernel("scatter_tile", text, "uint");
    kernel.define("AFTER(a, b)", "((a) > (b))");
    kernel.define("LINES", sorted.tile / (2 * FEW_PICKS));
    let place = declare(step, op, &mut kernel, emitter);
    kernel.read("x", &place(&step.inputs[0]));
    let y = describe_lines(step, op, &mut kernel);
    kernel.word("is_across", usize::from(is_across(&y.0, &y.1)));
    let (count, size) = (y.0.elements(), y.1.elements());
    kernel.word("count", count);
    let groups = count.div_ceil(sorted.lines);
    // If groups are few, lines are divided into segments, though not into small ones.
    let enough = emitter.limits.compute_units.div_ceil(groups.max(1));
    let segments = enough.min(size / (SEGMENT * sorted.size)).max(1);
    let segment = size.div_ceil(segments);
    kernel.word("segment", segment);
    emitter.launch(kernel.groups(groups, size.div_ceil(segment.max(1)), 1));
}

/// An index without the lines that are others once more.
fn distinct(index: &Place, dim: usize) -> Place {
    let mut place = index.clone();
    for d in (0..index.layout.rank()).filter(|&d| d != dim) {
        if index.layout.strides[d] == 0 && index.layout.shape[d] > 1 {
            place.layout.shape.to_mut()[d] = 1;
            place.ty.shape.to_mut()[d] = 1;
        }
    }
    place
}

/// The order of each line of the index by its values; equal ones keep their order.
fn sorted(step: &Step, op: &Scatter, emitter: &mut Emitter) -> (Memory<'static>, Layout) {
    let index = distinct(&step.inputs[1], op.dim);
    let view = Layout::contiguous(&index.ty.shape);
    let bytes = DType::U32.size().unwrap_or(0) * view.elements();
    let order = Memory::Scratch(DType::U32, emitter.scratch(bytes));
    let best = Best {
        x: &index,
        dim: op.dim,
        largest: false,
    };
    best.find(order, None, &view, emitter);
    (order, view.broadcast_to(&step.inputs[1].ty.shape))
}

/// Each line of the index is gone through in order by one work-item.
fn by_lines(step: &Step, op: &Scatter, emitter: &mut Emitter) {
    copy(&step.inputs[0], step.output(), emitter);
    let [y, index, source] = lines(step, op);
    let text = include_str!("../../../kernels/scatter_lines.c");
    let mut kernel = for_each("scatter_lines", text, index.0.elements());
    declare(step, op, &mut kernel, emitter);
    let views = [("y", &y.0), ("index", &index.0), ("source", &source.0)];
    walk(&mut kernel, "lines", &views);
    kernel.word("y_step", y.1.strides[0]);
    emitter.launch(kernel);
}

/// Lines of the result, of the index and of the source, in the number of the index's lines. With
/// each come the elements along it.
fn lines(step: &Step, op: &Scatter) -> [(Layout, Layout); 3] {
    let index = &step.inputs[1].layout;
    let y = Layout {
        shape: index.shape.clone(),
        ..Layout::contiguous(&step.output().ty.shape)
    };
    [&y, index, &step.inputs[2].layout].map(|layout| split(layout, op.dim))
}

/// Lines of the index are sorted, and work-items combine parts of them. A second launch combines elements of one place
/// in several parts.
fn by_parts(step: &Step, op: &Scatter, emitter: &mut Emitter) {
    let (order, order_view) = sorted(step, op, emitter);
    copy(&step.inputs[0], step.output(), emitter);
    let [y, index, source] = lines(step, op);
    let (order_lines, order_along) = split(&order_view, op.dim);
    let (count, picks) = (index.0.elements(), index.1.elements());
    let limits = emitter.limits;
    let part = count * picks / (limits.compute_units * ITEMS_PER_UNIT).max(1);
    let part = part.clamp(LEAST_OF_PART, MOST_OF_PART);
    let parts = picks.div_ceil(part);
    let ahead = match limits.is_processor {
        true => 1,
        false => AHEAD.min(part),
    };
    let sums = match step.output().ty.dtype {
        dtype if dtype.is_float() && dtype != DType::F64 => DType::F32,
        dtype => dtype,
    };
    // Sums of places that a part shares: one with the part before, one with the part behind.
    let bytes = sums.size().unwrap_or(1) * parts * count;
    let [begins, ends] = [(); 2].map(|()| emitter.scratch(bytes));
    for (name, text) in [
        (
            "scatter_parts",
            concat!(
                include_str!("../../../kernels/scatter_parts.h"),
                include_str!("../../../kernels/scatter_parts.c")
            ),
        ),
        (
            "scatter_between",
            concat!(
                include_str!("../../../kernels/scatter_parts.h"),
                include_str!("../../../kernels/scatter_between.c")
            ),
        ),
    ] {
        let mut kernel = for_each(name, text, parts * count);
        let place = declare(step, op, &mut kernel, emitter);
        let sums = match op.mode {
            ScatterMode::Set => place(step.output()).ty.dtype,
            _ => sums,
        };
        kernel.define_dtype("SUMS", sums);
        kernel.scratch("begins", sums, begins, true);
        kernel.scratch("ends", sums, ends, true);
        order.read(&mut kernel, "order");
        let views = [
            ("y", &y.0),
            ("index", &index.0),
            ("source", &source.0),
            ("order", &order_lines),
        ];
        walk(&mut kernel, "lines", &views);
        kernel.word("y_step", y.1.strides[0]);
        kernel.word("order_step", order_along.strides[0]);
        kernel.word("part", part);
        kernel.word("parts", parts);
        kernel.define("IS_ACROSS", u8::from(is_across(&y.0, &y.1)));
        kernel.define("AHEAD", ahead);
        emitter.launch(kernel);
    }
}

/// Each element of the result looks for the elements of its place.
fn by_places(step: &Step, op: &Scatter, emitter: &mut Emitter) {
    let [x, index, source] = [0, 1, 2].map(|i| &step.inputs[i].layout);
    let text = include_str!("../../../kernels/scatter.c");
    let mut kernel = for_each("scatter", text, step.output().ty.shape.elements());
    let place = declare(step, op, &mut kernel, emitter);
    kernel.read("x", &place(&step.inputs[0]));
    kernel.word("rank", x.rank());
    kernel.word("dim", op.dim);
    dimensions(&mut kernel, "shape", &x.shape);
    dimensions(&mut kernel, "index_shape", &index.shape);
    dimensions(&mut kernel, "x_strides", &x.strides);
    dimensions(&mut kernel, "index_strides", &index.strides);
    dimensions(&mut kernel, "source_strides", &source.strides);
    emitter.launch(kernel);
}

/// Definitions that both kernels need. Returns the view of the places.
fn declare(
    step: &Step,
    op: &Scatter,
    kernel: &mut Kernel,
    emitter: &mut Emitter,
) -> fn(&Place) -> Place {
    let place = match op.mode {
        ScatterMode::Set => words,
        _ => Place::clone,
    };
    let [index, source] = [&step.inputs[1], &step.inputs[2]];
    let y = place(step.output());
    kernel.define_dtype("X", y.ty.dtype);
    kernel.define_dtype("INDEX", index.ty.dtype);
    let combination = match op.mode {
        ScatterMode::Set => "(b)".to_owned(),
        ScatterMode::Add => combination(ReduceOp::Sum, y.ty.dtype),
        ScatterMode::Prod => combination(ReduceOp::Prod, y.ty.dtype),
        ScatterMode::Max => combination(ReduceOp::Max, y.ty.dtype),
        ScatterMode::Min => combination(ReduceOp::Min, y.ty.dtype),
    };
    kernel.define("COMBINE(a, b)", combination);
    kernel.read("index", index);
    kernel.read("source", &place(source));
    kernel.write("y", &y);
    kernel.word("picks", index.layout.shape[op.dim]);
    kernel.word("size", y.ty.shape[op.dim]);
    kernel.word("index_step", index.layout.strides[op.dim]);
    kernel.word("source_step", source.layout.strides[op.dim]);
    kernel.status("status", outside(step, op.dim, emitter));
    place
}
