//! Pooling: maxima and means of windows, and the reverse of max-pooling.

mod adaptive;
mod average;
mod fractional;
mod maximum;
mod unpool;

pub use average::AvgPoolOptions;
pub(super) use average::divisors;
pub use fractional::FractionalSize;
pub use maximum::MaxPoolOptions;

use rustorch_ir::OpError;

use super::windows::Side;
use crate::Tensor;
use crate::error::{RusTorchResult, require};

/// Layout of windows in each dimension.
#[derive(Clone, Copy)]
pub(super) struct Windows<const N: usize> {
    kernel: [usize; N],
    stride: [usize; N],
    padding: [usize; N],
    dilation: [usize; N],
    ceil_mode: bool,
}

impl<const N: usize> Windows<N> {
    /// The windows of `x` `[…, sizes]`.
    pub(super) fn sides(&self, name: &'static str, x: &Tensor) -> RusTorchResult<[Side; N]> {
        let (lead, sizes) = x.shape().split_at(x.rank() - N);
        // Only the batch may be empty.
        let channels_and_sizes = lead.last().into_iter().chain(sizes);
        let is_there = channels_and_sizes.clone().all(|&n| n > 0);
        require(name, is_there, "elements in all but the batch", x.ty())?;
        let mut found = [None; N];
        for i in 0..N {
            found[i] = self.side(i, sizes[i]);
        }
        let sides: Vec<Side> = found.into_iter().flatten().collect();
        <[Side; N]>::try_from(sides).map_err(|_| {
            let expected = "a window that fits, kernel, stride and dilation > 0, padding of at \
                            most half the window";
            let got = format_args!(
                "{}, kernel {:?}, stride {:?}, padding {:?}, dilation {:?}",
                x.ty(),
                self.kernel,
                self.stride,
                self.padding,
                self.dilation
            );
            OpError::new(name, expected, got).into()
        })
    }

    fn side(&self, i: usize, size: usize) -> Option<Side> {
        let (kernel, stride) = (self.kernel[i], self.stride[i]);
        let (padding, dilation) = (self.padding[i], self.dilation[i]);
        if kernel == 0 || stride == 0 || dilation == 0 {
            return None;
        }
        let reach = dilation.checked_mul(kernel - 1)?.checked_add(1)?;
        let padded = size.checked_add(padding.checked_mul(2)?)?;
        let room = match self.ceil_mode {
            true => padded.checked_add(stride - 1)?,
            false => padded,
        };
        let mut count = room.checked_sub(reach)? / stride + 1;
        // The last window begins in the tensor or the padding in front.
        if self.ceil_mode && (count - 1).checked_mul(stride)? >= size + padding {
            count -= 1;
        }
        let side = Side {
            size,
            kernel,
            stride,
            padding,
            dilation,
            count,
        };
        (padding <= reach / 2 && count > 0).then_some(side)
    }
}

/// Are windows dense rows one behind another, as where a dimension is not pooled?
const UNTOUCHED: Side = Side {
    size: 1,
    kernel: 1,
    stride: 1,
    padding: 0,
    dilation: 1,
    count: 1,
};

impl Side {
    /// Every index is a window.
    fn each(size: usize) -> Self {
        Self {
            size,
            count: size,
            ..UNTOUCHED
        }
    }
}
