//! Computations that are recorded once for a [`Trace`](crate::Trace), with what is another one in each run: the
//! numbers of an optimiser's step, and what random tensors are drawn by.

use std::sync::Arc;

use rustorch_ir::{Op, OpError, Scalar};
use rustorch_runtime::Call;
use smallvec::SmallVec;

use crate::Tensor;
use crate::error::RusTorchResult;
use crate::history::History;
use crate::random::{GeneratorState, default_generator};
use crate::recording;
use crate::value::{Pending, Value};

/// What a recorded computation draws random tensors by: keys of the default generator, which are placeholders of a
/// [`Trace`](crate::Trace).
pub struct RandomKeys {
    /// Where each key is in the generator's stream, counted from where it stands, and its placeholder, `i64[2]`.
    keys: Vec<(u64, Tensor)>,
    /// How often a run draws.
    draws: u64,
}

impl RandomKeys {
    /// The placeholders.
    pub fn placeholders(&self) -> impl ExactSizeIterator<Item = &Tensor> {
        self.keys.iter().map(|(_, placeholder)| placeholder)
    }

    /// The keys of the next run, in the placeholders' order: what the computation would draw now if it were recorded
    /// again. The default generator goes on.
    pub fn draw(&self) -> Vec<[i64; 2]> {
        let start = default_generator().advance(self.draws);
        let key = |(at, _): &(u64, Tensor)| {
            let drawn = start.drawn.wrapping_add(*at);
            [GeneratorState { drawn, ..start }.next() as i64, 0]
        };
        self.keys.iter().map(key).collect()
    }
}

/// Calls `f`, which records a computation that is to be run many times, and draws anew in each run. The default
/// generator stays where it stands.
///
/// # Errors
/// Those of `f`; draws from a generator other than the default one, or after that was seeded anew: all runs would draw
/// the same.
pub fn record_keys<T>(f: impl FnOnce() -> RusTorchResult<T>) -> RusTorchResult<(T, RandomKeys)> {
    let generator = default_generator();
    let start = generator.state();
    let (result, draws) = recording::with_draws(f);
    let end = generator.state();
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

/// Does this thread record a computation that is to be run many times ([`record_keys`])? What is computed there and then
/// is part of no run.
pub fn is_recording() -> bool {
    recording::is_recording()
}

/// A number that is an operand: a placeholder of a [`Trace`](crate::Trace), of rank 0, and the number that it was
/// recorded with.
#[derive(Clone)]
pub struct VaryingNumber {
    /// The operand.
    pub placeholder: Tensor,
    /// The number.
    pub value: Scalar,
}

/// Calls `f`, in which numbers that are operands of tensors' methods are placeholders, and tells which they are, in their
/// order. Of those that are `known` and the same the placeholders are taken again.
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

/// An operation that a tensor is still to be computed by.
pub struct Operation {
    /// The operation.
    pub op: Op,
    /// The method that the user called, and where.
    pub call: Call,
    /// Its operands.
    pub operands: Vec<Tensor>,
    /// Its results that there are handles on.
    pub results: Vec<Tensor>,
}

/// The operations that tensors are still to be computed by, in the order in which they were recorded: the same list
/// where the same program computes them.
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
