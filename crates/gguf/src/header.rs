//! The part of a file before the tensor data: version, metadata, tensor descriptions.
//!
//! Format: the description at the top of llama.cpp's gguf.h. All numbers are little-endian. A file is
//!
//! ```text
//! "GGUF"  version u32  tensor count u64  key count u64
//! keys:     name  value type u32  value
//! tensors:  name  dimension count u32  dimensions u64…  type u32  offset u64
//! padding to a multiple of general.alignment, from where the offsets count
//! tensor data, each tensor's padded likewise
//! ```

use crate::cursor::{Cursor, Place};
use crate::error::{GgufError, KeyProblem, TensorProblem};
use crate::sniff::{MAGIC, expect_gguf};
use crate::tensor::TensorInfo;
use crate::{GgmlType, Metadata};

/// The version that is written.
pub(crate) const VERSION: u32 = 3;

/// The fewest bytes that a key takes: the length of its name, a name of one byte, the value's type, a value.
const LEAST_KEY_BYTES: usize = 8 + 1 + 4 + 1;

/// The fewest bytes that a tensor's description takes: the length of its name, dimension count, type, offset.
const LEAST_TENSOR_BYTES: usize = 8 + 4 + 4 + 8;

const ALIGNMENT_KEY: &str = "general.alignment";
const DEFAULT_ALIGNMENT: u32 = 32;

/// The part of a file before the tensor data. The tensors' data is known to lie within the file.
pub(crate) struct Header {
    pub(crate) version: u32,
    pub(crate) alignment: usize,
    pub(crate) metadata: Metadata,
    pub(crate) tensors: Vec<TensorInfo>,
}

impl Header {
    /// Reads and checks the header of the file that consists of these bytes.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, GgufError> {
        expect_gguf(bytes)?;
        let mut cursor = Cursor::new(bytes, MAGIC.len());
        let version: u32 = cursor.number(Place::Header)?;
        match version {
            // Version 2 differs from 3 only in saying nothing about byte order.
            2 | 3 => {}
            // Seen from the wrong end, a small number is a multiple of 65536.
            _ if version != 0 && version & 0xffff == 0 => return Err(GgufError::BigEndian),
            _ => return Err(GgufError::Version { version }),
        }
        let tensor_count = cursor.number(Place::Header)?;
        let key_count = cursor.number(Place::Header)?;

        let metadata = parse_metadata(&mut cursor, key_count)?;
        let alignment = alignment(&metadata)?;
        let (mut tensors, offsets) = parse_tensors(&mut cursor, tensor_count)?;
        place(
            &mut tensors,
            &offsets,
            cursor.position(),
            alignment,
            bytes.len(),
        )?;
        Ok(Header {
            version,
            alignment,
            metadata,
            tensors,
        })
    }
}

fn parse_metadata(cursor: &mut Cursor<'_>, count: u64) -> Result<Metadata, GgufError> {
    let capacity = cursor.expect_room(count, LEAST_KEY_BYTES, Place::Keys { count })?;
    let mut metadata = Metadata::with_capacity(capacity);
    for index in 0..count {
        let offset = cursor.position() as u64;
        let key = cursor.name(Place::Key { index, count })?;
        if key.is_empty() {
            return Err(GgufError::key(key, KeyProblem::Empty));
        }
        let value = cursor.value(key)?;
        if metadata.insert(key, value).is_some() {
            return Err(GgufError::key(key, KeyProblem::Duplicate { offset }));
        }
    }
    Ok(metadata)
}

/// The alignment of tensor data that the metadata asks for. At least 8, as GGUF's specification demands, so that every
/// scalar type is aligned in a mapped file.
pub(crate) fn alignment(metadata: &Metadata) -> Result<usize, GgufError> {
    let alignment = metadata
        .opt_u32(ALIGNMENT_KEY)?
        .unwrap_or(DEFAULT_ALIGNMENT);
    if alignment.is_power_of_two() && alignment >= 8 {
        Ok(alignment as usize)
    } else {
        Err(GgufError::Alignment { alignment })
    }
}

/// The tensors' descriptions and, apart, their offsets in the data section.
fn parse_tensors(
    cursor: &mut Cursor<'_>,
    count: u64,
) -> Result<(Vec<TensorInfo>, Vec<u64>), GgufError> {
    let capacity = cursor.expect_room(count, LEAST_TENSOR_BYTES, Place::Tensors { count })?;
    let mut tensors = Vec::with_capacity(capacity);
    let mut offsets = Vec::with_capacity(capacity);
    for index in 0..count {
        let name = cursor.name(Place::TensorName { index, count })?;
        let tensor = Place::Tensor { name };
        let dim_count: u32 = cursor.number(tensor)?;
        if dim_count as usize > TensorInfo::MAX_DIMS {
            let problem = TensorProblem::TooManyDims {
                count: dim_count.into(),
                limit: TensorInfo::MAX_DIMS,
            };
            return Err(GgufError::tensor(name, problem));
        }
        let dims = cursor.numbers(dim_count.into(), tensor)?;
        let id = cursor.number(tensor)?;
        let ty = GgmlType::from_id(id)
            .ok_or_else(|| GgufError::tensor(name, TensorProblem::UnknownType { id }))?;
        tensors.push(TensorInfo::new(name.to_owned(), dims, ty)?);
        offsets.push(cursor.number(tensor)?);
    }
    Ok((tensors, offsets))
}

/// Gives every tensor its place in a file of `size` bytes whose header ends at `header_end`. Fails if a tensor is not
/// aligned, does not fit, or lies where another does.
fn place(
    tensors: &mut [TensorInfo],
    offsets: &[u64],
    header_end: usize,
    alignment: usize,
    size: usize,
) -> Result<(), GgufError> {
    let data_start = (header_end as u64).next_multiple_of(alignment as u64);
    for (tensor, &offset) in tensors.iter_mut().zip(offsets) {
        if offset % alignment as u64 != 0 {
            return Err(GgufError::tensor(
                &tensor.name,
                TensorProblem::Misaligned { offset, alignment },
            ));
        }
        let (start, len, size) = (
            data_start.saturating_add(offset),
            tensor.bytes() as u64,
            size as u64,
        );
        if start.saturating_add(len) > size {
            return Err(GgufError::tensor(
                &tensor.name,
                TensorProblem::OutOfRange { start, len, size },
            ));
        }
        tensor.start = start as usize;
    }
    let mut order: Vec<usize> = (0..tensors.len()).collect();
    order.sort_unstable_by_key(|&i| tensors[i].start);
    for pair in order.windows(2) {
        let (before, after) = (&tensors[pair[0]], &tensors[pair[1]]);
        if before.range().end > after.start {
            let problem = TensorProblem::Overlap {
                start: after.start as u64,
                other: before.name.clone(),
            };
            return Err(GgufError::tensor(&after.name, problem));
        }
    }
    Ok(())
}
