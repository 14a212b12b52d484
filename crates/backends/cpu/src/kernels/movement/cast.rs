//! Conversion between dtypes.

use half::{bf16, f16};
use num_complex::Complex;
use num_traits::AsPrimitive;
use rustorch_ir::{BlockFormat, DType, F8E4M3, F8E5M2, OpKind, Signature, to_odd};
use rustorch_runtime::{KernelEntry, Layouts};

use crate::element::{Element, with_type};
use crate::elementwise::Function;
use crate::kernel::{Args, Misuse, for_rows};
use crate::launch::Launch;
use crate::simd::apply;

pub(crate) const KERNEL: KernelEntry<Launch> = KernelEntry {
    kind: OpKind::Cast,
    accepts: |signature| !is_dequantization(signature),
    layouts: Layouts::Any,
    launch: Launch::Elementwise {
        function,
        check: None,
    },
};

pub(crate) const DEQUANTIZATION: KernelEntry<Launch> = KernelEntry {
    kind: OpKind::Cast,
    accepts: is_dequantization,
    layouts: Layouts::Any,
    launch: Launch::Whole(dequantization),
};

/// Cost of rounding to fewer bits than single precision has from more.
const SLOW: usize = 4;

fn is_dequantization(signature: &Signature) -> bool {
    signature.inputs[0].dtype.is_block()
}

fn function(signature: &Signature) -> Result<Function, Misuse> {
    let (from, to) = (signature.inputs[0].dtype, signature.output().dtype);
    let halves = matches!(from, DType::F32 | DType::F16 | DType::BF16);
    let single = halves || from.is_float8();
    match to {
        DType::Bool => with_type!(from, scalars X => {
            Ok(Function::unary::<X, u8>(1, truth))
        }),
        DType::F16 if !single => with_type!(from, numbers X => {
            Ok(Function::unary::<X, f16>(SLOW, narrow))
        }),
        DType::BF16 if !single => with_type!(from, numbers X => {
            Ok(Function::unary::<X, bf16>(SLOW, narrow))
        }),
        DType::F8E4M3 if !single => with_type!(from, numbers X => {
            Ok(Function::unary::<X, F8E4M3>(SLOW, narrow))
        }),
        DType::F8E5M2 if !single => with_type!(from, numbers X => {
            Ok(Function::unary::<X, F8E5M2>(SLOW, narrow))
        }),
        _ if to.is_complex() => with_type!(to, complex Y => with_type!(from, scalars X => {
            Ok(Function::unary::<X, Y>(1, complex))
        })),
        _ if to.is_float8() => with_type!(to, floats8 Y => with_type!(from, scalars X => {
            Ok(Function::unary::<X, Y>(1, real))
        })),
        _ => with_type!(to, reals Y => with_type!(from, scalars X => {
            Ok(Function::unary::<X, Y>(1, real))
        })),
    }
}

// The loops are functions of the types that are computed in, so dtypes share them.

/// Is it not zero?
fn truth<X: Number>(x: &[X], y: &mut [u8]) {
    apply(x, y, |x| x.is_something().into());
}

/// To single precision, from which rounding to fewer bits gives the nearest number.
fn narrow<X: Number<Part: AsPrimitive<f64>>>(x: &[X], y: &mut [f32]) {
    apply(x, y, |x| to_odd(x.real().as_()));
}

/// To complex numbers.
fn complex<X, Y>(x: &[X], y: &mut [Complex<Y>])
where
    X: Number<Part: AsPrimitive<Y>>,
    Y: Copy + 'static,
{
    apply(x, y, |x| Complex::new(x.real().as_(), x.imaginary().as_()));
}

/// To real numbers.
fn real<X, Y>(x: &[X], y: &mut [Y])
where
    X: Number<Part: AsPrimitive<Y>>,
    Y: Copy + 'static,
{
    apply(x, y, |x| x.real().as_());
}

/// A number as its parts.
trait Number: Copy {
    /// Type of the parts.
    type Part;
    fn real(self) -> Self::Part;
    fn imaginary(self) -> Self::Part;
    /// Is it not zero?
    fn is_something(self) -> bool;
}

macro_rules! numbers {
    ($($real:ty),+; $($part:ty),+) => {
        $(impl Number for $real {
            type Part = Self;

            fn real(self) -> Self {
                self
            }

            fn imaginary(self) -> Self {
                0 as Self
            }

            fn is_something(self) -> bool {
                self != 0 as Self
            }
        })+
        $(impl Number for Complex<$part> {
            type Part = $part;

            fn real(self) -> $part {
                self.re
            }

            fn imaginary(self) -> $part {
                self.im
            }

            fn is_something(self) -> bool {
                self.re != 0.0 || self.im != 0.0
            }
        })+
    };
}

numbers!(f64, f32, i64, i32, i16, i8, u8, u16, u32, u64; f32, f64);

fn dequantization(mut args: Args) -> Result<(), Misuse> {
    let DType::Block(format) = args.inputs[0].dtype() else {
        return Err(Misuse("not of blocks".to_owned()));
    };
    with_type!(args.output.dtype(), floats Y => dequantize::<Y>(&mut args, format))
}

/// Dequantises row by row.
fn dequantize<Y: Element<Compute: 'static>>(
    args: &mut Args,
    format: BlockFormat,
) -> Result<(), Misuse>
where
    f32: AsPrimitive<Y::Compute>,
{
    let x = &args.inputs[0];
    let width = x.shape().last().map_or(1, |&w| w);
    let Some(bytes) = format.row_bytes(width) else {
        return Err(Misuse(format!(
            "rows of {width} are not whole blocks of {format}"
        )));
    };
    let data = x.bytes();
    for_rows(
        args.pool,
        args.output.data::<Y>(),
        width,
        2 * width,
        |first, part| {
            let (mut row, mut buffer) = (vec![0.0; width], Vec::new());
            for (i, out) in part.chunks_exact_mut(width).enumerate() {
                // Lengths match: the row's bytes were derived from its width.
                let blocks = &data[(first + i) * bytes..][..bytes];
                let converted = format.dequantize(blocks, &mut row);
                debug_assert!(converted.is_ok());
                Y::write(out, &mut buffer, |y| apply(&row, y, |x| x.as_()));
            }
        },
    );
    Ok(())
}
