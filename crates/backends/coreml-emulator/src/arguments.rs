//! Bindings of an operation's parameters.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rustorch_coreml::proto::mil::{BindingKind, Operation};

use crate::constant;
use crate::tensor::{Data, Tensor};

/// Operands by the names of their parameters.
pub(crate) struct Arguments {
    bound: BTreeMap<String, Vec<Arc<Tensor>>>,
    /// The parameters that were asked for.
    asked: RefCell<BTreeSet<String>>,
}

impl Arguments {
    /// The operands of an operation.
    pub(crate) fn of(
        operation: &Operation,
        values: &BTreeMap<String, Arc<Tensor>>,
        weights: &[u8],
    ) -> Result<Self, String> {
        let mut bound = BTreeMap::new();
        // Operations that make constants had their operands there before CoreML8.
        let attributes = operation
            .attributes
            .iter()
            .filter(|(name, _)| *name != "name");
        for (name, value) in attributes {
            let value = constant::decode(value, weights)?;
            bound.insert(name.clone(), vec![Arc::new(value)]);
        }
        for (name, argument) in &operation.inputs {
            let tensors = (argument.arguments.iter())
                .map(|binding| match &binding.binding {
                    Some(BindingKind::Name(value)) => {
                        let value = values.get(value).cloned();
                        value.ok_or_else(|| format!("{name} is bound to no value"))
                    }
                    Some(BindingKind::Value(value)) => {
                        constant::decode(value, weights).map(Arc::new)
                    }
                    None => Err(format!("{name} is bound to nothing")),
                })
                .collect::<Result<_, _>>()?;
            bound.insert(name.clone(), tensors);
        }
        Ok(Self {
            bound,
            asked: RefCell::default(),
        })
    }

    /// Was each parameter asked for? The name of one that was not.
    pub(crate) fn is_used_up(&self) -> Result<(), String> {
        let asked = self.asked.borrow();
        let other = self.bound.keys().find(|name| !asked.contains(*name));
        other.map_or(Ok(()), |name| Err(name.clone()))
    }

    /// The values of a parameter that takes several.
    pub(crate) fn list(&self, name: &str) -> &[Arc<Tensor>] {
        self.asked.borrow_mut().insert(name.to_owned());
        self.bound.get(name).map_or(&[], |tensors| tensors)
    }

    /// The value of a parameter that may be left out.
    pub(crate) fn find(&self, name: &str) -> Option<&Tensor> {
        self.list(name).first().map(|tensor| &**tensor)
    }

    /// The value of a parameter.
    pub(crate) fn get(&self, name: &str) -> Result<&Tensor, String> {
        self.find(name).ok_or_else(|| format!("{name} is missing"))
    }

    /// Integers, none of them negative; nothing where they are left out.
    pub(crate) fn sizes(&self, name: &str) -> Result<Option<Vec<usize>>, String> {
        let Some(tensor) = self.find(name) else {
            return Ok(None);
        };
        let sizes = tensor.as_ints()?.iter().map(|&x| usize::try_from(x));
        let sizes = sizes.collect::<Result<_, _>>();
        sizes.map(Some).map_err(|_| format!("{name} is negative"))
    }

    /// Integers that have to be there.
    pub(crate) fn need_sizes(&self, name: &str) -> Result<Vec<usize>, String> {
        self.sizes(name)?
            .ok_or_else(|| format!("{name} is missing"))
    }

    /// A boolean.
    pub(crate) fn flag(&self, name: &str) -> Result<bool, String> {
        match self.find(name) {
            Some(tensor) => Ok(tensor.as_ints()? == [1]),
            None => Ok(false),
        }
    }

    /// A floating-point number.
    pub(crate) fn number(&self, name: &str, default: f64) -> Result<f64, String> {
        match self.find(name) {
            Some(tensor) => Ok(tensor.as_floats()?[0]),
            None => Ok(default),
        }
    }

    /// A text.
    pub(crate) fn text(&self, name: &str) -> Result<&str, String> {
        match &self.get(name)?.data {
            Data::Text(text) => Ok(text),
            _ => Err(format!("{name} is not text")),
        }
    }
}
