//! ONNX's operators that run graphs.

use rustorch_ir::DType;
use rustorch_tensor::Tensor;

use super::proto::{Graph, Node};
use super::{Values, evaluate};
use crate::call::{Found, missing};
use crate::value::Value;

/// Runs a node that is such an operator; `None` of others.
pub(super) fn run<'a>(
    name: &str,
    node: &'a Node,
    values: &Values<'a>,
) -> Found<Option<Vec<Value>>> {
    Ok(Some(match name {
        "If" => {
            let arguments = node.arguments(values)?;
            let is_met = truth(arguments.first())?;
            let branch = if is_met { "then_branch" } else { "else_branch" };
            evaluate(graph(node, branch)?, values, Vec::new())?
        }
        "Loop" => repeated(node, values)?,
        "Scan" => scanned(node, values)?,
        "SequenceMap" => mapped(node, values)?,
        "ai.onnx.preview.FlexAttention" => vec![Value::Tensor(attention(node, values)?)],
        _ => return Ok(None),
    }))
}

fn graph<'a>(node: &'a Node, name: &str) -> Found<&'a Graph> {
    let attribute = node.attributes.iter().find(|a| a.name == name);
    match attribute.and_then(|a| a.graph.as_ref()) {
        Some(graph) => Ok(graph),
        None => missing(format!("{} without {name}", node.op)),
    }
}

fn truth(value: Option<&Value>) -> Found<bool> {
    match value {
        Some(Value::Tensor(tensor)) => Ok(tensor.to_scalar::<bool>()?),
        other => missing(format!(
            "a condition that is {}",
            other.unwrap_or(&Value::None)
        )),
    }
}

fn tensor(value: &Value) -> Found<&Tensor> {
    match value {
        Value::Tensor(tensor) => Ok(tensor),
        other => missing(format!("{other} where tensors are meant")),
    }
}

/// What each step gave, one behind the other in a dimension of its own.
fn stacked(steps: &[Vec<Value>], at: usize) -> Found<Value> {
    let parts = steps.iter().map(|results| tensor(&results[at]));
    let parts: Vec<&Tensor> = parts.collect::<Found<_>>()?;
    Ok(Value::Tensor(Tensor::stack(&parts, 0)?))
}

/// The body, as often as the trip count says and the condition holds. It gives the next condition,
/// the next states, and what is kept of each step.
fn repeated<'a>(node: &'a Node, values: &Values<'a>) -> Found<Vec<Value>> {
    let arguments = node.arguments(values)?;
    let [count, condition, states @ ..] = &arguments[..] else {
        return missing("a loop without trip count and condition");
    };
    let count = match count {
        Value::None => i64::MAX,
        count => tensor(count)?.to_dtype(DType::I64)?.to_scalar()?,
    };
    let mut goes_on = matches!(condition, Value::None) || truth(Some(condition))?;
    let mut states = states.to_vec();
    let body = graph(node, "body")?;
    let mut steps = Vec::new();
    while goes_on && (steps.len() as i64) < count {
        let step = Tensor::scalar(steps.len() as i64, DType::I64)?;
        let condition = Tensor::scalar(true, DType::Bool)?;
        let mut given = vec![Value::Tensor(step), Value::Tensor(condition)];
        given.append(&mut states);
        let mut results = evaluate(body, values, given)?;
        goes_on = truth(results.first())?;
        states = results.drain(..node.inputs.len() - 1).skip(1).collect();
        steps.push(results);
    }
    let kept = node.outputs.len() - states.len();
    if kept > 0 && steps.is_empty() {
        return missing("a loop that keeps nothing of no steps");
    }
    for at in 0..kept {
        states.push(stacked(&steps, at)?);
    }
    Ok(states)
}

