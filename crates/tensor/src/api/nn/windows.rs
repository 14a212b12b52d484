//! Windows of a dimension, and their reduction.
//!
//! Windows of several dimensions are reduced one dimension after the other.

use rustorch_ir::DType;
use rustorch_ir::ops::{ArgReduce, Gather, IndexSelect, Reduce, ReduceOp, Where};

use crate::Tensor;
use crate::error::{RusTorchResult, require};

/// The windows along one dimension. Their indices are given by a rule, never by a list: recording costs the same for
/// any number of them.
#[derive(Clone, Copy)]
pub(super) struct Axis {
    /// Number of windows.
    pub(super) count: usize,
    /// Places in each of them.
    width: usize,
    rule: Rule,
}

/// Rule of the windows along a dimension.
#[derive(Clone, Copy)]
enum Rule {
    /// They divide `size` indices as evenly as possible.
    Even { size: usize },
    /// Windows of one size.
    Spaced(Side),
}

/// Layout of windows of one size along a dimension of `size`.
#[derive(Clone, Copy)]
pub(super) struct Side {
    pub(super) size: usize,
    pub(super) kernel: usize,
    pub(super) stride: usize,
    pub(super) padding: usize,
    pub(super) dilation: usize,
    pub(super) count: usize,
}

impl Side {
    /// Indices behind the dimension and its padding that the last window has.
    pub(super) fn excess(&self) -> usize {
        self.end().saturating_sub(self.size + 2 * self.padding)
    }

    /// The end of the last window, counted from the padding in front.
    fn end(&self) -> usize {
        let last = self.count.saturating_sub(1) * self.stride;
        last + (self.kernel - 1) * self.dilation + 1
    }

    /// Have all windows, if they are dense, as many indices as the kernel, without padding or with it?
    pub(super) fn is_whole(&self, with_padding: bool) -> bool {
        match with_padding {
            true => self.excess() == 0,
            false => self.padding == 0 && self.end() <= self.size,
        }
    }

    /// Has each window an index?
    pub(super) fn has_all(&self) -> bool {
        // The last window begins in the dimension; those that begin in front of it may step over it.
        let in_front = self.padding.div_ceil(self.stride).min(self.count);
        (0..in_front).all(|window| {
            let before = self.padding - window * self.stride;
            let steps = before.div_ceil(self.dilation);
            steps < self.kernel && steps * self.dilation - before < self.size
        })
    }

    pub(super) fn axis(&self) -> Axis {
        Axis {
            count: self.count,
            width: self.kernel,
            rule: Rule::Spaced(*self),
        }
    }

    /// Number of indices of each window, if it is dense, without padding or with it, `i64`.
    pub(super) fn members(&self, with_padding: bool) -> RusTorchResult<Tensor> {
        let [size, kernel, padding] = [self.size, self.kernel, self.padding].map(|n| n as i64);
        let start = numbers(self.count)?.mul(self.stride as i64)?;
        let end = start.add(kernel)?.clamp_max(size + 2 * padding)?;
        match with_padding {
            true => end.sub(&start),
            false => (end.clamp_max(size + padding)?).sub(&start.clamp_min(padding)?),
        }
    }
}

/// `0`, `1` and so on, `i64`.
fn numbers(count: usize) -> RusTorchResult<Tensor> {
    Tensor::arange_with(0, count as i64, 1, DType::I64)
}

/// The product of a vector for each dimension, at each index of all.
pub(super) fn product_of(vectors: &[Tensor]) -> RusTorchResult<Tensor> {
    let one = Tensor::full([], 1, DType::I64)?;
    vectors
        .iter()
        .try_fold(one, |product, vector| product.unsqueeze(-1)?.mul(vector))
}

impl Axis {
    /// Windows that share `size` indices as evenly as can be: those of adaptive pooling.
    ///
    /// # Errors
    /// Fails for too many windows to count.
    pub(super) fn adaptive(name: &'static str, size: usize, count: usize) -> RusTorchResult<Self> {
        let can_be = i64::try_from((size as u128 + 1) * (count as u128 + 1)).is_ok();
        let expected = format_args!("an output size that memory could hold, of {size} elements");
        require(name, can_be, expected, count)?;
        let common = gcd(size, count);
        let [elements, windows] = [size, count].map(|n| n / common.max(1));
        let width = match windows {
            0 => 1,
            1 => elements,
            // A window that begins at the end of an element and ends at the beginning of another.
            _ => (elements + 2 * windows - 2) / windows,
        };
        Ok(Self {
            count,
            width,
            rule: Rule::Even { size },
        })
    }

