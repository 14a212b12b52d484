//! Optimiser states in PyTorch's format.

use std::collections::HashMap;

use rustorch_files::Tensors;
use rustorch_files::pt::Value;
use rustorch_ir::DType;
use rustorch_macros::track_calls;
use rustorch_tensor::{RusTorchResult, Tensor};

use super::{Optimizer, Parameter, Rule, VERSION};
use crate::error::require;
use crate::optim::Options;

/// Entries of a group that change no step: how PyTorch computes it, and notes of its schedules.
const NOTES: [&str; 11] = [
    "params",
    "param_names",
    "foreach",
    "fused",
    "capturable",
    "differentiable",
    "initial_lr",
    "max_lr",
    "min_lr",
    "max_momentum",
    "base_momentum",
];

#[track_calls(Optimizer)]
impl<R: Rule> Optimizer<R> {
    /// Loads the state of PyTorch's `optimizer.state_dict()` from a file that
    /// [`pt::load_value`](rustorch_files::pt::load_value) read: `checkpoint["optimizer"]`.
    /// Parameters are matched by their positions in the groups, as in PyTorch. States get the
    /// dtypes of their parameters. If it does not match, nothing changes.
    ///
    /// # Errors
    /// Fails if the state does not match: another kind of value, other groups, options, parameters
    /// or shapes. One error lists all differences.
    pub fn load_pytorch_state_dict(&mut self, state: &Value) -> RusTorchResult<()> {
        const NAME: &str = "load_pytorch_state_dict";
        let mut read = Read::default();
        let groups = list(state.opt("param_groups")).unwrap_or_default();
        let count = self.groups.len();
        if groups.len() != count {
            read.problem(format!("{} param_groups, not {count}", groups.len()));
        }
        read.number("version".to_owned(), VERSION)?;
        let mut states = HashMap::new();
        match state.opt("state") {
            Some(Value::Dict(entries)) => states.extend(
                (entries.iter()).filter_map(|(key, state)| Some((key.as_int().ok()?, state))),
            ),
            _ => read.problem("no state".to_owned()),
        }
        for (i, (own, group)) in self.groups.iter().zip(groups).enumerate() {
            let places = read.group(i, group, &own.options, own.parameters.len())?;
            for (place, parameter) in places.iter().zip(&own.parameters) {
                if let Some(state) = place.as_int().ok().and_then(|place| states.get(&place)) {
                    read.state(parameter, state)?;
                }
            }
        }
        let tensors = read.tensors(NAME, R::NAME)?;
        self.load_state_dict(&tensors)?;
        for (own, group) in self.groups.iter_mut().zip(groups) {
            own.scheduled.initial_lr = initial_lr(group);
        }
        Ok(())
    }
}

/// The state by the names of [`Optimizer::state_dict`].
#[derive(Default)]
pub(in crate::optim) struct Read {
    tensors: Tensors,
    problems: Vec<String>,
}

impl Read {
    /// The tensors.
    ///
    /// # Errors
    /// Fails if there are problems.
    pub(in crate::optim) fn tensors(
        self,
        name: &'static str,
        optimizer: &str,
    ) -> RusTorchResult<Tensors> {
        let expected = format_args!("the state of PyTorch's {optimizer} with these parameters");
        let problems = self.problems.join("; ");
        require(name, problems.is_empty(), expected, problems)?;
        Ok(self.tensors)
    }

    pub(in crate::optim) fn insert(&mut self, name: String, tensor: Tensor) {
        self.tensors.insert(name, tensor);
    }

    pub(in crate::optim) fn problem(&mut self, problem: String) {
        self.problems.push(problem);
    }

    pub(in crate::optim) fn number(&mut self, name: String, number: f64) -> RusTorchResult<()> {
        self.tensors
            .insert(name, Tensor::scalar(number, DType::F64)?);
        Ok(())
    }

