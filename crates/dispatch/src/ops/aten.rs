//! Operators of PyTorch's `aten` that its own functions are made of.

use rustorch_ir::DType;
use rustorch_tensor::nn::{BatchNormOptions, MaxPoolOptions, backward};
use rustorch_tensor::{Index, ScatterReduce, Segments, Tensor};

use super::images::largest;
use super::index::indices;
use super::nn::with_stats;
use crate::call::{Call, Called, CallError, untyped};
use crate::value::Output;

table! {
    "_batch_norm_with_update", "input, weight, bias, running_mean, running_var, momentum, eps", |c| {
        let options = BatchNormOptions {
            weight: c.optional("weight")?,
            bias: c.optional("bias")?,
            training: true,
            momentum: c.float("momentum")?,
            eps: c.float("eps")?,
        };
        let (mean, var) = (c.optional("running_mean")?, c.optional("running_var")?);
        let (y, mean, rstd) = with_stats(c.input()?, mean, var, &options)?;
        // PyTorch puts cuDNN's reserve for the backward pass here.
        vec![y, mean, rstd, Tensor::zeros([0], DType::U8)?]
    };
    "_chunk_cat", "tensors, dim, num_chunks", |c| chunks_joined(c)?;
    "_segment_reduce", "data, reduce, *, lengths=None, indices=None, offsets=None, axis=0, unsafe=False, initial=None", |c| {
        c.only("indices", "None")?;
        let segments = match c.optional("lengths")? {
            Some(lengths) => Segments::Lengths(lengths),
            None => Segments::Offsets(c.tensor("offsets")?),
        };
        let reduce = match c.text("reduce")? {
            "sum" => ScatterReduce::Sum,
            "mean" => ScatterReduce::Mean,
            "prod" => ScatterReduce::Prod,
            "max" => ScatterReduce::Amax,
            "min" => ScatterReduce::Amin,
            other => return Err(CallError::Untyped(format!("reduce={other}"))),
        };
        c.input()?.segment_reduce(reduce, segments, c.int::<isize>("axis")?, c.maybe_float("initial")?)?
    };
    "_softmax_backward_data", "grad_output, output, dim, input_dtype", |c| {
        backward::softmax_backward_data(c.input()?, c.tensor("output")?, c.int::<isize>("dim")?)?
    };
    "_unsafe_masked_index", "input, mask, indices, fill", |c| {
        let found = c.input()?.index(inside(c)?)?;
        found.masked_fill(&c.tensor("mask")?.logical_not()?, c.scalar("fill")?)?
    };
    "_unsafe_masked_index_put_accumulate", "input, mask, indices, values", |c| {
        let outside = c.tensor("mask")?.logical_not()?;
        let values = c.tensor("values")?.masked_fill(&outside, 0)?;
        c.input()?.index_put(inside(c)?, &values, true)?
    };
    // PyTorch's tests pool, and give the backward pass ones.
    "max_pool2d_with_indices_backward", "input, *, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=True", |c| {
        let options: MaxPoolOptions<2> = largest(c)?;
        let (values, indices) = c.input()?.max_pool2d_with_indices(c.each("kernel_size")?, &options)?;
        let grad = values.ones_like()?;
        backward::max_pool2d_with_indices_backward(&grad, c.input()?.shape(), &indices)?
    };
    "native_dropout_backward", "grad_output, mask, scale", |c| {
        backward::native_dropout_backward(c.input()?, c.tensor("mask")?, c.float("scale")?)?
    };
    "native_group_norm", "input, weight, bias, N, C, HxW, group, eps", |c| {
        let (weight, bias) = (c.optional("weight")?, c.optional("bias")?);
        // These sizes repeat the tensor's shape.
        let [n, channels, each] = [c.int::<usize>("N")?, c.int("C")?, c.int("HxW")?];
        let shape = c.input()?.shape();
        let fits = shape.len() >= 2
            && shape[..2] == [n, channels]
            && shape[2..].iter().product::<usize>() == each;
        if !fits {
            return untyped("other sizes than the tensor's");
        }
        c.input()?.native_group_norm(c.int("group")?, weight, bias, c.float("eps")?)?
    };
    "torch.ops.aten._safe_softmax.default", "input, dim, dtype=None", |c| {
        let x = c.input_as("dtype")?;
        let dim = c.int::<isize>("dim")?;
        let is_masked = x.eq(f64::NEG_INFINITY)?.all(dim, true)?;
        x.masked_fill(&is_masked, 0)?.softmax(dim)?.masked_fill(&is_masked, 0)?
    };
    "torch.ops.aten._scaled_dot_product_flash_attention_for_cpu",
        "query, key, value, dropout_p=0.0, is_causal=False, *, attn_mask=None, scale=None", |c| {
        c.only("dropout_p", "0.0")?;
        attention_with_sums(c)?
    };
}

