//! Where something is in a file's value.

use std::fmt;

/// The keys that lead to a part of a value. It is written with points between them: `model.fc.weight`, `states.0`.
/// Texts are where the value has them, since a small file may have a long key often.
#[derive(Clone, Copy)]
pub(super) enum Place<'a> {
    /// The value itself.
    Whole,
    /// What a key of a dictionary leads to.
    Key(&'a Place<'a>, &'a str),
    /// What a number leads to, as a key or as a place in a list.
    At(&'a Place<'a>, i128),
    /// What a key leads to that is neither.
    Other(&'a Place<'a>),
}

impl Place<'_> {
    fn outer(&self) -> Option<&Self> {
        match self {
            Self::Whole => None,
            Self::Key(outer, _) | Self::At(outer, _) | Self::Other(outer) => Some(outer),
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
