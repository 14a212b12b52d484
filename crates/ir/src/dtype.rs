//! Element types.

use std::fmt;
use std::str::FromStr;

pub use rustorch_quant::BlockFormat;

use crate::OpError;

/// The type of a tensor's elements.
///
/// Scalar types support all operations, except 8-bit floats ([`DType::FLOATS8`]), which are stored,
/// moved and cast. [`DType::Block`] types hold weights: rows of quantised blocks that only
/// `linear`, `embedding`, `index_select` and `cast` read.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum DType {
    /// IEEE double precision.
    F64,
    /// IEEE single precision.
    F32,
    /// IEEE half precision.
    F16,
    /// bfloat16: the upper half of an [`DType::F32`].
    BF16,
    /// PyTorch's `float8_e4m3fn`: [`F8E4M3`](crate::F8E4M3).
    F8E4M3,
    /// PyTorch's `float8_e5m2`: [`F8E5M2`](crate::F8E5M2).
    F8E5M2,
    /// 64-bit signed integer.
    I64,
    /// 32-bit signed integer.
    I32,
    /// 16-bit signed integer.
    I16,
    /// 8-bit signed integer.
    I8,
    /// 8-bit unsigned integer.
    U8,
    /// 16-bit unsigned integer.
    U16,
    /// 32-bit unsigned integer.
    U32,
    /// 64-bit unsigned integer.
    U64,
    /// A byte, 0 or 1.
    Bool,
    /// Two [`DType::F32`]: real and imaginary part.
    Complex64,
    /// Two [`DType::F64`]: real and imaginary part.
    Complex128,
    /// Blocks of quantised weights.
    Block(BlockFormat),
}

impl DType {
    /// Every scalar type.
    pub const SCALARS: [Self; 17] = [
        Self::F64,
        Self::F32,
        Self::F16,
        Self::BF16,
        Self::F8E4M3,
        Self::F8E5M2,
        Self::I64,
        Self::I32,
        Self::I16,
        Self::I8,
        Self::U8,
        Self::U16,
        Self::U32,
        Self::U64,
        Self::Bool,
        Self::Complex64,
        Self::Complex128,
    ];
    /// The real floating-point types that support arithmetic.
    pub const FLOATS: [Self; 4] = [Self::F64, Self::F32, Self::F16, Self::BF16];
    /// The 8-bit floats, which are stored, moved and cast.
    pub const FLOATS8: [Self; 2] = [Self::F8E4M3, Self::F8E5M2];
    /// The integer types.
    pub const INTS: [Self; 8] = [
        Self::I64,
        Self::I32,
        Self::I16,
        Self::I8,
        Self::U8,
        Self::U16,
        Self::U32,
        Self::U64,
    ];
    /// The integer types without negative numbers.
    pub const UNSIGNED: [Self; 4] = [Self::U8, Self::U16, Self::U32, Self::U64];
    /// The complex types.
    pub const COMPLEX: [Self; 2] = [Self::Complex64, Self::Complex128];

    /// Bytes of one element; `None` for block formats, whose elements have no address.
    pub fn size(self) -> Option<usize> {
        Some(match self {
            Self::Complex128 => 16,
            Self::F64 | Self::I64 | Self::U64 | Self::Complex64 => 8,
            Self::F32 | Self::I32 | Self::U32 => 4,
            Self::F16 | Self::BF16 | Self::I16 | Self::U16 => 2,
            Self::F8E4M3 | Self::F8E5M2 | Self::I8 | Self::U8 | Self::Bool => 1,
            Self::Block(_) => return None,
        })
    }

    /// Bytes of a contiguous tensor; `None` if they overflow, or if the rows (last dimension) are
    /// not whole blocks.
    pub fn bytes_of(self, shape: &[usize]) -> Option<usize> {
        let product = |dims: &[usize]| dims.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
        match self {
            Self::Block(format) => {
                let (k, rows) = shape.split_last()?;
                format.row_bytes(*k)?.checked_mul(product(rows)?)
            }
            _ => product(shape)?.checked_mul(self.size()?),
        }
    }

    /// Returns whether it is a real floating-point type with arithmetic.
    pub fn is_float(self) -> bool {
        Self::FLOATS.contains(&self)
    }

    /// Returns whether it is an 8-bit float.
    pub fn is_float8(self) -> bool {
        Self::FLOATS8.contains(&self)
    }

    /// Returns whether it is an integer type. `Bool` is not.
    pub fn is_int(self) -> bool {
        Self::INTS.contains(&self)
    }

    /// Returns whether it is an unsigned integer type.
    pub fn is_unsigned(self) -> bool {
        Self::UNSIGNED.contains(&self)
    }

    /// Returns whether it is a complex type.
    pub fn is_complex(self) -> bool {
        Self::COMPLEX.contains(&self)
    }

    /// Returns whether the type supports arithmetic. 8-bit floats and block formats are cast first.
    pub fn is_arithmetic(self) -> bool {
        !self.is_float8() && !self.is_block()
    }

    /// Returns whether it is a block format.
    pub fn is_block(self) -> bool {
        matches!(self, Self::Block(_))
    }

