//! Several texts at once by every architecture: the logits of each are those alone.

use std::sync::Arc;

use rustorch_llm::engine::{Engine, EngineEvent, EngineOptions, Request, Stream};
use rustorch_llm::sampler::SamplerConfig;
use rustorch_llm::{LlmError, Session, SessionOptions};
use rustorch_testing::models::{Header, TOKENS};

use crate::common::{cpu, headers, load, none_of, options};

/// Tokens of each text, which fill more rows than a layer with a window has.
const GENERATED: usize = 24;

pub(crate) fn every_architecture_in_company() {
    let problems = headers().into_iter().filter_map(|header| {
        let problem = in_company(&header).unwrap_or_else(|error| Some(error.to_string()));
        problem.map(|problem| format!("{}: {problem}", header.name))
    });
    none_of(&problems.collect::<Vec<_>>());
}

/// The difference from the log probabilities alone, if there is one.
fn in_company(header: &Header) -> Result<Option<String>, LlmError> {
    let (model, runtime) = (Arc::new(load(header)?), cpu());
    let session = SessionOptions {
        batch: 8,
        ..options()
    };
    let engine_options = EngineOptions {
        sequences: 3,
        queue: 3,
        session: session.clone(),
        ..EngineOptions::default()
    };
    let engine = Engine::new(model.clone(), &runtime, engine_options)?;
    let prompts = [&TOKENS[..30], &TOKENS[3..9], &TOKENS[5..22]];
    let submit = |prompt: &&[u32]| {
        engine.submit(Request {
            max_tokens: Some(GENERATED),
            sampler: SamplerConfig::default().temperature(0.0),
            ignore_end: true,
            logprobs: Some(4),
            ..Request::new(*prompt)
        })
    };
    let streams: Vec<Stream> = prompts.iter().map(submit).collect::<Result<_, _>>()?;
    for (prompt, stream) in prompts.iter().zip(streams) {
        let (mut ids, mut found) = (prompt.to_vec(), Vec::new());
        for event in stream {
            match event {
                EngineEvent::Token { id, logprobs } => {
                    ids.push(id);
                    found.extend(logprobs);
                }
                EngineEvent::Failed(error) => return Err(error),
                _ => {}
            }
        }
        assert_eq!(found.len(), GENERATED);
        let mut alone = Session::new(&model, &runtime, session.clone())?;
        let mut rows: Vec<Vec<f32>> = Vec::new();
        alone.feed_all(&ids, |_, logits| {
            rows.extend(logits.chunks_exact(model.spec().vocab).map(<[f32]>::to_vec));
            Ok::<_, LlmError>(())
        })?;
        for (i, found) in found.iter().enumerate() {
            let logits = &rows[prompt.len() + i - 1];
            let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let terms = logits.iter().map(|&x| f64::from(x - most).exp());
            let total = f64::from(most) + terms.sum::<f64>().ln();
            for &(id, logprob) in &found.top {
                let expected = (f64::from(logits[id as usize]) - total) as f32;
                if (logprob - expected).abs() > 1e-3 * most.abs().max(1.0) {
                    let text = prompt.len();
                    return Ok(Some(format!(
                        "text of {text}, token {i}, id {id}: {logprob}, alone {expected}"
                    )));
                }
            }
        }
    }
    Ok(None)
}
