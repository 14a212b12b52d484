//! Operands of any layout, given out as slices.

use std::ops::Range;

use bytemuck::{Pod, cast_slice, cast_slice_mut};
use rustorch_ir::Layout;
use smallvec::SmallVec;

use crate::element::Element;
use crate::kernel::{SharedMut, for_ranges, for_rows};
use crate::pool::Pool;
use crate::simd::{Kernel, Level, Simd, from_fn};
use crate::view::View;

/// Elements along each side of the tiles that transposing copies go through: a cache line
/// of the common types.
pub(crate) const TILE: usize = 16;

/// Rows of tiles that are gone through together: neighbouring cache lines are fetched as
/// neighbours.
const STRIP: usize = 4 * TILE;

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

impl Run {
    /// The `len` elements of `layout` from number `start` on, if they are one run.
    #[inline(always)]
    pub(crate) fn of(layout: &Layout, start: usize, len: usize) -> Option<Self> {
        let Layout {
            shape,
            strides,
            offset,
        } = layout;
        // Two dimensions are the most frequent case. They do without the preparations of `Runs`.
        let (&[_, width], &[far, near]) = (&shape[..], &strides[..]) else {
            let mut runs = Runs::new(layout, start..start + len);
            return runs.next().filter(|run| run.len == len);
        };
        let (row, column) = (start / width.max(1), start % width.max(1));
        (len > 0 && column + len <= width).then_some(Self {
            at: offset + row * far + column * near,
            stride: near,
            len,
        })
    }
}

/// The runs that a range of a layout's elements, in row-major order, consists of.
#[derive(Clone)]
pub(crate) struct Runs<'a> {
    layout: &'a Layout,
    /// Index of the next run's row, without the last dimension.
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

    /// The next whole rows that lie at equal distances, or else a run: the first one, how many, and
    /// the distance.
    fn rows(&mut self) -> Option<(Run, usize, usize)> {
        let whole = match (&self.layout.shape[..], &self.index[..]) {
            (&[.., rows, width], &[.., row]) if self.skip == 0 && width > 0 => {
                (self.left / width).min(rows - row)
            }
            _ => 0,
        };
        let row = self.row;
        let run = self.next()?;
        if whole < 2 {
            return Some((run, 1, 0));
        }
        self.left -= (whole - 1) * run.len;
        self.advance(whole - 1);
        let distance = self.layout.strides[self.index.len() - 1];
        Some((Run { at: row, ..run }, whole, distance))
    }

    /// Goes on by `rows` rows; there are as many before an index of the other dimensions changes.
    fn advance(&mut self, mut rows: usize) {
        for d in (0..self.index.len()).rev() {
            let (size, stride) = (self.layout.shape[d], self.layout.strides[d]);
            self.index[d] += rows;
            self.row += rows * stride;
            if self.index[d] < size {
                break;
            }
            self.row -= stride * size;
            self.index[d] = 0;
            rows = 1;
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
        self.advance(1);
        Some(Run { at, stride, len })
    }
}

/// Copies runs of `data` to `out`, one after the other.
pub(crate) fn gather<T: Pod>(data: &[T], mut runs: Runs, mut out: &mut [T]) {
    while let Some((run, count, distance)) = runs.rows() {
        let (rows, rest) = std::mem::take(&mut out).split_at_mut(count * run.len);
        out = rest;
        let at = |row| run.at + row * distance;
        let each = |rows: &mut [T], copy: &dyn Fn(usize, &mut [T])| {
            let rows = rows.chunks_exact_mut(run.len);
            rows.enumerate().for_each(|(row, out)| copy(at(row), out));
        };
        match run.stride {
            0 => Level::current().run(Fills {
                data: &data[run.at..],
                distance,
                len: run.len,
                rows,
            }),
            1 => each(rows, &|at, out| {
                copy_neighbours(&data[at..][..run.len], out)
            }),
            _ => each(rows, &|at, out| copy_run(data, Run { at, ..run }, out)),
        }
    }
}

/// Rows that are filled each with an element, at equal distances.
struct Fills<'a, T> {
    data: &'a [T],
    distance: usize,
    len: usize,
    rows: &'a mut [T],
}

impl<T: Copy> Kernel for Fills<'_, T> {
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let rows = self.rows.chunks_exact_mut(self.len);
        for (row, out) in rows.enumerate() {
            out.fill(self.data[row * self.distance]);
        }
    }
}

struct Fill<'a, T>(T, &'a mut [T]);

impl<T: Copy> Kernel for Fill<'_, T> {
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        self.1.fill(self.0);
    }
}

