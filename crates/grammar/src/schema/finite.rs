//! Schemas that only instances without end fulfil.

use std::collections::HashSet;

use serde_json::{Map, Value};

/// The original path of a definition that no finite instance fulfils, if there is one. `schema` is
/// translated: its references are to `definitions`, which are named by their paths.
pub(super) fn endless(schema: &Value, definitions: &Map<String, Value>) -> Option<String> {
    let mut ends: HashSet<&str> = HashSet::new();
    loop {
        let known = ends.len();
        for (name, definition) in definitions {
            if can_end(definition, &ends) {
                ends.insert(name);
            }
        }
        if ends.len() == known {
            break;
        }
    }
    let endless = definitions
        .keys()
        .find(|name| !ends.contains(name.as_str()));
    let whole = || (!can_end(schema, &ends)).then(|| "#".to_owned());
    endless
        .map(|name| name.replace('\u{1}', "/"))
        .or_else(whole)
}

/// May a finite instance fulfil `schema`, going by what can be seen, if only references to `ends`
/// can?
fn can_end(schema: &Value, ends: &HashSet<&str>) -> bool {
    let Value::Object(keywords) = schema else {
        return true;
    };
    let of = |key: &str| keywords.get(key);
    let list = |key: &str| of(key).and_then(Value::as_array);
    let reference = of("$ref").and_then(Value::as_str);
    let refers = reference.is_none_or(|to| ends.contains(to.trim_start_matches("#/$defs/")));
    let all = list("allOf").is_none_or(|all| all.iter().all(|part| can_end(part, ends)));
    let any = ["anyOf", "oneOf"]
        .iter()
        .all(|key| list(key).is_none_or(|any| any.iter().any(|part| can_end(part, ends))));
    refers && all && any && (is_flat(keywords) || nested_can_end(keywords, ends))
}

/// May an instance be something without parts?
fn is_flat(keywords: &Map<String, Value>) -> bool {
    match keywords.get("type") {
        Some(Value::String(name)) => !matches!(name.as_str(), "object" | "array"),
        Some(Value::Array(names)) => names.iter().any(|name| name != "object" && name != "array"),
        _ => true,
    }
}

/// May an array or an object be finite?
fn nested_can_end(keywords: &Map<String, Value>, ends: &HashSet<&str>) -> bool {
    let is = |name: &str| match keywords.get("type") {
        Some(Value::Array(names)) => names.iter().any(|other| other == name),
        other => other.and_then(Value::as_str) == Some(name),
    };
    let object = || {
        let required = keywords.get("required").and_then(Value::as_array);
        let mut required = required.into_iter().flatten().filter_map(Value::as_str);
        let properties = keywords.get("properties");
        let others = keywords.get("additionalProperties");
        required.all(|name| {
            let schema = properties.and_then(|all| all.get(name)).or(others);
            schema.is_none_or(|schema| can_end(schema, ends))
        })
    };
    let array = || {
        let least = keywords
            .get("minItems")
            .and_then(Value::as_u64)
            .unwrap_or(0) as usize;
        let first = keywords.get("prefixItems").and_then(Value::as_array);
        let first = first.map_or(&[][..], |items| &items[..items.len().min(least)]);
        let rest = keywords.get("items").filter(|_| least > first.len());
        first.iter().chain(rest).all(|item| can_end(item, ends))
    };
    (is("object") && object()) || (is("array") && array())
}
