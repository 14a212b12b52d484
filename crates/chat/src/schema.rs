//! Validation of a call's arguments by the schema of their parameters.

use std::cmp::Ordering::{Equal, Greater, Less};

use serde_json::Value;

/// References to follow one after the other; a schema that only refers to itself has no end.
const REFERENCES: usize = 32;

/// The reason why `value` does not match the JSON schema `schema`, with the place; `None` if it
/// matches.
///
/// The check covers `type`, `enum`, `const`, `required`, `properties`, `additionalProperties` and `items`. It
/// also covers `anyOf`, `oneOf`, `allOf`, `$ref` within the schema, and limits of numbers, lengths and counts.
/// Other keywords are ignored.
pub fn schema_mismatch(schema: &Value, value: &Value) -> Option<String> {
    let root = Root(schema);
    let wrong = root.check(schema, value, REFERENCES).err()?;
    let Wrong { path, reason } = wrong;
    Some(match path.as_str() {
        "" => reason,
        path => format!("{path}: {reason}"),
    })
}

struct Wrong {
    /// The place, as a JSON pointer.
    path: String,
    reason: String,
}

impl Wrong {
    fn here(reason: String) -> Self {
        let path = String::new();
        Self { path, reason }
    }

    fn within(self, key: &dyn std::fmt::Display) -> Self {
        let path = format!("/{key}{}", self.path);
        Self { path, ..self }
    }
}

/// The whole schema, which its parts refer to.
struct Root<'s>(&'s Value);

impl Root<'_> {
    fn check(&self, schema: &Value, value: &Value, references: usize) -> Result<(), Wrong> {
        let Value::Object(keywords) = schema else {
            return match schema {
                Value::Bool(false) => Err(Wrong::here("nothing may be here".to_owned())),
                _ => Ok(()),
            };
        };
        if let Some(reference) = keywords.get("$ref").and_then(Value::as_str) {
            let target = reference
                .strip_prefix('#')
                .and_then(|it| self.0.pointer(it));
            if let (Some(target), Some(left)) = (target, references.checked_sub(1)) {
                self.check(target, value, left)?;
            }
        }
        of_type(schema, value)?;
        listed(schema, value)?;
        bounded(schema, value)?;
        match value {
            Value::Object(_) => self.object(schema, value)?,
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    let schema = schema.get("items").unwrap_or(&Value::Null);
                    let checked = self.check(schema, item, REFERENCES);
                    checked.map_err(|wrong| wrong.within(&index))?;
                }
            }
            _ => {}
        }
        self.combined(schema, value, references)
    }

    fn object(&self, schema: &Value, value: &Value) -> Result<(), Wrong> {
        for key in list(schema, "required").iter().filter_map(Value::as_str) {
            if value.get(key).is_none() {
                return Err(Wrong::here(format!("{key:?} is missing")));
            }
        }
        let properties = schema.get("properties");
        for (key, member) in value.as_object().into_iter().flatten() {
            let known = properties.and_then(|it| it.get(key));
            let other = schema
                .get("additionalProperties")
                .filter(|_| schema.get("patternProperties").is_none());
            let checked = match (known, other) {
                (None, Some(Value::Bool(false))) => {
                    Err(Wrong::here("there is no such parameter".to_owned()))
                }
                (known, other) => {
                    let schema = known.or(other).unwrap_or(&Value::Null);
                    self.check(schema, member, REFERENCES)
                }
            };
            checked.map_err(|wrong| wrong.within(key))?;
        }
        Ok(())
    }

    fn combined(&self, schema: &Value, value: &Value, references: usize) -> Result<(), Wrong> {
        for part in list(schema, "allOf") {
            self.check(part, value, references)?;
        }
        for (keyword, most) in [("anyOf", usize::MAX), ("oneOf", 1)] {
            let parts = list(schema, keyword);
            let checked = parts.iter().map(|it| self.check(it, value, references));
            let (fitting, wrong): (Vec<_>, Vec<_>) = checked.partition(Result::is_ok);
            match (fitting.len(), wrong.into_iter().find_map(Result::err)) {
                // The first alternative's mistake is as good as any.
                (0, Some(wrong)) => return Err(wrong),
                (count, _) if count > most => {
                    let reason = format!("it fits {count} of the alternatives, not exactly one");
                    return Err(Wrong::here(reason));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

fn list<'s>(schema: &'s Value, keyword: &str) -> &'s [Value] {
    let items = schema.get(keyword).and_then(Value::as_array);
    items.map_or(&[], Vec::as_slice)
}

fn of_type(schema: &Value, value: &Value) -> Result<(), Wrong> {
    let wanted = match schema.get("type") {
        None => return Ok(()),
        Some(Value::Array(names)) => names.as_slice(),
        Some(name) => std::slice::from_ref(name),
    };
    let names: Vec<&str> = wanted.iter().filter_map(Value::as_str).collect();
    let is = |name: &&str| match *name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        "number" => value.is_number(),
        "integer" => {
            value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|it| it.fract() == 0.0)
        }
        _ => true,
    };
    match names.iter().any(is) || names.is_empty() {
        true => Ok(()),
        false => Err(Wrong::here(format!(
            "{value} is not of type {}",
            names.join(" or ")
        ))),
    }
}

