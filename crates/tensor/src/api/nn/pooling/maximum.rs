//! Max-pooling.

use rustorch_ir::ops::{Pool2d, PoolIndices, PoolKind};

use super::Windows;
use crate::api::nn::windows::{Axis, Side};
use crate::args::windowed::{PerDim, window_options};
use crate::error::{RusTorchResult, require};
use crate::{Tensor, is_grad_enabled};

/// The optional arguments of max-pooling over windows of `N` dimensions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MaxPoolOptions<const N: usize> {
    /// Distance between windows; by default the kernel's size.
    pub stride: Option<[usize; N]>,
    /// Padding around the tensor, counted as −∞; at most half a window.
    pub padding: [usize; N],
    /// Distance between the elements of a window.
    pub dilation: [usize; N],
    /// Allows the last window to exceed the end.
    pub ceil_mode: bool,
}

impl<const N: usize> Default for MaxPoolOptions<N> {
    fn default() -> Self {
        Self {
            stride: None,
            padding: [0; N],
            dilation: [1; N],
            ceil_mode: false,
        }
    }
}

window_options! {
    MaxPoolOptions: [padding, dilation] [stride] {ceil_mode: bool};
}

/// Two methods for each line: their names, number of dimensions, shape.
macro_rules! max_pools {
    ($($name:ident $with_indices:ident = $n:literal, $shape:literal;)*) => {
        #[rustorch_macros::track_calls]
        impl Tensor {
            $(#[doc = concat!("The largest element of each window of `kernel` elements of `self` `", $shape, "`;")]
            /// NaN if one element is NaN. The batch dimension of `self` is optional. Takes floats
            /// and integers.
            ///
            /// # Errors
            /// Fails for an unsupported shape or dtype, or a window that does not fit. Also fails
            /// for a kernel, stride or dilation of 0, or for padding above half a window.
            pub fn $name(
                &self,
                kernel: impl PerDim<$n>,
                options: &MaxPoolOptions<$n>,
            ) -> RusTorchResult<Self> {
                let [values, _] = self.max_pooled(stringify!($name), kernel.per_dim(), options, false)?;
                Ok(values)
            }

            #[doc = concat!("[`Tensor::", stringify!($name), "`], and where among the elements of its channel each is,")]
            /// in row-major order, `i64`: the first one of equals.
            ///
            /// # Errors
            #[doc = concat!("The same errors as [`Tensor::", stringify!($name), "`].")]
            pub fn $with_indices(
                &self,
                kernel: impl PerDim<$n>,
                options: &MaxPoolOptions<$n>,
            ) -> RusTorchResult<(Self, Self)> {
                let [values, indices] =
                    self.max_pooled(stringify!($with_indices), kernel.per_dim(), options, true)?;
                Ok((values, indices))
            })*
        }
    };
}

max_pools! {
    max_pool1d max_pool1d_with_indices = 1, "[n, c, l]";
    max_pool2d max_pool2d_with_indices = 2, "[n, c, h, w]";
    max_pool3d max_pool3d_with_indices = 3, "[n, c, d, h, w]";
}

impl Tensor {
    /// Values and indices, which are the values again where they are not wanted.
    fn max_pooled<const N: usize>(
        &self,
        name: &'static str,
        kernel: [usize; N],
        options: &MaxPoolOptions<N>,
        indices: bool,
    ) -> RusTorchResult<[Self; 2]> {
        let (x, has_batch) = self.with_batch(name, N)?;
        let windows = Windows {
            kernel,
            stride: options.stride.unwrap_or(kernel),
            padding: options.padding,
            dilation: options.dilation,
            ceil_mode: options.ceil_mode,
        };
        let sides = windows.sides(name, &x)?;
        let axes = || sides.iter().map(Side::axis).collect::<Vec<Axis>>();
        let results = match (self.dtype().is_float(), indices) {
            (true, _) => x.max_of_floats(name, &sides, indices)?,
            (false, true) => {
                require(name, self.dtype().is_int(), "floats or integers", self.ty())?;
                x.max_of_windows_with_indices(name, &axes())?
            }
            (false, false) => {
                let values = x.max_of_windows(name, &axes())?;
                [values.clone(), values]
            }
        };
        let [values, indices] = results.each_ref().map(|x| x.without_batch(has_batch));
        Ok([values?, indices?])
    }

