//! Losses.

use rustorch_tensor::Tensor;
use rustorch_tensor::nn::{CrossEntropyOptions, CtcOptions, Reduction, TripletOptions};

use crate::call::{Call, Called, untyped};
use crate::value::Value;

table! {
    "nn.functional.binary_cross_entropy", "input, target, weight=None, size_average=None, reduce=None, reduction='mean'", |c| {
        c.input()?.binary_cross_entropy(c.tensor("target")?, c.optional("weight")?, reduction(c)?)?
    };
    "nn.functional.binary_cross_entropy_with_logits", BCE_WITH_LOGITS, |c| {
        let (weight, pos_weight) = (c.optional("weight")?, c.optional("pos_weight")?);
        let target = c.tensor("target")?;
        c.input()?.binary_cross_entropy_with_logits(target, weight, pos_weight, reduction(c)?)?
    };
    "nn.functional.cosine_embedding_loss", "input1, input2, target, margin=0, size_average=None, reduce=None, reduction='mean'", |c| {
        let (other, target) = (c.tensor("input2")?, c.tensor("target")?);
        c.input()?.cosine_embedding_loss(other, target, c.float("margin")?, reduction(c)?)?
    };
    "nn.functional.cross_entropy", CROSS_ENTROPY, |c| {
        c.input()?.cross_entropy(c.tensor("target")?, &cross_entropy(c)?)?
    };
    "nn.functional.ctc_loss", CTC, |c| {
        let (inputs, targets) = (lengths(c, "input_lengths")?, lengths(c, "target_lengths")?);
        let options = CtcOptions {
            blank: c.int("blank")?,
            reduction: reduction(c)?,
            zero_infinity: c.bool("zero_infinity")?,
        };
        c.input()?.ctc_loss(c.tensor("targets")?, &inputs, &targets, &options)?
    };
    "nn.functional.gaussian_nll_loss", "input, target, var, full=False, eps=1e-06, reduction='mean'", |c| {
        let (full, eps) = (c.bool("full")?, c.float("eps")?);
        let input = c.input()?;
        let var = match c.value("var")? {
            Value::Tensor(var) => var.clone(),
            _ => Tensor::full(input.shape(), c.float("var")?, input.dtype())?,
        };
        input.gaussian_nll_loss(c.tensor("target")?, &var, full, eps, reduction(c)?)?
    };
    "nn.functional.hinge_embedding_loss", "input, target, margin=1.0, size_average=None, reduce=None, reduction='mean'", |c| {
        c.input()?.hinge_embedding_loss(c.tensor("target")?, c.float("margin")?, reduction(c)?)?
    };
    "nn.functional.huber_loss", "input, target, reduction='mean', delta=1.0, weight=None", |c| {
        let (target, weight) = (c.tensor("target")?, c.optional("weight")?);
        c.input()?.huber_loss(target, c.float("delta")?, weight, reduction(c)?)?
    };
    "nn.functional.kl_div", "input, target, size_average=None, reduce=None, reduction='mean', log_target=False", |c| {
        let (target, log_target) = (c.tensor("target")?, c.bool("log_target")?);
        match c.text("reduction")? {
            "batchmean" if !c.has("size_average") && !c.has("reduce") => c.input()?.kl_div_batchmean(target, log_target)?,
            _ => c.input()?.kl_div(target, log_target, reduction(c)?)?,
        }
    };
    "nn.functional.l1_loss", WEIGHTED, |c| {
        c.input()?.l1_loss(c.tensor("target")?, c.optional("weight")?, reduction(c)?)?
    };
    "nn.functional.linear_cross_entropy", LINEAR_CROSS_ENTROPY, |c| {
        let (weight, target) = (c.tensor("linear_weight")?, c.tensor("target")?);
        let bias = c.optional("linear_bias")?;
        c.input()?.linear_cross_entropy(weight, target, bias, &cross_entropy(c)?)?
    };
    "nn.functional.margin_ranking_loss", "input1, input2, target, margin=0, size_average=None, reduce=None, reduction='mean'", |c| {
        let (other, target) = (c.tensor("input2")?, c.tensor("target")?);
        c.input()?.margin_ranking_loss(other, target, c.float("margin")?, reduction(c)?)?
    };
    "nn.functional.mse_loss", WEIGHTED, |c| {
        c.input()?.mse_loss(c.tensor("target")?, c.optional("weight")?, reduction(c)?)?
    };
    "nn.functional.multi_margin_loss", MULTI_MARGIN, |c| {
        let (p, margin) = (c.int("p")?, c.float("margin")?);
        let (target, weight) = (c.tensor("target")?, c.optional("weight")?);
        c.input()?.multi_margin_loss(target, p, margin, weight, reduction(c)?)?
    };
    "nn.functional.multilabel_margin_loss", "input, target, size_average=None, reduce=None, reduction='mean'", |c| {
        c.input()?.multilabel_margin_loss(c.tensor("target")?, reduction(c)?)?
    };
    "nn.functional.multilabel_soft_margin_loss", "input, target, weight=None, size_average=None, reduce=None, reduction='mean'", |c| {
        let (target, weight) = (c.tensor("target")?, c.optional("weight")?);
        c.input()?.multilabel_soft_margin_loss(target, weight, reduction(c)?)?
    };
    "nn.functional.nll_loss", "input, target, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction='mean'", |c| {
        let (target, weight) = (c.tensor("target")?, c.optional("weight")?);
        c.input()?.nll_loss(target, weight, c.int("ignore_index")?, reduction(c)?)?
    };
    "nn.functional.poisson_nll_loss", POISSON_NLL, |c| {
        let (log_input, full, eps) = (c.bool("log_input")?, c.bool("full")?, c.float("eps")?);
        c.input()?.poisson_nll_loss(c.tensor("target")?, log_input, full, eps, reduction(c)?)?
    };
    "nn.functional.smooth_l1_loss", "input, target, size_average=None, reduce=None, reduction='mean', beta=1.0", |c| {
        c.input()?.smooth_l1_loss(c.tensor("target")?, c.float("beta")?, reduction(c)?)?
    };
    "nn.functional.soft_margin_loss", "input, target, size_average=None, reduce=None, reduction='mean'", |c| {
        c.input()?.soft_margin_loss(c.tensor("target")?, reduction(c)?)?
    };
    "nn.functional.triplet_margin_loss", TRIPLET, |c| {
        let options = TripletOptions {
            margin: c.float("margin")?,
            p: c.float("p")?,
            eps: c.float("eps")?,
            swap: c.bool("swap")?,
            reduction: reduction(c)?,
        };
        c.input()?.triplet_margin_loss(c.tensor("positive")?, c.tensor("negative")?, &options)?
    };
    "nn.functional.triplet_margin_with_distance_loss", TRIPLET_WITH_DISTANCE, |c| {
        c.only("distance_function", "None")?;
        let options = TripletOptions {
            margin: c.float("margin")?,
            swap: c.bool("swap")?,
            reduction: reduction(c)?,
            ..Default::default()
        };
        let (positive, negative) = (c.tensor("positive")?, c.tensor("negative")?);
        let distance = |x: &Tensor, y: &Tensor| x.pairwise_distance(y, 2.0, 1e-6, false);
        c.input()?.triplet_margin_with_distance_loss(positive, negative, distance, &options)?
    };
}

