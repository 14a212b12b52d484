//! Which units a device that chooses by itself says it prefers, which is no word about what ran where.

use std::time::Instant;

use anyhow::Result;
use rustorch_llm::{Model, Scores, Selection, Session, SessionOptions};

use super::findings::{Figure, Findings, Row};
use crate::subject::Subject;

/// Tokens of the prompt.
const PROMPT: usize = 16;

/// Asks for the preferences for a prompt and for a token of the bundled model.
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
            "A prompt of {PROMPT} tokens and one after it with the bundled model: of the operations \
             of the device's own programs, how many it says it prefers to run on which unit. Where \
             they ran it does not say. `ready` are the seconds until the first result, with the \
             compiler or what the cache had."
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
            let unit = preferred
                .unit
                .as_deref()
                .unwrap_or("no unit that it reports");
            let what = format!("{name}: {} prefers {unit}", preferred.device);
            rows.push(Row::passed(what, figures));
        }
    }
    Ok(rows)
}
