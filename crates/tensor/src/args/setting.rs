//! Types of option arguments.

/// A value for an option of type `T`: one of that type, or one that converts to it. An integer option takes only its
/// own type, so that a plain `2` works. With `Into`, the compiler would infer `i32` for it, because several types
/// convert to `usize`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a value for an option of type `{T}`",
    label = "expected `{T}`, or what converts to it"
)]
pub trait Setting<T> {
    /// The option's value.
    fn setting(self) -> T;
}

/// A type of option that other types convert to by `Into`.
pub trait Converted {}

impl<S: Into<T>, T: Converted> Setting<T> for S {
    fn setting(self) -> T {
        self.into()
    }
}

macro_rules! integers {
    ($($int:ty),*) => {
        $(impl Setting<Self> for $int {
            fn setting(self) -> Self {
                self
            }
        })*
    };
}

integers!(usize, isize, i64);

impl Converted for bool {}
impl Converted for f64 {}
impl<T> Converted for Option<T> {}
impl<T> Converted for Vec<T> {}
impl<T, const N: usize> Converted for [T; N] {}

/// Setters of options, named like their fields.
macro_rules! setters {
    ($Options:ident $(<$a:lifetime>)? { $($option:ident: $Option:ty),* $(,)? }) => {
        impl $(<$a>)? $Options $(<$a>)? {
            $(
                #[doc = concat!("The same with another `", stringify!($option), "`.")]
                #[must_use]
                pub fn $option(mut self, $option: impl $crate::args::setting::Setting<$Option>) -> Self {
                    self.$option = $crate::args::setting::Setting::setting($option);
                    self
                }
            )*
        }
    };
}
pub(crate) use setters;