    /// The largest floats `[n, c, …]`, by the operation on images.
    fn max_of_floats(
        &self,
        name: &'static str,
        sides: &[Side],
        indices: bool,
    ) -> RusTorchResult<[Self; 2]> {
        match *sides {
            [side] => {
                let lines = self.unsqueeze(2)?;
                let found = lines.max_of_planes(name, [Side::each(1), side], indices)?;
                let [values, indices] = found.each_ref().map(|x| x.squeeze(2));
                Ok([values?, indices?])
            }
            [down, across] => self.max_of_planes(name, [down, across], indices),
            [deep, down, across] => {
                let [plane, columns] = [down.size * across.size, down.count * across.count];
                // A gradient is that of elements at their places, all added up in the order of the windows.
                let by_place = self.requires_grad() && sides.iter().all(Side::has_all);
                let x = match by_place {
                    true => self.detach(),
                    false => self.clone(),
                };
                let planes = x.flatten(1, 2)?;
                let indices = indices || by_place;
                let [values, places] = planes.max_of_planes(name, [down, across], indices)?;
                let shape = [self.shape()[0], self.shape()[1], deep.size, columns];
                let flat = values.reshape(shape)?;
                let sides = [deep, Side::each(columns)];
                let [values, best] = flat.max_of_planes(name, sides, indices)?;
                let counts = [shape[0], shape[1], deep.count, down.count, across.count];
                let values = values.reshape(counts)?;
                if !indices {
                    return Ok([values.clone(), values]);
                }
                // Which depth was best, and where in the plane of that depth.
                let best = best.flatten(2, 3)?;
                let depth = best.floor_divide(columns as i64)?;
                let place = places.reshape([shape[0], shape[1], deep.size * columns])?;
                let place = place.gather(2, &best)?.add(&depth.mul(plane as i64)?)?;
                let values = match by_place {
                    true => self.flatten(2, -1)?.gather(2, &place)?.reshape(counts)?,
                    false => values,
                };
                Ok([values, place.reshape(counts)?])
            }
            _ => Ok([self.clone(), self.clone()]),
        }
    }

    /// The largest floats of windows in planes `[n, c, h, w]`.
    fn max_of_planes(
        &self,
        name: &'static str,
        sides: [Side; 2],
        indices: bool,
    ) -> RusTorchResult<[Self; 2]> {
        // What the operation does not pad by itself: beyond half the kernel, or behind alone.
        let own = |side: &Side| match side.padding <= side.kernel / 2 {
            true => side.padding,
            false => 0,
        };
        let around = sides.each_ref().map(|side| {
            let rest = side.padding - own(side);
            (rest, rest + side.excess())
        });
        let x = self.surrounded(name, &around, f64::NEG_INFINITY)?;
        let [kernel, dilation] = [
            sides.each_ref().map(|side| side.kernel),
            sides.each_ref().map(|side| side.dilation),
        ];
        let places = match indices {
            true => Some(PoolIndices::Plane),
            // Gradients follow from them.
            false => (is_grad_enabled() && x.is_tracked())
                .then(|| PoolIndices::narrowest(kernel, dilation)),
        };
        let op = Pool2d {
            kind: PoolKind::Max,
            kernel,
            stride: sides.map(|side| side.stride),
            padding: sides.each_ref().map(own),
            dilation,
            indices: places,
        };
        if op.indices.is_none() {
            let values = Self::apply(name, op, &[&x])?;
            return Ok([values.clone(), values]);
        }
        let [values, places] = Self::apply_all(name, op, &[&x])?;
        if !indices {
            return Ok([values.clone(), values]);
        }
        let mut indices = places;
        let (from, to) = (x.shape()[3], sides[1].size);
        if around != [(0, 0); 2] {
            let row = indices.floor_divide(from as i64)?.sub(around[0].0 as i64)?;
            let column = indices.remainder(from as i64)?.sub(around[1].0 as i64)?;
            indices = row.mul(to as i64)?.add(&column)?;
        }
        Ok([values, indices])
    }
}
