//! ONNX's operators that choose, place and rearrange elements.

use rustorch_dispatch::{Call, Called, Output, missing};
use rustorch_ir::DType;
use rustorch_tensor::{Index, PadMode, Patches, ScatterReduce, Tensor, linalg};

use super::{axes, axis, positive_each};

rustorch_dispatch::table! {
    "BitwiseNot", "X", |c| c.input()?.bitwise_not()?;
    "Col2Im", "input, image_shape, block_shape, dilations=1, pads=None, strides=1", |c| {
        if c.ints::<usize>("image_shape")?.len() != 2 {
            return added_up(c);
        }
        let padding = match c.has("pads") {
            false => [0; 2],
            true => match c.ints("pads")?[..] {
                [top, left, bottom, right] if top == bottom && left == right => [top, left],
                _ => return missing("other padding than the same on both sides of images"),
            },
        };
        c.input()?.col2im(c.each("image_shape")?, Patches {
            kernel: c.each("block_shape")?,
            dilation: c.each("dilations")?,
            padding,
            stride: c.each("strides")?,
        })?
    };
    "Compress", "input, condition, axis=None", |c| {
        let chosen = c.tensor("condition")?.nonzero()?.ravel()?;
        match c.maybe_int::<isize>("axis")? {
            Some(axis) => c.input()?.index_select(axis, &chosen)?,
            None => c.input()?.ravel()?.index_select(0, &chosen)?,
        }
    };
    "CumProd", "x, axis, exclusive=0, reverse=0", |c| accumulated(c, 1, Tensor::cumprod)?;
    "CumSum", "x, axis, exclusive=0, reverse=0", |c| accumulated(c, 0, Tensor::cumsum)?;
    "Det", "X", |c| linalg::det(c.input()?)?;
    "Einsum", "*Inputs, *, equation", |c| Tensor::einsum(c.text("equation")?, &c.tensors("Inputs")?)?;
    "EyeLike", "input, dtype=None, k=0", |c| {
        let x = c.input()?;
        let dtype = match c.has("dtype") {
            true => super::dtype(c.int("dtype")?)?,
            false => x.dtype(),
        };
        let k: isize = c.int("k")?;
        Tensor::ones(x.shape(), dtype)?.triu(k)?.tril(k)?
    };
    "Gather", "data, indices, axis=0", |c| {
        let (x, index) = (c.input()?, c.tensor("indices")?);
        let at = axis(c, x.rank())?;
        let index = from_start(index, x.shape()[at])?;
        let shape = [&x.shape()[..at], index.shape(), &x.shape()[at + 1..]].concat();
        x.index_select(at as isize, &index.ravel()?)?.reshape(shape)?
    };
    "GatherND", "data, indices, batch_dims=0", |c| {
        let (x, index) = (c.input()?, c.tensor("indices")?);
        match c.int("batch_dims")? {
            0 => x.index(columns(index)?)?,
            1 => {
                let parts = x.unbind(0)?.into_iter().zip(index.unbind(0)?);
                let parts = parts.map(|(x, index)| Ok(x.index(columns(&index)?)?));
                let parts: Vec<Tensor> = parts.collect::<Called<_>>()?;
                Tensor::stack(&parts.iter().collect::<Vec<_>>(), 0)?
            }
            other => return missing(format!("batch_dims={other}")),
        }
    };
    "IsInf", "X, detect_negative=1, detect_positive=1", |c| {
        let x = c.input()?;
        match (c.bool("detect_negative")?, c.bool("detect_positive")?) {
            (true, true) => x.isinf()?,
            (true, false) => x.isneginf()?,
            (false, true) => x.isposinf()?,
            (false, false) => Tensor::zeros(x.shape(), DType::Bool)?,
        }
    };
    "NonZero", "X", |c| c.input()?.nonzero()?.t()?;
    "OneHot", "indices, depth, values, axis=-1", |c| {
        let (depth, values) = (c.int::<i64>("depth")?, c.tensor("values")?);
        let index = from_start(&c.input()?.to_dtype(DType::I64)?, depth as usize)?;
        let classes = Tensor::arange_with(0, depth, 1, DType::I64)?;
        let is_hot = index.unsqueeze(-1)?.eq(&classes)?.movedim(-1, c.int::<isize>("axis")?)?;
        Tensor::where_(&is_hot, &values.select(0, 1)?, &values.select(0, 0)?)?
    };
    "Pad", "data, pads, constant_value=None, axes=None, mode='constant'", |c| padded(c)?;
    "Scatter", "data, indices, updates, axis=0", |c| {
        c.input()?.scatter(c.int::<isize>("axis")?, c.tensor("indices")?, c.tensor("updates")?)?
    };
    "ScatterElements", "data, indices, updates, axis=0, reduction='none'", |c| {
        let (x, axis, updates) = (c.input()?, c.int::<isize>("axis")?, c.tensor("updates")?);
        let index = from_start(c.tensor("indices")?, x.size(axis)?)?;
        match reduction(c)? {
            None => x.scatter(axis, &index, updates)?,
            Some(reduction) => x.scatter_reduce(axis, &index, updates, reduction, true)?,
        }
    };
    "ScatterND", "data, indices, updates, reduction='none'", |c| {
        let (indices, updates) = (columns(c.tensor("indices")?)?, c.tensor("updates")?);
        match reduction(c)? {
            None => c.input()?.index_put(indices, updates, false)?,
            Some(ScatterReduce::Sum) => c.input()?.index_put(indices, updates, true)?,
            Some(other) => combined(c, other)?,
        }
    };
    "Split", "input, split=None, axis=0, num_outputs=None", |c| {
        let (x, axis) = (c.input()?, c.int::<isize>("axis")?);
        if c.has("split") {
            return Ok(x.split_with_sizes(c.ints("split")?, axis)?.into());
        }
        let count = c.maybe_int("num_outputs")?.unwrap_or(c.results);
        x.split(x.size(axis)?.div_ceil(count.max(1)), axis)?
    };
    "Tile", "input, repeats", |c| c.input()?.tile(c.ints("repeats")?)?;
    "Trilu", "input, k=0, upper=1", |c| {
        let k: isize = c.maybe_int("k")?.unwrap_or(0);
        match c.bool("upper")? {
            true => c.input()?.triu(k)?,
            false => c.input()?.tril(k)?,
        }
    };
}

