//! Operands of a step, handed out by blocks of bytes.

use std::ops::Range;

use bytemuck::{Pod, cast_slice, cast_slice_mut};
use rustorch_ir::{DType, Layout};

use super::worker::Register;
use crate::cache::LINE;
use crate::element::{Element, with_type};
use crate::elementwise::Word;
use crate::kernel::Misuse;
use crate::pool::Pool;
use crate::reader::{Reader, Run, Runs, TILE, copy_run, gather, nearest, transpose};
use crate::view::View;

/// Bytes of a [`Panel`]: at most this much, to be kept by a second-level cache.
const PANEL_BYTES: usize = 512 * 1024;

/// Elements that a step reads.
pub(super) struct Source {
    data: Data,
    /// Layout in the result's shape, collapsed, and counted from the first element of the data.
    layout: Layout,
    /// Is the layout one of neighbours?
    pub(super) contiguous: bool,
    panel: Option<Panel>,
    /// Bytes of an element.
    pub(super) size: usize,
    moves: Moves,
}

/// Origin of a source's elements.
pub(super) enum Data {
    /// The step's operand of this index.
    Operand(usize),
    /// A single element.
    Constant(Word),
}

/// Place of a source's block.
pub(super) enum Place<'a> {
    /// The block is in memory.
    Memory(&'a [u8]),
    /// In the register, from this byte on.
    Register(usize),
}

/// Rows of a source whose columns are nearer to each other than its rows: brought together,
/// so that each line of the cache is visited once.
struct Panel {
    /// The dimension along which elements are nearest.
    dim: usize,
    /// Elements of the result between neighbours in that dimension.
    distance: usize,
    /// Number of rows in a panel.
    rows: usize,
}

/// Functions that copy elements of some size.
struct Moves {
    /// See [`copy_run`].
    copy_run: fn(&[u8], Run, &mut [u8]),
    /// See [`gather`].
    gather: fn(&[u8], Runs, &mut [u8]),
    /// See [`Reader::copy_all`].
    copy_all: fn(&[u8], &Layout, &Pool, &mut [u8]),
    /// See [`Panel::fill`].
    fill: fn(&Panel, &[u8], &Layout, Range<usize>, &mut [u8]),
}

impl Moves {
    fn new<T: Element>() -> Self {
        Self {
            copy_run: |data, run, out| {
                copy_run::<T>(cast_slice(data), run, cast_slice_mut(out));
            },
            gather: |data, runs, out| gather::<T>(cast_slice(data), runs, cast_slice_mut(out)),
            copy_all: |data, layout, pool, out| {
                Reader::<T>::of(cast_slice(data), layout).copy_all(pool, cast_slice_mut(out));
            },
            fill: |panel, data, layout, range, out| {
                panel.fill::<T>(cast_slice(data), layout, range, cast_slice_mut(out));
            },
        }
    }
}

impl Source {
    pub(super) fn new(data: Data, layout: &Layout, dtype: DType) -> Result<Self, Misuse> {
        let [mut layout] = Layout::collapse([layout]);
        layout.offset = 0;
        with_type!(dtype, words T => Ok(Self {
            data,
            contiguous: layout.rank() == 1 && layout.strides[0] == 1,
            panel: Panel::new(&layout, size_of::<T>()),
            layout,
            size: size_of::<T>(),
            moves: Moves::new::<T>(),
        }))
    }

    /// Returns whether it is one element again and again.
    pub(super) fn is_repeated(&self) -> bool {
        self.layout.strides.iter().all(|&stride| stride == 0)
    }

    /// The length of rows in which elements lie at equal distances, if there are several.
    pub(super) fn row(&self) -> Option<usize> {
        let row = self
            .layout
            .shape
            .last()
            .filter(|_| self.layout.rank() > 1)?;
        // Panels have an order of their own.
        (self.panel.is_none()).then_some(*row)
    }

    /// The distance of rows of `width` elements, and of elements within one, if these are the same
    /// everywhere. Elements have to be neighbours, or one again and again.
    pub(super) fn rows_of(&self, width: usize) -> Option<[usize; 2]> {
        let (far, near) = match (&self.layout.shape[..], &self.layout.strides[..]) {
            (&[_, row], &[far, near]) if row == width => (far, near),
            (&[_], &[near]) => (near * width, near),
            (&[], &[]) => (0, 0),
            _ => return None,
        };
        (near <= 1).then_some([far, near])
    }

