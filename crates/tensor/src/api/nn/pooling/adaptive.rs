//! Adaptive pooling to a given number of windows of nearly equal size.

use rustorch_ir::ops::{Pool2d, PoolKind};

use crate::Tensor;
use crate::api::nn::windows::Axis;
use crate::args::windowed::OutputSize;
use crate::error::{RusTorchResult, require};

/// Three methods for each line: their names, number of dimensions, shape.
macro_rules! adaptive_pools {
    ($($average:ident $maximum:ident $with_indices:ident = $n:literal, $shape:literal;)*) => {
        #[rustorch_macros::track_calls]
        impl Tensor {
            $(#[doc = concat!("The means of `self` `", $shape, "` over windows that share each dimension evenly:")]
            /// as many as `output_size` says, `None` for the dimension's size. The batch dimension
            /// of `self` is optional. Takes floats.
            ///
            /// # Errors
            /// Fails for an unsupported shape or dtype, or a dimension without elements.
            pub fn $average(&self, output_size: impl OutputSize<$n>) -> RusTorchResult<Self> {
                self.adaptive_mean(stringify!($average), output_size.output_size())
            }

            #[doc = concat!("The largest elements of `self` `", $shape, "` in windows as those of")]
            #[doc = concat!("[`Tensor::", stringify!($average), "`]. Floats and integers.")]
            ///
            /// # Errors
            #[doc = concat!("The same errors as [`Tensor::", stringify!($average), "`].")]
            pub fn $maximum(&self, output_size: impl OutputSize<$n>) -> RusTorchResult<Self> {
                const NAME: &str = stringify!($maximum);
                let size = output_size.output_size();
                let (axes, x, has_batch) = self.adaptive_axes(NAME, size)?;
                let values = match self.requires_grad() {
                    // A gradient goes to the element whose index there is.
                    true => {
                        let [values, _] = x.max_of_windows_with_indices(NAME, &axes)?;
                        values
                    }
                    false => x.max_of_windows(NAME, &axes)?,
                };
                values.without_batch(has_batch)
            }

            #[doc = concat!("[`Tensor::", stringify!($maximum), "`], and where among the elements of its channel")]
            /// each is, in row-major order, `i64`: the first one of equals, or the last NaN.
            ///
            /// # Errors
            #[doc = concat!("The same errors as [`Tensor::", stringify!($average), "`].")]
            pub fn $with_indices(
                &self,
                output_size: impl OutputSize<$n>,
            ) -> RusTorchResult<(Self, Self)> {
                const NAME: &str = stringify!($with_indices);
                let size = output_size.output_size();
                let (axes, x, has_batch) = self.adaptive_axes(NAME, size)?;
                let found = x.max_of_windows_with_indices(NAME, &axes)?;
                let [values, indices] = found.each_ref().map(|x| x.without_batch(has_batch));
                Ok((values?, indices?))
            })*
        }
    };
}

adaptive_pools! {
    adaptive_avg_pool1d adaptive_max_pool1d adaptive_max_pool1d_with_indices = 1, "[n, c, l]";
    adaptive_avg_pool2d adaptive_max_pool2d adaptive_max_pool2d_with_indices = 2, "[n, c, h, w]";
    adaptive_avg_pool3d adaptive_max_pool3d adaptive_max_pool3d_with_indices
        = 3, "[n, c, d, h, w]";
}

impl Tensor {
    /// The windows, and `self` with a batch.
    pub(in crate::api::nn) fn adaptive_axes<const N: usize>(
        &self,
        name: &'static str,
        output_size: [Option<usize>; N],
    ) -> RusTorchResult<([Axis; N], Self, bool)> {
        let (x, has_batch) = self.with_batch(name, N)?;
        let sizes = &x.shape()[2..];
        let is_there = sizes.iter().all(|&size| size > 0);
        require(name, is_there, "dimensions with elements", self.ty())?;
        let mut axes = [Axis::adaptive(name, 1, 1)?; N];
        for (i, axis) in axes.iter_mut().enumerate() {
            *axis = Axis::adaptive(name, sizes[i], output_size[i].unwrap_or(sizes[i]))?;
        }
        Ok((axes, x, has_batch))
    }

    fn adaptive_mean<const N: usize>(
        &self,
        name: &'static str,
        output_size: [Option<usize>; N],
    ) -> RusTorchResult<Self> {
        self.require_float(name)?;
        let (axes, x, has_batch) = self.adaptive_axes(name, output_size)?;
        // Windows that are tiles of planes are those of a pool.
        let tiles = axes.iter().zip(&x.shape()[2..]).map(|(axis, &size)| {
            let side = size.checked_div(axis.count)?;
            (side > 0 && side * axis.count == size).then_some(side)
        });
        if let Some([down, across]) = tiles.collect::<Option<Vec<_>>>().as_deref() {
            let op = Pool2d {
                kind: PoolKind::Average,
                kernel: [*down, *across],
                stride: [*down, *across],
                padding: [0; 2],
                dilation: [1; 2],
                indices: None,
            };
            return Self::apply(name, op, &[&x])?.without_batch(has_batch);
        }
        let sums = x.widened(name)?.sum_of_windows(name, &axes)?;
        let members = Axis::members_of(&axes)?;
        let means = sums.div(&members.cast(name, sums.dtype())?)?;
        means.cast(name, self.dtype())?.without_batch(has_batch)
    }
}