/// Columns `[n, c · kernel elements, windows]` added up at their places in volumes of any rank.
fn added_up(c: &Call) -> Called<Output> {
    let sizes: Vec<usize> = c.ints("image_shape")?;
    let each = |name: &str| positive_each(c, name, sizes.len());
    let (kernel, dilations, strides) = (each("block_shape")?, each("dilations")?, each("strides")?);
    if c.has("pads") {
        return missing("padding of other than images");
    }
    // Places of elements of windows, [kernel elements, windows], one dimension after the other.
    let mut places = Tensor::zeros([1, 1], DType::I64)?;
    for (d, &size) in sizes.iter().enumerate() {
        let reach = (kernel[d] - 1).saturating_mul(dilations[d]);
        let Some(left) = size.checked_sub(reach).and_then(|left| left.checked_sub(1)) else {
            return missing(format!("windows larger than {sizes:?}"));
        };
        let windows = left / strides[d] + 1;
        let line = |n: usize, step: usize| {
            Tensor::arange_with(0, n as i64, 1, DType::I64)?.mul(step as i64)
        };
        let inside = line(kernel[d], dilations[d])?.reshape([1, -1, 1, 1])?;
        let along = inside.add(&line(windows, strides[d])?)?;
        let before = places.mul(size as i64)?.unsqueeze(1)?.unsqueeze(3)?;
        let shape = [places.shape()[0] * kernel[d], places.shape()[1] * windows];
        places = before.add(&along)?.reshape(shape)?;
    }
    let x = c.input()?;
    let (n, elements) = (x.size(0)?, places.size(0)?);
    let channels = x.size(1)? / elements.max(1);
    let places = places.ravel()?.expand([n, channels, places.numel()])?;
    let volume: usize = sizes.iter().product();
    let zeros = Tensor::zeros([n, channels, volume], x.dtype())?;
    let sums = zeros.scatter_add(2, &places, &x.reshape(places.shape())?)?;
    Ok(sums.reshape([&[n, channels], &sizes[..]].concat())?.into())
}