    /// The options of a group of `count` parameters. Returns the places of these.
    pub(in crate::optim) fn group<'v, O: Options + Default>(
        &mut self,
        i: usize,
        group: &'v Value,
        own: &O,
        count: usize,
    ) -> RusTorchResult<&'v [Value]> {
        self.options(i, group, own)?;
        let places = list(group.opt("params")).unwrap_or_default();
        if places.len() != count {
            let found = places.len();
            self.problem(format!("{found} parameters in group {i}, not {count}"));
        }
        Ok(places)
    }

    /// The options of a group. Options that PyTorch's version did not have yet are the default ones.
    fn options<O: Options + Default>(
        &mut self,
        i: usize,
        group: &Value,
        own: &O,
    ) -> RusTorchResult<()> {
        let mut given = Vec::new();
        O::default().each(&mut |name, value| given.push((name, value.numbers())));
        let Value::Dict(entries) = group else {
            self.problem(format!("param_groups.{i}, which is not a dictionary"));
            return Ok(());
        };
        for (key, value) in entries {
            let key = key.as_text().unwrap_or_default();
            if NOTES.contains(&key) {
                continue;
            }
            let searches = Value::Bool(!value.is_none());
            let (names, value): (&[&str], &Value) = match (own.option(key), value) {
                // AdamW's has no other value.
                (None, Value::Bool(true)) if key == "decoupled_weight_decay" => continue,
                // Adafactor's.
                (None, Value::List(_) | Value::Tuple(_)) if key == "eps" => {
                    (&["eps1", "eps2"], value)
                }
                // LBFGS's has no other name.
                (None, Value::None | Value::Text(_))
                    if key == "line_search_fn" && own.option("strong_wolfe").is_some() =>
                {
                    (&["strong_wolfe"], &searches)
                }
                _ => (&[key], value),
            };
            let parts = match (names, list(Some(value))) {
                ([_, _], Some(parts)) => parts.iter().collect(),
                _ => vec![value],
            };
            for (name, part) in names.iter().zip(parts) {
                let known = given.iter_mut().find(|(known, _)| known == name);
                match known.zip(numbers(part)) {
                    Some(((_, known), numbers)) => *known = numbers,
                    None => self.problem(format!("an unknown option param_groups.{i}.{name}")),
                }
            }
        }
        for (name, numbers) in given {
            let length = numbers.len();
            let tensor = Tensor::from_vec(numbers, length)?;
            self.tensors
                .insert(format!("param_groups.{i}.{name}"), tensor);
        }
        Ok(())
    }

    /// The state of a parameter.
    fn state(&mut self, parameter: &Parameter, state: &Value) -> RusTorchResult<()> {
        let name = |key: &str| format!("state.{}.{key}", parameter.name);
        let Value::Dict(entries) = state else {
            self.problem(format!(
                "state.{}, which is not a dictionary",
                parameter.name
            ));
            return Ok(());
        };
        let set = entries.iter().filter(|(_, value)| !value.is_none());
        // PyTorch's does not count the steps of all optimisers.
        if set.clone().next().is_some() && state.opt("step").is_none() {
            self.number(name("step"), 1.0)?;
        }
        for (key, value) in set {
            let key = key.as_text().unwrap_or_default();
            match (value, numbers(value)) {
                (Value::Tensor(tensor), _) if tensor.rank() > 0 => {
                    let tensor = tensor.to_dtype(parameter.tensor.dtype())?;
                    self.tensors.insert(name(key), tensor);
                }
                (Value::Tensor(tensor), _) => {
                    self.tensors.insert(name(key), tensor.clone());
                }
                (_, Some(numbers)) if numbers.len() == 1 => self.number(name(key), numbers[0])?,
                _ => self.problem(format!("{}, which is not a tensor", name(key))),
            }
        }
        Ok(())
    }
}

/// The learning rate before schedules.
pub(in crate::optim) fn initial_lr(group: &Value) -> Option<f64> {
    group.opt("initial_lr").and_then(number)
}

/// The one number of a value.
pub(in crate::optim) fn number(value: &Value) -> Option<f64> {
    numbers(value)?.first().copied()
}

/// The parts of a list or tuple.
pub(in crate::optim) fn list(value: Option<&Value>) -> Option<&[Value]> {
    match value? {
        Value::List(parts) | Value::Tuple(parts) => Some(parts),
        _ => None,
    }
}

/// The numbers of an option's value; `None` where it has others.
fn numbers(value: &Value) -> Option<Vec<f64>> {
    match value {
        Value::None => Some(Vec::new()),
        Value::Bool(is) => Some(vec![f64::from(u8::from(*is))]),
        Value::Int(number) => Some(vec![*number as f64]),
        Value::Float(number) => Some(vec![*number]),
        Value::List(parts) | Value::Tuple(parts) => {
            let parts: Option<Vec<Vec<f64>>> = parts.iter().map(numbers).collect();
            Some(parts?.concat())
        }
        Value::Tensor(tensor) => {
            let number = tensor.to_dtype(DType::F64).and_then(|number| number.item());
            number.ok().map(|number| vec![number])
        }
        Value::Text(_) | Value::Dict(_) => None,
    }
}
