//! Runs samples; a panic in one is its failure, and the others go on.

use std::any::Any;
use std::cell::RefCell;
use std::panic::{self, AssertUnwindSafe};

use anyhow::{Error, Result};

use crate::call::{Call, Entry, Stop};
use crate::compare::How;
use crate::factors;
use crate::golden::{BadSample, Given, Golden, Sample, Tensors};
use crate::gradients;
use crate::ops;
use crate::report::{OpReport, Verdict};
use crate::value::{Output, Value};

thread_local! {
    /// Where the last panic was.
    static PANICKED_AT: RefCell<String> = const { RefCell::new(String::new()) };
}

/// From now on panics are kept, not printed: they are told as failures.
pub(crate) fn quiet_panics() {
    panic::set_hook(Box::new(|info| {
        let place = info.location().map(ToString::to_string);
        PANICKED_AT.set(place.unwrap_or_default());
    }));
}

/// The gradients of an operation's samples, those that have some.
pub(crate) fn gradients_of(golden: &Golden) -> Result<OpReport> {
    let name = golden.full_name();
    let found = ops::find(&name, golden.op());
    let tensors = golden.tensors()?;
    let mut report = OpReport::new(name, found.map_or("", |(family, _)| family));
    let Some((_, entry)) = found else {
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

/// All samples of an operation.
pub(crate) fn operation(golden: &Golden) -> Result<OpReport> {
    let name = golden.full_name();
    let (family, entry) = match ops::find(&name, golden.op()) {
        Some((family, entry)) => (family, Some(entry)),
        None => ("", None),
    };
    let tensors = golden.tensors()?;
    let mut report = OpReport::new(name, family);
    for sample in golden.samples() {
        report.add(
            sample.name(),
            verdict(entry, |entry| good(entry, sample, &tensors)),
        );
    }
    // What Python refuses by an argument's type is the compiler's to refuse.
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

/// What comes of a sample, if there is a function for it.
fn verdict(entry: Option<&Entry>, judge: impl FnOnce(&Entry) -> Result<Verdict>) -> Verdict {
    match entry {
        Some(entry) => guarded(|| judge(entry)),
        None => Verdict::Missing("no function of this name".into()),
    }
}

/// What comes of a sample, even if it panics.
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

pub(crate) fn call(entry: &Entry, (positional, keywords): Given) -> Result<Output, Stop> {
    (entry.call)(&Call::bind(entry.signature, positional, keywords)?)
}

/// A sample that has a result.
fn good(entry: &Entry, sample: &Sample, tensors: &Tensors) -> Result<Verdict> {
    let expected = sample.expected(tensors)?;
    let given = sample.given(tensors)?;
    let input = given.0.first().cloned();
    let compare = |output| match (sample.how(), &input) {
        (How::Ties, Some(Value::Tensor(input))) => {
            expected.compare_ties(&output, input, sample.dim())
        }
        (How::Reconstruct, _) => factors::compare(entry.name, &expected, &output),
        (how, _) => expected.compare(&output, how),
    };
    judge(call(entry, given), compare)
}

/// A call that should have a result, which `compare` looks at.
pub(crate) fn judge(
    outcome: Result<Output, Stop>,
    compare: impl FnOnce(Output) -> Result<(), String>,
) -> Result<Verdict> {
    Ok(match outcome {
        Ok(output) => match compare(output) {
            Ok(()) => Verdict::Passed,
            Err(reason) => Verdict::Failed(reason),
        },
        Err(Stop::Refused(e)) => Verdict::Failed(e.to_string()),
        Err(Stop::Missing(what) | Stop::Untyped(what)) => Verdict::Missing(what),
        Err(Stop::Mistake(what)) => return Err(Error::msg(what)),
    })
}

/// A sample that is to be refused: by a type, when it is recorded, or when it is computed.
fn bad(entry: &Entry, sample: &BadSample, tensors: &Tensors) -> Result<Verdict> {
    let outcome = call(entry, sample.given(tensors)?);
    Ok(match outcome {
        Ok(output) if is_computed(&output) => {
            Verdict::Failed(format!("is taken, should be refused ({})", sample.error()))
        }
        Ok(_) | Err(Stop::Refused(_) | Stop::Untyped(_)) => Verdict::Passed,
        Err(Stop::Missing(what)) => Verdict::Missing(what),
        Err(Stop::Mistake(what)) => return Err(Error::msg(what)),
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
            reason.contains("run.rs") && reason.ends_with("at 7"),
            "{reason}"
        );
    }
}
