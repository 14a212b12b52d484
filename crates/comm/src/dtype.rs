//! Types of elements.

use std::fmt;

use bytemuck::Pod;
use half::{bf16, f16};
use serde::{Deserialize, Serialize};

/// A Rust type that is one of the [`DType`]s.
pub trait Element: Pod {
    /// The type at run time.
    const DTYPE: DType;
}

/// The dtypes, each with its Rust type and its name.
macro_rules! dtypes {
    ($($dtype:ident($element:ty) $name:literal;)*) => {
        /// The type of a buffer's elements.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum DType {
            $(#[doc = concat!("`", $name, "`")] $dtype,)*
        }

        impl DType {
            /// All dtypes.
            pub const ALL: &[DType] = &[$(DType::$dtype),*];

            /// Bytes of an element.
            pub const fn size(self) -> usize {
                match self {
                    $(DType::$dtype => size_of::<$element>(),)*
                }
            }

            /// The name, such as `f32`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(DType::$dtype => $name,)*
                }
            }
        }

        $(impl Element for $element {
            const DTYPE: DType = DType::$dtype;
        })*
    };
}

dtypes! {
    U8(u8) "u8";
    I8(i8) "i8";
    U16(u16) "u16";
    I16(i16) "i16";
    U32(u32) "u32";
    I32(i32) "i32";
    U64(u64) "u64";
    I64(i64) "i64";
    F16(f16) "f16";
    BF16(bf16) "bf16";
    F32(f32) "f32";
    F64(f64) "f64";
}

impl DType {
    /// Returns whether it is a floating-point type.
    pub const fn is_float(self) -> bool {
        matches!(self, DType::F16 | DType::BF16 | DType::F32 | DType::F64)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
