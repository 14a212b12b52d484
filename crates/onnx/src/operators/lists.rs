//! ONNX's sequences of tensors, which are lists here, and values that may be absent.

use rustorch_dispatch::{Call, Called, Value, missing};
use rustorch_ir::DType;
use rustorch_tensor::Tensor;

rustorch_dispatch::table! {
    "ConcatFromSequence", "input_sequence, *, axis, new_axis=0", |c| {
        let (parts, axis) = (c.tensors("input_sequence")?, c.int::<isize>("axis")?);
        match c.bool("new_axis")? {
            true => Tensor::stack(&parts, axis)?,
            false => Tensor::cat(&parts, axis)?,
        }
    };
    "Identity", "input", |c| c.value("input")?.clone();
    "Optional", "input=None, *, type=None", |c| c.value("input")?.clone();
    "OptionalGetElement", "input", |c| c.value("input")?.clone();
    "OptionalHasElement", "input=None", |c| Tensor::scalar(c.has("input"), DType::Bool)?;
    "SequenceAt", "input_sequence, position", |c| {
        let parts = parts(c)?;
        parts[place(c, last_of(parts)?)?].clone()
    };
    "SequenceConstruct", "*inputs", |c| c.value("inputs")?.clone();
    "SequenceEmpty", "dtype=1", |_c| Value::List(Vec::new());
    "SequenceErase", "input_sequence, position=None", |c| {
        let mut parts = parts(c)?.to_vec();
        parts.remove(place(c, last_of(&parts)?)?);
        Value::List(parts)
    };
    "SequenceInsert", "input_sequence, tensor, position=None", |c| {
        let mut parts = parts(c)?.to_vec();
        parts.insert(place(c, parts.len())?, c.value("tensor")?.clone());
        Value::List(parts)
    };
    "SequenceLength", "input_sequence", |c| Tensor::scalar(parts(c)?.len() as i64, DType::I64)?;
    "SplitToSequence", "input, split=None, *, axis=0, keepdims=1", |c| {
        let (x, axis) = (c.input()?, c.int::<isize>("axis")?);
        let parts = match c.optional("split")? {
            None if c.bool("keepdims")? => x.split(1, axis)?,
            None => x.unbind(axis)?,
            Some(split) if split.rank() == 0 => x.split(c.int::<usize>("split")?, axis)?,
            Some(_) => x.split_with_sizes(c.ints("split")?, axis)?,
        };
        Value::List(parts.into_iter().map(Value::Tensor).collect())
    };
}

fn parts(c: &Call) -> Called<&[Value]> {
    match c.value("input_sequence")?.parts() {
        Some(parts) => Ok(parts),
        None => missing("a sequence that is none"),
    }
}

/// The index of the last part.
fn last_of(parts: &[Value]) -> Called<usize> {
    match parts.len().checked_sub(1) {
        Some(last) => Ok(last),
        None => missing("an empty sequence"),
    }
}

/// The index that a position, which may count from the end, stands for; without one the last.
fn place(c: &Call, last: usize) -> Called<usize> {
    let length = parts(c)?.len() as i64;
    let at = match c.maybe_int::<i64>("position")? {
        None => return Ok(last),
        Some(at) if at < 0 => at.saturating_add(length),
        Some(at) => at,
    };
    match usize::try_from(at) {
        Ok(at) if at <= last => Ok(at),
        _ => missing(format!("position {at} of {length}")),
    }
}