/// Parts combined with those at the indices in the last dimension.
fn combined(c: &Call, reduction: ScatterReduce) -> Called<Tensor> {
    let (x, index, updates) = (c.input()?, c.tensor("indices")?, c.tensor("updates")?);
    let Some((indexed, part)) = x.shape().split_at_checked(index.size(-1)?) else {
        return missing("indices of more dimensions than the data");
    };
    let mut line = Tensor::zeros([], DType::I64)?;
    for (column, &size) in index.unbind(-1)?.iter().zip(indexed) {
        line = line.mul(size as i64)?.add(&from_start(column, size)?)?;
    }
    let width: usize = part.iter().product();
    let lines = x.reshape([indexed.iter().product::<usize>(), width])?;
    let updates = updates.reshape([line.numel(), width])?;
    let line = line.reshape([line.numel(), 1])?.expand(updates.shape())?;
    let all = lines.scatter_reduce(0, &line, &updates, reduction, true)?;
    Ok(all.reshape(x.shape())?)
}

/// Indices; negative ones count from the end.
fn from_start(index: &Tensor, size: usize) -> Called<Tensor> {
    Ok(Tensor::where_(
        &index.lt(0)?,
        &index.add(size as i64)?,
        index,
    )?)
}

/// An index for each of the first dimensions, of those that lie in the last one.
fn columns(indices: &Tensor) -> Called<Vec<Index>> {
    let columns = indices.unbind(-1)?;
    Ok(columns.into_iter().map(Index::Tensor).collect())
}

fn reduction(c: &Call) -> Called<Option<ScatterReduce>> {
    Ok(match c.text("reduction")? {
        "add" => Some(ScatterReduce::Sum),
        "mul" => Some(ScatterReduce::Prod),
        "max" => Some(ScatterReduce::Amax),
        "min" => Some(ScatterReduce::Amin),
        _ => None,
    })
}

/// Sums or products up to each element, or up to the one before, from either end.
fn accumulated(
    c: &Call,
    neutral: i64,
    of: fn(&Tensor, isize) -> rustorch_tensor::RusTorchResult<Tensor>,
) -> Called<Tensor> {
    let (x, axis) = (c.input()?, c.int::<isize>("axis")?);
    let turned = |x: &Tensor| match c.bool("reverse")? {
        true => Ok(x.flip(axis)?),
        false => Called::Ok(x.clone()),
    };
    let mut sums = of(&turned(x)?, axis)?;
    if c.bool("exclusive")? {
        let last = x.size(axis)?;
        let first = sums.narrow(axis, 0, 1)?.full_like(neutral)?;
        sums = Tensor::cat(&[&first, &sums.narrow(axis, 0, last - 1)?], axis)?;
    }
    Ok(turned(&sums)?.to_dtype(x.dtype())?)
}

/// Padding that lists the numbers before each axis, then those behind.
fn padded(c: &Call) -> Called<Tensor> {
    let (x, pads) = (c.input()?, c.ints::<isize>("pads")?);
    let (before, behind) = pads.split_at(pads.len() / 2);
    let axes = axes(c, x.rank())?;
    let mut pairs = vec![0; 2 * x.rank()];
    for ((&axis, &before), &behind) in axes.iter().zip(before).zip(behind) {
        // The last dimension comes first.
        let at = 2 * (x.rank() - 1 - axis);
        (pairs[at], pairs[at + 1]) = (before, behind);
    }
    let mode = match c.text("mode")? {
        "reflect" => PadMode::Reflect,
        "edge" => PadMode::Replicate,
        "wrap" => PadMode::Circular,
        _ if c.has("constant_value") => PadMode::Constant(c.float("constant_value")?.into()),
        _ => 0.into(),
    };
    Ok(x.pad(pairs, mode)?)
}
