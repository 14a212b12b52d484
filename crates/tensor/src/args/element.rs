//! Rust types of tensor elements.

use bytemuck::{CheckedBitPattern, NoUninit};
use half::{bf16, f16};
use num_complex::Complex;
use rustorch_ir::{DType, F8E4M3, F8E5M2};

/// A Rust type that is a scalar dtype.
pub trait Element:
    NoUninit + CheckedBitPattern + PartialEq + std::fmt::Debug + Send + Sync
{
    /// The dtype.
    const DTYPE: DType;

    /// The element in `bytes`, in the machine's byte order.
    fn from_bytes(bytes: &[u8]) -> Self;
}

macro_rules! elements {
    ($($type:ty => $dtype:ident),* $(,)?) => {
        $(impl Element for $type {
            const DTYPE: DType = DType::$dtype;

            fn from_bytes(bytes: &[u8]) -> Self {
                bytemuck::pod_read_unaligned(bytes)
            }
        })*
    };
}

elements! {
    f64 => F64,
    f32 => F32,
    f16 => F16,
    bf16 => BF16,
    F8E4M3 => F8E4M3,
    F8E5M2 => F8E5M2,
    i64 => I64,
    i32 => I32,
    i16 => I16,
    i8 => I8,
    u8 => U8,
    u16 => U16,
    u32 => U32,
    u64 => U64,
    Complex<f32> => Complex64,
    Complex<f64> => Complex128,
}

impl Element for bool {
    const DTYPE: DType = DType::Bool;

    fn from_bytes(bytes: &[u8]) -> Self {
        bytes[0] != 0
    }
}
