//! A Core ML for tests.
//!
//! A package is read from its files, by code that shares only the messages of the format with the
//! writer. Its program is evaluated operation by operation, by the definitions of coremltools,
//! `converters/mil/mil/ops/defs`. The evaluation is in double precision, with each result rounded
//! to the type that the program declares. A result has to be of the declared type. [`Emulated`]
//! offers this through the calls of a Mac.

mod arguments;
mod constant;
mod emulated;
mod ops;
mod package;
mod tensor;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustorch_coreml::Opset;
use rustorch_coreml::proto::mil::{
    Binding, BindingKind, Block, DataType, NamedValueType, Operation, ValueType,
};
use rustorch_coreml::proto::model::{Model as Spec, ModelType};

use crate::arguments::Arguments;
pub use crate::emulated::{Array, Call, Emulated, Fault, Pending, States};
pub use crate::tensor::{Data, Tensor};

/// The reason why a package is not read or evaluated.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{place}: {what}")]
pub struct Error {
    /// The file, operation or feature.
    pub place: String,
    /// Description of the fault.
    pub what: String,
}

impl Error {
    fn new(place: impl ToString, what: impl ToString) -> Self {
        Self {
            place: place.to_string(),
            what: what.to_string(),
        }
    }
}

/// A package in memory.
pub struct Model {
    inputs: Vec<NamedValueType>,
    /// Contents of its states, as types of tensors.
    states: Vec<NamedValueType>,
    block: Block,
    weights: Vec<u8>,
    /// Values that do not depend on inputs, as soon as they are known.
    constants: Mutex<BTreeMap<String, Arc<Tensor>>>,
}

