//! Modules that contain others: `Sequential`, lists, dictionaries.

use std::any::Any;
use std::fmt::Display;
use std::ops::{Bound, Index, IndexMut, RangeBounds};

use indexmap::IndexMap;
use rustorch_macros::track_calls;
use rustorch_tensor::{RusTorchResult, Tensor};

use super::{Forward, Hooked, Leaf, LeafMut, Module, Visit, cloned, share};
use crate::error::{require, unexpected};

/// A module that a [`Sequential`] may have: it has `forward`, is [`Clone`], and reports its type.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no `forward` of one tensor, or is not `Clone`",
    label = "expected a module with `Forward` and `Clone`",
    note = "a constructor returns a result, `?` takes the layer out of it: `Linear::new(2, 3)?`",
    note = "a layer of your own has `impl Forward for {Self}`, with `fn forward(&self, x: &Tensor) -> RusTorchResult<Tensor>`",
    note = "functions such as `relu` are layers, too: `nn::ReLU`"
)]
pub trait Layer: Forward + Any {
    /// A clone of the module.
    fn boxed(&self) -> Box<dyn Layer>;
}

impl<M: Forward + Clone + 'static> Layer for M {
    fn boxed(&self) -> Box<dyn Layer> {
        Box::new(self.clone())
    }
}

impl dyn Layer {
    /// The module, if it has this type, also in a box or with hooks.
    pub fn downcast_ref<M: Layer>(&self) -> Option<&M> {
        let module: &dyn Any = self;
        let boxed = module.downcast_ref::<Box<dyn Layer>>();
        let boxed = boxed.or_else(|| Some(&module.downcast_ref::<Part>()?.module));
        match boxed {
            Some(boxed) if !module.is::<M>() => (**boxed).downcast_ref(),
            _ => module.downcast_ref(),
        }
    }

    /// The mutable module, if it has this type, also in a box or with hooks.
    pub fn downcast_mut<M: Layer>(&mut self) -> Option<&mut M> {
        let module: &mut dyn Any = self;
        if module.is::<M>() {
            return module.downcast_mut();
        }
        let boxed = match module.is::<Part>() {
            true => &mut module.downcast_mut::<Part>()?.module,
            false => module.downcast_mut::<Box<dyn Layer>>()?,
        };
        (**boxed).downcast_mut()
    }
}

impl Clone for Box<dyn Layer> {
    fn clone(&self) -> Self {
        (**self).boxed()
    }
}

/// A list of modules: `torch.nn.ModuleList`.
///
/// A list that is not in a module clones each of its modules alone, as every `Vec` does. So parameters that two of
/// them share are shared no more. [`deep_copy`](crate::nn::deep_copy) of the list keeps them shared.
pub type ModuleList<M = Box<dyn Layer>> = Vec<M>;

/// A dictionary of modules, in order: `torch.nn.ModuleDict`. Its clones are those of [`ModuleList`].
pub type ModuleDict<M = Box<dyn Layer>> = IndexMap<String, M>;

/// A list of parameters: `torch.nn.ParameterList`.
pub type ParameterList = Vec<Tensor>;

/// A dictionary of parameters, in order: `torch.nn.ParameterDict`.
pub type ParameterDict = IndexMap<String, Tensor>;

/// A module of a [`Sequential`], of any type, with its hooks.
pub type Part = Hooked<Box<dyn Layer>>;

/// A chain of modules, by number or by name: each gets the result of the one before.
/// [`sequential!`](crate::nn::sequential) makes one.
///
/// A position is a number, from the end if it is negative, or a name. Its clones
/// are deep.
///
/// ```
/// use rustorch_nn::nn::{Forward, Linear, Module, ReLU, Tanh, sequential};
/// use rustorch_tensor::tensor;
///
/// # fn main() -> rustorch_tensor::RusTorchResult<()> {
/// let mut net = sequential![Linear::new(2, 4)?, ReLU, Linear::new(4, 1)?];
/// assert_eq!(net[0].forward(&tensor![[1.0, 2.0]])?.shape(), [1, 4]);
/// let last: &Linear = net[-1].downcast_ref().expect("a Linear");
/// assert_eq!(last.weight.shape(), [1, 4]);
/// net.replace(1, Tanh)?;
/// net.insert(3, ReLU)?;
/// assert!(net["3"].downcast_ref::<ReLU>().is_some());
/// net.remove(-1)?;
/// let head = net.slice(1..)?;
/// assert_eq!(head.state_dict().names().collect::<Vec<_>>(), ["2.weight", "2.bias"]);
/// assert_eq!(net.iter().map(|part| part.parameters().len()).collect::<Vec<_>>(), [2, 0, 2]);
/// # Ok(())
/// # }
/// ```
#[derive(Default)]
pub struct Sequential {
    parts: IndexMap<String, Part>,
}

