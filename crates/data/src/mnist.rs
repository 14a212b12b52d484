//! The format IDX, and MNIST's files in it.
//!
//! Source: <http://yann.lecun.com/exdb/mnist>. A file has two zeros, the type of the elements, the
//! rank, the sizes, and the elements. All numbers are big-endian.

use std::io::{self, Read};
use std::path::Path;

use flate2::read::MultiGzDecoder;
use rustorch_ir::DType;
use rustorch_tensor::{Element, Tensor};

use crate::dataset::TensorDataset;
use crate::error::{DataError, DataResult, reading};

/// A part of a data set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    /// Training samples.
    Train,
    /// Test samples.
    Test,
}

/// MNIST, Fashion-MNIST or another set with the same file names: images `[n, 1, 28, 28]`, `u8`, and
/// labels `[n]`, `i64`. Files may be compressed (`.gz`).
///
/// # Errors
/// Fails if a file is missing, damaged, or of another shape.
pub fn mnist(folder: impl AsRef<Path>, split: Split) -> DataResult<TensorDataset> {
    let part = match split {
        Split::Train => "train",
        Split::Test => "t10k",
    };
    let file = |what: &str| {
        let path = folder.as_ref().join(format!("{part}-{what}-ubyte"));
        let compressed = path.with_extension("gz");
        match !path.exists() && compressed.exists() {
            true => compressed,
            false => path,
        }
    };
    let (images, labels) = (file("images-idx3"), file("labels-idx1"));
    let [pictures, numbers] = [read_idx(&images)?, read_idx(&labels)?];
    if pictures.rank() != 3 || numbers.rank() != 1 {
        let shapes = [pictures.shape(), numbers.shape()];
        let problem = format!("expected images [n, h, w] and labels [n], got {shapes:?}");
        return Err(DataError::in_file(&images, DataError::Damaged(problem)));
    }
    let made = TensorDataset::new(vec![pictures.unsqueeze(1)?, numbers.to_dtype(DType::I64)?]);
    made.map_err(|error| DataError::in_file(&images, error))
}

/// The tensor of a file in the format IDX, which may be compressed by gzip.
///
/// # Errors
/// Fails if the file cannot be read or is damaged.
pub fn read_idx(path: impl AsRef<Path>) -> DataResult<Tensor> {
    reading(path.as_ref(), |source| parse_idx(source))
}

/// The tensor in a file's bytes, as [`read_idx`].
///
/// # Errors
/// The errors of that method.
pub fn parse_idx(bytes: &[u8]) -> DataResult<Tensor> {
    match bytes.starts_with(&[0x1f, 0x8b]) {
        true => parse(MultiGzDecoder::new(bytes)),
        false => parse(bytes),
    }
}

fn parse(mut bytes: impl Read) -> DataResult<Tensor> {
    let mut magic = [0; 4];
    exact(&mut bytes, &mut magic)?;
    let [0, 0, ty, rank] = magic else {
        let problem = "this is not a file of the format IDX; it begins with other bytes";
        return Err(DataError::Damaged(problem.to_owned()));
    };
    let mut shape = Vec::new();
    for _ in 0..rank {
        let mut side = [0; 4];
        exact(&mut bytes, &mut side)?;
        shape.push(u32::from_be_bytes(side) as usize);
    }
    match ty {
        0x08 => elements(bytes, shape, u8::from_be_bytes),
        0x09 => elements(bytes, shape, i8::from_be_bytes),
        0x0b => elements(bytes, shape, i16::from_be_bytes),
        0x0c => elements(bytes, shape, i32::from_be_bytes),
        0x0d => elements(bytes, shape, f32::from_be_bytes),
        0x0e => elements(bytes, shape, f64::from_be_bytes),
        ty => Err(DataError::Damaged(format!(
            "the elements' type {ty:#04x} is none of the format IDX"
        ))),
    }
}

