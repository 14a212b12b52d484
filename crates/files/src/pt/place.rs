//! Keys and indices within a file's value.

use std::fmt;

use rustorch_gguf::quoted;

use super::Value;

/// The keys that lead to a part of a value. It is written with points between them: `model.fc.weight`, `states.0`.
/// Texts are where the value has them, since a small file may have a long key often.
#[derive(Clone, Copy)]
pub(super) enum Place<'a> {
    /// The value itself.
    Whole,
    /// The value of a dictionary's key.
    Key(&'a Place<'a>, &'a str),
    /// The value of a number, as a key or as an index of a list.
    At(&'a Place<'a>, i128),
    /// The value of any other key.
    Other(&'a Place<'a>),
}

impl Place<'_> {
    fn outer(&self) -> Option<&Self> {
        match self {
            Self::Whole => None,
            Self::Key(outer, _) | Self::At(outer, _) | Self::Other(outer) => Some(outer),
        }
    }

    /// The place that a key of a dictionary leads to.
    pub(super) fn inside<'b>(&'b self, key: &'b Value) -> Place<'b> {
        match key {
            Value::Text(key) => Place::Key(self, key),
            Value::Int(key) => Place::At(self, *key),
            _ => Place::Other(self),
        }
    }

    /// The place in an error.
    pub(super) fn shown(&self) -> String {
        match self {
            Self::Whole => "the value".to_owned(),
            place => format!("the value at {}", quoted(&place.to_string())),
        }
    }

    /// About how many bytes the name has.
    pub(super) fn bytes(&self) -> usize {
        const NUMBER: usize = 4;
        let mut bytes = 0;
        let mut place = self;
        while let Some(outer) = place.outer() {
            bytes += match place {
                Self::Key(_, key) => key.len() + 1,
                _ => NUMBER,
            };
            place = outer;
        }
        bytes
    }
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(outer) = self.outer() {
            outer.fmt(f)?;
            if outer.outer().is_some() {
                f.write_str(".")?;
            }
        }
        match self {
            Self::Whole => Ok(()),
            Self::Key(_, key) => f.write_str(key),
            Self::At(_, at) => write!(f, "{at}"),
            Self::Other(_) => f.write_str("…"),
        }
    }
}
