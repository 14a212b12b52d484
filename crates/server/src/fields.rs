//! Bodies of requests: JSON objects, taken apart into fields.
//!
//! A request's structure lists its fields once: unknown names and wrong types become errors that name the field.
//! Samplers' options are fields of every request that generates. They derive from the samplers' definitions.

use rustorch_llm::sampler::{OptionValue, SamplerConfig, SamplerKind};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use crate::error::ApiError;

/// The fields of a request that are not read yet.
pub(crate) struct Fields {
    fields: Map<String, Value>,
    /// Fields and tools without effect.
    ignored: Vec<String>,
}

impl Fields {
    /// Reads a body.
    ///
    /// # Errors
    /// Fails if it is not one JSON object in UTF-8.
    pub(crate) fn read(body: &[u8]) -> Result<Self, ApiError> {
        let body = match body {
            [] => b"{}",
            body => body,
        };
        let value: Value = serde_json::from_slice(body)
            .map_err(|error| ApiError::bad(format!("the body is not JSON: {error}")))?;
        match value {
            Value::Object(fields) => Ok(Self::of_body(fields)),
            _ => Err(ApiError::bad("the body is not a JSON object")),
        }
    }

    /// The fields of a body.
    pub(crate) fn of_body(mut fields: Map<String, Value>) -> Self {
        // As if it were not there.
        fields.retain(|_, value| !value.is_null());
        Self::of(fields)
    }

    /// The fields of an object within a request.
    pub(crate) fn of(fields: Map<String, Value>) -> Self {
        Self {
            fields,
            ignored: Vec::new(),
        }
    }

    /// Takes fields away that are hints: they have no effect, and their absence changes no answer.
    pub(crate) fn skip(&mut self, hints: &[&str]) {
        for &hint in hints {
            if self.fields.shift_remove(hint).is_some() {
                self.ignored.push(hint.to_owned());
            }
        }
    }

    /// Notes something else without effect.
    pub(crate) fn ignore(&mut self, what: String) {
        self.ignored.push(what);
    }

    /// Fields and tools that were ignored.
    pub(crate) fn ignored(&self) -> &[String] {
        &self.ignored
    }

    /// Is the field there?
    pub(crate) fn has(&self, name: &str) -> bool {
        self.fields.contains_key(name)
    }

    /// Takes a field away.
    pub(crate) fn take(&mut self, name: &str) -> Option<Value> {
        self.fields.shift_remove(name)
    }

    /// Takes fields of these names away, to read them apart.
    pub(crate) fn split(&mut self, names: &[&str]) -> Self {
        let taken = names
            .iter()
            .filter_map(|&name| Some((name.to_owned(), self.take(name)?)));
        Self::of(taken.collect())
    }

    /// Sets a field.
    pub(crate) fn set(&mut self, name: &str, value: Value) {
        self.fields.insert(name.to_owned(), value);
    }

    /// Takes the samplers' options away: all that the samplers define, and `samplers`, their order.
    ///
    /// # Errors
    /// Fails for a value of another type, or out of range.
    pub(crate) fn samplers(&mut self, config: &mut SamplerConfig) -> Result<(), ApiError> {
        for option in SamplerConfig::options() {
            let Some(value) = self.take(option.name) else {
                continue;
            };
            let expected =
                || ApiError::field(option.name, format!("expected {}", option.bounds.expected));
            let value = match option.get(config) {
                OptionValue::Number(_) => value.as_f64().map(|it| OptionValue::Number(it as f32)),
                OptionValue::Integer(_) => value.as_i64().map(OptionValue::Integer),
                OptionValue::Texts(_) => serde_json::from_value(value).ok().map(OptionValue::Texts),
            };
            let set = option.set(config, value.ok_or_else(expected)?);
            set.map_err(|_| expected())?;
        }
        if let Some(order) = self.take("samplers") {
            config.samplers =
                order_of(&order).map_err(|reason| ApiError::field("samplers", reason))?;
        }
        Ok(())
    }

    /// The structure of the fields that are left.
    ///
    /// # Errors
    /// Fails for unknown, missing and ill-typed fields.
    pub(crate) fn into<T: DeserializeOwned>(self) -> Result<T, ApiError> {
        typed(Value::Object(self.fields))
    }
}

/// A value of a type, with errors that name the field.
///
/// # Errors
/// Fails if the value does not fit the type.
pub(crate) fn typed<T: DeserializeOwned>(value: Value) -> Result<T, ApiError> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let path = error.path().to_string();
        let reason = error.into_inner().to_string();
        match path.as_str() {
            "." | "?" => {
                // A missing field has no path of its own.
                let missing = reason.strip_prefix("missing field `");
                match missing.and_then(|rest| rest.split('`').next()) {
                    Some(name) => ApiError::field(name, "this field is missing"),
                    None => ApiError::bad(reason),
                }
            }
            path => ApiError::field(path, reason),
        }
    })
}

/// An order of samplers: their names, or a text of their letters.
fn order_of(value: &Value) -> Result<Vec<SamplerKind>, String> {
    match value {
        Value::String(letters) => SamplerKind::sequence(letters).map_err(|error| error.to_string()),
        Value::Array(names) => names
            .iter()
            .map(|name| {
                let name = name.as_str().ok_or("expected names of samplers")?;
                name.parse::<SamplerKind>()
                    .map_err(|error| error.to_string())
            })
            .collect(),
        _ => Err("expected an array of names, or a text of letters".to_owned()),
    }
}

