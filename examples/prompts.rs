//! A hundred prompts, answered eight at a time.

use std::error::Error;
use std::sync::Arc;

use rustorch::llm::engine::{EngineOptions, Request};
use rustorch::llm::{Engine, Gguf, LlmError, Model};
use rustorch::prelude::*;

const MODEL: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/models/classics-13m-Q4_K_M.gguf"
);

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let model = Arc::new(Model::load(Gguf::open(MODEL)?)?);
    let options = EngineOptions {
        sequences: 8,
        queue: 100,
        ..EngineOptions::default()
    };
    let engine = Engine::new(model.clone(), &runtime(), options)?;
    let tokenizer = model.tokenizer()?;
    let ask = |number: u32| {
        let prompt = tokenizer.encode(&format!("Chapter {number}."), Default::default());
        engine.submit(Request {
            max_tokens: Some(8),
            ..Request::new(prompt)
        })
    };
    let streams = (1..=100).map(ask).collect::<Result<Vec<_>, LlmError>>()?;
    for (number, stream) in (1..).zip(streams) {
        let (ids, ..) = stream.finish()?;
        println!("Chapter {number}.{}", tokenizer.decode(&ids));
    }
    Ok(())
}
