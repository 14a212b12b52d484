//! Other looks at the same elements, and tensors put together.

use rustorch_tensor::Tensor;

use crate::call::missing;

table! {
    "T", "input", |c| c.input()?.t()?;
    "as_strided", "input, size, stride, storage_offset=None", |c| {
        let offset = c.maybe_int("storage_offset")?.unwrap_or(0);
        c.input()?.as_strided(c.ints("size")?, c.ints("stride")?, offset)?
    };
    "broadcast_to", "input, *size", |c| c.input()?.broadcast_to(&c.ints::<isize>("size")?[..])?;
    "cat", "tensors, dim=0", |c| Tensor::cat(&c.tensors("tensors")?, c.int("dim")?)?;
    "chunk", "input, chunks, dim=0", |c| c.input()?.chunk(c.int("chunks")?, c.int("dim")?)?;
    "contiguous", "input, *, memory_format=None", |c| c.input()?.contiguous()?;
    "expand", "input, *size", |c| c.input()?.expand(&c.ints::<isize>("size")?[..])?;
    "flatten", "input, start_dim=0, end_dim=-1", |c| {
        c.input()?.flatten(c.int("start_dim")?, c.int("end_dim")?)?
    };
    "narrow", "input, dim, start, length", |c| {
        c.input()?.narrow(c.int("dim")?, c.int("start")?, c.int("length")?)?
    };
    "nn.functional.pad.constant", "input, pad, mode='constant', value=0", |c| {
        c.input()?.pad(c.ints("pad")?, c.scalar("value")?)?
    };
    "permute", "input, *dims", |c| c.input()?.permute(c.ints("dims")?)?;
    "reshape", "input, *shape", |c| c.input()?.reshape(&c.ints::<isize>("shape")?[..])?;
    "select", "input, dim, index", |c| c.input()?.select(c.int("dim")?, c.int("index")?)?;
    "split", "input, split_size_or_sections, dim=0", |c| {
        c.input()?.split(c.int("split_size_or_sections")?, c.int("dim")?)?
    };
    "squeeze", "input, dim=None", |c| c.input()?.squeeze(c.dims("dim")?)?;
    "stack", "tensors, dim=0", |c| Tensor::stack(&c.tensors("tensors")?, c.int("dim")?)?;
    "t", "input", |c| c.input()?.t()?;
    "transpose", "input, dim0, dim1", |c| c.input()?.transpose(c.int("dim0")?, c.int("dim1")?)?;
    "unsqueeze", "input, dim", |c| c.input()?.unsqueeze(c.int("dim")?)?;
    "view", "input, *shape", |c| match c.value("shape")?.parts() {
        Some([crate::value::Value::DType(_)]) => return missing("a view as another dtype"),
        _ => c.input()?.view(&c.ints::<isize>("shape")?[..])?,
    };
}
