//! JSON as Python's `json.dumps` writes it, for templates.

use std::fmt::Write;

use minijinja::value::{Kwargs, Value, ValueKind};
use minijinja::{Error, ErrorKind, State};

/// The deepest nesting that is written, as in `serde_json`'s reader.
const DEPTH: usize = 128;

/// The arguments of `json.dumps`.
struct Layout {
    ensure_ascii: bool,
    indent: Option<String>,
    /// Behind an element, and behind a key.
    separators: (String, String),
    sort_keys: bool,
}

/// The filter `tojson`, with the arguments that `apply_chat_template` gives it.
///
/// # Errors
/// Fails if a value has no JSON, or if an argument has the wrong type.
pub(crate) fn tojson(
    state: &State,
    value: &Value,
    ensure_ascii: Option<bool>,
    indent: Option<Value>,
    named: Kwargs,
) -> Result<Value, Error> {
    let indent = match indent.or(named.get("indent")?) {
        None => None,
        Some(it) if it.is_none() => None,
        Some(it) => Some(match it.as_usize() {
            Some(spaces) => " ".repeat(spaces.min(DEPTH)),
            None => it.as_str().unwrap_or_default().to_owned(),
        }),
    };
    let separators = named.get::<Option<Value>>("separators")?;
    let separators = match separators.filter(|it| !it.is_none()) {
        Some(pair) => (text_at(&pair, 0)?, text_at(&pair, 1)?),
        None => {
            let comma = if indent.is_some() { "," } else { ", " };
            (comma.to_owned(), ": ".to_owned())
        }
    };
    let layout = Layout {
        ensure_ascii: ensure_ascii
            .or(named.get("ensure_ascii")?)
            .unwrap_or_default(),
        indent,
        separators,
        sort_keys: named.get::<Option<bool>>("sort_keys")?.unwrap_or_default(),
    };
    named.assert_all_used()?;
    let mut text = String::new();
    layout.write(state, value, 0, &mut text)?;
    Ok(text.into())
}

fn text_at(pair: &Value, index: usize) -> Result<String, Error> {
    let item = pair.get_item_by_index(index)?;
    let text = item.as_str().map(str::to_owned);
    text.ok_or_else(|| refused("the separators are not a pair of strings"))
}

fn refused(reason: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, reason.into())
}

impl Layout {
    fn write(
        &self,
        state: &State,
        value: &Value,
        depth: usize,
        out: &mut String,
    ) -> Result<(), Error> {
        // A list may have another one many times, which is written as often.
        let bytes = value.as_str().map_or(0, str::len) + self.line_length(depth);
        state.consume_fuel(1 + bytes as u64 / 64)?;
        if depth > DEPTH {
            return Err(refused("tojson: the value is nested too deeply"));
        }
        match value.kind() {
            ValueKind::None => out.push_str("null"),
            ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => out.push_str(&number(value)),
            ValueKind::String => self.string(value.as_str().unwrap_or_default(), out),
            ValueKind::Map => self.map(state, value, depth, out)?,
            ValueKind::Seq | ValueKind::Iterable => {
                self.brackets(['[', ']'], value.try_iter()?, depth, out, |item, out| {
                    self.write(state, &item, depth + 1, out)
                })?;
            }
            kind => return Err(refused(format!("tojson: {kind} has no JSON"))),
        }
        Ok(())
    }

    fn map(&self, state: &State, map: &Value, depth: usize, out: &mut String) -> Result<(), Error> {
        let mut keys: Vec<Value> = map.try_iter()?.collect();
        if self.sort_keys {
            keys.sort();
        }
        self.brackets(['{', '}'], keys.into_iter(), depth, out, |key, out| {
            match key.kind() {
                ValueKind::String => self.string(key.as_str().unwrap_or_default(), out),
                _ => {
                    out.push('"');
                    self.write(state, &key, depth + 1, out)?;
                    out.push('"');
                }
            }
            out.push_str(&self.separators.1);
            self.write(state, &map.get_item(&key)?, depth + 1, out)
        })
    }

    /// Writes `items` between brackets, on their own lines if there is an indentation.
    fn brackets(
        &self,
        brackets: [char; 2],
        items: impl Iterator<Item = Value>,
        depth: usize,
        out: &mut String,
        mut write: impl FnMut(Value, &mut String) -> Result<(), Error>,
    ) -> Result<(), Error> {
        out.push(brackets[0]);
        let mut some = false;
        for item in items {
            if some {
                out.push_str(&self.separators.0);
            }
            some = true;
            self.line(depth + 1, out);
            write(item, out)?;
        }
        if some {
            self.line(depth, out);
        }
        out.push(brackets[1]);
        Ok(())
    }

    /// Bytes before a value on its own line.
    fn line_length(&self, depth: usize) -> usize {
        self.indent.as_ref().map_or(0, |it| it.len() * depth)
    }

    fn line(&self, depth: usize, out: &mut String) {
        if let Some(indent) = &self.indent {
            out.push('\n');
            out.push_str(&indent.repeat(depth));
        }
    }

    fn string(&self, text: &str, out: &mut String) {
        out.push('"');
        for char in text.chars() {
            match char {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                '\u{8}' => out.push_str("\\b"),
                '\u{c}' => out.push_str("\\f"),
                ' '..='~' => out.push(char),
                // Marks of where text is from lie in plane 16 and have to come through.
                '\u{100000}'.. => out.push(char),
                '\u{20}'.. if !self.ensure_ascii => out.push(char),
                _ => {
                    for unit in char.encode_utf16(&mut [0; 2]) {
                        // Writing to a string cannot fail.
                        let _ = write!(out, "\\u{unit:04x}");
                    }
                }
            }
        }
        out.push('"');
    }
}

/// A number as Python writes it.
pub(crate) fn number(value: &Value) -> String {
    match f64::try_from(value.clone()) {
        Ok(float) if !value.is_integer() => python_float(float),
        _ => value.to_string(),
    }
}

/// A number as Python's `repr` has it: the shortest digits that mean it, with an exponent below 1e-4 and
/// from 1e16 on.
fn python_float(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    let scientific = format!("{value:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if value == 0.0 || (-4..16).contains(&exponent) {
        let plain = value.to_string();
        return match plain.contains('.') {
            true => plain,
            false => plain + ".0",
        };
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_python_writes_them() {
        let expected = [
            (1.0, "1.0"),
            (0.1, "0.1"),
            (-2.5, "-2.5"),
            (1e16, "1e+16"),
            (1.5e-7, "1.5e-07"),
            (0.0001, "0.0001"),
            (123456789012345.0, "123456789012345.0"),
        ];
        for (value, text) in expected {
            assert_eq!(python_float(value), text);
        }
    }
}
