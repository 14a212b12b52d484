//! Layouts of tensors in their storage.

use std::ops::Range;

use smallvec::SmallVec;

use crate::Shape;

/// Shape, strides and offset, in elements, of a view of a storage.
#[derive(PartialEq, Eq, Hash, Debug)]
pub struct Layout {
    /// Sizes of the dimensions.
    pub shape: Shape,
    /// Step in the storage from one index to the next, for each dimension; 0 for a broadcast
    /// dimension. A dimension of size 1 that a view adds has the step of PyTorch's: over the dimensions behind it.
    pub strides: SmallVec<[usize; 6]>,
    /// Position of the first element.
    pub offset: usize,
}

impl Clone for Layout {
    #[inline]
    fn clone(&self) -> Self {
        Self {
            shape: self.shape.clone(),
            strides: SmallVec::from_slice(&self.strides),
            offset: self.offset,
        }
    }
}

impl Layout {
    /// Row-major order without gaps, from the storage's start.
    pub fn contiguous(shape: &Shape) -> Self {
        let mut strides = SmallVec::from_elem(1, shape.len());
        for i in (1..shape.len()).rev() {
            strides[i - 1] = strides[i] * shape[i].max(1);
        }
        Self {
            shape: shape.clone(),
            strides,
            offset: 0,
        }
    }

    /// Number of dimensions.
    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    /// Number of elements seen through the view.
    #[inline]
    pub fn elements(&self) -> usize {
        self.shape.elements()
    }

    /// Returns whether the elements are contiguous in row-major order (from `offset`).
    #[inline]
    pub fn is_contiguous(&self) -> bool {
        let mut expected = 1;
        for (&size, &stride) in self.shape.iter().zip(&self.strides).rev() {
            if size != 1 && stride != expected {
                return self.elements() == 0;
            }
            expected *= size;
        }
        true
    }

    /// Returns whether the elements of the last dimension are contiguous. True for rank 0.
    pub fn has_dense_rows(&self) -> bool {
        match (self.shape.last(), self.strides.last()) {
            (Some(&size), Some(&stride)) => size <= 1 || stride == 1,
            _ => true,
        }
    }

    /// The end of the element positions that the view can reach; 0 if it is empty.
    pub fn end(&self) -> usize {
        if self.elements() == 0 {
            return 0;
        }
        let last = |(&size, &stride): (&usize, &usize)| (size - 1) * stride;
        self.offset
            + self
                .shape
                .iter()
                .zip(&self.strides)
                .map(last)
                .sum::<usize>()
            + 1
    }

    /// The view broadcast to `shape`, aligned at the last dimension. The caller has
    /// checked that the shapes broadcast.
    pub fn broadcast_to(&self, shape: &Shape) -> Self {
        if self.shape == *shape {
            return self.clone();
        }
        let lead = shape.len() - self.rank();
        let mut strides: SmallVec<[usize; 6]> = (0..shape.len())
            .map(|i| match i.checked_sub(lead) {
                Some(j) if self.shape[j] == shape[i] => self.strides[j],
                _ => 0,
            })
            .collect();
        step_over(&shape[..], &mut strides, 0..lead);
        Self {
            shape: shape.clone(),
            strides,
            offset: self.offset,
        }
    }

    /// The view with its dimensions in the order `dims`.
    pub fn permute(&self, dims: &[usize]) -> Self {
        Self {
            shape: dims.iter().map(|&d| self.shape[d]).collect(),
            strides: dims.iter().map(|&d| self.strides[d]).collect(),
            offset: self.offset,
        }
    }

    /// Every `step`-th of `len` indices of `dim`, beginning with `start`.
    pub fn slice(&self, dim: usize, start: usize, len: usize, step: usize) -> Self {
        let mut out = self.clone();
        out.shape = out.shape.with_dim(dim, len);
        if len > 0 {
            out.offset += start * self.strides[dim];
        }
        out.strides[dim] *= step;
        out
    }

    /// The same elements with gaps between pieces. Each `piece` of contiguous elements begins
    /// `step` elements after the one before; the first begins at `offset`. `None` if a dimension
    /// leads from one piece into the middle of others.
    pub fn spread(&self, piece: usize, step: usize, offset: usize) -> Option<Self> {
        let mut out = Self {
            offset,
            ..self.clone()
        };
        let mut reach = 0;
        for (stride, &size) in out.strides.iter_mut().zip(&self.shape[..]) {
            match size {
                0 => return None,
                1 => {}
                _ if stride.is_multiple_of(piece) => *stride = *stride / piece * step,
                _ => reach += (size - 1) * *stride,
            }
        }
        (reach < piece && self.offset == 0).then_some(out)
    }

    /// The same elements in another shape without copying, if strides allow it.
    pub fn reshape(&self, shape: &Shape) -> Option<Self> {
        if self.elements() == 0 {
            return Some(Self::contiguous(shape));
        }
        // Runs of old dimensions that are contiguous among themselves can be cut anew.
        let mut strides: SmallVec<[usize; 6]> = shape.iter().map(|_| 0).collect();
        let old: SmallVec<[(usize, usize); 6]> = (self.shape.iter().copied())
            .zip(self.strides.iter().copied())
            .filter(|&(size, _)| size != 1)
            .collect();
        let mut new = shape.len();
        let mut i = old.len();
        while i > 0 {
            let (mut run, stride) = old[i - 1];
            i -= 1;
            while i > 0 && old[i - 1].1 == stride * run {
                i -= 1;
                run *= old[i].0;
            }
            let mut filled = 1;
            while filled < run {
                new = new.checked_sub(1)?;
                strides[new] = stride * filled;
                filled *= shape[new];
            }
            if filled != run {
                return None;
            }
        }
        step_over(shape, &mut strides, 0..shape.len());
        Some(Self {
            shape: shape.clone(),
            strides,
            offset: self.offset,
        })
    }

