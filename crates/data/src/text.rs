//! Texts.

use std::path::Path;

use rustorch_files::Source;
use rustorch_tensor::Tensor;

use crate::dataset::{Batch, Dataset};
use crate::error::{DataError, DataResult, reading};

/// Windows of a UTF-8 text without overlap, for byte-level models: tensors `[length]` of bytes,
/// `i64`, and of the byte after each. The file is mapped, so that it may be larger than memory.
pub struct TextDataset {
    text: Source,
    length: usize,
}

impl TextDataset {
    /// The samples of a file, each of `length` bytes.
    ///
    /// # Errors
    /// Fails if the file cannot be read, is not UTF-8, or has no such sample.
    pub fn open(path: impl AsRef<Path>, length: usize) -> DataResult<Self> {
        reading(path.as_ref(), |source| Self::new(source.clone(), length))
    }

    /// The samples of a byte string.
    ///
    /// # Errors
    /// The same errors as [`Self::open`].
    pub fn new(text: Source, length: usize) -> DataResult<Self> {
        if let Err(error) = std::str::from_utf8(&text) {
            let at = error.valid_up_to();
            return Err(DataError::Damaged(format!(
                "the text is not UTF-8: byte {at} is wrong; convert it first"
            )));
        }
        if length == 0 || text.len() <= length {
            return Err(DataError::Damaged(format!(
                "samples of {length} bytes, and the bytes after them, cannot be made of {}",
                text.len()
            )));
        }
        Ok(Self { text, length })
    }
}

impl Dataset for TextDataset {
    fn len(&self) -> usize {
        (self.text.len() - 1) / self.length
    }

    fn get(&self, index: usize) -> DataResult<Batch> {
        let begin = index * self.length;
        let bytes = |begin: usize| -> DataResult<Tensor> {
            let bytes = &self.text[begin..][..self.length];
            let ids: Vec<i64> = bytes.iter().map(|&byte| byte.into()).collect();
            Ok(Tensor::from_vec(ids, self.length)?)
        };
        Ok(vec![bytes(begin)?, bytes(begin + 1)?])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(bytes: &'static [u8], length: usize) -> DataResult<TextDataset> {
        TextDataset::new(Source::from(bytes), length)
    }

    #[test]
    fn samples_are_bytes_and_those_behind() {
        let text = text("über".as_bytes(), 2).unwrap();
        assert_eq!(text.len(), 2);
        let batch = text.get_batch(&[1, 0]).unwrap();
        assert_eq!(batch[0].to_vec::<i64>().unwrap(), [98, 101, 195, 188]);
        assert_eq!(batch[1].to_vec::<i64>().unwrap(), [101, 114, 188, 98]);
    }

    #[test]
    fn what_is_no_text_is_told_in_a_line() {
        for (bytes, length, told) in [
            (b"ab\xff".as_slice(), 1, "byte 2 is wrong"),
            (b"ab", 2, "cannot be made of 2"),
            (b"", 1, "cannot be made of 0"),
            (b"ab", 0, "samples of 0 bytes"),
        ] {
            let error = text(bytes, length).err().unwrap().to_string();
            assert!(error.contains(told) && !error.contains('\n'), "{error}");
        }
    }
}
