//! Geometric changes of pictures `[c, h, w]` of bytes or `f32`.

use rustorch_ir::DType;
use rustorch_tensor::{Element, Tensor};

use super::Transform;
use crate::error::{DataError, DataResult};
use crate::order::Random;

/// A random crop of the picture, with `padding` zeros on each side.
#[derive(Clone, Copy, Debug)]
pub struct RandomCrop {
    /// Rows of the crop.
    pub height: usize,
    /// Columns of the crop.
    pub width: usize,
    /// Zeros added on each side first.
    pub padding: usize,
}

impl Transform for RandomCrop {
    fn apply(&self, tensor: Tensor, random: &mut Random) -> DataResult<Tensor> {
        let [_, height, width] = sides(&tensor)?;
        let mut first = |size: usize, part: usize| {
            let room = (size + 2 * self.padding).checked_sub(part)?;
            Some(random.below(room + 1) as isize - self.padding as isize)
        };
        let first = first(height, self.height).zip(first(width, self.width));
        let (top, left) = first.ok_or_else(|| too_large([self.height, self.width], &tensor))?;
        let size = [self.height, self.width];
        moved(&tensor, size, |y, x| (y as isize + top, x as isize + left))
    }
}

/// The centre of the picture.
#[derive(Clone, Copy, Debug)]
pub struct CenterCrop {
    /// Rows of the crop.
    pub height: usize,
    /// Columns of the crop.
    pub width: usize,
}

impl Transform for CenterCrop {
    fn apply(&self, tensor: Tensor, _: &mut Random) -> DataResult<Tensor> {
        let [_, height, width] = sides(&tensor)?;
        let size = [self.height, self.width];
        if self.height > height || self.width > width {
            return Err(too_large(size, &tensor));
        }
        let (top, left) = ((height - self.height) / 2, (width - self.width) / 2);
        moved(&tensor, size, |y, x| {
            ((y + top) as isize, (x + left) as isize)
        })
    }
}

/// A random horizontal flip.
#[derive(Clone, Copy, Debug)]
pub struct RandomHorizontalFlip {
    /// Probability of flipping.
    pub probability: f64,
}

impl Transform for RandomHorizontalFlip {
    fn apply(&self, tensor: Tensor, random: &mut Random) -> DataResult<Tensor> {
        let [_, height, width] = sides(&tensor)?;
        match random.uniform() < self.probability {
            true => moved(&tensor, [height, width], |y, x| {
                (y as isize, (width - 1 - x) as isize)
            }),
            false => Ok(tensor),
        }
    }
}

/// Resizes the picture by linear interpolation with `antialias`, as torchvision does: each pixel is
/// a mean of the pixels that it covers. Bytes are rounded.
#[derive(Clone, Copy, Debug)]
pub struct Resize {
    /// Rows of the result.
    pub height: usize,
    /// Columns of the result.
    pub width: usize,
}

impl Transform for Resize {
    fn apply(&self, tensor: Tensor, _: &mut Random) -> DataResult<Tensor> {
        let [channels, height, width] = sides(&tensor)?;
        let is_empty = tensor.numel() == 0 || self.height * self.width == 0;
        if is_empty {
            return Err(too_large([self.height, self.width], &tensor));
        }
        let values = tensor.to_dtype(DType::F32)?.to_vec::<f32>()?;
        // Rows of all channels, then columns.
        let across = shares(width, self.width);
        let narrow: Vec<f32> = (values.chunks_exact(width))
            .flat_map(|row| {
                across
                    .iter()
                    .map(|(first, shares)| sum(&row[*first..], 1, shares))
            })
            .collect();
        let down = shares(height, self.height);
        let mut out = Vec::with_capacity(channels * self.height * self.width);
        for plane in narrow.chunks_exact(height * self.width) {
            for (first, shares) in &down {
                let rows = &plane[first * self.width..];
                out.extend((0..self.width).map(|x| sum(&rows[x..], self.width, shares)));
            }
        }
        let shape = [channels, self.height, self.width];
        match tensor.dtype() {
            DType::U8 => {
                let bytes: Vec<u8> = out.into_iter().map(|value| value.round() as u8).collect();
                Ok(Tensor::from_vec(bytes, shape)?)
            }
            _ => Ok(Tensor::from_vec(out, shape)?),
        }
    }
}

/// For each of `to` places, the first of the `from` elements that count there, with their weights.
fn shares(from: usize, to: usize) -> Vec<(usize, Vec<f32>)> {
    let scale = from as f64 / to as f64;
    let reach = scale.max(1.0);
    (0..to)
        .map(|place| {
            let center = (place as f64 + 0.5) * scale;
            let first = (center - reach + 0.5).max(0.0) as usize;
            let end = ((center + reach + 0.5) as usize).min(from);
            let share = |i: usize| (1.0 - ((i as f64 + 0.5 - center) / reach).abs()).max(0.0);
            let all: f64 = (first..end).map(share).sum();
            (
                first,
                (first..end).map(|i| (share(i) / all) as f32).collect(),
            )
        })
        .collect()
}

/// The sum of elements `stride` apart by their shares.
fn sum(values: &[f32], stride: usize, shares: &[f32]) -> f32 {
    let products = values.iter().step_by(stride).zip(shares);
    products.map(|(value, share)| value * share).sum()
}

