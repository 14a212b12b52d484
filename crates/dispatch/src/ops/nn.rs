//! Layers of neural networks.

use rustorch_tensor::nn::{
    BatchNormOptions, CdistMode, EmbeddingBagMode, EmbeddingBagOptions, MultiHeadOptions,
    Projections,
};
use rustorch_tensor::{AttentionOptions, RusTorchResult, Tensor};

use crate::call::{Call, Called, untyped};
use crate::value::{Output, Value};

table! {
    // Two overloads have this name.
    "_native_batch_norm_legit", "input, weight, bias, *others", |c| {
        let others = c.value("others")?.parts().unwrap_or_default().to_vec();
        let signature = match others.len() {
            3 => BATCH_NORM_WITHOUT_RUNNING,
            _ => NATIVE_BATCH_NORM,
        };
        let first = ["input", "weight", "bias"].map(|name| c.value(name).cloned());
        let all = first.into_iter().collect::<Called<Vec<_>>>()?.into_iter().chain(others);
        native_batch_norm(&Call::bind(signature, all.collect(), Vec::new())?)?
    };
    "cdist", "x1, x2, p=2.0, compute_mode='use_mm_for_euclid_dist_if_necessary'", |c| {
        let mode = match c.text("compute_mode")? {
            "use_mm_for_euclid_dist" => CdistMode::UseMmForEuclidDist,
            "donot_use_mm_for_euclid_dist" => CdistMode::DontUseMmForEuclidDist,
            "use_mm_for_euclid_dist_if_necessary" => CdistMode::UseMmForEuclidDistIfNecessary,
            other => return untyped(format!("compute_mode={other}")),
        };
        c.input()?.cdist(c.tensor("x2")?, c.float("p")?, mode)?
    };
    "log_softmax", "input, dim, dtype=None", |c| c.input_as("dtype")?.log_softmax(c.int::<isize>("dim")?)?;
    "native_batch_norm", NATIVE_BATCH_NORM, |c| native_batch_norm(c)?;
    "native_layer_norm", "input, normalized_shape, weight, bias, eps", |c| {
        let (weight, bias) = (c.optional("weight")?, c.optional("bias")?);
        c.input()?.native_layer_norm(c.ints("normalized_shape")?, weight, bias, c.float("eps")?)?
    };
    "nn.functional.alpha_dropout", ALPHA_DROPOUT, |c| dropped(c, Tensor::alpha_dropout)?;
    "nn.functional.batch_norm", BATCH_NORM, |c| {
        let (mean, var) = (c.optional("running_mean")?, c.optional("running_var")?);
        c.input()?.batch_norm(mean, var, &batch_norm_options(c, c.bool("training")?)?)?
    };
    "nn.functional.bilinear", "input1, input2, weight, bias=None", |c| {
        c.input()?.bilinear(c.tensor("input2")?, c.tensor("weight")?, c.optional("bias")?)?
    };
    "nn.functional.cosine_similarity", "x1, x2, dim=1, eps=1e-8", |c| {
        c.input()?.cosine_similarity(c.tensor("x2")?, c.int::<isize>("dim")?, c.float("eps")?)?
    };
    "nn.functional.dropout", DROPOUT, |c| dropped(c, Tensor::dropout)?;
    "nn.functional.dropout2d", DROPOUT, |c| dropped(c, Tensor::dropout2d)?;
    "nn.functional.dropout3d", DROPOUT, |c| dropped(c, Tensor::dropout3d)?;
    // PyTorch's tests give the table first.
    "nn.functional.embedding", EMBEDDING, |c| {
        let (table, ids) = (c.tensor("weight")?, c.tensor("input")?);
        match c.maybe_float("max_norm")? {
            Some(max) => table.embedding_renorm(ids, max, c.float("norm_type")?)?,
            None => table.embedding(ids)?,
        }
    };
    "nn.functional.embedding_bag", EMBEDDING_BAG, |c| {
        let options = EmbeddingBagOptions {
            mode: match c.text("mode")? {
                "sum" => EmbeddingBagMode::Sum,
                "max" => EmbeddingBagMode::Max,
                "mean" => EmbeddingBagMode::Mean,
                other => return untyped(format!("mode={other}")),
            },
            offsets: c.optional("offsets")?,
            include_last_offset: c.bool("include_last_offset")?,
            per_sample_weights: c.optional("per_sample_weights")?,
            padding_idx: c.maybe_int("padding_idx")?,
            max_norm: c.maybe_float("max_norm")?,
            norm_type: c.maybe_float("norm_type")?,
        };
        c.tensor("weight")?.embedding_bag(c.tensor("input")?, &options)?
    };
    "nn.functional.feature_alpha_dropout", ALPHA_DROPOUT, |c| dropped(c, Tensor::feature_alpha_dropout)?;
    "nn.functional.gelu", "input, *, approximate='none'", |c| match c.text("approximate")? {
        "tanh" => c.input()?.gelu_tanh()?,
        "none" => c.input()?.gelu()?,
        other => return untyped(format!("approximate={other}")),
    };
    "nn.functional.group_norm", "input, num_groups, weight=None, bias=None, eps=1e-05", |c| {
        let (weight, bias) = (c.optional("weight")?, c.optional("bias")?);
        c.input()?.group_norm(c.int("num_groups")?, weight, bias, c.float("eps")?)?
    };
    "nn.functional.instance_norm", INSTANCE_NORM, |c| {
        let (mean, var) = (c.optional("running_mean")?, c.optional("running_var")?);
        let channels = c.input()?.shape().get(1).copied();
        let fits = |x: &&Tensor| x.rank() == 1 && Some(x.numel()) == channels;
        if ![mean, var].iter().flatten().all(fits) {
            return untyped("running statistics of other channels, which are not an argument here");
        }
        let running = match (c.bool("use_input_stats")?, mean, var) {
            (true, ..) => None,
            (false, Some(mean), Some(var)) => Some([mean, var]),
            _ => return untyped("neither statistics"),
        };
        let (weight, bias) = (c.optional("weight")?, c.optional("bias")?);
        c.input()?.instance_norm(running, weight, bias, c.float("eps")?)?
    };
    "nn.functional.layer_norm", "input, normalized_shape, weight=None, bias=None, eps=1e-05", |c| {
        let (weight, bias) = (c.optional("weight")?, c.optional("bias")?);
        c.input()?.layer_norm(c.ints("normalized_shape")?, weight, bias, c.float("eps")?)?
    };
    "nn.functional.linear", "input, weight, bias=None", |c| {
        c.input()?.linear(c.tensor("weight")?, c.optional("bias")?)?
    };
    "nn.functional.local_response_norm", "input, size, alpha=0.0001, beta=0.75, k=1.0", |c| {
        let (alpha, beta, k) = (c.float("alpha")?, c.float("beta")?, c.float("k")?);
        c.input()?.local_response_norm(c.int("size")?, alpha, beta, k)?
    };
    "nn.functional.multi_head_attention_forward", MULTI_HEAD, |c| multi_head(c)?;
    "nn.functional.normalize", "input, p=2.0, dim=1, eps=1e-12", |c| {
        c.input()?.normalize(c.float("p")?, c.dims("dim")?, c.float("eps")?)?
    };
    "nn.functional.pairwise_distance", "x1, x2, p=2.0, eps=1e-6, keepdim=False", |c| {
        let (p, eps) = (c.float("p")?, c.float("eps")?);
        c.input()?.pairwise_distance(c.tensor("x2")?, p, eps, c.bool("keepdim")?)?
    };
    "nn.functional.pdist", "input, p=2.0", |c| c.input()?.pdist(c.float("p")?)?;
    "nn.functional.relu", "input, inplace=False", |c| c.input()?.relu()?;
    "nn.functional.rms_norm", "input, normalized_shape, weight=None, eps=None", |c| {
        let shape: Vec<usize> = c.ints("normalized_shape")?;
        c.input()?.rms_norm(shape, c.optional("weight")?, c.maybe_float("eps")?)?
    };
    "nn.functional.scaled_dot_product_attention", ATTENTION, |c| {
        let options = AttentionOptions {
            dropout_p: c.float("dropout_p")?,
            mask: c.optional("attn_mask")?,
            is_causal: c.bool("is_causal")?,
            scale: c.maybe_float("scale")?,
            ..AttentionOptions::default()
        };
        c.input()?.scaled_dot_product_attention(c.tensor("key")?, c.tensor("value")?, options)?
    };
    "nn.functional.silu", "input, inplace=False", |c| c.input()?.silu()?;
    "nn.functional.softmin", "input, dim, dtype=None", |c| {
        let input = c.input()?;
        match c.has("dtype") {
            // Integers are negated before they are converted, as in PyTorch.
            true => {
                let dtype = c.dtype_or("dtype", input.dtype())?;
                input.neg()?.to_dtype(dtype)?.softmax(c.int::<isize>("dim")?)?
            }
            false => input.softmin(c.int::<isize>("dim")?)?,
        }
    };
    "softmax", "input, dim, dtype=None", |c| c.input_as("dtype")?.softmax(c.int::<isize>("dim")?)?;
    "nn.functional.celu", "input, alpha=1.0, inplace=False", |c| {
        c.input()?.celu(c.float("alpha")?)?
    };
    "nn.functional.elu", "input, alpha=1.0, inplace=False", |c| c.input()?.elu(c.float("alpha")?)?;
    "nn.functional.glu", "input, dim=-1", |c| c.input()?.glu(c.int::<isize>("dim")?)?;
    "nn.functional.hardshrink", "input, lambd=0.5", |c| c.input()?.hardshrink(c.float("lambd")?)?;
    "nn.functional.hardsigmoid", "input, inplace=False", |c| c.input()?.hardsigmoid()?;
    "nn.functional.hardswish", "input, inplace=False", |c| c.input()?.hardswish()?;
    "nn.functional.hardtanh", "input, min_val=-1.0, max_val=1.0, inplace=False", |c| {
        c.input()?.hardtanh(c.float("min_val")?, c.float("max_val")?)?
    };
    "nn.functional.leaky_relu", "input, negative_slope=0.01, inplace=False", |c| {
        c.input()?.leaky_relu(c.float("negative_slope")?)?
    };
    "nn.functional.logsigmoid", "input", |c| c.input()?.logsigmoid()?;
    "nn.functional.mish", "input, inplace=False", |c| c.input()?.mish()?;
    "nn.functional.prelu", "input, weight", |c| c.input()?.prelu(c.tensor("weight")?)?;
    "nn.functional.relu6", "input, inplace=False", |c| c.input()?.relu6()?;
    "nn.functional.rrelu", "input, lower=0.125, upper=0.3333333333333333, training=False, inplace=False", |c| {
        c.input()?.rrelu(c.float("lower")?, c.float("upper")?, c.bool("training")?)?
    };
    "nn.functional.selu", "input, inplace=False", |c| c.input()?.selu()?;
    "nn.functional.softplus", "input, beta=1, threshold=20", |c| {
        c.input()?.softplus(c.float("beta")?, c.float("threshold")?)?
    };
    "nn.functional.softshrink", "input, lambd=0.5", |c| c.input()?.softshrink(c.float("lambd")?)?;
    "nn.functional.softsign", "input", |c| c.input()?.softsign()?;
    "nn.functional.tanhshrink", "input", |c| c.input()?.tanhshrink()?;
    "nn.functional.threshold", "input, threshold, value, inplace=False", |c| {
        c.input()?.threshold(c.float("threshold")?, c.float("value")?)?
    };
}

