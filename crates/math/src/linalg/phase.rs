//! Phases of vectors, which factorisations leave open.

use super::Number;

/// The factor that makes a vector's leading element real and positive: the first one whose modulus is
/// at least half the largest. So rounding does not choose between two that are equal.
pub(crate) fn factor<T: Number>(vector: impl Iterator<Item = T> + Clone) -> T {
    let square = |x: &T| T::abs2_impl(x);
    let largest = vector.clone().map(|x| square(&x)).fold(0.0, f64::max);
    let leading = vector.into_iter().find(|x| square(x) >= largest / 4.0);
    leading.map_or(T::one(), backwards)
}

/// `z̄ / |z|`, and 1 for 0.
fn backwards<T: Number>(z: T) -> T {
    match T::abs_impl(&z) {
        0.0 => T::one(),
        length => T::mul_real_impl(&T::conj_impl(&z), &(1.0 / length)),
    }
}
