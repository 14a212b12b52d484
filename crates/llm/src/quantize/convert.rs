//! Tensor data from one type to another, rows in parallel.

use std::num::NonZero;
use std::panic::resume_unwind;
use std::sync::{Mutex, PoisonError};
use std::thread::{self, ScopedJoinHandle};

use half::{bf16, f16};
use rustorch_gguf::GgmlType;
use rustorch_quant::QuantError;
use thiserror::Error;

/// Elements that a thread converts at a time: enough to outweigh handing them out.
const CHUNK: usize = 64 * 1024;

/// The reason why a tensor cannot be converted.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub(crate) enum ConvertError {
    /// One of the types holds no real numbers that RusTorch computes with.
    #[error("type {ty} cannot be converted; start from a file in F32, F16 or BF16")]
    Type {
        /// The type.
        ty: GgmlType,
    },
    /// An input is NaN or infinite in `f32`.
    #[error("it contains NaN, infinity or a value beyond f32; check that the file is not damaged")]
    NotFinite,
    /// A finite input has no finite value in the new type.
    #[error("its values are too large for {ty}; choose BF16 or F32")]
    Overflow {
        /// The new type.
        ty: GgmlType,
    },
    /// The rows are not whole blocks.
    #[error(transparent)]
    Blocks(#[from] QuantError),
}

/// Whether [`convert`] can read this type.
pub(super) fn is_convertible(ty: GgmlType) -> bool {
    let is_float = matches!(
        ty,
        GgmlType::F64 | GgmlType::F32 | GgmlType::F16 | GgmlType::BF16
    );
    is_float || ty.block_format().is_some()
}

/// The data `src` of type `from`, rows of `row` elements, as type `to`.
pub(crate) fn convert(
    src: &[u8],
    from: GgmlType,
    to: GgmlType,
    row: usize,
    threads: NonZero<usize>,
) -> Result<Vec<u8>, ConvertError> {
    let elements = src.len() / from.block_bytes() * from.block_len();
    let bytes = |ty: GgmlType, elements: usize| elements / ty.block_len() * ty.block_bytes();
    let mut dst = vec![0; bytes(to, elements)];
    let chunk = row * (CHUNK / row).max(1);
    let chunks = src
        .chunks(bytes(from, chunk))
        .zip(dst.chunks_mut(bytes(to, chunk)));
    let workers = (threads.get() - 1).min(chunks.len().saturating_sub(1));
    let chunks = Mutex::new(chunks);
    let next = || chunks.lock().unwrap_or_else(PoisonError::into_inner).next();
    let work = || -> Result<(), ConvertError> {
        let mut values = Vec::new();
        while let Some((src, dst)) = next() {
            values.resize(src.len() / from.block_bytes() * from.block_len(), 0.0);
            convert_chunk(src, from, dst, to, &mut values)?;
        }
        Ok(())
    };
    thread::scope(|scope| {
        // Threads that the system refuses are only workers.
        let workers: Vec<_> = (0..workers)
            .map_while(|_| thread::Builder::new().spawn_scoped(scope, work).ok())
            .collect();
        let join = |worker: ScopedJoinHandle<_>| {
            worker.join().unwrap_or_else(|panic| resume_unwind(panic))
        };
        let mine = work();
        workers.into_iter().map(join).fold(mine, Result::and)
    })?;
    Ok(dst)
}

/// Converts whole rows by way of `values`, one for each element.
fn convert_chunk(
    src: &[u8],
    from: GgmlType,
    dst: &mut [u8],
    to: GgmlType,
    values: &mut [f32],
) -> Result<(), ConvertError> {
    let all_finite = |values: &[f32]| values.iter().all(|value| value.is_finite());
    decode(from, src, values)?;
    if !all_finite(values) {
        return Err(ConvertError::NotFinite);
    }
    encode(to, values, dst)?;
    // Beyond the range of f16 elements and scales become infinite.
    decode(to, dst, values)?;
    if !all_finite(values) {
        return Err(ConvertError::Overflow { ty: to });
    }
    Ok(())
}

