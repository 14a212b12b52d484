//! Values of tools' arguments, by the schemas of the tools' parameters.

use serde_json::{Map, Value};

use super::argument;
use crate::literal;
use crate::syntax::Tags;

/// The tools that there are, with the schemas of their parameters by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tools(Map<String, Value>);

impl Tools {
    /// The tools of OpenAI's API.
    pub(crate) fn new(tools: &[Value]) -> Self {
        let named = tools.iter().filter_map(|tool| {
            let function = tool.get("function").unwrap_or(tool);
            let name = function.get("name")?.as_str()?.to_owned();
            let parameters = function.get("parameters")?.get("properties");
            Some((name, parameters.cloned().unwrap_or_default()))
        });
        Tools(named.collect())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// The value of `text` in a tag: the string itself, unless the parameter is of another type.
    pub(super) fn typed(&self, tool: &str, key: &str, text: &str, tags: &Tags) -> Value {
        let parameter = self.0.get(tool).and_then(|it| it.get(key));
        typed(parameter, text, tags)
    }
}

/// The value of `text` in a tag, by its schema.
fn typed(schema: Option<&Value>, text: &str, tags: &Tags) -> Value {
    let nested = tags.nests.then(|| nested(schema, text, tags)).flatten();
    let value = nested.or_else(|| literal(text));
    let allowed = schema.is_none_or(|schema| !only_strings(schema, value.as_ref()));
    match value.filter(|_| allowed) {
        Some(value) => value,
        None => text.into(),
    }
}

/// The object that `text` holds in tags, or the list of values in tags named `item`.
fn nested(schema: Option<&Value>, text: &str, tags: &Tags) -> Option<Value> {
    const ITEM: &str = "item";
    let mut rest = text.trim();
    let mut members = Vec::new();
    while rest.starts_with(tags.key) {
        let (key, value, end) = argument(rest, tags)?;
        let schema = schema.and_then(|it| within(it, key));
        members.push((key, typed(schema, value, tags)));
        rest = rest[end..].trim_start();
    }
    if members.is_empty() || !rest.is_empty() {
        return None;
    }
    Some(match members.iter().all(|(key, _)| *key == ITEM) {
        true => members.into_iter().map(|(_, value)| value).collect(),
        false => {
            let members = members.into_iter();
            Value::Object(members.map(|(key, it)| (key.to_owned(), it)).collect())
        }
    })
}

/// The schema of a member, or of the items of a list.
fn within<'s>(schema: &'s Value, key: &str) -> Option<&'s Value> {
    let member = schema.get("properties").and_then(|it| it.get(key));
    let in_union = || {
        let unions = ["anyOf", "oneOf"].into_iter();
        let mut schemas = unions.filter_map(|it| schema.get(it)?.as_array()).flatten();
        schemas.find_map(|it| within(it, key))
    };
    member.or_else(|| schema.get("items")).or_else(in_union)
}

/// The value that a text is, as JSON or as Python writes it.
fn literal(text: &str) -> Option<Value> {
    match text.trim() {
        "True" => Some(true.into()),
        "False" => Some(false.into()),
        "None" => Some(Value::Null),
        text => serde_json::from_str(text)
            .ok()
            .or_else(|| literal::container(text)),
    }
}

/// Whether a schema wants a string where `value` could be something else.
fn only_strings(schema: &Value, value: Option<&Value>) -> bool {
    let is = |name: &Value| {
        matches!(
            (name.as_str(), value),
            (Some("null"), Some(Value::Null))
                | (Some("boolean"), Some(Value::Bool(_)))
                | (Some("number" | "integer"), Some(Value::Number(_)))
                | (Some("array"), Some(Value::Array(_)))
                | (Some("object"), Some(Value::Object(_)))
        )
    };
    if let Some(values) = schema.get("enum").and_then(Value::as_array) {
        return !value.is_some_and(|value| values.contains(value));
    }
    for union in ["anyOf", "oneOf"] {
        if let Some(schemas) = schema.get(union).and_then(Value::as_array) {
            return schemas.iter().all(|schema| only_strings(schema, value));
        }
    }
    match schema.get("type") {
        Some(Value::Array(names)) => names.iter().any(|it| it == "string") && !names.iter().any(is),
        Some(name) => name == "string",
        None => false,
    }
}
