//! ONNX's operators that run graphs.

use rustorch_dispatch::{Called, Value, missing};
use rustorch_ir::DType;
use rustorch_tensor::Tensor;

use crate::error::OnnxResult;
use crate::graph::{Node, Scope};

/// Runs a node.
pub(crate) type Control = fn(&Node, &Scope) -> OnnxResult<Vec<Value>>;

/// The operator of this name, if it runs graphs.
pub(crate) fn named(name: &str) -> Option<Control> {
    Some(match name {
        "If" => chosen,
        "Loop" => repeated,
        "Scan" => scanned,
        "SequenceMap" => mapped,
        "ai.onnx.preview.FlexAttention" => attention,
        _ => return None,
    })
}

fn chosen(node: &Node, scope: &Scope) -> OnnxResult<Vec<Value>> {
    let arguments = node.arguments(scope)?;
    let is_met = truth(arguments.first())?;
    let branch = if is_met { "then_branch" } else { "else_branch" };
    node.graph(branch)?.evaluate(Some(scope), Vec::new())
}

fn truth(value: Option<&Value>) -> Called<bool> {
    match value {
        Some(Value::Tensor(tensor)) => Ok(tensor.to_scalar::<bool>()?),
        other => missing(format!(
            "a condition that is {}",
            other.unwrap_or(&Value::None)
        )),
    }
}

fn tensor(value: &Value) -> Called<&Tensor> {
    match value {
        Value::Tensor(tensor) => Ok(tensor),
        other => missing(format!("{other} where tensors are meant")),
    }
}

/// A result of each step, one after the other in its own dimension.
fn stacked(steps: &[Vec<Value>], at: usize) -> Called<Value> {
    let parts = steps.iter().map(|results| match results.get(at) {
        Some(result) => tensor(result),
        None => missing("a graph of fewer results than the node"),
    });
    let parts: Vec<&Tensor> = parts.collect::<Called<_>>()?;
    Ok(Value::Tensor(Tensor::stack(&parts, 0)?))
}

/// The first `count` results of a step, which the next one takes; the others stay.
fn next(results: &mut Vec<Value>, count: usize) -> Called<Vec<Value>> {
    match count <= results.len() {
        true => Ok(results.drain(..count).collect()),
        false => missing(format!("a graph of fewer than {count} results")),
    }
}

/// How many results of a node are not states.
fn others(node: &Node, states: usize) -> Called<usize> {
    match node.outputs.len().checked_sub(states) {
        Some(others) => Ok(others),
        None => missing(format!(
            "{} results for {states} states",
            node.outputs.len()
        )),
    }
}

/// The body, as often as the trip count says and the condition holds. It gives the next condition,
/// the next states, and results of each step.
fn repeated(node: &Node, scope: &Scope) -> OnnxResult<Vec<Value>> {
    let arguments = node.arguments(scope)?;
    let [count, condition, states @ ..] = &arguments[..] else {
        return Ok(missing("a loop without trip count and condition")?);
    };
    let count = match count {
        Value::None => i64::MAX,
        count => tensor(count)?.to_dtype(DType::I64)?.to_scalar()?,
    };
    let mut goes_on = matches!(condition, Value::None) || truth(Some(condition))?;
    let mut states = states.to_vec();
    let body = node.graph("body")?;
    let mut steps = Vec::new();
    while goes_on && (steps.len() as i64) < count {
        let step = Tensor::scalar(steps.len() as i64, DType::I64)?;
        let condition = Tensor::scalar(true, DType::Bool)?;
        let mut given = vec![Value::Tensor(step), Value::Tensor(condition)];
        given.append(&mut states);
        let mut results = body.evaluate(Some(scope), given)?;
        goes_on = truth(results.first())?;
        states = next(&mut results, node.inputs.len() - 1)?;
        states.remove(0);
        steps.push(results);
    }
    let kept = others(node, states.len())?;
    if kept > 0 && steps.is_empty() {
        return Ok(missing("a loop without steps, of which results are kept")?);
    }
    for at in 0..kept {
        states.push(stacked(&steps, at)?);
    }
    Ok(states)
}

