//! Operands that are indices, and places in a tensor as messages name them.

use std::sync::atomic::{AtomicUsize, Ordering};

use rustorch_ir::{DType, Layout, Shape};
use smallvec::SmallVec;

use crate::element::Element;
use crate::kernel::{Misuse, for_rows};
use crate::pool::Pool;
use crate::reader::{Reader, Runs};
use crate::view::View;

/// The coordinates of the element that is number `flat` in row-major order.
pub(crate) fn coordinates(shape: &[usize], mut flat: usize) -> SmallVec<[usize; 6]> {
    let mut coordinates = SmallVec::from_elem(0, shape.len());
    for (at, &size) in coordinates.iter_mut().zip(shape).rev() {
        *at = flat % size.max(1);
        flat /= size.max(1);
    }
    coordinates
}

/// The index as a number without sign: one that no dimension has, if it has a sign.
#[inline(always)]
pub(crate) fn unsigned(index: i64) -> usize {
    usize::try_from(index as u64).unwrap_or(usize::MAX)
}

/// Indices that are read together.
pub(crate) const BLOCK: usize = 4096;

/// An operand of indices of either type, read as `i64`.
#[derive(Clone)]
pub(crate) enum Indices<'a> {
    /// Indices of `i64`.
    Wide(Reader<'a, i64>),
    /// Indices of `i32`, with room to widen them.
    Narrow(Reader<'a, i32>, Vec<i64>),
}

impl<'a> Indices<'a> {
    /// Reads `index` through `layout`, made from its own by looking at it in another way.
    pub(crate) fn new(index: &View<'a>, layout: &Layout) -> Self {
        match index.dtype() {
            DType::I64 => Self::Wide(Reader::new(index, layout)),
            _ => Self::Narrow(Reader::new(index, layout), Vec::new()),
        }
    }

    /// Reads `index` as it is.
    pub(crate) fn whole(index: &View<'a>) -> Self {
        Self::new(index, index.layout)
    }

    /// Number of indices.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Wide(indices) => indices.len(),
            Self::Narrow(indices, _) => indices.len(),
        }
    }

    /// `len` of them from `start` on, in row-major order.
    pub(crate) fn read(&mut self, start: usize, len: usize) -> &[i64] {
        match self {
            Self::Wide(indices) => indices.read(start, len),
            Self::Narrow(indices, widened) => {
                widened.clear();
                widened.extend(indices.read(start, len).iter().map(|&i| i64::from(i)));
                widened
            }
        }
    }
}

/// Checks indices of a dimension, on several threads.
pub(crate) struct Check {
    /// Size of the dimension.
    pub(crate) size: usize,
    /// The least number of an index outside.
    outside: AtomicUsize,
}

impl Check {
    /// For indices of a dimension of this size.
    pub(crate) fn new(size: usize) -> Self {
        Self {
            size,
            outside: AtomicUsize::new(usize::MAX),
        }
    }

    /// The index `number`, if it is inside.
    #[inline(always)]
    pub(crate) fn inside(&self, index: i64, number: usize) -> Option<usize> {
        let index = unsigned(index);
        if index < self.size {
            return Some(index);
        }
        self.note(number);
        None
    }

    /// Notes that the index `number` is outside.
    #[cold]
    pub(crate) fn note(&self, number: usize) {
        self.outside.fetch_min(number, Ordering::Relaxed);
    }

    /// Refuses the first index outside, if there was one: of those of `index`, again and again,
    /// for dimension `dim` of `x`.
    pub(crate) fn finish(self, index: &View, x: &View, dim: usize) -> Result<(), Misuse> {
        let at = match self.outside.into_inner() {
            usize::MAX => return Ok(()),
            at => at % index.layout.elements(),
        };
        let value = Indices::whole(index).read(at, 1)[0];
        let (at, size) = (coordinates(index.shape(), at), self.size);
        let range = format!("outside the {size} indices of dimension {dim} of {}", x.ty);
        Err(Misuse(format!("the index {value} at {at:?} is {range}")))
    }
}

/// The elements of an `i64` or `i32` operand, in row-major order, as indices of dimension
/// `dim` of `x`.
pub(crate) fn indices(
    pool: &Pool,
    index: &View,
    x: &View,
    dim: usize,
) -> Result<Vec<usize>, Misuse> {
    let check = Check::new(x.shape()[dim]);
    let from = Indices::whole(index);
    let mut indices = vec![0; from.len()];
    for_rows(pool, &mut indices, 1, 1, |first, part| {
        let mut from = from.clone();
        let from = (first..).zip(from.read(first, part.len()));
        for (to, (number, &index)) in part.iter_mut().zip(from) {
            *to = check.inside(index, number).unwrap_or_default();
        }
    });
    check.finish(index, x, dim)?;
    Ok(indices)
}

/// Sets each element of `out`, of shape `shape`, to an element of `x` at the same coordinates,
/// except along `dim`. There the index of the same number is the coordinate. If the index is
/// outside, as `check` notes, the element stays as it is.
pub(crate) fn take<T: Element>(
    pool: &Pool,
    out: &mut [T],
    shape: &Shape,
    x: &View,
    dim: usize,
    index: &Indices,
    check: &Check,
) {
    let data: &[T] = x.data();
    let mut lines = x.layout.clone();
    let stride = std::mem::take(&mut lines.strides[dim]);
    lines.offset = 0;
    lines.shape = shape.clone();
    let [lines] = Layout::collapse([&lines]);
    for_rows(pool, out, 1, 4, |first, part| {
        let mut index = index.clone();
        for (number, mut out) in (first..).step_by(BLOCK).zip(part.chunks_mut(BLOCK)) {
            let mut indices = (number..).zip(index.read(number, out.len()));
            for run in Runs::new(&lines, number..number + out.len()) {
                let (part, rest) = out.split_at_mut(run.len);
                let part = part.iter_mut().zip(&mut indices);
                if [run.stride, stride] == [0, 1] {
                    // One line, of neighbours.
                    let line = &data[run.at..][..check.size];
                    for (y, (number, &index)) in part {
                        match line.get(unsigned(index)) {
                            Some(&x) => *y = x,
                            None => check.note(number),
                        }
                    }
                } else {
                    let mut at = run.at;
                    for (y, (number, &index)) in part {
                        if let Some(index) = check.inside(index, number) {
                            *y = data[at + index * stride];
                        }
                        at += run.stride;
                    }
                }
                out = rest;
            }
        }
    });
}
