//! Elements chosen or placed by index, places in sorted sequences.

use rustorch_ir::DType;
use rustorch_tensor::{Index, Operand, ScatterReduce, Tensor, Unique};

use crate::call::{Call, Called, missing, untyped};
use crate::value::{Output, Value};

table! {
    "__getitem__", "input, index", |c| c.input()?.index(indices(c.value("index")?)?)?;
    "argwhere", "input", |c| c.input()?.argwhere()?;
    "bucketize", "input, boundaries, *, out_int32=False, right=False", |c| {
        let places = c.input()?.bucketize(c.tensor("boundaries")?, c.bool("right")?)?;
        as_int32(c, places)?
    };
    "gather", "input, dim, index, *, sparse_grad=False", |c| {
        c.input()?.gather(c.int::<isize>("dim")?, c.tensor("index")?)?
    };
    "index_add", "input, dim, index, source, *, alpha=1", |c| {
        let (dim, alpha) = (c.int::<isize>("dim")?, c.scalar("alpha")?);
        c.input()?.index_add(dim, c.tensor("index")?, c.tensor("source")?, alpha)?
    };
    "index_copy", "input, dim, index, source", |c| {
        c.input()?.index_copy(c.int::<isize>("dim")?, c.tensor("index")?, c.tensor("source")?)?
    };
    "index_fill", "input, dim, index, value", |c| {
        c.input()?.index_fill(c.int::<isize>("dim")?, c.tensor("index")?, c.operand("value")?)?
    };
    "index_put", "input, indices, values, accumulate=False", |c| {
        let (indices, value) = (indices(c.value("indices")?)?, c.operand("values")?);
        c.input()?.index_put(indices, value, c.bool("accumulate")?)?
    };
    "index_select", "input, dim, index", |c| {
        c.input()?.index_select(c.int::<isize>("dim")?, c.tensor("index")?)?
    };
    "isin", "elements, test_elements, *, assume_unique=False, invert=False", |c| {
        let invert = c.bool("invert")?;
        match c.operand("elements")? {
            Operand::Tensor(x) => x.isin(c.operand("test_elements")?, invert)?,
            Operand::Scalar(x) => {
                let others = c.tensor("test_elements")?;
                others.new_full((), x)?.isin(others, invert)?
            }
        }
    };
    "masked_scatter", "input, mask, source", |c| {
        c.input()?.masked_scatter(c.tensor("mask")?, c.tensor("source")?)?
    };
    "masked_select", "input, mask", |c| c.input()?.masked_select(c.tensor("mask")?)?;
    "nn.functional.one_hot", "input, num_classes=-1", |c| {
        match c.value("num_classes")? {
            Value::Int(-1) => c.input()?.one_hot(None)?,
            _ => c.input()?.one_hot(c.int::<usize>("num_classes")?)?,
        }
    };
    "nonzero", "input, *, as_tuple=False", |c| match c.bool("as_tuple")? {
        true => c.input()?.nonzero_tuple()?.into(),
        false => Output::from(c.input()?.nonzero()?),
    };
    "nonzero_static", "input, *, size, fill_value=-1", |c| {
        c.input()?.nonzero_static(c.int("size")?, c.int("fill_value")?)?
    };
    "put", "input, index, source, accumulate=False", |c| {
        let (index, source) = (c.tensor("index")?, c.tensor("source")?);
        c.input()?.put(index, source, c.bool("accumulate")?)?
    };
    "scatter", "input, dim, index, src=None, value=None, *, reduce=None", |c| {
        let source = c.operand(if c.has("src") { "src" } else { "value" })?;
        let (dim, index) = (c.int::<isize>("dim")?, c.tensor("index")?);
        if c.has("reduce") && !["add", "multiply"].contains(&c.text("reduce")?) {
            return untyped(format!("reduce={}", c.text("reduce")?));
        }
        match (c.has("reduce"), source) {
            (false, source) => c.input()?.scatter(dim, index, source)?,
            (true, source) if c.text("reduce")? == "add" => c.input()?.scatter_add(dim, index, source)?,
            (true, source) => c.input()?.scatter_reduce(dim, index, source, ScatterReduce::Prod, true)?,
        }
    };
    "scatter_add", "input, dim, index, src", |c| {
        c.input()?.scatter_add(c.int::<isize>("dim")?, c.tensor("index")?, c.tensor("src")?)?
    };
    "searchsorted",
        "sorted_sequence, input, *, out_int32=False, right=False, side=None, sorter=None", |c| {
        let is_right = match if c.has("side") { c.text("side")? } else { "left" } {
            "left" => c.bool("right")?,
            "right" => true,
            other => return untyped(format!("side={other}")),
        };
        let (values, sorter) = (c.operand("input")?, c.optional("sorter")?);
        as_int32(c, c.tensor("sorted_sequence")?.searchsorted(values, is_right, sorter)?)?
    };
    "take", "input, index", |c| c.input()?.take(c.tensor("index")?)?;
    "take_along_dim", "input, indices, dim=None", |c| {
        let dim: Option<isize> = c.maybe_int("dim")?;
        c.input()?.take_along_dim(c.tensor("indices")?, dim)?
    };
    "unique",
        "input, sorted=True, return_inverse=False, return_counts=False, dim=None", |c| {
        let dim: Option<isize> = c.maybe_int("dim")?;
        found(c, c.input()?.unique(dim)?)?
    };
    "unravel_index", "input, shape", |c| c.input()?.unravel_index(c.ints("shape")?)?;
    "unique_consecutive", "input, return_inverse=False, return_counts=False, dim=None", |c| {
        let dim: Option<isize> = c.maybe_int("dim")?;
        found(c, c.input()?.unique_consecutive(dim)?)?
    };
}

