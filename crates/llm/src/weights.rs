//! Weights by their GGUF names.

use std::cell::RefCell;
use std::collections::BTreeSet;

use rustorch_gguf::Gguf;
use rustorch_ir::DType;
use rustorch_ir::ops::RopeLayout;
use rustorch_tensor::Tensor;

use crate::LlmError;
use crate::adapters::{Adapters, LowRank};
use crate::config::Config;
use crate::file_tensor::file_tensor;
use crate::rotary::RopeOptions;

/// The tensors of a file, used where they lie, and what changes the model that they are.
pub struct Weights {
    gguf: Gguf,
    rope: RopeOptions,
    adapters: Adapters,
    /// Names of weights of which additions were asked for.
    adaptable: RefCell<BTreeSet<String>>,
}

impl Weights {
    /// The tensors of `gguf`.
    pub fn new(gguf: Gguf) -> Self {
        Self::changed(gguf, RopeOptions::default(), Adapters::default())
    }

    /// The tensors of `gguf`, for a model that is changed so.
    pub(crate) fn changed(gguf: Gguf, rope: RopeOptions, adapters: Adapters) -> Self {
        Self {
            gguf,
            rope,
            adapters,
            adaptable: RefCell::default(),
        }
    }

    /// The hyper-parameters of the file, whose architecture this is.
    pub(crate) fn config(
        &self,
        architecture: &str,
        layout: RopeLayout,
    ) -> Result<Config, LlmError> {
        Config::from_gguf(&self.gguf, architecture, layout, &self.rope)
    }

    /// What adapters add to the products with the weight `name`.
    pub(crate) fn low_rank(&self, name: &str) -> Vec<LowRank> {
        self.adaptable.borrow_mut().insert(name.to_owned());
        self.adapters.low_rank(name)
    }

    /// Fails if an adapter changes a weight of which [`Self::low_rank`] was never asked.
    pub(crate) fn check_adapters(&self) -> Result<(), LlmError> {
        let adaptable = self.adaptable.borrow();
        self.adapters
            .check_all_used(|name| adaptable.contains(name))
    }

    /// What is added behind layer `index`: `f32` `[width]`.
    pub(crate) fn direction(&self, index: usize) -> Option<Tensor> {
        self.adapters.direction(index)
    }

    /// The file.
    pub fn gguf(&self) -> &Gguf {
        &self.gguf
    }

    /// The tensor `name`, which has to have this shape (slowest dimension first).
    ///
    /// # Errors
    /// It is missing, of another shape, or of a type that is not supported.
    pub fn get(&self, name: &str, shape: &[usize]) -> Result<Tensor, LlmError> {
        let found = self.opt(name, shape)?;
        found.ok_or_else(|| wrong(name, "missing"))
    }

    /// The tensor `name`, if the file has it.
    ///
    /// # Errors
    /// As [`Self::get`], but for a missing tensor.
    pub fn opt(&self, name: &str, shape: &[usize]) -> Result<Option<Tensor>, LlmError> {
        let Some(info) = self.gguf.tensor(name) else {
            return Ok(None);
        };
        if info.shape() != shape {
            return Err(wrong(
                name,
                format!("expected shape {shape:?}, got {:?}", info.shape()),
            ));
        }
        file_tensor(&self.gguf, info).map(Some)
    }

    /// As [`Self::get`], in `f32`: norms and biases, which files may hold in other floats.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub fn f32(&self, name: &str, shape: &[usize]) -> Result<Tensor, LlmError> {
        as_f32(self.get(name, shape)?)
    }

    /// As [`Self::opt`], in `f32`.
    ///
    /// # Errors
    /// As [`Self::opt`].
    pub fn opt_f32(&self, name: &str, shape: &[usize]) -> Result<Option<Tensor>, LlmError> {
        self.opt(name, shape)?.map(as_f32).transpose()
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

fn wrong(name: &str, problem: impl ToString) -> LlmError {
    LlmError::Weight {
        name: name.to_owned(),
        problem: problem.to_string(),
    }
}
