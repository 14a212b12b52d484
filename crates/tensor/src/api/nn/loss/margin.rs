//! Losses that keep scores or distances apart by a margin.

use rustorch_ir::DType;
use rustorch_ir::ops::{Gather, Scatter, ScatterMode};
use rustorch_macros::track_calls;

use super::{Reduction, promoted};
use crate::Tensor;
use crate::args::numbers::require_held;
use crate::args::setting::{Converted, setters};
use crate::error::{RusTorchResult, require};

/// The optional arguments of [`Tensor::triplet_margin_loss`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct TripletOptions {
    /// The margin by which the negative should be farther away.
    pub margin: f64,
    /// The order of the norm of distances.
    pub p: f64,
    /// A small number added to differences.
    pub eps: f64,
    /// Uses the distance of positive and negative if it is less than the anchor's.
    pub swap: bool,
    /// The reduction of the losses.
    pub reduction: Reduction,
}

impl Converted for TripletOptions {}

setters!(TripletOptions {
    margin: f64,
    p: f64,
    eps: f64,
    swap: bool,
    reduction: Reduction
});

impl Default for TripletOptions {
    fn default() -> Self {
        Self {
            margin: 1.0,
            p: 2.0,
            eps: 1e-6,
            swap: false,
            reduction: Reduction::Mean,
        }
    }
}

#[track_calls]
impl Tensor {
    /// `x` if the target is 1, `max(0, margin - x)` if it is −1, and their sum for other targets.
    /// They broadcast. Takes floats.
    ///
    /// # Errors
    /// Fails for shapes that do not broadcast, or an unsupported dtype.
    pub fn hinge_embedding_loss(
        &self,
        target: &Self,
        margin: f64,
        reduction: Reduction,
    ) -> RusTorchResult<Self> {
        const NAME: &str = "hinge_embedding_loss";
        self.require_float(NAME)?;
        require_held(NAME, margin.into(), self.dtype())?;
        let [x, y] = self.pair(NAME, target)?;
        let apart = x.neg()?.add(margin)?.clamp_min(0.0)?;
        let losses =
            Self::where_(&y.ne(1)?, &apart, 0.0)?.add(&Self::where_(&y.ne(-1)?, &x, 0.0)?)?;
        reduction.of_like(NAME, &losses, self)
    }

    /// `1 - cos` of the angle between rows of `self` and `other` `[n, d]` or `[d]`, if the target is 1. If it is −1,
    /// `max(0, cos - margin)`. The target is `[n]` or `[]`. Takes real numbers.
    ///
    /// # Errors
    /// Fails for unsupported shapes.
    pub fn cosine_embedding_loss(
        &self,
        other: &Self,
        target: &Self,
        margin: f64,
        reduction: Reduction,
    ) -> RusTorchResult<Self> {
        const NAME: &str = "cosine_embedding_loss";
        const EPS: f64 = 1e-12;
        let rank = target.rank();
        let fits = rank <= 1 && self.rank() == rank + 1 && other.rank() == rank + 1;
        let got = format_args!("{}, {} and {}", self.ty(), other.ty(), target.ty());
        require(
            NAME,
            fits,
            "x and y [n, d] and a target [n], or [d] and []",
            got,
        )?;
        let wide = |x: &Self| match x.dtype().is_float() {
            true => x.widened(NAME),
            false => x.cast(NAME, DType::F32),
        };
        let (x, y) = (wide(self)?, wide(other)?);
        let squares = |x: &Self| x.square()?.sum(-1, false)?.add(EPS);
        let lengths = squares(&x)?.mul(&squares(&y)?)?.sqrt()?;
        let cos = x.mul(&y)?.sum(-1, false)?.div(&lengths)?;
        let (near, far) = (cos.neg()?.add(1.0)?, cos.sub(margin)?.clamp_min(0.0)?);
        let near = Self::where_(&target.eq(1)?, &near, 0.0)?;
        let losses = near.add(&Self::where_(&target.eq(-1)?, &far, 0.0)?)?;
        reduction.of_like(NAME, &losses, promoted(NAME, &[self, other])?)
    }

