//! Computations that are recorded once for a [`Trace`](crate::Trace), with some values that change
//! in each run. Such values are the numbers of an optimiser's step, and the keys of random tensors.

use std::sync::Arc;

use rustorch_ir::{Op, OpError, Scalar};
use rustorch_runtime::Call;
use smallvec::SmallVec;

use crate::Tensor;
use crate::api::random::{GeneratorState, default_generator};
use crate::error::RusTorchResult;
use crate::lazy::history::History;
use crate::lazy::recording;
use crate::lazy::value::{Pending, Value};

/// The random keys of a recorded computation: keys of the default generator, which are placeholders of a
/// [`Trace`](crate::Trace).
pub struct RandomKeys {
    /// The place of each key in the generator's stream, from its current state, and its placeholder, `i64[2]`.
    keys: Vec<(u64, Tensor)>,
    /// Number of draws of a run.
    draws: u64,
}

impl RandomKeys {
    /// The placeholders.
    pub fn placeholders(&self) -> impl ExactSizeIterator<Item = &Tensor> {
        self.keys.iter().map(|(_, placeholder)| placeholder)
    }

    /// The keys of the next run, in the order of the placeholders. They are those that the
    /// computation would draw if it were recorded again.
    pub fn draw(&self) -> Vec<[i64; 2]> {
        let start = default_generator().advance(self.draws);
        let key = |(at, _): &(u64, Tensor)| {
            let drawn = start.drawn.wrapping_add(*at);
            [GeneratorState { drawn, ..start }.next() as i64, 0]
        };
        self.keys.iter().map(key).collect()
    }
}

/// Calls `f`, which records a computation that runs many times and draws new random numbers in each
/// run. The default generator does not advance.
///
/// # Errors
/// The errors of `f`. Fails for draws from a generator other than the default one, or after a new
/// seed. All runs would draw the same numbers.
pub fn record_keys<T>(f: impl FnOnce() -> RusTorchResult<T>) -> RusTorchResult<(T, RandomKeys)> {
    let generator = default_generator();
    let start = generator.state();
    let (result, draws) = recording::with_draws(f);
    let end = generator.state();
    if draws.keys.is_empty() && !draws.is_foreign && start.seed == end.seed {
        // Other threads may have drawn in between, such as those of other ranks.
        let (keys, draws) = (Vec::new(), 0);
        return Ok((result?, RandomKeys { keys, draws }));
    }
    generator.set_state(start);
    let result = result?;
    let keys = draws.keys.into_iter().map(|key| {
        let at = key.drawn.checked_sub(start.drawn)?;
        Some((at, Tensor::of(key.placeholder, None)))
    });
    let keys = keys.collect::<Option<Vec<_>>>();
    let drawn = end.drawn.checked_sub(start.drawn);
    match (keys, drawn) {
        (Some(keys), Some(drawn)) if start.seed == end.seed && !draws.is_foreign => {
            Ok((result, RandomKeys { keys, draws: drawn }))
        }
        _ => {
            let expected =
                "random numbers of the default generator, which is not seeded in between";
            let got = "others, which would be the same in every run";
            Err(OpError::new("record_keys", expected, got).into())
        }
    }
}

/// Returns whether this thread records a computation that runs many times ([`record_keys`]). Values that are
/// computed during the recording are not part of any run.
pub fn is_recording() -> bool {
    recording::is_recording()
}

/// A number that is an operand: a placeholder of a [`Trace`](crate::Trace), of rank 0, and its
/// number at the recording.
#[derive(Clone)]
pub struct VaryingNumber {
    /// The operand.
    pub placeholder: Tensor,
    /// The number.
    pub value: Scalar,
}

/// Calls `f`. During the call, numbers passed to tensors' methods become placeholders. Returns them
/// in order. Equal numbers reuse the placeholders of `known`.
pub fn record_numbers<R>(
    known: &[VaryingNumber],
    f: impl FnOnce() -> R,
) -> (R, Vec<VaryingNumber>) {
    let known = known
        .iter()
        .map(|number| (number.placeholder.value().clone(), number.value));
    let (result, found) = recording::with_numbers(known.collect(), f);
    let number = |(value, number)| VaryingNumber {
        placeholder: Tensor::of(value, None),
        value: number,
    };
    (result, found.into_iter().map(number).collect())
}

/// A pending operation.
pub struct Operation {
    /// The operation.
    pub op: Op,
    /// The method that the user called, and its line.
    pub call: Call,
    /// Its operands.
    pub operands: Vec<Tensor>,
    /// Its results that have handles.
    pub results: Vec<Tensor>,
}

/// The pending operations of tensors, in the order of recording. The same program gives the same
/// list.
pub fn operations(tensors: &[&Tensor]) -> Vec<Operation> {
    let history = History::of(tensors.iter().map(|tensor| tensor.value()));
    let handle = |value: &Value| Tensor::of(value.clone(), None);
    let operation = |(results, pending): &(SmallVec<[Value; 1]>, Arc<Pending>)| Operation {
        op: pending.op.clone(),
        call: pending.call,
        operands: pending.inputs.iter().map(handle).collect(),
        results: results.iter().map(handle).collect(),
    };
    history.nodes.iter().map(operation).collect()
}
