//! Modules for shapes, sizes, and distances.

use rustorch_macros::track_calls;
use rustorch_tensor::nn::{InterpolateMode, InterpolateOptions, InterpolateSize};
use rustorch_tensor::{Patches, RusTorchResult, Tensor};

use super::layers::layers;
use super::{Forward, Module};

layers! {
    /// Flattens dimensions into one.
    Flatten {
        /// The first.
        start_dim: isize = 1,
        /// The last.
        end_dim: isize = -1,
    } => |x| x.flatten(start_dim, end_dim);
}

layers! {
    /// Splits a dimension into several.
    Unflatten(
        /// Which.
        dim: isize,
        /// Their sizes; one may be −1.
        unflattened_size: Vec<isize>,
    ) => |x| x.unflatten(dim, unflattened_size);
    /// Channels moved to space: `[…, c · r², h, w]` becomes `[…, c, h · r, w · r]`.
    PixelShuffle(
        /// The factor `r`.
        upscale_factor: usize,
    ) => |x| x.pixel_shuffle(upscale_factor);
    /// Space moved to channels: `[…, c, h · r, w · r]` becomes `[…, c · r², h, w]`.
    PixelUnshuffle(
        /// The factor `r`.
        downscale_factor: usize,
    ) => |x| x.pixel_unshuffle(downscale_factor);
    /// Shuffles the channels of groups.
    ChannelShuffle(
        /// Number of groups.
        groups: usize,
    ) => |x| x.channel_shuffle(groups);
    /// Resizes `[n, c, …]`.
    Upsample(
        /// The size, or the factor to the operand's.
        size: InterpolateSize,
    ) {
        /// Interpolation between elements.
        mode: InterpolateMode = InterpolateMode::Nearest,
        /// Aligns the centres of the corner elements, not their outer edges.
        align_corners: bool = false,
    } => |x| {
        let options = InterpolateOptions { mode, align_corners, ..Default::default() };
        x.interpolate(size, &options)
    };
}

/// Windows of images as columns: [`Tensor::im2col`].
#[derive(Debug, Module)]
pub struct Unfold {
    /// The windows.
    #[module(skip)]
    pub patches: Patches,
}

#[track_calls(Unfold)]
impl Forward for Unfold {
    fn forward(&self, x: &Tensor) -> RusTorchResult<Tensor> {
        x.im2col(self.patches)
    }
}

/// Columns added up into images: [`Tensor::col2im`].
#[derive(Debug, Module)]
pub struct Fold {
    /// Height and width of the images.
    #[module(skip)]
    pub output_size: [usize; 2],
    /// The windows.
    #[module(skip)]
    pub patches: Patches,
}

#[track_calls(Fold)]
impl Forward for Fold {
    fn forward(&self, x: &Tensor) -> RusTorchResult<Tensor> {
        x.col2im(self.output_size, self.patches)
    }
}

/// The cosine of the angle between vectors along a dimension.
#[derive(Debug, Module)]
pub struct CosineSimilarity {
    /// The dimension.
    #[module(skip)]
    pub dim: isize,
    /// A lower bound of the lengths.
    #[module(skip)]
    pub eps: f64,
}

impl Default for CosineSimilarity {
    fn default() -> Self {
        Self { dim: 1, eps: 1e-8 }
    }
}

#[track_calls(CosineSimilarity)]
impl CosineSimilarity {
    super::layers::setters!(dim: isize; eps: f64;);

    /// The similarity of these vectors.
    ///
    /// # Errors
    /// The same errors as [`Tensor::cosine_similarity`].
    pub fn forward(&self, x1: &Tensor, x2: &Tensor) -> RusTorchResult<Tensor> {
        x1.cosine_similarity(x2, self.dim, self.eps)
    }
}

/// The distance between vectors along the last dimension.
#[derive(Debug, Module)]
pub struct PairwiseDistance {
    /// The order of the norm.
    #[module(skip)]
    pub p: f64,
    /// A small number added to differences.
    #[module(skip)]
    pub eps: f64,
    /// Keeps the last dimension, with size 1.
    #[module(skip)]
    pub keepdim: bool,
}

impl Default for PairwiseDistance {
    fn default() -> Self {
        Self {
            p: 2.0,
            eps: 1e-6,
            keepdim: false,
        }
    }
}

#[track_calls(PairwiseDistance)]
impl PairwiseDistance {
    super::layers::setters!(p: f64; eps: f64; keepdim: bool;);

    /// The distance of these vectors.
    ///
    /// # Errors
    /// The same errors as [`Tensor::pairwise_distance`].
    pub fn forward(&self, x1: &Tensor, x2: &Tensor) -> RusTorchResult<Tensor> {
        x1.pairwise_distance(x2, self.p, self.eps, self.keepdim)
    }
}
