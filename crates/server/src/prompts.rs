//! Prompts of requests: a text, token ids, both mixed, or an array of these.

use rustorch_tokenizer::EncodeOptions;
use serde_json::Value;

use crate::error::ApiError;
use crate::model::Loaded;

/// Prompts that a request may have, and answers to all of them together.
const MOST: usize = 2048;

/// The prompts of a request.
pub(crate) struct Prompts {
    pub(crate) all: Vec<Prompt>,
    /// Did they come in an array?
    pub(crate) is_list: bool,
}

/// A prompt.
pub(crate) struct Prompt {
    pub(crate) ids: Vec<u32>,
    /// The text, if it came as one.
    pub(crate) text: Option<String>,
}

impl Prompts {
    /// Reads the field `param`.
    ///
    /// # Errors
    /// Fails if the value is of another form, or if a token is not in the vocabulary.
    pub(crate) fn read(model: &Loaded, param: &str, value: Value) -> Result<Self, ApiError> {
        // Numbers make an array one prompt, as in llama-server.
        let (values, is_list) = match value {
            Value::Array(values) if !values.iter().any(Value::is_number) => (values, true),
            value => (vec![value], false),
        };
        if !(1..=MOST).contains(&values.len()) {
            let problem = format!("{} prompts; expected 1 to {MOST}", values.len());
            return Err(ApiError::field(param, problem));
        }
        let all = values.into_iter().map(|value| prompt(model, param, value));
        Ok(Self {
            all: all.collect::<Result<_, _>>()?,
            is_list,
        })
    }

    /// Checks the number of answers, `n` to each prompt.
    ///
    /// # Errors
    /// Fails if there are too many.
    pub(crate) fn check_answers(&self, n: usize) -> Result<(), ApiError> {
        let prompts = self.all.len();
        match prompts.saturating_mul(n) {
            0..=MOST => Ok(()),
            all => {
                let problem =
                    format!("{n} answers to {prompts} prompts are {all}; expected at most {MOST}");
                Err(ApiError::field("n", problem))
            }
        }
    }
}

fn prompt(model: &Loaded, param: &str, value: Value) -> Result<Prompt, ApiError> {
    let expected = || {
        let problem = "expected a text, token ids, or an array of texts or token ids";
        ApiError::field(param, problem)
    };
    let text = match value {
        Value::String(text) => text,
        Value::Array(pieces) => {
            let mut ids = Vec::new();
            for (index, piece) in pieces.iter().enumerate() {
                match (piece.as_u64(), piece.as_str()) {
                    (Some(id), _) => ids.push(u32::try_from(id).map_err(|_| expected())?),
                    (_, Some(text)) => {
                        let options = EncodeOptions {
                            add_special: index == 0,
                            parse_special: true,
                        };
                        ids.extend(model.tokenizer().encode(text, options));
                    }
                    _ => return Err(expected()),
                }
            }
            model.check_tokens(param, ids.iter().copied())?;
            return Ok(Prompt { ids, text: None });
        }
        Value::Object(object) => {
            let media = object.get("multimodal_data");
            let is_none =
                |media: &Value| media.is_null() || media.as_array().is_some_and(Vec::is_empty);
            if media.is_some_and(|media| !is_none(media)) {
                let problem = "image input is not supported; send text";
                return Err(ApiError::field(param, problem));
            }
            match (&object.get("prompt_string"), object.get("content")) {
                (Some(Value::String(text)), None) => text.clone(),
                (None, Some(Value::Array(parts))) => {
                    let text = |part: &Value| match part["type"].as_str() {
                        Some("text") => part["text"].as_str().map(str::to_owned),
                        _ => None,
                    };
                    let texts: Option<String> = parts.iter().map(text).collect();
                    let problem = "expected parts of type text";
                    texts.ok_or_else(|| ApiError::field(param, problem))?
                }
                _ => return Err(expected()),
            }
        }
        _ => return Err(expected()),
    };
    Ok(Prompt {
        ids: model.encode(&text),
        text: Some(text),
    })
}
