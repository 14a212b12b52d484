//! Modules made of others: `Sequential`, lists, dictionaries.

use indexmap::IndexMap;
use rustorch_macros::track_calls;
use rustorch_tensor::{RusTorchResult, Tensor};

use super::{Forward, Leaf, LeafMut, Module, Visit};

/// Modules by number: `torch.nn.ModuleList`.
pub type ModuleList<M = Box<dyn Forward>> = Vec<M>;

/// Modules by name, in their order: `torch.nn.ModuleDict`.
pub type ModuleDict<M = Box<dyn Forward>> = IndexMap<String, M>;

/// Parameters by number: `torch.nn.ParameterList`.
pub type ParameterList = Vec<Tensor>;

/// Parameters by name, in their order: `torch.nn.ParameterDict`.
pub type ParameterDict = IndexMap<String, Tensor>;

/// Modules of which each gets what the one before it made, by number or by name.
/// [`sequential!`](crate::nn::sequential) makes one.
#[derive(Default)]
pub struct Sequential {
    modules: ModuleDict,
}

impl Sequential {
    /// None yet, which gives what it gets.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same with another module behind the others, which is called by its number.
    #[must_use]
    pub fn append(self, module: impl Forward + 'static) -> Self {
        let name = self.modules.len().to_string();
        self.add_module(name, module)
    }

    /// The same with another module behind the others, or in the place of the one of this name.
    #[must_use]
    pub fn add_module(mut self, name: impl Into<String>, module: impl Forward + 'static) -> Self {
        self.modules.insert(name.into(), Box::new(module));
        self
    }

    /// Number of modules.
    pub fn len(&self) -> usize {
        self.modules.len()
    }

    /// Is there none?
    pub fn is_empty(&self) -> bool {
        self.modules.is_empty()
    }
}

/// Its modules' names are their own, as if it were their dictionary.
impl Visit for Sequential {
    fn visit(&self, name: &str, visitor: &mut dyn FnMut(&str, Leaf)) {
        self.modules.visit(name, visitor);
    }

    fn visit_mut(&mut self, name: &str, visitor: &mut dyn FnMut(&str, LeafMut)) {
        self.modules.visit_mut(name, visitor);
    }
}

impl Module for Sequential {}

#[track_calls(Sequential)]
impl Forward for Sequential {
    fn forward(&self, x: &Tensor) -> RusTorchResult<Tensor> {
        let mut modules = self.modules.values();
        modules.try_fold(x.clone(), |x, module| module.forward(&x))
    }
}

/// A [`Sequential`](crate::nn::Sequential) of these modules: `sequential![Linear::new(2, 8)?, ReLU, Linear::new(8, 1)?]`.
#[macro_export]
macro_rules! sequential {
    ($($module:expr),* $(,)?) => {
        $crate::nn::Sequential::new()$(.append($module))*
    };
}
pub use sequential;