    /// Does it need its own register?
    pub(super) fn keeps_register(&self) -> bool {
        self.is_repeated() || self.panel.is_some()
    }

    /// The bytes that the layout counts from.
    pub(super) fn data<'a>(&'a self, operands: &[View<'a>]) -> &'a [u8] {
        self.found(|i| operands[i].span(self.size))
    }

    /// The bytes that the layout counts from, where `find` knows those of operands.
    pub(super) fn found<'a>(&'a self, find: impl Fn(usize) -> &'a [u8]) -> &'a [u8] {
        match &self.data {
            Data::Operand(i) => find(*i),
            Data::Constant(word) => &bytemuck::bytes_of(word)[..self.size],
        }
    }

    /// Copies all elements to `out`, in parallel.
    pub(super) fn copy_all(&self, operands: &[View], pool: &Pool, out: &mut [u8]) {
        (self.moves.copy_all)(self.data(operands), &self.layout, pool, out);
    }

    /// Fills `out` with its one element.
    pub(super) fn repeat(&self, data: &[u8], out: &mut [u8]) {
        let (at, stride, len) = (0, 0, out.len() / self.size);
        (self.moves.copy_run)(data, Run { at, stride, len }, out);
    }

    /// Finds `len` elements from `start` on in `data`, or brings them to a register. From a
    /// repeated element `as_one` gives just that element. A call would take longer than a short
    /// row.
    #[inline(always)]
    pub(super) fn load<'a>(
        &self,
        data: &'a [u8],
        start: usize,
        len: usize,
        as_one: bool,
        register: &mut Register,
    ) -> Place<'a> {
        let size = self.size;
        if self.contiguous {
            return Place::Memory(&data[start * size..][..len * size]);
        }
        if let Some(panel) = &self.panel {
            let range = panel.around(start, &self.layout);
            if start + len <= range.end {
                if register.holds != range {
                    let out = register.room(range.len() * size);
                    (self.moves.fill)(panel, data, &self.layout, range.clone(), out);
                    register.holds = range.clone();
                }
                return Place::Register((start - range.start) * size);
            }
            register.holds = 0..0;
        }
        match Run::of(&self.layout, start, len) {
            Some(Run { at, stride: 1, .. }) => Place::Memory(&data[at * size..][..len * size]),
            Some(Run { at, stride: 0, .. }) if as_one => Place::Memory(&data[at * size..][..size]),
            Some(run) => {
                (self.moves.copy_run)(data, run, register.room(len * size));
                Place::Register(0)
            }
            None => {
                let runs = Runs::new(&self.layout, start..start + len);
                (self.moves.gather)(data, runs, register.room(len * size));
                Place::Register(0)
            }
        }
    }
}

impl Panel {
    /// The panels of a layout of elements of `size` bytes, if they are of use.
    fn new(layout: &Layout, size: usize) -> Option<Self> {
        let dim = nearest(layout)?;
        let distance: usize = layout.shape[dim + 1..].iter().product();
        let apart = layout.strides.last()? * size >= LINE;
        // The limit is at least the number of elements in a cache line.
        let rows = (PANEL_BYTES / size / distance.max(1)).min(TILE.max(LINE / size));
        (apart && rows > 1).then_some(Self {
            dim,
            distance,
            rows,
        })
    }

    /// The elements of the panel that element number `at` is in.
    fn around(&self, at: usize, layout: &Layout) -> Range<usize> {
        let height = layout.shape[self.dim];
        let row = at / self.distance;
        let first = row % height / self.rows * self.rows;
        let start = row - row % height + first;
        let end = start + self.rows.min(height - first);
        start * self.distance..end * self.distance
    }

    /// Copies a panel, which is `range` of the elements.
    fn fill<T: Pod>(&self, data: &[T], layout: &Layout, range: Range<usize>, out: &mut [T]) {
        let width = layout.shape[layout.rank() - 1];
        let strides = [layout.strides[self.dim], layout.strides[layout.rank() - 1]];
        let size = [range.len() / self.distance, width];
        for (i, run) in Runs::new(layout, range.start..range.start + self.distance).enumerate() {
            transpose(data, run.at, strides, size, |row, column, x| {
                let start = row * self.distance + i * width + column;
                out[start..start + x.len()].copy_from_slice(x);
            });
        }
    }
}
