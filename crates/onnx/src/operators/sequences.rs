//! ONNX's layers over sequences other than attention, signals, and operators that rearrange by
//! lengths.

use rustorch_dispatch::{Call, Called, Output, missing};
use rustorch_ir::DType;
use rustorch_tensor::fft::{self, FftNorm};
use rustorch_tensor::nn::ConvOptions;
use rustorch_tensor::{ScatterReduce, Tensor};

use super::{axis, positives};

rustorch_dispatch::table! {
    "AffineGrid", "theta, size, align_corners=0", |c| {
        let size: Vec<usize> = c.ints("size")?;
        c.input()?.affine_grid(size, c.bool("align_corners")?)?
    };
    "BitCast", "input, to", |c| {
        let x = c.input()?.contiguous()?;
        Tensor::from_storage(x.storage()?, x.shape(), super::dtype(c.int("to")?)?)?
    };
    "BitShift", "X, Y, direction", |c| match c.text("direction")? {
        "LEFT" => c.input()?.bitwise_left_shift(c.tensor("Y")?)?,
        _ => c.input()?.bitwise_right_shift(c.tensor("Y")?)?,
    };
    "CausalConvWithState", "input, weight, bias=None, past_state=None, *, activation='none'", |c| {
        let (x, weight) = (c.input()?, c.tensor("weight")?);
        let &[channels, _, width @ (1..)] = weight.shape() else {
            return missing("weights other than [channels, 1, width]");
        };
        let past = match c.optional("past_state")? {
            Some(past) => past.clone(),
            None => Tensor::zeros([x.size(0)?, channels, width - 1], x.dtype())?,
        };
        let all = Tensor::cat(&[&past, x], 2)?;
        let options = ConvOptions { groups: channels, ..ConvOptions::default() };
        let y = all.conv1d(weight, c.optional("bias")?, &options)?;
        let y = match c.text("activation")? {
            "none" => y,
            _ => y.silu()?,
        };
        (y, all.narrow(2, all.size(2)?.saturating_sub(width - 1), width - 1)?)
    };
    "CenterCropPad", "input, shape, axes=None", |c| centred(c)?;
    "DFT", "input, dft_length=None, axis=-2, *, inverse=0, onesided=0", |c| transformed(c)?;
    "LinearAttention", LINEAR_ATTENTION, |c| linear_attention(c)?;
    "MaxUnpool", "X, I, output_shape=None, *, kernel_shape, pads=None, strides=1", |c| unpooled(c)?;
    "ReverseSequence", "input, sequence_lens, batch_axis=1, time_axis=0", |c| {
        let (x, lengths) = (c.input()?, c.tensor("sequence_lens")?);
        let (batch, time) = (c.int::<usize>("batch_axis")?, c.int::<usize>("time_axis")?);
        if batch.max(time) >= x.rank() {
            return missing(format!("axes {batch} and {time} of {} dimensions", x.rank()));
        }
        let along = |axis: usize, values: &Tensor| -> Called<Tensor> {
            let mut shape = vec![1; x.rank()];
            shape[axis] = values.numel();
            Ok(values.reshape(shape)?)
        };
        let at = along(time, &Tensor::arange_with(0, x.shape()[time] as i64, 1, DType::I64)?)?;
        let lengths = along(batch, lengths)?;
        let turned = lengths.sub(&at)?.sub(1)?;
        let from = Tensor::where_(&at.lt(&lengths)?, &turned, &at)?.expand(x.shape())?;
        x.gather(time as isize, &from)?
    };
    "RotaryEmbedding", ROTARY, |c| rotated(c)?;
    "STFT", "signal, frame_step, window=None, frame_length=None, *, onesided=1", |c| {
        let signal = c.input()?;
        if signal.shape().last() != Some(&1) {
            return missing("signals of complex numbers");
        }
        let length = match c.optional("window")? {
            Some(window) => window.numel(),
            None => c.int("frame_length")?,
        };
        let mut frames = signal.squeeze(-1isize)?.unfold(1, length, c.int("frame_step")?)?;
        if let Some(window) = c.optional("window")? {
            frames = frames.mul(window)?;
        }
        let spectrum = match c.bool("onesided")? {
            true => fft::rfft(&frames, None, -1, FftNorm::Backward)?,
            false => fft::fft(&frames, None, -1, FftNorm::Backward)?,
        };
        spectrum.view_as_real()?
    };
    "TfIdfVectorizer", TF_IDF, |c| counted(c)?;
    "TensorScatter", "past_cache, update, write_indices=None, *, mode='linear', axis=-2", |c| {
        let (cache, update) = (c.input()?, c.tensor("update")?);
        let place = axis(c, cache.rank())?;
        let axis = place as isize;
        let mut shape = vec![1; cache.rank()];
        shape[place] = update.size(axis)?;
        let mut at = Tensor::arange_with(0, update.size(axis)? as i64, 1, DType::I64)?.reshape(&shape[..])?;
        if let Some(start) = c.optional("write_indices")? {
            shape[place] = 1;
            shape[0] = start.numel();
            at = at.add(&start.reshape(shape)?)?;
        }
        if c.text("mode")? == "circular" {
            at = at.remainder(cache.size(axis)? as i64)?;
        }
        cache.scatter(axis, &at.expand(update.shape())?, update)?
    };
    "Unique", "X, axis=None, sorted=1", |c| unique(c)?;
    "ai.onnx.ml.ArrayFeatureExtractor", "X, Y", |c| {
        c.input()?.index_select(-1, &c.tensor("Y")?.ravel()?)?
    };
    "ai.onnx.ml.Binarizer", "X, threshold=0.0", |c| {
        c.input()?.gt(c.float("threshold")?)?.to_dtype(c.input()?.dtype())?
    };
}

