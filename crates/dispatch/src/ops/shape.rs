//! Other looks at the same elements, the same elements elsewhere, and tensors put together.

use rustorch_tensor::{IntoDims, Indexing, PadMode, Patches, Repeats, Sections, Tensor};

use crate::call::{Call, Called, missing, untyped};
use crate::value::{Output, Value};

table! {
    "H", "input", |c| c.input()?.h()?;
    "T", "input", |c| c.input()?.t()?;
    "alias_copy", "input", |c| c.input()?;
    "as_strided", "input, size, stride, storage_offset=None", |c| strided(c)?;
    "as_strided_copy", "input, size, stride, storage_offset=None", |c| strided(c)?;
    "as_strided_scatter", "input, src, size, stride, storage_offset=None", |c| {
        let (size, stride) = (c.ints("size")?, c.ints("stride")?);
        let offset: Option<usize> = c.maybe_int("storage_offset")?;
        c.input()?.as_strided_scatter(c.tensor("src")?, size, stride, offset)?
    };
    "atleast_1d", "*tensors", |c| each(c, Tensor::atleast_1d)?;
    "atleast_2d", "*tensors", |c| each(c, Tensor::atleast_2d)?;
    "atleast_3d", "*tensors", |c| each(c, Tensor::atleast_3d)?;
    "block_diag", "*tensors", |c| Tensor::block_diag(&c.tensors("tensors")?)?;
    "broadcast_shapes", "*shapes", |c| common_shape(c)?;
    "broadcast_tensors", "*tensors", |c| Tensor::broadcast_tensors(&c.tensors("tensors")?)?;
    "broadcast_to", "input, *size", |c| c.input()?.broadcast_to(&c.ints::<isize>("size")?[..])?;
    "cartesian_prod", "*tensors", |c| Tensor::cartesian_prod(&c.tensors("tensors")?)?;
    "cat", "tensors, dim=0", |c| Tensor::cat(&c.tensors("tensors")?, c.int::<isize>("dim")?)?;
    "chunk", "input, chunks, dim=0", |c| c.input()?.chunk(c.int("chunks")?, c.int::<isize>("dim")?)?;
    "column_stack", "tensors", |c| Tensor::column_stack(&c.tensors("tensors")?)?;
    "combinations", "input, r=2, with_replacement=False", |c| {
        c.input()?.combinations(c.int("r")?, c.bool("with_replacement")?)?
    };
    "constant_pad_nd", "input, pad, value=0", |c| {
        c.input()?.pad(c.ints::<isize>("pad")?, c.scalar("value")?)?
    };
    "contiguous", "input, *, memory_format=None", |c| c.input()?.contiguous()?;
    "diag", "input, diagonal=0", |c| c.input()?.diag(c.int::<isize>("diagonal")?)?;
    "diag_embed", "input, offset=0, dim1=-2, dim2=-1", |c| {
        c.input()?.diag_embed(c.int::<isize>("offset")?, c.int::<isize>("dim1")?, c.int::<isize>("dim2")?)?
    };
    "diagflat", "input, offset=0", |c| c.input()?.diagflat(c.int::<isize>("offset")?)?;
    "diagonal", "input, offset=0, dim1=0, dim2=1", |c| diagonal(c)?;
    "diagonal_copy", "input, offset=0, dim1=0, dim2=1", |c| diagonal(c)?;
    "diagonal_scatter", "input, src, offset=0, dim1=0, dim2=1", |c| {
        let (offset, dims) = (c.int::<isize>("offset")?, (c.int::<isize>("dim1")?, c.int::<isize>("dim2")?));
        c.input()?.diagonal_scatter(c.tensor("src")?, offset, dims.0, dims.1)?
    };
    "dsplit", "input, indices_or_sections", |c| c.input()?.dsplit(sections(c)?)?;
    "dstack", "tensors", |c| Tensor::dstack(&c.tensors("tensors")?)?;
    "expand", "input, *size", |c| c.input()?.expand(&c.ints::<isize>("size")?[..])?;
    "expand_as", "input, other", |c| c.input()?.expand_as(c.tensor("other")?)?;
    "expand_copy", "input, *size", |c| c.input()?.expand(&c.ints::<isize>("size")?[..])?;
    "flatten", "input, start_dim=0, end_dim=-1", |c| {
        c.input()?.flatten(c.int::<isize>("start_dim")?, c.int::<isize>("end_dim")?)?
    };
    "flip", "input, *dims", |c| c.input()?.flip(c.dims("dims")?)?;
    "fliplr", "input", |c| c.input()?.fliplr()?;
    "flipud", "input", |c| c.input()?.flipud()?;
    "hsplit", "input, indices_or_sections", |c| c.input()?.hsplit(sections(c)?)?;
    "hstack", "tensors", |c| Tensor::hstack(&c.tensors("tensors")?)?;
    "linalg.diagonal", "input, *, offset=0, dim1=-2, dim2=-1", |c| diagonal(c)?;
    "mH", "input", |c| c.input()?.adjoint()?;
    "mT", "input", |c| c.input()?.mt()?;
    "meshgrid", "*tensors, indexing=None", |c| {
        let indexing = match if c.has("indexing") { c.text("indexing")? } else { "ij" } {
            "xy" => Indexing::Xy,
            "ij" => Indexing::Ij,
            other => return untyped(format!("indexing={other}")),
        };
        Tensor::meshgrid(&c.tensors("tensors")?, indexing)?
    };
    "movedim", "input, source, destination", |c| {
        c.input()?.movedim(c.dims("source")?, c.dims("destination")?)?
    };
    "narrow", "input, dim, start, length", |c| narrow(c)?;
    "narrow_copy", "input, dim, start, length", |c| narrow(c)?;
    "nn.functional.channel_shuffle", "input, groups", |c| {
        c.input()?.channel_shuffle(c.int("groups")?)?
    };
    "nn.functional.pad", "input, pad, mode='constant', value=None", |c| {
        let mode = match (c.text("mode")?, c.has("value")) {
            ("constant", true) => PadMode::Constant(c.scalar("value")?),
            ("constant", false) => 0.into(),
            ("reflect", false) => PadMode::Reflect,
            ("replicate", false) => PadMode::Replicate,
            ("circular", false) => PadMode::Circular,
            (mode, _) => return untyped(format!("mode={mode} with this value")),
        };
        c.input()?.pad(c.ints::<isize>("pad")?, mode)?
    };
    "nn.functional.pixel_shuffle", "input, upscale_factor", |c| {
        c.input()?.pixel_shuffle(c.int("upscale_factor")?)?
    };
    "nn.functional.pixel_unshuffle", "input, downscale_factor", |c| {
        c.input()?.pixel_unshuffle(c.int("downscale_factor")?)?
    };
    "nn.functional.unfold", "input, kernel_size, dilation=1, padding=0, stride=1", |c| {
        c.input()?.im2col(Patches {
            kernel: c.each("kernel_size")?,
            dilation: c.each("dilation")?,
            padding: c.each("padding")?,
            stride: c.each("stride")?,
        })?
    };
    "permute", "input, *dims", |c| c.input()?.permute(c.ints::<isize>("dims")?)?;
    "permute_copy", "input, *dims", |c| c.input()?.permute(c.ints::<isize>("dims")?)?;
    "ravel", "input", |c| c.input()?.ravel()?;
    "repeat", "input, *repeats", |c| c.input()?.repeat(c.ints("repeats")?)?;
    "repeat_interleave", "input, repeats, dim=None, *, output_size=None", |c| {
        let repeats = match c.value("repeats")? {
            Value::Tensor(counts) => Repeats::Listed(counts),
            _ => Repeats::Each(c.int("repeats")?),
        };
        let dim: Option<isize> = c.maybe_int("dim")?;
        c.input()?.repeat_interleave(repeats, dim)?
    };
    "resize_", "input, *size, *, memory_format=None", |c| {
        let mut x = c.input()?.clone();
        x.resize_(c.ints("size")?)?.clone()
    };
    "resize_as_", "input, other, *, memory_format=None", |c| {
        let mut x = c.input()?.clone();
        x.resize_as_(c.tensor("other")?)?.clone()
    };
    "reshape", "input, *shape", |c| c.input()?.reshape(&c.ints::<isize>("shape")?[..])?;
    "reshape_as", "input, other", |c| c.input()?.reshape_as(c.tensor("other")?)?;
    "roll", "input, shifts, dims=None", |c| {
        let dims = match c.value("dims")?.parts() {
            Some([]) => None.into_dims(),
            _ => c.dims("dims")?,
        };
        c.input()?.roll(c.ints::<isize>("shifts")?, dims)?
    };
    "rot90", "input, k=1, dims=None", |c| {
        let dims = match c.has("dims") {
            true => c.ints("dims")?,
            false => vec![0, 1],
        };
        match dims[..] {
            [a, b] => c.input()?.rot90(c.int("k")?, [a, b])?,
            _ => return Err(crate::call::CallError::Untyped("not two dimensions".into())),
        }
    };
    "select", "input, dim, index", |c| c.input()?.select(c.int::<isize>("dim")?, c.int::<isize>("index")?)?;
    "select_scatter", "input, src, dim, index", |c| {
        c.input()?.select_scatter(c.tensor("src")?, c.int::<isize>("dim")?, c.int::<isize>("index")?)?
    };
    "slice", "input, dim=0, start=None, end=None, step=1", |c| {
        let [start, end] = range(c)?;
        c.input()?.slice(c.int::<isize>("dim")?, start, end, c.int("step")?)?
    };
    "slice_scatter", "input, src, dim=0, start=None, end=None, step=1", |c| {
        let [start, end] = range(c)?;
        let (dim, step) = (c.int::<isize>("dim")?, c.int("step")?);
        c.input()?.slice_scatter(c.tensor("src")?, dim, start, end, step)?
    };
    "split", "input, split_size_or_sections, dim=0", |c| {
        match c.value("split_size_or_sections")?.parts() {
            Some(_) => split_with_sizes(c, "split_size_or_sections")?,
            None => c.input()?.split(c.int::<usize>("split_size_or_sections")?, c.int::<isize>("dim")?)?,
        }
    };
    "split_with_sizes", "input, split_sizes, dim=0", |c| split_with_sizes(c, "split_sizes")?;
    "split_with_sizes_copy", "input, split_sizes, dim=0", |c| split_with_sizes(c, "split_sizes")?;
    "squeeze", "input, dim=None", |c| c.input()?.squeeze(c.dims("dim")?)?;
    "squeeze_copy", "input, dim=None", |c| c.input()?.squeeze(c.dims("dim")?)?;
    "stack", "tensors, dim=0", |c| Tensor::stack(&c.tensors("tensors")?, c.int::<isize>("dim")?)?;
    "sum_to_size", "input, *size", |c| c.input()?.sum_to_size(c.ints("size")?)?;
    "t", "input", |c| c.input()?.t()?;
    "t_copy", "input", |c| c.input()?.t()?;
    "tensor_split", "input, indices_or_sections, dim=0", |c| {
        c.input()?.tensor_split(sections(c)?, c.int::<isize>("dim")?)?
    };
    "tile", "input, *dims", |c| c.input()?.tile(c.ints("dims")?)?;
    "trace", "input", |c| c.input()?.trace()?;
    "transpose", "input, dim0, dim1", |c| c.input()?.transpose(c.int::<isize>("dim0")?, c.int::<isize>("dim1")?)?;
    "transpose_copy", "input, dim0, dim1", |c| {
        c.input()?.transpose(c.int::<isize>("dim0")?, c.int::<isize>("dim1")?)?
    };
    "tril", "input, diagonal=0", |c| c.input()?.tril(c.int::<isize>("diagonal")?)?;
    "triu", "input, diagonal=0", |c| c.input()?.triu(c.int::<isize>("diagonal")?)?;
    "unbind", "input, dim=0", |c| c.input()?.unbind(c.int::<isize>("dim")?)?;
    "unbind_copy", "input, dim=0", |c| c.input()?.unbind(c.int::<isize>("dim")?)?;
    "unflatten", "input, dim, sizes", |c| {
        c.input()?.unflatten(c.int::<isize>("dim")?, &c.ints::<isize>("sizes")?[..])?
    };
    "unfold", "input, dimension, size, step", |c| unfold(c)?;
    "unfold_copy", "input, dimension, size, step", |c| unfold(c)?;
    "unsafe_chunk", "input, chunks, dim=0", |c| {
        c.input()?.unsafe_chunk(c.int("chunks")?, c.int::<isize>("dim")?)?
    };
    "unsafe_split", "input, split_size_or_sections, dim=0", |c| {
        match c.value("split_size_or_sections")?.parts() {
            Some(_) => split_with_sizes(c, "split_size_or_sections")?,
            None => c.input()?.unsafe_split(c.int("split_size_or_sections")?, c.int::<isize>("dim")?)?,
        }
    };
    "unsqueeze", "input, dim", |c| c.input()?.unsqueeze(c.int::<isize>("dim")?)?;
    "unsqueeze_copy", "input, dim", |c| c.input()?.unsqueeze(c.int::<isize>("dim")?)?;
    "view", "input, *shape", |c| view(c)?;
    "view_as", "input, other", |c| c.input()?.view_as(c.tensor("other")?)?;
    "view_copy", "input, *shape", |c| view(c)?;
    "vsplit", "input, indices_or_sections", |c| c.input()?.vsplit(sections(c)?)?;
    "vstack", "tensors", |c| Tensor::vstack(&c.tensors("tensors")?)?;
}