/// The body for each index of the first dimension. It gives the next states, and what is kept of each
/// step. Of operator set 8, whose first argument says lengths, for each index of the second, sample by
/// sample.
fn scanned<'a>(node: &'a Node, values: &Values<'a>) -> Found<Vec<Value>> {
    let number = |name: &str| node.attributes.iter().find(|a| a.name == name);
    let others = [
        "scan_input_axes",
        "scan_input_directions",
        "scan_output_axes",
        "scan_output_directions",
    ];
    let is_plain = |name: &str| number(name).is_none_or(|a| a.ints.iter().all(|&x| x == 0));
    if !others.iter().all(|name| is_plain(name)) {
        return missing("a scan other than forwards along the first dimension");
    }
    let arguments = node.arguments(values)?;
    let scanned = number("num_scan_inputs").map_or(0, |a| a.int) as usize;
    let [Value::None, samples @ ..] = &arguments[..] else {
        let (states, inputs) = arguments.split_at(arguments.len() - scanned);
        return steps(node, values, states, inputs);
    };
    let count = match samples.first() {
        Some(first) => tensor(first)?.size(0)?,
        None => return missing("a scan of nothing"),
    };
    let sample = |at: usize| {
        let part = |x| Ok(Value::Tensor(tensor(x)?.select(0, at as isize)?));
        let parts = samples.iter().map(part).collect::<Found<Vec<_>>>()?;
        let (states, inputs) = parts.split_at(parts.len() - scanned);
        steps(node, values, states, inputs)
    };
    let all = (0..count).map(sample).collect::<Found<Vec<_>>>()?;
    (0..node.outputs.len())
        .map(|at| stacked(&all, at))
        .collect()
}

/// The steps of a scan from these states.
fn steps<'a>(
    node: &'a Node,
    values: &Values<'a>,
    states: &[Value],
    inputs: &[Value],
) -> Found<Vec<Value>> {
    let mut states = states.to_vec();
    let count = states.len();
    let length = match inputs.first() {
        Some(input) => tensor(input)?.size(0)?,
        None => return missing("a scan of nothing"),
    };
    let body = graph(node, "body")?;
    let mut steps = Vec::new();
    for at in 0..length {
        let part = |input| Ok(Value::Tensor(tensor(input)?.select(0, at as isize)?));
        let mut given = std::mem::take(&mut states);
        given.extend(inputs.iter().map(part).collect::<Found<Vec<_>>>()?);
        let mut results = evaluate(body, values, given)?;
        states = results.drain(..count).collect();
        steps.push(results);
    }
    for at in 0..node.outputs.len() - count {
        states.push(stacked(&steps, at)?);
    }
    Ok(states)
}

/// The body for each part of the first sequence, with the parts beside it of others, and tensors.
fn mapped<'a>(node: &'a Node, values: &Values<'a>) -> Found<Vec<Value>> {
    let arguments = node.arguments(values)?;
    let body = graph(node, "body")?;
    let Some(length) = arguments.first().and_then(Value::parts).map(<[Value]>::len) else {
        return missing("a map of no sequence");
    };
    let mut results = vec![Vec::new(); node.outputs.len()];
    for at in 0..length {
        let part = |argument: &Value| match argument.parts() {
            Some(parts) => parts.get(at).cloned(),
            None => Some(argument.clone()),
        };
        let Some(given) = arguments.iter().map(part).collect() else {
            return missing("sequences of other lengths");
        };
        for (result, value) in results.iter_mut().zip(evaluate(body, values, given)?) {
            result.push(value);
        }
    }
    Ok(results.into_iter().map(Value::List).collect())
}

/// Attention whose scores and weights graphs may change.
fn attention<'a>(node: &'a Node, values: &Values<'a>) -> Found<Tensor> {
    let arguments = node.arguments(values)?;
    let [q, k, v] = &arguments[..] else {
        return missing("other operands than queries, keys and values");
    };
    let (q, k, v) = (tensor(q)?, tensor(k)?, tensor(v)?);
    let attribute = |name: &str| node.attributes.iter().find(|a| a.name == name);
    let changed = |name: &str, x: Tensor| -> Found<Tensor> {
        if attribute(name).is_none() {
            return Ok(x);
        }
        let results = evaluate(graph(node, name)?, values, vec![Value::Tensor(x)])?;
        match &results[..] {
            [one] => Ok(tensor(one)?.clone()),
            _ => missing(format!("{name} of several results")),
        }
    };
    let scale = match attribute("scale") {
        Some(scale) => f64::from(scale.float),
        None => 1.0 / (q.size(-1)? as f64).sqrt(),
    };
    let groups = q.size(1)? / k.size(1)?.max(1);
    let dtype = match q.dtype() {
        DType::F64 => DType::F64,
        _ => DType::F32,
    };
    let shared = |x: &Tensor| x.to_dtype(dtype)?.repeat_interleave(groups, 1);
    let keys = shared(k)?.transpose(-2, -1)?;
    let scores = q.to_dtype(dtype)?.matmul(&keys)?.mul(scale)?;
    let weights = changed("score_mod", scores)?.softmax(-1)?;
    let weights = changed("prob_mod", weights)?;
    Ok(weights.matmul(&shared(v)?)?.to_dtype(v.dtype())?)
}
