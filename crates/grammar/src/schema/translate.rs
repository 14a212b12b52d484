//! Translation of a schema: kept parts, and refused ones.

use serde_json::{Map, Value, json};

use super::pattern::to_rust;
use super::{format, refused};
use crate::GrammarError;

type Translated<T> = Result<T, GrammarError>;

/// Keywords that say something about an instance that texts cannot be held to.
const UNSUPPORTED: [&str; 13] = [
    "not",
    "if",
    "contains",
    "propertyNames",
    "dependentRequired",
    "dependentSchemas",
    "dependencies",
    "unevaluatedItems",
    "unevaluatedProperties",
    "$dynamicRef",
    "$recursiveRef",
    "extends",
    "disallow",
];

const TYPES: [&str; 7] = [
    "null", "boolean", "number", "integer", "string", "array", "object",
];

/// Items or characters or properties: more than this at least or at most are refused.
const MAX_COUNT: u64 = 100_000;
/// Largest whole number up to which all are exact in numbers of 64 bits with a point, which
/// comparisons use.
const MAX_EXACT: u64 = 1 << 53;

/// Versions of JSON Schema, the older first.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
enum Draft {
    Draft7,
    Draft2019,
    Draft2020,
}

pub(super) struct Translator<'a> {
    root: &'a Value,
    draft: Draft,
    definitions: Map<String, Value>,
    /// Paths of definitions that are still to be translated.
    pending: Vec<String>,
}

impl<'a> Translator<'a> {
    /// A translator of `root` and its parts.
    ///
    /// # Errors
    /// Fails for an unknown version.
    pub(super) fn new(root: &'a Value) -> Translated<Self> {
        let draft = match root.get("$schema") {
            None => Draft::Draft2020,
            Some(name) => draft(name).ok_or_else(|| {
                refused(
                    "#/$schema",
                    format!("{name} is not a known version; use draft 6, 7, 2019-09 or 2020-12"),
                )
            })?,
        };
        Ok(Self {
            root,
            draft,
            definitions: Map::new(),
            pending: Vec::new(),
        })
    }

    /// The targets of references, by their paths.
    pub(super) fn definitions(&self) -> &Map<String, Value> {
        &self.definitions
    }

    /// The whole schema, with the definitions that it refers to.
    pub(super) fn all(&mut self) -> Translated<Value> {
        self.part(self.root, "#")
    }

    /// A part of the schema at `path`.
    pub(super) fn part(&mut self, schema: &Value, path: &str) -> Translated<Value> {
        let translated = self.schema(schema, path)?;
        while let Some(path) = self.pending.pop() {
            let target = target(self.root, &path);
            let target = target.ok_or_else(|| refused(&path, "there is nothing to refer to"))?;
            let definition = self.schema(target, &path)?;
            self.definitions.insert(name(&path), definition);
        }
        Ok(translated)
    }

    fn schema(&mut self, schema: &Value, path: &str) -> Translated<Value> {
        let keywords = match schema {
            Value::Bool(_) => return Ok(schema.clone()),
            Value::Object(keywords) => keywords,
            _ => return Err(refused(path, "a schema is an object, true or false")),
        };
        if path != "#" && is_resource(keywords) && has_reference(schema) {
            return Err(refused(
                path,
                "$id makes references here relative to it, which is not supported; remove it",
            ));
        }
        // Up to draft 7 a reference stands for itself.
        if let Some(to) = keywords.get("$ref").filter(|_| self.draft <= Draft::Draft7) {
            return Ok(json!({ "$ref": self.reference(to, &under(path, "$ref"))? }));
        }
        let mut kept = Map::new();
        let mut also = None;
        for (keyword, value) in keywords {
            let at = under(path, keyword);
            match self.keyword(keywords, keyword, value, &at)? {
                Kept::Nothing => {}
                Kept::As(value) => _ = kept.insert(keyword.clone(), value),
                Kept::Under(name, value) => _ = kept.insert(name.to_owned(), value),
                Kept::Also(schema) => also = Some(schema),
            }
        }
        if let Some(schema) = also {
            let all = kept.entry("allOf").or_insert_with(|| json!([]));
            all.as_array_mut()
                .into_iter()
                .for_each(|all| all.push(schema.clone()));
        }
        Ok(Value::Object(kept))
    }

