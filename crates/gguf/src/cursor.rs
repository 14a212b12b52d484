//! Reading the encoded parts of a file front to back, never past its end and never trusting a count.

use std::fmt::{self, Display, Formatter};

use crate::error::{GgufError, KeyProblem, quoted};
use crate::value::Number;
use crate::{Array, Value, ValueType};

/// A place in the bytes of a file. A [`Place`] names the bytes that are read, for the error in case the file
/// ends.
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

/// The name of the bytes in messages.
#[derive(Clone, Copy)]
pub(crate) enum Place<'a> {
    Header,
    Keys { count: u64 },
    Key { index: u64, count: u64 },
    Value { key: &'a str },
    Tensors { count: u64 },
    TensorName { index: u64, count: u64 },
    Tensor { name: &'a str },
}

impl Display for Place<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Place::Header => write!(f, "the header"),
            Place::Keys { count } => write!(f, "the list of {count} keys"),
            Place::Key { index, count } => write!(f, "key {} of {count}", index + 1),
            Place::Value { key } => write!(f, "the value of key {}", quoted(key)),
            Place::Tensors { count } => write!(f, "the list of {count} tensors"),
            Place::TensorName { index, count } => write!(f, "tensor {} of {count}", index + 1),
            Place::Tensor { name } => write!(f, "the description of tensor {}", quoted(name)),
        }
    }
}

impl<'a> Cursor<'a> {
    /// A cursor at byte `at`, which must not be beyond the end.
    pub(crate) fn new(bytes: &'a [u8], at: usize) -> Self {
        Cursor { bytes, at }
    }

    /// How far the cursor is from the beginning of the file.
    pub(crate) fn position(&self) -> usize {
        self.at
    }

    /// Fails unless `count` things of at least `least_bytes` each can still follow. Returns the count as a size that is
    /// safe to reserve memory for.
    pub(crate) fn expect_room(
        &self,
        count: u64,
        least_bytes: usize,
        place: Place<'_>,
    ) -> Result<usize, GgufError> {
        let left = (self.bytes.len() - self.at) as u64;
        let needed = count.saturating_mul(least_bytes as u64);
        if needed <= left {
            Ok(count as usize)
        } else {
            Err(GgufError::Truncated {
                place: place.to_string(),
                offset: self.at as u64,
                needed,
                left,
            })
        }
    }