    /// The type of a complex type's parts; other types themselves.
    pub fn real(self) -> Self {
        match self {
            Self::Complex64 => Self::F32,
            Self::Complex128 => Self::F64,
            other => other,
        }
    }

    /// The complex type whose parts are `self`.
    pub fn complex(self) -> Option<Self> {
        match self {
            Self::F32 => Some(Self::Complex64),
            Self::F64 => Some(Self::Complex128),
            _ => None,
        }
    }

    /// The type both operands of a binary operation are converted to: PyTorch's
    /// `torch.promote_types`. Block formats and 8-bit floats promote with nothing, unsigned
    /// integers of 16 bits and more only with floats.
    pub fn promote(self, other: Self) -> Option<Self> {
        use DType::*;
        if self == other {
            return Some(self);
        }
        let rank = |d: DType| {
            Some(match d {
                Bool => 0,
                U8 | I8 | I16 | I32 | I64 | U16 | U32 | U64 => 1,
                F16 | BF16 | F32 | F64 => 2,
                Complex64 | Complex128 => 3,
                F8E4M3 | F8E5M2 | Block(_) => return None,
            })
        };
        let (low, high) = if rank(self)? <= rank(other)? {
            (self, other)
        } else {
            (other, self)
        };
        if [low, high].iter().any(|d| matches!(d, U16 | U32 | U64)) {
            return high.is_float().then_some(high);
        }
        if rank(low) != rank(high) {
            // A double beside a single-precision complex keeps its precision.
            return Some(if high == Complex64 && low == F64 {
                Complex128
            } else {
                high
            });
        }
        Some(match (low, high) {
            (F16, BF16) | (BF16, F16) => F32,
            (U8, I8) | (I8, U8) => I16,
            _ if low.size() >= high.size() => low,
            _ => high,
        })
    }

    /// The name that PyTorch, or GGUF for block formats, gives the type.
    pub fn name(self) -> &'static str {
        match self {
            Self::F64 => "f64",
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::BF16 => "bf16",
            Self::F8E4M3 => "f8e4m3",
            Self::F8E5M2 => "f8e5m2",
            Self::I64 => "i64",
            Self::I32 => "i32",
            Self::I16 => "i16",
            Self::I8 => "i8",
            Self::U8 => "u8",
            Self::U16 => "u16",
            Self::U32 => "u32",
            Self::U64 => "u64",
            Self::Bool => "bool",
            Self::Complex64 => "complex64",
            Self::Complex128 => "complex128",
            Self::Block(format) => format.name(),
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for DType {
    type Err = OpError;

    fn from_str(text: &str) -> Result<Self, OpError> {
        let blocks = BlockFormat::ALL.iter().map(|&f| Self::Block(f));
        Self::SCALARS
            .into_iter()
            .chain(blocks)
            .find(|d| d.name().eq_ignore_ascii_case(text))
            .ok_or_else(|| {
                OpError::new("dtype", "the name of an element type", format!("{text:?}"))
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn promotion_follows_torch() {
        use DType::*;
        for (a, b, expected) in [
            (I64, F16, F16),
            (F16, BF16, F32),
            (U8, I8, I16),
            (U8, I32, I32),
            (Bool, I8, I8),
            (F64, Complex64, Complex128),
            (F32, Complex64, Complex64),
            (U64, F16, F16),
            (BF16, U16, BF16),
            (F32, F64, F64),
        ] {
            assert_eq!(a.promote(b), Some(expected), "{a} with {b}");
            assert_eq!(b.promote(a), Some(expected), "{b} with {a}");
        }
        assert_eq!(F32.promote(Block(BlockFormat::Q8_0)), None);
        for unsigned in [U16, U32, U64] {
            assert_eq!(unsigned.promote(unsigned), Some(unsigned));
            let others = [Bool, U8, I8, I64, Complex64, F8E5M2];
            for other in others.into_iter().chain([U16, U32, U64]) {
                if other != unsigned {
                    assert_eq!(unsigned.promote(other), None, "{unsigned} with {other}");
                    assert_eq!(other.promote(unsigned), None, "{other} with {unsigned}");
                }
            }
        }
        for float8 in DType::FLOATS8 {
            for other in DType::SCALARS {
                let both = (other == float8).then_some(float8);
                assert_eq!(float8.promote(other), both, "{float8} with {other}");
                assert_eq!(other.promote(float8), both, "{other} with {float8}");
            }
        }
    }

    #[test]
    fn names_parse_back() {
        for d in DType::SCALARS {
            assert_eq!(d.name().parse(), Ok(d));
        }
        assert_eq!("q4_k".parse(), Ok(DType::Block(BlockFormat::Q4K)));
        assert!("f8".parse::<DType>().is_err());
    }

    #[test]
    fn sizes_do_not_overflow() {
        assert_eq!(DType::F32.bytes_of(&[usize::MAX, 2]), None);
        assert_eq!(DType::F32.bytes_of(&[]), Some(4));
        assert_eq!(
            DType::Block(BlockFormat::Q8_0).bytes_of(&[3, 64]),
            Some(3 * 68)
        );
        assert_eq!(DType::Block(BlockFormat::Q8_0).bytes_of(&[3, 63]), None);
    }
}
