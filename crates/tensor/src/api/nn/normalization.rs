//! Normalisation by batch, group, layer or given statistics.

use rustorch_ir::ops::{BatchNorm, BatchNormTrain, GroupNorm, LayerNorm, RmsNorm, VarMean};
use rustorch_ir::{DType, OpError, Param};
use rustorch_macros::track_calls;

use super::AvgPoolOptions;
use crate::Tensor;
use crate::args::dims::{IntoDims, IntoShape};
use crate::args::numbers::require_held;
use crate::args::setting::setters;
use crate::error::{RusTorchResult, require, require_dtype};

/// The optional arguments of [`Tensor::batch_norm`].
#[derive(Clone, Copy)]
pub struct BatchNormOptions<'a> {
    /// Factor of each channel.
    pub weight: Option<&'a Tensor>,
    /// Added to each channel.
    pub bias: Option<&'a Tensor>,
    /// Uses the batch's own statistics.
    pub training: bool,
    /// Weight of the batch in the new running statistics (momentum).
    pub momentum: f64,
    /// Added to the variance.
    pub eps: f64,
}

setters!(BatchNormOptions<'a> {
    weight: Option<&'a Tensor>, bias: Option<&'a Tensor>, training: bool, momentum: f64, eps: f64,
});

impl Default for BatchNormOptions<'_> {
    fn default() -> Self {
        Self {
            weight: None,
            bias: None,
            training: false,
            momentum: 0.1,
            eps: 1e-5,
        }
    }
}

/// The results of [`Tensor::batch_norm_with_stats`].
pub struct BatchNormed {
    /// The normalised tensor.
    pub output: Tensor,
    /// The batch's mean `[c]`, in single or double precision.
    pub mean: Tensor,
    /// `1 / √(var + eps)` `[c]`, by the batch's biased variance.
    pub rstd: Tensor,
    /// The new running mean, if there was one.
    pub running_mean: Option<Tensor>,
    /// The new running variance, from the batch's unbiased one, if there was one.
    pub running_var: Option<Tensor>,
}

#[track_calls]
impl Tensor {
    /// Batch normalisation `(x - mean) / √(var + eps) · weight + bias` for each channel of `self` `[n, c, …]`, or of an
    /// empty vector. It uses the running `mean` and `var`, or in training the batch's own, with the biased variance.
    /// Takes floats; the other operands are `[c]`. Running statistics do not change: [`Tensor::batch_norm_with_stats`]
    /// returns the next ones, and [`Tensor::batch_norm_`] writes them.
    ///
    /// # Errors
    /// Fails for unsupported shapes or dtypes. Training fails for a channel with one value.
    /// Evaluation mode fails without running statistics.
    pub fn batch_norm(
        &self,
        mean: Option<&Self>,
        var: Option<&Self>,
        options: &BatchNormOptions,
    ) -> RusTorchResult<Self> {
        const NAME: &str = "batch_norm";
        if options.training {
            return Ok(self.batch_norm_with_stats(mean, var, options)?.output);
        }
        let (Some(mean), Some(var)) = (mean, var) else {
            let expected = "running statistics, or training";
            return Err(OpError::new(NAME, expected, "neither").into());
        };
        require(NAME, options.eps >= 0.0, "an eps from 0 on", options.eps)?;
        if let Some(x) = self.as_no_channels()? {
            return x.batch_norm(Some(mean), Some(var), options)?.reshape([0]);
        }
        self.require_channels(NAME, &[Some(mean), Some(var), options.weight, options.bias])?;
        self.batch_normed(NAME, [mean, var], options)
    }

