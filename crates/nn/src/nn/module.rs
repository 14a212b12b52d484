//! The trait of modules: a tree of named tensors.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};

use indexmap::IndexMap;
use rustorch_files::Tensors;
use rustorch_ir::DType;
use rustorch_macros::track_calls;
use rustorch_tensor::{IntoDevice, RusTorchResult, Tensor, eval_all, no_grad};

use crate::call;
use crate::error::{require, unexpected};

/// A tree whose leaves are tensors with names: a module, or a part of one.
///
/// `#[derive(Module)]` makes a structure a [`Module`] whose fields are its parts, but for those that are marked
/// `#[module(skip)]`. `#[module(rename = "self")]` gives a field's part another name; that of `r#type` is `type`.
///
/// | a field's type | what it is |
/// | --- | --- |
/// | [`Tensor`] | a parameter, see [`parameter`] |
/// | [`Buffer`] | a tensor that belongs to the state and is not trained, such as running statistics |
/// | [`Training`] | whether the module is in training |
/// | a module | its parts, with the field's name before theirs |
/// | `Option`, `Box` | what is in it, by the field's own name |
/// | `Vec`, `IndexMap` | parts by number ([`ModuleList`](super::ModuleList)) and by name |
///
/// Names are the fields' names with points between them, as PyTorch has them: `encoder.0.weight`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a part of a module",
    label = "expected a tensor, a module, or a list of them",
    note = "a field that holds no tensors is marked `#[module(skip)]`",
    note = "a list is a `Vec`, a dictionary an `IndexMap`; a clone by `nn::share` takes the place of an `Arc`",
    note = "a structure of tensors and modules becomes a module by `#[derive(Module)]`"
)]
pub trait Visit: Send + Sync {
    /// Visits the leaves with their names. This part is called `name`; the root has an empty name.
    fn visit(&self, name: &str, visitor: &mut dyn FnMut(&str, Leaf));

    /// [`Visit::visit`] with mutable leaves.
    fn visit_mut(&mut self, name: &str, visitor: &mut dyn FnMut(&str, LeafMut));
}

/// A layer, a model, or another part of one with its own tensors, that computes something: `torch.nn.Module`.
/// `#[derive(Module)]` implements it for a structure, see [`Visit`].
///
/// Clones of a tensor are handles on one memory. So an optimiser can write to the results of
/// [`Module::parameters`]. A tensor in two places of a tree is a shared weight.
///
/// Clones of a module are deep, as `copy.deepcopy`'s: `#[derive(Module)]` makes it `Clone` so. [`share`](super::share)
/// gives a handle on the same module.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a module",
    label = "expected a module",
    note = "`#[derive(Module)]` makes a structure of tensors and modules one"
)]
pub trait Module: Visit {
    /// The parameters with their names. A parameter in several places is listed once, under its
    /// first name.
    fn named_parameters(&self) -> Vec<(String, Tensor)> {
        let (mut named, mut seen) = (Vec::new(), HashSet::new());
        self.visit("", &mut |name, leaf| {
            if let Leaf::Parameter(tensor) = leaf
                && seen.insert(ParameterId::of(tensor))
            {
                named.push((name.to_owned(), tensor.clone()));
            }
        });
        named
    }

    /// The parameters of [`Module::named_parameters`].
    fn parameters(&self) -> Vec<Tensor> {
        let named = self.named_parameters().into_iter();
        named.map(|(_, tensor)| tensor).collect()
    }

    /// The buffers with their names.
    fn named_buffers(&self) -> Vec<(String, Tensor)> {
        let mut named = Vec::new();
        self.visit("", &mut |name, leaf| {
            if let Leaf::Buffer(buffer) = leaf {
                named.push((name.to_owned(), buffer.get()));
            }
        });
        named
    }

    /// The buffers of [`Module::named_buffers`].
    fn buffers(&self) -> Vec<Tensor> {
        let named = self.named_buffers().into_iter();
        named.map(|(_, tensor)| tensor).collect()
    }

    /// Sets training mode for all modules of the tree; new ones are in training.
    fn train(&mut self, training: bool) {
        self.visit_mut("", &mut |_, leaf| {
            if let LeafMut::Training(mode) = leaf {
                mode.0 = training;
            }
        });
    }