const LINEAR_ATTENTION: &str = "query, key, value, past_state=None, decay=None, beta=None, *, \
     q_num_heads, kv_num_heads, scale=0.0, update_rule='gated_delta', chunk_size=64";
const TF_IDF: &str = "X, *, max_gram_length, max_skip_count, min_gram_length, mode, ngram_counts, \
     ngram_indexes, pool_int64s, weights=None";
const ROTARY: &str = "X, cos_cache, sin_cache, position_ids=None, *, interleaved=0, \
     rotary_embedding_dim=0, num_heads=0";

/// Cuts an axis to its middle elements, or puts zeros around it.
fn centred(c: &Call) -> Called<Tensor> {
    let mut x = c.input()?.clone();
    let sizes: Vec<usize> = c.ints("shape")?;
    for (axis, &size) in super::axes(c, x.rank())?.into_iter().zip(&sizes) {
        let from = x.shape()[axis];
        if size <= from {
            x = x.narrow(axis as isize, (from - size) / 2, size)?;
            continue;
        }
        let missing = size - from;
        // The last dimension comes first.
        let mut pairs = vec![0; 2 * x.rank()];
        let at = 2 * (x.rank() - 1 - axis);
        (pairs[at], pairs[at + 1]) = (missing / 2, missing.div_ceil(2));
        x = x.pad(pairs, 0)?;
    }
    Ok(x)
}

fn transformed(c: &Call) -> Called<Tensor> {
    let x = c.input()?;
    let axis = axis(c, x.rank())? as isize;
    let length = c.maybe_int::<usize>("dft_length")?;
    let numbers = match x.shape().last() {
        // ONNX rounds transforms of real numbers from double precision. A 0 there would be noise in single
        // precision.
        Some(1) => x.to_dtype(DType::F64)?.squeeze(-1isize)?,
        _ => x.contiguous()?.view_as_complex()?,
    };
    let norm = FftNorm::Backward;
    let y = match (c.bool("inverse")?, c.bool("onesided")?) {
        (false, false) => fft::fft(&numbers, length, axis, norm)?.view_as_real()?,
        (false, true) => fft::rfft(&numbers, length, axis, norm)?.view_as_real()?,
        (true, false) => fft::ifft(&numbers, length, axis, norm)?.view_as_real()?,
        (true, true) => fft::irfft(&numbers, length, axis, norm)?.unsqueeze(-1)?,
    };
    Ok(y.to_dtype(x.dtype())?)
}

/// `[n, heads, length, d]` of `[n, length, heads · d]`.
fn apart(x: &Tensor, heads: usize) -> Called<Tensor> {
    let &[n, length, width] = x.shape() else {
        return missing("other than [n, length, width]");
    };
    let apart = x.reshape([n, length, heads, width / heads.max(1)])?;
    Ok(apart.transpose(1, 2)?)
}