fn elements<T: Element, const N: usize>(
    bytes: impl Read,
    shape: Vec<usize>,
    element: impl Fn([u8; N]) -> T,
) -> DataResult<Tensor> {
    // Distances of elements have to be numbers, too, where there are no elements.
    let size = (shape.iter()).try_fold(N, |size, &side| size.checked_mul(side.max(1)));
    let size = size.map(|size| if shape.contains(&0) { 0 } else { size });
    let size = size.and_then(|size| u64::try_from(size).ok());
    let wrong = || DataError::Damaged(format!("the file has not the elements of {shape:?}"));
    let size = size.filter(|&size| size < u64::MAX).ok_or_else(wrong)?;
    let mut all = Vec::new();
    bytes.take(size + 1).read_to_end(&mut all)?;
    if all.len() as u64 != size {
        return Err(wrong());
    }
    let (all, _) = all.as_chunks::<N>();
    let all: Vec<T> = all.iter().map(|&bytes| element(bytes)).collect();
    Ok(Tensor::from_vec(all, shape)?)
}

fn exact(bytes: &mut impl Read, to: &mut [u8]) -> DataResult<()> {
    bytes.read_exact(to).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => {
            DataError::Damaged("the file ends within its header".to_owned())
        }
        _ => error.into(),
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;
    use crate::Dataset;

    fn idx(ty: u8, shape: &[u32], elements: &[u8]) -> Vec<u8> {
        let mut file = vec![0, 0, ty, shape.len() as u8];
        file.extend(shape.iter().flat_map(|side| side.to_be_bytes()));
        file.extend(elements);
        file
    }

    fn compressed(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn elements_have_the_high_byte_first() {
        let tensor = parse_idx(&idx(0x0b, &[2, 1], &[1, 2, 255, 254])).unwrap();
        assert_eq!(tensor.shape(), [2, 1]);
        assert_eq!(tensor.to_vec::<i16>().unwrap(), [258, -2]);
        let tensor = parse_idx(&compressed(&idx(8, &[3], &[7, 8, 9]))).unwrap();
        assert_eq!(tensor.to_vec::<u8>().unwrap(), [7, 8, 9]);
    }

    #[test]
    fn images_with_their_labels() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, bytes: Vec<u8>| {
            std::fs::write(folder.path().join(name), bytes).unwrap();
        };
        write("t10k-images-idx3-ubyte", idx(8, &[2, 1, 2], &[1, 2, 3, 4]));
        write(
            "t10k-labels-idx1-ubyte.gz",
            compressed(&idx(8, &[2], &[5, 6])),
        );
        let samples = mnist(folder.path(), Split::Test).unwrap();
        let batch = samples.get_batch(&[1]).unwrap();
        assert_eq!(batch[0].shape(), [1, 1, 1, 2]);
        assert_eq!(batch[0].to_vec::<u8>().unwrap(), [3, 4]);
        assert_eq!(batch[1].to_vec::<i64>().unwrap(), [6]);
        let error = mnist(folder.path(), Split::Train)
            .err()
            .unwrap()
            .to_string();
        assert!(error.contains("train-images-idx3-ubyte"), "{error}");
        write("t10k-labels-idx1-ubyte.gz", idx(8, &[3], &[5, 6, 7]));
        let error = mnist(folder.path(), Split::Test).err().unwrap().to_string();
        assert!(error.contains("equally many rows"), "{error}");
    }

    #[test]
    fn what_is_wrong_is_told_in_a_line() {
        for (bytes, told) in [
            (b"PK\x03\x04".to_vec(), "not a file of the format IDX"),
            (idx(8, &[3], &[1, 2]), "has not the elements of [3]"),
            (idx(8, &[1], &[1, 2]), "has not the elements of [1]"),
            (idx(7, &[1], &[1]), "type 0x07"),
            (idx(8, &[u32::MAX; 3], &[]), "has not the elements"),
            (
                idx(8, &[0, u32::MAX, u32::MAX, u32::MAX], &[]),
                "has not the elements",
            ),
            (
                idx(8, &[u32::MAX, u32::MAX, u32::MAX, 0], &[]),
                "has not the elements",
            ),
            (idx(8, &[2; 255], &[]), "has not the elements"),
            (vec![0, 0, 8, 2, 0], "ends within its header"),
        ] {
            let error = parse_idx(&bytes).unwrap_err().to_string();
            assert!(error.contains(told) && !error.contains('\n'), "{error}");
        }
    }
}
