//! Random tensors.
//!
//! A number depends only on a key and an element's index, so every device draws the same numbers.
//! Functions of a [`Generator`] take the next key of its stream; those of [`Tensor`] use the
//! [default one](default_generator).

mod counts;
mod distributions;
mod filling;
mod generator;
mod sampling;

pub use generator::{
    Generator, GeneratorState, default_generator, fork_rng, initial_seed, manual_seed,
};

use rustorch_ir::ops::{Distribution, Random};
use rustorch_ir::{DType, OpError};
use rustorch_macros::track_calls;

pub(crate) use distributions::wide;

use crate::Tensor;
use crate::args::dims::IntoShape;
use crate::args::numbers::is_inside;
use crate::error::{RusTorchResult, require};

/// Number of values of 32 random bits.
const WORDS: i64 = 1 << 32;

#[track_calls]
impl Tensor {
    /// Uniform numbers from `[0, 1)`. They are floats, or complex numbers with uniform parts.
    ///
    /// # Errors
    /// Fails for an unsupported dtype, or a shape too large for memory.
    pub fn rand(shape: impl IntoShape, dtype: DType) -> RusTorchResult<Self> {
        Self::rand_seeded(shape, dtype, default_generator().draw_seed())
    }

    /// [`Tensor::rand`] with its own seed.
    ///
    /// # Errors
    /// The same errors as [`Tensor::rand`].
    pub fn rand_seeded(shape: impl IntoShape, dtype: DType, seed: u64) -> RusTorchResult<Self> {
        const NAME: &str = "rand";
        let shape = &shape.into_shape()[..];
        if !dtype.is_complex() {
            return Self::drawn(NAME, Distribution::Uniform, seed, shape, dtype);
        }
        let parts = [shape, &[2]].concat();
        let parts = Self::drawn(NAME, Distribution::Uniform, seed, &parts, dtype.real())?;
        Self::complex(&parts.select(-1, 0)?, &parts.select(-1, 1)?)
    }

    /// [`Tensor::rand`] with a key `i64[2]` of a seed and an offset. The offset counts the blocks
    /// of four numbers in the seed's stream before the first element. The key is data: a
    /// [`Trace`](crate::Trace) that gets another key in each run draws new numbers in each.
    ///
    /// # Errors
    /// The same errors as [`Tensor::rand`]. Also fails for an unsupported key.
    pub fn rand_keyed(shape: impl IntoShape, dtype: DType, key: &Self) -> RusTorchResult<Self> {
        Self::drawn_by(
            "rand",
            Distribution::Uniform,
            key,
            &shape.into_shape()[..],
            dtype,
        )
    }

    /// Normal numbers with mean 0 and variance 1. Floats, or complex numbers, whose parts have
    /// variance ½.
    ///
    /// # Errors
    /// Fails for an unsupported dtype, or a shape too large for memory.
    pub fn randn(shape: impl IntoShape, dtype: DType) -> RusTorchResult<Self> {
        Self::randn_seeded(shape, dtype, default_generator().draw_seed())
    }

    /// [`Tensor::randn`] with its own seed.
    ///
    /// # Errors
    /// The same errors as [`Tensor::randn`].
    pub fn randn_seeded(shape: impl IntoShape, dtype: DType, seed: u64) -> RusTorchResult<Self> {
        Self::drawn(
            "randn",
            Distribution::Normal,
            seed,
            &shape.into_shape()[..],
            dtype,
        )
    }

    /// [`Tensor::randn`] with a key, see [`Tensor::rand_keyed`].
    ///
    /// # Errors
    /// The same errors as [`Tensor::randn`]. Also fails for an unsupported key.
    pub fn randn_keyed(shape: impl IntoShape, dtype: DType, key: &Self) -> RusTorchResult<Self> {
        Self::drawn_by(
            "randn",
            Distribution::Normal,
            key,
            &shape.into_shape()[..],
            dtype,
        )
    }

    /// Uniform integers from `low..high`, in any real dtype.
    ///
    /// # Errors
    /// Fails for a range that is empty, too large, or outside the dtype's range. Also fails for an
    /// unsupported dtype, or a shape too large for memory.
    pub fn randint(
        low: i64,
        high: i64,
        shape: impl IntoShape,
        dtype: DType,
    ) -> RusTorchResult<Self> {
        Self::randint_seeded(low, high, shape, dtype, default_generator().draw_seed())
    }

    /// [`Tensor::randint`] with its own seed.
    ///
    /// # Errors
    /// The same errors as [`Tensor::randint`].
    pub fn randint_seeded(
        low: i64,
        high: i64,
        shape: impl IntoShape,
        dtype: DType,
        seed: u64,
    ) -> RusTorchResult<Self> {
        const NAME: &str = "randint";
        let count = high.checked_sub(low).filter(|&count| count > 0);
        let got = format_args!("{low}..{high}");
        let expected = "a range of 1 to 2^63 - 1 integers";
        let Some(count) = count else {
            return Err(OpError::new(NAME, expected, got).into());
        };
        let legal = !dtype.is_block() && !dtype.is_complex();
        require(NAME, legal, "a dtype of real numbers", dtype)?;
        let expected = format_args!("integers in the range of {dtype}");
        let fits = match dtype {
            DType::Bool => low >= 0 && high <= 2,
            _ => [low, high - 1]
                .iter()
                .all(|&end| is_inside(end.into(), dtype)),
        };
        require(NAME, fits, expected, format_args!("{low}..{high}"))?;
        let shape = &shape.into_shape()[..];
        // Of each number 32 bits are random.
        let words = |shape: &[usize]| {
            let even = Self::drawn(NAME, Distribution::Uniform, seed, shape, DType::F64)?;
            even.mul(count.min(WORDS) as f64)?
                .floor()?
                .cast(NAME, DType::I64)
        };
        let index = if count <= WORDS {
            words(shape)?
        } else {
            let pairs = words(&[shape, &[2]].concat())?;
            let (high, low) = (pairs.select(-1, 0)?, pairs.select(-1, 1)?);
            let word = high.remainder(WORDS / 2)?.mul(WORDS)?.add(&low)?;
            word.remainder(count)?
        };
        index.add(low)?.cast(NAME, dtype)
    }

    fn drawn(
        name: &'static str,
        distribution: Distribution,
        seed: u64,
        shape: &[usize],
        dtype: DType,
    ) -> RusTorchResult<Self> {
        Self::drawn_by(name, distribution, &generator::key_of(seed)?, shape, dtype)
    }

    fn drawn_by(
        name: &'static str,
        distribution: Distribution,
        key: &Self,
        shape: &[usize],
        dtype: DType,
    ) -> RusTorchResult<Self> {
        let random = Random {
            distribution,
            shape: shape.into(),
            dtype,
        };
        Self::apply(name, random, &[key])
    }
}