const ATTENTION: &str = "query, key, value, attn_mask=None, dropout_p=0, is_causal=False, \
     scale=None, enable_gqa=False";
const ALPHA_DROPOUT: &str = "input, p=0.5, training=False, inplace=False";
const BATCH_NORM: &str = "input, running_mean, running_var, weight=None, bias=None, \
     training=False, momentum=0.1, eps=1e-05";
const DROPOUT: &str = "input, p=0.5, training=True, inplace=False";
const EMBEDDING: &str = "weight, input, padding_idx=None, max_norm=None, norm_type=2, \
     scale_grad_by_freq=False, sparse=False";
const EMBEDDING_BAG: &str = "weight, input, offsets=None, max_norm=None, norm_type=2, \
     scale_grad_by_freq=False, mode='mean', sparse=False, per_sample_weights=None, \
     include_last_offset=False, padding_idx=None";
const INSTANCE_NORM: &str = "input, running_mean=None, running_var=None, weight=None, bias=None, \
     use_input_stats=True, momentum=0.1, eps=1e-05";
const MULTI_HEAD: &str = "query, key, value, embed_dim_to_check, num_heads, in_proj_weight, \
     in_proj_bias, bias_k, bias_v, add_zero_attn, dropout_p, out_proj_weight, out_proj_bias, \
     training=True, key_padding_mask=None, need_weights=True, attn_mask=None, \
     use_separate_proj_weight=False, q_proj_weight=None, k_proj_weight=None, v_proj_weight=None, \
     static_k=None, static_v=None, average_attn_weights=True, is_causal=False";