/// The indices, brought to where the tensor has elements.
fn inside(c: &Call) -> Called<Vec<Index>> {
    let shape = c.input()?.shape().to_vec();
    let bounded = |(index, size): (Index, usize)| {
        Ok(match index {
            Index::Tensor(index) => Index::Tensor(index.clamp(0, size as i64 - 1)?),
            other => other,
        })
    };
    indices(c.value("indices")?)?.into_iter().zip(shape).map(bounded).collect()
}

/// The chunks of each tensor, filled up with zeros and laid in rows, beside those of the others.
fn chunks_joined(c: &Call) -> Called<Tensor> {
    let (tensors, count) = (c.tensors("tensors")?, c.int::<usize>("num_chunks")?);
    let Some(first) = tensors.first().filter(|_| count > 0) else {
        return Err(CallError::Untyped("chunks of nothing".to_owned()));
    };
    let dim: isize = c.int::<isize>("dim")?;
    if dim < 0 && tensors.iter().any(|x| x.rank() != first.rank()) {
        return Err(CallError::Untyped("a last dimension of several ranks".to_owned()));
    }
    if tensors.iter().any(|x| x.numel() == 0) {
        return Err(CallError::Untyped("a tensor without elements".to_owned()));
    }
    let at = if dim < 0 { first.rank() as isize + dim } else { dim };
    let rows = |x: &&Tensor| -> Called<Tensor> {
        let each = x.size(at)?.div_ceil(count);
        let mut pad = vec![0; 2 * (x.rank() - at as usize)];
        if let Some(behind) = pad.last_mut() {
            *behind = (each * count - x.size(at)?) as isize;
        }
        let lead = x.shape()[..at as usize].iter().map(|&n| n as isize);
        let sizes: Vec<isize> = lead.chain([count as isize, -1]).collect();
        Ok(x.pad(pad, 0)?.reshape(&sizes[..])?)
    };
    let rows = tensors.iter().map(rows).collect::<Called<Vec<_>>>()?;
    Ok(Tensor::cat(&rows.iter().collect::<Vec<_>>(), at + 1)?)
}

/// Attention, and the logarithm of each softmax's divisor.
fn attention_with_sums(c: &Call) -> Called<Output> {
    let (q, k, v) = (c.input()?, c.tensor("key")?, c.tensor("value")?);
    let scale = c.maybe_float("scale")?.unwrap_or(1.0 / (q.size(-1)? as f64).sqrt());
    let single = |x: &Tensor| x.to_dtype(x.dtype().promote(DType::F32).unwrap_or(x.dtype()));
    let mut scores = single(q)?.matmul(&single(k)?.transpose(-2, -1)?)?.mul(scale)?;
    if let Some(mask) = c.optional("attn_mask")? {
        scores = scores.add(mask)?;
    }
    if c.bool("is_causal")? {
        let seen = Tensor::ones([q.size(-2)?, k.size(-2)?], DType::Bool)?.tril(0)?;
        scores = scores.masked_fill(&seen.logical_not()?, f64::NEG_INFINITY)?;
    }
    let sums = scores.logsumexp(-1, false)?;
    let y = scores.softmax(-1)?.matmul(&single(v)?)?.to_dtype(q.dtype())?;
    Ok((y, sums).into())
}
