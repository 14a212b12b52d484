//! Metadata: a model's keys and values, as an ordered map with typed access.

use std::borrow::Cow;
use std::sync::Arc;

use indexmap::IndexMap;

use crate::{Array, GgufError, Value};

/// The key-value pairs of a GGUF file, in the file's order.
///
/// Cloning is cheap: clones share the entries until one of them is changed.
///
/// The typed getters ([`u32`](Self::u32), [`str`](Self::str), …) fail with an error that names the key, the
/// requested type, and the found one. Their `opt_` twins return `None` for a missing key. Integers of any
/// width are accepted if their value fits.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metadata {
    entries: Arc<IndexMap<String, Value>>,
}

/// A type of metadata values.
pub trait FromValue<'a>: Sized {
    /// The type's name in error messages.
    const EXPECTED: &'static str;

    /// The value as this type, or `None` if it does not fit.
    fn from_value(value: &'a Value) -> Option<Self>;
}

macro_rules! typed_getters {
    ($($(#[$doc:meta])* $name:ident, $opt_name:ident -> $ty:ty;)*) => {
        /// Shorthands for [`Metadata::get_as`] and [`Metadata::opt_as`].
        impl Metadata {
            $(
                $(#[$doc])*
                pub fn $name(&self, key: &str) -> Result<$ty, GgufError> {
                    self.get_as(key)
                }

                $(#[$doc])*
                /// `None` if the key is not there.
                pub fn $opt_name(&self, key: &str) -> Result<Option<$ty>, GgufError> {
                    self.opt_as(key)
                }
            )*
        }
    };
}

typed_getters! {
    /// The integer at `key`.
    u32, opt_u32 -> u32;
    /// The integer at `key`.
    u64, opt_u64 -> u64;
    /// The float at `key`.
    f32, opt_f32 -> f32;
    /// The truth value at `key`.
    bool, opt_bool -> bool;
    /// The text at `key`.
    str, opt_str -> &str;
    /// The texts at `key`.
    str_array, opt_str_array -> &[String];
    /// The floats at `key`.
    f32_array, opt_f32_array -> &[f32];
    /// The integers at `key`, borrowed if the file has them as 32-bit signed integers.
    i32_array, opt_i32_array -> Cow<'_, [i32]>;
}

impl Metadata {
    /// No entries.
    pub fn new() -> Self {
        Self::default()
    }

    /// No entries yet, with room for `count`.
    pub(crate) fn with_capacity(count: usize) -> Self {
        Metadata {
            entries: Arc::new(IndexMap::with_capacity(count)),
        }
    }

    /// The value at `key`, whatever its type.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.entries.get(key)
    }

    /// The value at `key` as a `T`.
    pub fn get_as<'a, T: FromValue<'a>>(&'a self, key: &str) -> Result<T, GgufError> {
        self.opt_as(key)?.ok_or_else(|| GgufError::Missing {
            key: key.to_owned(),
            expected: T::EXPECTED,
        })
    }

    /// The value at `key` as a `T`, or `None` if the key is not there.
    pub fn opt_as<'a, T: FromValue<'a>>(&'a self, key: &str) -> Result<Option<T>, GgufError> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        match T::from_value(value) {
            Some(fitting) => Ok(Some(fitting)),
            None => Err(GgufError::WrongType {
                key: key.to_owned(),
                expected: T::EXPECTED,
                found: value.describe(),
            }),
        }
    }

    /// The text at `key` for display: bytes that are not UTF-8 become U+FFFD. `None` if there is no
    /// text.
    pub fn display(&self, key: &str) -> Option<Cow<'_, str>> {
        match self.get(key)? {
            Value::String(text) => Some(Cow::Borrowed(text)),
            Value::Bytes(bytes) => Some(String::from_utf8_lossy(bytes)),
            _ => None,
        }
    }

    /// Sets the value at `key`: in its old position, or at the end. Returns the old value.
    pub fn insert(&mut self, key: impl Into<String>, value: impl Into<Value>) -> Option<Value> {
        Arc::make_mut(&mut self.entries).insert(key.into(), value.into())
    }

    /// Removes the value at `key`; the others keep their order.
    pub fn remove(&mut self, key: &str) -> Option<Value> {
        Arc::make_mut(&mut self.entries).shift_remove(key)
    }

    /// The entries in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Value)> {
        self.entries
            .iter()
            .map(|(key, value)| (key.as_str(), value))
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

macro_rules! integers_from_value {
    ($($ty:ident)*) => {$(
        impl FromValue<'_> for $ty {
            const EXPECTED: &'static str = stringify!($ty);

            fn from_value(value: &Value) -> Option<Self> {
                value.as_integer()?.try_into().ok()
            }
        }
    )*};
}
integers_from_value! { u8 i8 u16 i16 u32 i32 u64 i64 usize }

impl FromValue<'_> for f32 {
    const EXPECTED: &'static str = "f32";

    fn from_value(value: &Value) -> Option<Self> {
        match *value {
            Value::F32(value) => Some(value),
            Value::F64(value) => Some(value as f32),
            _ => None,
        }
    }
}

