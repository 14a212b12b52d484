//! Sizes of windows as arguments: one for each dimension, or one for all of them.

/// A size for each of `N` dimensions: `2` stands for `[2, 2]`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a size for each of {N} dimensions",
    label = "expected one `usize`, or {N} of them",
    note = "kernel sizes, strides, paddings and dilations are one `usize` for all dimensions, or an array of one for each"
)]
pub trait PerDim<const N: usize> {
    /// The size of each dimension.
    fn per_dim(self) -> [usize; N];
}

impl<const N: usize> PerDim<N> for usize {
    fn per_dim(self) -> [usize; N] {
        [self; N]
    }
}

impl<const N: usize> PerDim<N> for [usize; N] {
    fn per_dim(self) -> Self {
        self
    }
}

impl PerDim<2> for (usize, usize) {
    fn per_dim(self) -> [usize; 2] {
        self.into()
    }
}

impl PerDim<3> for (usize, usize, usize) {
    fn per_dim(self) -> [usize; 3] {
        self.into()
    }
}

/// Number of windows for each of `N` dimensions. It is one `usize` for all, one for each, or `None` for the number of a
/// dimension's elements.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a number of windows for each of {N} dimensions",
    label = "expected one `usize`, or {N} of `usize` or `Option<usize>`"
)]
pub trait OutputSize<const N: usize> {
    /// The number of each dimension.
    fn output_size(self) -> [Option<usize>; N];
}

impl<const N: usize> OutputSize<N> for [Option<usize>; N] {
    fn output_size(self) -> Self {
        self
    }
}

impl<const N: usize> OutputSize<N> for usize {
    fn output_size(self) -> [Option<usize>; N] {
        [Some(self); N]
    }
}

impl<const N: usize> OutputSize<N> for [usize; N] {
    fn output_size(self) -> [Option<usize>; N] {
        self.map(Some)
    }
}

impl OutputSize<2> for (usize, usize) {
    fn output_size(self) -> [Option<usize>; 2] {
        self.per_dim().map(Some)
    }
}

impl OutputSize<3> for (usize, usize, usize) {
    fn output_size(self) -> [Option<usize>; 3] {
        self.per_dim().map(Some)
    }
}

/// The methods that set options one by one. One line for each type: its options, which are named like its
/// fields; those for each dimension stand in brackets, those of a plain type behind them.
macro_rules! window_options {
    ($($Options:ident: [$($size:ident),*] [$($optional:ident),*]
        {$($plain:ident: $Plain:ty),*};)*) => {
        $(impl<const N: usize> $Options<N> {
            $(#[doc = concat!("The same with another `", stringify!($size), "`: one for all dimensions, or one for each.")]
            #[must_use]
            pub fn $size(mut self, $size: impl $crate::args::windowed::PerDim<N>) -> Self {
                self.$size = $size.per_dim();
                self
            })*

            $(#[doc = concat!("The same with a `", stringify!($optional), "`: one for all dimensions, or one for each.")]
            #[must_use]
            pub fn $optional(mut self, $optional: impl $crate::args::windowed::PerDim<N>) -> Self {
                self.$optional = Some($optional.per_dim());
                self
            })*

            $(#[doc = concat!("The same with another `", stringify!($plain), "`.")]
            #[must_use]
            pub fn $plain(mut self, $plain: impl $crate::args::setting::Setting<$Plain>) -> Self {
                self.$plain = $crate::args::setting::Setting::setting($plain);
                self
            })*
        })*
    };
}
pub(crate) use window_options;