    /// [`Tensor::batch_norm`] in training, with the batch's statistics and the next running ones.
    ///
    /// # Errors
    /// The same errors as [`Tensor::batch_norm`].
    pub fn batch_norm_with_stats(
        &self,
        running_mean: Option<&Self>,
        running_var: Option<&Self>,
        options: &BatchNormOptions,
    ) -> RusTorchResult<BatchNormed> {
        const NAME: &str = "batch_norm";
        if let Some(x) = self.as_no_channels()? {
            let normed = x.batch_norm_with_stats(running_mean, running_var, options)?;
            let output = normed.output.reshape([0])?;
            return Ok(BatchNormed { output, ..normed });
        }
        let vectors = [running_mean, running_var, options.weight, options.bias];
        self.require_channels(NAME, &vectors)?;
        let members = self.numel().checked_div(self.shape()[1]).unwrap_or(0);
        let expected = "more than one value for each channel in training";
        require(NAME, members != 1, expected, self.ty())?;
        let expected = "an eps above 0 in training";
        require(NAME, options.eps > 0.0, expected, options.eps)?;
        let (output, var, mean) = match (options.weight, options.bias) {
            (Some(weight), Some(bias)) if weight.dtype() == bias.dtype() => {
                let norm = BatchNormTrain {
                    eps: Param(options.eps),
                    adds: false,
                    relu: false,
                };
                let [output, var, mean] = Self::apply_all(NAME, norm, &[self, weight, bias])?;
                (output, var, mean)
            }
            _ => {
                let stats = VarMean {
                    dims: (0..self.rank()).filter(|&d| d != 1).collect(),
                    keepdim: false,
                    correction: Param(0.0),
                    root: false,
                };
                let [var, mean] = Self::apply_all(NAME, stats, &[self])?;
                (self.batch_normed(NAME, [&mean, &var], options)?, var, mean)
            }
        };
        let next = |running: Option<&Self>, batch: &Self| {
            let next = |running: &Self| {
                // There are no statistics without elements.
                if members == 0 {
                    return Ok(running.clone());
                }
                let kept = running.mul(1.0 - options.momentum)?;
                kept.add(&batch.mul(options.momentum)?)?
                    .cast(NAME, running.dtype())
            };
            running.map(next).transpose()
        };
        let unbiased = var.mul(members as f64 / (members as f64 - 1.0))?;
        Ok(BatchNormed {
            output,
            running_mean: next(running_mean, &mean)?,
            running_var: next(running_var, &unbiased)?,
            rstd: var.add(options.eps)?.rsqrt()?,
            mean,
        })
    }

    /// [`Tensor::batch_norm`] in training, which overwrites the running statistics with the next
    /// ones.
    ///
    /// # Errors
    /// The same errors as [`Tensor::batch_norm`], and as [`Tensor::copy_`].
    pub fn batch_norm_(
        &self,
        running_mean: &mut Self,
        running_var: &mut Self,
        options: &BatchNormOptions,
    ) -> RusTorchResult<Self> {
        let (mean, var) = (Some(&*running_mean), Some(&*running_var));
        let normed = self.batch_norm_with_stats(mean, var, options)?;
        for (running, next) in [
            (running_mean, normed.running_mean),
            (running_var, normed.running_var),
        ] {
            if let Some(next) = next {
                running.copy_(&next)?;
            }
        }
        Ok(normed.output)
    }

    /// Normalises each channel of each `self` `[n, c, …]` by its own mean and biased variance, or
    /// by given running ones `[c]`. Then the same as [`Tensor::batch_norm`]. Floats; `weight` and
    /// `bias` are `[c]`.
    ///
    /// # Errors
    /// Fails for unsupported shapes or dtypes, or for a channel with one value.
    pub fn instance_norm(
        &self,
        running: Option<[&Self; 2]>,
        weight: Option<&Self>,
        bias: Option<&Self>,
        eps: f64,
    ) -> RusTorchResult<Self> {
        const NAME: &str = "instance_norm";
        self.require_channels(NAME, &[weight, bias])?;
        let is_plain = weight.is_none() && bias.is_none();
        let any = self.shape()[..2].iter().all(|&n| n > 0);
        let expected = "samples and channels, or neither weight nor bias";
        require(NAME, any || is_plain, expected, self.ty())?;
        if let Some([mean, var]) = running {
            self.require_channels(NAME, &[Some(mean), Some(var)])?;
            let options = BatchNormOptions {
                weight,
                bias,
                eps,
                ..Default::default()
            };
            return self.batch_normed(NAME, [mean, var], &options);
        }
        let members: usize = self.shape()[2..].iter().product();
        let expected = "more than one value in each channel";
        require(NAME, members != 1, expected, self.ty())?;
        self.normed_by(NAME, self.shape()[1], [weight, bias], eps)
    }

