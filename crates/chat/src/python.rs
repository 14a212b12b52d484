//! Methods of Python's types that templates call, if minijinja's `pycompat` lacks them. Also the
//! text of values in Python's form.

use std::fmt::Write;

use minijinja::value::{Value, ValueKind, from_args};
use minijinja::{Error, ErrorKind, Output, State, escape_formatter, filters};
use minijinja_contrib::pycompat;

use crate::json;

/// Writes a value in the place of `{{ value }}`, as Python would.
///
/// # Errors
/// Fails if the output is full.
pub(crate) fn format(out: &mut Output, state: &mut State, value: &Value) -> Result<(), Error> {
    match text(value) {
        Some(text) => Ok(out.write_str(&text)?),
        None => escape_formatter(out, state, value),
    }
}

/// The filter `string`.
///
/// # Errors
/// Fails if the value may not become a string.
pub(crate) fn string(state: &State, value: &Value) -> Result<Value, Error> {
    match text(value) {
        Some(text) => {
            state.consume_fuel(text.len() as u64 / BYTES)?;
            Ok(text.into())
        }
        None => filters::string(state, value),
    }
}

/// The text of a value with exponents, which minijinja writes otherwise.
fn text(value: &Value) -> Option<String> {
    has_exponent(value).then(|| {
        let mut text = String::new();
        write_repr(value, &mut text);
        text
    })
}

/// The items of a list or a map, each with its key if it has one.
fn items(value: &Value) -> impl Iterator<Item = (Option<Value>, Value)> {
    let is_map = value.kind() == ValueKind::Map;
    let is_list = value.kind() == ValueKind::Seq;
    let items = (is_map || is_list).then(|| value.try_iter().ok()).flatten();
    items.into_iter().flatten().map(move |item| match is_map {
        true => (
            Some(item.clone()),
            value.get_item(&item).unwrap_or_default(),
        ),
        false => (None, item),
    })
}

/// Does Python write an exponent in this value, or in a part of it?
fn has_exponent(value: &Value) -> bool {
    match value.kind() {
        ValueKind::Number => !value.is_integer() && json::number(value).contains('e'),
        _ => items(value).any(|(_, item)| has_exponent(&item)),
    }
}

fn write_repr(value: &Value, out: &mut String) {
    let brackets = match value.kind() {
        ValueKind::Map => ['{', '}'],
        ValueKind::Seq => ['[', ']'],
        ValueKind::Number => return out.push_str(&json::number(value)),
        _ => {
            // Writing to a string cannot fail.
            let _ = write!(out, "{value:?}");
            return;
        }
    };
    out.push(brackets[0]);
    for (index, (key, item)) in items(value).enumerate() {
        if index > 0 {
            out.push_str(", ");
        }
        if let Some(key) = key {
            write_repr(&key, out);
            out.push_str(": ");
        }
        write_repr(&item, out);
    }
    out.push(brackets[1]);
}

/// Calls `method` of `value`, as Python would.
///
/// # Errors
/// Fails if there is no such method, or if its arguments are wrong. Methods that change a list or a
/// dictionary fail, as in the sandbox of `apply_chat_template`.
pub(crate) fn call(
    state: &mut State,
    value: &Value,
    method: &str,
    args: &[Value],
) -> Result<Value, Error> {
    if let Some(text) = value.as_str()
        && let Some(result) = string_method(text, method, args)?
    {
        return Ok(result);
    }
    if let (Some(separator), "join", [items]) = (value.as_str(), method, args) {
        return state.apply_filter("join", &[items.clone(), separator.into()]);
    }
    if let Some(text) = value.as_str() {
        state.consume_fuel(bytes_made(text, method, args) / BYTES)?;
    }
    if value.kind() == ValueKind::Seq && method == "index" {
        let (wanted,): (&Value,) = from_args(args)?;
        let mut items = value.try_iter()?;
        let index = items.position(|item| item == *wanted);
        return index
            .map(Value::from)
            .ok_or_else(|| not_found("the item is not in the list"));
    }
    pycompat::unknown_method_callback(state, value, method, args)
}

