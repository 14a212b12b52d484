//! Modules: the constructor's arguments, parameters and buffers, and the result of `forward`.

mod table;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use rustorch_dispatch::{Call, Called, Output, Value};
use rustorch_files::Tensors as State;
use rustorch_ir::DType;
use rustorch_nn::nn::{Module, parameter};
use rustorch_tensor::{GradOptions, RusTorchResult, Tensor};
use safetensors::SafeTensors;
use serde::Deserialize;
use serde_json::{Map, Value as Json};

use crate::replay::compare::{Expected, How};
use crate::replay::golden::{Tensors, read_json};
use crate::replay::report::{OpReport, Verdict};
use crate::replay::samples::{guarded, judge};

/// A module of the table: the parameters of its constructor and of `forward` by PyTorch's names, and its
/// constructor.
struct Entry {
    name: &'static str,
    constructor: &'static str,
    forward: &'static str,
    build: fn(&Call) -> Called<Box<dyn Built>>,
}

/// A module, and how it is called.
trait Built {
    fn module(&mut self) -> &mut dyn Module;

    fn to_dtype(&mut self, dtype: DType) -> RusTorchResult<()>;

    fn run(&self, inputs: &Call) -> Called<Output>;
}

struct Of<M, F> {
    module: M,
    run: F,
}

impl<M: Module, F: Fn(&M, &Call) -> Called<Output>> Built for Of<M, F> {
    fn module(&mut self) -> &mut dyn Module {
        &mut self.module
    }

    fn to_dtype(&mut self, dtype: DType) -> RusTorchResult<()> {
        self.module.to_dtype(dtype)
    }

    fn run(&self, inputs: &Call) -> Called<Output> {
        (self.run)(&self.module, inputs)
    }
}

/// A module's file.
#[derive(Deserialize)]
struct File {
    name: String,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    dtype: String,
    sample: usize,
    training: bool,
    args: Vec<Json>,
    kwargs: Map<String, Json>,
    state: Map<String, Json>,
    inputs: Vec<Json>,
    input_kwargs: Map<String, Json>,
    output: Json,
    compare: How,
    buffers: Map<String, Json>,
    grad: Option<Grad>,
}

/// Gradients that follow from cotangents of the results.
#[derive(Deserialize)]
struct Grad {
    cotangents: Vec<Json>,
    parameters: BTreeMap<String, Json>,
    /// Gradients of arguments, by their numbers.
    inputs: Vec<(usize, Json)>,
}

/// The samples of a module.
pub(crate) fn replay(folder: &Path, stem: &str) -> Result<OpReport> {
    let path = folder.join(format!("{stem}.safetensors"));
    let bytes = fs::read(&path).with_context(|| path.display().to_string())?;
    let tensors = Tensors(SafeTensors::deserialize(&bytes).with_context(|| stem.to_owned())?);
    let file: File = read_json(&folder.join(format!("{stem}.json")))?;
    let entry = table::TABLE
        .iter()
        .chain(table::POOLS)
        .find(|entry| entry.name == file.name);
    let mut report = OpReport::new(file.name, "modules");
    for case in &file.cases {
        let mode = if case.training { " training" } else { "" };
        let name = format!("{} #{}{mode}", case.dtype, case.sample);
        let verdict = match entry {
            Some(entry) => guarded(|| replay_case(entry, case, &tensors)),
            None => Verdict::Missing("no module of this name".into()),
        };
        report.add(name, verdict);
    }
    Ok(report)
}

