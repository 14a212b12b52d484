//! NumPy's format of one array, `.npy`.
//!
//! Source: `numpy/lib/format.py`, format versions 1.0 to 3.0. The file has `\x93NUMPY`, the version, and the
//! size of the header. Then come the header, a Python dictionary in ASCII or UTF-8, and the elements.

use std::io::Write;
use std::path::Path;

use rustorch_gguf::quoted;
use rustorch_ir::DType;
use rustorch_macros::track_calls;
use rustorch_tensor::Tensor;

use crate::elements::{self, ByteOrder};
use crate::error::{FileError, FileResult};
use crate::literal::{self, Literal};
use crate::source::{Source, reading, writing};
use crate::tensors::Tensors;

pub(crate) const MAGIC: &[u8] = b"\x93NUMPY";

/// Header and elements begin at multiples of this.
pub(crate) const ALIGNMENT: usize = 64;

/// NumPy's kinds and sizes of elements.
const DTYPES: [(&str, DType); 14] = [
    ("b1", DType::Bool),
    ("i1", DType::I8),
    ("i2", DType::I16),
    ("i4", DType::I32),
    ("i8", DType::I64),
    ("u1", DType::U8),
    ("u2", DType::U16),
    ("u4", DType::U32),
    ("u8", DType::U64),
    ("f2", DType::F16),
    ("f4", DType::F32),
    ("f8", DType::F64),
    ("c8", DType::Complex64),
    ("c16", DType::Complex128),
];

/// Reads a file. The tensor stays in the mapped file if it is in the machine's byte order; Fortran
/// order becomes strides.
///
/// # Errors
/// Fails if the file cannot be read, has a wrong format, or holds values that are not numbers.
#[track_calls(npy)]
pub fn load(path: impl AsRef<Path>) -> FileResult<Tensor> {
    reading(path.as_ref(), read)
}

/// [`load`] of bytes.
///
/// # Errors
/// The same errors as [`load`].
#[track_calls(npy)]
pub fn read(source: &Source) -> FileResult<Tensor> {
    read_named(Tensors::ONLY, source)
}

/// [`read`] of the tensor `name`.
pub(crate) fn read_named(name: &str, source: &Source) -> FileResult<Tensor> {
    let place = place(name);
    let header = Header::read(&place, source)?;
    elements::check_rank(name, &header.shape)?;
    let bytes = header.elements(&place, source.len() as u64)?;
    let data = source.part(&place, header.end as u64, bytes)?;
    let data = elements::native(name, data, header.dtype, header.order)?;
    if !header.is_fortran {
        return elements::tensor(name, &data, header.dtype, &header.shape);
    }
    let reversed: Vec<usize> = header.shape.iter().rev().copied().collect();
    let back: Vec<isize> = (0..reversed.len() as isize).rev().collect();
    let tensor = elements::tensor(name, &data, header.dtype, &reversed)?;
    tensor.permute(back).map_err(FileError::tensor(name))
}

/// Fails if the array that starts with `begin` has not `size` bytes in all, or cannot be read. Longer headers
/// are not checked.
pub(crate) fn check_size(name: &str, begin: &Source, size: u64) -> FileResult<()> {
    let place = place(name);
    match Header::read(&place, begin) {
        Err(FileError::Truncated { .. }) if (begin.len() as u64) < size => Ok(()),
        header => header?.elements(&place, size).map(drop),
    }
}

fn place(name: &str) -> String {
    format!("array {}", quoted(name))
}

/// Writes a file, as [`write()`].
///
/// # Errors
/// The same errors as [`write()`].
#[track_calls(npy)]
pub fn save(path: impl AsRef<Path>, tensor: &Tensor) -> FileResult<()> {
    writing(path.as_ref(), |out| write(out, tensor))
}

/// Writes a tensor in row-major order and little endian, byte for byte as NumPy does.
///
/// # Errors
/// Fails for dtypes that NumPy lacks: `bf16`, 8-bit floats and block formats. Fails if the tensor
/// cannot be computed. Fails if the system reports an error.
#[track_calls(npy)]
pub fn write(out: &mut impl Write, tensor: &Tensor) -> FileResult<()> {
    write_named(Tensors::ONLY, out, tensor)
}

/// [`write()`] of the tensor `name`.
pub(crate) fn write_named(name: &str, out: &mut dyn Write, tensor: &Tensor) -> FileResult<()> {
    let header = header(name, tensor)?;
    (out.write_all(&header)).map_err(FileError::io("write the header"))?;
    elements::write(name, tensor, out)
}

/// The bytes before the elements.
pub(crate) fn header(name: &str, tensor: &Tensor) -> FileResult<Vec<u8>> {
    let dtype = tensor.dtype();
    let known = DTYPES.iter().find(|&&(_, known)| known == dtype);
    let &(code, _) = known.ok_or_else(|| {
        let advice = "convert it to f32, or write a .safetensors or .gguf file";
        FileError::no_dtype(name, "NumPy", dtype, advice)
    })?;
    let order = if dtype.size() == Some(1) { '|' } else { '<' };
    let shape = match tensor.shape() {
        [n] => format!("({n},)"),
        shape => {
            let sizes: Vec<String> = shape.iter().map(usize::to_string).collect();
            format!("({})", sizes.join(", "))
        }
    };
    let mut text =
        format!("{{'descr': '{order}{code}', 'fortran_order': False, 'shape': {shape}, }}");
    if let Some(first) = tensor.shape().first() {
        // NumPy leaves room for the first size to grow.
        const DIGITS: usize = 21;
        let room = DIGITS.saturating_sub(first.to_string().len());
        text.extend(std::iter::repeat_n(' ', room));
    }
    Ok(framed(&text))
}