    fn keyword(
        &mut self,
        siblings: &Map<String, Value>,
        keyword: &str,
        value: &Value,
        path: &str,
    ) -> Translated<Kept> {
        Ok(Kept::As(match keyword {
            "$ref" => json!(self.reference(value, path)?),
            "type" => types(value, path)?,
            "const" => exact(value, path)?,
            "enum" => exact_list(value, path)?,
            "allOf" | "anyOf" | "oneOf" | "prefixItems" => {
                if keyword == "prefixItems" && self.draft < Draft::Draft2020 {
                    return Ok(Kept::Nothing);
                }
                self.list(value, path)?
            }
            // An array of `items` was positional before 2020-12. It has no other meaning now.
            "items" if value.is_array() && !siblings.contains_key("prefixItems") => {
                return Ok(Kept::Under("prefixItems", self.list(value, path)?));
            }
            "additionalItems" => {
                return Ok(match siblings.get("items").is_some_and(Value::is_array) {
                    true => Kept::Under("items", self.schema(value, path)?),
                    false => Kept::Nothing,
                });
            }
            "items" | "additionalProperties" => self.schema(value, path)?,
            "properties" => self.map(value, path, false)?,
            "patternProperties" => self.map(value, path, true)?,
            "required" => names(value, path)?,
            "minLength" | "maxLength" | "minItems" | "maxItems" | "minProperties"
            | "maxProperties" => json!(count(value, path)?),
            "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" => number(value, path)?,
            "multipleOf" => match value.as_f64() {
                Some(of) if of > 0.0 => number(value, path)?,
                _ => return Err(refused(path, "expected a number above 0")),
            },
            "pattern" => {
                let pattern = text(value, path)?;
                json!(to_rust(pattern).map_err(|reason| refused(path, reason))?)
            }
            "format" => return Ok(Kept::Also(format_of(value, path)?)),
            "uniqueItems" if *value == Value::Bool(false) => return Ok(Kept::Nothing),
            "uniqueItems" => return Err(unsupported(path, keyword)),
            "if" if !["then", "else"]
                .iter()
                .any(|key| siblings.contains_key(*key)) =>
            {
                return Ok(Kept::Nothing);
            }
            _ if UNSUPPORTED.contains(&keyword) => return Err(unsupported(path, keyword)),
            // Annotations, definitions, and keywords that JSON Schema does not know.
            _ => return Ok(Kept::Nothing),
        }))
    }

    fn list(&mut self, value: &Value, path: &str) -> Translated<Value> {
        let schemas = value.as_array().filter(|schemas| !schemas.is_empty());
        let schemas = schemas.ok_or_else(|| refused(path, "expected a list of schemas"))?;
        let translate = |(i, schema)| self.schema(schema, &format!("{path}/{i}"));
        schemas.iter().enumerate().map(translate).collect()
    }

    fn map(&mut self, value: &Value, path: &str, patterns: bool) -> Translated<Value> {
        let schemas = value.as_object();
        let schemas = schemas.ok_or_else(|| refused(path, "expected an object of schemas"))?;
        let mut translated = Map::new();
        for (key, schema) in schemas {
            let at = under(path, key);
            let key = match patterns {
                true => to_rust(key).map_err(|reason| refused(&at, reason))?,
                false => writable(key, &at).map(|()| key.clone())?,
            };
            translated.insert(key, self.schema(schema, &at)?);
        }
        Ok(Value::Object(translated))
    }