    /// Sets evaluation mode for all modules of the tree.
    fn eval(&mut self) {
        self.train(false);
    }

    /// Sets whether the parameters require gradients.
    ///
    /// # Errors
    /// Fails for a parameter that cannot have a gradient, such as one of integers.
    #[track_calls]
    fn requires_grad_(&mut self, requires_grad: bool) -> RusTorchResult<()> {
        self.change_parameters(&mut |tensor| {
            tensor.requires_grad_(requires_grad)?;
            Ok(())
        })
    }

    /// Removes the gradients of all parameters.
    fn zero_grad(&self) {
        self.parameters().iter().for_each(Tensor::zero_grad);
    }

    /// Moves parameters and buffers to a device, as [`Tensor::to_device`]. An existing optimiser
    /// continues with them.
    ///
    /// # Errors
    /// The same errors as [`Tensor::to_device`].
    #[track_calls]
    fn to_device(&mut self, device: impl IntoDevice) -> RusTorchResult<()>
    where
        Self: Sized,
    {
        let device = device.into_device("to_device")?;
        replace_all(self, &|tensor| converted(tensor, &|x| x.to_device(device)))
    }

    /// Converts float parameters and buffers to another float dtype, with their gradients. Do this
    /// before making an optimiser: the step of an existing one fails.
    ///
    /// # Errors
    /// Fails for a dtype other than floats.
    #[track_calls]
    fn to_dtype(&mut self, dtype: DType) -> RusTorchResult<()>
    where
        Self: Sized,
    {
        require(
            "to_dtype",
            dtype.is_float(),
            "a floating-point dtype",
            dtype,
        )?;
        replace_all(self, &|tensor| match tensor.dtype().is_float() {
            true => converted(tensor, &|x| x.to_dtype(dtype)),
            false => Ok(tensor.clone()),
        })
    }

    /// Calls `change` with every parameter.
    ///
    /// # Errors
    /// The first error of `change`.
    fn change_parameters(
        &mut self,
        change: &mut dyn FnMut(&mut Tensor) -> RusTorchResult<()>,
    ) -> RusTorchResult<()> {
        let mut result = Ok(());
        self.visit_mut("", &mut |_, leaf| {
            if let (LeafMut::Parameter(tensor), Ok(())) = (leaf, &result) {
                result = change(tensor);
            }
        });
        result
    }

    /// Parameters and buffers by name, as `files::save` writes them for safetensors or
    /// `torch.load`.
    fn state_dict(&self) -> Tensors {
        let mut tensors = Tensors::new();
        self.visit("", &mut |name, leaf| {
            let tensor = match leaf {
                Leaf::Parameter(tensor) => tensor.detach(),
                Leaf::Buffer(buffer) => buffer.get(),
                Leaf::Training(_) | Leaf::Momentum(_) => return,
            };
            tensors.insert(name, tensor);
        });
        tensors
    }

    /// [`Module::load_state_dict`] of renamed tensors: `name` gives the new name for each. A tensor
    /// for which it returns `None` is left out. [`Tensors::strip_prefix`], [`Tensors::add_prefix`]
    /// and [`Tensors::under`] change prefixes of names.
    ///
    /// ```
    /// # extern crate rustorch_nn as rustorch;
    /// use rustorch::nn::{Linear, Module};
    ///
    /// # fn main() -> rustorch_tensor::RusTorchResult<()> {
    /// let (old, mut new) = (Linear::new(2, 3)?, Linear::new(2, 3)?);
    /// let state = old.state_dict().add_prefix("fc.gamma_");
    /// new.load_state_dict_with(&state, true, |name| Some(name.replace("fc.gamma_", "")))?;
    /// assert!(new.weight.equal(&old.weight)?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The errors of [`Module::load_state_dict`]. Also fails if two tensors get one name.
    #[track_calls]
    fn load_state_dict_with(
        &mut self,
        state: &Tensors,
        strict: bool,
        name: impl Fn(&str) -> Option<String>,
    ) -> RusTorchResult<Unmatched>
    where
        Self: Sized,
    {
        let name = |old: &str| call::user(|| name(old));
        let renamed = state.rename(name);
        let expected = "a name of its own for each tensor";
        let renamed = renamed.map_err(|e| unexpected("load_state_dict_with", expected, e))?;
        self.load_state_dict(&renamed, strict)
    }

