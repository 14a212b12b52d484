//! PyTorch's files, `.pt` and `.pth`, as `torch.save` writes them.
//!
//! Source: `torch/serialization.py` and `torch/_utils.py` of PyTorch 2.15. Since PyTorch 1.6 a file is a zip archive
//! of a pickle (`data.pkl`) and the bytes of each storage (`data/KEY`), stored and aligned; before, it was several
//! pickles and then the storages. Both are read. Nothing of the pickle is run: what it may name is a closed list, and
//! any other name is an error.

mod place;
mod reading;
mod writing;

use std::path::Path;

use rustorch_gguf::quoted;
use rustorch_macros::track_calls;
use rustorch_tensor::Tensor;

use crate::error::{FileError, FileResult};
use crate::source::Source;
use crate::tensors::Tensors;

use place::Place;

pub use writing::{save, write};

/// Which pickle the older format begins with: the number 0x1950a86a20f9469cfc6c, of protocol 2.
pub(crate) const LEGACY_MAGIC: &[u8] = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.";

/// What a file holds.
#[derive(Clone, Debug)]
pub enum Value {
    /// `None`.
    None,
    /// A truth value.
    Bool(bool),
    /// An integer.
    Int(i128),
    /// A number.
    Float(f64),
    /// A text.
    Text(String),
    /// A tensor, or a parameter. Those that share a storage in the file share memory.
    Tensor(Tensor),
    /// A list.
    List(Vec<Value>),
    /// A tuple.
    Tuple(Vec<Value>),
    /// A dictionary in its order, ordered or not.
    Dict(Vec<(Value, Value)>),
}

impl Value {
    /// The tensors in it, by the keys and places that lead to them, with points between: `model.fc.weight`, or
    /// `states.0`. Whatever else is there is left out. A tensor alone is [`Tensors::ONLY`].
    ///
    /// # Errors
    /// Two that get the same name; one that a key leads to which is neither a text nor a number.
    pub fn tensors(&self) -> FileResult<Tensors> {
        let mut tensors = Tensors::new();
        match self {
            Self::Tensor(tensor) => drop(tensors.insert(Tensors::ONLY, tensor.clone())),
            value => value.collect(Place::Whole, &mut tensors)?,
        }
        Ok(tensors)
    }

    fn collect(&self, place: Place<'_>, tensors: &mut Tensors) -> FileResult<()> {
        match self {
            Self::Tensor(tensor) => match tensors.insert(place.to_string(), tensor.clone()) {
                None => Ok(()),
                Some(_) => {
                    let name = quoted(&place.to_string());
                    let problem = format!("two tensors get the name {name}");
                    Err(FileError::damaged("the state", problem))
                }
            },
            Self::List(list) | Self::Tuple(list) => {
                let mut numbered = (0..).zip(list);
                numbered.try_for_each(|(at, value)| value.collect(Place::At(&place, at), tensors))
            }
            Self::Dict(entries) => entries.iter().try_for_each(|(key, value)| match key {
                Self::Text(key) => value.collect(Place::Key(&place, key), tensors),
                Self::Int(key) => value.collect(Place::At(&place, *key), tensors),
                _ if !value.has_tensors() => Ok(()),
                _ => {
                    let found = format!("a key of another kind in {}", quoted(&place.to_string()));
                    let advice = "use pt::load_value, which keeps all keys";
                    Err(FileError::unsupported("the state", found, advice))
                }
            }),
            _ => Ok(()),
        }
    }

    fn has_tensors(&self) -> bool {
        match self {
            Self::Tensor(_) => true,
            Self::List(list) | Self::Tuple(list) => list.iter().any(Self::has_tensors),
            Self::Dict(entries) => entries.iter().any(|(_, value)| value.has_tensors()),
            _ => false,
        }
    }
}

/// Reads the tensors of a file, such as a module's `state_dict()`, by [`Value::tensors`]. They are where the file is
/// mapped, with the strides that they were saved with.
///
/// # Errors
/// The file cannot be read, is not as the format wants it, or has other than tensors and plain data in it.
#[track_calls(pt)]
pub fn load(path: impl AsRef<Path>) -> FileResult<Tensors> {
    crate::source::reading(path.as_ref(), read)
}

/// [`load`] of bytes.
///
/// # Errors
/// As [`load`].
#[track_calls(pt)]
pub fn read(source: &Source) -> FileResult<Tensors> {
    read_value(source)?.tensors()
}

/// Reads all that a file holds.
///
/// # Errors
/// As [`load`].
#[track_calls(pt)]
pub fn load_value(path: impl AsRef<Path>) -> FileResult<Value> {
    crate::source::reading(path.as_ref(), read_value)
}

/// [`load_value`] of bytes.
///
/// # Errors
/// As [`load`].
#[track_calls(pt)]
pub fn read_value(source: &Source) -> FileResult<Value> {
    match source.starts_with(LEGACY_MAGIC) {
        true => reading::legacy(source),
        false => reading::archive(source),
    }
}