impl Model {
    /// Reads the package at `path`.
    ///
    /// # Errors
    /// Fails if files are missing or damaged. Also fails if the model has no ML Program with a function `main`.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let (spec, weights) = package::read(path)?;
        Self::of(spec, weights)
    }

    fn of(spec: Spec, weights: Vec<u8>) -> Result<Self, Error> {
        let Some(ModelType::MlProgram(mut program)) = spec.model_type else {
            return Err(Error::new("model", "no ML Program"));
        };
        let function = program.functions.remove("main");
        let mut function = function.ok_or_else(|| Error::new("model", "no function main"))?;
        let block = function.block_specializations.remove(&function.opset);
        let block = block.ok_or_else(|| Error::new("main", "no block of its opset"))?;
        let (mut inputs, mut states) = (Vec::new(), Vec::new());
        for input in function.inputs {
            match input.r#type.as_ref().and_then(ValueType::as_state) {
                Some(held) => states.push(NamedValueType {
                    name: input.name,
                    r#type: Some(held.clone()),
                }),
                None => inputs.push(input),
            }
        }
        if let Some(state) = states.first().filter(|_| !has_states(&function.opset)) {
            return Err(Error::new(&state.name, "a state, before CoreML8"));
        }
        Ok(Self {
            inputs,
            states,
            block,
            weights,
            constants: Mutex::default(),
        })
    }

    /// Names of the program's operations, in its order.
    pub fn operations(&self) -> impl Iterator<Item = &str> {
        self.block
            .operations
            .iter()
            .map(|operation| &*operation.r#type)
    }

    /// States by name, which begin as zeros.
    ///
    /// # Errors
    /// Fails for a state whose dtype is not `f16`.
    pub fn new_states(&self) -> Result<BTreeMap<String, Tensor>, Error> {
        let state = |declared: &NamedValueType| {
            let ty = declared.r#type.as_ref().and_then(|ty| ty.as_tensor());
            let halves = ty.filter(|(data_type, _)| *data_type == DataType::Float16);
            let (data_type, shape) =
                halves.ok_or_else(|| Error::new(&declared.name, "a state of no halves"))?;
            let count = shape.iter().product();
            let tensor = Tensor::floats(data_type, &shape, vec![0.0; count]);
            Ok((declared.name.clone(), tensor))
        };
        self.states.iter().map(state).collect()
    }

    /// [`Self::predict_with`] of a program without states.
    ///
    /// # Errors
    /// The errors of that method.
    pub fn predict(&self, inputs: &BTreeMap<String, Tensor>) -> Result<Vec<Tensor>, Error> {
        self.predict_with(inputs, &mut BTreeMap::new())
    }

    /// Results of the program for these inputs, in the order of its outputs. It updates its states.
    ///
    /// # Errors
    /// Fails for inputs or states other than the declared ones. Fails for an unknown operation, or
    /// for one whose result has not the declared type. Fails for an index out of range.
    pub fn predict_with(
        &self,
        inputs: &BTreeMap<String, Tensor>,
        states: &mut BTreeMap<String, Tensor>,
    ) -> Result<Vec<Tensor>, Error> {
        for declared in &self.states {
            let given = states.get(&declared.name);
            let given = given.ok_or_else(|| Error::new(&declared.name, "is missing"))?;
            hold_to(declared, given).map_err(|what| Error::new(&declared.name, what))?;
        }
        let mut values = BTreeMap::new();
        for declared in &self.inputs {
            let given = inputs.get(&declared.name);
            let given = given.ok_or_else(|| Error::new(&declared.name, "is missing"))?;
            hold_to(declared, given).map_err(|what| Error::new(&declared.name, what))?;
            values.insert(declared.name.clone(), Arc::new(given.clone()));
        }
        for operation in &self.block.operations {
            let at = |what| {
                let result = operation.outputs.first();
                let name = result.map_or("", |r| r.name.as_str());
                Error::new(format!("{} {name}", operation.r#type), what)
            };
            if operation.r#type == "write_state" && operation.outputs.is_empty() {
                let (name, data) = written(operation, &values).map_err(at)?;
                let state = states.get_mut(name).ok_or_else(|| at(no_state(name)))?;
                *state = (state.data_type == data.data_type && state.shape == data.shape)
                    .then(|| data.clone())
                    .ok_or_else(|| at("data of another type".to_owned()))?;
                continue;
            }
            let [declared] = &operation.outputs[..] else {
                return Err(at("not one result".to_owned()));
            };
            let is_constant =
                operation.r#type == "const" || operation.r#type.starts_with("constexpr_");
            if let Some(known) = self.constants().get(&declared.name).filter(|_| is_constant) {
                values.insert(declared.name.clone(), known.clone());
                continue;
            }
            let result = match &*operation.r#type {
                "read_state" => read(operation, states),
                _ => self.evaluate(operation, &values),
            };
            let result = result.map_err(at)?;
            hold_to(declared, &result).map_err(at)?;
            let result = Arc::new(result);
            if is_constant {
                self.constants()
                    .insert(declared.name.clone(), result.clone());
            }
            values.insert(declared.name.clone(), result);
        }
        let output = |name: &String| {
            let value = values.get(name).map(|value| (**value).clone());
            value.ok_or_else(|| Error::new(name, "no such value"))
        };
        self.block.outputs.iter().map(output).collect()
    }

    fn constants(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Tensor>>> {
        self.constants
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn evaluate(
        &self,
        operation: &Operation,
        values: &BTreeMap<String, Arc<Tensor>>,
    ) -> Result<Tensor, String> {
        if operation.r#type == "const" {
            let value = operation.attributes.get("val").ok_or("no value")?;
            return constant::decode(value, &self.weights);
        }
        let arguments = Arguments::of(operation, values, &self.weights)?;
        let result = ops::evaluate(&operation.r#type, &arguments)?;
        match arguments.is_used_up() {
            Ok(()) => Ok(result),
            Err(name) => Err(format!("has no parameter {name}")),
        }
    }
}

fn has_states(opset: &str) -> bool {
    Opset::ALL
        .iter()
        .any(|known| known.name() == opset && known.has_states())
}

fn no_state(name: &str) -> String {
    format!("there is no state {name:?}")
}

/// The name that a parameter is bound to, of an operation that has these alone.
fn bound<'o>(operation: &'o Operation, parameters: &[&str], name: &str) -> Result<&'o str, String> {
    if !operation.inputs.keys().eq(parameters) {
        return Err(format!("has the parameters {parameters:?}"));
    }
    let bound = operation.inputs.get(name).map(|bound| &bound.arguments[..]);
    match bound {
        Some(
            [
                Binding {
                    binding: Some(BindingKind::Name(name)),
                },
            ],
        ) => Ok(name),
        _ => Err(format!("{name} is bound to no name")),
    }
}

/// Result of `read_state`.
fn read(operation: &Operation, states: &BTreeMap<String, Tensor>) -> Result<Tensor, String> {
    let name = bound(operation, &["input"], "input")?;
    states.get(name).cloned().ok_or_else(|| no_state(name))
}

/// The state that `write_state` writes, and its effect.
fn written<'o, 'v>(
    operation: &'o Operation,
    values: &'v BTreeMap<String, Arc<Tensor>>,
) -> Result<(&'o str, &'v Tensor), String> {
    let [state, data] = ["input", "data"].map(|name| bound(operation, &["data", "input"], name));
    let data = values.get(data?).ok_or("data is bound to no value")?;
    Ok((state?, &**data))
}

/// Is a tensor of the declared type?
fn hold_to(declared: &NamedValueType, tensor: &Tensor) -> Result<(), String> {
    let ty = declared.r#type.as_ref().and_then(|ty| ty.as_tensor());
    let (data_type, shape) = ty.ok_or("no type of a tensor")?;
    match data_type == tensor.data_type && shape == tensor.shape {
        true => Ok(()),
        false => Err(format!(
            "{:?}{:?}, declared {data_type:?}{shape:?}",
            tensor.data_type, tensor.shape
        )),
    }
}