    /// Overwrites the parameters and buffers with the tensors of their names, converted to their
    /// dtypes. If `strict`, the names on both sides must match. Returns the names that one side
    /// lacks.
    ///
    /// # Errors
    /// Fails before anything is written. The error lists all tensors of another shape. If `strict`,
    /// it also lists all names that are missing or not in the module.
    #[track_calls]
    fn load_state_dict(&mut self, state: &Tensors, strict: bool) -> RusTorchResult<Unmatched> {
        let mut own = IndexMap::new();
        self.visit("", &mut |name, leaf| {
            let tensor = match leaf {
                Leaf::Parameter(tensor) => tensor.clone(),
                Leaf::Buffer(buffer) => buffer.get(),
                Leaf::Training(_) | Leaf::Momentum(_) => return,
            };
            own.insert(name.to_owned(), tensor);
        });
        let unmatched = Unmatched::between(&own, state);
        unmatched.check(&own, state, strict)?;
        let mut written = Vec::new();
        for (name, tensor) in &mut own {
            if let Some(source) = state.opt(name) {
                no_grad(|| tensor.copy_(&source.detach()).map(|_| ()))?;
                written.push(&*tensor);
            }
        }
        eval_all(&written)?;
        Ok(unmatched)
    }
}

/// Names that a module or a loaded state lacks.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Unmatched {
    /// Names of the module that the state lacks.
    pub missing: Vec<String>,
    /// Names of the state that the module lacks.
    pub unexpected: Vec<String>,
}

impl Unmatched {
    fn between(own: &IndexMap<String, Tensor>, state: &Tensors) -> Self {
        let missing = own.keys().filter(|name| state.opt(name).is_none());
        let unexpected = state.names().filter(|name| !own.contains_key(*name));
        Self {
            missing: missing.cloned().collect(),
            unexpected: unexpected.map(str::to_owned).collect(),
        }
    }

    /// Fails for everything that does not match, in one error.
    fn check(
        &self,
        own: &IndexMap<String, Tensor>,
        state: &Tensors,
        strict: bool,
    ) -> RusTorchResult<()> {
        let mut problems = Vec::new();
        if strict && !self.missing.is_empty() {
            problems.push(format!("none for {}", self.missing.join(", ")));
        }
        if strict && !self.unexpected.is_empty() {
            problems.push(format!("unknown ones {}", self.unexpected.join(", ")));
        }
        for (name, tensor) in own {
            let other = state
                .opt(name)
                .filter(|other| other.shape() != tensor.shape());
            if let Some(other) = other {
                let (shape, own) = (other.shape(), tensor.shape());
                problems.push(format!("{name} {shape:?} in place of {own:?}"));
            }
        }
        if strict {
            problems.extend(self.advice());
        }
        let expected = "a tensor for each of the module's parameters and buffers";
        require(
            "load_state_dict",
            problems.is_empty(),
            expected,
            problems.join("; "),
        )
    }
}

impl Unmatched {
    /// Suggests a prefix that would make all missing names match.
    fn advice(&self) -> Option<String> {
        let (first, last) = (self.missing.first()?, self.missing.last()?);
        let beginning = |long: &str, short: &str| {
            let beginning = long.strip_suffix(short)?;
            (beginning.ends_with('.')).then(|| beginning.to_owned())
        };
        self.unexpected.iter().find_map(|other| {
            if let Some(prefix) = beginning(other, first) {
                let is_there = self.unexpected.contains(&format!("{prefix}{last}"));
                return is_there.then(|| format!("strip_prefix({prefix:?}) of them would fit"));
            }
            let prefix = beginning(first, other)?;
            let is_there = (last.strip_prefix(&prefix))
                .is_some_and(|last| self.unexpected.iter().any(|name| name == last));
            is_there.then(|| format!("add_prefix({prefix:?}) to them would fit"))
        })
    }
}

/// Identity of a parameter: the same for two handles on it, different for other parameters.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) enum ParameterId {
    /// The part of memory: the memory's id, sizes, strides, and where it begins.
    Memory(usize, [Vec<usize>; 2], usize),
    /// The identity of a pending tensor: its base.
    Value(usize),
}