fn replay_case(entry: &Entry, case: &Case, tensors: &Tensors) -> Result<Verdict> {
    let values = |list: &[Json]| {
        let values = list.iter().map(|json| tensors.value(json));
        values.collect::<Result<Vec<Value>>>()
    };
    let keywords = |map: &Map<String, Json>| {
        let keyword = |(name, json): (&String, &Json)| Ok((name.clone(), tensors.value(json)?));
        map.iter().map(keyword).collect::<Result<Vec<_>>>()
    };
    let args = values(&case.args)?;
    let mut inputs = values(&case.inputs)?;
    for (i, _) in case.grad.iter().flat_map(|grad| &grad.inputs) {
        if let Some(Value::Tensor(tensor)) = inputs.get_mut(*i) {
            *tensor = parameter(tensor.clone())?;
        }
    }
    let leaves = inputs.clone();
    let dtype: DType = case.dtype.parse()?;
    let mut state = State::new();
    for (name, json) in &case.state {
        state.insert(name, tensors.tensor(json)?);
    }
    let (kwargs, input_kwargs) = (keywords(&case.kwargs)?, keywords(&case.input_kwargs)?);
    let mut built = None;
    let outcome = (|| {
        let mut module = (entry.build)(&Call::bind(entry.constructor, args, kwargs)?)?;
        if entry.name.starts_with("nn.Lazy") {
            // It has no parameters before.
            module.run(&Call::bind(
                entry.forward,
                inputs.clone(),
                input_kwargs.clone(),
            )?)?;
        }
        module.to_dtype(dtype)?;
        module.module().load_state_dict(&state, true)?;
        module.module().train(case.training);
        let output = module.run(&Call::bind(entry.forward, inputs, input_kwargs)?)?;
        built = Some(module);
        Ok(output)
    })();
    let expected = tensors.expected(&case.output)?;
    let compare = |output: Output| {
        expected.compare(&output, case.compare)?;
        let Some(module) = &mut built else {
            return Err("no module was made".to_owned());
        };
        let module = module.module();
        for (name, tensor) in module.named_buffers() {
            let told = |e| format!("buffer {name}: {e}");
            let expected = case
                .buffers
                .get(&name)
                .ok_or_else(|| told("is unknown".to_owned()))?;
            let expected = tensors
                .expected(expected)
                .map_err(|e| told(e.to_string()))?;
            expected
                .compare(&Output::Tensor(tensor), How::Close)
                .map_err(told)?;
        }
        match &case.grad {
            Some(grad) => compare_gradients(grad, &output, module, &leaves, tensors),
            None => Ok(()),
        }
    };
    judge(outcome, compare)
}

fn compare_gradients(
    grad: &Grad,
    output: &Output,
    module: &dyn Module,
    inputs: &[Value],
    tensors: &Tensors,
) -> Result<(), String> {
    let text = |e: &dyn std::fmt::Display| e.to_string();
    let mut outputs = Vec::new();
    collect(output, &mut outputs);
    let tracked: Vec<&Tensor> = outputs.into_iter().filter(|x| x.requires_grad()).collect();
    if tracked.len() != grad.cotangents.len() {
        let (got, expected) = (tracked.len(), grad.cotangents.len());
        return Err(format!(
            "{got} results that have gradients, should be {expected}"
        ));
    }
    for (x, cotangent) in tracked.iter().zip(&grad.cotangents) {
        let cotangent = tensors.tensor(cotangent).map_err(|e| text(&e))?;
        let options = GradOptions::default()
            .gradient(&cotangent)
            .retain_graph(true);
        x.backward_with(&options)
            .map_err(|e| format!("backward: {e}"))?;
    }
    let compare = |name: &str, tensor: &Tensor, expected: &Json| {
        let told = |e: String| format!("gradient of {name}: {e}");
        let expected = tensors
            .expected(expected)
            .map_err(|e| told(e.to_string()))?;
        match (&expected, tensor.grad()) {
            (Expected::Value(Value::None), None) => Ok(()),
            // No gradient and one of zeros are the same here.
            (Expected::Value(Value::None), Some(got)) => {
                let largest = got
                    .abs()
                    .and_then(|x| x.sum(None, false))
                    .and_then(|x| x.item());
                match largest {
                    Ok(0.0) => Ok(()),
                    other => Err(told(format!("there is one, {other:?}"))),
                }
            }
            (_, None) => {
                let zeros = tensor.detach().zeros_like().map_err(|e| text(&e))?;
                expected
                    .compare(&Output::Tensor(zeros), How::Close)
                    .map_err(told)
            }
            (_, Some(got)) => expected
                .compare(&Output::Tensor(got), How::Close)
                .map_err(told),
        }
    };
    for (name, tensor) in module.named_parameters() {
        let expected = grad.parameters.get(&name);
        let expected = expected.ok_or_else(|| format!("an unknown parameter {name}"))?;
        compare(&name, &tensor, expected)?;
    }
    for (i, expected) in &grad.inputs {
        match inputs.get(*i) {
            Some(Value::Tensor(tensor)) => compare(&format!("argument {i}"), tensor, expected)?,
            _ => return Err(format!("argument {i} is not a tensor")),
        }
    }
    Ok(())
}

fn collect<'a>(output: &'a Output, tensors: &mut Vec<&'a Tensor>) {
    match output {
        Output::Tensor(tensor) => tensors.push(tensor),
        Output::List(parts) => parts.iter().for_each(|part| collect(part, tensors)),
        Output::Value(_) => {}
    }
}
