//! Connectionist temporal classification:
//! [Graves et al. 2006](https://doi.org/10.1145/1143844.1143891).

use rustorch_ir::DType;
use rustorch_ir::ops::Gather;
use rustorch_macros::track_calls;

use super::Reduction;
use crate::Tensor;
use crate::args::setting::setters;
use crate::error::{RusTorchResult, require};

/// The optional arguments of [`Tensor::ctc_loss`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CtcOptions {
    /// The class of the blank label.
    pub blank: usize,
    /// The reduction of the losses; the mean first divides each loss by its target's length.
    pub reduction: Reduction,
    /// Sets infinite losses to 0.
    pub zero_infinity: bool,
}

setters!(CtcOptions {
    blank: usize,
    reduction: Reduction,
    zero_infinity: bool
});

#[track_calls]
impl Tensor {
    /// The negative log-probability of target sequences, for log-probabilities of classes `self`
    /// `[t, n, c]` or `[t, c]`, floats. `targets` are `[n, s]`, concatenated `[Σ lengths]`, or
    /// `[s]`. Both lengths are `i64` or `i32` `[n]` or `[]`.
    ///
    /// Lengths separate concatenated targets. They are read at once.
    ///
    /// # Errors
    /// Fails for unsupported shapes or dtypes, or a blank that is not a class. Evaluation fails for an
    /// unknown class, or for a length that is too large.
    pub fn ctc_loss(
        &self,
        targets: &Self,
        input_lengths: &Self,
        target_lengths: &Self,
        options: &CtcOptions,
    ) -> RusTorchResult<Self> {
        const NAME: &str = "ctc_loss";
        self.require_float(NAME)?;
        let has_batch = self.rank() == 3;
        let fits = has_batch || self.rank() == 2;
        require(NAME, fits, "a tensor [t, n, c] or [t, c]", self.ty())?;
        let x = self.widened(NAME)?;
        let x = if has_batch { x } else { x.unsqueeze(1)? };
        let &[steps, n, classes] = x.shape() else {
            return Ok(x);
        };
        let got = format_args!("{} of {classes}", options.blank);
        require(
            NAME,
            options.blank < classes && steps > 0,
            "steps, and a blank class",
            got,
        )?;
        // Lengths are known when they are computed, and looked at then.
        let lengths = |lengths: &Self, most: usize| {
            let fits = lengths.numel() == n && lengths.dtype().is_int();
            require(
                NAME,
                fits,
                format_args!("{n} integer lengths"),
                lengths.ty(),
            )?;
            let lengths = lengths.cast(NAME, DType::F32)?;
            let lengths = lengths.within(NAME, 0.0, most as f64, false)?;
            lengths.cast(NAME, DType::I64)?.reshape([n, 1])
        };
        let longest = targets.shape().last().copied().unwrap_or(0);
        let input_lengths = lengths(input_lengths, steps)?;
        let target_lengths = lengths(target_lengths, longest)?;
        let targets = in_rows(NAME, targets, &target_lengths, n)?.cast(NAME, DType::I64)?;
        let alpha = Alignment::new(NAME, &targets, &target_lengths, options.blank)?;
        let losses = alpha.losses(NAME, &x, &input_lengths, &target_lengths)?;
        let losses = match losses.requires_grad() {
            true => losses.add(&only_gradient(&probabilities(&x, &input_lengths)?)?)?,
            false => losses,
        };
        let losses = match options.zero_infinity {
            true => Self::where_(&losses.eq(f64::INFINITY)?, 0.0, &losses)?,
            false => losses,
        };
        let losses = match options.reduction {
            Reduction::Mean => {
                let lengths = target_lengths.squeeze(1)?.maximum(1)?;
                losses.div(&lengths.cast(NAME, losses.dtype())?)?
            }
            _ => losses,
        };
        let losses = if has_batch {
            losses
        } else {
            losses.squeeze(0)?
        };
        options.reduction.of_like(NAME, &losses, self)
    }
}

/// Targets `[n, s]`, also of those one behind another.
fn in_rows(
    name: &'static str,
    targets: &Tensor,
    lengths: &Tensor,
    n: usize,
) -> RusTorchResult<Tensor> {
    require(
        name,
        targets.dtype().is_int(),
        "integer targets",
        targets.ty(),
    )?;
    if targets.rank() == 2 {
        let fits = targets.shape()[0] == n;
        require(
            name,
            fits,
            format_args!("{n} rows of targets"),
            targets.ty(),
        )?;
        return Ok(targets.clone());
    }
    require(
        name,
        targets.rank() == 1,
        "targets [n, s] or [s]",
        targets.ty(),
    )?;
    let longest = match n {
        1 => targets.numel() as i64,
        _ => lengths
            .to_vec::<i64>()?
            .into_iter()
            .max()
            .unwrap_or(0)
            .max(0),
    };
    let ends = lengths.cumsum(0)?;
    let starts = ends.sub(lengths)?;
    let last = targets.numel() as i64 - 1;
    if last < 0 || longest == 0 {
        return Tensor::zeros([n, 0], DType::I64);
    }
    let index = Tensor::arange_with(0, longest, 1, DType::I64)?;
    let places = starts.add(&index)?.clamp(0, last)?;
    let listed = targets.index_select(0, &places.reshape([-1])?)?;
    listed.reshape([n, longest as usize])
}

/// The targets with blanks around each label.
struct Alignment {
    /// Class of each place, `[n, 2 s + 1]`.
    classes: Tensor,
    /// Places that may follow on the one but the last: labels that differ from the label before.
    skips: Tensor,
}

