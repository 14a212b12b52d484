//! Functions of each element: operands of any layout are read in blocks, and functions see
//! nothing but slices.

use std::ops::Range;

use rustorch_ir::Layout;
use smallvec::SmallVec;

use crate::element::Element;
use crate::kernel::{Args, for_rows};
use crate::view::View;

/// Elements that are worked on together: copies of operands stay in the cache.
const BLOCK: usize = 2048;

/// Elements of a layout that lie at equal distances.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    /// Position of the first.
    pub(crate) at: usize,
    /// Distance of neighbours.
    pub(crate) stride: usize,
    /// Number of elements.
    pub(crate) len: usize,
}

/// The runs that a range of a layout's elements, in row-major order, consists of.
#[derive(Clone)]
pub(crate) struct Runs<'a> {
    layout: &'a Layout,
    /// Of the row that the next run is in, without the last dimension.
    index: SmallVec<[usize; 6]>,
    row: usize,
    /// Elements of that row before the run.
    skip: usize,
    left: usize,
}

impl<'a> Runs<'a> {
    /// The elements `range` of `layout`. Runs are longest if the layout is collapsed.
    pub(crate) fn new(layout: &'a Layout, range: Range<usize>) -> Self {
        let rows = layout.rank().saturating_sub(1);
        let width = layout.shape.last().map_or(1, |&w| w.max(1));
        let mut index = SmallVec::from_elem(0, rows);
        let mut rest = range.start / width;
        let mut row = layout.offset;
        for d in (0..rows).rev() {
            let size = layout.shape[d].max(1);
            index[d] = rest % size;
            rest /= size;
            row += index[d] * layout.strides[d];
        }
        Self {
            layout,
            index,
            row,
            skip: range.start % width,
            left: range.len(),
        }
    }
}

impl Iterator for Runs<'_> {
    type Item = Run;

    fn next(&mut self) -> Option<Run> {
        if self.left == 0 {
            return None;
        }
        let width = self.layout.shape.last().map_or(1, |&w| w);
        let stride = self.layout.strides.last().map_or(1, |&s| s);
        let len = (width - self.skip).min(self.left);
        let at = self.row + self.skip * stride;
        self.left -= len;
        self.skip = 0;
        for d in (0..self.index.len()).rev() {
            let (size, stride) = (self.layout.shape[d], self.layout.strides[d]);
            self.index[d] += 1;
            self.row += stride;
            if self.index[d] < size {
                break;
            }
            self.row -= stride * size;
            self.index[d] = 0;
        }
        Some(Run { at, stride, len })
    }
}

/// Copies runs of `data` to `out`, one after the other.
fn gather<T: Copy>(data: &[T], runs: Runs, mut out: &mut [T]) {
    for run in runs {
        let (part, rest) = out.split_at_mut(run.len);
        match run.stride {
            0 => part.fill(data[run.at]),
            1 => part.copy_from_slice(&data[run.at..][..run.len]),
            stride => {
                let data = data[run.at..].iter().step_by(stride);
                part.iter_mut().zip(data).for_each(|(y, x)| *y = *x);
            }
        }
        out = rest;
    }
}

/// An operand seen through a layout, of which it gives out pieces.
#[derive(Clone)]
pub(crate) struct Reader<'a, T: Element> {
    data: &'a [T],
    /// Collapsed, and counted from the first element of `data`.
    layout: Layout,
    gathered: Vec<T>,
    /// The position of the one element that `gathered` repeats.
    repeated: Option<usize>,
    widened: Vec<T::Compute>,
}

impl<'a, T: Element> Reader<'a, T> {
    /// Reads `view` through `layout`, made from the view's own by looking at it in another
    /// way.
    pub(crate) fn new(view: &View<'a>, layout: &Layout) -> Self {
        let mut layout = layout.clone();
        layout.offset = layout.offset.saturating_sub(view.layout.offset);
        Self::of(view.data(), &layout)
    }

    /// Reads `view` as it is.
    pub(crate) fn whole(view: &View<'a>) -> Self {
        Self::new(view, view.layout)
    }

    /// Reads `data` through `layout`.
    pub(crate) fn of(data: &'a [T], layout: &Layout) -> Self {
        let [layout] = Layout::collapse([layout]);
        Self {
            data,
            layout,
            gathered: Vec::new(),
            repeated: None,
            widened: Vec::new(),
        }
    }

    /// `len` elements from `start` on, in row-major order and in the type that kernels
    /// compute in. Neighbours that are of that type are not copied.
    pub(crate) fn read(&mut self, start: usize, len: usize) -> &[T::Compute] {
        let runs = Runs::new(&self.layout, start..start + len);
        let stored = match runs.clone().next().filter(|run| run.len == len) {
            Some(Run { at, stride: 1, .. }) => &self.data[at..at + len],
            Some(Run { at, stride: 0, .. })
                if self.repeated == Some(at) && self.gathered.len() >= len =>
            {
                &self.gathered[..len]
            }
            run => {
                self.repeated = run.filter(|run| run.stride == 0).map(|run| run.at);
                self.gathered.resize(len, T::zeroed());
                gather(self.data, runs, &mut self.gathered);
                &self.gathered
            }
        };
        T::widen(stored, &mut self.widened)
    }

    /// All elements.
    pub(crate) fn all(&mut self) -> &[T::Compute] {
        self.read(0, self.layout.elements())
    }