fn decode(ty: GgmlType, src: &[u8], dst: &mut [f32]) -> Result<(), ConvertError> {
    fn each<const N: usize>(src: &[u8], dst: &mut [f32], decode: impl Fn([u8; N]) -> f32) {
        dst.iter_mut()
            .zip(src.as_chunks().0)
            .for_each(|(value, bytes)| *value = decode(*bytes));
    }
    match ty {
        GgmlType::F64 => each(src, dst, |bytes| f64::from_le_bytes(bytes) as f32),
        GgmlType::F32 => each(src, dst, f32::from_le_bytes),
        GgmlType::F16 => each(src, dst, |bytes| f16::from_le_bytes(bytes).to_f32()),
        GgmlType::BF16 => each(src, dst, |bytes| bf16::from_le_bytes(bytes).to_f32()),
        _ => ty
            .block_format()
            .ok_or(ConvertError::Type { ty })?
            .dequantize(src, dst)?,
    }
    Ok(())
}

fn encode(ty: GgmlType, src: &[f32], dst: &mut [u8]) -> Result<(), ConvertError> {
    fn each<const N: usize>(src: &[f32], dst: &mut [u8], encode: impl Fn(f32) -> [u8; N]) {
        dst.as_chunks_mut()
            .0
            .iter_mut()
            .zip(src)
            .for_each(|(bytes, value)| *bytes = encode(*value));
    }
    match ty {
        GgmlType::F32 => each(src, dst, f32::to_le_bytes),
        GgmlType::F16 => each(src, dst, |value| f16::from_f32(value).to_le_bytes()),
        GgmlType::BF16 => each(src, dst, |value| bf16::from_f32(value).to_le_bytes()),
        _ => ty
            .block_format()
            .ok_or(ConvertError::Type { ty })?
            .quantize(src, dst)?,
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: NonZero<usize> = NonZero::<usize>::MIN;

    fn bytes(values: &[f32]) -> Vec<u8> {
        values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect()
    }

    /// Values that f16 and bf16 hold exactly.
    fn ramp(n: usize) -> Vec<u8> {
        let values: Vec<f32> = (0..n).map(|i| (i % 256) as f32 - 128.0).collect();
        bytes(&values)
    }

    #[test]
    fn scalar_types_convert_into_each_other() {
        let f32s = ramp(700);
        for ty in [GgmlType::F16, GgmlType::BF16] {
            let narrow = convert(&f32s, GgmlType::F32, ty, 7, ONE).unwrap();
            assert_eq!(narrow.len(), f32s.len() / 2);
            assert_eq!(convert(&narrow, ty, GgmlType::F32, 7, ONE).unwrap(), f32s);
        }
    }

    #[test]
    fn doubles_are_rounded() {
        let doubles = |values: &[f64]| -> Vec<u8> {
            values
                .iter()
                .flat_map(|value| value.to_le_bytes())
                .collect()
        };
        let single = |src: &[u8]| convert(src, GgmlType::F64, GgmlType::F32, 2, ONE);
        let rounded = single(&doubles(&[0.5, 0.1]));
        assert_eq!(rounded, Ok(bytes(&[0.5, 0.1])));
        let too_large = single(&doubles(&[1.0, 1e300]));
        assert_eq!(too_large, Err(ConvertError::NotFinite));
    }

    #[test]
    fn threads_do_not_change_the_result() {
        let src = ramp(3 * CHUNK / 2);
        let many = NonZero::new(1_000_000).unwrap();
        for row in [32, 3 * CHUNK / 2] {
            let alone = convert(&src, GgmlType::F32, GgmlType::Q8_0, row, ONE).unwrap();
            assert_eq!(alone.len(), 3 * CHUNK / 2 / 32 * 34);
            assert_eq!(
                convert(&src, GgmlType::F32, GgmlType::Q8_0, row, many).unwrap(),
                alone
            );
        }
    }

    #[test]
    fn values_that_are_not_finite_are_refused() {
        for bad in [f32::NAN, f32::INFINITY] {
            let mut values = [1.0; 64];
            values[40] = bad;
            let result = convert(&bytes(&values), GgmlType::F32, GgmlType::Q8_0, 32, ONE);
            assert_eq!(result, Err(ConvertError::NotFinite));
        }
        let large = bytes(&[1e30; 32]);
        for ty in [GgmlType::F16, GgmlType::Q4_0, GgmlType::Q8_0] {
            let result = convert(&large, GgmlType::F32, ty, 32, ONE);
            assert_eq!(result, Err(ConvertError::Overflow { ty }));
        }
        assert!(convert(&large, GgmlType::F32, GgmlType::BF16, 32, ONE).is_ok());
    }

    #[test]
    fn integers_are_refused() {
        let result = convert(&[0; 128], GgmlType::I32, GgmlType::Q8_0, 32, ONE);
        assert_eq!(result, Err(ConvertError::Type { ty: GgmlType::I32 }));
    }
}