impl Alignment {
    fn new(
        name: &'static str,
        targets: &Tensor,
        lengths: &Tensor,
        blank: usize,
    ) -> RusTorchResult<Self> {
        let (n, s) = (targets.shape()[0], targets.shape()[1]);
        // Padding may be no class.
        let index = Tensor::arange_with(0, s as i64, 1, DType::I64)?;
        let targets = Tensor::where_(&index.lt(lengths)?, targets, blank as i64)?;
        let blanks = targets.full_like(blank as i64)?;
        let pairs = Tensor::stack(&[&blanks, &targets], 2)?.reshape([n, 2 * s])?;
        let classes = pairs.surrounded(name, &[(0, 1)], blank as i64)?;
        let before = classes
            .surrounded(name, &[(2, 0)], blank as i64)?
            .narrow(1, 0, 2 * s + 1)?;
        let skips = classes
            .ne(blank as i64)?
            .logical_and(&classes.ne(&before)?)?;
        Ok(Self { classes, skips })
    }

    /// Minus the logarithms of the targets' probabilities, `[n]`.
    fn losses(
        &self,
        name: &'static str,
        x: &Tensor,
        input_lengths: &Tensor,
        target_lengths: &Tensor,
    ) -> RusTorchResult<Tensor> {
        let (steps, n, places) = (x.shape()[0], x.shape()[1], self.classes.shape()[1]);
        // Logarithms of each place's class, [t, n, places].
        let index = self.classes.unsqueeze(0)?.expand([steps, n, places])?;
        let logs = Tensor::apply(name, Gather { dim: 2 }, &[x, &index])?;
        let place = Tensor::arange_with(0, places as i64, 1, DType::I64)?;
        let begins = place.le(1)?;
        let mut alpha = Tensor::where_(&begins, &logs.select(0, 0)?, f64::NEG_INFINITY)?;
        // The gradient of a step is put among zeros of what the step was taken from: some steps.
        let width = steps.isqrt();
        let parts = (0..steps).step_by(width);
        let parts = parts.map(|first| logs.narrow(0, first, width.min(steps - first)));
        let parts: Vec<Tensor> = parts.collect::<RusTorchResult<_>>()?;
        for step in 1..steps {
            let from = |back: usize| -> RusTorchResult<Tensor> {
                let moved = alpha.surrounded(name, &[(back, 0)], f64::NEG_INFINITY)?;
                moved.narrow(1, 0, places)
            };
            let skipped = Tensor::where_(&self.skips, &from(2)?, f64::NEG_INFINITY)?;
            let sum = log_add(&[&alpha, &from(1)?, &skipped])?;
            let log = parts[step / width].select(0, (step % width) as isize)?;
            let next = sum.add(&log)?;
            // Behind a sequence's end nothing changes.
            alpha = Tensor::where_(&input_lengths.gt(step as i64)?, &next, &alpha)?;
        }
        // The last label, or the blank behind it; of no labels the blank alone.
        let last = target_lengths.mul(2)?;
        let ending = |at: &Tensor| -> RusTorchResult<Tensor> {
            Tensor::apply(name, Gather { dim: 1 }, &[&alpha, at])
        };
        let label = ending(&last.sub(1)?.maximum(0)?)?;
        let is_empty = target_lengths.eq(0)?;
        let label = Tensor::where_(&is_empty, f64::NEG_INFINITY, &label)?;
        let total = log_add(&[&ending(&last)?, &label])?;
        // Nothing is left to be seen of no input: right for no labels.
        let nothing = Tensor::where_(&is_empty, 0.0, f64::NEG_INFINITY)?.cast(name, x.dtype())?;
        let total = Tensor::where_(&input_lengths.eq(0)?, &nothing, &total)?;
        total.squeeze(1)?.neg()
    }
}

/// The sum of all classes' probabilities over a sequence's steps, `[n]`, of their logarithms `[t, n, c]`.
fn probabilities(x: &Tensor, input_lengths: &Tensor) -> RusTorchResult<Tensor> {
    let step = Tensor::arange_with(0, x.shape()[0] as i64, 1, DType::I64)?;
    let is_there = step.unsqueeze(1)?.lt(&input_lengths.squeeze(1)?)?;
    let sums = x.exp()?.sum(2, false)?;
    Tensor::where_(&is_there, &sums, 0.0)?.sum(0, false)
}

/// Zeros with the gradient of `x`.
fn only_gradient(x: &Tensor) -> RusTorchResult<Tensor> {
    x.sub(x.detach())
}

/// `log Σ exp(x)` over tensors. If all are logarithms of 0, there is no gradient.
fn log_add(terms: &[&Tensor]) -> RusTorchResult<Tensor> {
    // Whatever is taken out of the sum has no effect on the gradient.
    let mut largest = terms[0].detach();
    for term in &terms[1..] {
        largest = largest.maximum(term.detach())?;
    }
    let is_none = largest.eq(f64::NEG_INFINITY)?;
    let largest = Tensor::where_(&is_none, 0.0, &largest)?;
    let mut sum = largest.zeros_like()?;
    for term in terms {
        sum = sum.add(&term.sub(&largest)?.exp()?)?;
    }
    let log = Tensor::where_(&is_none, 1.0, &sum)?.log()?.add(&largest)?;
    Tensor::where_(&is_none, f64::NEG_INFINITY, &log)
}