/// Sizes in bytes at which a loop of vectors is faster than `memcpy`. There `memcpy` is one instruction
/// on many processors (`rep movsb`). It takes AMD's up to ten times as long if source and target lie
/// differently in their cache lines.
const BY_VECTORS: Range<usize> = 1024..1 << 20;

/// Copies as many elements as there are in `out`.
fn copy_neighbours<T: Pod>(data: &[T], out: &mut [T]) {
    match BY_VECTORS.contains(&size_of_val(data)) {
        true => Level::current().run(Copied(cast_slice(data), cast_slice_mut(out))),
        false => out.copy_from_slice(data),
    }
}

/// Bytes, and where they are to be.
struct Copied<'a>(&'a [u8], &'a mut [u8]);

impl Kernel for Copied<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (from, rest) = self.0.as_chunks::<64>();
        let (to, last) = self.1.as_chunks_mut::<64>();
        // Two vectors a step: the compiler would turn a simpler loop into `memcpy`.
        let (from, odd) = from.as_chunks::<2>();
        let (to, odd_to) = to.as_chunks_mut::<2>();
        for (from, to) in from.iter().zip(to) {
            let [low, high] = from.each_ref().map(|x| s.load(x));
            s.store(low, &mut to[0]);
            s.store(high, &mut to[1]);
        }
        odd_to.copy_from_slice(odd);
        last.copy_from_slice(rest);
    }
}

/// Copies a run of `data`.
pub(crate) fn copy_run<T: Pod>(data: &[T], run: Run, out: &mut [T]) {
    match run.stride {
        0 => Level::current().run(Fill(data[run.at], out)),
        1 => copy_neighbours(&data[run.at..][..run.len], out),
        stride => {
            let data = data[run.at..].iter().step_by(stride);
            out.iter_mut().zip(data).for_each(|(y, x)| *y = *x);
        }
    }
}

/// The dimension whose elements are nearest to each other, if that is not the last.
pub(crate) fn nearest(layout: &Layout) -> Option<usize> {
    let last = layout.rank().checked_sub(1)?;
    let strides = &layout.strides;
    let others = (0..last).filter(|&d| strides[d] > 0);
    let nearest = others.min_by_key(|&d| strides[d])?;
    (strides[nearest] < strides[last]).then_some(nearest)
}

/// Goes through rows and columns of elements, from `at` on, at distances `strides`, by tiles.
/// `write` is called with the row, the first column and some elements of it. Elements of a column
/// should be nearer to each other than those of a row.
pub(crate) fn transpose<T: Pod>(
    data: &[T],
    at: usize,
    strides: [usize; 2],
    [height, width]: [usize; 2],
    mut write: impl FnMut(usize, usize, &[T]),
) {
    let tiles = (0..width).step_by(TILE);
    let tiles = tiles.flat_map(|column| (0..height).step_by(TILE).map(move |row| (row, column)));
    for (row, column) in tiles {
        let size = [TILE.min(height - row), TILE.min(width - column)];
        let start = |column| at + row * strides[0] + column * strides[1];
        // The compiler vectorizes a tile of known size.
        if size == [TILE; 2] && strides[0] == 1 {
            let tile: [[T; TILE]; TILE] = from_fn(|i| {
                let first = &data[start(column + i)..][..TILE];
                from_fn(|i| first[i])
            });
            let line = |i| -> [T; TILE] { from_fn(|column| tile[column][i]) };
            (0..TILE).for_each(|i| write(row + i, column, &line(i)));
            continue;
        }
        let mut line = [T::zeroed(); TILE];
        for i in 0..size[0] {
            let line = &mut line[..size[1]];
            for (j, x) in line.iter_mut().enumerate() {
                *x = data[start(column + j) + i * strides[0]];
            }
            write(row + i, column, line);
        }
    }
}

/// Place of the piece that a [`Reader`] was last asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    /// In memory, from this position on.
    Stored(usize),
    /// Gathered.
    Gathered,
    /// Gathered: the element at this position, again and again.
    Repeated(usize),
}

impl Found {
    /// The piece.
    fn of<'a, T>(self, data: &'a [T], gathered: &'a [T], len: usize) -> &'a [T] {
        match self {
            Self::Stored(at) => &data[at..at + len],
            Self::Gathered | Self::Repeated(_) => &gathered[..len],
        }
    }
}