const NATIVE_BATCH_NORM: &str = "input, weight, bias, running_mean, running_var, training, \
     momentum, eps";
const BATCH_NORM_WITHOUT_RUNNING: &str = "input, weight, bias, training, momentum, eps";

fn dropped(
    c: &Call,
    function: fn(&Tensor, f64, bool) -> RusTorchResult<Tensor>,
) -> Called<Tensor> {
    Ok(function(c.input()?, c.float("p")?, c.bool("training")?)?)
}

fn batch_norm_options<'a>(c: &'a Call, training: bool) -> Called<BatchNormOptions<'a>> {
    Ok(BatchNormOptions {
        weight: c.optional("weight")?,
        bias: c.optional("bias")?,
        training,
        momentum: c.float("momentum")?,
        eps: c.float("eps")?,
    })
}

/// The result, and the batch's statistics in training, else nothing in their place.
fn native_batch_norm(c: &Call) -> Called<Output> {
    // Without a parameter there is none.
    let given = |name| if c.has(name) { c.optional(name) } else { Ok(None) };
    let (mean, var) = (given("running_mean")?, given("running_var")?);
    let training = c.bool("training")?;
    let options = batch_norm_options(c, training)?;
    let input = c.input()?;
    if !training {
        let output = input.batch_norm(mean, var, &options)?;
        let none = Tensor::zeros([0], input.dtype())?;
        return Ok((output, none.clone(), none).into());
    }
    Ok(with_stats(input, mean, var, &options)?.into())
}

