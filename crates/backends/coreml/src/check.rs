//! Faults of a model, found before Apple's compiler sees it, which may end the process.
//!
//! A model is judged by itself, whatever its writer: names, types by the rules of its set of
//! operations, constants, and the description beside the function. coremltools finds part of this;
//! identifiers, a missing `name` and a description that differs it does not.

mod infer;
mod rules;
mod values;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::opset::Opset;
use crate::proto::mil::{
    Argument, BindingKind, Block, DataType, Function, NamedValueType, Operation, Program, Value,
    ValueType,
};
use crate::proto::model::{
    ArrayDataType, FeatureDescription, FeatureKind, Model, ModelDescription, ModelType,
};
use infer::{Constant, Operand, Operands, Type};

/// Something that is wrong, and where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Flaw {
    /// The part of the model: an operation with the name of its result, a feature, the function.
    pub place: String,
    /// Description of the fault.
    pub what: String,
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.what)
    }
}

/// All faults of a model with the file `weights`; empty if it can be given to Core ML.
pub fn check(model: &Model, weights: Option<&[u8]>) -> Vec<Flaw> {
    let mut checker = Checker {
        weights: weights.unwrap_or_default(),
        opset: Opset::CoreML5,
        known: BTreeMap::new(),
        flaws: Vec::new(),
    };
    checker.model(model);
    checker.flaws
}

/// Returns whether it is a name that values, operations and features may have: a letter or `_`, then these, digits and
/// `@`.
fn is_identifier(name: &str) -> bool {
    let first = |c: char| c.is_ascii_alphabetic() || c == '_';
    let rest = |c: char| first(c) || c.is_ascii_digit() || c == '@';
    name.starts_with(first) && name.chars().all(rest)
}

struct Checker<'a> {
    weights: &'a [u8],
    opset: Opset,
    /// Values that are there so far.
    known: BTreeMap<String, Operand>,
    flaws: Vec<Flaw>,
}