/// Attention whose keys and values are one matrix for each head, which each step changes.
fn linear_attention(c: &Call) -> Called<Output> {
    let (heads, shared) = (
        c.int::<usize>("q_num_heads")?,
        c.int::<usize>("kv_num_heads")?,
    );
    let wide = |name: &str, heads| apart(&c.tensor(name)?.to_dtype(DType::F32)?, heads);
    let (q, k, v) = (
        wide("query", heads)?,
        wide("key", shared)?,
        wide("value", shared)?,
    );
    let length = q.shape()[2];
    let mut state = match c.optional("past_state")? {
        Some(past) => past.to_dtype(DType::F32)?,
        None => Tensor::zeros(
            [k.shape()[0], shared, k.shape()[3], v.shape()[3]],
            DType::F32,
        )?,
    };
    let scale = match c.float("scale")? {
        0.0 => 1.0 / (k.shape()[3] as f64).sqrt(),
        scale => scale,
    };
    let decay = if c.has("decay") {
        Some(wide("decay", shared)?)
    } else {
        None
    };
    let beta = match c.optional("beta")? {
        Some(beta) => Some(apart(&beta.to_dtype(DType::F32)?, beta.size(-1)?)?),
        None => None,
    };
    let mut rows = Vec::new();
    for at in 0..length {
        let row = |x: &Tensor| x.narrow(2, at, 1);
        let key = row(&k)?;
        if let Some(decay) = &decay {
            state = state.mul(&row(decay)?.exp()?.transpose(-2, -1)?)?;
        }
        let mut value = row(&v)?;
        if let Some(beta) = &beta {
            value = value.sub(&key.matmul(&state)?)?.mul(&row(beta)?)?;
        }
        state = state.add(&key.transpose(-2, -1)?.matmul(&value)?)?;
        let read = state.repeat_interleave(heads / shared.max(1), 1)?;
        rows.push(row(&q)?.matmul(&read)?.mul(scale)?);
    }
    let rows: Vec<&Tensor> = rows.iter().collect();
    let y = Tensor::cat(&rows, 2)?.transpose(1, 2)?.flatten(2, 3)?;
    let kept = c.optional("past_state")?.unwrap_or(c.input()?).dtype();
    Ok((y.to_dtype(c.input()?.dtype())?, state.to_dtype(kept)?).into())
}

fn unpooled(c: &Call) -> Called<Tensor> {
    c.only("pads", "None")?;
    let (x, index) = (c.input()?, c.tensor("I")?);
    let &[_, _, height @ (1..), width @ (1..)] = x.shape() else {
        return missing("other than images");
    };
    let (kernel, stride) = (
        positives::<2>(c, "kernel_shape")?,
        positives::<2>(c, "strides")?,
    );
    let least = [height, width].into_iter().zip(stride).zip(kernel);
    let least: Vec<usize> = least
        .map(|((n, stride), kernel)| (n - 1).saturating_mul(stride).saturating_add(kernel))
        .collect();
    // Indices count the elements of the least size.
    let lines = [x.shape()[0], x.shape()[1], height * width];
    let elements = least[0].saturating_mul(least[1]);
    let zeros = Tensor::zeros([lines[0], lines[1], elements], x.dtype())?;
    let places = index.remainder(elements as i64)?;
    let y = zeros.scatter(2, &places.reshape(lines)?, &x.reshape(lines)?)?;
    let y = y.reshape([lines[0], lines[1], least[0], least[1]])?;
    match c.has("output_shape") {
        true => {
            let to: Vec<usize> = c.ints("output_shape")?;
            match to[..] {
                [_, _, h, w] if h >= least[0] && w >= least[1] => {
                    Ok(y.pad(vec![0, w - least[1], 0, h - least[0]], 0)?)
                }
                _ => missing(format!("output_shape={to:?}")),
            }
        }
        false => Ok(y),
    }
}

/// Each pair of numbers turned by an angle of its place.
fn rotated(c: &Call) -> Called<Tensor> {
    let x = c.input()?;
    let split = match x.rank() {
        3 => apart(x, c.int("num_heads")?)?,
        _ => x.clone(),
    };
    let width = match c.int("rotary_embedding_dim")? {
        0 => split.size(-1)?,
        width => width,
    };
    let angle = |name: &str| -> Called<Tensor> {
        let cache = c.tensor(name)?;
        let each = match c.optional("position_ids")? {
            Some(ids) => {
                let shape = [ids.shape(), cache.shape().get(1..).unwrap_or_default()].concat();
                cache.index_select(0, &ids.ravel()?)?.reshape(shape)?
            }
            None => cache.clone(),
        };
        Ok(each.unsqueeze(1)?)
    };
    let (cos, sin) = (angle("cos_cache")?, angle("sin_cache")?);
    let turning = split.narrow(-1, 0, width)?;
    let is_interleaved = c.bool("interleaved")?;
    let (a, b) = match is_interleaved {
        true => (
            turning.slice(-1, 0, isize::MAX, 2)?,
            turning.slice(-1, 1, isize::MAX, 2)?,
        ),
        false => (
            turning.narrow(-1, 0, width / 2)?,
            turning.narrow(-1, width / 2, width / 2)?,
        ),
    };
    let real = a.mul(&cos)?.sub(&b.mul(&sin)?)?;
    let imag = a.mul(&sin)?.add(&b.mul(&cos)?)?;
    let turned = match is_interleaved {
        true => Tensor::stack(&[&real, &imag], -1)?.flatten(-2, -1)?,
        false => Tensor::cat(&[&real, &imag], -1)?,
    };
    let kept = split.narrow(-1, width, split.size(-1)? - width)?;
    let y = Tensor::cat(&[&turned, &kept], -1)?;
    Ok(match x.rank() {
        3 => y.transpose(1, 2)?.flatten(2, 3)?,
        _ => y,
    })
}

