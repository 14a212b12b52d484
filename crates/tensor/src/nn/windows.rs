//! Which indices of a dimension each of a row of windows has, and what is made of them.
//!
//! Windows of several dimensions are taken along one after the other.

use rustorch_ir::DType;
use rustorch_ir::ops::{ArgReduce, Gather, IndexSelect, Reduce, ReduceOp, Where};

use crate::Tensor;
use crate::error::RusTorchResult;

/// The windows along one dimension.
pub(super) struct Axis {
    /// How many windows there are.
    pub(super) count: usize,
    /// Places in each of them.
    width: usize,
    /// The indices at the places of one window after the other; none beside the dimension.
    places: Vec<Option<usize>>,
}

/// How windows of one size lie along a dimension of `size`.
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
        let last = self.count.saturating_sub(1) * self.stride;
        let reach = last + (self.kernel - 1) * self.dilation + 1;
        reach.saturating_sub(self.size + 2 * self.padding)
    }

    /// The indices that each window, if it is dense, has without padding, and with it.
    pub(super) fn members(&self) -> impl Iterator<Item = [usize; 2]> {
        (0..self.count).map(|window| {
            let start = window * self.stride;
            let end = (start + self.kernel).min(self.size + 2 * self.padding);
            let inside = end.min(self.size + self.padding) - start.max(self.padding).min(end);
            [inside, end - start]
        })
    }

    pub(super) fn axis(&self) -> Axis {
        let place = |window: usize, i: usize| {
            let at = window * self.stride + i * self.dilation;
            at.checked_sub(self.padding).filter(|&at| at < self.size)
        };
        let places =
            (0..self.count).flat_map(|window| (0..self.kernel).map(move |i| place(window, i)));
        Axis {
            count: self.count,
            width: self.kernel,
            places: places.collect(),
        }
    }
}

impl Axis {
    /// Windows that share `size` indices as evenly as can be: those of adaptive pooling.
    pub(super) fn adaptive(size: usize, count: usize) -> Self {
        let range = |i: usize| i * size / count..((i + 1) * size).div_ceil(count);
        let width = (0..count).map(|i| range(i).len()).max().unwrap_or(1);
        let places = (0..count).flat_map(|i| {
            let range = range(i);
            (0..width).map(move |k| range.clone().nth(k))
        });
        Self {
            count,
            width,
            places: places.collect(),
        }
    }

    /// How many indices each window has.
    pub(super) fn members(&self) -> impl Iterator<Item = usize> {
        let windows = self.places.chunks(self.width.max(1));
        windows.map(|window| window.iter().flatten().count())
    }

    /// How many elements the windows of several dimensions have, in row-major order.
    pub(super) fn members_of(axes: &[Self]) -> Vec<f64> {
        axes.iter().fold(vec![1.0], |members, axis| {
            let own: Vec<usize> = axis.members().collect();
            let product = |&n: &f64| own.clone().into_iter().map(move |own| n * own as f64);
            members.iter().flat_map(product).collect()
        })
    }

    /// Which window each place that has an index is of, and the index.
    fn members_and_indices(&self) -> RusTorchResult<[Tensor; 2]> {
        let places = self.places.iter().enumerate();
        let pairs = places.filter_map(|(at, index)| Some((at / self.width, (*index)?)));
        let (windows, indices): (Vec<i64>, Vec<i64>) = pairs
            .map(|(window, index)| (window as i64, index as i64))
            .unzip();
        let count = windows.len();
        Ok([
            Tensor::from_vec(windows, [count])?,
            Tensor::from_vec(indices, [count])?,
        ])
    }

    /// The indices as a tensor; where there is none, one that is in the window, too.
    fn index(&self) -> RusTorchResult<Tensor> {
        let windows = self.places.chunks(self.width.max(1));
        let filled = windows.flat_map(|window| {
            let any = window.iter().flatten().next().copied().unwrap_or(0);
            window.iter().map(move |place| place.unwrap_or(any) as i64)
        });
        Tensor::from_vec(filled.collect::<Vec<_>>(), [self.places.len()])
    }

    /// Which places have an index, `[count, width, 1, …]` with `behind` dimensions of size 1; none
    /// if all have.
    fn mask(&self, behind: usize) -> RusTorchResult<Option<Tensor>> {
        if self.places.iter().all(Option::is_some) {
            return Ok(None);
        }
        let shape = [&[self.count, self.width], &vec![1; behind][..]].concat();
        let inside: Vec<bool> = self.places.iter().map(Option::is_some).collect();
        Tensor::from_vec(inside, &shape[..]).map(Some)
    }
}

/// What is reduced along each of the last dimensions, by windows.
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

    /// What goes to each of the indices of the last dimensions, `sizes` of them, where their windows
    /// are these elements: [`Tensor::sum_of_windows`] transposed.
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
                let [windows, indices] = axis.members_and_indices()?;
                let elements = x.picked(name, dim, &windows)?;
                let shape = x.ty().shape.clone().with_dim(dim, size);
                Self::zeros(&*shape, x.dtype())?.index_add(dim as isize, &indices, &elements, 1)
            })
    }

    /// The largest elements of the windows along the last dimensions, of which each has one.
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
    /// row-major order, `i64`: the first of equals.
    pub(super) fn max_of_windows_with_indices(
        &self,
        name: &'static str,
        axes: &[Axis],
    ) -> RusTorchResult<[Self; 2]> {
        let lead = self.rank() - axes.len();
        let (mut values, mut indices) = (self.clone(), None::<Self>);
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
            let [largest, place] = Self::apply_all(name, best, &[&windows])?;
            let along = axis.indices_at(name, &place, largest.rank() - dim - 1)?;
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
        Ok([values, indices])
    }
}

impl Axis {
    /// The indices at `place` of each window, for `place` `[…, count, …]` with `behind` dimensions
    /// behind.
    fn indices_at(
        &self,
        name: &'static str,
        place: &Tensor,
        behind: usize,
    ) -> RusTorchResult<Tensor> {
        let starts: Vec<i64> = (0..self.count).map(|i| (i * self.width) as i64).collect();
        let shape = [&[self.count], &vec![1; behind][..]].concat();
        let at = place.add(&Tensor::from_vec(starts, &shape[..])?)?;
        let flat = at.reshape([-1])?;
        let found = Tensor::apply(name, IndexSelect { dim: 0 }, &[&self.index()?, &flat])?;
        found.reshape(place.shape())
    }
}