    /// `max(0, -target (x - other) + margin)`. For target 1 `x` should be larger by the margin, for
    /// −1 `other`. All have one rank, and broadcast. Takes real numbers.
    ///
    /// # Errors
    /// Fails for unsupported shapes.
    pub fn margin_ranking_loss(
        &self,
        other: &Self,
        target: &Self,
        margin: f64,
        reduction: Reduction,
    ) -> RusTorchResult<Self> {
        const NAME: &str = "margin_ranking_loss";
        let got = format_args!("{}, {} and {}", self.ty(), other.ty(), target.ty());
        let fits = self.rank() == other.rank() && self.rank() == target.rank();
        require(NAME, fits, "tensors of one rank", got)?;
        let [x, y] = self.pair(NAME, other)?;
        let order = target.widened(NAME)?.neg()?;
        let losses = order.mul(&x.sub(&y)?)?.add(margin)?.clamp_min(0.0)?;
        reduction.of_like(NAME, &losses, promoted(NAME, &[self, other, target])?)
    }

    /// `max(0, d(anchor, positive) - d(anchor, negative) + margin)` for `self`, the anchor, and
    /// two others `[…, d]` of its rank, which broadcast; `d` is [`Tensor::pairwise_distance`].
    ///
    /// # Errors
    /// Fails for unsupported shapes, or a margin that is not positive.
    pub fn triplet_margin_loss(
        &self,
        positive: &Self,
        negative: &Self,
        options: &TripletOptions,
    ) -> RusTorchResult<Self> {
        let distance = |x: &Self, y: &Self| x.pairwise_distance(y, options.p, options.eps, false);
        self.triplet(
            "triplet_margin_loss",
            [positive, negative],
            options,
            distance,
        )
    }

    /// [`Tensor::triplet_margin_loss`] with a custom distance, which replaces the options of the
    /// norm.
    ///
    /// # Errors
    /// The same errors as [`Tensor::triplet_margin_loss`], and those of `distance`.
    pub fn triplet_margin_with_distance_loss(
        &self,
        positive: &Self,
        negative: &Self,
        distance: impl Fn(&Self, &Self) -> RusTorchResult<Self>,
        options: &TripletOptions,
    ) -> RusTorchResult<Self> {
        const NAME: &str = "triplet_margin_with_distance_loss";
        self.triplet(NAME, [positive, negative], options, distance)
    }

    fn triplet(
        &self,
        name: &'static str,
        [positive, negative]: [&Self; 2],
        options: &TripletOptions,
        distance: impl Fn(&Self, &Self) -> RusTorchResult<Self>,
    ) -> RusTorchResult<Self> {
        require(
            name,
            options.margin > 0.0,
            "a margin above 0",
            options.margin,
        )?;
        let got = format_args!("{}, {} and {}", self.ty(), positive.ty(), negative.ty());
        let fits = self.rank() == positive.rank() && self.rank() == negative.rank();
        require(name, fits, "tensors of one rank", got)?;
        let all = [self, positive, negative];
        let [x, near, far] = all.map(|x| x.widened(name));
        let (x, near, far) = (x?, near?, far?);
        let to_near = distance(&x, &near)?;
        let mut to_far = distance(&x, &far)?;
        if options.swap {
            to_far = to_far.minimum(&distance(&near, &far)?)?;
        }
        let losses = to_near.sub(&to_far)?.add(options.margin)?.clamp_min(0.0)?;
        match self.dtype().is_float() && losses.dtype().is_float() {
            true => options
                .reduction
                .of_like(name, &losses, promoted(name, &all)?),
            false => options.reduction.of(&losses),
        }
    }