    /// The first index of windows that share a dimension evenly, and the end of each.
    fn bounds(&self, size: usize, windows: &Tensor) -> RusTorchResult<[Tensor; 2]> {
        let [size, count] = [size, self.count.max(1)].map(|n| n as i64);
        let reached = windows.mul(size)?;
        let end = reached.add(size + count - 1)?.floor_divide(count)?;
        Ok([reached.floor_divide(count)?, end])
    }

    /// Number of indices of each window, `i64`.
    fn members(&self) -> RusTorchResult<Tensor> {
        match self.rule {
            Rule::Even { size } => {
                let [start, end] = self.bounds(size, &numbers(self.count)?)?;
                end.sub(&start)
            }
            Rule::Spaced(side) => side.members(false),
        }
    }

    /// Number of elements of the windows of several dimensions, `i64`.
    pub(super) fn members_of(axes: &[Self]) -> RusTorchResult<Tensor> {
        let members = axes.iter().map(Self::members);
        product_of(&members.collect::<RusTorchResult<Vec<_>>>()?)
    }

    /// The indices at places of windows; where there is none, one that is in the window, too.
    fn indices_at(&self, windows: &Tensor, places: &Tensor) -> RusTorchResult<Tensor> {
        match self.rule {
            Rule::Even { size } => {
                let [start, end] = self.bounds(size, windows)?;
                start.add(places)?.minimum(&end.sub(1)?)
            }
            Rule::Spaced(side) if self.is_full() => {
                (windows.mul(side.stride as i64)?).add(&places.mul(side.dilation as i64)?)
            }
            Rule::Spaced(side) => {
                let step = side.dilation as i64;
                let last = side.size.saturating_sub(1) as i64;
                let start = windows.mul(side.stride as i64)?.sub(side.padding as i64)?;
                let first = start
                    .neg()?
                    .clamp_min(0)?
                    .add(step - 1)?
                    .floor_divide(step)?;
                let end = start
                    .neg()?
                    .add(last)?
                    .floor_divide(step)?
                    .maximum(&first)?;
                let places = places.maximum(&first)?.minimum(&end)?;
                start.add(&places.mul(step)?)?.clamp(0, last)
            }
        }
    }

    /// Windows and places, as columns and rows.
    fn grid(&self) -> RusTorchResult<[Tensor; 2]> {
        Ok([numbers(self.count)?.unsqueeze(1)?, numbers(self.width)?])
    }

    /// The indices at the places of one window after the other; where there is none, one that is in the window, too.
    fn index(&self) -> RusTorchResult<Tensor> {
        let [windows, places] = self.grid()?;
        self.indices_at(&windows, &places)?.flatten(0, 1)
    }

    /// Has each place an index?
    fn is_full(&self) -> bool {
        match self.rule {
            Rule::Even { size } => size.checked_rem(self.count).is_none_or(|rest| rest == 0),
            Rule::Spaced(side) => side.is_whole(false),
        }
    }

    /// A mask of places with an index, `[count, width, 1, …]` with `behind` dimensions of size 1; none if all
    /// have.
    fn mask(&self, behind: usize) -> RusTorchResult<Option<Tensor>> {
        if self.is_full() {
            return Ok(None);
        }
        let [windows, places] = self.grid()?;
        let inside = match self.rule {
            Rule::Even { size } => {
                let [start, end] = self.bounds(size, &windows)?;
                start.add(&places)?.lt(&end)?
            }
            Rule::Spaced(side) => {
                let start = windows.mul(side.stride as i64)?.sub(side.padding as i64)?;
                let at = start.add(&places.mul(side.dilation as i64)?)?;
                at.ge(0)?.logical_and(&at.lt(side.size as i64)?)?
            }
        };
        let shape = [&[self.count, self.width], &vec![1; behind][..]].concat();
        inside.reshape(&shape[..]).map(Some)
    }
}

/// The greatest common divisor; that of a number and 0 is the number.
fn gcd(a: usize, b: usize) -> usize {
    match b {
        0 => a,
        b => gcd(b, a % b),
    }
}

/// The windows' reduction along each of the last dimensions.
impl Tensor {
    /// `[…, count, width, …]`: the elements of the windows along a dimension.
    fn windows(&self, name: &'static str, dim: usize, axis: &Axis) -> RusTorchResult<Self> {
        let listed = Self::apply(name, IndexSelect { dim }, &[self, &axis.index()?])?;
        let shape = self.shape();
        let split = [&shape[..dim], &[axis.count, axis.width], &shape[dim + 1..]].concat();
        listed.reshape(&split[..])
    }