    fn take(&mut self, len: u64, place: Place<'_>) -> Result<&'a [u8], GgufError> {
        let end = self.at + self.expect_room(len, 1, place)?;
        let taken = &self.bytes[self.at..end];
        self.at = end;
        Ok(taken)
    }

    /// The next number.
    pub(crate) fn number<T: Number>(&mut self, place: Place<'_>) -> Result<T, GgufError> {
        Ok(T::decode(self.take(size_of::<T>() as u64, place)?))
    }

    /// The next `count` numbers.
    pub(crate) fn numbers<T: Number>(
        &mut self,
        count: u64,
        place: Place<'_>,
    ) -> Result<Vec<T>, GgufError> {
        let bytes = self.take(count.saturating_mul(size_of::<T>() as u64), place)?;
        Ok(bytes.chunks_exact(size_of::<T>()).map(T::decode).collect())
    }

    /// The next string.
    fn string(&mut self, place: Place<'_>) -> Result<&'a [u8], GgufError> {
        let len = self.number(place)?;
        self.take(len, place)
    }

    /// The next string, which must be UTF-8 because it names something.
    pub(crate) fn name(&mut self, place: Place<'_>) -> Result<&'a str, GgufError> {
        let offset = self.at as u64;
        str::from_utf8(self.string(place)?).map_err(|_| GgufError::NameNotUtf8 {
            place: place.to_string(),
            offset,
        })
    }

    fn value_type(&mut self, key: &str) -> Result<ValueType, GgufError> {
        let offset = self.at as u64;
        let id = self.number(Place::Value { key })?;
        ValueType::from_id(id)
            .ok_or_else(|| GgufError::key(key, KeyProblem::UnknownType { id, offset }))
    }

    /// The next value, preceded by its type.
    pub(crate) fn value(&mut self, key: &str) -> Result<Value, GgufError> {
        let place = Place::Value { key };
        Ok(match self.value_type(key)? {
            ValueType::U8 => Value::U8(self.number(place)?),
            ValueType::I8 => Value::I8(self.number(place)?),
            ValueType::U16 => Value::U16(self.number(place)?),
            ValueType::I16 => Value::I16(self.number(place)?),
            ValueType::U32 => Value::U32(self.number(place)?),
            ValueType::I32 => Value::I32(self.number(place)?),
            ValueType::F32 => Value::F32(self.number(place)?),
            ValueType::Bool => Value::Bool(self.number::<u8>(place)? != 0),
            ValueType::String => match String::from_utf8(self.string(place)?.to_vec()) {
                Ok(text) => Value::String(text),
                Err(other) => Value::Bytes(other.into_bytes()),
            },
            ValueType::Array => Value::Array(self.array(key, 1)?),
            ValueType::U64 => Value::U64(self.number(place)?),
            ValueType::I64 => Value::I64(self.number(place)?),
            ValueType::F64 => Value::F64(self.number(place)?),
        })
    }

    fn array(&mut self, key: &str, depth: usize) -> Result<Array, GgufError> {
        if depth > Array::MAX_DEPTH {
            return Err(GgufError::key(
                key,
                KeyProblem::TooDeep {
                    limit: Array::MAX_DEPTH,
                },
            ));
        }
        let place = Place::Value { key };
        let ty = self.value_type(key)?;
        let count = self.number(place)?;
        let len = self.expect_room(count, ty.least_bytes(), place)?;
        Ok(match ty {
            ValueType::U8 => Array::U8(self.numbers(count, place)?),
            ValueType::I8 => Array::I8(self.numbers(count, place)?),
            ValueType::U16 => Array::U16(self.numbers(count, place)?),
            ValueType::I16 => Array::I16(self.numbers(count, place)?),
            ValueType::U32 => Array::U32(self.numbers(count, place)?),
            ValueType::I32 => Array::I32(self.numbers(count, place)?),
            ValueType::F32 => Array::F32(self.numbers(count, place)?),
            ValueType::Bool => Array::Bool(
                self.take(count, place)?
                    .iter()
                    .map(|&byte| byte != 0)
                    .collect(),
            ),
            ValueType::String => self.strings(len, place)?,
            ValueType::Array => {
                let mut arrays = Vec::with_capacity(len);
                for _ in 0..len {
                    arrays.push(self.array(key, depth + 1)?);
                }
                Array::Array(arrays)
            }
            ValueType::U64 => Array::U64(self.numbers(count, place)?),
            ValueType::I64 => Array::I64(self.numbers(count, place)?),
            ValueType::F64 => Array::F64(self.numbers(count, place)?),
        })
    }

    /// The next `len` strings, for which there must be room: as text if all are UTF-8, else as bytes.
    fn strings(&mut self, len: usize, place: Place<'_>) -> Result<Array, GgufError> {
        let start = self.at;
        let mut texts = Vec::with_capacity(len);
        for _ in 0..len {
            match str::from_utf8(self.string(place)?) {
                Ok(text) => texts.push(text.to_owned()),
                Err(_) => {
                    drop(texts);
                    self.at = start;
                    return self.byte_strings(len, place);
                }
            }
        }
        Ok(Array::String(texts))
    }

    fn byte_strings(&mut self, len: usize, place: Place<'_>) -> Result<Array, GgufError> {
        let mut strings = Vec::with_capacity(len);
        for _ in 0..len {
            strings.push(self.string(place)?.to_vec());
        }
        Ok(Array::Bytes(strings))
    }
}
