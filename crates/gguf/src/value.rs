//! Metadata values: GGUF's thirteen types, arrays stored typed.

use std::fmt::{self, Display, Formatter};

/// The type of a metadata value, with GGUF's numbers (`enum gguf_type` in llama.cpp's gguf.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum ValueType {
    /// 8-bit unsigned integer.
    U8 = 0,
    /// 8-bit signed integer.
    I8 = 1,
    /// 16-bit unsigned integer.
    U16 = 2,
    /// 16-bit signed integer.
    I16 = 3,
    /// 32-bit unsigned integer.
    U32 = 4,
    /// 32-bit signed integer.
    I32 = 5,
    /// 32-bit float.
    F32 = 6,
    /// One byte, true unless 0.
    Bool = 7,
    /// Length (u64) and bytes.
    String = 8,
    /// Element type (u32), length (u64) and elements.
    Array = 9,
    /// 64-bit unsigned integer.
    U64 = 10,
    /// 64-bit signed integer.
    I64 = 11,
    /// 64-bit float.
    F64 = 12,
}

/// A metadata value.
///
/// GGUF strings should be UTF-8, but some converters write raw bytes. Such a string stays
/// [`Value::Bytes`] (in arrays: [`Array::Bytes`]), so that it can be copied without loss. It is an
/// error if text is requested.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// 8-bit unsigned integer.
    U8(u8),
    /// 8-bit signed integer.
    I8(i8),
    /// 16-bit unsigned integer.
    U16(u16),
    /// 16-bit signed integer.
    I16(i16),
    /// 32-bit unsigned integer.
    U32(u32),
    /// 32-bit signed integer.
    I32(i32),
    /// 32-bit float.
    F32(f32),
    /// True or false.
    Bool(bool),
    /// Text.
    String(String),
    /// A string that is not UTF-8.
    Bytes(Vec<u8>),
    /// An array.
    Array(Array),
    /// 64-bit unsigned integer.
    U64(u64),
    /// 64-bit signed integer.
    I64(i64),
    /// 64-bit float.
    F64(f64),
}

/// An array of metadata values of one type.
#[derive(Clone, Debug, PartialEq)]
pub enum Array {
    /// 8-bit unsigned integers.
    U8(Vec<u8>),
    /// 8-bit signed integers.
    I8(Vec<i8>),
    /// 16-bit unsigned integers.
    U16(Vec<u16>),
    /// 16-bit signed integers.
    I16(Vec<i16>),
    /// 32-bit unsigned integers.
    U32(Vec<u32>),
    /// 32-bit signed integers.
    I32(Vec<i32>),
    /// 32-bit floats.
    F32(Vec<f32>),
    /// Truth values.
    Bool(Vec<bool>),
    /// Texts.
    String(Vec<String>),
    /// Strings of which at least one is not UTF-8.
    Bytes(Vec<Vec<u8>>),
    /// Arrays, each with its own element type.
    Array(Vec<Array>),
    /// 64-bit unsigned integers.
    U64(Vec<u64>),
    /// 64-bit signed integers.
    I64(Vec<i64>),
    /// 64-bit floats.
    F64(Vec<f64>),
}

/// Evaluates one expression for every type of a [`Value`] or an [`Array`].
macro_rules! each {
    ($enum:ident, $value:expr, $held:ident => $result:expr) => {
        match $value {
            $enum::U8($held) => $result,
            $enum::I8($held) => $result,
            $enum::U16($held) => $result,
            $enum::I16($held) => $result,
            $enum::U32($held) => $result,
            $enum::I32($held) => $result,
            $enum::F32($held) => $result,
            $enum::Bool($held) => $result,
            $enum::String($held) => $result,
            $enum::Bytes($held) => $result,
            $enum::Array($held) => $result,
            $enum::U64($held) => $result,
            $enum::I64($held) => $result,
            $enum::F64($held) => $result,
        }
    };
}

/// A type of a [`Value`], or of an [`Array`]'s elements.
trait Element {
    const TYPE: ValueType;

    /// Appends the element as it stands in a file, without its type.
    fn encode(&self, out: &mut Vec<u8>);