    /// The translation of a reference: one to a definition.
    fn reference(&mut self, to: &Value, path: &str) -> Translated<String> {
        let to = text(to, path)?;
        let pointer = to.strip_prefix('#').and_then(percent_decoded);
        let inside = |pointer: &String| pointer.is_empty() || pointer.starts_with('/');
        let target_path = pointer.filter(inside).ok_or_else(|| {
            refused(
                path,
                format!("{to:?} is outside this schema; only paths from #/ are followed"),
            )
        })?;
        let target_path = format!("#{target_path}");
        if target(self.root, &target_path).is_none() {
            return Err(refused(path, format!("there is nothing at {to:?}")));
        }
        let name = name(&target_path);
        if !self.definitions.contains_key(&name) {
            // Known from now on; the definition comes later.
            self.definitions.insert(name.clone(), Value::Bool(true));
            self.pending.push(target_path);
        }
        Ok(format!("#/$defs/{name}"))
    }
}

/// The translation of a keyword.
enum Kept {
    Nothing,
    As(Value),
    Under(&'static str, Value),
    /// A schema that holds besides.
    Also(Value),
}

/// The parts of a schema that are schemas, with their paths.
pub(super) fn parts<'a>(schema: &'a Value, path: &str) -> Vec<(String, &'a Value)> {
    let Value::Object(keywords) = schema else {
        return Vec::new();
    };
    let mut parts = Vec::new();
    for (keyword, value) in keywords {
        let at = under(path, keyword);
        match (keyword.as_str(), value) {
            ("allOf" | "anyOf" | "oneOf" | "prefixItems" | "items", Value::Array(schemas)) => {
                let schemas = schemas.iter().enumerate();
                parts.extend(schemas.map(|(i, schema)| (format!("{at}/{i}"), schema)));
            }
            ("properties" | "patternProperties" | "$defs" | "definitions", Value::Object(all)) => {
                parts.extend(all.iter().map(|(key, schema)| (under(&at, key), schema)));
            }
            ("items" | "additionalItems" | "additionalProperties", schema) => {
                parts.push((at, schema));
            }
            _ => {}
        }
    }
    parts
}

/// The version of this name.
fn draft(name: &Value) -> Option<Draft> {
    let name = name.as_str()?.trim_end_matches('#');
    Some(match name.split_once("json-schema.org/")?.1 {
        "draft/2020-12/schema" => Draft::Draft2020,
        "draft/2019-09/schema" => Draft::Draft2019,
        "draft-07/schema" | "draft-06/schema" => Draft::Draft7,
        _ => return None,
    })
}

/// The schema at a path from the root, unless that leads into a schema with its own name.
fn target<'a>(root: &'a Value, path: &str) -> Option<&'a Value> {
    let mut at = root;
    for (i, segment) in path.split('/').skip(1).enumerate() {
        if i > 0 && at.as_object().is_some_and(is_resource) {
            return None;
        }
        let key = segment.replace("~1", "/").replace("~0", "~");
        at = match at {
            Value::Object(object) => object.get(&key)?,
            Value::Array(list) => list.get(key.parse::<usize>().ok()?)?,
            _ => return None,
        };
    }
    Some(at)
}

/// Returns whether this is a schema with a name that references in it are relative to.
fn is_resource(keywords: &Map<String, Value>) -> bool {
    let id = keywords.get("$id").and_then(Value::as_str);
    id.is_some_and(|id| !id.starts_with('#'))
}

fn has_reference(schema: &Value) -> bool {
    match schema {
        Value::Object(object) => object.contains_key("$ref") || object.values().any(has_reference),
        Value::Array(list) => list.iter().any(has_reference),
        _ => false,
    }
}

/// The name of the definition at a path: one segment.
fn name(path: &str) -> String {
    path.replace('/', "\u{1}")
}

/// The path of `key` in the object at `path`.
fn under(path: &str, key: &str) -> String {
    format!("{path}/{}", key.replace('~', "~0").replace('/', "~1"))
}

