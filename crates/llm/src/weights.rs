//! Weights by GGUF's names.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use rustorch_gguf::Gguf;
use rustorch_ir::DType;
use rustorch_tensor::Tensor;
use rustorch_tensor::distributed::CommunicationGroup;

use crate::LlmError;
use crate::adapters::{Adapters, LowRank};
use crate::file_tensor::file_tensor;
use crate::keys::{Keys, UNKNOWN};
use crate::spec::{Role, TensorSpec, layer_of};

/// A place that weights come from.
pub(crate) trait Source {
    /// The tensor `name`, if it is there.
    ///
    /// # Errors
    /// Fails for another shape (slowest dimension first), or for an unsupported type.
    fn find(&self, name: &str, shape: &[usize]) -> Result<Option<Tensor>, LlmError>;

    /// The same as [`Self::find`], of a tensor that a model cannot do without.
    ///
    /// # Errors
    /// The same errors as [`Self::find`].
    fn required(&self, name: &str, shape: &[usize]) -> Result<Option<Tensor>, LlmError> {
        self.find(name, shape)
    }

    /// Is the tensor `name` there?
    fn has(&self, name: &str) -> bool {
        self.shape(name).is_some()
    }

    /// The shape of the tensor `name`, if it is there.
    fn shape(&self, name: &str) -> Option<Vec<usize>>;

    /// All names.
    fn names(&self) -> Vec<String>;
}

/// The tensors of a file, used in place.
pub struct Weights {
    gguf: Gguf,
}

impl Weights {
    /// The tensors of `gguf`.
    pub fn new(gguf: Gguf) -> Self {
        Self { gguf }
    }

    /// The tensor `name`, if the file has it, in `f32`.
    ///
    /// # Errors
    /// Fails for another shape, or for an unsupported type.
    pub fn opt_f32(&self, name: &str, shape: &[usize]) -> Result<Option<Tensor>, LlmError> {
        self.find(name, shape)?.map(as_f32).transpose()
    }
}

impl Source for Weights {
    fn find(&self, name: &str, shape: &[usize]) -> Result<Option<Tensor>, LlmError> {
        let Some(info) = self.gguf.tensor(name) else {
            return Ok(None);
        };
        if info.shape() != shape {
            return Err(wrong_shape(name, shape, &info.shape()));
        }
        file_tensor(&self.gguf, info).map(Some)
    }

    fn shape(&self, name: &str) -> Option<Vec<usize>> {
        self.gguf.tensor(name).map(|info| info.shape().to_vec())
    }

    fn names(&self) -> Vec<String> {
        let tensors = self.gguf.tensors().iter();
        tensors.map(|tensor| tensor.name.clone()).collect()
    }
}

/// The shapes of a file's tensors; zeros stand for their data.
pub(crate) struct Shapes<'a>(pub(crate) &'a Gguf);

impl Source for Shapes<'_> {
    fn find(&self, name: &str, shape: &[usize]) -> Result<Option<Tensor>, LlmError> {
        match self.shape(name) {
            None => Ok(None),
            Some(own) if own == shape => Ok(Some(Tensor::zeros(shape, DType::F32)?)),
            Some(own) => Err(wrong_shape(name, shape, &own)),
        }
    }

    fn shape(&self, name: &str) -> Option<Vec<usize>> {
        self.0.tensor(name).map(|info| info.shape().to_vec())
    }

    fn names(&self) -> Vec<String> {
        let tensors = self.0.tensors().iter();
        tensors.map(|tensor| tensor.name.clone()).collect()
    }
}

pub(crate) fn wrong_shape(name: &str, expected: &[usize], found: &[usize]) -> LlmError {
    LlmError::weight(name, format!("expected shape {expected:?}, got {found:?}"))
}