/// The sides of a picture.
fn sides(tensor: &Tensor) -> DataResult<[usize; 3]> {
    match (tensor.dtype(), tensor.shape()) {
        (DType::U8 | DType::F32, &[channels, height, width]) => Ok([channels, height, width]),
        (dtype, shape) => Err(DataError::Other(format!(
            "expected a picture [c, h, w] of u8 or f32, got {dtype}{shape:?}"
        ))),
    }
}

fn too_large([height, width]: [usize; 2], tensor: &Tensor) -> DataError {
    let shape = tensor.shape();
    DataError::Other(format!(
        "expected a picture of at least {height} × {width}, got {shape:?}"
    ))
}

/// Pixels that each come from another place, as row and column, or are 0 where that is outside.
fn moved(
    tensor: &Tensor,
    size: [usize; 2],
    from: impl Fn(usize, usize) -> (isize, isize),
) -> DataResult<Tensor> {
    match tensor.dtype() {
        DType::U8 => moved_as::<u8>(tensor, size, from),
        _ => moved_as::<f32>(tensor, size, from),
    }
}

fn moved_as<T: Element + Copy + Default>(
    tensor: &Tensor,
    [rows, columns]: [usize; 2],
    from: impl Fn(usize, usize) -> (isize, isize),
) -> DataResult<Tensor> {
    let [channels, height, width] = sides(tensor)?;
    let pixels = tensor.to_vec::<T>()?;
    let places: Vec<Option<usize>> = (0..rows)
        .flat_map(|y| (0..columns).map(move |x| (y, x)))
        .map(|(y, x)| {
            let (y, x) = from(y, x);
            let (y, x) = (usize::try_from(y).ok()?, usize::try_from(x).ok()?);
            (y < height && x < width).then_some(y * width + x)
        })
        .collect();
    let pixel = |channel: usize, place: &Option<usize>| {
        place.map_or(T::default(), |place| {
            pixels[channel * height * width + place]
        })
    };
    let out: Vec<T> = (0..channels)
        .flat_map(|channel| places.iter().map(move |place| (channel, place)))
        .map(|(channel, place)| pixel(channel, place))
        .collect();
    Ok(Tensor::from_vec(out, [channels, rows, columns])?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picture(height: usize, width: usize) -> Tensor {
        let pixels: Vec<u8> = (0..2 * height * width).map(|i| i as u8 + 1).collect();
        Tensor::from_vec(pixels, [2, height, width]).unwrap()
    }

    #[test]
    fn parts_and_mirror_images() {
        let random = &mut Random::of_sample(0, 0, 0);
        let bytes = |tensor: Tensor| tensor.to_vec::<u8>().unwrap();
        let part = CenterCrop {
            height: 1,
            width: 2,
        };
        let middle = part.apply(picture(3, 4), random).unwrap();
        assert_eq!(bytes(middle), [6, 7, 18, 19]);
        let flip = RandomHorizontalFlip { probability: 1.0 };
        assert_eq!(
            bytes(flip.apply(picture(1, 3), random).unwrap()),
            [3, 2, 1, 6, 5, 4]
        );
        let never = RandomHorizontalFlip { probability: 0.0 };
        assert_eq!(
            bytes(never.apply(picture(1, 3), random).unwrap()),
            [1, 2, 3, 4, 5, 6]
        );
        // Each of the nine places, with zeros around.
        let crop = RandomCrop {
            height: 2,
            width: 2,
            padding: 1,
        };
        let mut seen = std::collections::BTreeSet::new();
        for index in 0..200 {
            let random = &mut Random::of_sample(1, 0, index);
            seen.insert(bytes(crop.apply(picture(2, 2), random).unwrap())[..4].to_vec());
        }
        assert_eq!(seen.len(), 9);
        assert!(seen.contains(&vec![0, 0, 0, 1]) && seen.contains(&vec![1, 2, 3, 4]));
        let large = RandomCrop {
            height: 5,
            width: 1,
            padding: 1,
        };
        assert!(large.apply(picture(2, 2), random).is_err());
        assert!(
            flip.apply(Tensor::from_vec(vec![1u8], 1).unwrap(), random)
                .is_err()
        );
    }

    #[test]
    fn sizes_change_by_means_as_torchvision_has_them() {
        // torch.nn.functional.interpolate(x, mode="bilinear", antialias=True) of 0 to 11.
        let pixels: Vec<f32> = (0..12).map(|i| i as f32).collect();
        let image = Tensor::from_vec(pixels, [1, 3, 4]).unwrap();
        let random = &mut Random::of_sample(0, 0, 0);
        let resize = |height, width| Resize { height, width };
        let smaller = resize(2, 2).apply(image.clone(), random).unwrap();
        let near = |a: Vec<f32>, b: &[f32]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-5);
        assert!(
            near(
                smaller.to_vec().unwrap(),
                &[2.214_286, 3.785_714, 7.214_286, 8.785_714]
            ),
            "{smaller:?}"
        );
        let expected = [
            0.0, 0.7, 1.5, 2.3, 3.0, 4.0, 4.7, 5.5, 6.3, 7.0, 8.0, 8.7, 9.5, 10.3, 11.0,
        ];
        let larger = resize(3, 5).apply(image.clone(), random).unwrap();
        assert!(near(larger.to_vec().unwrap(), &expected), "{larger:?}");
        let same = resize(3, 4).apply(image.clone(), random).unwrap();
        assert_eq!(
            same.to_vec::<f32>().unwrap(),
            image.to_vec::<f32>().unwrap()
        );
        assert!(resize(0, 4).apply(image, random).is_err());
    }
}
