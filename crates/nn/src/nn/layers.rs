//! A macro for modules without tensors, so that each is a few lines.

/// Modules of a kind, by documentation, name, fields, and the formula for `x`. Some have no fields. Fields in
/// braces have defaults, and fields in parentheses are required. Each function body sees the fields as variables.
macro_rules! layers {
    ($($(#[$about:meta])* $Layer:ident => |$x:ident| $made:expr;)*) => {
        $(
            $(#[$about])*
            #[derive(Copy, PartialEq, Eq, Debug, Default, $crate::nn::Module)]
            pub struct $Layer;

            #[rustorch_macros::track_calls($Layer)]
            impl $crate::nn::Forward for $Layer {
                fn forward(&self, $x: &Tensor) -> RusTorchResult<Tensor> {
                    $made
                }
            }
        )*
    };
    ($($(#[$about:meta])* $Layer:ident {
        $($(#[$may:meta])* $option:ident: $Option:ty = $default:expr),* $(,)?
    } => |$x:ident| $made:expr;)*) => {
        $(
            $(#[$about])*
            #[derive(PartialEq, Debug, $crate::nn::Module)]
            pub struct $Layer {
                $($(#[$may])* #[module(skip)] pub $option: $Option,)*
            }

            impl Default for $Layer {
                fn default() -> Self {
                    Self { $($option: $default,)* }
                }
            }

            impl $Layer {
                $crate::nn::layers::setters!($($option: $Option;)*);
            }

            $crate::nn::layers::forward!($Layer { $($option,)* } |$x| $made);
        )*
    };
    ($($(#[$about:meta])* $Layer:ident(
        $($(#[$need:meta])* $needed:ident: $Needed:ty),* $(,)?
    ) $({
        $($(#[$may:meta])* $option:ident: $Option:ty = $default:expr),* $(,)?
    })? => |$x:ident| $made:expr;)*) => {
        $(
            $(#[$about])*
            #[derive(PartialEq, Debug, $crate::nn::Module)]
            pub struct $Layer {
                $($(#[$need])* #[module(skip)] pub $needed: $Needed,)*
                $($($(#[$may])* #[module(skip)] pub $option: $Option,)*)?
            }

            impl $Layer {
                #[doc = concat!("By `", $(stringify!($needed), "`, `",)* "…`, and PyTorch's defaults.")]
                pub fn new($($needed: impl rustorch_tensor::Setting<$Needed>),*) -> Self {
                    Self { $($needed: rustorch_tensor::Setting::setting($needed),)* $($($option: $default,)*)? }
                }

                $($crate::nn::layers::setters!($($option: $Option;)*);)?
            }

            $crate::nn::layers::forward!($Layer { $($needed,)* $($($option,)*)? } |$x| $made);
        )*
    };
}

/// Methods that set fields, one by one.
macro_rules! setters {
    ($($option:ident: $Option:ty;)*) => {
        $(
            #[doc = concat!("The same with another `", stringify!($option), "`.")]
            #[must_use]
            pub fn $option(mut self, $option: impl rustorch_tensor::Setting<$Option>) -> Self {
                self.$option = rustorch_tensor::Setting::setting($option);
                self
            }
        )*
    };
}

/// The function of `x`, with the fields as parameters.
macro_rules! forward {
    ($Layer:ident { $($field:ident,)* } |$x:ident| $made:expr) => {
        #[rustorch_macros::track_calls($Layer)]
        impl $crate::nn::Forward for $Layer {
            fn forward(&self, $x: &Tensor) -> RusTorchResult<Tensor> {
                let Self { $($field),* } = self.clone();
                $made
            }
        }
    };
}

pub(super) use {forward, layers, setters};
