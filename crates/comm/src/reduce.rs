//! Reduction of the elements of several ranks.
//!
//! Elements are combined in the order of ranks, so that results do not depend on timing. Halves are
//! combined in `f32` and rounded once.

use std::{fmt, mem};

use half::{bf16, f16};
use serde::{Deserialize, Serialize};

use crate::{Collective, CommError, DType};

/// A reduction over ranks.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum ReduceOp {
    /// The sum. Sums of integers wrap.
    Sum,
    /// The sum divided by the number of ranks. Integers are rounded towards 0.
    Avg,
    /// The product. Products of integers wrap.
    Product,
    /// The least element; NaN if one is NaN.
    Min,
    /// The greatest element; NaN if one is NaN.
    Max,
    /// Bitwise and, of integers.
    BitAnd,
    /// Bitwise or, of integers.
    BitOr,
    /// Bitwise exclusive or, of integers.
    BitXor,
    /// The sum after multiplication by a factor, which each rank chooses for its elements. For floats.
    PremulSum(#[serde(with = "bits")] f64),
}

/// A factor as its bits: JSON has neither NaN nor infinities.
mod bits {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(factor: &f64, to: S) -> Result<S::Ok, S::Error> {
        factor.to_bits().serialize(to)
    }

    pub(super) fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<f64, D::Error> {
        u64::deserialize(from).map(f64::from_bits)
    }
}

impl ReduceOp {
    /// The name that PyTorch has for it.
    pub const fn name(self) -> &'static str {
        match self {
            ReduceOp::Sum => "sum",
            ReduceOp::Avg => "avg",
            ReduceOp::Product => "product",
            ReduceOp::Min => "min",
            ReduceOp::Max => "max",
            ReduceOp::BitAnd => "band",
            ReduceOp::BitOr => "bor",
            ReduceOp::BitXor => "bxor",
            ReduceOp::PremulSum(_) => "premul_sum",
        }
    }

    /// Returns whether the reduction supports elements of `dtype`.
    pub const fn takes(self, dtype: DType) -> bool {
        match self {
            ReduceOp::BitAnd | ReduceOp::BitOr | ReduceOp::BitXor => !dtype.is_float(),
            ReduceOp::PremulSum(_) => dtype.is_float(),
            _ => true,
        }
    }

    /// Refuses a reduction that elements of `dtype` do not have.
    pub(crate) fn check(self, collective: Collective, dtype: DType) -> Result<(), CommError> {
        if self.takes(dtype) {
            return Ok(());
        }
        let others = if dtype.is_float() {
            "integers"
        } else {
            "floats"
        };
        Err(CommError::Invalid(format!(
            "{collective}: {self} is for {others}, not for {dtype}"
        )))
    }

    /// True for the same reduction. Factors may differ between ranks.
    pub(crate) fn agrees(self, other: Self) -> bool {
        mem::discriminant(&self) == mem::discriminant(&other)
    }

    pub(crate) fn factor(self) -> f64 {
        match self {
            ReduceOp::PremulSum(factor) => factor,
            _ => 1.0,
        }
    }
}

impl fmt::Display for ReduceOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The elements of one rank.
#[derive(Clone, Copy)]
pub(crate) struct Part<'a> {
    pub(crate) bytes: &'a [u8],
    /// The rank's factor of [`ReduceOp::PremulSum`].
    pub(crate) factor: f64,
}