    /// Normalises the channels of `self` `[n, c, …]` in groups. Each group uses its mean and biased
    /// variance; the result is multiplied by `weight` `[c]` and increased by `bias` `[c]`. Takes
    /// floats.
    ///
    /// # Errors
    /// Fails for unsupported shapes or dtypes, or channels that the number of groups does not
    /// divide.
    pub fn group_norm(
        &self,
        groups: usize,
        weight: Option<&Self>,
        bias: Option<&Self>,
        eps: f64,
    ) -> RusTorchResult<Self> {
        const NAME: &str = "group_norm";
        let [n, c, elements] = self.grouped_channels(NAME, groups, &[weight, bias])?;
        let members = n * c / groups * elements;
        let expected = "more than one value to normalise";
        require(NAME, members != 1, expected, self.ty())?;
        self.normed_by(NAME, groups, [weight, bias], eps)
    }

    /// [`Tensor::group_norm`], and the mean and `1 / √(var + eps)` of each group, `[n, groups]`.
    ///
    /// # Errors
    /// The same errors as [`Tensor::group_norm`].
    pub fn native_group_norm(
        &self,
        groups: usize,
        weight: Option<&Self>,
        bias: Option<&Self>,
        eps: f64,
    ) -> RusTorchResult<(Self, Self, Self)> {
        const NAME: &str = "native_group_norm";
        let [n, c, rest] = self.grouped_channels(NAME, groups, &[weight, bias])?;
        let x = self
            .widened(NAME)?
            .reshape([n, groups, c / groups * rest])?;
        let mean = x.mean(-1, true)?;
        let centred = x.sub(&mean)?;
        let rstd = centred.square()?.mean(-1, true)?.add(eps)?.rsqrt()?;
        let y = centred.mul(&rstd)?.reshape(self.shape())?;
        let y = y.scaled(NAME, [weight, bias], |v| v.by_channel(self.rank()))?;
        let [mean, rstd] = [mean.squeeze(-1)?, rstd.squeeze(-1)?];
        let [y, mean, rstd] = [y, mean, rstd].map(|x| x.cast(NAME, self.dtype()));
        Ok((y?, mean?, rstd?))
    }

    /// Batch, channels, and elements of each channel, for norms in groups.
    pub(super) fn grouped_channels(
        &self,
        name: &'static str,
        groups: usize,
        others: &[Option<&Self>],
    ) -> RusTorchResult<[usize; 3]> {
        self.require_channels(name, others)?;
        let channels = self.shape()[1];
        let divides = groups > 0 && channels > 0 && channels.is_multiple_of(groups);
        let got = format_args!("{} in {groups} groups", self.ty());
        require(name, divides, "channels that the groups divide", got)?;
        let elements: usize = self.shape()[2..].iter().product();
        require(name, elements > 0, "elements in each channel", self.ty())?;
        Ok([self.shape()[0], channels, elements])
    }

    /// `[n, c, …]` normalised in groups of channels.
    fn normed_by(
        &self,
        name: &'static str,
        groups: usize,
        affine: [Option<&Self>; 2],
        eps: f64,
    ) -> RusTorchResult<Self> {
        if self.numel() == 0 {
            return Ok(self.clone());
        }
        let norm = GroupNorm {
            groups,
            eps: Param(eps),
        };
        let ones = ones_beside(affine[0], affine[1])?;
        let [weight, bias] = affine;
        let affine = || weight.or(ones.as_ref()).into_iter().chain(bias);
        if affine().all(|v| v.dtype() == self.dtype()) {
            let inputs: Vec<&Self> = [self].into_iter().chain(affine()).collect();
            return Self::apply(name, norm, &inputs);
        }
        // Halves, with what belongs to channels in another precision.
        let x = self.widened(name)?;
        let wide: Vec<Self> = affine()
            .map(|v| v.cast(name, x.dtype()))
            .collect::<RusTorchResult<_>>()?;
        let inputs: Vec<&Self> = [&x].into_iter().chain(&wide).collect();
        Self::apply(name, norm, &inputs)?.cast(name, self.dtype())
    }

