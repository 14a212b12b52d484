//! Lazy modules, which are made at their first call: `torch.nn.LazyLinear` and others.

use std::sync::{Arc, OnceLock};

use rustorch_macros::track_calls;
use rustorch_tensor::nn::{ConvOptions, ConvTransposeOptions};
use rustorch_tensor::replay::is_recording;
use rustorch_tensor::{PerDim, RusTorchResult, Tensor};

use super::{
    BatchNorm1d, BatchNorm2d, BatchNorm3d, Conv1d, Conv2d, Conv3d, ConvTranspose1d,
    ConvTranspose2d, ConvTranspose3d, Forward, InstanceNorm1d, InstanceNorm2d, InstanceNorm3d,
    Leaf, LeafMut, Linear, Module, Training, Visit, join_names,
};
use crate::error::{require, unexpected};

type Make<M> = dyn Fn(&Tensor) -> RusTorchResult<M> + Send + Sync;

/// A module that is made at its first call, since its shape depends on the input. [`LazyLinear`], [`LazyConv2d`] and
/// others are lazy modules, and [`Lazy::of`] makes more.
///
/// Before that it has no tensors. Call it once before an optimiser gets its parameters, before
/// loading a state, and before recording a step. Afterwards it acts as the module, with the same
/// names, in the dtype of that input.
///
/// ```
/// use rustorch_ir::DType;
/// use rustorch_nn::nn::{Forward, LazyLinear, Module, ReLU, sequential};
/// use rustorch_tensor::Tensor;
///
/// # fn main() -> rustorch_tensor::RusTorchResult<()> {
/// let net = sequential![LazyLinear::new(8), ReLU, LazyLinear::new(1).and_then(|l| Ok(l.without_bias()))];
/// assert!(net.parameters().is_empty());
/// assert_eq!(net.forward(&Tensor::zeros([5, 3], DType::F32)?)?.shape(), [5, 1]);
/// let shapes: Vec<_> = net.parameters().iter().map(|p| p.shape().to_vec()).collect();
/// assert_eq!(shapes, [vec![8, 3], vec![8], vec![1, 8]]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Lazy<M> {
    made: OnceLock<M>,
    make: Arc<Make<M>>,
    /// The mode of the module when it is made.
    training: Training,
}

impl<M: Forward + 'static> Lazy<M> {
    /// A module that `make` creates from the input of the first call.
    pub fn of(make: impl Fn(&Tensor) -> RusTorchResult<M> + Send + Sync + 'static) -> Self {
        Self {
            made: OnceLock::new(),
            make: Arc::new(make),
            training: Training::default(),
        }
    }

    /// Changes the module after its creation:
    /// `LazyLinear::new(4).and_then(|linear| Ok(linear.without_bias()))`.
    #[must_use]
    pub fn and_then(self, change: impl Fn(M) -> RusTorchResult<M> + Send + Sync + 'static) -> Self {
        let (make, training) = (self.make, self.training);
        let changed = Self::of(move |x| change(make(x)?));
        Self {
            training,
            ..changed
        }
    }

    /// The module, if it exists already.
    pub fn get(&self) -> Option<&M> {
        self.made.get()
    }
}

impl<M: Forward> Visit for Lazy<M> {
    fn visit(&self, name: &str, visitor: &mut dyn FnMut(&str, Leaf)) {
        match self.made.get() {
            Some(module) => module.visit(name, visitor),
            None => self.training.visit(&join_names(name, "training"), visitor),
        }
    }

    fn visit_mut(&mut self, name: &str, visitor: &mut dyn FnMut(&str, LeafMut)) {
        let training = join_names(name, "training");
        match self.made.get_mut() {
            Some(module) => module.visit_mut(name, visitor),
            None => self.training.visit_mut(&training, visitor),
        }
    }
}

impl<M: Forward> Module for Lazy<M> {}