/// A header's text with the bytes before it, and spaces behind it.
fn framed(text: &str) -> Vec<u8> {
    let with = |version: u8, prefix: usize| {
        let before = MAGIC.len() + 2 + prefix;
        let whole = (before + text.len() + 1).next_multiple_of(ALIGNMENT);
        let len = whole - before;
        let mut header = MAGIC.to_vec();
        header.extend([version, 0]);
        header.extend(&(len as u32).to_le_bytes()[..prefix]);
        header.extend(text.bytes());
        header.resize(whole - 1, b' ');
        header.push(b'\n');
        (header, len)
    };
    match with(1, 2) {
        (header, len) if len <= usize::from(u16::MAX) => header,
        _ => with(2, 4).0,
    }
}

/// The bytes before the elements.
struct Header {
    dtype: DType,
    order: ByteOrder,
    is_fortran: bool,
    shape: Vec<usize>,
    /// The offset of the elements.
    end: usize,
}

impl Header {
    fn read(place: &str, source: &Source) -> FileResult<Self> {
        const NAME: &str = "the header";
        let begin = source.part(NAME, 0, MAGIC.len() as u64 + 2)?;
        let (magic, version) = begin.split_at(MAGIC.len());
        if magic != MAGIC {
            let problem = format!("it begins with {magic:02x?}, not with \\x93NUMPY");
            return Err(FileError::damaged(place, problem));
        }
        let width = match version {
            [1, 0] => 2,
            [2 | 3, 0] => 4,
            other => {
                let found = format!("format version {}.{}", other[0], other[1]);
                return Err(FileError::unsupported(
                    place,
                    found,
                    "save it with NumPy's np.save",
                ));
            }
        };
        let at = begin.len() as u64;
        let len = source.part("the header's size", at, width)?;
        let len = len.iter().rev().fold(0, |n, &b| n << 8 | u64::from(b));
        let text = source.part(NAME, at + width, len)?;
        let text = str::from_utf8(&text)
            .map_err(|_| FileError::damaged(place, "the header is not UTF-8"))?;
        // The part was within the bytes, so that its end fits.
        Self::parse(place, text, (at + width + len) as usize)
    }

    /// Number of the elements' bytes, with which a file of `size` bytes has to end.
    fn elements(&self, place: &str, size: u64) -> FileResult<u64> {
        let bytes = self.dtype.bytes_of(&self.shape).ok_or_else(|| {
            let problem = format!(
                "the shape {:?} of {} is too large for memory",
                self.shape, self.dtype
            );
            FileError::damaged(place, problem)
        })?;
        let (offset, needed) = (self.end as u64, bytes as u64);
        let left = size.saturating_sub(offset);
        match left.checked_sub(needed) {
            Some(0) => Ok(needed),
            Some(rest) => {
                let problem = format!(
                    "{rest} bytes are behind the array; of a file of several, only one is read"
                );
                Err(FileError::damaged(place, problem))
            }
            None => Err(FileError::Truncated {
                place: place.to_owned(),
                offset,
                needed,
                left,
            }),
        }
    }

    fn parse(place: &str, text: &str, end: usize) -> FileResult<Self> {
        let entries = literal::dictionary(text)
            .map_err(|problem| FileError::damaged(place, format!("the header: {problem}")))?;
        let wrong =
            |key: &str| FileError::damaged(place, format!("the header has no proper {key}"));
        let (mut descr, mut fortran, mut shape) = (None, None, None);
        for (key, value) in entries {
            let again = match (key, value) {
                ("descr", value) => descr.replace(value).is_some(),
                ("fortran_order", Literal::Bool(value)) => fortran.replace(value).is_some(),
                ("shape", Literal::Sizes(sizes)) => shape.replace(sizes).is_some(),
                (key, _) => return Err(wrong(&quoted(key))),
            };
            if again {
                return Err(FileError::damaged(
                    place,
                    format!("the header has {} twice", quoted(key)),
                ));
            }
        }
        let (dtype, order) = element_type(place, descr.ok_or_else(|| wrong("`descr`"))?)?;
        Ok(Self {
            dtype,
            order,
            is_fortran: fortran.ok_or_else(|| wrong("`fortran_order`"))?,
            shape: shape.ok_or_else(|| wrong("`shape`"))?,
            end,
        })
    }
}

/// The dtype and byte order that a `descr` names.
fn element_type(place: &str, descr: Literal<'_>) -> FileResult<(DType, ByteOrder)> {
    let text = match descr {
        Literal::Text(text) => text,
        Literal::List => {
            let advice = "save its fields as separate arrays";
            return Err(FileError::unsupported(place, "an array of records", advice));
        }
        Literal::Bool(_) | Literal::Sizes(_) => {
            return Err(FileError::damaged(
                place,
                "the header's `descr` is not text",
            ));
        }
    };
    let (order, code) = match text.split_at_checked(1) {
        Some((">", code)) => (ByteOrder::Big, code),
        Some(("<" | "=" | "|", code)) => (ByteOrder::Little, code),
        _ => (ByteOrder::Little, text),
    };
    let known = DTYPES.iter().find(|(known, _)| *known == code);
    let &(_, dtype) = known.ok_or_else(|| {
        let advice = match code.chars().next() {
            Some('O') => "objects of Python are code: save numbers",
            Some('V') => "NumPy writes bfloat16 and 8-bit floats so: save them as safetensors",
            _ => "convert the array with astype, for example to np.float32",
        };
        FileError::unsupported(place, format!("dtype {}", quoted(text)), advice)
    })?;
    Ok((dtype, order))
}
