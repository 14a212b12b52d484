//! Losses: distances of predictions from their targets.

use rustorch_macros::track_calls;
use rustorch_tensor::nn::{CrossEntropyOptions, CtcOptions, Reduction, TripletOptions};
use rustorch_tensor::{IntoShape, RusTorchResult, Tensor};

use super::layers::setters;
use super::{Buffer, Linear, Module};

/// Losses of predictions and targets, one for each entry. An entry has documentation, name, options with their
/// defaults, and the call. Options that are tensors are buffers.
macro_rules! losses {
    ($($(#[$about:meta])* $Loss:ident {
        $($(#[$may:meta])* $option:ident: $Option:ty = $default:expr,)*
    } $([$($(#[$of:meta])* $buffer:ident),*])? => |$this:ident, $x:ident $(, $more:ident)*| $made:expr;)*) => {
        $(
            $(#[$about])*
            #[derive(Module)]
            pub struct $Loss {
                $($(#[$may])* #[module(skip)] pub $option: $Option,)*
                $($($(#[$of])* pub $buffer: Option<Buffer>,)*)?
            }

            impl Default for $Loss {
                fn default() -> Self {
                    Self { $($option: $default,)* $($($buffer: None,)*)? }
                }
            }

            #[track_calls($Loss)]
            impl $Loss {
                setters!($($option: $Option;)*);

                $($(
                    #[doc = concat!("The same with a `", stringify!($buffer), "`, which is a buffer.")]
                    #[must_use]
                    pub fn $buffer(mut self, $buffer: Tensor) -> Self {
                        self.$buffer = Some(Buffer::new($buffer));
                        self
                    }
                )*)?

                /// The reduced loss.
                ///
                /// # Errors
                /// The errors of the tensor's method that it calls.
                pub fn forward(&self, $x: &Tensor $(, $more: &Tensor)*) -> RusTorchResult<Tensor> {
                    let $this = self;
                    $made
                }
            }
        )*
    };
}

/// The value of a buffer, if there is one.
fn held(buffer: &Option<Buffer>) -> Option<Tensor> {
    buffer.as_ref().map(Buffer::get)
}

/// Reductions of [`KLDivLoss`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KLDivReduction {
    /// The same reductions as for the other losses.
    Each(Reduction),
    /// Sum divided by the batch size, which is the mathematical divergence.
    BatchMean,
}

impl rustorch_tensor::Converted for KLDivReduction {}

impl From<Reduction> for KLDivReduction {
    fn from(reduction: Reduction) -> Self {
        Self::Each(reduction)
    }
}

losses! {
    /// `|x - y|`.
    L1Loss {
        /// Reduction of the losses.
        reduction: Reduction = Reduction::Mean,
    } => |l, x, y| x.l1_loss(y, None, l.reduction);
    /// `(x - y)²`.
    MSELoss {
        /// Reduction of the losses.
        reduction: Reduction = Reduction::Mean,
    } => |l, x, y| x.mse_loss(y, None, l.reduction);
    /// `(x - y)² / 2 beta`, or `|x - y| - beta / 2` from `beta` on.
    SmoothL1Loss {
        /// Reduction of the losses.
        reduction: Reduction = Reduction::Mean,
        /// The end of the parabola.
        beta: f64 = 1.0,
    } => |l, x, y| x.smooth_l1_loss(y, l.beta, l.reduction);
    /// `(x - y)² / 2`, or `delta · (|x - y| - delta / 2)` from `delta` on.
    HuberLoss {
        /// Reduction of the losses.
        reduction: Reduction = Reduction::Mean,
        /// The end of the parabola.
        delta: f64 = 1.0,
    } => |l, x, y| x.huber_loss(y, l.delta, None, l.reduction);
    /// Cross-entropy of logits `[n, c, …]` and classes, or their probabilities.
    CrossEntropyLoss {
        /// The class that is left out.
        ignore_index: i64 = -100,
        /// Reduction of the losses.
        reduction: Reduction = Reduction::Mean,
        /// Label smoothing: the share of each target that is spread over all classes.
        label_smoothing: f64 = 0.0,
    } [
        /// The weight of each class, `[c]`.
        weight
    ] => |l, x, y| {
        let weight = held(&l.weight);
        let options = CrossEntropyOptions {
            weight: weight.as_ref(),
            ignore_index: l.ignore_index,
            reduction: l.reduction,
            label_smoothing: l.label_smoothing,
        };
        x.cross_entropy(y, &options)
    };
    /// The negative log-likelihood of classes, from log-probabilities `[n, c, …]`.
    NLLLoss {
        /// The class that is left out.
        ignore_index: i64 = -100,
        /// Reduction of the losses.
        reduction: Reduction = Reduction::Mean,
    } [
        /// The weight of each class, `[c]`.
        weight
    ] => |l, x, y| x.nll_loss(y, held(&l.weight).as_ref(), l.ignore_index, l.reduction);
    /// The negative log-likelihood of Poisson's distribution.
    PoissonNLLLoss {
        /// Whether predictions are logarithms.
        log_input: bool = true,
        /// Whether Stirling's term is added.
        full: bool = false,
        /// Added before the logarithm.
        eps: f64 = 1e-8,
        /// Reduction of the losses.
        reduction: Reduction = Reduction::Mean,
    } => |l, x, y| x.poisson_nll_loss(y, l.log_input, l.full, l.eps, l.reduction);
    /// The negative log-likelihood of a normal distribution with a variance.
    GaussianNLLLoss {
        /// Whether the constant is added.
        full: bool = false,
        /// The least variance.
        eps: f64 = 1e-6,
        /// Reduction of the losses.
        reduction: Reduction = Reduction::Mean,
    } => |l, x, y, var| x.gaussian_nll_loss(y, var, l.full, l.eps, l.reduction);
    /// `y (ln y - x)`, where predictions `x` are logarithms.
    KLDivLoss {
        /// Reduction of the losses.
        reduction: KLDivReduction = KLDivReduction::Each(Reduction::Mean),
        /// Whether targets are logarithms, too.
        log_target: bool = false,
    } => |l, x, y| match l.reduction {
        KLDivReduction::Each(reduction) => x.kl_div(y, l.log_target, reduction),
        KLDivReduction::BatchMean => x.kl_div_batchmean(y, l.log_target),
    };
    /// Binary cross entropy of probabilities and targets from 0 to 1.
    BCELoss {
        /// Reduction of the losses.
        reduction: Reduction = Reduction::Mean,
    } [
        /// The weight of each element; it broadcasts.
        weight
    ] => |l, x, y| x.binary_cross_entropy(y, held(&l.weight).as_ref(), l.reduction);
    /// Binary cross entropy of logits and targets from 0 to 1.
    BCEWithLogitsLoss {
        /// Reduction of the losses.
        reduction: Reduction = Reduction::Mean,
    } [
        /// The weight of each element; it broadcasts.
        weight,
        /// The weight of positive targets, for each class.
        pos_weight
    ] => |l, x, y| {
        let (weight, pos_weight) = (held(&l.weight), held(&l.pos_weight));
        x.binary_cross_entropy_with_logits(y, weight.as_ref(), pos_weight.as_ref(), l.reduction)
    };
    /// `max(0, -y (x₁ - x₂) + margin)`.
    MarginRankingLoss {
        /// Margin by which scores should differ.
        margin: f64 = 0.0,
        /// Reduction of the losses.
        reduction: Reduction = Reduction::Mean,
    } => |l, x1, x2, y| x1.margin_ranking_loss(x2, y, l.margin, l.reduction);
    /// `x` where the target is 1, `max(0, margin - x)` where it is −1.
    HingeEmbeddingLoss {
        /// Margin beyond which a distance is large enough.
        margin: f64 = 1.0,
        /// Reduction of the losses.
        reduction: Reduction = Reduction::Mean,
    } => |l, x, y| x.hinge_embedding_loss(y, l.margin, l.reduction);
    /// Loss of the cosine of vectors that should be alike (1) or not (−1).
    CosineEmbeddingLoss {
        /// The cosine below which a pair has no loss.
        margin: f64 = 0.0,
        /// Reduction of the losses.
        reduction: Reduction = Reduction::Mean,
    } => |l, x1, x2, y| x1.cosine_embedding_loss(x2, y, l.margin, l.reduction);
    /// `ln(1 + exp(-y x))`.
    SoftMarginLoss {
        /// Reduction of the losses.
        reduction: Reduction = Reduction::Mean,
    } => |l, x, y| x.soft_margin_loss(y, l.reduction);
    /// Multi-class margin loss: penalises classes whose score is within the margin of the right one's, or above it.
    MultiMarginLoss {
        /// The exponent, 1 or 2.
        p: i64 = 1,
        /// Margin by which distances should differ.
        margin: f64 = 1.0,
        /// Reduction of the losses.
        reduction: Reduction = Reduction::Mean,
    } [
        /// The weight of each class, `[c]`.
        weight
    ] => |l, x, y| {
        x.multi_margin_loss(y, l.p, l.margin, held(&l.weight).as_ref(), l.reduction)
    };
    /// [`MultiMarginLoss`] with several right classes.
    MultiLabelMarginLoss {
        /// Reduction of the losses.
        reduction: Reduction = Reduction::Mean,
    } => |l, x, y| x.multilabel_margin_loss(y, l.reduction);
    /// Mean over classes of [`BCEWithLogitsLoss`].
    MultiLabelSoftMarginLoss {
        /// Reduction of the losses.
        reduction: Reduction = Reduction::Mean,
    } [
        /// The weight of each class, `[c]`.
        weight
    ] => |l, x, y| x.multilabel_soft_margin_loss(y, held(&l.weight).as_ref(), l.reduction);
    /// Triplet loss: the positive should be nearer to the anchor than the negative, by a margin.
    TripletMarginLoss {
        /// Margin by which the negative should be farther away.
        margin: f64 = 1.0,
        /// Order of the norm of distances.
        p: f64 = 2.0,
        /// A small number added to differences.
        eps: f64 = 1e-6,
        /// Uses the distance of positive and negative if it is less than the anchor's.
        swap: bool = false,
        /// Reduction of the losses.
        reduction: Reduction = Reduction::Mean,
    } => |l, anchor, positive, negative| {
        let options = TripletOptions {
            margin: l.margin,
            p: l.p,
            eps: l.eps,
            swap: l.swap,
            reduction: l.reduction,
        };
        anchor.triplet_margin_loss(positive, negative, &options)
    };
    /// Connectionist temporal classification, from log-probabilities, targets, and the lengths of
    /// both.
    CTCLoss {
        /// The class of blanks.
        blank: usize = 0,
        /// Reduction of the losses.
        reduction: Reduction = Reduction::Mean,
        /// Whether infinite losses become 0.
        zero_infinity: bool = false,
    } => |l, log_probs, targets, input_lengths, target_lengths| {
        let options = CtcOptions {
            blank: l.blank,
            reduction: l.reduction,
            zero_infinity: l.zero_infinity,
        };
        log_probs.ctc_loss(targets, input_lengths, target_lengths, &options)
    };
}

/// [`CrossEntropyLoss`] of a product with the module's weight: [`Tensor::linear_cross_entropy`].
#[derive(Module)]
pub struct LinearCrossEntropyLoss {
    /// The linear layer, whose results are logits `[classes · sizes…]`.
    pub linear: Linear,
    /// The weight of each class, `[classes]`.
    pub weight: Option<Buffer>,
    /// Number of classes, and the sizes of the other dimensions of each sample.
    #[module(skip)]
    pub classes: Vec<usize>,
    /// The class that is left out.
    #[module(skip)]
    pub ignore_index: i64,
    /// Reduction of the losses.
    #[module(skip)]
    pub reduction: Reduction,
    /// Label smoothing: the share of each target that is spread over all classes.
    #[module(skip)]
    pub label_smoothing: f64,
}

#[track_calls(LinearCrossEntropyLoss)]
impl LinearCrossEntropyLoss {
    /// A loss for vectors of `in_features` and `classes` `[number, sizes…]`, without a bias.
    ///
    /// # Errors
    /// Fails for sizes too large for memory.
    pub fn new(in_features: usize, classes: impl IntoShape) -> RusTorchResult<Self> {
        let classes = classes.into_shape().to_vec();
        Ok(Self {
            linear: Linear::new(in_features, classes.iter().product())?.without_bias(),
            weight: None,
            classes,
            ignore_index: -100,
            reduction: Reduction::Mean,
            label_smoothing: 0.0,
        })
    }

    setters!(ignore_index: i64; reduction: Reduction; label_smoothing: f64;);

    /// Sets a weight for each class, which is a buffer.
    #[must_use]
    pub fn weight(mut self, weight: Tensor) -> Self {
        self.weight = Some(Buffer::new(weight));
        self
    }

    /// The reduced loss.
    ///
    /// # Errors
    /// The same errors as [`Tensor::linear_cross_entropy`].
    pub fn forward(&self, x: &Tensor, target: &Tensor) -> RusTorchResult<Tensor> {
        let inner = self.linear.weight.size(1)?;
        let linear = self
            .linear
            .weight
            .reshape(&[&self.classes[..], &[inner]].concat()[..])?;
        let bias = self
            .linear
            .bias
            .as_ref()
            .map(|bias| bias.reshape(&self.classes[..]));
        let weight = held(&self.weight);
        let options = CrossEntropyOptions {
            weight: weight.as_ref(),
            ignore_index: self.ignore_index,
            reduction: self.reduction,
            label_smoothing: self.label_smoothing,
        };
        x.linear_cross_entropy(&linear, target, bias.transpose()?.as_ref(), &options)
    }
}

/// [`TripletMarginLoss`] with a custom distance.
#[derive(Debug, Module)]
pub struct TripletMarginWithDistanceLoss<F> {
    /// The distance of two tensors.
    #[module(skip)]
    pub distance: F,
    /// Margin, swapping, reduction.
    #[module(skip)]
    pub options: TripletOptions,
}

#[track_calls(TripletMarginWithDistanceLoss)]
impl<F: Fn(&Tensor, &Tensor) -> RusTorchResult<Tensor>> TripletMarginWithDistanceLoss<F> {
    /// The reduced loss.
    ///
    /// # Errors
    /// The same errors as [`Tensor::triplet_margin_with_distance_loss`]. Also the errors of the
    /// distance function.
    pub fn forward(
        &self,
        anchor: &Tensor,
        positive: &Tensor,
        negative: &Tensor,
    ) -> RusTorchResult<Tensor> {
        let distance = |x: &Tensor, y: &Tensor| (self.distance)(x, y);
        anchor.triplet_margin_with_distance_loss(positive, negative, distance, &self.options)
    }
}
