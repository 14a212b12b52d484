//! Runs samples; a panic in one is its failure, and the others continue.

use std::any::Any;
use std::cell::RefCell;
use std::panic::{self, AssertUnwindSafe};

use anyhow::Result;

use rustorch_dispatch::{CallError, Function, Output, Value, find};

use crate::replay::compare::How;
use crate::replay::factors;
use crate::replay::golden::{BadSample, Given, Golden, Sample, Tensors};
use crate::replay::gradients;
use crate::replay::report::{OpReport, Verdict};

thread_local! {
    /// Place of the last panic.
    static PANICKED_AT: RefCell<String> = const { RefCell::new(String::new()) };
}

/// From now on panics are kept, not printed: they are reported as failures.
pub(crate) fn quiet_panics() {
    panic::set_hook(Box::new(|info| {
        let place = info.location().map(ToString::to_string);
        PANICKED_AT.set(place.unwrap_or_default());
    }));
}

/// The gradients of an operation's samples, those that have some.
pub(crate) fn gradients_of(golden: &Golden) -> Result<OpReport> {
    let name = golden.full_name();
    let found = function_of(golden);
    let tensors = golden.tensors()?;
    let mut report = OpReport::new(name, found.map_or("", Function::family));
    let Some(entry) = found else {
        return Ok(report);
    };
    for sample in golden.samples() {
        let mut is_there = true;
        let verdict = guarded(|| {
            gradients::sample(entry, sample, &tensors).unwrap_or_else(|| {
                is_there = false;
                Ok(Verdict::Passed)
            })
        });
        if is_there {
            report.add(sample.name(), verdict);
        }
    }
    Ok(report)
}

/// The function that samples are given to: of the variant, if there is one.
fn function_of(golden: &Golden) -> Option<&'static Function> {
    find(&golden.full_name()).or_else(|| find(golden.op()))
}

/// All samples of an operation.
pub(crate) fn operation(golden: &Golden) -> Result<OpReport> {
    let name = golden.full_name();
    let entry = function_of(golden);
    let tensors = golden.tensors()?;
    let mut report = OpReport::new(name, entry.map_or("", Function::family));
    for sample in golden.samples() {
        report.add(
            sample.name(),
            verdict(entry, |entry| good(entry, sample, &tensors)),
        );
    }
    // Arguments of a type that Python refuses are the compiler's to refuse.
    for sample in golden
        .bad_samples()
        .filter(|sample| !sample.is_type_error())
    {
        report.add(
            sample.name(),
            verdict(entry, |entry| bad(entry, sample, &tensors)),
        );
    }
    Ok(report)
}

/// Verdict on a sample, if there is a function for it.
fn verdict(entry: Option<&Function>, judge: impl FnOnce(&Function) -> Result<Verdict>) -> Verdict {
    match entry {
        Some(entry) => guarded(|| judge(entry)),
        None => Verdict::Missing("no function of this name".into()),
    }
}

/// Verdict on a sample, even if it panics.
pub(crate) fn guarded(judge: impl FnOnce() -> Result<Verdict>) -> Verdict {
    match panic::catch_unwind(AssertUnwindSafe(judge)) {
        Ok(Ok(verdict)) => verdict,
        Ok(Err(e)) => Verdict::Failed(format!("the sample cannot be made: {e:#}")),
        Err(panic) => {
            let place = PANICKED_AT.take();
            Verdict::Failed(format!("panics at {place}: {}", text_of(&*panic)))
        }
    }
}

fn text_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref().copied()).unwrap_or("")
}

pub(crate) fn call(entry: &Function, (positional, keywords): Given) -> Result<Output, CallError> {
    entry.call(positional, keywords)
}

/// A sample that has a result.
fn good(entry: &Function, sample: &Sample, tensors: &Tensors) -> Result<Verdict> {
    let expected = sample.expected(tensors)?;
    let given = sample.given(tensors)?;
    let input = given.0.first().cloned();
    let compare = |output| match (sample.how(), &input) {
        (How::Ties, Some(Value::Tensor(input))) => {
            expected.compare_ties(&output, input, sample.dim())
        }
        (How::Reconstruct, _) => factors::compare(entry.name(), &expected, &output),
        (how, _) => expected.compare(&output, how),
    };
    judge(call(entry, given), compare)
}

/// A call that should have a result, which `compare` looks at.
pub(crate) fn judge(
    outcome: Result<Output, CallError>,
    compare: impl FnOnce(Output) -> Result<(), String>,
) -> Result<Verdict> {
    Ok(match outcome {
        Ok(output) => match compare(output) {
            Ok(()) => Verdict::Passed,
            Err(reason) => Verdict::Failed(reason),
        },
        Err(CallError::Refused(e)) => Verdict::Failed(e.to_string()),
        Err(CallError::Missing(what) | CallError::Untyped(what)) => Verdict::Missing(what),
        Err(e) => return Err(e.into()),
    })
}

/// A sample that is to be refused: by a type, when it is recorded, or when it is computed.
fn bad(entry: &Function, sample: &BadSample, tensors: &Tensors) -> Result<Verdict> {
    let outcome = call(entry, sample.given(tensors)?);
    Ok(match outcome {
        Ok(output) if is_computed(&output) => {
            Verdict::Failed(format!("is taken, should be refused ({})", sample.error()))
        }
        Ok(_) | Err(CallError::Refused(_) | CallError::Untyped(_)) => Verdict::Passed,
        Err(CallError::Missing(what)) => Verdict::Missing(what),
        Err(e) => return Err(e.into()),
    })
}

fn is_computed(output: &Output) -> bool {
    match output {
        // Devices find some mistakes only when somebody waits.
        Output::Tensor(tensor) => tensor.storage().is_ok(),
        Output::List(parts) => parts.iter().all(is_computed),
        Output::Value(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_a_failure_that_says_where() {
        quiet_panics();
        let verdict = guarded(|| panic!("at {}", 7));
        let Verdict::Failed(reason) = verdict else {
            panic!("it passed")
        };
        assert!(
            reason.contains("samples.rs") && reason.ends_with("at 7"),
            "{reason}"
        );
    }
}
