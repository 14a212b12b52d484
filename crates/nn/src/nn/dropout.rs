//! Dropout modules.

use rustorch_macros::track_calls;
use rustorch_tensor::{RusTorchResult, Tensor};

use super::{Forward, Module, Training};
use crate::error::require;

/// One module for each line: documentation, name, the tensor's method.
macro_rules! dropouts {
    ($($(#[$about:meta])* $Dropout:ident = $method:ident;)*) => {
        $(
            $(#[$about])*
            #[derive(Debug, Module)]
            pub struct $Dropout {
                /// The dropout probability.
                #[module(skip)]
                pub p: f64,
                /// Whether the module is in training mode, so that it drops elements.
                pub training: Training,
            }

            #[track_calls($Dropout)]
            impl $Dropout {
                /// A layer with this probability.
                ///
                /// # Errors
                /// Fails for a number outside `0..=1`.
                pub fn new(p: f64) -> RusTorchResult<Self> {
                    let fits = (0.0..=1.0).contains(&p);
                    require(stringify!($Dropout), fits, "a probability of 0 to 1", p)?;
                    Ok(Self { p, training: Training::default() })
                }
            }

            /// A layer with the probability 0.5.
            impl Default for $Dropout {
                fn default() -> Self {
                    Self { p: 0.5, training: Training::default() }
                }
            }

            #[track_calls($Dropout)]
            impl Forward for $Dropout {
                fn forward(&self, x: &Tensor) -> RusTorchResult<Tensor> {
                    x.$method(self.p, self.training.is_on())
                }
            }
        )*
    };
}

dropouts! {
    /// Sets elements to 0, and multiplies the others by `1 / (1 - p)`.
    Dropout = dropout;
    /// Sets whole channels of `[n, c, l]` or `[c, l]` to 0.
    Dropout1d = dropout1d;
    /// Sets whole channels of `[n, c, h, w]` to 0.
    Dropout2d = dropout2d;
    /// Sets whole channels of `[n, c, d, h, w]` or `[c, d, h, w]` to 0.
    Dropout3d = dropout3d;
    /// Drops elements so that mean and variance stay, for SELU networks.
    AlphaDropout = alpha_dropout;
    /// Drops whole channels, as [`AlphaDropout`].
    FeatureAlphaDropout = feature_alpha_dropout;
}