fn strided(c: &Call) -> Called<Tensor> {
    let offset: Option<usize> = c.maybe_int("storage_offset")?;
    Ok(c.input()?.as_strided(c.ints("size")?, c.ints("stride")?, offset)?)
}

/// A function of one tensor, or of each of several.
fn each(
    c: &Call,
    change: fn(&Tensor) -> rustorch_tensor::RusTorchResult<Tensor>,
) -> Called<Output> {
    let changed = (c.tensors("tensors")?.into_iter().map(change))
        .collect::<rustorch_tensor::RusTorchResult<Vec<Tensor>>>()?;
    Ok(match c.value("tensors")?.parts() {
        Some([_]) => changed[0].clone().into(),
        _ => changed.into(),
    })
}

fn common_shape(c: &Call) -> Called<Output> {
    let sizes = |value: &Value| -> Called<Vec<usize>> {
        let size = |value: &Value| match value {
            Value::Int(size) => usize::try_from(*size).ok(),
            _ => None,
        };
        let parts = value.parts().unwrap_or(std::slice::from_ref(value));
        let sizes = parts.iter().map(size).collect::<Option<_>>();
        sizes.map_or_else(|| missing(format!("shape {value}")), Ok)
    };
    let shapes = c.value("shapes")?.parts().unwrap_or_default();
    let shapes = shapes.iter().map(sizes).collect::<Called<Vec<_>>>()?;
    let shapes: Vec<&[usize]> = shapes.iter().map(Vec::as_slice).collect();
    let shape = Tensor::broadcast_shapes(&shapes)?;
    Ok(Output::List(shape.iter().map(|&size| (size as i64).into()).collect()))
}

