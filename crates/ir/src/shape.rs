//! Shapes and broadcasting.

use std::fmt;
use std::ops::Deref;

use smallvec::SmallVec;

use crate::OpError;

/// The sizes of a tensor's dimensions, slowest first.
#[derive(PartialEq, Eq, Hash, Default)]
pub struct Shape(SmallVec<[usize; 6]>);

impl Clone for Shape {
    #[inline]
    fn clone(&self) -> Self {
        Self::from(&self.0[..])
    }
}

impl Shape {
    /// Number of elements. Shapes are checked for overflow when a type is made of them.
    #[inline]
    pub fn elements(&self) -> usize {
        self.0.iter().product()
    }

    /// The shape with dimension `dim` set to `size`.
    pub fn with_dim(mut self, dim: usize, size: usize) -> Self {
        self.0[dim] = size;
        self
    }

    /// The sizes as a list that can be changed.
    pub fn to_mut(&mut self) -> &mut SmallVec<[usize; 6]> {
        &mut self.0
    }
}

impl Deref for Shape {
    type Target = [usize];

    #[inline]
    fn deref(&self) -> &[usize] {
        &self.0
    }
}

impl From<&[usize]> for Shape {
    /// Few dimensions are copied one by one, which is shorter than the call of a copying function.
    #[inline]
    fn from(dims: &[usize]) -> Self {
        let few = |dims, rank| Self(SmallVec::from_buf_and_len(dims, rank));
        match *dims {
            [] => few([0; 6], 0),
            [a] => few([a, 0, 0, 0, 0, 0], 1),
            [a, b] => few([a, b, 0, 0, 0, 0], 2),
            [a, b, c] => few([a, b, c, 0, 0, 0], 3),
            [a, b, c, d] => few([a, b, c, d, 0, 0], 4),
            _ => Self(SmallVec::from_slice(dims)),
        }
    }
}

impl<const N: usize> From<[usize; N]> for Shape {
    fn from(dims: [usize; N]) -> Self {
        Self(SmallVec::from_slice(&dims))
    }
}

impl From<Vec<usize>> for Shape {
    fn from(dims: Vec<usize>) -> Self {
        Self(dims.into())
    }
}

impl FromIterator<usize> for Shape {
    fn from_iter<I: IntoIterator<Item = usize>>(dims: I) -> Self {
        let mut shape = Self::default();
        // In place of `extend`, which is three times the code wherever it is compiled.
        dims.into_iter().for_each(|dim| shape.0.push(dim));
        shape
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0[..], f)
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// The shape both operands are broadcast to, by NumPy's and PyTorch's rule: aligned at
/// the last dimension, sizes are equal or one of them is 1.
pub fn broadcast_shapes(op: &'static str, a: &[usize], b: &[usize]) -> Result<Shape, OpError> {
    if a == b {
        return Ok(Shape::from(a));
    }
    let rank = a.len().max(b.len());
    let at = |s: &[usize], i: usize| (i + s.len()).checked_sub(rank).map_or(1, |j| s[j]);
    (0..rank)
        .map(|i| match (at(a, i), at(b, i)) {
            (x, y) if x == y => Ok(x),
            (1, y) => Ok(y),
            (x, 1) => Ok(x),
            _ => Err(OpError::new(
                op,
                "shapes that broadcast",
                format!("{a:?} and {b:?}"),
            )),
        })
        .collect()
}

/// A dimension counted from the end where negative, as in PyTorch.
pub fn normalize_dim(op: &'static str, dim: isize, rank: usize) -> Result<usize, OpError> {
    let index = if dim < 0 { dim + rank as isize } else { dim };
    if (0..rank as isize).contains(&index) {
        Ok(index as usize)
    } else {
        Err(OpError::new(
            op,
            format!("a dimension of a tensor of rank {rank}"),
            format!("dim {dim}"),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broadcasting() {
        assert_eq!(
            broadcast_shapes("t", &[3, 1], &[4]).unwrap(),
            Shape::from([3, 4])
        );
        assert_eq!(
            broadcast_shapes("t", &[], &[0, 2]).unwrap(),
            Shape::from([0, 2])
        );
        assert_eq!(broadcast_shapes("t", &[1], &[0]).unwrap(), Shape::from([0]));
        let e = broadcast_shapes("add", &[2, 3], &[4])
            .unwrap_err()
            .to_string();
        assert_eq!(e, "add: expected shapes that broadcast, got [2, 3] and [4]");
    }

    #[test]
    fn negative_dims() {
        assert_eq!(normalize_dim("t", -1, 3), Ok(2));
        assert!(normalize_dim("t", 3, 3).is_err());
        assert!(normalize_dim("t", -4, 3).is_err());
        assert!(normalize_dim("t", 0, 0).is_err());
    }
}