#[track_calls(Lazy)]
impl<M: Forward> Forward for Lazy<M> {
    fn forward(&self, x: &Tensor) -> RusTorchResult<Tensor> {
        if let Some(module) = self.made.get() {
            return module.forward(x);
        }
        let expected = "a call before it, which makes the module's parameters for an optimiser";
        let is_now = !is_recording();
        require(
            "Lazy",
            is_now,
            expected,
            "the first one, in a recorded step",
        )?;
        let mut module = (self.make)(x)?;
        module.train(self.training.is_on());
        if x.dtype().is_float() {
            module.to_dtype(x.dtype())?;
        }
        self.made.get_or_init(|| module).forward(x)
    }
}

/// A [`Linear`] whose number of features is the input's last dimension.
pub type LazyLinear = Lazy<Linear>;

impl LazyLinear {
    /// A layer with a bias.
    pub fn new(out_features: usize) -> Self {
        Self::of(move |x| match x.shape().last() {
            Some(&in_features) => Linear::new(in_features, out_features),
            None => Err(unexpected("LazyLinear", "a tensor […, features]", "[]")),
        })
    }
}

/// The size of the dimension of the channels, which `dims` others follow; there may be a batch.
fn channels(name: &'static str, x: &Tensor, dims: usize, has_batch: bool) -> RusTorchResult<usize> {
    let least = if has_batch { dims + 2 } else { dims + 1 };
    let fits = (least..=dims + 2).contains(&x.rank());
    let expected = format_args!("a tensor of {least} to {} dimensions", dims + 2);
    require(name, fits, expected, format_args!("{:?}", x.shape()))?;
    Ok(x.shape()[x.rank() - 1 - dims])
}

macro_rules! lazy_convolutions {
    ($($Lazy:ident = $Conv:ident, $Options:ident, $n:literal;)*) => {
        $(
            #[doc = concat!("A [`", stringify!($Conv), "`] that finds how many channels it gets.")]
            pub type $Lazy = Lazy<$Conv>;

            impl $Lazy {
                /// A layer with a bias.
                pub fn new(
                    out_channels: usize,
                    kernel_size: impl PerDim<$n>,
                    options: $Options<$n>,
                ) -> Self {
                    let kernel = kernel_size.per_dim();
                    Self::of(move |x| {
                        let in_channels = channels(stringify!($Lazy), x, $n, false)?;
                        $Conv::new(in_channels, out_channels, kernel, options)
                    })
                }
            }
        )*
    };
}

lazy_convolutions! {
    LazyConv1d = Conv1d, ConvOptions, 1;
    LazyConv2d = Conv2d, ConvOptions, 2;
    LazyConv3d = Conv3d, ConvOptions, 3;
    LazyConvTranspose1d = ConvTranspose1d, ConvTransposeOptions, 1;
    LazyConvTranspose2d = ConvTranspose2d, ConvTransposeOptions, 2;
    LazyConvTranspose3d = ConvTranspose3d, ConvTransposeOptions, 3;
}

/// Norms whose number of channels comes from the input.
macro_rules! lazy_norms {
    ($($Lazy:ident = $Norm:ident, |$x:ident| $channels:expr;)*) => {
        $(
            #[doc = concat!("A [`", stringify!($Norm), "`] that finds how many channels it gets.")]
            pub type $Lazy = Lazy<$Norm>;

            impl $Lazy {
                #[doc = concat!("With what [`", stringify!($Norm), "::new`] has.")]
                pub fn new() -> Self {
                    Self::default()
                }
            }

            impl Default for $Lazy {
                fn default() -> Self {
                    Self::of(|$x| $Norm::new($channels?))
                }
            }
        )*
    };
}

lazy_norms! {
    LazyBatchNorm1d = BatchNorm1d, |x| channels("LazyBatchNorm1d", x, x.rank().min(3).saturating_sub(2), true);
    LazyBatchNorm2d = BatchNorm2d, |x| channels("LazyBatchNorm2d", x, 2, true);
    LazyBatchNorm3d = BatchNorm3d, |x| channels("LazyBatchNorm3d", x, 3, true);
    LazyInstanceNorm1d = InstanceNorm1d, |x| channels("LazyInstanceNorm1d", x, 1, false);
    LazyInstanceNorm2d = InstanceNorm2d, |x| channels("LazyInstanceNorm2d", x, 2, false);
    LazyInstanceNorm3d = InstanceNorm3d, |x| channels("LazyInstanceNorm3d", x, 3, false);
}