    /// Shows the element on one line, shortened unless `full`.
    fn show(&self, full: bool, f: &mut Formatter<'_>) -> fmt::Result;
}

/// Numbers as they stand in a file: little-endian.
pub(crate) trait Number: Copy {
    /// The number in these bytes, which must be as many as it has.
    fn decode(bytes: &[u8]) -> Self;
}

macro_rules! numbers {
    ($($ty:ident $variant:ident,)*) => {$(
        impl Number for $ty {
            fn decode(bytes: &[u8]) -> Self {
                let mut own = [0; size_of::<$ty>()];
                own.copy_from_slice(bytes);
                <$ty>::from_le_bytes(own)
            }
        }

        impl Element for $ty {
            const TYPE: ValueType = ValueType::$variant;

            fn encode(&self, out: &mut Vec<u8>) {
                out.extend(self.to_le_bytes());
            }

            fn show(&self, _full: bool, f: &mut Formatter<'_>) -> fmt::Result {
                write!(f, "{self}")
            }
        }
    )*};
}
numbers! { u8 U8, i8 I8, u16 U16, i16 I16, u32 U32, i32 I32, f32 F32, u64 U64, i64 I64, f64 F64, }

impl Element for bool {
    const TYPE: ValueType = ValueType::Bool;

    fn encode(&self, out: &mut Vec<u8>) {
        out.push((*self).into());
    }

    fn show(&self, _full: bool, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl Element for Vec<u8> {
    const TYPE: ValueType = ValueType::String;

    fn encode(&self, out: &mut Vec<u8>) {
        encode_string(self, out);
    }

    fn show(&self, full: bool, f: &mut Formatter<'_>) -> fmt::Result {
        // Lossy is enough: what is not text can only be hinted at on one line.
        String::from_utf8_lossy(self).into_owned().show(full, f)
    }
}

impl Element for String {
    const TYPE: ValueType = ValueType::String;

    fn encode(&self, out: &mut Vec<u8>) {
        encode_string(self.as_bytes(), out);
    }

    fn show(&self, full: bool, f: &mut Formatter<'_>) -> fmt::Result {
        const SHORT: usize = 100;
        match self.char_indices().nth(SHORT) {
            Some((end, _)) if !full => write!(f, "{:?}… ({} bytes)", &self[..end], self.len()),
            _ => write!(f, "{self:?}"),
        }
    }
}

impl Element for Array {
    const TYPE: ValueType = ValueType::Array;

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend((self.element_type() as u32).to_le_bytes());
        out.extend((self.len() as u64).to_le_bytes());
        each!(Array, self, elements => elements.iter().for_each(|element| element.encode(out)));
    }

    fn show(&self, full: bool, f: &mut Formatter<'_>) -> fmt::Result {
        each!(Array, self, elements => show_list(elements, full, f))
    }
}

/// Appends a string as it stands in a file: length and bytes.
pub(crate) fn encode_string(text: &[u8], out: &mut Vec<u8>) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text);
}

fn show_list<T: Element>(elements: &[T], full: bool, f: &mut Formatter<'_>) -> fmt::Result {
    const SHORT: usize = 6;
    let shown = if full {
        elements.len()
    } else {
        elements.len().min(SHORT)
    };
    f.write_str("[")?;
    for (i, element) in elements[..shown].iter().enumerate() {
        if i > 0 {
            f.write_str(", ")?;
        }
        element.show(full, f)?;
    }
    if shown < elements.len() {
        write!(f, ", … {} in all", elements.len())?;
    }
    f.write_str("]")
}

impl ValueType {
    /// The type with this number, if GGUF has one.
    pub fn from_id(id: u32) -> Option<Self> {
        Some(match id {
            0 => ValueType::U8,
            1 => ValueType::I8,
            2 => ValueType::U16,
            3 => ValueType::I16,
            4 => ValueType::U32,
            5 => ValueType::I32,
            6 => ValueType::F32,
            7 => ValueType::Bool,
            8 => ValueType::String,
            9 => ValueType::Array,
            10 => ValueType::U64,
            11 => ValueType::I64,
            12 => ValueType::F64,
            _ => return None,
        })
    }

    /// The type's name: that of the Rust type, with `string` and `array`.
    pub fn name(self) -> &'static str {
        match self {
            ValueType::U8 => "u8",
            ValueType::I8 => "i8",
            ValueType::U16 => "u16",
            ValueType::I16 => "i16",
            ValueType::U32 => "u32",
            ValueType::I32 => "i32",
            ValueType::F32 => "f32",
            ValueType::Bool => "bool",
            ValueType::String => "string",
            ValueType::Array => "array",
            ValueType::U64 => "u64",
            ValueType::I64 => "i64",
            ValueType::F64 => "f64",
        }
    }

    /// The fewest bytes that one value of the type takes in a file.
    pub(crate) fn least_bytes(self) -> usize {
        match self {
            ValueType::U8 | ValueType::I8 | ValueType::Bool => 1,
            ValueType::U16 | ValueType::I16 => 2,
            ValueType::U32 | ValueType::I32 | ValueType::F32 => 4,
            ValueType::U64 | ValueType::I64 | ValueType::F64 => 8,
            ValueType::String => size_of::<u64>(),
            ValueType::Array => size_of::<u32>() + size_of::<u64>(),
        }
    }
}

