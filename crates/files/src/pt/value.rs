//! Values of a file, and access to their parts.

use std::fmt;
use std::ops::Index;

use rustorch_gguf::quoted;
use rustorch_tensor::Tensor;

use super::place::Place;
use crate::error::{FileError, FileResult};
use crate::tensors::{Tensors, first_of};

/// The content of a file.
#[derive(Clone, Debug)]
pub enum Value {
    /// `None`.
    None,
    /// A boolean.
    Bool(bool),
    /// An integer.
    Int(i128),
    /// A number.
    Float(f64),
    /// A text; also a dtype and a device, as Python prints them: `torch.float32`, `cuda:0`.
    Text(String),
    /// A tensor, or a parameter. Tensors that share a storage in the file share memory.
    Tensor(Tensor),
    /// A list; also a set.
    List(Vec<Value>),
    /// A tuple.
    Tuple(Vec<Value>),
    /// A dictionary in its order, ordered or not.
    Dict(Vec<(Value, Value)>),
}

impl Value {
    /// A dictionary of texts.
    pub fn dict<K: Into<String>, V: Into<Self>>(entries: impl IntoIterator<Item = (K, V)>) -> Self {
        let entries = entries.into_iter();
        Self::Dict(
            entries
                .map(|(key, value)| (Self::Text(key.into()), value.into()))
                .collect(),
        )
    }

    /// The value at a key: a text or a number for a dictionary, an index for a list or tuple.
    /// Negative indices count from the end.
    pub fn opt<'a>(&self, key: impl Into<Key<'a>>) -> Option<&Self> {
        self.find(key.into())
    }

    fn find(&self, key: Key<'_>) -> Option<&Self> {
        match (self, key) {
            (Self::Dict(entries), key) => {
                let mut entries = entries.iter();
                entries.find_map(|(other, value)| key.is(other).then_some(value))
            }
            (Self::List(list) | Self::Tuple(list), Key::Number(at)) => {
                let from = if at < 0 { list.len() as i128 } else { 0 };
                list.get(usize::try_from(from + at).ok()?)
            }
            _ => None,
        }
    }

    /// The value of a key or an index.
    ///
    /// # Errors
    /// Fails if there is no value at the key. The error names the keys that exist.
    pub fn get<'a>(&self, key: impl Into<Key<'a>>) -> FileResult<&Self> {
        let key = key.into();
        self.find(key).ok_or_else(|| FileError::NoKey {
            key: key.to_string(),
            place: self.kind(),
            present: match self {
                Self::Dict(entries) => first_of(entries.iter().map(|(key, _)| key.as_key())),
                Self::List(list) | Self::Tuple(list) => format!("{} values", list.len()),
                _ => "no keys".to_owned(),
            },
        })
    }

    /// Returns whether it is `None`.
    pub fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }

    /// A boolean.
    ///
    /// # Errors
    /// Fails for a value of another kind.
    pub fn as_bool(&self) -> FileResult<bool> {
        match self {
            Self::Bool(value) => Ok(*value),
            _ => Err(self.other_than("a truth value")),
        }
    }

    /// An integer.
    ///
    /// # Errors
    /// Fails for a value of another kind, or an integer of more than 64 bits.
    pub fn as_int(&self) -> FileResult<i64> {
        match self {
            Self::Int(n) => i64::try_from(*n).map_err(|_| FileError::OtherKind {
                expected: "an integer of 64 bits",
                found: n.to_string(),
            }),
            _ => Err(self.other_than("an integer")),
        }
    }

    /// A number as a float, also if it was saved as an integer.
    ///
    /// # Errors
    /// Fails for a value of another kind.
    pub fn as_float(&self) -> FileResult<f64> {
        match self {
            Self::Float(n) => Ok(*n),
            Self::Int(n) => Ok(*n as f64),
            _ => Err(self.other_than("a number")),
        }
    }

    /// A text.
    ///
    /// # Errors
    /// Fails for a value of another kind.
    pub fn as_text(&self) -> FileResult<&str> {
        match self {
            Self::Text(text) => Ok(text),
            _ => Err(self.other_than("a text")),
        }
    }

    /// A tensor.
    ///
    /// # Errors
    /// Fails for a value of another kind.
    pub fn as_tensor(&self) -> FileResult<&Tensor> {
        match self {
            Self::Tensor(tensor) => Ok(tensor),
            _ => Err(self.other_than("a tensor")),
        }
    }

    /// The values of a list or a tuple.
    ///
    /// # Errors
    /// Fails for a value of another kind.
    pub fn as_list(&self) -> FileResult<&[Self]> {
        match self {
            Self::List(list) | Self::Tuple(list) => Ok(list),
            _ => Err(self.other_than("a list or a tuple")),
        }
    }

    /// The keys and values of a dictionary, in their order.
    ///
    /// # Errors
    /// Fails for a value of another kind.
    pub fn as_dict(&self) -> FileResult<&[(Self, Self)]> {
        match self {
            Self::Dict(entries) => Ok(entries),
            _ => Err(self.other_than("a dictionary")),
        }
    }

    fn other_than(&self, expected: &'static str) -> FileError {
        let found = match self {
            Self::None => "None, or no such key (get lists the keys)".to_owned(),
            other => other.kind().to_owned(),
        };
        FileError::OtherKind { expected, found }
    }

    /// Its kind, for an error.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::None => "None",
            Self::Bool(_) => "a truth value",
            Self::Int(_) => "an integer",
            Self::Float(_) => "a number",
            Self::Text(_) => "a text",
            Self::Tensor(_) => "a tensor",
            Self::List(_) => "a list",
            Self::Tuple(_) => "a tuple",
            Self::Dict(_) => "a dictionary",
        }
    }

    /// The value as a key of an error message.
    fn as_key(&self) -> String {
        match self {
            Self::Text(text) => Key::Text(text).to_string(),
            Self::Int(number) => Key::Number(*number).to_string(),
            other => other.kind().to_owned(),
        }
    }

    /// The tensors in it, named by their keys and indices with points between: `model.fc.weight`,
    /// or `states.0`. Other values are left out. A single tensor is called [`Tensors::ONLY`].
    ///
    /// # Errors
    /// Fails for a value that holds none, such as a number. Also fails if two tensors get the same
    /// name. Also fails for a tensor below a key that is neither a text nor a number.
    pub fn tensors(&self) -> FileResult<Tensors> {
        let mut tensors = Tensors::new();
        match self {
            Self::Tensor(tensor) => drop(tensors.insert(Tensors::ONLY, tensor.clone())),
            value @ (Self::Dict(_) | Self::List(_) | Self::Tuple(_)) => {
                value.collect(Place::Whole, &mut tensors)?;
            }
            other => return Err(other.other_than("tensors by name")),
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

/// A key of a part of a [`Value`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Key<'a> {
    /// A key of a dictionary.
    Text(&'a str),
    /// A key of a dictionary, such as an optimiser's `state`, or an index of a list or tuple.
    Number(i128),
}

impl Key<'_> {
    fn is(self, key: &Value) -> bool {
        match (self, key) {
            (Self::Text(text), Value::Text(key)) => text == key,
            (Self::Number(number), Value::Int(key)) => number == *key,
            _ => false,
        }
    }
}

impl fmt::Display for Key<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(&quoted(text)),
            Self::Number(number) => write!(f, "{number}"),
        }
    }
}