    /// `self · weight + bias` in this tensor's dtype, where these are given.
    fn scaled(
        &self,
        name: &'static str,
        [weight, bias]: [Option<&Self>; 2],
        placed: impl Fn(&Self) -> RusTorchResult<Self>,
    ) -> RusTorchResult<Self> {
        let placed = |v: &Self| placed(v)?.cast(name, self.dtype());
        let mut y = self.clone();
        if let Some(weight) = weight {
            y = y.mul(&placed(weight)?)?;
        }
        match bias {
            Some(bias) => y.add(&placed(bias)?),
            None => Ok(y),
        }
    }

    /// Batch norm with given statistics.
    fn batch_normed(
        &self,
        name: &'static str,
        [mean, var]: [&Self; 2],
        options: &BatchNormOptions,
    ) -> RusTorchResult<Self> {
        let ones = ones_beside(options.weight, options.bias)?;
        let weight = options.weight.or(ones.as_ref());
        let inputs: Vec<&Self> = [self, mean, var]
            .into_iter()
            .chain(weight)
            .chain(options.bias)
            .collect();
        if inputs.iter().all(|x| x.dtype() == self.dtype()) {
            let eps = Param(options.eps);
            return Self::apply(name, BatchNorm { eps }, &inputs);
        }
        // Halves, with what belongs to channels in another precision.
        let x = self.widened(name)?;
        let placed = |v: &Self| v.by_channel(x.rank());
        let centred = x.sub(&placed(mean)?.cast(name, x.dtype())?)?;
        let rstd = var.cast(name, x.dtype())?.add(options.eps)?.rsqrt()?;
        let y = centred.mul(&placed(&rstd)?)?;
        let y = y.scaled(name, [options.weight, options.bias], placed)?;
        y.cast(name, self.dtype())
    }

    /// An empty vector as no samples of no channels, which PyTorch takes it for.
    fn as_no_channels(&self) -> RusTorchResult<Option<Self>> {
        let is_empty = *self.shape() == [0];
        is_empty.then(|| self.reshape([0, 0])).transpose()
    }

    /// Fails unless this is `[n, c, …]` of floats, and the others are `[c]` of floats.
    fn require_channels(&self, name: &'static str, others: &[Option<&Self>]) -> RusTorchResult<()> {
        self.require_float(name)?;
        require(name, self.rank() >= 2, "a tensor [n, c, ..]", self.ty())?;
        let c = self.shape()[1];
        others.iter().flatten().try_for_each(|other| {
            let fits = *other.shape() == [c] && other.dtype().is_float();
            let expected = format_args!("a float for each of {c} channels");
            require(name, fits, expected, other.ty())
        })
    }

    /// Fails unless `inner` are the last dimensions, at least one, and the others have that shape.
    pub(super) fn require_inner(
        &self,
        name: &'static str,
        inner: &[usize],
        others: &[Option<&Self>],
    ) -> RusTorchResult<()> {
        let fits = self.shape().ends_with(inner) && !inner.is_empty();
        require(
            name,
            fits,
            format_args!("a tensor [.., {inner:?}]"),
            self.ty(),
        )?;
        others.iter().flatten().try_for_each(|other| {
            let expected = format_args!("weight and bias {inner:?}");
            require(name, other.shape() == inner, expected, other.ty())
        })
    }