impl FromValue<'_> for f64 {
    const EXPECTED: &'static str = "f64";

    fn from_value(value: &Value) -> Option<Self> {
        match *value {
            Value::F32(value) => Some(value.into()),
            Value::F64(value) => Some(value),
            _ => None,
        }
    }
}

impl FromValue<'_> for bool {
    const EXPECTED: &'static str = "bool";

    fn from_value(value: &Value) -> Option<Self> {
        match *value {
            Value::Bool(value) => Some(value),
            _ => None,
        }
    }
}

impl<'a> FromValue<'a> for &'a str {
    const EXPECTED: &'static str = "string";

    fn from_value(value: &'a Value) -> Option<Self> {
        match value {
            Value::String(text) => Some(text),
            _ => None,
        }
    }
}

impl<'a> FromValue<'a> for &'a [String] {
    const EXPECTED: &'static str = "array of string";

    fn from_value(value: &'a Value) -> Option<Self> {
        match value {
            Value::Array(Array::String(texts)) => Some(texts),
            _ => None,
        }
    }
}

impl<'a> FromValue<'a> for &'a [f32] {
    const EXPECTED: &'static str = "array of f32";

    fn from_value(value: &'a Value) -> Option<Self> {
        match value {
            Value::Array(Array::F32(values)) => Some(values),
            _ => None,
        }
    }
}

impl<'a> FromValue<'a> for Cow<'a, [i32]> {
    const EXPECTED: &'static str = "array of i32";

    fn from_value(value: &'a Value) -> Option<Self> {
        fn fitting<T: Copy + TryInto<i32>>(values: &[T]) -> Option<Cow<'static, [i32]>> {
            let all: Option<Vec<i32>> = values.iter().map(|&value| value.try_into().ok()).collect();
            all.map(Cow::Owned)
        }
        let Value::Array(array) = value else {
            return None;
        };
        match array {
            Array::I32(values) => Some(Cow::Borrowed(values)),
            Array::U8(values) => fitting(values),
            Array::I8(values) => fitting(values),
            Array::U16(values) => fitting(values),
            Array::I16(values) => fitting(values),
            Array::U32(values) => fitting(values),
            Array::U64(values) => fitting(values),
            Array::I64(values) => fitting(values),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Metadata {
        let mut metadata = Metadata::new();
        metadata.insert("name", "Alice");
        metadata.insert("blocks", 12u64);
        metadata.insert("offset", -1i8);
        metadata.insert("scale", 0.5f64);
        metadata.insert("tokens", vec!["a".to_owned(), "b".to_owned()]);
        metadata.insert("kinds", vec![1u8, 6]);
        metadata.insert("flags", vec![-3i32]);
        metadata.insert("raw", Value::Bytes(vec![0xff]));
        metadata
    }

    #[test]
    fn integers_of_any_width_are_read_where_they_fit() -> Result<(), GgufError> {
        let metadata = sample();
        assert_eq!(metadata.u32("blocks")?, 12);
        assert_eq!(metadata.u64("blocks")?, 12);
        assert_eq!(metadata.get_as::<usize>("blocks")?, 12);
        assert_eq!(metadata.get_as::<i64>("offset")?, -1);
        assert_eq!(*metadata.i32_array("kinds")?, [1, 6]);
        assert!(matches!(metadata.i32_array("flags")?, Cow::Borrowed([-3])));
        assert_eq!(metadata.f32("scale")?, 0.5);
        assert_eq!(metadata.str_array("tokens")?.len(), 2);
        Ok(())
    }

    #[test]
    fn a_missing_key_is_named_with_its_type() {
        let metadata = sample();
        let error = metadata.u32("depth").unwrap_err().to_string();
        assert!(error.starts_with("key `depth` (u32) is missing"), "{error}");
        assert_eq!(metadata.opt_u32("depth").unwrap(), None);
        assert_eq!(metadata.opt_str("name").unwrap(), Some("Alice"));
    }

    #[test]
    fn a_value_that_does_not_fit_is_named_with_both_types() {
        let metadata = sample();
        let cases = [
            (
                metadata.u32("offset").unwrap_err(),
                "key `offset` must be u32 but is i8 -1",
            ),
            (
                metadata.opt_bool("name").unwrap_err(),
                "key `name` must be bool but is string \"Alice\"",
            ),
            (
                metadata.f32_array("tokens").unwrap_err(),
                "key `tokens` must be array of f32 but is an array of 2 string",
            ),
            (
                metadata.str("raw").unwrap_err(),
                "key `raw` must be string but is string \"\u{fffd}\", which is not UTF-8",
            ),
        ];
        for (error, expected) in cases {
            assert!(error.to_string().starts_with(expected), "{error}");
        }
    }

    #[test]
    fn order_is_kept_and_clones_are_independent() {
        let mut metadata = sample();
        let before = metadata.clone();
        assert_eq!(metadata.insert("blocks", 3u32), Some(Value::U64(12)));
        assert_eq!(metadata.remove("name"), Some(Value::from("Alice")));
        let keys: Vec<_> = metadata.iter().map(|(key, _)| key).collect();
        assert_eq!(
            keys,
            [
                "blocks", "offset", "scale", "tokens", "kinds", "flags", "raw"
            ]
        );
        assert_eq!(before, sample());
    }
}
