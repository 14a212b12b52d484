//! Values in other forms than JSON: Python's, and Gemma's.

use serde_json::{Map, Value};

use crate::scan::skip_space;

/// Quotes of strings by Gemma 4, and by FunctionGemma.
const QUOTES: [&str; 2] = ["<|\"|>", "<escape>"];

/// The deepest nesting, as in `serde_json`'s reader.
const DEPTH: usize = 127;

/// Why there is no value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Stop {
    /// The value continues.
    Open,
    /// The text is not a value.
    Wrong,
}

/// The value that a whole text is: a list or an object, with Python's words and strings.
pub(crate) fn container(text: &str) -> Option<Value> {
    let text = text.trim();
    let begins = text.starts_with(['[', '{']);
    let read = begins.then(|| value(text, 0, DEPTH))?;
    read.ok()
        .filter(|(_, end)| *end == text.len())
        .map(|(value, _)| value)
}

/// The value that begins at `at`, and its end. A number or a word has to be followed by something that ends it.
///
/// # Errors
/// Fails if no value begins there, or if the text is incomplete.
pub(crate) fn literal(text: &str, at: usize) -> Result<(Value, usize), Stop> {
    value(text, at, DEPTH)
}

/// The key that begins at `at`, a word or a string, and its end.
///
/// # Errors
/// The same errors as [`literal`].
pub(crate) fn key(text: &str, at: usize) -> Result<(String, usize), Stop> {
    if let Some(read) = string(text, at)? {
        return Ok(read);
    }
    let rest = &text[at..];
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.');
    match rest.find(|c| !is_part(c)) {
        None => Err(Stop::Open),
        Some(0) => Err(Stop::Wrong),
        Some(length) => Ok((rest[..length].to_owned(), at + length)),
    }
}

fn value(text: &str, at: usize, depth: usize) -> Result<(Value, usize), Stop> {
    if let Some((text, end)) = string(text, at)? {
        return Ok((text.into(), end));
    }
    match (text.as_bytes().get(at), depth.checked_sub(1)) {
        (Some(b'['), Some(depth)) => list(text, at + 1, depth),
        (Some(b'{'), Some(depth)) => object(text, at + 1, depth),
        _ => word(text, at),
    }
}

fn word(text: &str, at: usize) -> Result<(Value, usize), Stop> {
    let ends = |c: char| matches!(c, ',' | ']' | '}' | ')') || c.is_whitespace();
    let length = text[at..].find(ends).ok_or(Stop::Open)?;
    let value = match &text[at..at + length] {
        "True" => true.into(),
        "False" => false.into(),
        "None" => Value::Null,
        word => serde_json::from_str(word).map_err(|_| Stop::Wrong)?,
    };
    Ok((value, at + length))
}

fn list(text: &str, at: usize, depth: usize) -> Result<(Value, usize), Stop> {
    let mut items = Vec::new();
    let mut here = at;
    while let Some(start) = next(text, here, b']', items.is_empty())? {
        let (item, end) = value(text, start, depth)?;
        items.push(item);
        here = end;
    }
    Ok((items.into(), skip_to(text, here, b']')))
}

fn object(text: &str, at: usize, depth: usize) -> Result<(Value, usize), Stop> {
    let mut members = Map::new();
    let mut here = at;
    while let Some(start) = next(text, here, b'}', members.is_empty())? {
        let (name, end) = key(text, start)?;
        let start = behind(text, end, b':')?;
        let (member, end) = value(text, start, depth)?;
        members.insert(name, member);
        here = end;
    }
    Ok((members.into(), skip_to(text, here, b'}')))
}

/// The start of a list's next part, the first one or one after a comma; nothing if `close` comes, before which
/// a comma may be.
///
/// # Errors
/// Fails if other text follows, or if the text is incomplete.
pub(crate) fn next(
    text: &str,
    at: usize,
    close: u8,
    is_first: bool,
) -> Result<Option<usize>, Stop> {
    let here = skip_space(text, at);
    let start = match text.as_bytes().get(here) {
        None => return Err(Stop::Open),
        Some(b',') if !is_first => skip_space(text, here + 1),
        Some(&byte) if is_first || byte == close => here,
        Some(_) => return Err(Stop::Wrong),
    };
    match text.as_bytes().get(start) {
        None => Err(Stop::Open),
        Some(&byte) if byte == close => Ok(None),
        Some(_) => Ok(Some(start)),
    }
}

/// The end of the bracket that comes behind white space and at most one comma.
pub(crate) fn skip_to(text: &str, at: usize, close: u8) -> usize {
    let found = text.as_bytes()[at..].iter().position(|&byte| byte == close);
    found.map_or(text.len(), |it| at + it + 1)
}