    /// Layer normalisation `(x - mean) / √(var + eps) · weight + bias` over the last dimensions,
    /// which are `normalized_shape`. The variance is the biased one. Floats; `weight` and `bias`
    /// have that shape.
    ///
    /// # Errors
    /// Fails for unsupported shapes or dtypes.
    pub fn layer_norm(
        &self,
        normalized_shape: impl IntoShape,
        weight: Option<&Self>,
        bias: Option<&Self>,
        eps: f64,
    ) -> RusTorchResult<Self> {
        const NAME: &str = "layer_norm";
        let inner = &normalized_shape.into_shape()[..];
        self.require_inner(NAME, inner, &[weight, bias])?;
        let op = LayerNorm {
            dims: inner.len(),
            eps: Param(eps),
        };
        let ones = ones_beside(weight, bias)?;
        let affine = [weight.or(ones.as_ref()), bias];
        if affine.iter().flatten().all(|v| v.dtype() == self.dtype()) {
            let inputs: Vec<&Self> = [self]
                .into_iter()
                .chain(affine.into_iter().flatten())
                .collect();
            return Self::apply(NAME, op, &inputs);
        }
        // Halves, with a weight and bias in another precision.
        let y = Self::apply(NAME, op, &[&self.widened(NAME)?])?;
        y.scaled(NAME, [weight, bias], |v| Ok(v.clone()))?
            .cast(NAME, self.dtype())
    }

    /// [`Tensor::layer_norm`], and the mean and `1 / √(var + eps)` with size 1 in the last
    /// dimensions.
    ///
    /// # Errors
    /// The same errors as [`Tensor::layer_norm`].
    pub fn native_layer_norm(
        &self,
        normalized_shape: impl IntoShape,
        weight: Option<&Self>,
        bias: Option<&Self>,
        eps: f64,
    ) -> RusTorchResult<(Self, Self, Self)> {
        const NAME: &str = "native_layer_norm";
        let inner = &normalized_shape.into_shape()[..];
        self.require_inner(NAME, inner, &[weight, bias])?;
        self.require_float(NAME)?;
        let x = self.widened(NAME)?;
        let dims: Vec<isize> = (1..=inner.len() as isize).map(|d| -d).collect();
        let mean = x.mean(&dims[..], true)?;
        let centred = x.sub(&mean)?;
        let rstd = centred.square()?.mean(&dims[..], true)?.add(eps)?.rsqrt()?;
        let y = centred
            .mul(&rstd)?
            .scaled(NAME, [weight, bias], |v| Ok(v.clone()))?;
        let [y, mean, rstd] = [y, mean, rstd].map(|x| x.cast(NAME, self.dtype()));
        Ok((y?, mean?, rstd?))
    }

    /// `x / √(mean(x²) + eps) · weight` over the last dimensions, which are `normalized_shape`. By
    /// default (`None`) `eps` is the dtype's epsilon, and that of `f32` for halves. Floats and
    /// complex numbers; `weight` has that shape.
    ///
    /// # Errors
    /// Fails for unsupported shapes or dtypes.
    pub fn rms_norm(
        &self,
        normalized_shape: impl IntoShape,
        weight: Option<&Self>,
        eps: impl Into<Option<f64>>,
    ) -> RusTorchResult<Self> {
        const NAME: &str = "rms_norm";
        let inner = &normalized_shape.into_shape()[..];
        self.require_inner(NAME, inner, &[weight])?;
        let eps = eps.into().unwrap_or_else(|| epsilon(self.dtype()));
        let is_same = weight.is_none_or(|weight| weight.dtype() == self.dtype());
        if !self.dtype().is_float() || !is_same {
            return self.rms_normed(NAME, inner.len(), weight, eps);
        }
        let op = RmsNorm { eps: Param(eps) };
        let flat = |x: &Self| match inner.len() {
            1 => Ok(x.clone()),
            n => x.flatten(-(n as isize), -1),
        };
        let weight = weight.map(flat).transpose()?;
        let x = flat(self)?;
        let inputs: Vec<&Self> = [&x].into_iter().chain(&weight).collect();
        let y = Self::apply(NAME, op, &inputs)?;
        match inner.len() {
            1 => Ok(y),
            _ => y.reshape(self.shape()),
        }
    }