/// Parts of names that a file may have unread. They are scales of formats whose values need none, and divisors of
/// frequencies that a model leaves out. Others are for images, classification and predicting several tokens.
const MAY_BE_UNREAD: &[&str] = &[
    ".scale",
    ".input_scale",
    ".vis_",
    "cls.",
    "dense_2.",
    "dense_3.",
    "nextn.",
    "rope_freqs.",
    "rope_factors_",
];

/// Loads the weights of one model. Mistakes in them are collected, and are one error in the end.
pub(crate) struct Loader<'a> {
    source: &'a dyn Source,
    adapters: &'a Adapters,
    /// Names of weights that were asked for additions.
    adaptable: RefCell<BTreeSet<String>>,
    /// Names that were asked for.
    read: RefCell<BTreeSet<String>>,
    /// Shapes of those that are there.
    found: RefCell<BTreeMap<String, Vec<usize>>>,
    problems: RefCell<Vec<LlmError>>,
    /// Whether there are sizes that are not known.
    is_unsure: bool,
    /// The ranks that have parts of the weights.
    ranks: Option<&'a CommunicationGroup>,
}

impl<'a> Loader<'a> {
    pub(crate) fn new(source: &'a dyn Source, adapters: &'a Adapters) -> Self {
        Self {
            source,
            adapters,
            adaptable: RefCell::default(),
            read: RefCell::default(),
            found: RefCell::default(),
            problems: RefCell::default(),
            is_unsure: false,
            ranks: None,
        }
    }

    /// The same for weights that are divided among ranks.
    pub(crate) fn divided(self, ranks: &'a CommunicationGroup) -> Self {
        let ranks = Some(ranks);
        Self { ranks, ..self }
    }

    /// The ranks whose products with the weight `name` add up to the whole one.
    pub(crate) fn adding_ranks(&self, name: &str) -> Option<CommunicationGroup> {
        let is_last = matches!(Role::of(name), Some(Role::AttentionOutput | Role::Down));
        self.ranks.filter(|_| is_last).cloned()
    }

    /// The same after mistakes in the keys.
    pub(crate) fn after(self, keys: &Keys) -> Self {
        let is_unsure = keys.has_problems();
        Self {
            problems: RefCell::new(keys.problems()),
            is_unsure,
            ..self
        }
    }

    /// Is the tensor `name` there?
    pub(crate) fn has(&self, name: &str) -> bool {
        self.source.has(name)
    }

    /// The shape of the tensor `name`, if it is there.
    pub(crate) fn shape(&self, name: &str) -> Option<Vec<usize>> {
        self.source.shape(name)
    }

    /// The number of rows of the tensor `name`, if it is there.
    pub(crate) fn rows(&self, name: &str) -> Option<usize> {
        self.shape(name)?.first().copied()
    }

    /// The tensor `name`; zeros in its place, if it is missing or of another shape.
    ///
    /// # Errors
    /// Fails if the tensor is too large for memory.
    pub(crate) fn get(&self, name: &str, shape: &[usize]) -> Result<Tensor, LlmError> {
        match self.checked(name, shape, self.source.required(name, shape))? {
            Some(tensor) => Ok(tensor),
            None => {
                self.wrong(name, "missing");
                Ok(Tensor::zeros(shape, DType::F32)?)
            }
        }
    }

    /// The tensor `name`, if it is there; zeros in its place, if it is of another shape.
    ///
    /// # Errors
    /// The same errors as [`Self::get`].
    pub(crate) fn opt(&self, name: &str, shape: &[usize]) -> Result<Option<Tensor>, LlmError> {
        self.checked(name, shape, self.source.find(name, shape))
    }

