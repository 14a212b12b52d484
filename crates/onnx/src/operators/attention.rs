//! ONNX's attention.

use rustorch_dispatch::{Call, Called, Output, missing};
use rustorch_ir::DType;
use rustorch_tensor::Tensor;

rustorch_dispatch::table! {
    "Attention", "Q, K, V, attn_mask=None, past_key=None, past_value=None, nonpad_kv_seqlen=None, *, \
         is_causal=0, kv_num_heads=None, q_num_heads=None, qk_matmul_output_mode=0, scale=None, \
         softcap=0.0, softmax_precision=None", |c| attention(c)?;
}

fn attention(c: &Call) -> Called<Output> {
    let [q, k, v] = [c.input()?, c.tensor("K")?, c.tensor("V")?];
    let is_flat = q.rank() == 3;
    let q = heads(c, q, "q_num_heads")?;
    let [k, v] = [heads(c, k, "kv_num_heads")?, heads(c, v, "kv_num_heads")?];
    let (k, v) = (behind(c, "past_key", k)?, behind(c, "past_value", v)?);
    let past = c.optional("past_key")?.map_or(0, |past| past.shape()[2]);
    let scale = c
        .maybe_float("scale")?
        .unwrap_or(1.0 / (q.size(-1)? as f64).sqrt());
    let groups = q.shape()[1] / k.shape()[1].max(1);
    let shared = |x: &Tensor| x.repeat_interleave(groups, 1);
    let raw = q.matmul(&shared(&k)?.transpose(-2, -1)?)?.mul(scale)?;
    let capped = match c.float("softcap")? {
        0.0 => raw.clone(),
        cap => raw.div(cap)?.tanh()?.mul(cap)?,
    };
    let masked = masked(c, &capped, past)?;
    let weights = masked.softmax(-1)?;
    let mut y = weights.matmul(&shared(&v)?)?;
    if is_flat {
        y = y.transpose(1, 2)?.flatten(2, 3)?;
    }
    let scores = match c.int::<i64>("qk_matmul_output_mode")? {
        0 => raw,
        1 => capped,
        2 => masked,
        _ => weights,
    };
    let all = [y, k, v, scores].into_iter().map(Output::Tensor);
    Ok(Output::List(all.collect()))
}

/// `[n, heads, length, d]` of `[n, length, heads · d]`, which has to say how many heads.
fn heads(c: &Call, x: &Tensor, count: &str) -> Called<Tensor> {
    match x.shape() {
        &[n, length, width] => {
            let heads = c.int::<usize>(count)?;
            let apart = x.reshape([n, length, heads, width / heads.max(1)])?;
            Ok(apart.transpose(1, 2)?)
        }
        [_, _, _, _] => Ok(x.clone()),
        shape => missing(format!("queries, keys or values of the shape {shape:?}")),
    }
}

/// The past values, with these behind them.
fn behind(c: &Call, past: &str, x: Tensor) -> Called<Tensor> {
    match c.optional(past)? {
        Some(past) => Ok(Tensor::cat(&[past, &x], 2)?),
        None => Ok(x),
    }
}

fn masked(c: &Call, scores: &Tensor, past: usize) -> Called<Tensor> {
    let mut scores = scores.clone();
    if let Some(mask) = c.optional("attn_mask")? {
        // No query sees the keys that a mask leaves out.
        let rest = scores.size(-1)? as isize - mask.size(-1)? as isize;
        scores = match mask.dtype() {
            DType::Bool => {
                let hidden = mask.pad([0, rest], 0)?.logical_not()?;
                scores.masked_fill(&hidden, f64::NEG_INFINITY)?
            }
            _ => scores.add(&mask.pad([0, rest], f64::NEG_INFINITY)?)?,
        };
    }
    if let Some(lengths) = c.optional("nonpad_kv_seqlen")? {
        let place = Tensor::arange_with(0, scores.size(-1)? as i64, 1, DType::I64)?;
        let behind = place.ge(&lengths.to_dtype(DType::I64)?.reshape([-1, 1, 1, 1])?)?;
        scores = scores.masked_fill(&behind, f64::NEG_INFINITY)?;
    }
    if c.bool("is_causal")? {
        let sizes = [scores.size(-2)?, scores.size(-1)?];
        let seen = Tensor::ones(sizes, DType::Bool)?.tril(past as isize)?;
        scores = scores.masked_fill(&seen.logical_not()?, f64::NEG_INFINITY)?;
    }
    Ok(scores)
}