/// The text after a separator.
///
/// # Errors
/// Fails if the separator is missing, or if the text is incomplete.
pub(crate) fn behind(text: &str, at: usize, separator: u8) -> Result<usize, Stop> {
    let here = skip_space(text, at);
    match text.as_bytes().get(here) {
        None => Err(Stop::Open),
        Some(&byte) if byte == separator => Ok(skip_space(text, here + 1)),
        Some(_) => Err(Stop::Wrong),
    }
}

/// The string that begins at `at`, if one does.
fn string(text: &str, at: usize) -> Result<Option<(String, usize)>, Stop> {
    let rest = &text[at..];
    let begun = |quote: &&str| quote.starts_with(rest) && rest.len() < quote.len();
    if QUOTES.iter().any(begun) {
        return Err(Stop::Open);
    }
    let quoted = |quote: &'static str| Some((rest.strip_prefix(quote)?, quote));
    if let Some((inner, quote)) = QUOTES.into_iter().find_map(quoted) {
        let length = inner.find(quote).ok_or(Stop::Open)?;
        let end = at + length + 2 * quote.len();
        return Ok(Some((inner[..length].to_owned(), end)));
    }
    let quote = match rest.as_bytes()[0] {
        b'"' => '"',
        b'\'' => '\'',
        _ => return Ok(None),
    };
    let mut out = String::new();
    let mut chars = rest[1..].char_indices();
    while let Some((index, char)) = chars.next() {
        match char {
            '\\' => escape(&mut chars, &mut out)?,
            c if c == quote => return Ok(Some((out, at + index + 2))),
            c => out.push(c),
        }
    }
    Err(Stop::Open)
}

/// The character after a backslash. One that escapes nothing stays, as in Python.
fn escape(chars: &mut std::str::CharIndices, out: &mut String) -> Result<(), Stop> {
    let (_, char) = chars.next().ok_or(Stop::Open)?;
    match char {
        'n' => out.push('\n'),
        't' => out.push('\t'),
        'r' => out.push('\r'),
        'b' => out.push('\u{8}'),
        'f' => out.push('\u{c}'),
        '\\' | '/' | '"' | '\'' => out.push(char),
        'u' => out.push(unicode(chars)?),
        other => out.extend(['\\', other]),
    }
    Ok(())
}

/// The character of four hexadecimal digits, or of two times four that UTF-16 makes one of.
fn unicode(chars: &mut std::str::CharIndices) -> Result<char, Stop> {
    let digits = |chars: &mut std::str::CharIndices| {
        (0..4).try_fold(0, |unit: u16, _| {
            let (_, digit) = chars.next().ok_or(Stop::Open)?;
            let digit = digit.to_digit(16).ok_or(Stop::Wrong)?;
            Ok(unit << 4 | digit as u16)
        })
    };
    let first = digits(chars)?;
    let mut units = vec![first];
    if (0xD800..0xDC00).contains(&first) {
        for expected in ['\\', 'u'] {
            let (_, char) = chars.next().ok_or(Stop::Open)?;
            if char != expected {
                return Err(Stop::Wrong);
            }
        }
        units.push(digits(chars)?);
    }
    let mut decoded = char::decode_utf16(units);
    decoded.next().and_then(Result::ok).ok_or(Stop::Wrong)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_read_as_python_and_gemma_write_them() {
        for (text, expected) in [
            ("[1, 'a', None,]", json!([1, "a", null])),
            (
                "{theme:<|\"|>da\"rk<|\"|>, 'n': -1.5e3}",
                json!({"theme": "da\"rk", "n": -1500.0}),
            ),
            ("[True, false, {}]", json!([true, false, {}])),
            (r#"["\n\\\u00e9\ud83d\ude00\q'"]"#, json!(["\n\\é😀\\q'"])),
        ] {
            assert_eq!(container(text), Some(expected), "{text}");
            // Whatever is missing, more is to come.
            for (cut, _) in text.char_indices() {
                assert_eq!(
                    literal(&text[..cut], 0),
                    Err(Stop::Open),
                    "{}",
                    &text[..cut]
                );
            }
        }
        for wrong in [
            "[1 2]",
            "{a 1}",
            "[abc]",
            "[,]",
            "{[]: 2}",
            "['\\uZZZZ']",
            "['\\ud800\\n']",
        ] {
            assert_eq!(container(wrong), None, "{wrong}");
        }
        assert_eq!(literal("42", 0), Err(Stop::Open));
        assert_eq!(literal("42)", 0), Ok((json!(42), 2)));
    }
}