/// The statistics in the dtype of the parameters, as PyTorch has them.
pub(super) fn with_stats(
    input: &Tensor,
    mean: Option<&Tensor>,
    var: Option<&Tensor>,
    options: &BatchNormOptions,
) -> Called<(Tensor, Tensor, Tensor)> {
    let normed = input.batch_norm_with_stats(mean, var, options)?;
    let dtype = options.weight.map_or(input.dtype(), Tensor::dtype);
    Ok((normed.output, normed.mean.to_dtype(dtype)?, normed.rstd.to_dtype(dtype)?))
}

fn multi_head(c: &Call) -> Called<Output> {
    let projections = match c.bool("use_separate_proj_weight")? {
        true => Projections::Separate([
            c.tensor("q_proj_weight")?,
            c.tensor("k_proj_weight")?,
            c.tensor("v_proj_weight")?,
        ]),
        false => Projections::Packed(c.tensor("in_proj_weight")?),
    };
    let (bias_k, bias_v) = (c.optional("bias_k")?, c.optional("bias_v")?);
    let options = MultiHeadOptions {
        in_proj_bias: c.optional("in_proj_bias")?,
        out_proj_bias: c.optional("out_proj_bias")?,
        bias_kv: bias_k.zip(bias_v).map(|(k, v)| [k, v]),
        add_zero_attn: c.bool("add_zero_attn")?,
        static_kv: [c.optional("static_k")?, c.optional("static_v")?],
        dropout_p: c.float("dropout_p")?,
        training: c.bool("training")?,
        key_padding_mask: c.optional("key_padding_mask")?,
        attn_mask: c.optional("attn_mask")?,
        need_weights: c.bool("need_weights")?,
        average_attn_weights: c.bool("average_attn_weights")?,
    };
    let (key, value) = (c.tensor("key")?, c.tensor("value")?);
    let (heads, out) = (c.int("num_heads")?, c.tensor("out_proj_weight")?);
    let input = c.input()?;
    let (y, weights) =
        input.multi_head_attention_forward(key, value, heads, projections, out, &options)?;
    Ok(match weights {
        Some(weights) => (y, weights).into(),
        None => Output::List(vec![y.into(), Output::Value(Value::None)]),
    })
}