impl ParameterId {
    pub(crate) fn of(tensor: &Tensor) -> Self {
        let Some(memory) = tensor.storage_in_memory() else {
            return Self::Value(tensor.id());
        };
        let layout = [tensor.shape().to_vec(), tensor.stride()];
        Self::Memory(memory.id(), layout, tensor.storage_offset())
    }
}

/// Puts another tensor into the place of each parameter and buffer, one into all places of one.
pub(super) fn replace_all(
    module: &mut impl Module,
    replacement: &dyn Fn(&Tensor) -> RusTorchResult<Tensor>,
) -> RusTorchResult<()> {
    // A tensor is recognized in all its places by its memory. Replaced tensors are kept meanwhile, so
    // that no new one gets their memory.
    let old: Vec<Tensor> = [module.parameters(), module.buffers()].concat();
    eval_all(&old.iter().collect::<Vec<_>>())?;
    let mut result = Ok(());
    let mut replaced: HashMap<ParameterId, (Tensor, Tensor)> = HashMap::new();
    let mut replace = |tensor: &Tensor| {
        let id = ParameterId::of(tensor);
        if let Some((_, new)) = replaced.get(&id) {
            return Ok(new.clone());
        }
        let new = replacement(tensor)?;
        replaced.insert(id, (tensor.clone(), new.clone()));
        RusTorchResult::Ok(new)
    };
    module.visit_mut("", &mut |_, leaf| {
        if result.is_ok() {
            result = match leaf {
                LeafMut::Parameter(tensor) => replace(tensor).map(|new| *tensor = new),
                LeafMut::Buffer(buffer) => replace(&buffer.get()).map(|new| buffer.set(new)),
                LeafMut::Training(_) | LeafMut::Momentum(_) => Ok(()),
            };
        }
    });
    result
}

/// Converts a tensor. A parameter stays the leaf that it is, with its gradient converted, too: an
/// optimiser that was made before sees the gradients that come.
fn converted(
    tensor: &Tensor,
    convert: &dyn Fn(&Tensor) -> RusTorchResult<Tensor>,
) -> RusTorchResult<Tensor> {
    let gradient = tensor.grad().map(|gradient| convert(&gradient.detach()));
    let gradient = gradient.transpose()?;
    let mut new = tensor.clone();
    new.set_data(&convert(&tensor.detach())?)?;
    if gradient.is_some() {
        new.set_grad(gradient.as_ref())?;
    }
    Ok(new)
}