impl Clone for Sequential {
    #[track_caller]
    fn clone(&self) -> Self {
        cloned(|| Self {
            parts: self.parts.clone(),
        })
    }
}

/// A module as a part.
fn part(module: impl Layer) -> Part {
    let module: Box<dyn Layer> = Box::new(module);
    Hooked::new(module)
}

#[track_calls(Sequential)]
impl Sequential {
    /// An empty chain, which returns its operand.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a module, whose name is its number.
    #[must_use]
    pub fn append(mut self, module: impl Layer) -> Self {
        self.push(module);
        self
    }

    /// Appends a module with a name, or replaces the module of this name.
    #[must_use]
    pub fn add_module(mut self, name: impl Into<String>, module: impl Layer) -> Self {
        self.parts.insert(name.into(), part(module));
        self
    }

    /// Appends a module. Its name is its number, or the next free one.
    pub fn push(&mut self, module: impl Layer) {
        let mut numbers = (self.len()..).map(|number| number.to_string());
        if let Some(name) = numbers.find(|name| !self.parts.contains_key(name)) {
            self.parts.insert(name, part(module));
        }
    }

    /// Number of modules.
    pub fn len(&self) -> usize {
        self.parts.len()
    }

    /// Returns whether the chain is empty.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// The module at a position, if it exists.
    pub fn get(&self, at: impl Place) -> Option<&Part> {
        let (_, part) = self.parts.get_index(at.find(self)?)?;
        Some(part)
    }

    /// The mutable module at a position, if it exists.
    pub fn get_mut(&mut self, at: impl Place) -> Option<&mut Part> {
        let (_, part) = self.parts.get_index_mut(at.find(self)?)?;
        Some(part)
    }

    /// The modules in their order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Part> {
        self.parts.values()
    }

    /// The mutable modules in their order.
    pub fn iter_mut(&mut self) -> impl ExactSizeIterator<Item = &mut Part> {
        self.parts.values_mut()
    }

    /// The modules in their order, with their names.
    pub fn named_children(&self) -> impl ExactSizeIterator<Item = (&str, &Part)> {
        self.parts.iter().map(|(name, part)| (name.as_str(), part))
    }

    /// Replaces the module at a position, keeps its name, and returns the old one.
    ///
    /// # Errors
    /// Fails if the position does not exist.
    pub fn replace(&mut self, at: impl Place, module: impl Layer) -> RusTorchResult<Part> {
        let len = self.len();
        match self.get_mut(at) {
            Some(place) => Ok(std::mem::replace(place, part(module))),
            None => Err(nowhere("replace", len, at)),
        }
    }

    /// Inserts a module before a position, or at the end. The modules are numbered, so those after
    /// it get new numbers.
    ///
    /// # Errors
    /// Fails if the position does not exist. Also fails if modules have names, as
    /// [`Sequential::add_module`] gives them.
    pub fn insert(&mut self, at: impl Place, module: impl Layer) -> RusTorchResult<()> {
        const NAME: &str = "insert";
        let len = self.len();
        let at = at.before(self).ok_or_else(|| nowhere(NAME, len, at))?;
        let own = |(at, name): (usize, &String)| (*name != at.to_string()).then(|| name.clone());
        if let Some(name) = self.parts.keys().enumerate().find_map(own) {
            return Err(unexpected(NAME, "modules called by their numbers", name));
        }
        self.parts.shift_insert(at, String::new(), part(module));
        self.number();
        Ok(())
    }

    /// Removes a module and returns it. The others are renumbered, as in PyTorch.
    ///
    /// # Errors
    /// Fails if the position does not exist.
    pub fn remove(&mut self, at: impl Place) -> RusTorchResult<Part> {
        let found = at.find(self);
        let removed = found.and_then(|at| self.parts.shift_remove_index(at));
        let (_, part) = removed.ok_or_else(|| nowhere("remove", self.len(), at))?;
        self.number();
        Ok(part)
    }

    /// Calls modules by their numbers.
    fn number(&mut self) {
        let parts = std::mem::take(&mut self.parts).into_values().enumerate();
        self.parts = parts.map(|(at, part)| (at.to_string(), part)).collect();
    }

    /// Some of the modules, under their names: `net[1:3]`. They share the memory of tensors.
    ///
    /// # Errors
    /// Fails for a range that ends after the last module, or before it begins.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> RusTorchResult<Self> {
        let start = match range.start_bound() {
            Bound::Included(&start) => start,
            Bound::Excluded(&start) => start.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(&end) => end.saturating_add(1),
            Bound::Excluded(&end) => end,
            Bound::Unbounded => self.len(),
        };
        let got = format_args!("{start}..{end}");
        let expected = format_args!("a range of 0..{}", self.len());
        require("slice", start <= end && end <= self.len(), expected, got)?;
        let parts = self.parts.iter().take(end).skip(start);
        Ok(Self {
            parts: parts
                .map(|(name, part)| (name.clone(), share(part)))
                .collect(),
        })
    }
}

