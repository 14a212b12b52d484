//! The norms.

use rustorch_ir::DType;
use rustorch_macros::track_calls;
use rustorch_tensor::nn::BatchNormOptions;
use rustorch_tensor::replay::is_recording;
use rustorch_tensor::{IntoShape, RusTorchResult, Tensor, eval_all, no_grad};

use super::layers::layers;
use super::{Buffer, Forward, Module, Training, Visit, cloned, parameter};
use crate::error::{require, unexpected};

/// Weight and bias of ones and zeros.
fn affine(shape: impl IntoShape) -> RusTorchResult<[Option<Tensor>; 2]> {
    let shape = shape.into_shape();
    let weight = parameter(Tensor::ones(&shape, DType::F32)?)?;
    let bias = parameter(Tensor::zeros(&shape, DType::F32)?)?;
    Ok([Some(weight), Some(bias)])
}

/// Statistics of the batches seen in training.
#[derive(Module)]
pub struct RunningStats {
    /// Mean of each channel, `[c]`.
    pub running_mean: Buffer,
    /// Variance of each channel, `[c]`.
    pub running_var: Buffer,
    /// Number of batches so far, `i64`.
    pub num_batches_tracked: Buffer,
}

impl RunningStats {
    fn new(channels: usize) -> RusTorchResult<Self> {
        Ok(Self {
            running_mean: Buffer::new(Tensor::zeros(channels, DType::F32)?),
            running_var: Buffer::new(Tensor::ones(channels, DType::F32)?),
            num_batches_tracked: Buffer::new(Tensor::zeros([], DType::I64)?.contiguous()?),
        })
    }

    /// Share of the batch in the next statistics; without a momentum all batches count the same.
    fn factor(&self, momentum: Option<f64>) -> RusTorchResult<f64> {
        match momentum {
            Some(momentum) => Ok(momentum),
            None if is_recording() => Err(unexpected(
                "batch_norm",
                "a momentum, where a step is recorded to be run often",
                "none",
            )),
            None => Ok(1.0 / (self.num_batches_tracked.get().item()? + 1.0)),
        }
    }

    /// Overwrites the statistics, and computes `output` with them, so that nothing of the batch is kept for
    /// later. `batches` are counted. A recorded step often writes them when it runs.
    fn update(
        &self,
        [mean, var]: [&Tensor; 2],
        batches: i64,
        output: &Tensor,
    ) -> RusTorchResult<()> {
        let next = self.num_batches_tracked.get().add(batches)?;
        let written = [
            (&self.running_mean, mean),
            (&self.running_var, var),
            (&self.num_batches_tracked, &next),
        ];
        for (buffer, value) in written {
            let mut tensor = buffer.get();
            no_grad(|| tensor.copy_(&value.detach()).map(|_| ()))?;
            buffer.set(tensor);
        }
        if is_recording() {
            return Ok(());
        }
        let [mean, var, count] = written.map(|(buffer, _)| buffer.get());
        eval_all(&[output, &mean, &var, &count])
    }
}

