//! Transforms of values.

use rustorch_ir::DType;
use rustorch_tensor::Tensor;

use super::Transform;
use crate::error::{DataError, DataResult};
use crate::order::Random;

/// Bytes from 0 to 255 become `f32` from 0 to 1; other elements become `f32`.
#[derive(Clone, Copy, Debug)]
pub struct ToFloat;

impl Transform for ToFloat {
    fn apply(&self, tensor: Tensor, _: &mut Random) -> DataResult<Tensor> {
        let scale = match tensor.dtype() {
            DType::U8 => 255.0,
            _ => 1.0,
        };
        let values = tensor.to_dtype(DType::F32)?.to_vec::<f32>()?;
        let values = values.into_iter().map(|value| value / scale).collect();
        Ok(Tensor::from_vec(values, tensor.shape())?)
    }
}

/// `(x - mean) / std` of each channel of a picture `[c, …]`, `f32`.
#[derive(Clone, Debug)]
pub struct Normalize {
    /// One for each channel.
    pub mean: Vec<f32>,
    /// One for each channel, none of them 0.
    pub std: Vec<f32>,
}

impl Transform for Normalize {
    fn apply(&self, tensor: Tensor, _: &mut Random) -> DataResult<Tensor> {
        let channels = tensor.shape().first().copied().unwrap_or(0);
        let fits = [self.mean.len(), self.std.len()] == [channels; 2];
        if tensor.dtype() != DType::F32 || !fits || self.std.contains(&0.0) {
            return Err(DataError::Other(format!(
                "Normalize: expected f32 with a mean and a std, not 0, for each channel, got {}{:?} and {self:?}",
                tensor.dtype(),
                tensor.shape()
            )));
        }
        let mut values = tensor.to_vec::<f32>()?;
        let pixels = values.len().checked_div(channels).unwrap_or(0).max(1);
        for (values, (mean, std)) in values
            .chunks_exact_mut(pixels)
            .zip(self.mean.iter().zip(&self.std))
        {
            values
                .iter_mut()
                .for_each(|value| *value = (*value - mean) / std);
        }
        Ok(Tensor::from_vec(values, tensor.shape())?)
    }
}

/// One-hot vectors: class indices, an integer tensor `[…]`, become `f32` `[…, classes]`.
#[derive(Clone, Copy, Debug)]
pub struct OneHot {
    /// Number of classes.
    pub classes: usize,
}

impl Transform for OneHot {
    fn apply(&self, tensor: Tensor, _: &mut Random) -> DataResult<Tensor> {
        let numbers = tensor.to_dtype(DType::I64)?.to_vec::<i64>()?;
        let mut values = vec![0.0f32; numbers.len() * self.classes];
        let rows = values.chunks_exact_mut(self.classes.max(1));
        for (row, &number) in rows.zip(&numbers) {
            let place = usize::try_from(number).ok().and_then(|i| row.get_mut(i));
            *place.ok_or_else(|| {
                DataError::Other(format!(
                    "OneHot: expected a class below {}, got {number}",
                    self.classes
                ))
            })? = 1.0;
        }
        let shape: Vec<usize> = tensor
            .shape()
            .iter()
            .copied()
            .chain([self.classes])
            .collect();
        Ok(Tensor::from_vec(values, shape)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_as_defined() {
        let random = &mut Random::of_sample(0, 0, 0);
        let image = Tensor::from_vec(vec![0u8, 255, 51, 102], [2, 1, 2]).unwrap();
        let image = ToFloat.apply(image, random).unwrap();
        assert_eq!(image.to_vec::<f32>().unwrap(), [0.0, 1.0, 0.2, 0.4]);
        let normalize = Normalize {
            mean: vec![0.5, 0.0],
            std: vec![0.5, 2.0],
        };
        let normal = normalize.apply(image.clone(), random).unwrap();
        assert_eq!(normal.to_vec::<f32>().unwrap(), [-1.0, 1.0, 0.1, 0.2]);
        let wrong = Normalize {
            mean: vec![0.5],
            std: vec![0.5],
        };
        assert!(wrong.apply(image, random).is_err());
        let none = Normalize {
            mean: Vec::new(),
            std: Vec::new(),
        };
        let nothing = Tensor::from_vec(Vec::<f32>::new(), [0, 2]).unwrap();
        assert_eq!(none.apply(nothing, random).unwrap().shape(), [0, 2]);
        let class = |number: i64| Tensor::from_vec(vec![number], []).unwrap();
        let one_hot = OneHot { classes: 2 };
        let vector = one_hot.apply(class(1), random).unwrap();
        assert_eq!(
            (vector.shape(), vector.to_vec::<f32>().unwrap()),
            (&[2][..], vec![0.0, 1.0])
        );
        for number in [2, -1] {
            let error = one_hot
                .apply(class(number), random)
                .unwrap_err()
                .to_string();
            let said = format!("OneHot: expected a class below 2, got {number}");
            assert_eq!(error, said);
        }
    }
}
