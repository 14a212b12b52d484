//! Average pooling, and norms of windows.

use rustorch_ir::DType;
use rustorch_ir::ops::{Pool2d, PoolKind};

use super::Windows;
use crate::Tensor;
use crate::api::nn::windows::{Axis, Side, product_of};
use crate::args::windowed::{PerDim, window_options};
use crate::error::{RusTorchResult, require};

/// The optional arguments of average pooling over windows of `N` dimensions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AvgPoolOptions<const N: usize> {
    /// Distance between windows; by default the kernel's size.
    pub stride: Option<[usize; N]>,
    /// Zeros around the tensor; at most half the kernel.
    pub padding: [usize; N],
    /// Allows the last window to exceed the end.
    pub ceil_mode: bool,
    /// Counts zeros of the padding as elements.
    pub count_include_pad: bool,
    /// The divisor of sums, in place of the number of elements.
    pub divisor_override: Option<i64>,
}

impl<const N: usize> Default for AvgPoolOptions<N> {
    fn default() -> Self {
        Self {
            stride: None,
            padding: [0; N],
            ceil_mode: false,
            count_include_pad: true,
            divisor_override: None,
        }
    }
}

window_options! {
    AvgPoolOptions: [padding] [stride] {ceil_mode: bool, count_include_pad: bool};
}

/// Two methods for each line: their names, number of dimensions, shape.
macro_rules! avg_pools {
    ($($name:ident $norm:ident = $n:literal, $shape:literal;)*) => {
        #[rustorch_macros::track_calls]
        impl Tensor {
            $(#[doc = concat!("The mean of each window of `kernel` elements of `self` `", $shape, "`.")]
            /// The batch dimension of `self` is optional. Floats, and integers, whose means are
            /// truncated.
            ///
            /// # Errors
            /// Fails for an unsupported shape or dtype, or a window that does not fit. Also fails
            /// for a kernel, stride or divisor of 0, or for padding above half the kernel.
            pub fn $name(
                &self,
                kernel: impl PerDim<$n>,
                options: &AvgPoolOptions<$n>,
            ) -> RusTorchResult<Self> {
                self.avg_pooled(stringify!($name), kernel.per_dim(), options)
            }

            #[doc = concat!("`(Σ xᵖ)^(1/p)` over each window of `kernel` elements of `self` `", $shape, "`,")]
            /// a `stride` apart (`None`: the kernel's size); the last window may go beyond the end
            /// (`ceil_mode`). Negative sums give 0. The batch dimension of `self` is optional.
            /// Takes floats.
            ///
            /// # Errors
            /// Fails for an unsupported shape or dtype, or a window that does not fit. Also fails
            /// for a kernel, stride or `norm_type` of 0.
            pub fn $norm(
                &self,
                norm_type: f64,
                kernel: [usize; $n],
                stride: Option<[usize; $n]>,
                ceil_mode: bool,
            ) -> RusTorchResult<Self> {
                const NAME: &str = stringify!($norm);
                self.require_float(NAME)?;
                let expected = "a norm_type other than 0";
                require(NAME, norm_type != 0.0, expected, norm_type)?;
                let options = AvgPoolOptions {
                    stride,
                    ceil_mode,
                    ..Default::default()
                };
                let mean = self.pow(norm_type)?.avg_pooled(NAME, kernel, &options)?;
                let elements = kernel.iter().product::<usize>() as f64;
                // Sums of odd powers may be negative.
                let sum = mean.sign()?.mul(&mean.abs()?.relu()?)?.mul(elements)?;
                sum.pow(1.0 / norm_type)
            })*
        }
    };
}

avg_pools! {
    avg_pool1d lp_pool1d = 1, "[n, c, l]";
    avg_pool2d lp_pool2d = 2, "[n, c, h, w]";
    avg_pool3d lp_pool3d = 3, "[n, c, d, h, w]";
}

