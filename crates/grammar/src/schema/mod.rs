//! JSON schemas: their supported parts, and their translation for llguidance.
//!
//! llguidance knows most keywords. But it does not report the place of an unknown one, and it reads some with
//! another meaning. So a schema is gone through first ([`translate`]): unsupported keywords are refused with
//! their path, and references become their own definitions. Patterns, formats and numbers are rewritten with
//! JSON Schema's meaning for llguidance.

mod finite;
mod format;
mod nesting;
mod pattern;
mod translate;

use llguidance::api::TopLevelGrammar;
use serde_json::{Map, Value, json};

use crate::{Constraint, GrammarError, Vocabulary};
use nesting::DEEPEST;
use translate::Translator;

/// White space between two signs of JSON, as in llama.cpp's grammars: bounded, for a model may find
/// no end of it.
const WHITE_SPACE: &str = r" |\n{1,2}[ \t]{0,20}";
/// The characters after a backslash in strings. With \u, the name of a property could be spelled without being
/// recognised.
const ESCAPES: &str = "\"\\bfnrt";

/// Holds texts to the JSON that `schema` allows, in the grammar that `frame` makes of it.
///
/// # Errors
/// [`GrammarError::Schema`] for a schema that is invalid, that cannot be enforced, or that no text
/// fulfils.
pub(crate) fn constrain(
    schema: &Value,
    vocabulary: &Vocabulary,
    frame: impl Fn(Value) -> TopLevelGrammar + Sync,
) -> Result<Constraint, GrammarError> {
    let mut translator = Translator::new(schema)?;
    let translated = translator.all()?;
    if let Some(path) = finite::endless(&translated, translator.definitions()) {
        return Err(refused(
            &path,
            "it recurses without end, so that no text fulfils it; leave a way out, such as a \
             property that is not required",
        ));
    }
    let levels = nesting::levels(&translated, translator.definitions());
    if levels > DEEPEST {
        let reason = format!(
            "its references lead {levels} levels down, and at most {DEEPEST} are followed; nest \
             fewer definitions within each other"
        );
        return Err(refused("#", reason));
    }
    let build = |schema: Value, definitions: Map<String, Value>| {
        let levels = nesting::levels(&schema, &definitions);
        let document = document(schema, definitions);
        let built = nesting::with_room(levels, || {
            vocabulary.constrain(frame(document), "JSON schema")
        });
        built.unwrap_or_else(|error| {
            let reason = format!("no thread with a stack for {levels} levels: {error}");
            Err(refused("#", reason))
        })
    };
    build(translated, translator.definitions().clone()).map_err(|error| {
        let unsatisfiable = is_unsatisfiable(&error);
        let at_fault = |part: &Value, path: &str| {
            let mut translator = Translator::new(schema).ok()?;
            let part = translator.part(part, path).ok()?;
            let error = build(part, translator.definitions().clone()).err()?;
            // A part that nothing fulfils may be left out by texts of the whole.
            (unsatisfiable || !is_unsatisfiable(&error)).then_some(error)
        };
        blame(schema, "#", error, &at_fault)
    })
}

/// The schema for llguidance.
fn document(schema: Value, definitions: Map<String, Value>) -> Value {
    let options = json!({
        "whitespace_flexible": false,
        "whitespace_pattern": WHITE_SPACE,
        "json_allowed_escapes": ESCAPES,
    });
    let mut document = match schema {
        Value::Object(object) => object,
        // A schema that is true or false.
        whole => Map::from_iter([("allOf".to_owned(), json!([whole]))]),
    };
    document.insert("$defs".to_owned(), Value::Object(definitions));
    document.insert("x-guidance".to_owned(), options);
    Value::Object(document)
}

/// The error with the path of the smallest part of `schema`, which is at `path`, that is refused
/// by itself.
fn blame(
    schema: &Value,
    path: &str,
    error: GrammarError,
    at_fault: &impl Fn(&Value, &str) -> Option<GrammarError>,
) -> GrammarError {
    for (path, part) in translate::parts(schema, path) {
        if let Some(error) = at_fault(part, &path) {
            return blame(part, &path, error, at_fault);
        }
    }
    match error {
        GrammarError::Refused { reason, .. } if reason.starts_with("oneOf ") => refused(
            &format!("{path}/oneOf"),
            "several of these may hold at once; use anyOf, or give them required properties \
             with different constants",
        ),
        GrammarError::Refused { reason, .. } => refused(path, reason),
        other => other,
    }
}

fn is_unsatisfiable(error: &GrammarError) -> bool {
    matches!(error, GrammarError::Refused { reason, .. } if reason.contains("nsatisfiable"))
}

fn refused(path: &str, reason: impl Into<String>) -> GrammarError {
    GrammarError::Schema {
        path: path.to_owned(),
        reason: reason.into(),
    }
}