    fn checked(
        &self,
        name: &str,
        shape: &[usize],
        found: Result<Option<Tensor>, LlmError>,
    ) -> Result<Option<Tensor>, LlmError> {
        self.read.borrow_mut().insert(name.to_owned());
        // Half of an unknown size is unknown, too.
        let is_unknown = self.is_unsure && shape.iter().any(|dim| *dim >= UNKNOWN / 2);
        match found {
            Err(LlmError::Weight { .. }) if is_unknown => {
                Ok(Some(Tensor::zeros(shape, DType::F32)?))
            }
            Err(LlmError::Weight { problem, .. }) => {
                self.wrong(name, problem);
                Ok(Some(Tensor::zeros(shape, DType::F32)?))
            }
            Ok(Some(tensor)) => {
                let mut found = self.found.borrow_mut();
                found.insert(name.to_owned(), shape.to_vec());
                Ok(Some(tensor))
            }
            found => found,
        }
    }

    /// The same as [`Self::get`], in `f32`: norms and biases, which files may hold in other floats.
    ///
    /// # Errors
    /// The same errors as [`Self::get`].
    pub(crate) fn f32(&self, name: &str, shape: &[usize]) -> Result<Tensor, LlmError> {
        self.floats(name, self.get(name, shape)?)
    }

    /// The same as [`Self::opt`], in `f32`.
    ///
    /// # Errors
    /// The same errors as [`Self::opt`].
    pub(crate) fn opt_f32(&self, name: &str, shape: &[usize]) -> Result<Option<Tensor>, LlmError> {
        let tensor = self.opt(name, shape)?;
        tensor.map(|tensor| self.floats(name, tensor)).transpose()
    }

    /// `tensor` in `f32`; zeros in its place, if it has blocks.
    fn floats(&self, name: &str, tensor: Tensor) -> Result<Tensor, LlmError> {
        match tensor.dtype() {
            dtype @ DType::Block(_) => {
                self.wrong(name, format!("expected floats, got {dtype}"));
                Ok(Tensor::zeros(tensor.shape(), DType::F32)?)
            }
            _ => as_f32(tensor),
        }
    }

    /// The additions of adapters to products with the weight `name`.
    pub(crate) fn low_rank(&self, name: &str) -> Vec<LowRank> {
        self.adaptable.borrow_mut().insert(name.to_owned());
        self.adapters.low_rank(name)
    }

    /// The vector added to the output of layer `index`: `f32` `[width]`.
    pub(crate) fn direction(&self, index: usize) -> Option<Tensor> {
        self.adapters.direction(index)
    }

    fn wrong(&self, name: &str, problem: impl ToString) {
        let problem = LlmError::weight(name, problem);
        self.problems.borrow_mut().push(problem);
    }

    /// Ends the loading of a model of this number of layers, which leaves tensors with these parts of names unread.
    /// Returns the tensors that the model reads, by name.
    ///
    /// # Errors
    /// Tensors are missing, of another shape or type, or read by nothing; an adapter changes a weight that has
    /// no products.
    pub(crate) fn finish(
        self,
        layers: usize,
        unread: &[&str],
    ) -> Result<Vec<TensorSpec>, LlmError> {
        for name in &self.source.names() {
            let name = name.as_str();
            // Layers beyond the model's own predict several tokens at once.
            let is_beyond = layer_of(name).is_some_and(|layer| layer >= layers);
            let mut known = MAY_BE_UNREAD.iter().chain(unread);
            let is_known = known.any(|part| name.contains(part));
            if !is_beyond && !is_known && !self.read.borrow().contains(name) {
                self.wrong(name, "not a tensor of this architecture");
            }
        }
        LlmError::of(self.problems.into_inner())?;
        let adaptable = self.adaptable.borrow();
        self.adapters
            .check_all_used(|name| adaptable.contains(name))?;
        let found = self.found.into_inner().into_iter();
        Ok(found
            .map(|(name, shape)| TensorSpec { name, shape })
            .collect())
    }
}

fn as_f32(tensor: Tensor) -> Result<Tensor, LlmError> {
    if tensor.dtype() == DType::F32 {
        return Ok(tensor);
    }
    let converted = tensor.to_dtype(DType::F32)?;
    converted.eval()?;
    Ok(converted)
}