/// One value, or several.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum OneOrMany<T> {
    One(T),
    Many(Vec<T>),
}

impl<T> OneOrMany<T> {
    pub(crate) fn into_vec(self) -> Vec<T> {
        match self {
            Self::One(one) => vec![one],
            Self::Many(many) => many,
        }
    }
}

/// Texts at which an answer ends.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stops(pub(crate) Vec<String>);

/// More of them are a mistake.
const MAX_STOPS: usize = 64;

impl<'de> Deserialize<'de> for Stops {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error;

        let expected = |_| D::Error::custom("expected a text, or an array of texts");
        let texts = OneOrMany::<String>::deserialize(deserializer).map_err(expected)?;
        let texts = texts.into_vec();
        match texts.len() {
            0..=MAX_STOPS => Ok(Self(texts)),
            n => Err(D::Error::custom(format!(
                "{n} texts; give at most {MAX_STOPS}"
            ))),
        }
    }
}

/// A token, or a text whose tokens are meant.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Biased {
    Token(u32),
    Text(String),
}

impl From<&str> for Biased {
    fn from(text: &str) -> Self {
        match text.parse() {
            Ok(id) => Self::Token(id),
            Err(_) => Self::Text(text.to_owned()),
        }
    }
}

/// Biases of tokens: `{"15043": -2.5}`, or llama-server's `[[15043, -2.5]]`, where `false` bans a token. A text in
/// place of a token means all its tokens.
#[derive(Clone, Debug, Default)]
pub(crate) struct Biases(pub(crate) Vec<(Biased, f32)>);

impl<'de> Deserialize<'de> for Biases {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error;

        let bias = |value: &Value| match value {
            Value::Bool(false) => Some(f32::NEG_INFINITY),
            value => value.as_f64().map(|bias| bias as f32),
        };
        let pair = |value: &Value| {
            let [token, value] = value.as_array()?.as_slice() else {
                return None;
            };
            let token = match token {
                Value::String(text) => Biased::Text(text.clone()),
                token => Biased::Token(u32::try_from(token.as_u64()?).ok()?),
            };
            Some((token, bias(value)?))
        };
        let read = match Value::deserialize(deserializer)? {
            Value::Object(map) => map
                .iter()
                .map(|(token, value)| Some((token.as_str().into(), bias(value)?)))
                .collect::<Option<Vec<_>>>(),
            Value::Array(pairs) => pairs.iter().map(pair).collect(),
            _ => None,
        };
        let expected = || D::Error::custom("expected an object of token ids and biases");
        read.map(Self).ok_or_else(expected)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Example {
        text: String,
        stop: Option<Stops>,
        logit_bias: Option<Biases>,
    }

    fn read(body: &str) -> Result<Example, ApiError> {
        let mut fields = Fields::read(body.as_bytes())?;
        fields.samplers(&mut SamplerConfig::default())?;
        fields.into()
    }

    #[test]
    fn errors_name_the_field() {
        for (body, param, words) in [
            (r#"{"text": 3}"#, Some("text"), "expected a string"),
            (r#"{}"#, Some("text"), "missing"),
            (r#"{"text": "a", "tex": 1}"#, Some("tex"), "unknown field"),
            (r#"{"text": "a", "top_p": 2}"#, Some("top_p"), "0 to 1"),
            (
                r#"{"text": "a", "top_k": "x"}"#,
                Some("top_k"),
                "whole number",
            ),
            (
                r#"{"text": "a", "stop": 7}"#,
                Some("stop"),
                "array of texts",
            ),
            (
                r#"{"text": "a", "logit_bias": 7}"#,
                Some("logit_bias"),
                "token ids",
            ),
            (r#"{"text": "a", "samplers": ["x"]}"#, Some("samplers"), "x"),
            ("[1]", None, "not a JSON object"),
            ("{", None, "not JSON"),
        ] {
            let error = read(body).unwrap_err();
            assert_eq!(error.param.as_deref(), param, "{body}");
            assert!(error.message.contains(words), "{body}: {}", error.message);
        }
        let deep = "[".repeat(100_000);
        assert!(read(&deep).unwrap_err().message.contains("not JSON"));
        let broken = Fields::read(b"{\"text\": \"\xff\"}").err().unwrap();
        assert!(broken.message.contains("not JSON"));
    }

    #[test]
    fn values_come_in_several_forms() {
        let body =
            r#"{"text": "a", "stop": "b", "logit_bias": {"7": -1.5}, "top_k": null, "seed": null}"#;
        let one = read(body).unwrap();
        assert_eq!(one.text, "a");
        assert_eq!(one.stop.unwrap().0, ["b"]);
        assert_eq!(one.logit_bias.unwrap().0, [(Biased::Token(7), -1.5)]);
        let many =
            read(r#"{"text": "a", "stop": ["b", "c"], "logit_bias": [[7, false]]}"#).unwrap();
        assert_eq!(many.stop.unwrap().0, ["b", "c"]);
        assert_eq!(
            many.logit_bias.unwrap().0,
            [(Biased::Token(7), f32::NEG_INFINITY)]
        );
    }
}
