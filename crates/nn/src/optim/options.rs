//! Options of optimisers, by name.

use rustorch_tensor::RusTorchResult;

use crate::error::require;

/// A value of an option as numbers, which is how it is saved.
pub trait OptionValue {
    /// The numbers.
    fn numbers(&self) -> Vec<f64>;

    /// Sets the value from these numbers; `false` if they are invalid.
    fn set_numbers(&mut self, numbers: &[f64]) -> bool;
}

impl OptionValue for f64 {
    fn numbers(&self) -> Vec<f64> {
        vec![*self]
    }

    fn set_numbers(&mut self, numbers: &[f64]) -> bool {
        let [number] = numbers else { return false };
        *self = *number;
        true
    }
}

impl OptionValue for bool {
    fn numbers(&self) -> Vec<f64> {
        vec![f64::from(u8::from(*self))]
    }

    fn set_numbers(&mut self, numbers: &[f64]) -> bool {
        let [number] = numbers else { return false };
        *self = *number != 0.0;
        *number == 0.0 || *number == 1.0
    }
}

impl OptionValue for usize {
    fn numbers(&self) -> Vec<f64> {
        vec![*self as f64]
    }

    fn set_numbers(&mut self, numbers: &[f64]) -> bool {
        let [number] = numbers else { return false };
        *self = *number as usize;
        *self as f64 == *number
    }
}

/// `None` is written as an empty list of numbers.
impl<T: OptionValue + Default> OptionValue for Option<T> {
    fn numbers(&self) -> Vec<f64> {
        self.as_ref().map_or(Vec::new(), T::numbers)
    }

    fn set_numbers(&mut self, numbers: &[f64]) -> bool {
        *self = (!numbers.is_empty()).then(T::default);
        self.as_mut().is_none_or(|value| value.set_numbers(numbers))
    }
}

impl<const N: usize> OptionValue for [f64; N] {
    fn numbers(&self) -> Vec<f64> {
        self.to_vec()
    }

    fn set_numbers(&mut self, numbers: &[f64]) -> bool {
        let numbers = <[f64; N]>::try_from(numbers);
        numbers.map(|numbers| *self = numbers).is_ok()
    }
}

/// The options of an optimiser.
pub trait Options: Clone {
    /// Calls `visitor` with the name and value of each.
    fn each(&mut self, visitor: &mut dyn FnMut(&'static str, &mut dyn OptionValue));

    /// The numbers of an option; `None` for an unknown name.
    fn option(&self, name: &str) -> Option<Vec<f64>> {
        let mut found = None;
        self.clone().each(&mut |own, value| {
            if own == name {
                found = Some(value.numbers());
            }
        });
        found
    }

    /// Sets an option from numbers; `false` for an unknown name or invalid numbers.
    fn set_option(&mut self, name: &str, numbers: &[f64]) -> bool {
        let mut is_set = false;
        self.each(&mut |own, value| {
            if own == name {
                is_set = value.set_numbers(numbers);
            }
        });
        is_set
    }
}

/// Options of optimisers: documentation, name, and each option with its default.
macro_rules! options {
    ($($(#[$about:meta])* $Options:ident {
        $($(#[$may:meta])* $option:ident: $Option:ty = $default:expr,)*
    })*) => {
        $(
            $(#[$about])*
            #[derive(Clone, Copy, PartialEq, Debug)]
            pub struct $Options {
                $($(#[$may])* pub $option: $Option,)*
            }

            impl Default for $Options {
                fn default() -> Self {
                    Self { $($option: $default,)* }
                }
            }

            impl $Options {
                $(
                    #[doc = concat!("The same with another `", stringify!($option), "`.")]
                    #[must_use]
                    pub fn $option(mut self, $option: impl rustorch_tensor::Setting<$Option>) -> Self {
                        self.$option = rustorch_tensor::Setting::setting($option);
                        self
                    }
                )*
            }

            impl $crate::optim::Options for $Options {
                fn each(
                    &mut self,
                    visitor: &mut dyn FnMut(&'static str, &mut dyn $crate::optim::OptionValue),
                ) {
                    $(visitor(stringify!($option), &mut self.$option);)*
                }
            }
        )*
    };
}
pub(super) use options;

/// Fails for an option that is negative or NaN, with the optimiser's name.
macro_rules! at_least_zero {
    ($optimizer:expr, $options:ident: $($option:ident),+ $(,)?) => {
        [$((stringify!($option), $options.$option)),+]
            .into_iter()
            .try_for_each(|(name, value)| {
                let expected = format_args!("{name} of 0 or more");
                $crate::error::require($optimizer, value >= 0.0, expected, value)
            })
    };
}
pub(super) use at_least_zero;

/// Fails for betas outside `[0, 1)`.
pub(super) fn are_betas(optimizer: &'static str, betas: [f64; 2]) -> RusTorchResult<()> {
    let fits = betas.iter().all(|beta| (0.0..1.0).contains(beta));
    require(
        optimizer,
        fits,
        "betas from 0 to below 1",
        format_args!("{betas:?}"),
    )
}