    /// The first element, counted in row-major order, for which `is` holds.
    pub(crate) fn position(&self, is: impl Fn(T) -> bool) -> Option<usize> {
        let mut before = 0;
        for run in Runs::new(&self.layout, 0..self.layout.elements()) {
            let found = (0..run.len).position(|i| is(self.data[run.at + i * run.stride]));
            if let Some(i) = found {
                return Some(before + i);
            }
            before += run.len;
        }
        None
    }

    /// Copies elements from `start` on to `out`.
    pub(crate) fn copy(&self, start: usize, out: &mut [T]) {
        let runs = Runs::new(&self.layout, start..start + out.len());
        gather(self.data, runs, out);
    }
}

/// All elements of an operand in row-major order.
pub(crate) fn read_all<T: Element>(view: &View) -> Vec<T::Compute> {
    Reader::<T>::whole(view).all().to_vec()
}

/// A reader of operand `i` broadcast to the shape of the result.
pub(crate) fn operand<'a, T: Element>(args: &Args<'a>, i: usize) -> Reader<'a, T> {
    let view = &args.inputs[i];
    Reader::new(view, &view.layout.broadcast_to(&args.output.ty.shape))
}

/// `out = f(x)`; `work` is the cost of an element, an addition's being 1.
pub(crate) fn map1<X: Element, Y: Element>(
    args: &mut Args,
    work: usize,
    f: impl Fn(&[X::Compute], &mut [Y::Compute]) + Sync,
) {
    let x = operand::<X>(args, 0);
    for_blocks::<Y, _>(args, work, &x, |x, at, y| f(x.read(at, y.len()), y));
}

/// `out = f(a, b)` of two broadcast operands.
pub(crate) fn map2<X: Element, Y: Element>(
    args: &mut Args,
    work: usize,
    f: impl Fn(&[X::Compute], &[X::Compute], &mut [Y::Compute]) + Sync,
) {
    let operands = (operand::<X>(args, 0), operand::<X>(args, 1));
    for_blocks::<Y, _>(args, work, &operands, |(a, b), at, y| {
        f(a.read(at, y.len()), b.read(at, y.len()), y);
    });
}

/// Calls `body` with the position and elements of each block of the result, in parallel,
/// and a copy of `operands` to read from.
pub(crate) fn for_blocks<Y: Element, R: Clone + Sync>(
    args: &mut Args,
    work: usize,
    operands: &R,
    body: impl Fn(&mut R, usize, &mut [Y::Compute]) + Sync,
) {
    for_rows(
        args.pool,
        args.output.data::<Y>(),
        1,
        work,
        |start, part| {
            let (mut operands, mut buffer) = (operands.clone(), Vec::new());
            for (i, block) in part.chunks_mut(BLOCK).enumerate() {
                let at = start + i * BLOCK;
                Y::write(block, &mut buffer, |y| body(&mut operands, at, y));
            }
        },
    );
}

/// Computes each line of the result along dimension `dim` from the operand's line there;
/// `work` is the cost of an element of the operand.
pub(crate) fn map_lines<X: Element, Y: Element>(
    args: &mut Args,
    dim: usize,
    work: usize,
    f: impl Fn(&[X::Compute], &mut [Y::Compute]) + Sync,
) {
    let (x, pool) = (&args.inputs[0], args.pool);
    let (shape, out) = (args.output.ty.shape.clone(), args.output.data::<Y>());
    let (from, to) = (x.shape()[dim], shape[dim]);
    let mut order: SmallVec<[usize; 6]> = (0..shape.len()).filter(|&d| d != dim).collect();
    order.push(dim);
    let x = Reader::<X>::new(x, &x.layout.permute(&order));
    let compute = |lines: &mut [Y]| {
        for_rows(pool, lines, to, from * work, |first, part| {
            let (mut x, mut buffer) = (x.clone(), Vec::new());
            for (i, line) in part.chunks_exact_mut(to).enumerate() {
                let x = x.read((first + i) * from, from);
                Y::write(line, &mut buffer, |y| f(x, y));
            }
        });
    };
    if shape[dim + 1..].iter().all(|&size| size == 1) {
        return compute(out);
    }
    let mut lines = vec![Y::zeroed(); out.len()];
    compute(&mut lines);
    // Back to the dimension's own place.
    let mut back: SmallVec<[usize; 6]> = (0..shape.len() - 1).collect();
    back.insert(dim, shape.len() - 1);
    let moved = Layout::contiguous(&order.iter().map(|&d| shape[d]).collect());
    let lines = Reader::of(&lines, &moved.permute(&back));
    for_rows(pool, out, 1, 1, |start, part| lines.copy(start, part));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_begin_anywhere() {
        let whole = Layout::contiguous(&[2, 3, 4].into());
        for layout in [
            whole.permute(&[1, 0, 2]),
            whole.permute(&[2, 1, 0]),
            whole.slice(2, 1, 2, 2),
            whole.slice(0, 1, 1, 1).broadcast_to(&[5, 3, 4].into()),
            Layout::contiguous(&[].into()),
            Layout::contiguous(&[3, 0].into()),
        ] {
            let positions: Vec<usize> = layout.positions().collect();
            let [layout] = Layout::collapse([&layout]);
            for start in 0..=positions.len() {
                for end in start..=positions.len() {
                    let walked: Vec<usize> = Runs::new(&layout, start..end)
                        .flat_map(|run| (0..run.len).map(move |i| run.at + i * run.stride))
                        .collect();
                    assert_eq!(walked, positions[start..end], "{layout:?} {start}..{end}");
                }
            }
        }
    }
}