/// The body for each index of the first dimension. It gives the next states, and results of each step. In operator
/// set 8 it runs for each index of the second dimension, sample by sample.
fn scanned(node: &Node, scope: &Scope) -> OnnxResult<Vec<Value>> {
    let options = [
        "scan_input_axes",
        "scan_input_directions",
        "scan_output_axes",
        "scan_output_directions",
    ];
    let is_zero = |x: &Value| matches!(x, Value::Int(0));
    let is_plain = |name: &&str| {
        let given = node.attribute(name).and_then(Value::parts);
        given.is_none_or(|all| all.iter().all(is_zero))
    };
    if !options.iter().all(is_plain) {
        return Ok(missing(
            "a scan other than forwards along the first dimension",
        )?);
    }
    let arguments = node.arguments(scope)?;
    let [Value::None, samples @ ..] = &arguments[..] else {
        let (states, inputs) = arguments.split_at(states_of(node, arguments.len())?);
        return steps(node, scope, states, inputs);
    };
    let states = states_of(node, samples.len())?;
    let count = match samples.first() {
        Some(first) => tensor(first)?.size(0)?,
        None => return Ok(missing("a scan of nothing")?),
    };
    let sample = |at: usize| {
        let part = |x| Ok(Value::Tensor(tensor(x)?.select(0, at as isize)?));
        let parts = samples.iter().map(part).collect::<Called<Vec<_>>>()?;
        let (states, inputs) = parts.split_at(states);
        steps(node, scope, states, inputs)
    };
    let all = (0..count).map(sample).collect::<OnnxResult<Vec<_>>>()?;
    let results = (0..node.outputs.len()).map(|at| stacked(&all, at));
    Ok(results.collect::<Called<_>>()?)
}

/// How many of a scan's arguments are states; the others are scanned.
fn states_of(node: &Node, arguments: usize) -> Called<usize> {
    let scanned = match node.attribute("num_scan_inputs") {
        Some(&Value::Int(scanned)) => usize::try_from(scanned).ok(),
        _ => Some(0),
    };
    match scanned.and_then(|scanned| arguments.checked_sub(scanned)) {
        Some(states) => Ok(states),
        None => missing(format!(
            "a scan of {arguments} inputs with another num_scan_inputs"
        )),
    }
}

/// The steps of a scan from these states.
fn steps(node: &Node, scope: &Scope, states: &[Value], inputs: &[Value]) -> OnnxResult<Vec<Value>> {
    let mut states = states.to_vec();
    let count = states.len();
    let length = match inputs.first() {
        Some(input) => tensor(input)?.size(0)?,
        None => return Ok(missing("a scan of nothing")?),
    };
    let body = node.graph("body")?;
    let mut steps = Vec::new();
    for at in 0..length {
        let part = |input| Ok(Value::Tensor(tensor(input)?.select(0, at as isize)?));
        let mut given = std::mem::take(&mut states);
        given.extend(inputs.iter().map(part).collect::<Called<Vec<_>>>()?);
        let mut results = body.evaluate(Some(scope), given)?;
        states = next(&mut results, count)?;
        steps.push(results);
    }
    for at in 0..others(node, count)? {
        states.push(stacked(&steps, at)?);
    }
    Ok(states)
}

/// The body for each part of the first sequence, with the parts beside it of others, and tensors.
fn mapped(node: &Node, scope: &Scope) -> OnnxResult<Vec<Value>> {
    let arguments = node.arguments(scope)?;
    let body = node.graph("body")?;
    let Some(length) = arguments.first().and_then(Value::parts).map(<[Value]>::len) else {
        return Ok(missing("a map of no sequence")?);
    };
    let mut results = vec![Vec::new(); node.outputs.len()];
    for at in 0..length {
        let part = |argument: &Value| match argument.parts() {
            Some(parts) => parts.get(at).cloned(),
            None => Some(argument.clone()),
        };
        let Some(given) = arguments.iter().map(part).collect() else {
            return Ok(missing("sequences of other lengths")?);
        };
        for (result, value) in results.iter_mut().zip(body.evaluate(Some(scope), given)?) {
            result.push(value);
        }
    }
    Ok(results.into_iter().map(Value::List).collect())
}

/// Attention whose scores and weights graphs may change.
fn attention(node: &Node, scope: &Scope) -> OnnxResult<Vec<Value>> {
    let arguments = node.arguments(scope)?;
    let [q, k, v] = &arguments[..] else {
        return Ok(missing("other operands than queries, keys and values")?);
    };
    let (q, k, v) = (tensor(q)?, tensor(k)?, tensor(v)?);
    let changed = |name: &str, x: Tensor| -> OnnxResult<Tensor> {
        if !node.has_graph(name) {
            return Ok(x);
        }
        let results = node
            .graph(name)?
            .evaluate(Some(scope), vec![Value::Tensor(x)])?;
        match &results[..] {
            [one] => Ok(tensor(one)?.clone()),
            _ => Ok(missing(format!("{name} of several results"))?),
        }
    };
    let scale = match node.attribute("scale") {
        Some(&Value::Float(scale)) => scale,
        _ => 1.0 / (q.size(-1)? as f64).sqrt(),
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
    let y = weights.matmul(&shared(v)?)?.to_dtype(v.dtype())?;
    Ok(vec![Value::Tensor(y)])
}
