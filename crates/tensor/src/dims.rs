//! Lists of dimensions and sizes as arguments.

use rustorch_ir::{OpError, Shape, normalize_dim};
use smallvec::SmallVec;

use crate::error::{RusTorchResult, require};

/// Which dimensions: one (`1`, `-1`), several (`[0, -1]`), or all (`None`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Dims(Option<SmallVec<[isize; 6]>>);

impl From<isize> for Dims {
    fn from(dim: isize) -> Self {
        Self(Some([dim].into_iter().collect()))
    }
}

impl From<Option<isize>> for Dims {
    fn from(dim: Option<isize>) -> Self {
        Self(dim.map(|dim| [dim].into_iter().collect()))
    }
}

impl<const N: usize> From<[isize; N]> for Dims {
    fn from(dims: [isize; N]) -> Self {
        dims.as_slice().into()
    }
}

impl From<&[isize]> for Dims {
    fn from(dims: &[isize]) -> Self {
        Self(Some(dims.into()))
    }
}

impl Dims {
    /// As indices for a tensor of this rank; one may come several times.
    pub(crate) fn each(&self, op: &'static str, rank: usize) -> RusTorchResult<Vec<usize>> {
        let Some(dims) = &self.0 else {
            return Ok((0..rank).collect());
        };
        let index = |&dim: &isize| Ok(normalize_dim(op, dim, rank)?);
        dims.iter().map(index).collect()
    }

    /// As indices for a tensor of this rank, in the order that they were given in.
    pub(crate) fn listed(
        &self,
        op: &'static str,
        rank: usize,
    ) -> RusTorchResult<SmallVec<[usize; 6]>> {
        // As in PyTorch, a tensor of rank 0 may be told of its dimension 0.
        let indices = self.each(op, rank.max(usize::from(self.0.is_some())))?;
        let once = (1..indices.len()).all(|i| !indices[..i].contains(&indices[i]));
        let expected = "each dimension at most once";
        require(
            op,
            once,
            expected,
            format!("{:?}", self.0.as_deref().unwrap_or_default()),
        )?;
        Ok(indices.into_iter().filter(|&dim| dim < rank).collect())
    }

    /// As rising indices for a tensor of this rank. One of rank 0 has none, but answers to 0 and -1.
    pub(crate) fn resolve(
        &self,
        op: &'static str,
        rank: usize,
    ) -> RusTorchResult<SmallVec<[usize; 6]>> {
        let mut indices = self.listed(op, rank)?;
        indices.sort_unstable();
        Ok(indices)
    }
}

/// A shape in which −1 stands for what follows from the tensor.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sizes(SmallVec<[isize; 6]>);

macro_rules! sizes_from {
    ($($int:ty),*) => {
        $(impl<const N: usize> From<[$int; N]> for Sizes {
            fn from(sizes: [$int; N]) -> Self {
                sizes.as_slice().into()
            }
        }

        impl<const N: usize> From<&[$int; N]> for Sizes {
            fn from(sizes: &[$int; N]) -> Self {
                sizes.as_slice().into()
            }
        }

        impl From<&[$int]> for Sizes {
            /// Sizes beyond `isize` become one that no tensor has.
            fn from(sizes: &[$int]) -> Self {
                let size = |&n| isize::try_from(n).unwrap_or(isize::MAX);
                Self(sizes.iter().map(size).collect())
            }
        })*
    };
}

sizes_from!(usize, isize, i32);

impl From<&Shape> for Sizes {
    fn from(shape: &Shape) -> Self {
        Self::from(&shape[..])
    }
}

impl From<Vec<usize>> for Sizes {
    fn from(shape: Vec<usize>) -> Self {
        Self::from(&shape[..])
    }
}

impl Sizes {
    /// A shape of `elements`: −1 is what the other sizes leave.
    pub(crate) fn infer(&self, op: &'static str, elements: usize) -> RusTorchResult<Shape> {
        let unfit = || {
            let expected = format_args!("a shape of {elements} elements, at most one size -1");
            OpError::new(op, expected, format!("{:?}", &self.0[..]))
        };
        let mut known = 1usize;
        let mut unknown = None;
        let mut shape = Shape::default();
        for (i, &size) in self.0.iter().enumerate() {
            let size = match usize::try_from(size) {
                Ok(size) => size,
                Err(_) if size == -1 && unknown.replace(i).is_none() => 1,
                Err(_) => return Err(unfit().into()),
            };
            known = known.checked_mul(size).ok_or_else(unfit)?;
            shape.to_mut().push(size);
        }
        if let Some(i) = unknown {
            shape.to_mut()[i] = elements.checked_div(known).ok_or_else(unfit)?;
            known *= shape[i];
        }
        match known == elements {
            true => Ok(shape),
            false => Err(unfit().into()),
        }
    }

    /// A shape in which −1 keeps the size that `dims` has there, aligned at the last.
    pub(crate) fn keep(&self, op: &'static str, dims: &[usize]) -> RusTorchResult<Shape> {
        let lead = self.0.len().wrapping_sub(dims.len());
        let size = |(i, &size): (usize, &isize)| match usize::try_from(size) {
            Ok(size) => Some(size),
            Err(_) if size == -1 => dims.get(i.wrapping_sub(lead)).copied(),
            Err(_) => None,
        };
        let shape: Option<Shape> = self.0.iter().enumerate().map(size).collect();
        shape.ok_or_else(|| {
            let expected = format_args!("sizes that {dims:?} broadcasts to, or -1 for one of them");
            OpError::new(op, expected, format!("{:?}", &self.0[..])).into()
        })
    }
}