    /// The root mean square of complex numbers, or with a weight in another precision.
    fn rms_normed(
        &self,
        name: &'static str,
        dims: usize,
        weight: Option<&Self>,
        eps: f64,
    ) -> RusTorchResult<Self> {
        let legal = self.dtype().is_float() || self.dtype().is_complex();
        require_dtype(name, legal, "a floating-point or complex tensor", self.ty())?;
        let x = self.widened(name)?;
        let dims: Vec<isize> = (1..=dims as isize).map(|d| -d).collect();
        let mean = x.square()?.mean(&dims[..], true)?.add(eps)?;
        let rstd = match x.dtype().is_complex() {
            true => complex_root(&mean)?.reciprocal()?,
            false => mean.rsqrt()?,
        };
        let y = x.mul(&rstd)?;
        let y = y.scaled(name, [weight, None], |v| Ok(v.clone()))?;
        y.cast(name, self.dtype())
    }

    /// `x / (k + α · mean(x²))^β`, with the mean over `size` neighbouring channels. Missing
    /// channels count as zeros. `self` is `[n, c, …]`, floats.
    ///
    /// # Errors
    /// Fails for rank below 3, an unsupported dtype, or a size of 0.
    pub fn local_response_norm(
        &self,
        size: usize,
        alpha: f64,
        beta: f64,
        k: f64,
    ) -> RusTorchResult<Self> {
        const NAME: &str = "local_response_norm";
        require(NAME, self.rank() >= 3, "a tensor [n, c, ..]", self.ty())?;
        require(NAME, size > 0, "at least one channel", size)?;
        if self.numel() == 0 {
            return Ok(self.clone());
        }
        let x = self.widened(NAME)?;
        let (n, c) = (self.shape()[0], self.shape()[1]);
        let squares = x.square()?.reshape([n, 1, c, self.numel() / n / c])?;
        let around = [(size / 2, (size - 1) / 2), (0, 0)];
        let options = AvgPoolOptions {
            stride: Some([1; 2]),
            ..Default::default()
        };
        let means = squares
            .surrounded(NAME, &around, 0)?
            .avg_pool2d([size, 1], &options)?;
        let divisors = means.reshape(self.shape())?.mul(alpha)?.add(k)?.pow(beta)?;
        let y = x.div(&divisors)?;
        match self.dtype().is_float() {
            true => y.cast(NAME, self.dtype()),
            false => Ok(y),
        }
    }

    /// `x / max(‖x‖, eps)`, with the `p`-norm over some dimensions. Takes floats and complex
    /// numbers.
    ///
    /// # Errors
    /// Fails if a dimension does not exist, or for an unsupported dtype. Also fails for an `eps`
    /// that the dtype does not hold.
    pub fn normalize(&self, p: f64, dims: impl IntoDims, eps: f64) -> RusTorchResult<Self> {
        const NAME: &str = "normalize";
        require_held(NAME, eps.into(), self.dtype().real())?;
        let x = self.widened(NAME)?;
        let norm = x.norm(p, dims, true)?.clamp_min(eps)?;
        x.div(&norm)?.cast(NAME, self.dtype())
    }
}

/// The square root with a real part of at least 0.
fn complex_root(z: &Tensor) -> RusTorchResult<Tensor> {
    let (length, re) = (z.abs()?, z.real()?);
    let half = |x: Tensor| x.mul(0.5)?.maximum(0.0)?.sqrt();
    let (along, across) = (half(length.add(&re)?)?, half(length.sub(&re)?)?);
    let across = Tensor::where_(&z.imag()?.lt(0.0)?, &across.neg()?, &across)?;
    Tensor::complex(&along, &across)
}

/// The distance from 1 to the next number, in which halves are computed as singles.
fn epsilon(dtype: DType) -> f64 {
    match dtype {
        DType::F64 | DType::Complex128 => f64::EPSILON,
        _ => f64::from(f32::EPSILON),
    }
}

/// The weight that a bias alone needs: the bias is the operand behind it.
fn ones_beside(weight: Option<&Tensor>, bias: Option<&Tensor>) -> RusTorchResult<Option<Tensor>> {
    match (weight, bias) {
        (None, Some(bias)) => bias.ones_like().map(Some),
        _ => Ok(None),
    }
}