impl<'a> From<&'a str> for Key<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(text)
    }
}

impl<'a> From<&'a String> for Key<'a> {
    fn from(text: &'a String) -> Self {
        Self::Text(text)
    }
}

/// The value that a key leads to; [`Value::None`] where it leads to nothing. [`Value::get`] gives an error there.
impl<'a, K: Into<Key<'a>>> Index<K> for Value {
    type Output = Self;

    fn index(&self, key: K) -> &Self {
        self.opt(key).unwrap_or(&Self::None)
    }
}

macro_rules! numbers {
    ($($Number:ty),*) => {
        $(impl From<$Number> for Key<'_> {
            fn from(number: $Number) -> Self {
                Self::Number(number as i128)
            }
        }

        impl From<$Number> for Value {
            fn from(number: $Number) -> Self {
                Self::Int(number as i128)
            }
        })*
    };
}

numbers!(i32, i64, u32, u64, usize);

macro_rules! values {
    ($($Type:ty => $Kind:ident;)*) => {
        $(impl From<$Type> for Value {
            fn from(value: $Type) -> Self {
                Self::$Kind(value.into())
            }
        })*
    };
}

values! {
    bool => Bool;
    f32 => Float;
    f64 => Float;
    &str => Text;
    String => Text;
    Tensor => Tensor;
    Vec<Value> => List;
}

/// A dictionary of the names.
impl From<Tensors> for Value {
    fn from(tensors: Tensors) -> Self {
        Self::dict(tensors)
    }
}

impl From<&Tensors> for Value {
    fn from(tensors: &Tensors) -> Self {
        tensors.clone().into()
    }
}

/// The value that is there, or `None`.
impl<V: Into<Self>> From<Option<V>> for Value {
    fn from(value: Option<V>) -> Self {
        value.map_or(Self::None, Into::into)
    }
}
