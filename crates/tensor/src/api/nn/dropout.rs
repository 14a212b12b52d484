//! Dropout in its forms.
//!
//! Each function draws from the generator of [`manual_seed`](crate::manual_seed). Outside training
//! they return the tensor itself.

use rustorch_ir::DType;
use rustorch_macros::track_calls;

use crate::Tensor;
use crate::error::{RusTorchResult, require, require_dtype};

/// The value of dropped elements, and the scale of the others.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// 0; the other elements are scaled so that sums keep their mean.
    Zero,
    /// The value of SELU at −∞; scale and shift keep mean and variance ([Klambauer et
    /// al.](https://arxiv.org/abs/1706.02515)).
    Alpha,
}

#[track_calls]
impl Tensor {
    /// In training, sets each element to 0 with probability `p` and multiplies the others by
    /// `1 / (1 - p)`. Takes floats and complex numbers.
    ///
    /// # Errors
    /// Fails for an unsupported dtype, or `p` outside `0..=1`.
    pub fn dropout(&self, p: f64, training: bool) -> RusTorchResult<Self> {
        self.dropped("dropout", p, training, self.shape(), Kind::Zero, None)
    }

    /// [`Tensor::dropout`], and a `bool` mask of the kept elements, all of them outside training.
    ///
    /// # Errors
    /// The same errors as [`Tensor::dropout`].
    pub fn native_dropout(&self, p: f64, training: bool) -> RusTorchResult<(Self, Self)> {
        const NAME: &str = "native_dropout";
        let ones = Self::ones(self.shape(), DType::F32)?;
        let legal = self.dtype().is_float() || self.dtype().is_complex();
        require(NAME, legal, "a floating-point or complex tensor", self.ty())?;
        let scale = ones.dropped(NAME, p, training, self.shape(), Kind::Zero, None)?;
        let dropped = self.mul(&scale.cast(NAME, self.dtype())?)?;
        Ok((dropped, scale.ne(0.0)?))
    }

    /// [`Tensor::dropout`] in training, with a key as in [`Tensor::rand_keyed`].
    ///
    /// # Errors
    /// The same errors as [`Tensor::dropout`]. Also fails for an unsupported key.
    pub fn dropout_keyed(&self, p: f64, key: &Self) -> RusTorchResult<Self> {
        self.dropped("dropout", p, true, self.shape(), Kind::Zero, Some(key))
    }

    /// [`Tensor::dropout`] of whole channels of `self` `[n, c, l]` or `[c, l]`.
    ///
    /// # Errors
    /// The same errors as [`Tensor::dropout`]. Also fails for an unsupported rank.
    pub fn dropout1d(&self, p: f64, training: bool) -> RusTorchResult<Self> {
        self.channels_dropped("dropout1d", 1, p, training)
    }

    /// [`Tensor::dropout`] of whole channels of `self` `[n, c, h, w]`, or of whole planes of
    /// `[n, h, w]`.
    ///
    /// # Errors
    /// The same errors as [`Tensor::dropout`]. Also fails for rank below 2.
    pub fn dropout2d(&self, p: f64, training: bool) -> RusTorchResult<Self> {
        self.features_dropped("dropout2d", p, training, Kind::Zero)
    }

    /// [`Tensor::dropout`] of whole channels of `self` `[n, c, d, h, w]` or `[c, d, h, w]`.
    ///
    /// # Errors
    /// The same errors as [`Tensor::dropout`]. Also fails for rank below 2.
    pub fn dropout3d(&self, p: f64, training: bool) -> RusTorchResult<Self> {
        match self.rank() {
            4 => self.channels_dropped("dropout3d", 3, p, training),
            _ => self.features_dropped("dropout3d", p, training, Kind::Zero),
        }
    }

    /// In training, drops each element with probability `p` as [`Tensor::alpha_dropout`] does, for
    /// SELU networks: mean and variance stay. Takes floats and complex numbers.
    ///
    /// # Errors
    /// Fails for an unsupported dtype, or `p` outside `0..=1`.
    pub fn alpha_dropout(&self, p: f64, training: bool) -> RusTorchResult<Self> {
        self.dropped(
            "alpha_dropout",
            p,
            training,
            self.shape(),
            Kind::Alpha,
            None,
        )
    }

    /// [`Tensor::alpha_dropout`] of whole channels of `self` `[n, c, …]`.
    ///
    /// # Errors
    /// The same errors as [`Tensor::alpha_dropout`]. Also fails for rank below 2.
    pub fn feature_alpha_dropout(&self, p: f64, training: bool) -> RusTorchResult<Self> {
        self.features_dropped("feature_alpha_dropout", p, training, Kind::Alpha)
    }

    fn channels_dropped(
        &self,
        name: &'static str,
        dims: usize,
        p: f64,
        training: bool,
    ) -> RusTorchResult<Self> {
        let (x, has_batch) = self.with_batch(name, dims)?;
        x.features_dropped(name, p, training, Kind::Zero)?
            .without_batch(has_batch)
    }

    /// One draw for each index of the first two dimensions.
    fn features_dropped(
        &self,
        name: &'static str,
        p: f64,
        training: bool,
        kind: Kind,
    ) -> RusTorchResult<Self> {
        let legal = self.rank() >= 2 || !training || p == 0.0 || p == 1.0;
        require(name, legal, "a tensor [n, c, ..]", self.ty())?;
        let size = |(d, &size): (usize, &usize)| if d < 2 { size } else { 1 };
        let noise: Vec<usize> = self.shape().iter().enumerate().map(size).collect();
        self.dropped(name, p, training, &noise, kind, None)
    }

    /// One draw for each element of `noise`, which broadcasts.
    fn dropped(
        &self,
        name: &'static str,
        p: f64,
        training: bool,
        noise: &[usize],
        kind: Kind,
        key: Option<&Self>,
    ) -> RusTorchResult<Self> {
        require(name, (0.0..=1.0).contains(&p), "a probability of 0 to 1", p)?;
        if !training || p == 0.0 || self.numel() == 0 {
            return Ok(self.clone());
        }
        let legal = self.dtype().is_float() || self.dtype().is_complex();
        require_dtype(name, legal, "a floating-point or complex tensor", self.ty())?;
        if p == 1.0 {
            return self.mul(0.0);
        }
        let drawn = match key {
            Some(key) => Self::rand_keyed(noise, DType::F32, key)?,
            None => Self::rand(noise, DType::F32)?,
        };
        let kept = drawn.ge(p)?;
        if kind == Kind::Zero {
            let scale = Self::where_(&kept, 1.0 / (1.0 - p), 0.0)?;
            return self.mul(&scale.cast(name, self.dtype())?);
        }
        // −scale · alpha of SELU.
        const ALPHA: f64 = 1.758_099_340_847_376_6;
        let scale = 1.0 / ((ALPHA * ALPHA * p + 1.0) * (1.0 - p)).sqrt();
        let shift = Self::where_(&kept, ALPHA * p * scale, (p - 1.0) * ALPHA * scale)?;
        let scale = Self::where_(&kept, scale, 0.0)?;
        let y = self.mul(&scale.cast(name, self.dtype())?)?;
        y.add(&shift.cast(name, self.dtype())?)
    }
}