    /// `Σ max(0, margin - x_y + x_i)ᵖ · weight_y / c` over the classes `i` other than the target `y`. `self` is
    /// `[n, c]` or `[c]`, and the classes are `[n]` or `[]`, `i64`. `p` is 1 or 2, `weight` `[c]`. Takes
    /// floats.
    ///
    /// # Errors
    /// Fails for unsupported shapes, dtypes or values of `p`. Evaluation fails for an unknown
    /// class.
    pub fn multi_margin_loss(
        &self,
        target: &Self,
        p: i64,
        margin: f64,
        weight: Option<&Self>,
        reduction: Reduction,
    ) -> RusTorchResult<Self> {
        const NAME: &str = "multi_margin_loss";
        self.require_float(NAME)?;
        require(NAME, matches!(p, 1 | 2), "p of 1 or 2", p)?;
        let classes = self.shape().last().copied().unwrap_or(1);
        let fits = self.rank() <= 2 && classes > 0;
        require(NAME, fits, "a tensor [n, c] or [c] with classes", self.ty())?;
        let rows = self.numel() / classes;
        let fits = target.rank() <= 1 && target.numel() == rows;
        require(
            NAME,
            fits,
            format!("a class for each of {rows} rows"),
            target.ty(),
        )?;
        require(
            NAME,
            target.dtype() == DType::I64,
            "i64 classes",
            target.ty(),
        )?;
        let x = self.widened(NAME)?.reshape([rows, classes])?;
        let place = target.reshape([rows, 1])?;
        let own = Self::apply(NAME, Gather { dim: 1 }, &[&x, &place])?;
        let apart = x.sub(&own)?.add(margin)?.clamp_min(0.0)?;
        let apart = if p == 2 { apart.square()? } else { apart };
        let apart = match weight {
            Some(weight) => {
                let fits = *weight.shape() == [classes];
                let expected = format_args!("a weight for each of {classes} classes");
                require(NAME, fits, expected, weight.ty())?;
                let weight = weight
                    .widened(NAME)?
                    .index_select(0, &target.reshape([-1])?)?;
                apart.mul(&weight.unsqueeze(1)?)?
            }
            None => apart,
        };
        let index = Self::arange_with(0, classes as i64, 1, DType::I64)?;
        let others = Self::where_(&index.ne(&place)?, &apart, 0.0)?;
        let losses = others.sum(1, false)?.div(classes as f64)?;
        let losses = match self.rank() {
            2 => losses,
            _ => losses.reshape([0usize; 0])?,
        };
        reduction.of_like(NAME, &losses, self)
    }

    /// `Σ max(0, 1 - x_y + x_i) / c` over target classes `y` and other classes `i`, for `self`
    /// `[n, c]` or `[c]`. The targets are `i64` of its shape: class indices up to the first
    /// negative. Takes floats.
    ///
    /// # Errors
    /// Fails for unsupported shapes or dtypes. Evaluation fails for an unknown class.
    pub fn multilabel_margin_loss(
        &self,
        target: &Self,
        reduction: Reduction,
    ) -> RusTorchResult<Self> {
        const NAME: &str = "multilabel_margin_loss";
        self.require_float(NAME)?;
        self.require_shape_of(NAME, target)?;
        require(
            NAME,
            target.dtype() == DType::I64,
            "i64 classes",
            target.ty(),
        )?;
        let classes = self.shape().last().copied().unwrap_or(1);
        let fits = self.rank() <= 2 && classes > 0;
        require(NAME, fits, "a tensor [n, c] or [c] with classes", self.ty())?;
        let rows = self.numel() / classes;
        let x = self.widened(NAME)?.reshape([rows, classes])?;
        let target = target
            .to_dtype(DType::F32)?
            .within(NAME, -1.0, classes as f64 - 1.0, false)?
            .to_dtype(DType::I64)?
            .reshape([rows, classes])?;
        let ends = target.lt(0)?.to_dtype(DType::I64)?;
        let counts = ends.cumsum(1)?.eq(0)?;
        let place = Self::where_(&counts, &target, 0)?;
        let add = Scatter {
            dim: 1,
            mode: ScatterMode::Add,
        };
        let zeros = Self::zeros([rows, classes], DType::I64)?;
        let times = Self::apply(NAME, add, &[&zeros, &place, &counts.to_dtype(DType::I64)?])?;
        let own = Self::apply(NAME, Gather { dim: 1 }, &[&x, &place])?;
        // [n, targets, classes]
        let apart = x
            .unsqueeze(1)?
            .sub(&own.unsqueeze(2)?)?
            .add(1.0)?
            .clamp_min(0.0)?;
        let counted = counts
            .unsqueeze(2)?
            .logical_and(&times.eq(0)?.unsqueeze(1)?)?;
        let losses = Self::where_(&counted, &apart, 0.0)?.sum([1, 2], false)?;
        let losses = losses.div(classes as f64)?;
        let losses = match self.rank() {
            2 => losses,
            _ => losses.reshape([0usize; 0])?,
        };
        reduction.of_like(NAME, &losses, self)
    }
}
