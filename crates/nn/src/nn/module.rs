//! What a module is: a tree of named tensors.

use std::collections::{HashMap, HashSet};
use std::mem;
use std::sync::{Mutex, PoisonError};

use indexmap::IndexMap;
use rustorch_files::Tensors;
use rustorch_ir::DType;
use rustorch_macros::track_calls;
use rustorch_tensor::{IntoDevice, RusTorchResult, Tensor, eval_all, no_grad};

use crate::error::require;

/// A tree whose leaves are tensors with names: a module, or what may be in one.
///
/// `#[derive(Module)]` makes a structure a [`Module`] whose fields are its parts, but for those that are marked
/// `#[module(skip)]`.
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
pub trait Visit: Send + Sync {
    /// Shows `visitor` the leaves, each with its name; this part is called `name`, the root by an empty one.
    fn visit(&self, name: &str, visitor: &mut dyn FnMut(&str, Leaf));

    /// [`Visit::visit`] of leaves that may be changed.
    fn visit_mut(&mut self, name: &str, visitor: &mut dyn FnMut(&str, LeafMut));
}

/// A layer, a model, or another part of one with tensors of its own, that computes something: `torch.nn.Module`.
/// `#[derive(Module)]` makes one of a structure, see [`Visit`].
///
/// Clones of a tensor are handles on one memory, so that what [`Module::parameters`] gives can be
/// written to by an optimiser, and a tensor in two places of a tree is a shared weight.
pub trait Module: Visit {
    /// The parameters with their names, each memory once: of one in several places the first.
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

    /// Puts all modules of the tree into training, or out of it; new ones are in training.
    fn train(&mut self, training: bool) {
        self.visit_mut("", &mut |_, leaf| {
            if let LeafMut::Training(mode) = leaf {
                mode.0 = training;
            }
        });
    }

    /// Puts all modules of the tree out of training.
    fn eval(&mut self) {
        self.train(false);
    }

    /// Says of every parameter whether a gradient is wanted.
    ///
    /// # Errors
    /// A parameter that can have none, such as one of integers.
    #[track_calls]
    fn requires_grad_(&mut self, requires_grad: bool) -> RusTorchResult<()> {
        self.change_parameters(&mut |tensor| {
            tensor.requires_grad_(requires_grad)?;
            Ok(())
        })
    }

    /// Forgets the gradients of all parameters.
    fn zero_grad(&self) {
        self.parameters().iter().for_each(Tensor::zero_grad);
    }

    /// Brings parameters and buffers to a device, as [`Tensor::to_device`]. An optimiser goes on with
    /// the tensors it was made with, so this comes before it.
    ///
    /// # Errors
    /// As [`Tensor::to_device`].
    #[track_calls]
    fn to_device(&mut self, device: impl IntoDevice) -> RusTorchResult<()>
    where
        Self: Sized,
    {
        let device = device.into_device("to_device")?;
        replace_all(self, &|tensor| tensor.to_device(device))
    }

    /// Converts parameters and buffers of floats to another float dtype. An optimiser goes on with the
    /// tensors it was made with, so this comes before it.
    ///
    /// # Errors
    /// A dtype of other than floats.
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
            true => tensor.to_dtype(dtype),
            false => Ok(tensor.clone()),
        })
    }

    /// Calls `change` with every parameter.
    ///
    /// # Errors
    /// The first of `change`'s.
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

    /// Parameters and buffers by their names: what `files::save` writes as safetensors or for
    /// `torch.load`. They are handles on the module's memory.
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

    /// Writes tensors over the parameters and buffers of their names, in the memory of those, converted
    /// to their dtypes. Where `strict`, there has to be one for each, and no other. Returns the
    /// names that one side lacks.
    ///
    /// # Errors
    /// Before anything is written: all names that are missing or not in the module, if `strict`, and all
    /// tensors of another shape.
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

/// Names of tensors that a module, or what is loaded into it, does not have.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Unmatched {
    /// Those of the module that were not there to be loaded.
    pub missing: Vec<String>,
    /// Those that were there and are not in the module.
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

    /// Fails for all that does not fit, in one error.
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
        let expected = "a tensor for each of the module's parameters and buffers";
        require(
            "load_state_dict",
            problems.is_empty(),
            expected,
            problems.join("; "),
        )
    }
}

/// What two handles on one parameter have in common, and no other parameter.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) enum ParameterId {
    /// The part of memory: the memory's id, sizes, strides, and where it begins.
    Memory(usize, [Vec<usize>; 2], usize),
    /// Of what is not computed yet: what they are clones of.
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

