//! Conversion between dtypes.

use half::{bf16, f16};
use num_complex::Complex;
use num_traits::AsPrimitive;
use rustorch_ir::{BlockFormat, DType, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts};

use crate::element::{Element, to_odd, with_type};
use crate::elementwise::map1;
use crate::kernel::{Args, Launch, Misuse, for_rows};

pub(crate) const KERNEL: KernelEntry<Launch> = KernelEntry {
    kind: OpKind::Cast,
    accepts,
    layouts: Layouts::Any,
    launch,
};

fn accepts(_: &Signature) -> bool {
    true
}

fn launch(mut args: Args) -> Result<(), Misuse> {
    let (from, to) = (args.inputs[0].dtype(), args.output.dtype());
    let single = matches!(from, DType::F32 | DType::F16 | DType::BF16);
    match (from, to) {
        (DType::Block(format), _) => with_type!(to, floats Y => {
            dequantize::<Y>(&mut args, format)
        }),
        (_, DType::Bool) => with_type!(from, numbers X => {
            map1::<X, u8>(&mut args, 1, |x, y| each(x, y, |x| x.is_something().into()));
            Ok(())
        }),
        (_, DType::F16) if !single => with_type!(from, numbers X => {
            map1::<X, f16>(&mut args, 4, |x, y| each(x, y, |x| to_odd(x.real().as_())));
            Ok(())
        }),
        (_, DType::BF16) if !single => with_type!(from, numbers X => {
            map1::<X, bf16>(&mut args, 4, |x, y| each(x, y, |x| to_odd(x.real().as_())));
            Ok(())
        }),
        _ if to.is_complex() => with_type!(to, complex Y => with_type!(from, numbers X => {
            map1::<X, Y>(&mut args, 1, |x, y| {
                each(x, y, |x| Y::new(x.real().as_(), x.imaginary().as_()));
            });
            Ok(())
        })),
        _ => with_type!(to, reals Y => with_type!(from, numbers X => {
            map1::<X, Y>(&mut args, 1, |x, y| each(x, y, |x| x.real().as_()));
            Ok(())
        })),
    }
}

/// `y[i] = f(x[i])`.
fn each<X: Copy, Y>(x: &[X], y: &mut [Y], f: impl Fn(X) -> Y) {
    y.iter_mut().zip(x).for_each(|(y, &x)| *y = f(x));
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

numbers!(f64, f32, i64, i32, i16, i8, u8, u32; f32, f64);

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
                Y::write(out, &mut buffer, |y| each(&row, y, |x| x.as_()));
            }
        },
    );
    Ok(())
}