impl Tensor {
    fn avg_pooled<const N: usize>(
        &self,
        name: &'static str,
        kernel: [usize; N],
        options: &AvgPoolOptions<N>,
    ) -> RusTorchResult<Self> {
        let (x, has_batch) = self.with_batch(name, N)?;
        let sides = Windows::averaged(kernel, options).sides(name, &x)?;
        let legal = options.divisor_override != Some(0);
        require(name, legal, "a divisor other than 0", "divisor_override 0")?;
        let means = match self.dtype().is_float() {
            true if N < 3 && are_whole(&sides, options) => x.mean_of_elements(name, &sides)?,
            true => x.mean_of_floats(name, &sides, options)?,
            false => {
                require(name, self.dtype().is_int(), "floats or integers", self.ty())?;
                let axes: Vec<Axis> = sides.iter().map(Side::axis).collect();
                let sums = x.sum_of_windows(name, &axes)?;
                let by = divisors(&sides, options)?;
                let whole = sums.abs()?.floor_divide(&by.abs()?)?;
                let signs = sums.sign()?.mul(&by.sign()?)?;
                whole.mul(&signs)?.cast(name, self.dtype())?
            }
        };
        means.without_batch(has_batch)
    }

    /// The means of floats `[n, c, …]`, by the operation on images.
    fn mean_of_floats<const N: usize>(
        &self,
        name: &'static str,
        sides: &[Side],
        options: &AvgPoolOptions<N>,
    ) -> RusTorchResult<Self> {
        let elements = sides.iter().map(|side| side.kernel as f64).product::<f64>();
        // Without rounding what is rounded again.
        let means = self.widened(name)?.mean_of_elements(name, sides)?;
        let means = match options.divisor_override {
            Some(by) => means.mul(elements / by as f64)?,
            None if are_whole(sides, options) => means,
            None => {
                let by = divisors(sides, options)?.cast(name, means.dtype())?;
                let elements = Self::number(name, elements.into(), means.dtype(), None)?;
                means.mul(&elements.div(&by)?)?
            }
        };
        means.cast(name, self.dtype())
    }

    /// The sums over windows divided by the kernel's size.
    fn mean_of_elements(&self, name: &'static str, sides: &[Side]) -> RusTorchResult<Self> {
        match *sides {
            [side] => {
                let lines = self.unsqueeze(2)?;
                lines
                    .mean_of_planes(name, [Side::each(1), side])?
                    .squeeze(2)
            }
            [down, across] => self.mean_of_planes(name, [down, across]),
            [deep, down, across] => {
                let columns = down.count * across.count;
                let means = self.flatten(1, 2)?.mean_of_planes(name, [down, across])?;
                let shape = [self.shape()[0], self.shape()[1], deep.size, columns];
                let means =
                    (means.reshape(shape)?).mean_of_planes(name, [deep, Side::each(columns)])?;
                means.reshape([shape[0], shape[1], deep.count, down.count, across.count])
            }
            _ => Ok(self.clone()),
        }
    }

    fn mean_of_planes(&self, name: &'static str, sides: [Side; 2]) -> RusTorchResult<Self> {
        let behind = sides.each_ref().map(|side| (0, side.excess()));
        let x = self.surrounded(name, &behind, 0)?;
        let op = Pool2d {
            kind: PoolKind::Average,
            kernel: sides.map(|side| side.kernel),
            stride: sides.map(|side| side.stride),
            padding: sides.map(|side| side.padding),
            dilation: [1; 2],
            indices: None,
        };
        Self::apply(name, op, &[&x])
    }
}

impl<const N: usize> Windows<N> {
    pub(in crate::api::nn) fn averaged(kernel: [usize; N], options: &AvgPoolOptions<N>) -> Self {
        Self {
            kernel,
            stride: options.stride.unwrap_or(kernel),
            padding: options.padding,
            dilation: [1; N],
            ceil_mode: options.ceil_mode,
        }
    }
}

/// Is the sum over each window divided by the kernel's size?
fn are_whole<const N: usize>(sides: &[Side], options: &AvgPoolOptions<N>) -> bool {
    let is_whole = |side: &Side| side.is_whole(options.count_include_pad);
    options.divisor_override.is_none() && sides.iter().all(is_whole)
}

/// Divisors of the sum over each window, `i64`.
pub(in crate::api::nn) fn divisors<const N: usize>(
    sides: &[Side],
    options: &AvgPoolOptions<N>,
) -> RusTorchResult<Tensor> {
    if let Some(by) = options.divisor_override {
        return Tensor::full([], by, DType::I64);
    }
    let members = sides
        .iter()
        .map(|side| side.members(options.count_include_pad));
    product_of(&members.collect::<RusTorchResult<Vec<_>>>()?)
}
