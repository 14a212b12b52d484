//! Fractional max-pooling: [Graham](https://arxiv.org/abs/1412.6071).

use rustorch_ir::DType;
use rustorch_ir::ops::{ArgReduce, Gather};

use crate::Tensor;
use crate::error::{RusTorchResult, require};

/// Number of windows that fractional pooling makes of each dimension.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum FractionalSize<const N: usize> {
    /// These numbers.
    Size([usize; N]),
    /// This part of the dimension's size, between 0 and 1.
    Ratio([f64; N]),
}

/// One method for each line: its name, number of dimensions, shape.
macro_rules! fractional_pools {
    ($($name:ident = $n:literal, $shape:literal, $order:literal;)*) => {
        #[rustorch_macros::track_calls]
        impl Tensor {
            $(#[doc = concat!("The largest element of each window of `kernel` elements of `self` `", $shape, "`,")]
            /// and where among the elements of its channel it is, in row-major order, `i64`. Windows
            /// begin where random `samples` `[n, c, dimensions]` from `[0, 1)` say, those of one
            #[doc = concat!("channel together; they are in the order ", $order, ". Of samples for a larger batch")]
            /// the first count. Without samples (`None`) they are drawn. The batch dimension of
            /// `self` is optional. Takes floats.
            ///
            /// # Errors
            /// Fails for an unsupported shape or dtype, or windows that do not fit.
            pub fn $name(
                &self,
                kernel: [usize; $n],
                size: FractionalSize<$n>,
                samples: Option<&Self>,
            ) -> RusTorchResult<(Self, Self)> {
                self.fractional(stringify!($name), kernel, size, samples)
            })*
        }
    };
}

fractional_pools! {
    fractional_max_pool2d = 2, "[n, c, h, w]", "width, height";
    fractional_max_pool3d = 3, "[n, c, d, h, w]", "depth, height, width";
}

impl Tensor {
    fn fractional<const N: usize>(
        &self,
        name: &'static str,
        kernel: [usize; N],
        size: FractionalSize<N>,
        samples: Option<&Self>,
    ) -> RusTorchResult<(Self, Self)> {
        self.require_float(name)?;
        let (x, has_batch) = self.with_batch(name, N)?;
        let (lead, sizes) = x.shape().split_at(2);
        let counts: [usize; N] = std::array::from_fn(|i| match size {
            FractionalSize::Size(counts) => counts[i],
            FractionalSize::Ratio(ratios) => (sizes[i] as f64 * ratios[i]) as usize,
        });
        let fits = (0..N).all(|i| {
            let end = counts[i].checked_add(kernel[i]);
            kernel[i] > 0 && counts[i] > 0 && end.is_some_and(|end| end <= sizes[i] + 1)
        });
        let got = format_args!("{}, kernel {kernel:?} and size {counts:?}", self.ty());
        require(name, fits, "windows that fit", got)?;
        let drawn = match samples {
            Some(samples) => samples.clone(),
            None => Self::rand([lead[0], lead[1], N], DType::F32)?,
        };
        let expected = format_args!("samples [{}, {}, {N}], or more", lead[0], lead[1]);
        let is_fit =
            matches!(*drawn.shape(), [n, c, dims] if n >= lead[0] && c == lead[1] && dims == N);
        require(name, is_fit, expected, drawn.ty())?;
        let drawn = drawn.narrow(0, 0, lead[0])?.widened(name)?;

        let (mut values, mut indices) = (x.clone(), None::<Self>);
        let mut stride = 1;
        for i in (0..N).rev() {
            let dim = 2 + i;
            // PyTorch's order of the samples: images have the width's first.
            let sample = drawn.select(2, if N == 2 { 1 - i } else { i } as isize)?;
            let starts = starts(&sample, sizes[i], kernel[i], counts[i])?;
            let offsets = Self::arange_with(0, kernel[i] as i64, 1, DType::I64)?;
            let places = starts.unsqueeze(-1)?.add(&offsets)?.flatten(2, 3)?;
            // The same places for all lines of a channel.
            let mut shape = values.shape().to_vec();
            shape[dim] = counts[i] * kernel[i];
            let mut thin = vec![1; shape.len()];
            (thin[0], thin[1], thin[dim]) = (shape[0], shape[1], shape[dim]);
            let places = places.reshape(&thin[..])?.expand(&shape[..])?;
            let split = |x: &Self| {
                let behind = &shape[dim + 1..];
                let split = [&shape[..dim], &[counts[i], kernel[i]], behind].concat();
                x.reshape(&split[..])
            };
            let listed = |x: &Self| split(&Self::apply(name, Gather { dim }, &[x, &places])?);
            let best = ArgReduce {
                largest: true,
                dim: dim + 1,
                values: true,
            };
            let own = split(&places)?.mul(stride)?;
            let own = match &indices {
                Some(indices) => own.add(&listed(indices)?)?,
                None => own,
            };
            let [largest, place] = Self::apply_all(name, best, &[&listed(&values)?])?;
            let place = place.unsqueeze(dim as isize + 1)?;
            let chosen = Self::apply(name, Gather { dim: dim + 1 }, &[&own, &place])?;
            (values, indices) = (largest, Some(chosen.squeeze(dim as isize + 1)?));
            stride *= sizes[i] as i64;
        }
        let indices = indices.unwrap_or_else(|| values.clone());
        Ok((
            values.without_batch(has_batch)?,
            indices.without_batch(has_batch)?,
        ))
    }
}

/// The start of each of `count` windows, `i64` `[n, c, count]`, by a sample `[n, c]`: about `(size - kernel) /
/// (count - 1)` apart, the last one at the end.
fn starts(sample: &Tensor, size: usize, kernel: usize, count: usize) -> RusTorchResult<Tensor> {
    let last = (size - kernel) as i64;
    let ends = Tensor::full([sample.shape()[0], sample.shape()[1], 1], last, DType::I64)?;
    if count == 1 {
        return Ok(ends);
    }
    let alpha = match sample.dtype() {
        DType::F64 => last as f64 / (count - 1) as f64,
        _ => f64::from(last as f32 / (count - 1) as f32),
    };
    let whole = |x: Tensor| x.mul(alpha)?.to_dtype(DType::I64);
    let sample = sample.unsqueeze(2)?;
    let steps = Tensor::arange_with(0, count as i64 - 1, 1, sample.dtype())?;
    let starts = whole(sample.add(&steps)?)?.sub(&whole(sample)?)?;
    Tensor::cat(&[&starts, &ends], 2)
}
