//! Patches of images as columns, and back: `torch.nn.functional`'s `unfold` and `fold`. Pairs are
//! (height, width).

use rustorch_ir::ops::{Scatter, ScatterMode};
use rustorch_ir::{DType, Layout, OpError};
use rustorch_macros::track_calls;

use crate::Tensor;
use crate::error::{RusTorchResult, require};

/// The windows of patches. PyTorch's defaults are a dilation and stride of 1 and no padding.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Patches {
    /// Size of a window.
    pub kernel: [usize; 2],
    /// Distance between neighbouring elements of a window.
    pub dilation: [usize; 2],
    /// Zeros added on each side.
    pub padding: [usize; 2],
    /// Distance between neighbouring windows.
    pub stride: [usize; 2],
}

impl Patches {
    /// Number of windows along each dimension of an image of this size.
    pub(crate) fn windows(
        &self,
        name: &'static str,
        image: [usize; 2],
    ) -> RusTorchResult<[usize; 2]> {
        let along = |i: usize| {
            let reach = self.dilation[i].checked_mul(self.kernel[i].checked_sub(1)?)?;
            let padded = self.padding[i].checked_mul(2)?.checked_add(image[i])?;
            let steps = padded.checked_sub(reach.checked_add(1)?)?;
            let legal = self.dilation[i] > 0;
            steps
                .checked_div(self.stride[i])
                .filter(|_| legal)?
                .checked_add(1)
        };
        let got = || OpError::new(name, "windows that fit", format!("{self:?} on {image:?}"));
        Ok([along(0).ok_or_else(got)?, along(1).ok_or_else(got)?])
    }

    /// Elements of a window.
    fn elements(&self) -> usize {
        self.kernel[0] * self.kernel[1]
    }
}

/// `[n, c, …]` with a batch dimension, and whether it was put in.
fn batched(name: &'static str, x: &Tensor, rank: usize) -> RusTorchResult<(Tensor, bool)> {
    let expected = format_args!("rank {rank}, or {} without a batch", rank - 1);
    let alone = x.rank() + 1 == rank;
    require(name, x.rank() == rank || alone, expected, x.ty())?;
    match alone {
        true => Ok((x.unsqueeze(0)?, true)),
        false => Ok((x.clone(), false)),
    }
}

fn unbatched(x: Tensor, alone: bool) -> RusTorchResult<Tensor> {
    match alone {
        true => x.squeeze(0),
        false => Ok(x),
    }
}

#[track_calls]
impl Tensor {
    /// The windows of images `[n, c, h, w]`, or of one `[c, h, w]`, as columns `[n, c · kernel
    /// elements, windows]`: `torch.nn.functional.unfold`.
    ///
    /// # Errors
    /// Fails for an unsupported rank, images without channels or pixels, or windows that do not
    /// fit.
    pub fn im2col(&self, patches: Patches) -> RusTorchResult<Self> {
        const NAME: &str = "im2col";
        let (x, alone) = batched(NAME, self, 4)?;
        let &[n, c, h, w] = x.shape() else {
            return Err(OpError::new(NAME, "images", self.ty()).into());
        };
        let any = c > 0 && h > 0 && w > 0;
        require(NAME, any, "images with channels and pixels", self.ty())?;
        let Patches {
            kernel,
            dilation,
            padding,
            stride,
        } = patches;
        let windows = patches.windows(NAME, [h, w])?;
        let [top, left] = padding.map(|n| n as isize);
        let padded = x.pad([left, left, top, top], 0)?.contiguous()?;
        let seen = padded.restrided(NAME, |layout| {
            let [batch, channel, row, column] = [0, 1, 2, 3].map(|dim| layout.strides[dim]);
            let steps = [
                batch,
                channel,
                row * dilation[0],
                column * dilation[1],
                row * stride[0],
                column * stride[1],
            ];
            Layout {
                shape: [n, c, kernel[0], kernel[1], windows[0], windows[1]].into(),
                strides: steps.into_iter().collect(),
                offset: layout.offset,
            }
        })?;
        let columns = seen.reshape([n, c * patches.elements(), windows[0] * windows[1]])?;
        unbatched(columns, alone)
    }

    /// Adds the columns `[n, c · kernel elements, windows]`, or those of one image, at their positions in images `[n,
    /// c, size…]`: `torch.nn.functional.fold`.
    ///
    /// # Errors
    /// Fails for an unsupported rank or booleans. Also fails for columns whose length or number
    /// differs from the windows of such images.
    pub fn col2im(&self, size: [usize; 2], patches: Patches) -> RusTorchResult<Self> {
        const NAME: &str = "col2im";
        let (x, alone) = batched(NAME, self, 3)?;
        let windows = patches.windows(NAME, size)?;
        let Patches {
            kernel,
            dilation,
            padding,
            stride,
        } = patches;
        let (elements, count) = (patches.elements(), windows[0] * windows[1]);
        let &[n, columns, given] = x.shape() else {
            return Err(OpError::new(NAME, "columns", self.ty()).into());
        };
        let fits = columns.is_multiple_of(elements) && given == count;
        let expected = format_args!("columns [n, c * {elements}, {count}]");
        require(NAME, fits, expected, self.ty())?;
        let channels = columns / elements;
        let padded = [size[0] + 2 * padding[0], size[1] + 2 * padding[1]];
        let line =
            |n: usize, step: usize| Self::arange_with(0, n as i64, 1, DType::I64)?.mul(step as i64);
        // Place of each element of each window along one dimension, [kernel, windows].
        let along = |i: usize| {
            let inside = line(kernel[i], dilation[i])?.unsqueeze(1)?;
            inside.add(&line(windows[i], stride[i])?)
        };
        let rows = along(0)?
            .mul(padded[1] as i64)?
            .unsqueeze(1)?
            .unsqueeze(3)?;
        let places = rows.add(&along(1)?.unsqueeze(1)?.unsqueeze(0)?)?;
        let places = places
            .reshape([elements * count])?
            .expand([n, channels, elements * count])?;
        let image = Self::zeros([n, channels, padded[0] * padded[1]], self.dtype())?;
        let source = x.reshape([n, channels, elements * count])?;
        let op = Scatter {
            dim: 2,
            mode: ScatterMode::Add,
        };
        let image = Self::apply(NAME, op, &[&image, &places, &source])?;
        let image = image.reshape([n, channels, padded[0], padded[1]])?;
        let inside = image
            .narrow(2, padding[0], size[0])?
            .narrow(3, padding[1], size[1])?;
        unbatched(inside, alone)
    }
}
