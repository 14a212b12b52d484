//! `weight.bin`: the file of a package that large constants are in.
//!
//! A header of 64 bytes comes first, then for each blob its metadata and its elements. All of them are
//! at multiples of 64 bytes, little-endian. The format is `MILBlob/Blob/StorageFormat.hpp` of
//! [coremltools](https://github.com/apple/coremltools/tree/9.0/mlmodel/src/MILBlob). Values of a
//! program name the place of the metadata.

use crate::proto::mil::DataType;

/// Alignment of all parts.
pub const ALIGNMENT: usize = 64;
/// Version of the format.
pub const VERSION: u32 = 2;
/// First word of metadata.
pub const SENTINEL: u32 = 0xDEAD_BEEF;

/// The number that stands for an element type in metadata; `None` of those that blobs cannot have.
pub fn code(data_type: DataType) -> Option<u32> {
    Some(match data_type {
        DataType::Float16 => 1,
        DataType::Float32 => 2,
        DataType::Uint8 => 3,
        DataType::Int8 => 4,
        DataType::Bfloat16 => 5,
        DataType::Int16 => 6,
        DataType::Uint16 => 7,
        DataType::Int4 => 8,
        DataType::Uint1 => 9,
        DataType::Uint2 => 10,
        DataType::Uint4 => 11,
        DataType::Uint3 => 12,
        DataType::Uint6 => 13,
        DataType::Int32 => 14,
        DataType::Uint32 => 15,
        _ => return None,
    })
}

/// Why a blob cannot be written or read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BlobError {
    /// Elements that blobs cannot have.
    #[error("weight.bin holds no elements of type {0:?}")]
    Type(DataType),
    /// Bytes that are not those of the elements.
    #[error("{count} elements of {data_type:?} are {expected} bytes, not {got}")]
    Size {
        /// Number of elements.
        count: usize,
        /// Their type.
        data_type: DataType,
        /// Bytes that they take.
        expected: usize,
        /// Bytes that there are.
        got: usize,
    },
    /// A file, or the metadata of a blob, that is damaged.
    #[error("weight.bin is damaged at byte {at}: {what}")]
    Damaged {
        /// Where.
        at: u64,
        /// Description of the fault.
        what: &'static str,
    },
}

/// Bytes that elements take, and the bits of the last one that are none of theirs. Elements of less
/// than a byte follow each other from the lowest bit on.
fn packed(count: usize, data_type: DataType) -> Result<(usize, u64), BlobError> {
    let bits = code(data_type).and(data_type.bits());
    let bits = bits
        .ok_or(BlobError::Type(data_type))?
        .saturating_mul(count);
    let bytes = bits.div_ceil(8);
    Ok((bytes, (8 * bytes - bits) as u64))
}

/// A file that is being written, in memory.
#[derive(Clone, Debug)]
pub struct WeightsWriter {
    bytes: Vec<u8>,
    count: u32,
}

impl Default for WeightsWriter {
    fn default() -> Self {
        Self::new()
    }
}

impl WeightsWriter {
    /// A file without blobs.
    pub fn new() -> Self {
        Self {
            bytes: vec![0; ALIGNMENT],
            count: 0,
        }
    }

    /// Returns whether there are no blobs.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Appends `count` elements, packed as memory holds them on little-endian machines, and returns
    /// where the metadata are.
    ///
    /// # Errors
    /// Fails for a type that blobs cannot have, or for a wrong number of bytes.
    pub fn push(
        &mut self,
        data_type: DataType,
        count: usize,
        elements: &[u8],
    ) -> Result<u64, BlobError> {
        let (expected, padding_bits) = packed(count, data_type)?;
        if elements.len() != expected {
            return Err(BlobError::Size {
                count,
                data_type,
                expected,
                got: elements.len(),
            });
        }
        let at = self.bytes.len().next_multiple_of(ALIGNMENT);
        self.bytes.resize(at, 0);
        let data = (at + ALIGNMENT) as u64;
        let code = code(data_type).ok_or(BlobError::Type(data_type))?;
        self.bytes.extend(SENTINEL.to_le_bytes());
        self.bytes.extend(code.to_le_bytes());
        for word in [expected as u64, data, padding_bits] {
            self.bytes.extend(word.to_le_bytes());
        }
        self.bytes.resize(at + ALIGNMENT, 0);
        self.bytes.extend_from_slice(elements);
        self.count += 1;
        Ok(at as u64)
    }

    /// The file.
    pub fn finish(mut self) -> Vec<u8> {
        self.bytes[..4].copy_from_slice(&self.count.to_le_bytes());
        self.bytes[4..8].copy_from_slice(&VERSION.to_le_bytes());
        self.bytes
    }
}

/// The elements of a blob.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Blob<'a> {
    /// The number of their type.
    pub code: u32,
    /// Unused bits at the end.
    pub padding_bits: u64,
    /// The elements, packed.
    pub elements: &'a [u8],
}