/// An operand seen through a layout, handed out in pieces.
#[derive(Clone)]
pub(crate) struct Reader<'a, T: Element> {
    data: &'a [T],
    /// Collapsed, and counted from the first element of `data`.
    layout: Layout,
    gathered: Vec<T>,
    found: Found,
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
            found: Found::Gathered,
            widened: Vec::new(),
        }
    }

    /// `len` elements from `start` on, in row-major order and in the type that kernels
    /// compute in. Neighbours that are of that type are not copied.
    pub(crate) fn read(&mut self, start: usize, len: usize) -> &[T::Compute] {
        self.find(start, len);
        let Self {
            data,
            gathered,
            found,
            widened,
            ..
        } = self;
        T::widen(found.of(data, gathered, len), widened)
    }

    /// The same as memory has them. Neighbours are not copied.
    pub(crate) fn stored(&mut self, start: usize, len: usize) -> &[T] {
        self.find(start, len);
        self.found.of(self.data, &self.gathered, len)
    }

    /// Finds elements, or gathers them.
    fn find(&mut self, start: usize, len: usize) {
        if self.layout.strides.as_slice() == [1] {
            self.found = Found::Stored(self.layout.offset + start);
            return;
        }
        if self.layout.rank() == 0 && len == 1 {
            self.found = Found::Stored(self.layout.offset);
            return;
        }
        let only = Run::of(&self.layout, start, len);
        self.found = match only {
            Some(Run { at, stride: 1, .. }) => Found::Stored(at),
            Some(Run { at, stride: 0, .. })
                if self.found == Found::Repeated(at) && self.gathered.len() >= len =>
            {
                return;
            }
            _ => {
                self.gathered.resize(len, T::zeroed());
                let runs = Runs::new(&self.layout, start..start + len);
                gather(self.data, runs, &mut self.gathered);
                match only {
                    Some(Run { at, stride: 0, .. }) => Found::Repeated(at),
                    _ => Found::Gathered,
                }
            }
        };
    }

    /// Number of elements.
    pub(crate) fn len(&self) -> usize {
        self.layout.elements()
    }

    /// All elements.
    pub(crate) fn all(&mut self) -> &[T::Compute] {
        self.read(0, self.len())
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
        if self.layout.strides.as_slice() == [1] {
            let start = self.layout.offset + start;
            copy_neighbours(&self.data[start..start + out.len()], out);
            return;
        }
        match Run::of(&self.layout, start, out.len()) {
            Some(run) => copy_run(self.data, run, out),
            None => {
                let runs = Runs::new(&self.layout, start..start + out.len());
                gather(self.data, runs, out);
            }
        }
    }

    /// Copies all elements to `out`, in parallel.
    pub(crate) fn copy_all(&self, pool: &Pool, out: &mut [T]) {
        match nearest(&self.layout).filter(|_| !out.is_empty()) {
            Some(dim) => self.transpose(dim, pool, out),
            None => for_rows(pool, out, 1, 1, |start, part| self.copy(start, part)),
        }
    }

    /// Copies all elements by tiles of two dimensions, so that each cache line is visited once.
    /// Elements of the result are neighbours along the last one. Elements of the operand are
    /// neighbours along `dim`.
    fn transpose(&self, dim: usize, pool: &Pool, out: &mut [T]) {
        let (from, strides) = (&self.layout, &self.layout.strides);
        let to = Layout::contiguous(&from.shape);
        let last = from.rank() - 1;
        let (height, width) = (from.shape[dim], from.shape[last]);
        // Positions of the planes of `dim` and the last dimension.
        let planes = |layout: &Layout| -> Vec<usize> {
            let plane = layout.slice(dim, 0, 1, 1).slice(last, 0, 1, 1);
            plane.positions().collect()
        };
        let (sources, targets) = (planes(from), planes(&to));
        let strips = height.div_ceil(STRIP);
        assert_eq!(out.len(), to.elements());
        let out = SharedMut::new(out);
        for_ranges(pool, sources.len() * strips, STRIP * width, |tasks| {
            for (plane, strip) in tasks.map(|task| (task / strips, task % strips)) {
                let rows = strip * STRIP..height.min((strip + 1) * STRIP);
                let at = sources[plane] + rows.start * strides[dim];
                let strides = [strides[dim], strides[last]];
                transpose(
                    self.data,
                    at,
                    strides,
                    [rows.len(), width],
                    |row, column, x| {
                        let row = rows.start + row;
                        let start = targets[plane] + row * to.strides[dim] + column;
                        // SAFETY: part of a row of the result; each row is in one task.
                        let out = unsafe { out.range(start, x.len()) };
                        out.copy_from_slice(x);
                    },
                );
            }
        });
    }
}

/// All elements of an operand in row-major order.
pub(crate) fn read_all<T: Element>(view: &View) -> Vec<T::Compute> {
    Reader::<T>::whole(view).all().to_vec()
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
