//! Random tensors.
//!
//! What is drawn depends only on a seed and an element's index, so that every device draws
//! the same. Functions without a seed take the next one of a generator, which begins with
//! seed 0 and which [`manual_seed`] starts anew.

use std::sync::{Mutex, PoisonError};

use rustorch_ir::DType;
use rustorch_ir::ops::{Distribution, Random, philox};

use crate::Tensor;
use crate::error::{RusTorchResult, require};

/// Where seeds come from.
struct Generator {
    seed: u64,
    drawn: u64,
}

static GENERATOR: Mutex<Generator> = Mutex::new(Generator { seed: 0, drawn: 0 });

/// Starts the generator of seeds anew: what is drawn afterwards is the same each time.
pub fn manual_seed(seed: u64) {
    let mut generator = GENERATOR.lock().unwrap_or_else(PoisonError::into_inner);
    *generator = Generator { seed, drawn: 0 };
}

fn next_seed() -> u64 {
    let mut generator = GENERATOR.lock().unwrap_or_else(PoisonError::into_inner);
    let [low, high, ..] = philox(generator.drawn, generator.seed);
    generator.drawn += 1;
    u64::from(high) << 32 | u64::from(low)
}

impl Tensor {
    /// Numbers drawn evenly from `[0, 1)`. Floats.
    ///
    /// # Errors
    /// Another dtype; a shape that no memory could hold.
    pub fn rand(shape: impl AsRef<[usize]>, dtype: DType) -> RusTorchResult<Self> {
        Self::rand_seeded(shape, dtype, next_seed())
    }

    /// [`Tensor::rand`] from a seed of its own.
    ///
    /// # Errors
    /// As [`Tensor::rand`].
    pub fn rand_seeded(
        shape: impl AsRef<[usize]>,
        dtype: DType,
        seed: u64,
    ) -> RusTorchResult<Self> {
        Self::drawn("rand", Distribution::Uniform, seed, shape.as_ref(), dtype)
    }

    /// [`Tensor::rand`] by a key `i64[2]` of a seed and an offset, which counts the blocks of four
    /// numbers of the seed's stream that come before the first element. The key is data: a
    /// [`Trace`](crate::Trace) that is given another one in each run draws anew in each.
    ///
    /// # Errors
    /// As [`Tensor::rand`]; another key.
    pub fn rand_keyed(
        shape: impl AsRef<[usize]>,
        dtype: DType,
        key: &Self,
    ) -> RusTorchResult<Self> {
        Self::drawn_by("rand", Distribution::Uniform, key, shape.as_ref(), dtype)
    }

    /// Numbers drawn from the normal distribution of mean 0 and variance 1. Floats, or
    /// complex numbers, whose parts have variance ½.
    ///
    /// # Errors
    /// Another dtype; a shape that no memory could hold.
    pub fn randn(shape: impl AsRef<[usize]>, dtype: DType) -> RusTorchResult<Self> {
        Self::randn_seeded(shape, dtype, next_seed())
    }

    /// [`Tensor::randn`] from a seed of its own.
    ///
    /// # Errors
    /// As [`Tensor::randn`].
    pub fn randn_seeded(
        shape: impl AsRef<[usize]>,
        dtype: DType,
        seed: u64,
    ) -> RusTorchResult<Self> {
        Self::drawn("randn", Distribution::Normal, seed, shape.as_ref(), dtype)
    }

    /// [`Tensor::randn`] by a key, see [`Tensor::rand_keyed`].
    ///
    /// # Errors
    /// As [`Tensor::randn`]; another key.
    pub fn randn_keyed(
        shape: impl AsRef<[usize]>,
        dtype: DType,
        key: &Self,
    ) -> RusTorchResult<Self> {
        Self::drawn_by("randn", Distribution::Normal, key, shape.as_ref(), dtype)
    }

    /// Integers drawn evenly from `low..high`, as any real dtype.
    ///
    /// # Errors
    /// A range that is empty, or has more than 2³² integers; another dtype; a shape that no
    /// memory could hold.
    pub fn randint(
        low: i64,
        high: i64,
        shape: impl AsRef<[usize]>,
        dtype: DType,
    ) -> RusTorchResult<Self> {
        Self::randint_seeded(low, high, shape, dtype, next_seed())
    }

    /// [`Tensor::randint`] from a seed of its own.
    ///
    /// # Errors
    /// As [`Tensor::randint`].
    pub fn randint_seeded(
        low: i64,
        high: i64,
        shape: impl AsRef<[usize]>,
        dtype: DType,
        seed: u64,
    ) -> RusTorchResult<Self> {
        const NAME: &str = "randint";
        let count = i128::from(high) - i128::from(low);
        // The generator gives 32 random bits for each element.
        let fits = (1..=1 << 32).contains(&count);
        require(
            NAME,
            fits,
            "a range of 1 to 2^32 integers",
            format!("{low}..{high}"),
        )?;
        let legal = dtype.is_int() || dtype.is_float();
        require(NAME, legal, "an integer or floating-point dtype", dtype)?;
        let even = Self::drawn(
            NAME,
            Distribution::Uniform,
            seed,
            shape.as_ref(),
            DType::F64,
        )?;
        let index = even.mul(count as f64)?.floor()?.cast(NAME, DType::I64)?;
        index.add(low)?.cast(NAME, dtype)
    }

    fn drawn(
        name: &'static str,
        distribution: Distribution,
        seed: u64,
        shape: &[usize],
        dtype: DType,
    ) -> RusTorchResult<Self> {
        let key = Self::from_slice(&[seed as i64, 0], [2])?;
        Self::drawn_by(name, distribution, &key, shape, dtype)
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