/// Reads the blob whose metadata are at `at`.
///
/// # Errors
/// Fails for a file of another format, or for metadata or elements outside the file.
pub fn blob(file: &[u8], at: u64) -> Result<Blob<'_>, BlobError> {
    let damaged = |at, what| BlobError::Damaged { at, what };
    if word(file, 4) != Some(VERSION) {
        return Err(damaged(4, "another version of the format"));
    }
    if !at.is_multiple_of(ALIGNMENT as u64) {
        return Err(damaged(at, "metadata that are not aligned"));
    }
    let start = usize::try_from(at).map_err(|_| damaged(at, "outside the file"))?;
    let metadata = start
        .checked_add(ALIGNMENT)
        .and_then(|end| file.get(start..end))
        .ok_or_else(|| damaged(at, "metadata outside the file"))?;
    if word(metadata, 0) != Some(SENTINEL) {
        return Err(damaged(at, "no metadata of a blob"));
    }
    let [bytes, data, padding_bits] = [8, 16, 24].map(|i| long(metadata, i).unwrap_or(u64::MAX));
    let range = usize::try_from(data).ok().and_then(|data| {
        let end = data.checked_add(usize::try_from(bytes).ok()?)?;
        Some(data..end)
    });
    let elements = range.and_then(|range| file.get(range));
    let elements = elements.ok_or_else(|| damaged(at, "elements outside the file"))?;
    if !data.is_multiple_of(ALIGNMENT as u64) {
        return Err(damaged(at, "elements that are not aligned"));
    }
    Ok(Blob {
        code: word(metadata, 4).unwrap_or_default(),
        padding_bits,
        elements,
    })
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_le_bytes(*word))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    let word = bytes.get(at..)?.first_chunk()?;
    Some(u64::from_le_bytes(*word))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every type with three elements: the codes and padding bits that the library of coremltools
    /// 9.0 writes for them.
    const TYPES: [(DataType, u32, usize, u64); 15] = [
        (DataType::Float16, 1, 6, 0),
        (DataType::Float32, 2, 12, 0),
        (DataType::Uint8, 3, 3, 0),
        (DataType::Int8, 4, 3, 0),
        (DataType::Bfloat16, 5, 6, 0),
        (DataType::Int16, 6, 6, 0),
        (DataType::Uint16, 7, 6, 0),
        (DataType::Int4, 8, 2, 4),
        (DataType::Uint1, 9, 1, 5),
        (DataType::Uint2, 10, 1, 2),
        (DataType::Uint4, 11, 2, 4),
        (DataType::Uint3, 12, 2, 7),
        (DataType::Uint6, 13, 3, 6),
        (DataType::Int32, 14, 12, 0),
        (DataType::Uint32, 15, 12, 0),
    ];

    #[test]
    fn blobs_are_read_as_written() {
        let mut writer = WeightsWriter::new();
        assert!(writer.is_empty());
        let places = TYPES.map(|(data_type, code, bytes, padding)| {
            let elements: Vec<u8> = (0..bytes as u8).map(|b| b + code as u8).collect();
            let at = writer.push(data_type, 3, &elements).unwrap();
            (at, code, padding, elements)
        });
        let file = writer.finish();
        assert_eq!(file[..8], [15, 0, 0, 0, 2, 0, 0, 0]);
        for (at, code, padding_bits, elements) in places {
            assert!(at.is_multiple_of(64) && at > 0);
            let expected = Blob {
                code,
                padding_bits,
                elements: &elements,
            };
            assert_eq!(blob(&file, at), Ok(expected));
        }
    }

    #[test]
    fn a_file_is_byte_for_byte_what_the_format_says() {
        let mut writer = WeightsWriter::new();
        let ones = 1_f32.to_le_bytes().repeat(3);
        assert_eq!(writer.push(DataType::Float32, 3, &ones), Ok(64));
        let mut expected = vec![0_u8; 128];
        expected[0] = 1;
        expected[4] = 2;
        expected[64..68].copy_from_slice(&[0xEF, 0xBE, 0xAD, 0xDE]);
        expected[68] = 2;
        expected[72] = 12;
        expected[80] = 128;
        expected.extend(ones);
        assert_eq!(writer.finish(), expected);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let mut writer = WeightsWriter::new();
        let refused = writer.push(DataType::Float64, 1, &[0; 8]);
        assert_eq!(refused, Err(BlobError::Type(DataType::Float64)));
        assert!(matches!(
            writer.push(DataType::Int4, 3, &[0; 3]),
            Err(BlobError::Size { expected: 2, .. })
        ));
    }

    #[test]
    fn damage_is_told() {
        let mut writer = WeightsWriter::new();
        let at = writer.push(DataType::Float32, 2, &[1; 8]).unwrap();
        let file = writer.finish();
        assert!(blob(&file, at).is_ok());
        for cut in [0, 4, 64, 100, 128, file.len() - 1] {
            assert!(blob(&file[..cut], at).is_err(), "{cut}");
        }
        for wrong in [0, 1, 128, 1 << 40, u64::MAX] {
            assert!(blob(&file, wrong).is_err(), "{wrong}");
        }
        for (byte, value) in [(4, 3), (64, 0), (79, 0xFF), (80, 1), (87, 0xFF)] {
            let mut damaged = file.clone();
            damaged[byte] = value;
            assert!(blob(&damaged, at).is_err(), "byte {byte}");
        }
    }
}
