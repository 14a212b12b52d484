//! Pictures of the crate `image` (feature `image`), which reads and writes their files if the
//! program enables its formats.

use image::{DynamicImage, GrayAlphaImage, GrayImage, RgbImage, RgbaImage};
use rustorch_ir::OpError;
use rustorch_macros::track_calls;
use rustorch_tensor::{RusTorchResult, Tensor};

/// A picture as a `u8` tensor `[C, H, W]` of 0 to 255: grey or RGB, with or without alpha. Pictures
/// of other depths are converted to 8 bits. The memory keeps the picture's order, so the tensor is
/// a view of `[H, W, C]`.
///
/// # Errors
/// Fails for a shape too large for memory.
#[track_calls]
pub fn from_image(image: DynamicImage) -> RusTorchResult<Tensor> {
    let (width, height) = (image.width() as usize, image.height() as usize);
    let channels = usize::from(image.color().channel_count());
    let bytes = match channels {
        1 => image.into_luma8().into_raw(),
        2 => image.into_luma_alpha8().into_raw(),
        3 => image.into_rgb8().into_raw(),
        _ => image.into_rgba8().into_raw(),
    };
    Tensor::from_vec(bytes, [height, width, channels])?.permute([2, 0, 1])
}

/// A `u8` tensor `[C, H, W]` as a picture: one channel is grey, two are grey and alpha, three RGB,
/// four RGBA.
///
/// # Errors
/// Fails for an unsupported dtype, rank or number of channels, or if the tensor cannot be computed.
#[track_calls]
pub fn to_image(tensor: &Tensor) -> RusTorchResult<DynamicImage> {
    let made = match *tensor.shape() {
        [channels @ 1..=4, height, width] => {
            let bytes = tensor.permute([1, 2, 0])?.to_vec::<u8>()?;
            picture(channels, height, width, bytes)
        }
        _ => None,
    };
    let expected = "a u8 tensor [C, H, W] of one to four channels";
    let wrong = || {
        let got = format_args!("{}{:?}", tensor.dtype(), tensor.shape());
        OpError::new("to_image", expected, got)
    };
    Ok(made.ok_or_else(wrong)?)
}

/// A picture of bytes in the order height, width, channels.
fn picture(channels: usize, height: usize, width: usize, bytes: Vec<u8>) -> Option<DynamicImage> {
    let (w, h) = (u32::try_from(width).ok()?, u32::try_from(height).ok()?);
    Some(match channels {
        1 => DynamicImage::ImageLuma8(GrayImage::from_raw(w, h, bytes)?),
        2 => DynamicImage::ImageLumaA8(GrayAlphaImage::from_raw(w, h, bytes)?),
        3 => DynamicImage::ImageRgb8(RgbImage::from_raw(w, h, bytes)?),
        _ => DynamicImage::ImageRgba8(RgbaImage::from_raw(w, h, bytes)?),
    })
}