/// A leaf of a module's tree.
#[derive(Clone, Copy)]
pub enum Leaf<'a> {
    /// A trained tensor.
    Parameter(&'a Tensor),
    /// A tensor that is not trained.
    Buffer(&'a Buffer),
    /// Whether the module is in training mode.
    Training(&'a Training),
    /// Weight of the batch in a batch norm's next statistics; `None`: all batches count the same.
    Momentum(Option<f64>),
}

/// A mutable leaf of a module's tree.
pub enum LeafMut<'a> {
    /// A trained tensor.
    Parameter(&'a mut Tensor),
    /// A tensor that is not trained.
    Buffer(&'a mut Buffer),
    /// Whether the module is in training mode.
    Training(&'a mut Training),
    /// Weight of the batch in a batch norm's next statistics; `None`: all batches count the same.
    Momentum(&'a mut Option<f64>),
}

/// A module whose `forward` takes one tensor and returns one.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no `forward` of one tensor",
    label = "expected a module with `Forward`",
    note = "a layer of your own has `impl Forward for {Self}`, with `fn forward(&self, x: &Tensor) -> RusTorchResult<Tensor>`",
    note = "functions such as `relu` are layers, too: `nn::ReLU`"
)]
pub trait Forward: Module {
    /// The module's result for `x`.
    ///
    /// # Errors
    /// Fails for an unsupported shape or dtype.
    fn forward(&self, x: &Tensor) -> RusTorchResult<Tensor>;
}

/// A tensor as a parameter: it requires a gradient.
///
/// # Errors
/// Fails for a dtype that is neither a float nor complex.
#[track_calls]
pub fn parameter(tensor: Tensor) -> RusTorchResult<Tensor> {
    let mut tensor = tensor.detach();
    tensor.requires_grad_(true)?;
    Ok(tensor)
}

/// A tensor of a module's state that is not trained. `forward` may replace it.
pub struct Buffer(Mutex<Tensor>);

impl Buffer {
    /// A buffer that begins as this tensor.
    pub fn new(tensor: Tensor) -> Self {
        Self(Mutex::new(tensor))
    }

    /// The tensor.
    pub fn get(&self) -> Tensor {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Replaces the tensor.
    pub fn set(&self, tensor: Tensor) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = tensor;
    }
}

/// A handle on the same memory, as clones of tensors are; the clone of its module has a copy.
impl Clone for Buffer {
    fn clone(&self) -> Self {
        Self::new(self.get())
    }
}

/// The training mode of a module, which begins as training; [`Module::train`] changes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Training(pub bool);

impl Default for Training {
    fn default() -> Self {
        Self(true)
    }
}

impl Training {
    /// Returns whether it is in training mode.
    pub fn is_on(self) -> bool {
        self.0
    }
}

/// The name of a part: `encoder` and `weight` give `encoder.weight`.
pub fn join_names(name: &str, part: &str) -> String {
    match name {
        "" => part.to_owned(),
        name => format!("{name}.{part}"),
    }
}

macro_rules! leaves {
    ($($Type:ty => $Leaf:ident;)*) => {
        $(impl Visit for $Type {
            fn visit(&self, name: &str, visitor: &mut dyn FnMut(&str, Leaf)) {
                visitor(name, Leaf::$Leaf(self));
            }

            fn visit_mut(&mut self, name: &str, visitor: &mut dyn FnMut(&str, LeafMut)) {
                visitor(name, LeafMut::$Leaf(self));
            }
        })*
    };
}

leaves! {
    Tensor => Parameter;
    Buffer => Buffer;
    Training => Training;
}

impl<M: Visit> Visit for Option<M> {
    fn visit(&self, name: &str, visitor: &mut dyn FnMut(&str, Leaf)) {
        if let Some(module) = self {
            module.visit(name, visitor);
        }
    }

    fn visit_mut(&mut self, name: &str, visitor: &mut dyn FnMut(&str, LeafMut)) {
        if let Some(module) = self {
            module.visit_mut(name, visitor);
        }
    }
}

impl<M: Visit + ?Sized> Visit for Box<M> {
    fn visit(&self, name: &str, visitor: &mut dyn FnMut(&str, Leaf)) {
        (**self).visit(name, visitor);
    }

    fn visit_mut(&mut self, name: &str, visitor: &mut dyn FnMut(&str, LeafMut)) {
        (**self).visit_mut(name, visitor);
    }
}

#[track_calls]
impl<M: Forward + ?Sized> Forward for Box<M> {
    fn forward(&self, x: &Tensor) -> RusTorchResult<Tensor> {
        (**self).forward(x)
    }
}

impl<M: Visit> Visit for Vec<M> {
    fn visit(&self, name: &str, visitor: &mut dyn FnMut(&str, Leaf)) {
        for (i, module) in self.iter().enumerate() {
            module.visit(&join_names(name, &i.to_string()), visitor);
        }
    }

    fn visit_mut(&mut self, name: &str, visitor: &mut dyn FnMut(&str, LeafMut)) {
        for (i, module) in self.iter_mut().enumerate() {
            module.visit_mut(&join_names(name, &i.to_string()), visitor);
        }
    }
}

impl<M: Visit> Visit for IndexMap<String, M> {
    fn visit(&self, name: &str, visitor: &mut dyn FnMut(&str, Leaf)) {
        for (part, module) in self {
            module.visit(&join_names(name, part), visitor);
        }
    }

    fn visit_mut(&mut self, name: &str, visitor: &mut dyn FnMut(&str, LeafMut)) {
        for (part, module) in self {
            module.visit_mut(&join_names(name, part), visitor);
        }
    }
}

impl<M: Module> Module for Option<M> {}
impl<M: Module + ?Sized> Module for Box<M> {}
impl<M: Module> Module for Vec<M> {}
impl<M: Module> Module for IndexMap<String, M> {}
