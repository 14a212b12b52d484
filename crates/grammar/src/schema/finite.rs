//! Schemas that only instances without end fulfil.

use std::collections::HashMap;

use serde_json::{Map, Value};

use crate::graph::{Statement, Statements};

/// The original path of a definition that no finite instance fulfils, if there is one. `schema` is
/// translated: its references are to `definitions`, which are named by their paths.
pub(super) fn endless(schema: &Value, definitions: &Map<String, Value>) -> Option<String> {
    let mut statements = Statements::default();
    let names = definitions.keys().map(String::as_str);
    let mut finite = Finite {
        definitions: names.map(|name| (name, statements.add(1))).collect(),
        statements,
    };
    for (name, definition) in definitions {
        let ends = finite.can_end(definition);
        finite
            .statements
            .join(ends, finite.definitions[name.as_str()]);
    }
    let whole = finite.can_end(schema);
    let Finite {
        definitions: numbers,
        statements,
    } = finite;
    let ends = statements.solve();
    let mut names = definitions.keys();
    let endless = names.find(|name| !ends[numbers[name.as_str()]]);
    let whole = || (!ends[whole]).then(|| "#".to_owned());
    endless
        .map(|name| name.replace('\u{1}', "/"))
        .or_else(whole)
}

/// Statements that a finite instance may fulfil schemas, as far as that is visible.
struct Finite<'a> {
    /// Statements of the definitions.
    definitions: HashMap<&'a str, Statement>,
    statements: Statements,
}

impl Finite<'_> {
    fn can_end(&mut self, schema: &Value) -> Statement {
        let Value::Object(keywords) = schema else {
            return self.statements.constant(true);
        };
        let of = |key: &str| keywords.get(key);
        let list = |key: &str| of(key).and_then(Value::as_array);
        let mut all = Vec::new();
        if let Some(to) = of("$ref").and_then(Value::as_str) {
            let known = self.definitions.get(to.trim_start_matches("#/$defs/"));
            all.push(
                known
                    .copied()
                    .unwrap_or_else(|| self.statements.constant(false)),
            );
        }
        for part in list("allOf").into_iter().flatten() {
            all.push(self.can_end(part));
        }
        for choice in ["anyOf", "oneOf"].into_iter().filter_map(list) {
            let parts: Vec<_> = choice.iter().map(|part| self.can_end(part)).collect();
            all.push(self.statements.any(&parts));
        }
        if !is_flat(keywords) {
            all.push(self.nested_can_end(keywords));
        }
        self.statements.all(&all)
    }

    /// Returns the statement that an array or an object may be finite.
    fn nested_can_end(&mut self, keywords: &Map<String, Value>) -> Statement {
        let is = |name: &str| match keywords.get("type") {
            Some(Value::Array(names)) => names.iter().any(|other| other == name),
            other => other.and_then(Value::as_str) == Some(name),
        };
        let mut any = Vec::new();
        if is("object") {
            let required = keywords.get("required").and_then(Value::as_array);
            let required = required.into_iter().flatten().filter_map(Value::as_str);
            let properties = keywords.get("properties");
            let others = keywords.get("additionalProperties");
            let schemas =
                required.filter_map(|name| properties.and_then(|all| all.get(name)).or(others));
            any.push(self.all_can_end(schemas));
        }
        if is("array") {
            let least = keywords.get("minItems").and_then(Value::as_u64);
            let least = least.unwrap_or(0) as usize;
            let first = keywords.get("prefixItems").and_then(Value::as_array);
            let first = first.map_or(&[][..], |items| &items[..items.len().min(least)]);
            let rest = keywords.get("items").filter(|_| least > first.len());
            any.push(self.all_can_end(first.iter().chain(rest)));
        }
        self.statements.any(&any)
    }

    fn all_can_end<'v>(&mut self, schemas: impl Iterator<Item = &'v Value>) -> Statement {
        let all: Vec<Statement> = schemas.map(|schema| self.can_end(schema)).collect();
        self.statements.all(&all)
    }
}

/// May an instance be something without parts?
fn is_flat(keywords: &Map<String, Value>) -> bool {
    match keywords.get("type") {
        Some(Value::String(name)) => !matches!(name.as_str(), "object" | "array"),
        Some(Value::Array(names)) => names.iter().any(|name| name != "object" && name != "array"),
        _ => true,
    }
}
