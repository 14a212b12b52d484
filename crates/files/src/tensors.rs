//! Tensors by their names.

use std::fmt;

use indexmap::IndexMap;
use rustorch_tensor::Tensor;

use crate::error::{FileError, FileResult};

/// Tensors by their names, in an order, with what a file says besides.
#[derive(Clone, Default)]
pub struct Tensors {
    /// Texts that belong to all of them: the `__metadata__` of a safetensors file, the texts among a GGUF file's keys.
    pub metadata: IndexMap<String, String>,
    tensors: IndexMap<String, Tensor>,
}

impl Tensors {
    /// The name of a tensor from a file that gives it none, such as one of `.npy`.
    pub const ONLY: &str = "tensor";

    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The tensor of this name.
    ///
    /// # Errors
    /// There is none.
    pub fn get(&self, name: &str) -> FileResult<&Tensor> {
        self.opt(name).ok_or_else(|| FileError::Missing {
            name: name.to_owned(),
            present: self.present(),
        })
    }

    /// The tensor of this name, if there is one.
    pub fn opt(&self, name: &str) -> Option<&Tensor> {
        self.tensors.get(name)
    }

    /// The only tensor, whatever its name.
    ///
    /// # Errors
    /// There are several, or none.
    pub fn only(&self) -> FileResult<&Tensor> {
        match self.tensors.first() {
            Some((_, tensor)) if self.len() == 1 => Ok(tensor),
            _ => self.get(Self::ONLY),
        }
    }

    /// The first names, for an error.
    fn present(&self) -> String {
        const SHOWN: usize = 8;
        let mut names: Vec<String> = (self.names().take(SHOWN))
            .map(rustorch_gguf::quoted)
            .collect();
        if self.len() > SHOWN {
            names.push(format!("{} more", self.len() - SHOWN));
        }
        match names.is_empty() {
            true => "none".to_owned(),
            false => names.join(", "),
        }
    }

    /// Puts a tensor at the end, or in the place of the one that has its name, which is returned.
    pub fn insert(&mut self, name: impl Into<String>, tensor: Tensor) -> Option<Tensor> {
        self.tensors.insert(name.into(), tensor)
    }

    /// Number of tensors.
    pub fn len(&self) -> usize {
        self.tensors.len()
    }

    /// Are there none?
    pub fn is_empty(&self) -> bool {
        self.tensors.is_empty()
    }

    /// The names in their order.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// Names and tensors in their order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Tensor)> {
        (self.tensors.iter()).map(|(name, tensor)| (name.as_str(), tensor))
    }
}

impl IntoIterator for Tensors {
    type Item = (String, Tensor);
    type IntoIter = indexmap::map::IntoIter<String, Tensor>;

    fn into_iter(self) -> Self::IntoIter {
        self.tensors.into_iter()
    }
}

impl<N: Into<String>> FromIterator<(N, Tensor)> for Tensors {
    fn from_iter<I: IntoIterator<Item = (N, Tensor)>>(tensors: I) -> Self {
        let named = tensors.into_iter().map(|(name, t)| (name.into(), t));
        Self {
            metadata: IndexMap::new(),
            tensors: named.collect(),
        }
    }
}

/// A tensor alone, by the name [`Tensors::ONLY`].
impl From<Tensor> for Tensors {
    fn from(tensor: Tensor) -> Self {
        Self::from_iter([(Self::ONLY, tensor)])
    }
}

/// Names, dtypes and shapes; nothing is computed.
impl fmt::Debug for Tensors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tensors = self.iter().map(|(name, t)| {
            let ty = format!("{}{:?}", t.dtype(), t.shape());
            (name, ty)
        });
        f.debug_map().entries(tensors).finish()
    }
}