/// Writes the reduction of `parts`, in their order, to `out`. All have the same number of bytes.
pub(crate) fn reduce(dtype: DType, op: ReduceOp, parts: &[Part<'_>], out: &mut [u8]) {
    match dtype {
        DType::U8 => reduce_numbers::<u8>(op, parts, out),
        DType::I8 => reduce_numbers::<i8>(op, parts, out),
        DType::U16 => reduce_numbers::<u16>(op, parts, out),
        DType::I16 => reduce_numbers::<i16>(op, parts, out),
        DType::U32 => reduce_numbers::<u32>(op, parts, out),
        DType::I32 => reduce_numbers::<i32>(op, parts, out),
        DType::U64 => reduce_numbers::<u64>(op, parts, out),
        DType::I64 => reduce_numbers::<i64>(op, parts, out),
        DType::F16 => reduce_numbers::<f16>(op, parts, out),
        DType::BF16 => reduce_numbers::<bf16>(op, parts, out),
        DType::F32 => reduce_numbers::<f32>(op, parts, out),
        DType::F64 => reduce_numbers::<f64>(op, parts, out),
    }
}

fn reduce_numbers<T: Number>(op: ReduceOp, parts: &[Part<'_>], out: &mut [u8]) {
    let same = |x: T::Wide, _| x;
    let done = |x: T::Wide| x;
    match op {
        ReduceOp::Sum => combine::<T>(parts, out, same, T::add, done),
        ReduceOp::Avg => combine::<T>(parts, out, same, T::add, |x| T::divide(x, parts.len())),
        ReduceOp::Product => combine::<T>(parts, out, same, T::multiply, done),
        ReduceOp::Min => combine::<T>(parts, out, same, T::least, done),
        ReduceOp::Max => combine::<T>(parts, out, same, T::greatest, done),
        ReduceOp::PremulSum(_) => combine::<T>(parts, out, T::scale, T::add, done),
        ReduceOp::BitAnd => combine_bytes(parts, out, |a, b| a & b),
        ReduceOp::BitOr => combine_bytes(parts, out, |a, b| a | b),
        ReduceOp::BitXor => combine_bytes(parts, out, |a, b| a ^ b),
    }
}

/// Elements that are combined before the next ones: few enough for the first cache.
const BLOCK: usize = 1024;

fn combine<T: Number>(
    parts: &[Part<'_>],
    out: &mut [u8],
    before: impl Fn(T::Wide, f64) -> T::Wide,
    join: impl Fn(T::Wide, T::Wide) -> T::Wide,
    after: impl Fn(T::Wide) -> T::Wide,
) {
    let Some((first, rest)) = parts.split_first() else {
        return;
    };
    let size = size_of::<T>();
    let mut sums = Vec::with_capacity(BLOCK);
    for (index, block) in out.chunks_mut(BLOCK * size).enumerate() {
        let start = index * BLOCK * size;
        let place = start..start + block.len();
        sums.clear();
        sums.extend(T::load(&first.bytes[place.clone()]).map(|x| before(x, first.factor)));
        for part in rest {
            for (sum, x) in sums.iter_mut().zip(T::load(&part.bytes[place.clone()])) {
                *sum = join(*sum, before(x, part.factor));
            }
        }
        for (bytes, &sum) in block.chunks_exact_mut(size).zip(&sums) {
            T::store(after(sum), bytes);
        }
    }
}

/// Bitwise operations are the same for all integers.
fn combine_bytes(parts: &[Part<'_>], out: &mut [u8], join: impl Fn(u8, u8) -> u8) {
    let Some((first, rest)) = parts.split_first() else {
        return;
    };
    out.copy_from_slice(first.bytes);
    for part in rest {
        for (sum, &x) in out.iter_mut().zip(part.bytes) {
            *sum = join(*sum, x);
        }
    }
}

trait Number: Sized {
    /// The type in which elements are combined.
    type Wide: Copy;

    fn load(bytes: &[u8]) -> impl Iterator<Item = Self::Wide>;
    fn store(x: Self::Wide, bytes: &mut [u8]);
    fn add(a: Self::Wide, b: Self::Wide) -> Self::Wide;
    fn multiply(a: Self::Wide, b: Self::Wide) -> Self::Wide;
    fn least(a: Self::Wide, b: Self::Wide) -> Self::Wide;
    fn greatest(a: Self::Wide, b: Self::Wide) -> Self::Wide;
    fn divide(x: Self::Wide, by: usize) -> Self::Wide;
    fn scale(x: Self::Wide, by: f64) -> Self::Wide;
}

/// Elements of bytes that need not be aligned.
macro_rules! memory {
    ($number:ty, $widen:expr, $narrow:expr) => {
        fn load(bytes: &[u8]) -> impl Iterator<Item = Self::Wide> {
            let (elements, _) = bytes.as_chunks();
            elements
                .iter()
                .map(|x| ($widen)(<$number>::from_ne_bytes(*x)))
        }

        fn store(x: Self::Wide, bytes: &mut [u8]) {
            let narrow: $number = ($narrow)(x);
            bytes.copy_from_slice(&narrow.to_ne_bytes());
        }
    };
}

macro_rules! integers {
    ($($number:ty)*) => {$(
        impl Number for $number {
            type Wide = Self;

            memory!($number, |x| x, |x| x);

            fn add(a: Self, b: Self) -> Self {
                a.wrapping_add(b)
            }

            fn multiply(a: Self, b: Self) -> Self {
                a.wrapping_mul(b)
            }

            fn least(a: Self, b: Self) -> Self {
                a.min(b)
            }

            fn greatest(a: Self, b: Self) -> Self {
                a.max(b)
            }

            fn divide(x: Self, by: usize) -> Self {
                // The number of ranks may be above the largest element.
                (i128::from(x) / by as i128) as Self
            }

            fn scale(x: Self, by: f64) -> Self {
                (x as f64 * by) as Self
            }
        }
    )*};
}

macro_rules! floats {
    ($($number:ty, $wide:ty, $widen:expr, $narrow:expr;)*) => {$(
        impl Number for $number {
            type Wide = $wide;

            memory!($number, $widen, $narrow);

            fn add(a: $wide, b: $wide) -> $wide {
                a + b
            }

            fn multiply(a: $wide, b: $wide) -> $wide {
                a * b
            }

            fn least(a: $wide, b: $wide) -> $wide {
                if a.is_nan() || a < b { a } else { b }
            }

            fn greatest(a: $wide, b: $wide) -> $wide {
                if a.is_nan() || a > b { a } else { b }
            }

            fn divide(x: $wide, by: usize) -> $wide {
                x / by as $wide
            }

            fn scale(x: $wide, by: f64) -> $wide {
                x * by as $wide
            }
        }
    )*};
}

integers!(u8 i8 u16 i16 u32 i32 u64 i64);

floats! {
    f16, f32, f16::to_f32, f16::from_f32;
    bf16, f32, bf16::to_f32, bf16::from_f32;
    f32, f32, |x| x, |x| x;
    f64, f64, |x| x, |x| x;
}