/// Normalisation of channels, with running statistics under PyTorch's names: `running_mean`,
/// `running_var`, `num_batches_tracked`. One line for each module: documentation, name, ranks,
/// whether it is of batches, which has weights and statistics by default, and what is done.
macro_rules! channel_norms {
    ($($(#[$about:meta])* $Norm:ident = $ranks:pat, $shapes:literal, $is_of_batches:literal, $normed:ident;)*) => {
        $(
            $(#[$about])*
            pub struct $Norm {
                /// `[c]`.
                pub weight: Option<Tensor>,
                /// `[c]`.
                pub bias: Option<Tensor>,
                /// Statistics for evaluation.
                pub running: Option<RunningStats>,
                /// Added to the variance.
                pub eps: f64,
                /// Weight of the batch in new statistics (momentum); `None`: all batches count the
                /// same.
                pub momentum: Option<f64>,
                /// Uses the batch's own statistics.
                pub training: Training,
                channels: usize,
            }

            #[track_calls($Norm)]
            impl $Norm {
                /// A norm of `num_features` channels.
                ///
                /// # Errors
                /// Fails for sizes too large for memory.
                pub fn new(num_features: usize) -> RusTorchResult<Self> {
                    let norm = Self {
                        weight: None,
                        bias: None,
                        running: None,
                        eps: 1e-5,
                        momentum: Some(0.1),
                        training: Training::default(),
                        channels: num_features,
                    };
                    match $is_of_batches {
                        true => norm.with_affine()?.with_running_stats(),
                        false => Ok(norm),
                    }
                }

                /// Adds weights of 1 and biases of 0.
                ///
                /// # Errors
                /// Fails for sizes too large for memory.
                pub fn with_affine(mut self) -> RusTorchResult<Self> {
                    [self.weight, self.bias] = affine(self.channels)?;
                    Ok(self)
                }

                /// Adds running statistics, which begin with mean 0 and variance 1.
                ///
                /// # Errors
                /// Fails for sizes too large for memory.
                pub fn with_running_stats(mut self) -> RusTorchResult<Self> {
                    self.running = Some(RunningStats::new(self.channels)?);
                    Ok(self)
                }

                /// Removes weight and bias.
                #[must_use]
                pub fn without_affine(mut self) -> Self {
                    (self.weight, self.bias) = (None, None);
                    self
                }

                /// The same without a bias.
                #[must_use]
                pub fn without_bias(mut self) -> Self {
                    self.bias = None;
                    self
                }

                /// Removes the running statistics: the input's own are used, also in evaluation.
                #[must_use]
                pub fn without_running_stats(mut self) -> Self {
                    self.running = None;
                    self
                }

                super::layers::setters!(eps: f64; momentum: Option<f64>;);
            }

            impl Clone for $Norm {
                #[track_caller]
                fn clone(&self) -> Self {
                    cloned(|| Self {
                        weight: self.weight.clone(),
                        bias: self.bias.clone(),
                        running: self.running.clone(),
                        ..*self
                    })
                }
            }

            impl Visit for $Norm {
                fn visit(&self, name: &str, visitor: &mut dyn FnMut(&str, super::Leaf)) {
                    let part = |part| super::join_names(name, part);
                    self.weight.visit(&part("weight"), visitor);
                    self.bias.visit(&part("bias"), visitor);
                    // Their names are the norm's own.
                    self.running.visit(name, visitor);
                    self.training.visit(&part("training"), visitor);
                    if $is_of_batches {
                        visitor(&part("momentum"), super::Leaf::Momentum(self.momentum));
                    }
                }

                fn visit_mut(&mut self, name: &str, visitor: &mut dyn FnMut(&str, super::LeafMut)) {
                    let part = |part| super::join_names(name, part);
                    self.weight.visit_mut(&part("weight"), visitor);
                    self.bias.visit_mut(&part("bias"), visitor);
                    self.running.visit_mut(name, visitor);
                    self.training.visit_mut(&part("training"), visitor);
                    if $is_of_batches {
                        visitor(&part("momentum"), super::LeafMut::Momentum(&mut self.momentum));
                    }
                }
            }

            impl Module for $Norm {}

            #[track_calls($Norm)]
            impl Forward for $Norm {
                fn forward(&self, x: &Tensor) -> RusTorchResult<Tensor> {
                    const NAME: &str = stringify!($Norm);
                    let fits = matches!(x.rank(), $ranks);
                    let got = format_args!("{:?}", x.shape());
                    require(NAME, fits, concat!("a tensor ", $shapes), got)?;
                    self.$normed(NAME, x)
                }
            }
        )*
    };
}

channel_norms! {
    /// Normalises each channel by the batch's mean and variance, in `[n, c]` or `[n, c, l]`.
    BatchNorm1d = 2 | 3, "[n, c] or [n, c, l]", true, batch_normed;
    /// Normalises each channel by the batch's mean and variance, in `[n, c, h, w]`.
    BatchNorm2d = 4, "[n, c, h, w]", true, batch_normed;
    /// Normalises each channel by the batch's mean and variance, in `[n, c, d, h, w]`.
    BatchNorm3d = 5, "[n, c, d, h, w]", true, batch_normed;
    /// Normalises each channel of each instance by its own mean and variance, in `[n, c, l]` or `[c, l]`.
    InstanceNorm1d = 2 | 3, "[n, c, l] or [c, l]", false, instances_normed;
    /// Normalises each channel of each instance by its own mean and variance, in `[n, c, h, w]` or `[c, h, w]`.
    InstanceNorm2d = 3 | 4, "[n, c, h, w] or [c, h, w]", false, instances_normed;
    /// Normalises each channel of each instance by its own mean and variance, in `[n, c, d, h, w]` or `[c, d, h, w]`.
    InstanceNorm3d = 4 | 5, "[n, c, d, h, w] or [c, d, h, w]", false, instances_normed;
}

/// The common part of batch and instance norms.
macro_rules! batch_norms {
    ($($Norm:ident)*) => {
        $(impl $Norm {
            fn options(&self, training: bool, momentum: f64) -> BatchNormOptions<'_> {
                BatchNormOptions {
                    weight: self.weight.as_ref(),
                    bias: self.bias.as_ref(),
                    training,
                    momentum,
                    eps: self.eps,
                }
            }

            fn batch_normed(&self, _: &'static str, x: &Tensor) -> RusTorchResult<Tensor> {
                let Some(running) = &self.running else {
                    return x.batch_norm(None, None, &self.options(true, 0.0));
                };
                let (mean, var) = (running.running_mean.get(), running.running_var.get());
                if !self.training.is_on() {
                    return x.batch_norm(Some(&mean), Some(&var), &self.options(false, 0.0));
                }
                let options = self.options(true, running.factor(self.momentum)?);
                let normed = x.batch_norm_with_stats(Some(&mean), Some(&var), &options)?;
                match (&normed.running_mean, &normed.running_var) {
                    (Some(mean), Some(var)) if x.numel() > 0 => {
                        running.update([mean, var], 1, &normed.output)?;
                    }
                    // An empty batch tells nothing, and counts.
                    _ => running.update([&mean, &var], 1, &normed.output)?,
                }
                Ok(normed.output)
            }
        })*
    };
}

macro_rules! instance_norms {
    ($($Norm:ident = $dims:literal;)*) => {
        $(impl $Norm {
            fn instances_normed(&self, name: &'static str, x: &Tensor) -> RusTorchResult<Tensor> {
                let has_batch = x.rank() == $dims + 2;
                let x = if has_batch { x.clone() } else { x.unsqueeze(0)? };
                let fits = x.shape()[1] == self.channels || self.weight.is_none() && self.running.is_none();
                require(name, fits, format_args!("{} channels", self.channels), x.shape()[1])?;
                let (weight, bias) = (self.weight.as_ref(), self.bias.as_ref());
                let normed = match &self.running {
                    Some(running) if !self.training.is_on() => {
                        let (mean, var) = (running.running_mean.get(), running.running_var.get());
                        x.instance_norm(Some([&mean, &var]), weight, bias, self.eps)?
                    }
                    running => {
                        let normed = x.instance_norm(None, weight, bias, self.eps)?;
                        if let Some(running) = running {
                            let factor = self.momentum.unwrap_or(0.0);
                            let dims: Vec<usize> = (2..x.rank()).collect();
                            let (var, mean) = x.detach().var_mean(&dims[..], 1.0, false)?;
                            let next = |buffer: &Buffer, batch: Tensor| {
                                buffer.get().mul(1.0 - factor)?.add(&batch.mean(0, false)?.mul(factor)?)
                            };
                            let mean = next(&running.running_mean, mean)?;
                            let var = next(&running.running_var, var)?;
                            // Instances are not counted.
                            running.update([&mean, &var], 0, &normed)?;
                        }
                        normed
                    }
                };
                if has_batch { Ok(normed) } else { normed.squeeze(0) }
            }
        })*
    };
}

batch_norms!(BatchNorm1d BatchNorm2d BatchNorm3d);

instance_norms! {
    InstanceNorm1d = 1;
    InstanceNorm2d = 2;
    InstanceNorm3d = 3;
}

/// Normalises groups of channels by their own mean and variance.
#[derive(Module)]
pub struct GroupNorm {
    /// `[c]`.
    pub weight: Option<Tensor>,
    /// `[c]`.
    pub bias: Option<Tensor>,
    /// Number of groups.
    #[module(skip)]
    pub num_groups: usize,
    /// Added to the variance.
    #[module(skip)]
    pub eps: f64,
}

#[track_calls(GroupNorm)]
impl GroupNorm {
    /// A norm with weights of 1 and biases of 0.
    ///
    /// # Errors
    /// Fails for channels that the number of groups does not divide.
    pub fn new(num_groups: usize, num_channels: usize) -> RusTorchResult<Self> {
        let divides = num_groups > 0 && num_channels.is_multiple_of(num_groups);
        let got = format_args!("{num_channels} channels in {num_groups} groups");
        require(
            "GroupNorm",
            divides,
            "channels that the number of groups divides",
            got,
        )?;
        let [weight, bias] = affine(num_channels)?;
        Ok(Self {
            weight,
            bias,
            num_groups,
            eps: 1e-5,
        })
    }

    /// Removes weight and bias.
    #[must_use]
    pub fn without_affine(mut self) -> Self {
        (self.weight, self.bias) = (None, None);
        self
    }

    /// The same without a bias.
    #[must_use]
    pub fn without_bias(mut self) -> Self {
        self.bias = None;
        self
    }

    super::layers::setters!(eps: f64;);
}

#[track_calls(GroupNorm)]
impl Forward for GroupNorm {
    fn forward(&self, x: &Tensor) -> RusTorchResult<Tensor> {
        x.group_norm(
            self.num_groups,
            self.weight.as_ref(),
            self.bias.as_ref(),
            self.eps,
        )
    }
}

/// Normalises the last dimensions by their own mean and variance.
#[derive(Module)]
pub struct LayerNorm {
    /// The weight, of the normalised shape.
    pub weight: Option<Tensor>,
    /// The bias, of the normalised shape.
    pub bias: Option<Tensor>,
    /// Sizes of the normalised last dimensions.
    #[module(skip)]
    pub normalized_shape: Vec<usize>,
    /// Added to the variance.
    #[module(skip)]
    pub eps: f64,
}

#[track_calls(LayerNorm)]
impl LayerNorm {
    /// A norm with weights of 1 and biases of 0.
    ///
    /// # Errors
    /// Fails for sizes too large for memory.
    pub fn new(normalized_shape: impl IntoShape) -> RusTorchResult<Self> {
        let shape = normalized_shape.into_shape();
        let [weight, bias] = affine(&shape)?;
        Ok(Self {
            weight,
            bias,
            normalized_shape: shape.to_vec(),
            eps: 1e-5,
        })
    }

    /// Removes weight and bias.
    #[must_use]
    pub fn without_affine(mut self) -> Self {
        (self.weight, self.bias) = (None, None);
        self
    }

    /// The same without a bias.
    #[must_use]
    pub fn without_bias(mut self) -> Self {
        self.bias = None;
        self
    }

    super::layers::setters!(eps: f64;);
}

#[track_calls(LayerNorm)]
impl Forward for LayerNorm {
    fn forward(&self, x: &Tensor) -> RusTorchResult<Tensor> {
        let (weight, bias) = (self.weight.as_ref(), self.bias.as_ref());
        x.layer_norm(&self.normalized_shape[..], weight, bias, self.eps)
    }
}

/// Normalises the last dimensions by their root mean square.
#[derive(Module)]
pub struct RMSNorm {
    /// The weight, of the normalised shape.
    pub weight: Option<Tensor>,
    /// Sizes of the normalised last dimensions.
    #[module(skip)]
    pub normalized_shape: Vec<usize>,
    /// Added to the mean square; `None`: the dtype's epsilon.
    #[module(skip)]
    pub eps: Option<f64>,
}

#[track_calls(RMSNorm)]
impl RMSNorm {
    /// A norm with weights of 1.
    ///
    /// # Errors
    /// Fails for sizes too large for memory.
    pub fn new(normalized_shape: impl IntoShape) -> RusTorchResult<Self> {
        let shape = normalized_shape.into_shape();
        let [weight, _] = affine(&shape)?;
        Ok(Self {
            weight,
            normalized_shape: shape.to_vec(),
            eps: None,
        })
    }

    /// Removes the weight.
    #[must_use]
    pub fn without_affine(mut self) -> Self {
        self.weight = None;
        self
    }

    super::layers::setters!(eps: Option<f64>;);
}

#[track_calls(RMSNorm)]
impl Forward for RMSNorm {
    fn forward(&self, x: &Tensor) -> RusTorchResult<Tensor> {
        x.rms_norm(&self.normalized_shape[..], self.weight.as_ref(), self.eps)
    }
}

layers! {
    /// Normalises each element by the channels around it: [`Tensor::local_response_norm`].
    LocalResponseNorm(
        /// Number of channels.
        size: usize,
    ) {
        /// The factor of the mean of squares.
        alpha: f64 = 1e-4,
        /// The exponent.
        beta: f64 = 0.75,
        /// Added to the mean.
        k: f64 = 1.0,
    } => |x| x.local_response_norm(size, alpha, beta, k);
}