/// The text with every %HH as the byte that it stands for, if that is UTF-8.
fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let digit = |byte: u8| char::from(byte).to_digit(16);
                (digit(rest.next()?)? * 16 + digit(rest.next()?)?) as u8
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

fn unsupported(path: &str, keyword: &str) -> GrammarError {
    refused(path, format!("{keyword} is not supported; remove it"))
}

fn text<'v>(value: &'v Value, path: &str) -> Translated<&'v str> {
    value
        .as_str()
        .ok_or_else(|| refused(path, "expected a string"))
}

fn types(value: &Value, path: &str) -> Translated<Value> {
    let known = |name: &Value| name.as_str().is_some_and(|name| TYPES.contains(&name));
    let all_known = match value {
        Value::Array(names) => !names.is_empty() && names.iter().all(known),
        name => known(name),
    };
    match all_known {
        true => Ok(value.clone()),
        false => Err(refused(
            path,
            format!("expected one or more of {}", TYPES.join(", ")),
        )),
    }
}

fn names(value: &Value, path: &str) -> Translated<Value> {
    let names = value
        .as_array()
        .filter(|names| names.iter().all(Value::is_string));
    match names {
        Some(_) => exact_list(value, path),
        None => Err(refused(path, "expected a list of names")),
    }
}

fn count(value: &Value, path: &str) -> Translated<u64> {
    let whole = |number: f64| number >= 0.0 && number.fract() == 0.0;
    let count = value.as_f64().filter(|&number| whole(number));
    match count {
        Some(count) if count <= MAX_COUNT as f64 => Ok(count as u64),
        Some(_) => Err(refused(path, format!("more than {MAX_COUNT} are too many"))),
        None => Err(refused(path, "expected a whole number, at least 0")),
    }
}

/// A number that has the same value for llguidance.
fn number(value: &Value, path: &str) -> Translated<Value> {
    let whole = value.as_i64().map(i64::unsigned_abs).or(value.as_u64());
    match value.as_f64() {
        Some(number) if number.abs() <= MAX_EXACT as f64 && whole <= Some(MAX_EXACT) => {
            Ok(value.clone())
        }
        Some(_) => Err(refused(path, "numbers beyond 2⁵³ are not compared exactly")),
        None => Err(refused(path, "expected a number")),
    }
}

/// Whether JSON can have `text` without \u, which strings do not have here.
fn writable(text: &str, path: &str) -> Translated<()> {
    let written = |c: char| !c.is_ascii_control() || "\u{8}\u{c}\n\r\t".contains(c);
    match text.chars().find(|&c| !written(c)) {
        None => Ok(()),
        Some(c) => Err(refused(
            path,
            format!(
                "the control character U+{:04X} is not written in texts",
                u32::from(c)
            ),
        )),
    }
}

/// A value whose numbers have the same values for llguidance.
fn exact(value: &Value, path: &str) -> Translated<Value> {
    match value {
        Value::Number(_) => {
            number(value, path)?;
        }
        Value::Array(_) => {
            exact_list(value, path)?;
        }
        Value::Object(object) => {
            for (key, value) in object {
                writable(key, path)?;
                exact(value, &under(path, key))?;
            }
        }
        Value::String(text) => writable(text, path)?,
        Value::Null | Value::Bool(_) => {}
    }
    Ok(value.clone())
}

fn exact_list(value: &Value, path: &str) -> Translated<Value> {
    let values = value
        .as_array()
        .ok_or_else(|| refused(path, "expected a list"))?;
    for (i, value) in values.iter().enumerate() {
        exact(value, &format!("{path}/{i}"))?;
    }
    Ok(value.clone())
}

fn format_of(value: &Value, path: &str) -> Translated<Value> {
    let name = text(value, path)?;
    format::schema(name).ok_or_else(|| {
        let names = format::NAMES.join(", ");
        refused(
            path,
            format!("the format {name:?} is not supported; there are {names}"),
        )
    })
}