/// There is no module at a place.
fn nowhere(name: &'static str, len: usize, at: impl Place) -> rustorch_tensor::RusTorchError {
    unexpected(name, format_args!("a place among {len} modules"), at)
}

/// A position in a [`Sequential`]: a number, from the end if it is negative, or a name.
pub trait Place: Copy + Display {
    /// The number of the module at the position.
    fn find(self, sequential: &Sequential) -> Option<usize>;

    /// The number of the module at the position, or the length for the end.
    fn before(self, sequential: &Sequential) -> Option<usize> {
        self.find(sequential)
    }
}

impl Place for &str {
    fn find(self, sequential: &Sequential) -> Option<usize> {
        sequential.parts.get_index_of(self)
    }
}

macro_rules! places {
    ($($Number:ty),*) => {
        $(impl Place for $Number {
            fn find(self, sequential: &Sequential) -> Option<usize> {
                self.before(sequential).filter(|&at| at < sequential.len())
            }

            fn before(self, sequential: &Sequential) -> Option<usize> {
                let (at, len) = (self as i128, sequential.len() as i128);
                let at = if at < 0 { at + len } else { at };
                (0..=len).contains(&at).then_some(at as usize)
            }
        })*
    };
}

places!(usize, isize, i32, i64);

/// The module at a place.
///
/// # Panics
/// Panics if the position is empty.
impl<P: Place> Index<P> for Sequential {
    type Output = Part;

    #[track_caller]
    fn index(&self, at: P) -> &Part {
        match self.get(at) {
            Some(part) => part,
            None => panic!("{}", nowhere("Sequential", self.len(), at)),
        }
    }
}

impl<P: Place> IndexMut<P> for Sequential {
    #[track_caller]
    fn index_mut(&mut self, at: P) -> &mut Part {
        let len = self.len();
        match self.get_mut(at) {
            Some(part) => part,
            None => panic!("{}", nowhere("Sequential", len, at)),
        }
    }
}

impl<'a> IntoIterator for &'a Sequential {
    type Item = &'a Part;
    type IntoIter = indexmap::map::Values<'a, String, Part>;

    fn into_iter(self) -> Self::IntoIter {
        self.parts.values()
    }
}

impl<'a> IntoIterator for &'a mut Sequential {
    type Item = &'a mut Part;
    type IntoIter = indexmap::map::ValuesMut<'a, String, Part>;

    fn into_iter(self) -> Self::IntoIter {
        self.parts.values_mut()
    }
}

impl IntoIterator for Sequential {
    type Item = Part;
    type IntoIter = indexmap::map::IntoValues<String, Part>;

    fn into_iter(self) -> Self::IntoIter {
        self.parts.into_values()
    }
}

/// Puts modules behind the others, such as all of another one.
impl<M: Layer> Extend<M> for Sequential {
    fn extend<I: IntoIterator<Item = M>>(&mut self, modules: I) {
        modules.into_iter().for_each(|module| self.push(module));
    }
}

impl<M: Layer> FromIterator<M> for Sequential {
    fn from_iter<I: IntoIterator<Item = M>>(modules: I) -> Self {
        let mut all = Self::new();
        all.extend(modules);
        all
    }
}

/// Its modules' names are their own, as if it were their dictionary.
impl Visit for Sequential {
    fn visit(&self, name: &str, visitor: &mut dyn FnMut(&str, Leaf)) {
        self.parts.visit(name, visitor);
    }

    fn visit_mut(&mut self, name: &str, visitor: &mut dyn FnMut(&str, LeafMut)) {
        self.parts.visit_mut(name, visitor);
    }
}

impl Module for Sequential {}

#[track_calls(Sequential)]
impl Forward for Sequential {
    fn forward(&self, x: &Tensor) -> RusTorchResult<Tensor> {
        let mut parts = self.parts.values();
        parts.try_fold(x.clone(), |x, part| part.forward(&x))
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
