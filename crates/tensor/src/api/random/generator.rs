//! Random number generators.

use std::hash::{BuildHasher, RandomState};
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustorch_ir::ops::philox;
use rustorch_macros::track_calls;

use crate::Tensor;
use crate::error::RusTorchResult;
use crate::lazy::recording;
use crate::thread_state::restoring;

/// A generator of random tensors. Its numbers depend on its seed and on the number of earlier
/// draws. They are the same on every device, up to the rounding of functions.
///
/// Each draw has its own key, `i64[2]` of a seed and an offset, by Philox4x32-10 in counter mode.
/// The seed is block `drawn` of this generator's stream, and elements are numbered in the seed's
/// own stream.
///
/// ```
/// # use rustorch_tensor::{Generator, RusTorchResult};
/// # use rustorch_ir::DType;
/// # fn main() -> RusTorchResult<()> {
/// let generator = Generator::new(7);
/// let state = generator.state();
/// let x = generator.randn([3], DType::F32)?;
/// generator.set_state(state);
/// assert!(x.equal(&generator.randn([3], DType::F32)?)?);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Generator(Mutex<GeneratorState>);

/// The state of a [`Generator`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GeneratorState {
    /// The initial seed.
    pub seed: u64,
    /// Number of draws so far.
    pub drawn: u64,
}

impl GeneratorState {
    /// The next draw's seed.
    pub(crate) fn next(&mut self) -> u64 {
        let [low, high, ..] = philox(self.drawn, self.seed);
        self.drawn = self.drawn.wrapping_add(1);
        u64::from(high) << 32 | u64::from(low)
    }
}

/// The key of a seed's stream from its beginning, `i64[2]`.
pub(super) fn key_of(seed: u64) -> RusTorchResult<Tensor> {
    match recording::key_of(seed) {
        Some(placeholder) => Ok(Tensor::of(placeholder, None)),
        None => Tensor::from_slice(&[seed as i64, 0], [2]),
    }
}

static DEFAULT: Generator = Generator::new(0);

/// The generator of functions without a generator argument. It begins with seed 0.
pub fn default_generator() -> &'static Generator {
    &DEFAULT
}

/// Restarts the default generator: the same numbers follow each time.
pub fn manual_seed(seed: u64) {
    DEFAULT.manual_seed(seed);
}

/// The initial seed of the default generator.
pub fn initial_seed() -> u64 {
    DEFAULT.initial_seed()
}

/// Calls `f`, then restores the default generator's state: `torch.random.fork_rng`. Numbers that
/// other threads draw during the call are drawn again.
pub fn fork_rng<R>(f: impl FnOnce() -> R) -> R {
    restoring(DEFAULT.state(), |before| DEFAULT.set_state(before), f)
}

#[track_calls]
impl Generator {
    /// A generator with a seed.
    pub const fn new(seed: u64) -> Self {
        Self(Mutex::new(GeneratorState { seed, drawn: 0 }))
    }

    fn lock(&self) -> MutexGuard<'_, GeneratorState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Restarts it with a seed.
    pub fn manual_seed(&self, seed: u64) {
        self.set_state(GeneratorState { seed, drawn: 0 });
    }

    /// Restarts it with an unpredictable seed, and returns the seed.
    pub fn seed(&self) -> u64 {
        // The keys of the standard library's hashing are taken from the system's randomness.
        let seed = RandomState::new().hash_one(self.state().drawn);
        self.manual_seed(seed);
        seed
    }

    /// The initial seed.
    pub fn initial_seed(&self) -> u64 {
        self.lock().seed
    }

    /// The generator's state: PyTorch's `get_state`.
    #[doc(alias = "get_rng_state")]
    #[doc(alias = "get_state")]
    pub fn state(&self) -> GeneratorState {
        *self.lock()
    }

    /// Restores a state of this or another generator.
    #[doc(alias = "set_rng_state")]
    pub fn set_state(&self, state: GeneratorState) {
        *self.lock() = state;
    }

    /// A new generator, whose seed is drawn from this one.
    pub fn fork(&self) -> Self {
        Self::new(self.draw_seed())
    }

    pub(super) fn draw_seed(&self) -> u64 {
        let mut state = self.lock();
        let drawn = state.drawn;
        let seed = state.next();
        drop(state);
        recording::drew(ptr::eq(self, &DEFAULT).then_some(drawn), seed);
        seed
    }

    /// Skips this number of draws, and returns the state before.
    pub(crate) fn advance(&self, draws: u64) -> GeneratorState {
        let mut state = self.lock();
        let before = *state;
        state.drawn = state.drawn.wrapping_add(draws);
        before
    }

    /// The key of the next draw, `i64[2]`, for functions that take a key.
    ///
    /// # Errors
    /// Fails if the host is out of memory.
    pub fn key(&self) -> RusTorchResult<Tensor> {
        key_of(self.draw_seed())
    }
}