fn diagonal(c: &Call) -> Called<Tensor> {
    Ok(c.input()?.diagonal(c.int::<isize>("offset")?, c.int::<isize>("dim1")?, c.int::<isize>("dim2")?)?)
}

fn narrow(c: &Call) -> Called<Tensor> {
    let (dim, length) = (c.int::<isize>("dim")?, c.int("length")?);
    Ok(match c.value("start")? {
        Value::Tensor(start) => c.input()?.narrow_at(dim, start, length)?,
        Value::Int(start @ ..0) => {
            let size = c.input()?.size(dim)? as i64;
            let from_start = usize::try_from(start + size);
            let outside = |_| crate::call::CallError::Untyped(format!("start={start}"));
            c.input()?.narrow(dim, from_start.map_err(outside)?, length)?
        }
        _ => c.input()?.narrow(dim, c.int("start")?, length)?,
    })
}

/// The bounds of a slice.
fn range(c: &Call) -> Called<[isize; 2]> {
    let (start, end) = (c.maybe_int("start")?, c.maybe_int("end")?);
    Ok([start.unwrap_or(0), end.unwrap_or(isize::MAX)])
}

fn sections(c: &Call) -> Called<Sections> {
    const NAME: &str = "indices_or_sections";
    Ok(match c.value(NAME)? {
        Value::Int(_) => Sections::Count(c.int(NAME)?),
        Value::Tensor(t) => {
            let values: Vec<i64> = t.to_vec()?;
            match t.rank() {
                0 => Sections::Count(values[0].unsigned_abs() as usize),
                _ => Sections::At(values.into_iter().map(|i| i as isize).collect()),
            }
        }
        _ => Sections::At(c.ints(NAME)?),
    })
}

fn split_with_sizes(c: &Call, sizes: &str) -> Called<Vec<Tensor>> {
    Ok(c.input()?.split_with_sizes(c.ints(sizes)?, c.int::<isize>("dim")?)?)
}

fn unfold(c: &Call) -> Called<Tensor> {
    Ok(c.input()?.unfold(c.int::<isize>("dimension")?, c.int("size")?, c.int("step")?)?)
}

fn view(c: &Call) -> Called<Tensor> {
    match c.value("shape")?.parts() {
        Some([Value::DType(_)]) => missing("a view as another dtype"),
        _ => Ok(c.input()?.view(&c.ints::<isize>("shape")?[..])?),
    }
}