/// An index, or the parts of a tuple or list of them.
pub(super) fn indices(value: &Value) -> Called<Vec<Index>> {
    let parts = match value {
        Value::Tuple(parts) => parts,
        Value::List(parts) if parts.iter().all(|p| matches!(p, Value::Tensor(_))) => parts,
        one => std::slice::from_ref(one),
    };
    let bound = |bound: &Option<i64>| bound.map(|bound| bound as isize);
    let index = |part: &Value| {
        Ok(match part {
            Value::Int(index) => Index::At(*index as isize),
            Value::Bool(value) => Index::Bool(*value),
            Value::None => Index::NewAxis,
            Value::Ellipsis => Index::Ellipsis,
            Value::Slice([start, end, step]) => Index::Slice {
                start: bound(start),
                end: bound(end),
                step: step.unwrap_or(1) as isize,
            },
            Value::Tensor(tensor) => Index::Tensor(tensor.clone()),
            Value::List(numbers) => Index::Tensor(listed(part, numbers)?),
            other => return missing(format!("index {other}")),
        })
    };
    parts.iter().map(index).collect()
}

/// A list of numbers, which is a tensor.
fn listed(list: &Value, numbers: &[Value]) -> Called<Tensor> {
    let number = |value: &Value| match value {
        Value::Int(number) => Some(*number),
        _ => None,
    };
    match numbers.iter().map(number).collect::<Option<Vec<i64>>>() {
        Some(numbers) => Ok(Tensor::from_slice(&numbers, [numbers.len()])?),
        None => missing(format!("index {list}")),
    }
}

fn as_int32(c: &Call, places: Tensor) -> Called<Tensor> {
    Ok(match c.bool("out_int32")? {
        true => places.to_dtype(DType::I32)?,
        false => places,
    })
}

fn found(c: &Call, unique: Unique) -> Called<Output> {
    let Unique {
        values,
        inverse,
        counts,
    } = unique;
    let more = [
        c.bool("return_inverse")?.then_some(inverse),
        c.bool("return_counts")?.then_some(counts),
    ];
    let all: Vec<Tensor> = [Some(values)].into_iter().chain(more).flatten().collect();
    Ok(match &all[..] {
        [values] => values.into(),
        _ => all.into(),
    })
}