/// Puts another tensor into the place of each parameter and buffer, one into all places of a parameter. Parameters
/// stay leaves for gradients.
fn replace_all(
    module: &mut impl Module,
    replacement: &dyn Fn(&Tensor) -> RusTorchResult<Tensor>,
) -> RusTorchResult<()> {
    // Whose memory is known is known for one in all its places; it stays with what was replaced meanwhile.
    eval_all(&module.parameters().iter().collect::<Vec<_>>())?;
    let mut result = Ok(());
    let mut replaced: HashMap<ParameterId, (Tensor, Tensor)> = HashMap::new();
    let mut replace = |leaf: LeafMut| match leaf {
        LeafMut::Parameter(tensor) => {
            let id = ParameterId::of(tensor);
            if let Some((_, new)) = replaced.get(&id) {
                *tensor = new.clone();
                return Ok(());
            }
            let wanted = tensor.requires_grad();
            let mut new = replacement(&tensor.detach())?;
            new.requires_grad_(wanted)?;
            let old = mem::replace(tensor, new.clone());
            replaced.insert(id, (old, new));
            Ok(())
        }
        LeafMut::Buffer(buffer) => {
            buffer.set(replacement(&buffer.get())?);
            Ok(())
        }
        LeafMut::Training(_) | LeafMut::Momentum(_) => Ok(()),
    };
    module.visit_mut("", &mut |_, leaf| {
        if result.is_ok() {
            result = replace(leaf);
        }
    });
    result
}

/// Memory of its own with the same elements; a gradient is wanted as of the original.
pub(crate) fn copied(tensor: &Tensor) -> RusTorchResult<Tensor> {
    let mut copy = tensor.detach().zeros_like()?;
    copy.copy_(&tensor.detach())?;
    copy.eval()?;
    copy.requires_grad_(tensor.requires_grad())?;
    Ok(copy)
}

/// The same module with memory of its own: `copy.deepcopy`.
///
/// # Errors
/// A tensor of it cannot be computed.
#[track_calls]
pub fn deep_copy<M: Module + Clone>(module: &M) -> RusTorchResult<M> {
    let mut copy = module.clone();
    replace_all(&mut copy, &copied)?;
    Ok(copy)
}

/// A leaf of a module's tree.
#[derive(Clone, Copy)]
pub enum Leaf<'a> {
    /// A tensor that is trained.
    Parameter(&'a Tensor),
    /// A tensor that is not.
    Buffer(&'a Buffer),
    /// Whether the module is in training.
    Training(&'a Training),
    /// How much of a batch norm's next statistics is the batch's; `None`: all batches count the same.
    Momentum(Option<f64>),
}

/// A leaf of a module's tree that may be changed.
pub enum LeafMut<'a> {
    /// A tensor that is trained.
    Parameter(&'a mut Tensor),
    /// A tensor that is not.
    Buffer(&'a mut Buffer),
    /// Whether the module is in training.
    Training(&'a mut Training),
    /// How much of a batch norm's next statistics is the batch's; `None`: all batches count the same.
    Momentum(&'a mut Option<f64>),
}

/// A module of which a tensor follows from one other.
pub trait Forward: Module {
    /// What the module makes of `x`.
    ///
    /// # Errors
    /// A shape or dtype that it is not for.
    fn forward(&self, x: &Tensor) -> RusTorchResult<Tensor>;
}

/// A tensor as a parameter: one that a gradient is wanted of.
///
/// # Errors
/// A dtype that is neither a float nor complex.
#[track_calls]
pub fn parameter(tensor: Tensor) -> RusTorchResult<Tensor> {
    let mut tensor = tensor.detach();
    tensor.requires_grad_(true)?;
    Ok(tensor)
}

/// A tensor of a module's state that is not trained. `forward` may replace it.
pub struct Buffer(Mutex<Tensor>);

impl Buffer {
    /// With this tensor at first.
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

    /// Another tensor in its place.
    pub fn set(&self, tensor: Tensor) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = tensor;
    }
}

/// A handle on the same memory, as clones of tensors are.
impl Clone for Buffer {
    fn clone(&self) -> Self {
        Self::new(self.get())
    }
}

/// Whether a module is in training, as it is at first; [`Module::train`] changes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Training(pub bool);

impl Default for Training {
    fn default() -> Self {
        Self(true)
    }
}

impl Training {
    /// Is it in training?
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