    /// The sum over the windows along the last dimensions; of integers an `i64`.
    pub(super) fn sum_of_windows(&self, name: &'static str, axes: &[Axis]) -> RusTorchResult<Self> {
        let lead = self.rank() - axes.len();
        (axes.iter().enumerate()).try_fold(self.clone(), |x, (i, axis)| {
            let mut elements = x.windows(name, lead + i, axis)?;
            if let Some(mask) = axis.mask(axes.len() - 1 - i)? {
                let zero = Self::number(name, 0.into(), elements.dtype(), None)?;
                elements = Self::apply(name, Where, &[&mask, &elements, &zero])?;
            }
            let sum = Reduce {
                op: ReduceOp::Sum,
                dims: [lead + i + 1].into_iter().collect(),
                keepdim: false,
            };
            Self::apply(name, sum, &[&elements])
        })
    }

    /// The sum for each index of the last dimensions, `sizes` of them, from the elements of their windows:
    /// [`Tensor::sum_of_windows`] transposed.
    pub(super) fn spread_of_windows(
        &self,
        name: &'static str,
        axes: &[Axis],
        sizes: &[usize],
    ) -> RusTorchResult<Self> {
        let lead = self.rank() - axes.len();
        let dims = axes.iter().zip(sizes).enumerate();
        dims.into_iter()
            .try_fold(self.clone(), |x, (i, (axis, &size))| {
                let dim = lead + i;
                let shape = x.ty().shape.clone().with_dim(dim, size);
                let lead = &x.shape()[..dim];
                let behind = &x.shape()[dim + 1..];
                let split = [lead, &[axis.count, axis.width], behind].concat();
                let mut elements = x.unsqueeze(dim as isize + 1)?.expand(&split[..])?;
                if let Some(mask) = axis.mask(behind.len())? {
                    let zero = Self::number(name, 0.into(), elements.dtype(), None)?;
                    elements = Self::apply(name, Where, &[&mask, &elements, &zero])?;
                }
                let elements = elements.flatten(dim as isize, dim as isize + 1)?;
                let indices = axis.index()?;
                Self::zeros(&*shape, x.dtype())?.index_add(dim as isize, &indices, &elements, 1)
            })
    }

    /// The largest elements of the windows along the last dimensions. Each window has an element.
    pub(super) fn max_of_windows(&self, name: &'static str, axes: &[Axis]) -> RusTorchResult<Self> {
        let lead = self.rank() - axes.len();
        (axes.iter().enumerate()).try_fold(self.clone(), |x, (i, axis)| {
            let largest = Reduce {
                op: ReduceOp::Max,
                dims: [lead + i + 1].into_iter().collect(),
                keepdim: false,
            };
            Self::apply(name, largest, &[&x.windows(name, lead + i, axis)?])
        })
    }

    /// [`Tensor::max_of_windows`], and where they are among the elements of the last dimensions in
    /// row-major order, `i64`: the first of equals, the last NaN.
    pub(super) fn max_of_windows_with_indices(
        &self,
        name: &'static str,
        axes: &[Axis],
    ) -> RusTorchResult<[Self; 2]> {
        let lead = self.rank() - axes.len();
        let (mut values, mut indices) = (self.detach(), None::<Self>);
        let mut stride = 1usize;
        for (i, axis) in axes.iter().enumerate().rev() {
            let dim = lead + i;
            let best = ArgReduce {
                largest: true,
                dim: dim + 1,
                values: true,
            };
            let windows = values.windows(name, dim, axis)?;
            let size = values.shape()[dim];
            let [largest, mut place] = Self::apply_all(name, best, &[&windows])?;
            if windows.dtype().is_float() {
                let last = windows.last_nan(dim + 1)?;
                place = Self::where_(&largest.isnan()?, &last, &place)?;
            }
            let behind = vec![1; largest.rank() - dim - 1];
            let own = numbers(axis.count)?.reshape([&[axis.count], &behind[..]].concat())?;
            let along = axis.indices_at(&own, &place)?;
            let own = along.mul(stride as i64)?;
            indices = Some(match indices {
                None => own,
                // Where it is in the dimensions behind, by the index that was best in this one.
                Some(behind) => Self::apply(name, Gather { dim }, &[&behind, &along])?.add(&own)?,
            });
            values = largest;
            stride *= size;
        }
        let indices = match indices {
            Some(indices) => indices,
            None => Self::full(values.shape(), 0, DType::I64)?,
        };
        if self.requires_grad() {
            let line = self.flatten(lead as isize, -1)?;
            let places = indices.flatten(lead as isize, -1)?;
            let chosen = line.gather(lead as isize, &places)?;
            values = values.with_gradient_of(&chosen.reshape(values.shape())?);
        }
        Ok([values, indices])
    }

    /// The last index of NaN along a dimension, `i64`; 0 where there is none.
    fn last_nan(&self, dim: usize) -> RusTorchResult<Self> {
        let behind = vec![1; self.rank() - dim - 1];
        let size = self.shape()[dim];
        let own = numbers(size)?.reshape([&[size], &behind[..]].concat())?;
        Self::where_(&self.isnan()?, &own, 0)?.amax(dim as isize, false)
    }
}