fn listed(schema: &Value, value: &Value) -> Result<(), Wrong> {
    let allowed = match (schema.get("enum"), schema.get("const")) {
        (Some(Value::Array(values)), _) => values.as_slice(),
        (_, Some(value)) => std::slice::from_ref(value),
        _ => return Ok(()),
    };
    if allowed.iter().any(|it| same(it, value)) {
        return Ok(());
    }
    let known: Vec<String> = allowed.iter().map(Value::to_string).collect();
    let reason = format!("{value} is none of {}", known.join(", "));
    Err(Wrong::here(reason))
}

/// The numbers 1 and 1.0 are equal, as in JSON Schema.
fn same(a: &Value, b: &Value) -> bool {
    a == b || (a.is_number() && b.is_number() && a.as_f64() == b.as_f64())
}

fn bounded(schema: &Value, value: &Value) -> Result<(), Wrong> {
    let (size, keywords) = match value {
        Value::Number(_) => (value.as_f64(), ["minimum", "maximum"]),
        Value::String(text) => (
            Some(text.chars().count() as f64),
            ["minLength", "maxLength"],
        ),
        Value::Array(items) => (Some(items.len() as f64), ["minItems", "maxItems"]),
        Value::Object(members) => (
            Some(members.len() as f64),
            ["minProperties", "maxProperties"],
        ),
        _ => return Ok(()),
    };
    let Some(size) = size else {
        return Ok(());
    };
    let [least, most] = keywords;
    let tests = [
        (least, &[Greater, Equal][..]),
        (most, &[Less, Equal]),
        ("exclusiveMinimum", &[Greater]),
        ("exclusiveMaximum", &[Less]),
    ];
    let count = if value.is_number() { 4 } else { 2 };
    for (keyword, allowed) in &tests[..count] {
        let bound = schema.get(*keyword).and_then(Value::as_f64);
        let breaks = |bound: &f64| {
            !allowed
                .iter()
                .any(|&it| size.partial_cmp(bound) == Some(it))
        };
        if let Some(bound) = bound.filter(breaks) {
            return Err(Wrong::here(format!("{value} breaks {keyword} {bound}")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_does_not_fit_is_told_with_its_place() {
        let schema = json!({
            "type": "object",
            "properties": {
                "n": {"type": "integer", "minimum": 1, "exclusiveMaximum": 10},
                "unit": {"enum": ["m", "km", 1]},
                "names": {"type": "array", "items": {"type": "string", "maxLength": 3}, "minItems": 1},
                "either": {"anyOf": [{"type": "null"}, {"type": "string"}]},
                "one": {"oneOf": [{"type": "number"}, {"type": "integer"}]},
                "tree": {"$ref": "#/$defs/node"},
            },
            "required": ["n"],
            "additionalProperties": false,
            "$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}},
                "required": ["v"]}},
        });
        let check = |value: Value| schema_mismatch(&schema, &value);
        for fitting in [
            json!({"n": 1}),
            json!({"n": 9.0, "unit": "km", "names": ["é€x"], "either": null, "one": 1.5}),
            json!({"n": 2, "unit": 1.0, "tree": {"v": 1, "next": {"v": 2}}}),
        ] {
            assert_eq!(check(fitting), None);
        }
        for (value, why) in [
            (json!([]), "[] is not of type object"),
            (json!({}), "\"n\" is missing"),
            (json!({"n": "1"}), "/n: \"1\" is not of type integer"),
            (json!({"n": 1.5}), "/n: 1.5 is not of type integer"),
            (json!({"n": 0}), "/n: 0 breaks minimum 1"),
            (json!({"n": 10}), "/n: 10 breaks exclusiveMaximum 10"),
            (
                json!({"n": 1, "unit": "mi"}),
                "/unit: \"mi\" is none of \"m\", \"km\", 1",
            ),
            (json!({"n": 1, "names": []}), "/names: [] breaks minItems 1"),
            (
                json!({"n": 1, "names": ["a", "four"]}),
                "/names/1: \"four\" breaks maxLength 3",
            ),
            (
                json!({"n": 1, "either": 3}),
                "/either: 3 is not of type null",
            ),
            (
                json!({"n": 1, "one": 1}),
                "/one: it fits 2 of the alternatives, not exactly one",
            ),
            (
                json!({"n": 1, "tree": {"v": 1, "next": {}}}),
                "/tree/next: \"v\" is missing",
            ),
            (json!({"n": 1, "m": 1}), "/m: there is no such parameter"),
        ] {
            assert_eq!(check(value).as_deref(), Some(why));
        }
        let endless = json!({"$ref": "#"});
        assert_eq!(schema_mismatch(&endless, &json!(1)), None);
    }
}