/// Bytes that cost a step, as elsewhere in the engine.
const BYTES: u64 = 64;

/// Bytes that a method makes beyond those of the text, where that is not bounded by its arguments: `pycompat`
/// counts them when they are there.
fn bytes_made(text: &str, method: &str, args: &[Value]) -> u64 {
    match (method, args) {
        ("replace", [old, new, ..]) => {
            let (old, new) = (old.as_str(), new.as_str());
            let count = old.map_or(0, |old| text.matches(old).count() as u64);
            count.saturating_mul(new.map_or(0, str::len) as u64)
        }
        // Its widths and precisions.
        ("format", _) => {
            let numbers = text.split(|it: char| !it.is_ascii_digit());
            let numbers = numbers.filter(|it| !it.is_empty());
            let sizes = numbers.map(|it| it.parse().unwrap_or(u64::MAX));
            sizes.fold(0, u64::saturating_add)
        }
        _ => 0,
    }
}

/// Whether Python could iterate over a value: unlike minijinja, over strings, and not over `None`.
pub(crate) fn is_iterable(value: &Value) -> bool {
    use ValueKind::{Iterable, Map, Seq, String, Undefined};
    matches!(value.kind(), Iterable | Map | Seq | String | Undefined)
}

fn not_found(reason: &'static str) -> Error {
    Error::new(ErrorKind::InvalidOperation, reason)
}

/// The result, if this is a method of strings that `pycompat` lacks.
fn string_method(text: &str, method: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    Ok(Some(match method {
        "removeprefix" => {
            let (prefix,): (&str,) = from_args(args)?;
            text.strip_prefix(prefix).unwrap_or(text).into()
        }
        "removesuffix" => {
            let (suffix,): (&str,) = from_args(args)?;
            text.strip_suffix(suffix).unwrap_or(text).into()
        }
        "partition" => {
            let (separator,): (&str,) = from_args(args)?;
            match text.split_once(separator) {
                Some((before, after)) => triple(before, separator, after),
                None => triple(text, "", ""),
            }
        }
        "rpartition" => {
            let (separator,): (&str,) = from_args(args)?;
            match text.rsplit_once(separator) {
                Some((before, after)) => triple(before, separator, after),
                None => triple("", "", text),
            }
        }
        "rsplit" => rsplit(text, args)?,
        "index" => {
            let (wanted,): (&str,) = from_args(args)?;
            let at = text
                .find(wanted)
                .ok_or_else(|| not_found("the substring is not in the string"))?;
            text[..at].chars().count().into()
        }
        "casefold" => {
            let () = from_args(args)?;
            text.to_lowercase().into()
        }
        "isdecimal" => {
            let () = from_args(args)?;
            (!text.is_empty() && text.chars().all(|char| char.is_ascii_digit())).into()
        }
        _ => return Ok(None),
    }))
}

fn triple(before: &str, separator: &str, after: &str) -> Value {
    [before, separator, after].map(Value::from).to_vec().into()
}

fn rsplit(text: &str, args: &[Value]) -> Result<Value, Error> {
    let (separator, most): (Option<&str>, Option<i64>) = from_args(args)?;
    let most = most.and_then(|it| usize::try_from(it).ok());
    let parts = most.map_or(usize::MAX, |it| it.saturating_add(1));
    let mut found: Vec<&str> = match separator {
        Some(separator) => text.rsplitn(parts, separator).collect(),
        None => words_from_the_end(text, parts),
    };
    found.reverse();
    Ok(found.into_iter().map(Value::from).collect())
}

/// The last words of a text, the last one first; the last of `parts` is all that is before them.
fn words_from_the_end(text: &str, parts: usize) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = text.trim_end();
    while !rest.is_empty() {
        let last = found.len() + 1 == parts;
        let cut = rest.rfind(char::is_whitespace).filter(|_| !last);
        let start = cut.map_or(0, |at| {
            at + rest[at..].chars().next().map_or(0, char::len_utf8)
        });
        found.push(&rest[start..]);
        rest = rest[..start].trim_end();
    }
    found
}
