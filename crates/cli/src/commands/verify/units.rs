//! The preferred compute units of a device with several units. They do not prove where operations
//! ran.

use std::time::Instant;

use anyhow::Result;
use rustorch_llm::{Model, Scores, Selection, Session, SessionOptions};

use super::findings::{Figure, Findings, Row};
use crate::subject::Subject;

/// Tokens of the prompt.
const PROMPT: usize = 16;

/// Reports the compute units that Core ML prefers for a prompt and for a token of the bundled model.
pub(super) fn check(subject: &Subject, model: &Model) -> Findings {
    let rows = match prefer(subject, model) {
        Ok(rows) if rows.is_empty() => {
            vec![Row::skipped("all", "the device reports no choice of units")]
        }
        Ok(rows) => rows,
        Err(e) => vec![Row::failed("preferred units", format!("{e:#}"))],
    };
    Findings {
        did: format!(
            "The bundled model reads a prompt of {PROMPT} tokens and generates one. The table counts the \
             operations by the compute unit that the device reports as preferred; it does not \
             report where they ran. `ready` is the time to the first result in seconds, compiling \
             included."
        ),
        rows,
        ..Findings::default()
    }
}

fn prefer(subject: &Subject, model: &Model) -> Result<Vec<Row>> {
    let runtime = subject.runtime();
    let options = SessionOptions {
        context: PROMPT + 1,
        ..subject.session(model)?
    };
    let mut session = Session::new(model, &runtime, options)?;
    let (best, mut scores) = (Selection::best(), Scores::default());
    let prompt: Vec<u32> = (0..PROMPT as u32).collect();
    let mut rows = Vec::new();
    for (name, tokens) in [("prompt", &prompt[..]), ("token", &prompt[..1])] {
        let start = Instant::now();
        session.feed_and_select(tokens, &best, &mut scores)?;
        let ready = start.elapsed().as_secs_f64();
        for preferred in session.preferred_units(tokens.len(), &best) {
            let figures = vec![
                Figure::count("operations", preferred.operations),
                Figure::new("ready", ready),
            ];
            let unit = preferred.unit.as_deref().unwrap_or("no reported unit");
            let what = format!("{name}: {} prefers {unit}", preferred.device);
            rows.push(Row::passed(what, figures));
        }
    }
    Ok(rows)
}
