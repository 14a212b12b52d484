//! The tables of llama.cpp's tests of grammars and schemas.

use rustorch_grammar::{Constraint, Grammar, GrammarError};
use serde_json::Value;

use crate::{accepts, by_bytes, of_schema, vocabulary};

fn table() -> Value {
    serde_json::from_str(include_str!("../data/llama_cpp.json")).unwrap()
}

fn list<'a>(value: &'a Value, key: &str) -> &'a Vec<Value> {
    value[key]
        .as_array()
        .unwrap_or_else(|| panic!("{key} is a list"))
}

fn gbnf(text: &str) -> Result<Constraint, GrammarError> {
    Grammar::Gbnf(text.to_owned()).constrain(&vocabulary())
}

/// A text, or parts of which numbers are tokens.
fn tokens(text: &Value) -> Vec<u32> {
    match text {
        Value::String(text) => by_bytes(text),
        Value::Number(id) => vec![id.as_u64().unwrap() as u32],
        parts => parts.as_array().unwrap().iter().flat_map(tokens).collect(),
    }
}

/// The texts of a case whose fate is another one than there.
fn differences(constraint: &Constraint, case: &Value) -> Vec<String> {
    let texts = [("accepted", true), ("rejected", false)];
    let differs =
        |&(text, expected): &(&Value, bool)| accepts(constraint, &tokens(text)) != expected;
    let texts = texts
        .iter()
        .flat_map(|&(key, expected)| list(case, key).iter().map(move |text| (text, expected)));
    texts
        .filter(differs)
        .map(|(text, _)| text.to_string())
        .collect()
}

/// Texts of schemas that llama.cpp rejects and this crate accepts, for they are valid: whole numbers
/// have 16 digits there; a schema without a type, and one without `additionalProperties`, allow less
/// there. And a keyword that is passed over there.
const DIFFERENT: [(&str, &str); 5] = [
    ("min 0", "\"100000000000000000000000000000000\""),
    ("min 2", "\"12345678900000000\""),
    ("min+max items", "\"1\""),
    (
        "object properties",
        r#""{ \"number\": 1600, \"street_name\": \"Pennsylvania\", \"street_type\":\"Avenue\", \"direction\":\"NW\"}""#,
    ),
    (
        "required props",
        "JSON schema, #/properties/tags/uniqueItems: uniqueItems is not supported; remove it",
    ),
];

#[test]
fn grammars_accept_what_they_do_there() {
    let table = table();
    for case in list(&table, "grammars") {
        let constraint = gbnf(case["grammar"].as_str().unwrap()).unwrap();
        assert_eq!(differences(&constraint, case), [""; 0], "{case:#}");
    }
}

#[test]
fn schemas_accept_what_they_do_there() {
    let table = table();
    for case in list(&table, "schemas") {
        let name = case["name"].as_str().unwrap();
        let found = match of_schema(&vocabulary(), &case["schema"]) {
            Ok(constraint) => differences(&constraint, case),
            Err(error) => vec![error.to_string()],
        };
        let expected = DIFFERENT.iter().filter(|(other, _)| *other == name);
        let expected: Vec<&str> = expected.map(|&(_, text)| text).collect();
        assert_eq!(found, expected, "{case:#}");
    }
}

#[test]
fn what_parses_there_parses_here() {
    let table = table();
    for grammar in list(&table, "parsed") {
        gbnf(grammar.as_str().unwrap()).unwrap_or_else(|error| panic!("{grammar}: {error}"));
    }
    for grammar in list(&table, "not_parsed") {
        let error = gbnf(grammar.as_str().unwrap()).err();
        assert!(
            matches!(error, Some(GrammarError::Gbnf { .. })),
            "{grammar}: {error:?}"
        );
    }
}

/// llama.cpp refuses them.
#[test]
fn left_recursion_is_no_error() {
    for grammar in list(&table(), "left_recursive") {
        gbnf(grammar.as_str().unwrap()).unwrap();
    }
    let constraint = gbnf(r#"root ::= "a" | root "b""#).unwrap();
    for (text, expected) in [("a", true), ("abbb", true), ("b", false), ("", false)] {
        assert_eq!(accepts(&constraint, &by_bytes(text)), expected, "{text}");
    }
}

/// Schemas that become grammars in llama.cpp and are refused here: a list is expected where they
/// have a schema, and a pattern that looks around.
const REFUSED: [(&str, &str); 4] = [
    ("string array", "#/prefixItems"),
    ("nullable string array", "#/prefixItems"),
    ("array with empty items and prefixItems", "#/prefixItems"),
    ("unsupported regexp in a property", "#/properties/a/pattern"),
];

/// The grammars that llama.cpp makes of schemas are themselves grammars to read.
#[test]
fn schemas_that_become_grammars_there_are_schemas_here() {
    let table = table();
    let mut refused = Vec::new();
    for case in list(&table, "converted") {
        let name = case["name"].as_str().unwrap();
        let path = match of_schema(&vocabulary(), &case["schema"]) {
            Ok(_) => None,
            Err(GrammarError::Schema { path, .. }) => Some(path),
            Err(error) => panic!("{name}: {error}"),
        };
        match case["grammar"].as_str() {
            Some(grammar) => {
                gbnf(grammar).unwrap_or_else(|error| panic!("{name}: {error}"));
                refused.extend(path.map(|path| (name, path)));
            }
            None => assert!(path.is_some(), "{name}"),
        }
    }
    let refused: Vec<(&str, &str)> = refused.iter().map(|(n, p)| (*n, p.as_str())).collect();
    assert_eq!(refused, REFUSED);
}
