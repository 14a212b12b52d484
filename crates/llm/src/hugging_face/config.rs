//! A folder's `config.json`, read by key.

use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::LlmError;

/// The largest size in use: sums and products stay in range.
const MAX_SIZE: u64 = 1 << 28;

/// A JSON file.
///
/// # Errors
/// Fails if the file cannot be read, or has another structure.
pub(super) fn json<T: DeserializeOwned>(path: &Path) -> Result<T, LlmError> {
    let text = text(path)?;
    serde_json::from_str(&text).map_err(|error| LlmError::folder(path, error))
}

/// A JSON file that a folder may lack.
///
/// # Errors
/// The same errors as [`json`].
pub(super) fn opt_json<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, LlmError> {
    path.exists().then(|| json(path)).transpose()
}

/// A text file.
///
/// # Errors
/// Fails if the file cannot be read.
pub(super) fn text(path: &Path) -> Result<String, LlmError> {
    let failed = |error: std::io::Error| {
        let advice = rustorch_gguf::io_advice(&error);
        LlmError::folder(path, format!("cannot read the file: {error}{advice}"))
    };
    std::fs::read_to_string(path).map_err(failed)
}

/// Keys of the whole model that its part for texts may have, too.
const OF_THE_WHOLE: [&str; 3] = ["model_type", "architectures", "tie_word_embeddings"];

/// The keys of `config.json`.
pub(super) struct Config {
    path: PathBuf,
    values: Map<String, Value>,
}

impl Config {
    /// The file of a folder. A model for more than texts has the decoder's keys in `text_config`.
    ///
    /// # Errors
    /// The same errors as [`json`].
    pub(super) fn read(folder: &Path) -> Result<Self, LlmError> {
        let path = folder.join("config.json");
        let mut values: Map<String, Value> = json(&path)?;
        if let Some(Value::Object(text)) = values.remove("text_config") {
            if let Some(kind) = text.get("model_type") {
                values.insert("text_model_type".to_owned(), kind.clone());
            }
            let is_whole = |key: &str| {
                OF_THE_WHOLE.contains(&key) && values.get(key).is_some_and(|value| !value.is_null())
            };
            let own: Map<String, Value> =
                text.into_iter().filter(|(key, _)| !is_whole(key)).collect();
            values.extend(own);
        }
        // Some types have parts of their keys in objects.
        for part in ["attn_config", "ffn_config"] {
            if let Some(Value::Object(part)) = values.remove(part) {
                let own = part.into_iter().filter(|(key, _)| key != "hidden_size");
                for (key, value) in own {
                    values.entry(key).or_insert(value);
                }
            }
        }
        Ok(Self { path, values })
    }

    /// Keys that a type has where the file lacks them.
    pub(super) fn with_defaults(mut self, defaults: &[(&str, f64)]) -> Self {
        for &(key, value) in defaults {
            if self.get(&[key]).is_none() {
                self.values.insert(key.to_owned(), value.into());
            }
        }
        self
    }

    /// A file beside `config.json`.
    pub(super) fn beside(&self, name: impl AsRef<Path>) -> PathBuf {
        self.path.with_file_name("").join(name)
    }

    /// An error about a key.
    pub(super) fn wrong(&self, key: &str, problem: impl ToString) -> LlmError {
        LlmError::folder(&self.path, format!("{key}: {}", problem.to_string()))
    }

    /// The first of these keys that has a value.
    pub(super) fn get<'a>(&'a self, keys: &[&'a str]) -> Option<(&'a str, &'a Value)> {
        let found = |&key| self.values.get(key).map(|value| (key, value));
        let mut found = keys.iter().filter_map(found);
        found.find(|(_, value)| !value.is_null())
    }

    /// An object.
    pub(super) fn object(&self, key: &str) -> Option<&Map<String, Value>> {
        self.values.get(key)?.as_object()
    }

    /// A text.
    pub(super) fn text(&self, key: &str) -> Option<&str> {
        self.values.get(key)?.as_str()
    }

    /// A boolean. A number is true unless it is 0.
    pub(super) fn flag(&self, key: &str) -> Option<bool> {
        let value = self.values.get(key)?;
        value.as_bool().or_else(|| Some(value.as_f64()? != 0.0))
    }

    /// A size.
    ///
    /// # Errors
    /// Fails if the value has another type.
    pub(super) fn opt_size(&self, keys: &[&str]) -> Result<Option<u32>, LlmError> {
        let Some((key, value)) = self.get(keys) else {
            return Ok(None);
        };
        let size = whole(value).filter(|size| *size <= MAX_SIZE);
        let size = size.and_then(|size| u32::try_from(size).ok());
        let problem = || self.wrong(key, format!("expected 0 to {MAX_SIZE}, got {value}"));
        size.ok_or_else(problem).map(Some)
    }

    /// A size that is more than 0.
    ///
    /// # Errors
    /// Fails if the key is missing, or if the value is not a positive size.
    pub(super) fn size(&self, keys: &[&str]) -> Result<u32, LlmError> {
        let size = self.opt_size(keys)?.filter(|size| *size > 0);
        size.ok_or_else(|| match self.get(keys) {
            Some((key, value)) => self.wrong(key, format!("expected more than 0, got {value}")),
            None => self.wrong(keys[0], "missing; fetch the model's own config.json"),
        })
    }

    /// A number.
    ///
    /// # Errors
    /// Fails if the value has another type.
    pub(super) fn opt_number(&self, keys: &[&str]) -> Result<Option<f64>, LlmError> {
        let Some((key, value)) = self.get(keys) else {
            return Ok(None);
        };
        let problem = || self.wrong(key, format!("expected a number, got {value}"));
        value.as_f64().ok_or_else(problem).map(Some)
    }
}

/// A whole number that is not negative.
fn whole(value: &Value) -> Option<u64> {
    let fractionless = |x: &f64| *x >= 0.0 && x.fract() == 0.0 && *x <= MAX_SIZE as f64;
    value
        .as_u64()
        .or_else(|| value.as_f64().filter(fractionless).map(|x| x as u64))
}