/// Number of times that each n-gram of the pool comes in a line. The same number of tokens is left
/// out between all of its tokens.
fn counted(c: &Call) -> Called<Tensor> {
    let x = c.input()?.to_dtype(DType::I64)?;
    let lines = x.reshape([-1, x.size(-1)? as isize])?;
    let (batch, length) = (lines.size(0)?, lines.size(1)?);
    let pool: Vec<i64> = c.ints("pool_int64s")?;
    let starts: Vec<usize> = c.ints("ngram_counts")?;
    let wanted = c.int::<usize>("min_gram_length")?..=c.int::<usize>("max_gram_length")?;
    let mut counts = Vec::new();
    for (i, &start) in starts.iter().enumerate() {
        let (n, end) = (i + 1, starts.get(i + 1).copied().unwrap_or(pool.len()));
        let Some(part) = pool.get(start..end) else {
            return missing(format!("ngram_counts={starts:?} of {} numbers", pool.len()));
        };
        let grams = part.len() / n;
        let gram = Tensor::from_slice(part, [grams, n])?;
        let mut count = Tensor::zeros([batch, grams], DType::I64)?;
        // No token can be left out within a single one.
        let skips = if n > 1 {
            c.int::<usize>("max_skip_count")?.min(length)
        } else {
            0
        };
        for step in 1..=skips + 1 {
            let reach = (n - 1) * step;
            if !wanted.contains(&n) || grams == 0 || reach >= length {
                continue;
            }
            let token = |k: usize| Ok(lines.narrow(1, k * step, length - reach)?);
            let tokens: Vec<Tensor> = (0..n).map(token).collect::<Called<_>>()?;
            let windows = Tensor::stack(&tokens.iter().collect::<Vec<_>>(), 2)?;
            let is_found = windows.unsqueeze(2)?.eq(&gram)?.all(-1, false)?;
            count = count.add(&is_found.sum(1, false)?)?;
        }
        counts.push(count);
    }
    let counts = Tensor::cat(&counts.iter().collect::<Vec<_>>(), 1)?.to_dtype(DType::F32)?;
    let weighted = |x: &Tensor| -> Called<Tensor> {
        let weights = if c.has("weights") {
            c.floats("weights")?
        } else {
            vec![1.0; x.size(1)?]
        };
        let weights = Tensor::from_slice(&weights, [weights.len()])?;
        Ok(x.mul(&weights.to_dtype(DType::F32)?)?)
    };
    let values = match c.text("mode")? {
        "IDF" => weighted(&counts.gt(0.0)?.to_dtype(DType::F32)?)?,
        "TFIDF" => weighted(&counts)?,
        _ => counts,
    };
    let places: Vec<i64> = c.ints("ngram_indexes")?;
    let width = places
        .iter()
        .max()
        .map_or(0, |&last| last.max(0) as usize + 1);
    let places = Tensor::from_slice(&places, [places.len()])?;
    let y = Tensor::zeros([batch, width], DType::F32)?.index_copy(1, &places, &values)?;
    Ok(y.reshape([&x.shape()[..x.rank() - 1], &[width]].concat())?)
}

/// Values, where each is first, which each element is, and how often each comes.
fn unique(c: &Call) -> Called<Output> {
    let x = c.input()?;
    let axis = c.maybe_int::<isize>("axis")?;
    let found = x.unique(axis)?;
    let inverse = found.inverse.ravel()?;
    let (count, runs) = (inverse.numel(), found.counts.numel());
    let places = Tensor::arange_with(0, count as i64, 1, DType::I64)?;
    let none = Tensor::full([runs], count as i64, DType::I64)?;
    let first = none.scatter_reduce(0, &inverse, &places, ScatterReduce::Amin, true)?;
    let results = if c.bool("sorted")? {
        vec![found.values, first, inverse, found.counts]
    } else {
        let order = first.argsort(0, false)?;
        let picked = |x: &Tensor, axis: isize| x.index_select(axis, &order);
        let rank = order.argsort(0, false)?;
        vec![
            picked(&found.values, axis.unwrap_or(0))?,
            picked(&first, 0)?,
            rank.index_select(0, &inverse)?,
            picked(&found.counts, 0)?,
        ]
    };
    Ok(results.into())
}
