//! Elements chosen or placed by index.

use rustorch_tensor::Tensor;

use crate::call::{Call, Found, missing};
use crate::value::Value;

table! {
    "__getitem__", "input, index", |c| indexed(c)?;
    "gather", "input, dim, index, *, sparse_grad=False", |c| {
        c.input()?.gather(c.int("dim")?, c.tensor("index")?)?
    };
    "index_select", "input, dim, index", |c| {
        c.input()?.index_select(c.int("dim")?, c.tensor("index")?)?
    };
    "scatter", "input, dim, index, src, *, reduce=None", |c| {
        let (dim, index, source) = (c.int("dim")?, c.tensor("index")?, c.tensor("src")?);
        match c.has("reduce") {
            false => c.input()?.scatter(dim, index, source)?,
            true if c.text("reduce")? == "add" => c.input()?.scatter_add(dim, index, source)?,
            true => return missing("reduce"),
        }
    };
    "scatter_add", "input, dim, index, src", |c| {
        c.input()?.scatter_add(c.int("dim")?, c.tensor("index")?, c.tensor("src")?)?
    };
}

/// `input[index]` of numbers, slices and `None`.
fn indexed(c: &Call) -> Found<Tensor> {
    let index = c.value("index")?;
    let parts = match index {
        Value::Tuple(parts) => parts,
        one => std::slice::from_ref(one),
    };
    let (mut tensor, mut dim) = (c.input()?.clone(), 0);
    for part in parts {
        tensor = match part {
            Value::Int(index) => tensor.select(dim, *index as isize)?,
            Value::None => tensor.unsqueeze(dim)?,
            Value::Slice([start, end, step]) => {
                let Ok(step) = usize::try_from(step.unwrap_or(1)) else {
                    return missing("a negative step");
                };
                let (start, end) = (start.unwrap_or(0), end.unwrap_or(i64::MAX));
                tensor.slice(dim, start as isize, end as isize, step)?
            }
            other => return missing(format!("index {other}")),
        };
        dim += isize::from(!matches!(part, Value::Int(_)));
    }
    Ok(tensor)
}
