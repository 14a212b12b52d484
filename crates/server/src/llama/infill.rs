//! llama-server's `/infill`: the prompt of a text that fills a gap.
//!
//! Files of a repository come first, as in <https://arxiv.org/abs/2409.12186>:
//!
//! ```text
//! [repository] myproject [separator] name, text … [separator] filename
//! [prefix] text in front of the gap [suffix] text behind it [middle] beginning of the text in the gap
//! ```

use rustorch_tokenizer::EncodeOptions;
use serde::Deserialize;
use serde_json::Value;

use crate::error::ApiError;
use crate::fields::Fields;
use crate::model::Loaded;

/// Text between files, if the model has no token for that. It is llama-server's.
const SNIPPET: &str = "\n\n--- snippet ---\n\n";

/// The texts around a gap.
#[derive(Debug, Deserialize)]
struct Around {
    #[serde(default)]
    input_prefix: String,
    #[serde(default)]
    input_suffix: String,
    #[serde(default)]
    input_extra: Vec<Extra>,
    /// The beginning of the text in the gap.
    #[serde(default)]
    prompt: String,
}

/// Another file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Extra {
    text: String,
    filename: Option<String>,
}

const NAMES: [&str; 4] = ["input_prefix", "input_suffix", "input_extra", "prompt"];

/// Puts the prompt in place of the texts around the gap. Nothing is cut off.
///
/// # Errors
/// Fails for a value of a wrong type, and for a model that was not trained to fill gaps.
pub(crate) fn fill(model: &Loaded, fields: &mut Fields) -> Result<(), ApiError> {
    let tokenizer = model.tokenizer();
    let tokens = tokenizer.fill_tokens().ok_or_else(|| {
        let problem = format!(
            "{} was not trained to fill gaps: it lacks their tokens",
            model.name
        );
        ApiError::unsupported(problem)
    })?;
    let around: Around = fields.split(&NAMES).into()?;
    let encode = |text: &str| tokenizer.encode(text, EncodeOptions::default());
    let mut ids: Vec<u32> = tokenizer
        .bos()
        .filter(|_| tokenizer.adds_bos())
        .into_iter()
        .collect();
    if let Some(repository) = tokens.repository {
        ids.push(repository);
        ids.extend(encode("myproject\n"));
    }
    for Extra { text, filename } in &around.input_extra {
        match tokens.separator {
            Some(separator) => {
                ids.push(separator);
                ids.extend(encode(&format!(
                    "{}\n",
                    filename.as_deref().unwrap_or("tmp")
                )));
            }
            None => ids.extend(encode(SNIPPET)),
        }
        ids.extend(encode(text));
    }
    if let Some(separator) = tokens.separator {
        ids.push(separator);
        ids.extend(encode("filename\n"));
    }
    ids.push(tokens.prefix);
    ids.extend(encode(&around.input_prefix));
    ids.push(tokens.suffix);
    ids.extend(encode(&around.input_suffix));
    ids.push(tokens.middle);
    ids.extend(encode(&around.prompt));
    fields.set("prompt", ids.into_iter().map(Value::from).collect());
    Ok(())
}
