//! Functions of lines: of all elements along a dimension.

use std::ops::Range;

use bytemuck::{cast_slice, cast_slice_mut};
use rustorch_ir::Layout;
use smallvec::SmallVec;

use crate::cache;
use crate::element::Element;
use crate::kernel::{Args, SharedMut, for_ranges, for_rows};
use crate::pool::Pool;
use crate::reader::{Reader, Runs};
use crate::view::{Target, View};

/// Lines that are gathered together where their elements are not neighbours, but those of
/// different lines are.
const STRIP: usize = 16;

/// Elements between gathered lines: cache lines that differ by a power of two would push
/// each other out.
const GAP: usize = 16;

/// Computes each line of the result along dimension `dim` from the operand's line there;
/// `work` is the cost of an element of the operand.
pub(crate) fn map_lines<X: Element, Y: Element>(
    args: &mut Args,
    dim: usize,
    work: usize,
    f: impl Fn(&[X::Compute], &mut [Y::Compute]) + Sync,
) {
    let x = &args.inputs[0];
    map_lines_to::<X, Y>(args.pool, x, &mut args.output, dim, work, &f);
}

/// Function of a line.
type LineFunction<'f, X, Y> = dyn Fn(&[X], &mut [Y]) + Sync + 'f;

/// [`map_lines`] from `x` to `y`: compiled once for all functions of the same types.
pub(crate) fn map_lines_to<X: Element, Y: Element>(
    pool: &Pool,
    x: &View,
    y: &mut Target,
    dim: usize,
    work: usize,
    f: &LineFunction<X::Compute, Y::Compute>,
) {
    let shape = &y.ty.shape;
    let (from, to) = (x.shape()[dim], shape[dim]);
    let is_last = shape[dim + 1..].iter().all(|&size| size == 1);
    if is_last && x.layout.has_dense_rows() {
        let x = Reader::<X>::whole(x);
        let out = y.data::<Y>();
        let writer = Writer::<Y>::new(out.len(), to);
        return for_rows(pool, out, to, from * work, |first, part| {
            let (mut x, mut writer) = (x.clone(), writer.clone());
            for (line, y) in (first..).zip(part.chunks_exact_mut(to)) {
                let x = x.read(line * from, from);
                writer.write(y, |y| f(x, y));
            }
        });
    }
    let (sources, apart) = lines(x.layout, dim);
    let (targets, distance) = lines(&Layout::contiguous(shape), dim);
    let data: &[X] = x.data();
    let out = y.data::<Y>();
    if out.is_empty() {
        return;
    }
    let out = SharedMut::new(out);
    let count = targets.elements();
    let strips = count.div_ceil(STRIP);
    for_ranges(pool, strips, STRIP * from * work, |strips| {
        let (mut gathered, mut results) = (Vec::new(), Vec::new());
        let (mut widened, mut buffer) = (Vec::new(), Vec::new());
        for first in strips.map(|strip| strip * STRIP) {
            let lines = first..count.min(first + STRIP);
            gathered.resize(lines.len() * (from + GAP), X::zeroed());
            results.resize(lines.len() * (to + GAP), Y::zeroed());
            let starts = places(&sources, lines.clone());
            for i in 0..from {
                for (line, start) in starts.iter().enumerate() {
                    gathered[line * (from + GAP) + i] = data[start + i * apart];
                }
            }
            let results_of_lines = results.chunks_exact_mut(to + GAP);
            for (x, y) in gathered.chunks_exact(from + GAP).zip(results_of_lines) {
                let x = X::widen(&x[..from], &mut widened);
                Y::write(&mut y[..to], &mut buffer, |y| f(x, y));
            }
            let starts = places(&targets, lines);
            for i in 0..to {
                for (line, start) in starts.iter().enumerate() {
                    // SAFETY: an element of the result, of a line that only this strip has.
                    let y = unsafe { &mut *out.at(start + i * distance) };
                    *y = results[line * (to + GAP) + i];
                }
            }
        }
    });
}

/// Bytes of a line that stay in the nearest caches.
const NEAR: usize = 256 * 1024;

/// Writes lines of a result: past the caches, where those would not keep it.
#[derive(Clone)]
pub(crate) struct Writer<T: Element> {
    streams: bool,
    /// A line on its way to memory.
    line: Vec<T>,
    buffer: Vec<T::Compute>,
}

impl<T: Element> Writer<T> {
    /// Sharing for a result of `len` elements in lines of `line`.
    pub(crate) fn new(len: usize, line: usize) -> Self {
        let size = size_of::<T>();
        Self {
            streams: len * size >= cache::STREAMED && line * size <= NEAR,
            line: Vec::new(),
            buffer: Vec::new(),
        }
    }

    /// Lets `compute` write a line.
    pub(crate) fn write(&mut self, out: &mut [T], compute: impl FnOnce(&mut [T::Compute])) {
        if !self.streams {
            return T::write(out, &mut self.buffer, compute);
        }
        self.line.resize(out.len(), T::zeroed());
        T::write(&mut self.line, &mut self.buffer, compute);
        cache::stream(cast_slice(&self.line), cast_slice_mut(out));
    }
}

impl<T: Element> Drop for Writer<T> {
    fn drop(&mut self) {
        if self.streams {
            cache::fence();
        }
    }
}

/// The first elements of all lines along `dim`, counted from the layout's own first. Also the
/// distance of elements in a line.
fn lines(layout: &Layout, dim: usize) -> (Layout, usize) {
    let mut firsts = layout.slice(dim, 0, 1, 1);
    firsts.offset = 0;
    (firsts, layout.strides[dim])
}

/// Places of some elements.
fn places(layout: &Layout, range: Range<usize>) -> SmallVec<[usize; STRIP]> {
    Runs::new(layout, range)
        .flat_map(|run| (0..run.len).map(move |i| run.at + i * run.stride))
        .collect()
}
