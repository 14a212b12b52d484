//! A tensor's entry in a GGUF file.

use std::ops::Range;

use crate::{GgmlType, GgufError, error::TensorProblem};

/// A tensor of a GGUF file: its name, dimensions and type, and the position of its data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    /// The name, unique in its model.
    pub name: String,
    /// The dimensions in ggml's order, the fastest first; none for a scalar.
    pub dims: Vec<u64>,
    /// The element type.
    pub ty: GgmlType,
    bytes: usize,
    /// The part of a split model with the data.
    pub(crate) part: usize,
    /// The offset of the data in that part.
    pub(crate) start: usize,
}

impl TensorInfo {
    /// Most dimensions that a tensor can have (`GGML_MAX_DIMS` in ggml.h).
    pub const MAX_DIMS: usize = 4;

    /// A tensor that has no place in a file yet. Fails if no data could have these dimensions and this type.
    pub(crate) fn new(name: String, dims: Vec<u64>, ty: GgmlType) -> Result<Self, GgufError> {
        match data_bytes(&dims, ty) {
            Ok(bytes) => Ok(TensorInfo {
                name,
                dims,
                ty,
                bytes,
                part: 0,
                start: 0,
            }),
            Err(problem) => Err(GgufError::Tensor { name, problem }),
        }
    }

    /// The dimensions in row-major order, the slowest first, as PyTorch writes them.
    pub fn shape(&self) -> Vec<usize> {
        // No truncation: their product was checked to fit.
        self.dims.iter().rev().map(|&dim| dim as usize).collect()
    }

    /// The number of elements.
    pub fn elements(&self) -> usize {
        self.bytes / self.ty.block_bytes() * self.ty.block_len()
    }

    /// The size of the data in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Fails, naming tensor and type, if RusTorch cannot compute with the type.
    pub fn ensure_supported(&self) -> Result<(), GgufError> {
        if self.ty.is_supported() {
            Ok(())
        } else {
            Err(GgufError::tensor(
                &self.name,
                TensorProblem::Unsupported { ty: self.ty },
            ))
        }
    }

    /// The bytes of its part that hold the data.
    pub(crate) fn range(&self) -> Range<usize> {
        self.start..self.start + self.bytes
    }
}

/// The size of a tensor's data, checked to be addressable.
fn data_bytes(dims: &[u64], ty: GgmlType) -> Result<usize, TensorProblem> {
    if dims.len() > TensorInfo::MAX_DIMS {
        return Err(TensorProblem::TooManyDims {
            count: dims.len() as u64,
            limit: TensorInfo::MAX_DIMS,
        });
    }
    if dims.contains(&0) {
        return Err(TensorProblem::ZeroDim {
            dims: dims.to_vec(),
        });
    }
    let row = dims.first().copied().unwrap_or(1);
    if row % ty.block_len() as u64 != 0 {
        return Err(TensorProblem::PartialBlock { row, ty });
    }
    let fits = |size: &u64| isize::try_from(*size).is_ok();
    dims.iter()
        .try_fold(1u64, |product, &dim| product.checked_mul(dim))
        .filter(fits)
        .and_then(|elements| {
            (elements / ty.block_len() as u64).checked_mul(ty.block_bytes() as u64)
        })
        .filter(fits)
        .map(|bytes| bytes as usize)
        .ok_or_else(|| TensorProblem::Overflow {
            dims: dims.to_vec(),
        })
}

/// The tensors' positions sorted by name, to find them with [`find`]. Fails if two have the same name.
pub(crate) fn sort_by_name(tensors: &[TensorInfo]) -> Result<Vec<usize>, GgufError> {
    let mut order: Vec<usize> = (0..tensors.len()).collect();
    order.sort_unstable_by_key(|&i| &tensors[i].name);
    match order
        .windows(2)
        .find(|pair| tensors[pair[0]].name == tensors[pair[1]].name)
    {
        Some(pair) => Err(GgufError::tensor(
            &tensors[pair[0]].name,
            TensorProblem::Duplicate,
        )),
        None => Ok(order),
    }
}

/// The tensor of this name, given the order that [`sort_by_name`] returned.
pub(crate) fn find<'a>(
    tensors: &'a [TensorInfo],
    order: &[usize],
    name: &str,
) -> Option<&'a TensorInfo> {
    let found = order
        .binary_search_by_key(&name, |&i| &tensors[i].name)
        .ok()?;
    Some(&tensors[order[found]])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(dims: &[u64], ty: GgmlType) -> Result<TensorInfo, GgufError> {
        TensorInfo::new("t".into(), dims.to_vec(), ty)
    }

    #[test]
    fn sizes_and_shapes_follow_from_dims_and_type() {
        let matrix = info(&[512, 3], GgmlType::Q4K).unwrap();
        assert_eq!(
            (matrix.shape(), matrix.elements(), matrix.bytes()),
            (vec![3, 512], 1536, 6 * 144)
        );
        let scalar = info(&[], GgmlType::F64).unwrap();
        assert_eq!(
            (scalar.shape(), scalar.elements(), scalar.bytes()),
            (vec![], 1, 8)
        );
    }

    #[test]
    fn impossible_dims_are_refused() {
        let cases = [
            (
                info(&[1; 5], GgmlType::F32),
                "tensor `t`: it has 5 dimensions, but at most 4",
            ),
            (
                info(&[4, 0], GgmlType::F32),
                "tensor `t`: its dimensions [4, 0] contain a zero",
            ),
            (info(&[1 << 40, 1 << 40], GgmlType::F32), "too large"),
            (info(&[1 << 61], GgmlType::F64), "too large"),
            (info(&[1 << 63], GgmlType::Q2K), "too large"),
            (
                info(&[100, 2], GgmlType::Q8_0),
                "rows of 100 elements are not whole Q8_0 blocks of 32",
            ),
            (
                info(&[33, 2, 4], GgmlType::Mxfp4),
                "rows of 33 elements are not whole MXFP4 blocks of 32",
            ),
        ];
        for (result, expected) in cases {
            let message = result.unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
        }
    }

    #[test]
    fn unsupported_types_are_named_with_the_tensor() {
        assert!(
            info(&[256], GgmlType::Q6K)
                .unwrap()
                .ensure_supported()
                .is_ok()
        );
        let message = info(&[256], GgmlType::Iq2Xxs)
            .unwrap()
            .ensure_supported()
            .unwrap_err()
            .to_string();
        assert!(
            message.starts_with("tensor `t`: tensor type IQ2_XXS is not supported"),
            "{message}"
        );
    }
}
