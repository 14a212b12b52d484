//! Layers that pad tensors.

use rustorch_macros::track_calls;
use rustorch_tensor::{PadMode, RusTorchResult, Tensor};

use super::{Forward, Module};
use crate::error::require;

/// Padding of `N` dimensions: one number for all sides, or one before and one after each. The last
/// dimension comes first.
pub trait Paddings<const N: usize> {
    /// Padding before and after each dimension, the last one first.
    fn paddings(self) -> Vec<isize>;
}

impl<const N: usize> Paddings<N> for isize {
    fn paddings(self) -> Vec<isize> {
        vec![self; 2 * N]
    }
}

/// The sizes that a number of dimensions has.
macro_rules! sides {
    ($($n:literal = $sides:literal;)*) => {
        $(impl Paddings<$n> for [isize; $sides] {
            fn paddings(self) -> Vec<isize> {
                self.to_vec()
            }
        })*
    };
}

sides! {
    1 = 2;
    2 = 4;
    3 = 6;
}

/// One module for each line: documentation, name, number of dimensions, mode.
macro_rules! pads {
    ($($(#[$about:meta])* $Pad:ident = $n:literal, $mode:expr;)*) => {
        $(
            $(#[$about])*
            #[derive(Debug, Module)]
            pub struct $Pad {
                /// Before and after each dimension, the last one first.
                #[module(skip)]
                pub padding: Vec<isize>,
            }

            impl $Pad {
                /// A padding with one number for all sides, or one for each.
                pub fn new(padding: impl Paddings<$n>) -> Self {
                    Self { padding: padding.paddings() }
                }
            }

            #[track_calls($Pad)]
            impl Forward for $Pad {
                fn forward(&self, x: &Tensor) -> RusTorchResult<Tensor> {
                    padded(stringify!($Pad), x, $n, &self.padding, $mode)
                }
            }
        )*
    };
}

pads! {
    /// `[n, c, l]` or `[c, l]`, mirrored at the first and last element, which are not repeated.
    ReflectionPad1d = 1, PadMode::Reflect;
    /// `[n, c, h, w]` or `[c, h, w]`, mirrored at the first and last element, which are not
    /// repeated.
    ReflectionPad2d = 2, PadMode::Reflect;
    /// `[n, c, d, h, w]` or `[c, d, h, w]`, mirrored at the first and last element, which are not
    /// repeated.
    ReflectionPad3d = 3, PadMode::Reflect;
    /// `[n, c, l]` or `[c, l]`, with the first and last element repeated.
    ReplicationPad1d = 1, PadMode::Replicate;
    /// `[n, c, h, w]` or `[c, h, w]`, with the first and last element repeated.
    ReplicationPad2d = 2, PadMode::Replicate;
    /// `[n, c, d, h, w]` or `[c, d, h, w]`, with the first and last element repeated.
    ReplicationPad3d = 3, PadMode::Replicate;
    /// `[n, c, l]` or `[c, l]`, continued from the other end.
    CircularPad1d = 1, PadMode::Circular;
    /// `[n, c, h, w]` or `[c, h, w]`, continued from the other end.
    CircularPad2d = 2, PadMode::Circular;
    /// `[n, c, d, h, w]` or `[c, d, h, w]`, continued from the other end.
    CircularPad3d = 3, PadMode::Circular;
    /// Zeros around the last dimension.
    ZeroPad1d = 1, PadMode::from(0);
    /// Zeros around the last two dimensions.
    ZeroPad2d = 2, PadMode::from(0);
    /// Zeros around the last three dimensions.
    ZeroPad3d = 3, PadMode::from(0);
}

/// One module for each line: documentation, name, number of dimensions.
macro_rules! constant_pads {
    ($($(#[$about:meta])* $Pad:ident = $n:literal;)*) => {
        $(
            $(#[$about])*
            #[derive(Debug, Module)]
            pub struct $Pad {
                /// Before and after each dimension, the last one first.
                #[module(skip)]
                pub padding: Vec<isize>,
                /// The number.
                #[module(skip)]
                pub value: f64,
            }

            impl $Pad {
                /// A padding with one number for all sides, or one for each.
                pub fn new(padding: impl Paddings<$n>, value: f64) -> Self {
                    Self { padding: padding.paddings(), value }
                }
            }

            #[track_calls($Pad)]
            impl Forward for $Pad {
                fn forward(&self, x: &Tensor) -> RusTorchResult<Tensor> {
                    x.pad(&self.padding, self.value)
                }
            }
        )*
    };
}

constant_pads! {
    /// A number around the last dimension.
    ConstantPad1d = 1;
    /// A number around the last two dimensions.
    ConstantPad2d = 2;
    /// A number around the last three dimensions.
    ConstantPad3d = 3;
}

fn padded(
    name: &'static str,
    x: &Tensor,
    dims: usize,
    padding: &[isize],
    mode: PadMode,
) -> RusTorchResult<Tensor> {
    // Modes that continue a tensor expect a dimension of channels.
    let fits =
        matches!(mode, PadMode::Constant(_)) || matches!(x.rank().checked_sub(dims), Some(1 | 2));
    let expected = format_args!("a tensor of rank {} or {}", dims + 1, dims + 2);
    require(name, fits, expected, format_args!("{:?}", x.shape()))?;
    x.pad(padding, mode)
}
