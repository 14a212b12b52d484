//! A thread's recording of a computation that runs many times. Its numbers and random keys change
//! in each run. [`replay`](crate::api::replay) is the public interface.

use std::cell::RefCell;

use rustorch_ir::{DType, Scalar, TensorType};
use rustorch_runtime::DeviceType;

use crate::lazy::value::{State, Value};
use crate::thread_state::restoring;

thread_local! {
    static DRAWS: RefCell<Option<Draws>> = const { RefCell::new(None) };
    static NUMBERS: RefCell<Option<Numbers>> = const { RefCell::new(None) };
}

/// The random numbers drawn.
#[derive(Default)]
pub(crate) struct Draws {
    /// Keys of the default generator.
    pub(crate) keys: Vec<DrawnKey>,
    /// Was something drawn from another one?
    pub(crate) is_foreign: bool,
}

/// A key of the default generator.
pub(crate) struct DrawnKey {
    /// Number of draws before.
    pub(crate) drawn: u64,
    /// The seed that it drew.
    seed: u64,
    /// The key, `i64[2]`.
    pub(crate) placeholder: Value,
}

/// Numbers that are operands.
#[derive(Default)]
struct Numbers {
    /// The placeholders of other recordings, which are shared in their order as far as they are the same.
    known: Vec<(Value, Scalar)>,
    found: Vec<(Value, Scalar)>,
}

/// Calls `f`, and returns its draws; keys of the default generator are placeholders in it.
pub(crate) fn with_draws<R>(f: impl FnOnce() -> R) -> (R, Draws) {
    let before = DRAWS.replace(Some(Draws::default()));
    let set = |before| drop(DRAWS.replace(before));
    restoring(before, set, || (f(), DRAWS.take().unwrap_or_default()))
}

/// Does this thread record a computation that runs many times?
pub(crate) fn is_recording() -> bool {
    DRAWS.with_borrow(Option::is_some)
}

/// A generator drew a seed: the default one, after it had drawn so often, or another one.
pub(crate) fn drew(drawn: Option<u64>, seed: u64) {
    DRAWS.with_borrow_mut(|draws| {
        let Some(draws) = draws else { return };
        match drawn {
            None => draws.is_foreign = true,
            // A checkpoint draws again what it drew.
            Some(drawn) if draws.keys.iter().any(|key| key.drawn == drawn) => {}
            Some(drawn) => draws.keys.push(DrawnKey {
                drawn,
                seed,
                placeholder: Value::new(TensorType::new([2], DType::I64), None, State::Placeholder),
            }),
        }
    });
}

/// The placeholder that a seed's key is, if the seed was drawn to be another one in each run.
pub(crate) fn key_of(seed: u64) -> Option<Value> {
    DRAWS.with_borrow(|draws| {
        let mut keys = draws.iter().flat_map(|draws| &draws.keys);
        let key = keys.find(|key| key.seed == seed);
        key.map(|key| key.placeholder.clone())
    })
}

/// Calls `f`, in which numbers that are operands are placeholders, and returns these.
pub(crate) fn with_numbers<R>(
    known: Vec<(Value, Scalar)>,
    f: impl FnOnce() -> R,
) -> (R, Vec<(Value, Scalar)>) {
    let found = Vec::new();
    let before = NUMBERS.replace(Some(Numbers { known, found }));
    let set = |before| drop(NUMBERS.replace(before));
    restoring(before, set, || {
        let result = f();
        (result, NUMBERS.take().unwrap_or_default().found)
    })
}

/// The placeholder of a number in the current recording, if it is one.
pub(crate) fn number(number: Scalar, ty: &TensorType, pin: Option<DeviceType>) -> Option<Value> {
    NUMBERS.with_borrow_mut(|numbers| {
        let numbers = numbers.as_mut()?;
        let known = numbers.known.get(numbers.found.len());
        let same = known.filter(|(value, known)| *known == number && value.ty() == ty);
        let value = match same {
            Some((value, _)) => value.clone(),
            None => Value::new(ty.clone(), pin, State::Placeholder),
        };
        numbers.found.push((value.clone(), number));
        Some(value)
    })
}