const BCE_WITH_LOGITS: &str = "input, target, weight=None, size_average=None, reduce=None, \
     reduction='mean', pos_weight=None";
const CROSS_ENTROPY: &str = "input, target, weight=None, size_average=None, ignore_index=-100, \
     reduce=None, reduction='mean', label_smoothing=0.0";
const CTC: &str = "log_probs, targets, input_lengths, target_lengths, blank=0, \
     reduction='mean', zero_infinity=False";
const LINEAR_CROSS_ENTROPY: &str = "input, linear_weight, target, *, linear_bias=None, \
     weight=None, reduction='mean', ignore_index=None, label_smoothing=0.0, options=None";
const MULTI_MARGIN: &str = "input, target, p=1, margin=1.0, weight=None, size_average=None, \
     reduce=None, reduction='mean'";
const POISSON_NLL: &str = "input, target, log_input=True, full=False, size_average=None, \
     eps=1e-08, reduce=None, reduction='mean'";
const TRIPLET: &str = "anchor, positive, negative, margin=1.0, p=2, eps=1e-06, swap=False, \
     size_average=None, reduce=None, reduction='mean'";
const TRIPLET_WITH_DISTANCE: &str = "anchor, positive, negative, *, distance_function=None, \
     margin=1.0, swap=False, reduction='mean'";
const WEIGHTED: &str = "input, target, size_average=None, reduce=None, reduction='mean', \
     weight=None";

/// The reduction of a loss.
///
/// # Errors
/// Fails if an argument is missing or of another type.
pub fn reduction(c: &Call) -> Called<Reduction> {
    // The arguments of older programs take precedence.
    let older = ["size_average", "reduce"];
    if older.iter().any(|name| c.has(name)) {
        let [averages, reduces] = older.map(|name| if c.has(name) { c.bool(name) } else { Ok(true) });
        return Ok(match (reduces?, averages?) {
            (true, true) => Reduction::Mean,
            (true, false) => Reduction::Sum,
            (false, _) => Reduction::None,
        });
    }
    match c.text("reduction")? {
        "none" => Ok(Reduction::None),
        "mean" => Ok(Reduction::Mean),
        "sum" => Ok(Reduction::Sum),
        other => untyped(format!("reduction={other}")),
    }
}

fn cross_entropy(c: &Call) -> Called<CrossEntropyOptions<'_>> {
    Ok(CrossEntropyOptions {
        weight: c.optional("weight")?,
        ignore_index: c.maybe_int("ignore_index")?.unwrap_or(-100),
        reduction: reduction(c)?,
        label_smoothing: c.float("label_smoothing")?,
    })
}

/// Lengths in a tensor or a list.
///
/// # Errors
/// Fails if an argument is missing or of another type.
pub fn lengths(c: &Call, name: &str) -> Called<Tensor> {
    match c.value(name)? {
        Value::Tensor(lengths) => Ok(lengths.clone()),
        _ => {
            let lengths: Vec<i64> = c.ints(name)?;
            let count = lengths.len();
            Ok(Tensor::from_vec(lengths, [count])?)
        }
    }
}
