//! Named tensors.

use std::fmt;

use indexmap::IndexMap;
use rustorch_tensor::Tensor;

use crate::error::{FileError, FileResult};

/// Named tensors in order, with a file's metadata.
#[derive(Clone, Default)]
pub struct Tensors {
    /// Texts for the whole file: the `__metadata__` of a safetensors file, the texts among a GGUF
    /// file's keys.
    pub metadata: IndexMap<String, String>,
    tensors: IndexMap<String, Tensor>,
}

impl Tensors {
    /// The name of a tensor from a file that gives it none, such as one of `.npy`.
    pub const ONLY: &str = "tensor";

    /// An empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// The tensor of this name.
    ///
    /// # Errors
    /// Fails if no tensor has the name.
    pub fn get(&self, name: &str) -> FileResult<&Tensor> {
        self.opt(name).ok_or_else(|| FileError::Missing {
            name: name.to_owned(),
            present: first_of(self.names().map(rustorch_gguf::quoted)),
        })
    }

    /// The tensor of this name, if there is one.
    pub fn opt(&self, name: &str) -> Option<&Tensor> {
        self.tensors.get(name)
    }

    /// The only tensor, under any name.
    ///
    /// # Errors
    /// Fails unless the file holds exactly one tensor.
    pub fn only(&self) -> FileResult<&Tensor> {
        match self.tensors.first() {
            Some((_, tensor)) if self.len() == 1 => Ok(tensor),
            _ => self.get(Self::ONLY),
        }
    }

    /// Appends a tensor, or replaces and returns the one of this name.
    pub fn insert(&mut self, name: impl Into<String>, tensor: Tensor) -> Option<Tensor> {
        self.tensors.insert(name.into(), tensor)
    }

    /// Number of tensors.
    pub fn len(&self) -> usize {
        self.tensors.len()
    }

    /// Returns whether the data set is empty.
    pub fn is_empty(&self) -> bool {
        self.tensors.is_empty()
    }

    /// The names in their order.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// Renames the tensors by `rename`, and keeps the metadata. A tensor for which it returns
    /// `None` is left out.
    ///
    /// # Errors
    /// Fails for two tensors that get one name.
    pub fn rename(&self, mut rename: impl FnMut(&str) -> Option<String>) -> FileResult<Self> {
        let mut renamed: IndexMap<String, (&str, Tensor)> = IndexMap::new();
        for (old, tensor) in self.iter() {
            let Some(name) = rename(old) else {
                continue;
            };
            if let Some((first, _)) = renamed.insert(name.clone(), (old, tensor.clone())) {
                return Err(FileError::SameName {
                    name,
                    names: [first.to_owned(), old.to_owned()],
                });
            }
        }
        let tensors = renamed.into_iter();
        Ok(Self {
            metadata: self.metadata.clone(),
            tensors: tensors.map(|(name, (_, tensor))| (name, tensor)).collect(),
        })
    }

    /// Removes `prefix` from the names that begin with it: PyTorch's
    /// `consume_prefix_in_state_dict_if_present`.
    ///
    /// # Errors
    /// Fails for two tensors that get one name.
    pub fn strip_prefix(&self, prefix: &str) -> FileResult<Self> {
        self.rename(|name| Some(name.strip_prefix(prefix).unwrap_or(name).to_owned()))
    }

    /// Adds `prefix` to each name.
    #[must_use]
    pub fn add_prefix(&self, prefix: &str) -> Self {
        self.each_by(|name| Some(format!("{prefix}{name}")))
    }

    /// The tensors whose names begin with `prefix`, without it: `"encoder."` selects a part of a
    /// model's state.
    #[must_use]
    pub fn under(&self, prefix: &str) -> Self {
        self.each_by(|name| name.strip_prefix(prefix).map(str::to_owned))
    }

    /// The tensors by other names, which differ.
    fn each_by(&self, name: impl Fn(&str) -> Option<String>) -> Self {
        let named = self.iter();
        let named = named.filter_map(|(old, tensor)| Some((name(old)?, tensor.clone())));
        Self {
            metadata: self.metadata.clone(),
            tensors: named.collect(),
        }
    }

    /// Names and tensors in their order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Tensor)> {
        (self.tensors.iter()).map(|(name, tensor)| (name.as_str(), tensor))
    }
}

/// The first of some names, for an error.
pub(crate) fn first_of(names: impl ExactSizeIterator<Item = String>) -> String {
    const SHOWN: usize = 8;
    let more = names.len().saturating_sub(SHOWN);
    let mut shown: Vec<String> = names.take(SHOWN).collect();
    if more > 0 {
        shown.push(format!("{more} more"));
    }
    match shown.is_empty() {
        true => "none".to_owned(),
        false => shown.join(", "),
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