    /// The same elements with as few dimensions as possible: dimensions of size 1 are dropped, and
    /// neighbours are joined if every one of `views` allows it.
    pub fn collapse<const N: usize>(views: [&Self; N]) -> [Self; N] {
        let mut out = views.map(Self::start);
        Self::join(&views, &mut out);
        out
    }

    /// [`Layout::collapse`] of any number of views.
    pub fn collapse_all(views: &[&Self]) -> Vec<Self> {
        let mut out: Vec<Self> = views.iter().map(|view| view.start()).collect();
        Self::join(views, &mut out);
        out
    }

    /// The view's first element alone.
    fn start(&self) -> Self {
        Self {
            shape: Shape::default(),
            strides: SmallVec::new(),
            offset: self.offset,
        }
    }

    fn join(views: &[&Self], out: &mut [Self]) {
        for d in 0..views.first().map_or(0, |view| view.rank()) {
            let size = views[0].shape[d];
            if size == 1 {
                continue;
            }
            let joins = out[0].rank() > 0
                && (out.iter().zip(views))
                    .all(|(o, v)| o.strides[o.rank() - 1] == v.strides[d] * size);
            for (o, v) in out.iter_mut().zip(views) {
                let last = o.rank().wrapping_sub(1);
                if joins {
                    o.shape.to_mut()[last] *= size;
                    o.strides[last] = v.strides[d];
                } else {
                    o.shape.to_mut().push(size);
                    o.strides.push(v.strides[d]);
                }
            }
        }
    }

    /// Storage positions of all elements, in row-major order.
    pub fn positions(&self) -> impl Iterator<Item = usize> + '_ {
        let mut index: SmallVec<[usize; 6]> = self.shape.iter().map(|_| 0).collect();
        let mut position = self.offset;
        (0..self.elements()).map(move |_| {
            let here = position;
            for d in (0..index.len()).rev() {
                index[d] += 1;
                position += self.strides[d];
                if index[d] < self.shape[d] {
                    break;
                }
                position -= self.strides[d] * self.shape[d];
                index[d] = 0;
            }
            here
        })
    }
}

/// Gives those of `dims` that have size 1 the step over the dimensions behind them.
fn step_over(shape: &[usize], strides: &mut [usize], dims: Range<usize>) {
    for dim in dims.rev().filter(|&dim| shape[dim] == 1) {
        let behind = shape.get(dim + 1).zip(strides.get(dim + 1));
        strides[dim] = behind.map_or(1, |(size, stride)| size * stride);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn positions(l: &Layout) -> Vec<usize> {
        l.positions().collect()
    }

    #[test]
    fn views() {
        let l = Layout::contiguous(&[2, 3].into());
        assert_eq!(positions(&l.permute(&[1, 0])), [0, 3, 1, 4, 2, 5]);
        assert_eq!(positions(&l.slice(1, 0, 2, 2)), [0, 2, 3, 5]);
        assert_eq!(
            positions(&l.slice(0, 1, 1, 1).broadcast_to(&[2, 3].into())),
            [3, 4, 5, 3, 4, 5]
        );
        assert_eq!(l.slice(1, 1, 2, 1).end(), 6);
        assert_eq!(l.slice(0, 2, 0, 1).end(), 0);
    }

    #[test]
    fn reshape_keeps_order_or_refuses() {
        let l = Layout::contiguous(&[2, 3, 4].into());
        assert_eq!(
            positions(&l.reshape(&[6, 4].into()).unwrap()),
            positions(&l)
        );
        let t = l.permute(&[0, 2, 1]);
        assert!(t.reshape(&[2, 12].into()).is_none());
        assert_eq!(
            positions(&t.reshape(&[1, 2, 2, 2, 3].into()).unwrap()),
            positions(&t)
        );
        let one = Layout::contiguous(&[1, 1].into());
        assert_eq!(positions(&one.reshape(&[].into()).unwrap()), [0]);
        assert!(l.slice(2, 0, 0, 1).reshape(&[0].into()).is_some());
    }

    #[test]
    fn contiguity() {
        let l = Layout::contiguous(&[2, 1, 3].into());
        assert!(l.is_contiguous() && l.permute(&[1, 0, 2]).is_contiguous());
        assert!(!l.permute(&[2, 1, 0]).is_contiguous());
        assert!(l.slice(0, 1, 1, 1).is_contiguous());
        assert!(
            !Layout::contiguous(&[1].into())
                .broadcast_to(&[4].into())
                .is_contiguous()
        );
    }

    #[test]
    fn pieces_are_spread() {
        let heads = Layout::contiguous(&[2, 5, 3, 8].into()).permute(&[0, 2, 1, 3]);
        let spread = heads.spread(24, 72, 48).unwrap();
        assert_eq!(
            (spread.offset, &spread.strides[..]),
            (48, &[360, 8, 72, 1][..])
        );
        // Rows of 8 are neither pieces of 24 nor multiples of 12.
        assert!(heads.spread(16, 64, 0).is_none());
        assert!(heads.spread(12, 24, 0).is_none());
        let none = Layout::contiguous(&[2, 0].into());
        assert!(none.spread(0, 4, 0).is_none());
    }

    #[test]
    fn collapse_walks_the_same() {
        let a = Layout::contiguous(&[2, 3, 1, 4].into());
        let b = Layout::contiguous(&[3, 1, 4].into()).broadcast_to(&a.shape);
        let [ca, cb] = Layout::collapse([&a, &b]);
        assert_eq!(ca.shape, Shape::from([2, 12]));
        assert_eq!(positions(&ca), positions(&a));
        assert_eq!(positions(&cb), positions(&b));
    }
}