impl Display for ValueType {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The type of what a reference points to.
fn type_of<T: Element>(_: &T) -> ValueType {
    T::TYPE
}

impl Value {
    /// The value's type.
    pub fn value_type(&self) -> ValueType {
        each!(Value, self, value => type_of(value))
    }

    /// The value, if it is an integer of any width.
    pub(crate) fn as_integer(&self) -> Option<i128> {
        Some(match *self {
            Value::U8(value) => value.into(),
            Value::I8(value) => value.into(),
            Value::U16(value) => value.into(),
            Value::I16(value) => value.into(),
            Value::U32(value) => value.into(),
            Value::I32(value) => value.into(),
            Value::U64(value) => value.into(),
            Value::I64(value) => value.into(),
            _ => return None,
        })
    }

    /// Type and shortened value, for messages: `u32 7`, `array of 3 string`.
    pub(crate) fn describe(&self) -> String {
        match self {
            Value::Array(array) => format!("an array of {} {}", array.len(), array.element_type()),
            Value::Bytes(_) => format!("string {self}, which is not UTF-8"),
            _ => format!("{} {self}", self.value_type()),
        }
    }

    /// Appends the value as it stands in a file, without its type.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        each!(Value, self, value => value.encode(out));
    }
}

impl Display for Value {
    /// The value on one line, long strings and arrays shortened; `{:#}` shows them whole.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        each!(Value, self, value => value.show(f.alternate(), f))
    }
}

impl Array {
    /// Maximum nesting depth of arrays. Models use one level; the limit keeps hostile files off the
    /// stack.
    pub const MAX_DEPTH: usize = 8;

    /// The type of the elements.
    pub fn element_type(&self) -> ValueType {
        fn type_of_elements<T: Element>(_: &[T]) -> ValueType {
            T::TYPE
        }
        each!(Array, self, elements => type_of_elements(elements))
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        each!(Array, self, elements => elements.len())
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many levels of arrays there are, this one included.
    pub(crate) fn depth(&self) -> usize {
        match self {
            Array::Array(arrays) => 1 + arrays.iter().map(Array::depth).max().unwrap_or(0),
            _ => 1,
        }
    }
}

impl Display for Array {
    /// The elements on one line, shortened; `{:#}` shows all.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.show(f.alternate(), f)
    }
}

macro_rules! values_from {
    ($($ty:ty => $variant:ident,)*) => {$(
        impl From<$ty> for Value {
            fn from(value: $ty) -> Self {
                Value::$variant(value)
            }
        }

        impl From<Vec<$ty>> for Value {
            fn from(values: Vec<$ty>) -> Self {
                Value::Array(Array::$variant(values))
            }
        }
    )*};
}
values_from! {
    u8 => U8, i8 => I8, u16 => U16, i16 => I16, u32 => U32, i32 => I32, u64 => U64, i64 => I64, f32 => F32, f64 => F64,
    bool => Bool, String => String, Array => Array,
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Value::String(text.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_lead_back_from_their_numbers() {
        for id in 0..13 {
            assert_eq!(ValueType::from_id(id).map(|ty| ty as u32), Some(id));
        }
        assert_eq!(ValueType::from_id(13), None);
    }

    #[test]
    fn values_are_shown_on_one_line_and_shortened() {
        assert_eq!(Value::from(0.5f32).to_string(), "0.5");
        assert_eq!(Value::from("a\nb").to_string(), r#""a\nb""#);
        assert_eq!(Value::from(vec![1u8, 2]).to_string(), "[1, 2]");
        assert_eq!(Value::Bytes(vec![b'a', 0xff]).to_string(), "\"a\u{fffd}\"");

        let long = Value::from((0..10).collect::<Vec<i32>>());
        assert_eq!(long.to_string(), "[0, 1, 2, 3, 4, 5, … 10 in all]");
        assert_eq!(format!("{long:#}"), "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]");

        let nested = Value::from(vec![
            Array::Bool(vec![true]),
            Array::String(vec!["x".into()]),
        ]);
        assert_eq!(nested.to_string(), r#"[[true], ["x"]]"#);

        let text = Value::from("é".repeat(200).as_str());
        assert_eq!(
            text.to_string(),
            format!("{:?}… (400 bytes)", "é".repeat(100))
        );
        assert_eq!(format!("{text:#}"), format!("{:?}", "é".repeat(200)));
    }

    #[test]
    fn depth_counts_the_levels() {
        let one = Array::U8(vec![1]);
        assert_eq!(one.depth(), 1);
        assert_eq!(Array::Array(vec![]).depth(), 1);
        assert_eq!(
            Array::Array(vec![one.clone(), Array::Array(vec![one])]).depth(),
            3
        );
    }
}