impl Checker<'_> {
    fn flaw(&mut self, place: impl ToString, what: impl ToString) {
        self.flaws.push(Flaw {
            place: place.to_string(),
            what: what.to_string(),
        });
    }

    /// Notes the fault at `place`, if there is one.
    fn hold<T>(&mut self, place: impl ToString, result: Result<T, String>) -> Option<T> {
        result.map_err(|what| self.flaw(place, what)).ok()
    }

    fn model(&mut self, model: &Model) {
        let Some(ModelType::MlProgram(program)) = &model.model_type else {
            return self.flaw("the model", "is not an ML Program");
        };
        let Some((function, block)) = self.body(program) else {
            return;
        };
        let version = self.opset.specification_version();
        if model.specification_version < version {
            let what = format!(
                "specification version {}, but {} needs {version}",
                model.specification_version,
                self.opset.name(),
            );
            self.flaw("the model", what);
        }
        self.inputs(function);
        for operation in &block.operations {
            self.operation(operation);
        }
        self.outputs(block);
        match &model.description {
            Some(description) => self.description(description, function, block),
            None => self.flaw("the model", "no description"),
        }
    }

    /// The function `main` and its block; [`Self::opset`] is its set of operations from then on.
    fn body<'p>(&mut self, program: &'p Program) -> Option<(&'p Function, &'p Block)> {
        if program.version != 1 {
            self.flaw("the program", format!("version {}, not 1", program.version));
        }
        let Some(function) = program.functions.get("main") else {
            self.flaw("the program", "no function main");
            return None;
        };
        let opset = Opset::ALL.into_iter().find(|o| o.name() == function.opset);
        let Some(opset) = opset else {
            let what = format!("set of operations {:?} is not known", function.opset);
            self.flaw("main", what);
            return None;
        };
        self.opset = opset;
        let block = function.block_specializations.get(opset.name());
        if block.is_none() {
            self.flaw("main", format!("no block for {}", opset.name()));
        }
        Some((function, block?))
    }

    fn inputs(&mut self, function: &Function) {
        for input in &function.inputs {
            if let Some(held) = input.r#type.as_ref().and_then(ValueType::as_state) {
                self.state(&input.name, held);
                continue;
            }
            let place = format!("input {}", input.name);
            if let Some(ty) = self.declared(&place, input) {
                self.boundary(&place, &ty);
            }
        }
    }

    /// A state that holds a tensor of this type.
    fn state(&mut self, name: &str, held: &ValueType) {
        let place = format!("state {name}");
        if !self.opset.has_states() {
            self.flaw(&place, "a state, which functions have from CoreML8 on");
        }
        let declared = NamedValueType {
            name: name.to_owned(),
            r#type: Some(held.clone()),
        };
        let Some(ty) = self.declared(&place, &declared) else {
            return;
        };
        self.boundary(&place, &ty);
        if ty.data_type != DataType::Float16 {
            self.flaw(&place, format!("{ty}, but states hold halves"));
        }
        if let Some(operand) = self.known.get_mut(name) {
            operand.is_state = true;
        }
    }

    fn outputs(&mut self, block: &Block) {
        if block.outputs.is_empty() {
            self.flaw("main", "no outputs");
        }
        let mut seen = BTreeSet::new();
        for name in &block.outputs {
            let place = format!("output {name}");
            if !seen.insert(name) {
                self.flaw(&place, "listed twice");
            }
            let value = self.known.get(name).filter(|operand| !operand.is_state);
            match value.map(|operand| operand.ty.clone()) {
                Some(ty) => self.boundary(&place, &ty),
                None => self.flaw(&place, "no such value"),
            }
        }
    }

    /// Checks a feature's type.
    fn boundary(&mut self, place: &str, ty: &Type) {
        let halves = self.opset.has_half_features();
        match ty.data_type {
            DataType::Float32 | DataType::Int32 => {}
            DataType::Float16 if halves => {}
            DataType::Float16 => self.flaw(place, "halves, which features have from CoreML6 on"),
            other => self.flaw(
                place,
                format!("elements of {other:?}, which no feature has"),
            ),
        }
        if ty.shape.is_empty() || ty.shape.len() > 5 || ty.shape.contains(&0) {
            let what = "a shape that is none of 1 to 5 sizes over 0";
            self.flaw(place, format!("{:?}, {what}", ty.shape));
        }
    }

    /// Adds a value of a declared type to those that are known.
    fn declared(&mut self, place: &str, value: &NamedValueType) -> Option<Type> {
        if !is_identifier(&value.name) {
            self.flaw(place, format!("{:?} is not an identifier", value.name));
        }
        let ty = value.r#type.as_ref().and_then(|ty| ty.as_tensor());
        let ty = ty.ok_or_else(|| "no type of a tensor whose sizes are known".to_owned());
        let (data_type, shape) = self.hold(place, ty)?;
        let ty = Type { data_type, shape };
        let operand = Operand {
            ty: ty.clone(),
            constant: None,
            is_state: false,
        };
        if self.known.insert(value.name.clone(), operand).is_some() {
            self.flaw(place, "a name that is taken");
        }
        Some(ty)
    }

    fn operation(&mut self, operation: &Operation) {
        let result = operation.outputs.first();
        let place = format!("{} {}", operation.r#type, result.map_or("", |r| &r.name));
        self.label(&place, operation);
        if operation.r#type == "const" {
            return self.constant(&place, operation);
        }
        // Its operands are looked up before its result is known.
        let inferred = self.infer(&place, operation);
        if rules::gives_nothing(&operation.r#type) && operation.outputs.is_empty() {
            return;
        }
        let [result] = &operation.outputs[..] else {
            return self.flaw(&place, "not one result");
        };
        let declared = self.declared(&place, result);
        if let (Some(declared), Some(inferred)) = (declared, inferred)
            && declared != inferred
        {
            self.flaw(&place, format!("gives {inferred}, not {declared}"));
        }
        let is_constant = operation.r#type.starts_with("constexpr_");
        if let Some(operand) = self.known.get_mut(&result.name).filter(|_| is_constant) {
            operand.constant = Some(Constant::Other);
        }
    }

    /// The attribute `name`.
    fn label(&mut self, place: &str, operation: &Operation) {
        let name = operation.attributes.get("name");
        match name.and_then(values::text) {
            Some(name) if is_identifier(&name) => {}
            Some(name) => self.flaw(place, format!("name {name:?} is not an identifier")),
            None => self.flaw(place, "no name"),
        }
    }

    fn constant(&mut self, place: &str, operation: &Operation) {
        let ([result], Some(value)) = (&operation.outputs[..], operation.attributes.get("val"))
        else {
            return self.flaw(place, "a constant without a value, or without one result");
        };
        if !operation.inputs.is_empty() {
            self.flaw(place, "a constant with operands");
        }
        let Some(declared) = self.declared(place, result) else {
            return;
        };
        let constant = values::decode(value, self.weights);
        if let Some((ty, constant)) = self.hold(place, constant) {
            if ty != declared {
                self.flaw(place, format!("a value of {ty}, not {declared}"));
            }
            if let Some(operand) = self.known.get_mut(&result.name) {
                operand.constant = Some(constant);
            }
        }
    }

    /// Type of the result by the rule of the operation.
    fn infer(&mut self, place: &str, operation: &Operation) -> Option<Type> {
        let rule = rules::find(&operation.r#type, self.opset);
        let rule = self.hold(place, rule)?;
        if !operation.blocks.is_empty() {
            self.flaw(place, "blocks, which it does not take");
        }
        let mut operands = BTreeMap::new();
        if rules::has_attributes(&operation.r#type) {
            let parameters = operation
                .attributes
                .iter()
                .filter(|(name, _)| *name != "name");
            for (parameter, value) in parameters {
                let operand = self.immediate(value);
                operands.insert(parameter.clone(), vec![self.hold(place, operand)?]);
            }
        }
        for (parameter, argument) in &operation.inputs {
            let bound = self.bound(argument);
            operands.insert(parameter.clone(), self.hold(place, bound)?);
        }
        let operands = Operands(operands);
        let inferred = rule.bind(&operands).and_then(|()| (rule.infer)(&operands));
        self.hold(place, inferred)
    }

    /// The values that a parameter is bound to.
    fn bound(&self, argument: &Argument) -> Result<Vec<Operand>, String> {
        let one = |binding: &crate::proto::mil::Binding| match &binding.binding {
            Some(BindingKind::Name(name)) => {
                let known = self.known.get(name).cloned();
                known.ok_or_else(|| format!("{name:?} is not a value before it"))
            }
            Some(BindingKind::Value(value)) => self.immediate(value),
            None => Err("a parameter that is bound to nothing".to_owned()),
        };
        argument.arguments.iter().map(one).collect()
    }

    fn immediate(&self, value: &Value) -> Result<Operand, String> {
        let (ty, constant) = values::decode(value, self.weights)?;
        Ok(Operand {
            ty,
            constant: Some(constant),
            is_state: false,
        })
    }

    /// Does the description agree with the function?
    fn description(&mut self, description: &ModelDescription, function: &Function, block: &Block) {
        let names = |states: bool| {
            let is_state = |ty: &ValueType| ty.as_state().is_some();
            let inputs = function.inputs.iter();
            let chosen =
                inputs.filter(|input| input.r#type.as_ref().is_some_and(is_state) == states);
            chosen.map(|input| &input.name).collect::<Vec<_>>()
        };
        self.features("input", &description.input, &names(false));
        self.features("state", &description.state, &names(true));
        let outputs: Vec<&String> = block.outputs.iter().collect();
        self.features("output", &description.output, &outputs);
    }

    fn features(&mut self, what: &str, described: &[FeatureDescription], names: &[&String]) {
        let described_names: Vec<&String> = described.iter().map(|f| &f.name).collect();
        if described_names != names {
            let what = format!("{what}s {described_names:?}, but the function has {names:?}");
            self.flaw("the description", what);
        }
        for feature in described {
            let place = format!("described {what} {}", feature.name);
            let Some(operand) = self.known.get(&feature.name) else {
                continue;
            };
            let (ty, is_state) = (operand.ty.clone(), operand.is_state);
            match feature_type(feature, is_state) {
                Some(described) if described == ty => {}
                Some(described) => self.flaw(&place, format!("{described}, but it is {ty}")),
                None => self.flaw(&place, "no type of a multi-array"),
            }
        }
    }
}

/// Type of a feature's value, or of a state's contents.
fn feature_type(feature: &FeatureDescription, is_state: bool) -> Option<Type> {
    let array = match (feature.r#type.as_ref()?.kind.as_ref()?, is_state) {
        (FeatureKind::MultiArray(array), false) => array,
        (FeatureKind::State(state), true) => state.array_type.as_ref()?,
        _ => return None,
    };
    let data_type = match ArrayDataType::try_from(array.data_type).ok()? {
        ArrayDataType::Float16 => DataType::Float16,
        ArrayDataType::Float32 => DataType::Float32,
        ArrayDataType::Int32 => DataType::Int32,
        _ => return None,
    };
    let shape = array.shape.iter().map(|&size| usize::try_from(size).ok());
    let shape = shape.collect::<Option<_>>()?;
    Some(Type { data_type, shape })
}
