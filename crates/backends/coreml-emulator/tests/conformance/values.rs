//! Elements of graphs as numbers.

use half::f16;
use rustorch_ir::DType;

/// Numbers as memory holds them in `dtype`.
pub(crate) fn encode(dtype: DType, x: &[f64]) -> Vec<u8> {
    fn each<const N: usize>(x: &[f64], f: impl Fn(f64) -> [u8; N]) -> Vec<u8> {
        x.iter().flat_map(|&x| f(x)).collect()
    }
    match dtype {
        DType::F32 => each(x, |x| (x as f32).to_ne_bytes()),
        DType::F16 => each(x, |x| f16::from_f64(x).to_ne_bytes()),
        DType::I64 => each(x, |x| (x as i64).to_ne_bytes()),
        DType::I32 => each(x, |x| (x as i32).to_ne_bytes()),
        DType::Bool => each(x, |x| [u8::from(x != 0.0)]),
        // No program has these types: only the number of bytes counts.
        other => vec![0; x.len() * other.size().unwrap_or_default()],
    }
}

/// Numbers that memory holds in `dtype`.
pub(crate) fn decode(dtype: DType, bytes: &[u8]) -> Vec<f64> {
    fn each<const N: usize>(bytes: &[u8], f: impl Fn([u8; N]) -> f64) -> Vec<f64> {
        bytes.as_chunks().0.iter().map(|&x| f(x)).collect()
    }
    match dtype {
        DType::F32 => each(bytes, |x| f32::from_ne_bytes(x).into()),
        DType::F16 => each(bytes, |x| f16::from_ne_bytes(x).into()),
        DType::I64 => each(bytes, |x| i64::from_ne_bytes(x) as f64),
        DType::I32 => each(bytes, |x| i32::from_ne_bytes(x).into()),
        DType::Bool => each(bytes, |[x]| f64::from(x)),
        other => unreachable!("{other} is in no program"),
    }
}
