//! Incomplete JSON.

/// Extent of a value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Extent {
    /// It ends before this byte.
    To(usize),
    /// The text ends within it.
    Open,
    /// It is not a value, which shows at this byte and not before.
    Wrong(usize),
}

/// A member of an object: its key, where its value begins, and how far that reaches.
#[derive(Debug, PartialEq)]
pub(crate) struct Member {
    pub(crate) key: String,
    pub(crate) start: usize,
    pub(crate) extent: Extent,
}

/// The first byte from `at` on that is not white space.
pub(crate) fn skip_space(text: &str, at: usize) -> usize {
    at + (text[at..].len() - text[at..].trim_start().len())
}

/// The deepest nesting, as in `serde_json`'s reader.
const DEPTH: usize = 127;

/// The elements that may come next in a value.
#[derive(Clone, Copy, PartialEq)]
enum Next {
    Value,
    ValueOrEnd,
    Key,
    KeyOrEnd,
    Colon,
    CommaOrEnd,
}

/// Extent of the value that begins at `at`.
pub(crate) fn value(text: &str, at: usize) -> Extent {
    let bytes = text.as_bytes();
    let mut within = Vec::new();
    let mut next = Next::Value;
    let mut here = at;
    loop {
        let Some(&byte) = bytes.get(here) else {
            return Extent::Open;
        };
        let extent = match (next, byte) {
            (_, b' ' | b'\t' | b'\n' | b'\r') if here > at => {
                here += 1;
                continue;
            }
            (Next::Value | Next::ValueOrEnd, b'{' | b'[') if within.len() < DEPTH => {
                within.push(byte);
                next = if byte == b'{' {
                    Next::KeyOrEnd
                } else {
                    Next::ValueOrEnd
                };
                here += 1;
                continue;
            }
            (Next::KeyOrEnd, b'}') | (Next::ValueOrEnd, b']') => {
                within.pop();
                Extent::To(here + 1)
            }
            (Next::CommaOrEnd, b'}' | b']') if within.last() == Some(&(byte - 2)) => {
                within.pop();
                Extent::To(here + 1)
            }
            (Next::CommaOrEnd, b',') => {
                next = if within.last() == Some(&b'{') {
                    Next::Key
                } else {
                    Next::Value
                };
                here += 1;
                continue;
            }
            (Next::Colon, b':') => {
                next = Next::Value;
                here += 1;
                continue;
            }
            (Next::Key | Next::KeyOrEnd, b'"') => match string(bytes, here) {
                Extent::To(end) => {
                    next = Next::Colon;
                    here = end;
                    continue;
                }
                other => return other,
            },
            (Next::Value | Next::ValueOrEnd, _) => scalar(bytes, here),
            _ => Extent::Wrong(here),
        };
        match extent {
            Extent::To(end) if !within.is_empty() => {
                next = Next::CommaOrEnd;
                here = end;
            }
            _ => return extent,
        }
    }
}

/// A string, a number or a word.
fn scalar(bytes: &[u8], at: usize) -> Extent {
    match bytes[at] {
        b'"' => string(bytes, at),
        b't' => word(bytes, at, b"true"),
        b'f' => word(bytes, at, b"false"),
        b'n' => word(bytes, at, b"null"),
        b'-' | b'0'..=b'9' => number(bytes, at),
        _ => Extent::Wrong(at),
    }
}

fn word(bytes: &[u8], at: usize, word: &[u8]) -> Extent {
    let same = bytes[at..]
        .iter()
        .zip(word)
        .take_while(|(a, b)| a == b)
        .count();
    match at + same {
        end if same == word.len() => Extent::To(end),
        end if end == bytes.len() => Extent::Open,
        end => Extent::Wrong(end),
    }
}

fn number(bytes: &[u8], at: usize) -> Extent {
    let digits = |from: usize| {
        bytes[from..]
            .iter()
            .take_while(|it| it.is_ascii_digit())
            .count()
    };
    // A number goes on as long as digits may come: where the text ends, it is open.
    let required = |from: usize| match (from + digits(from), bytes.get(from)) {
        (end, _) if end == bytes.len() => Err(Extent::Open),
        (end, Some(byte)) if byte.is_ascii_digit() => Ok(end),
        _ => Err(Extent::Wrong(from)),
    };
    let whole = || {
        let start = at + usize::from(bytes[at] == b'-');
        let mut end = match bytes.get(start) {
            Some(b'0') if start + 1 == bytes.len() => return Err(Extent::Open),
            Some(b'0') => start + 1,
            _ => required(start)?,
        };
        if bytes.get(end) == Some(&b'.') {
            end = required(end + 1)?;
        }
        if let Some(b'e' | b'E') = bytes.get(end) {
            let sign = matches!(bytes.get(end + 1), Some(b'+' | b'-'));
            end = required(end + 1 + usize::from(sign))?;
        }
        Ok(end)
    };
    whole().map_or_else(|extent| extent, Extent::To)
}

/// The string that begins at `at`.
fn string(bytes: &[u8], at: usize) -> Extent {
    let mut here = at + 1;
    while let Some(&byte) = bytes.get(here) {
        match byte {
            b'"' => return Extent::To(here + 1),
            0..=0x1f => return Extent::Wrong(here),
            b'\\' => match escape(bytes, here + 1) {
                Extent::To(end) => here = end,
                other => return other,
            },
            _ => here += 1,
        }
    }
    Extent::Open
}

/// The character after a backslash.
fn escape(bytes: &[u8], at: usize) -> Extent {
    match bytes.get(at) {
        None => Extent::Open,
        Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => Extent::To(at + 1),
        Some(b'u') => {
            let digits = bytes[at + 1..].iter().take(4);
            match digits.take_while(|it| it.is_ascii_hexdigit()).count() {
                4 => Extent::To(at + 5),
                some if at + 1 + some == bytes.len() => Extent::Open,
                some => Extent::Wrong(at + 1 + some),
            }
        }
        Some(_) => Extent::Wrong(at),
    }
}

/// The members of the object that begins at `at`, and the object's end. The last member may be open.
pub(crate) fn members(text: &str, at: usize) -> (Vec<Member>, Extent) {
    let bytes = text.as_bytes();
    let mut found = Vec::new();
    let mut here = skip_space(text, at + 1);
    loop {
        match bytes.get(here) {
            None => return (found, Extent::Open),
            Some(b'}') => return (found, Extent::To(here + 1)),
            Some(b'"') => {}
            Some(_) => return (found, Extent::Wrong(here)),
        }
        let end = match string(bytes, here) {
            Extent::To(end) => end,
            other => return (found, other),
        };
        let Ok(key) = serde_json::from_str(&text[here..end]) else {
            return (found, Extent::Wrong(here));
        };
        let colon = skip_space(text, end);
        match bytes.get(colon) {
            None => return (found, Extent::Open),
            Some(b':') => {}
            Some(_) => return (found, Extent::Wrong(colon)),
        }
        let start = skip_space(text, colon + 1);
        if start == text.len() {
            return (found, Extent::Open);
        }
        let extent = value(text, start);
        found.push(Member { key, start, extent });
        let Extent::To(end) = extent else {
            return (found, extent);
        };
        let comma = skip_space(text, end);
        here = match bytes.get(comma) {
            Some(b',') => skip_space(text, comma + 1),
            Some(b'}') => comma,
            None => return (found, Extent::Open),
            Some(_) => return (found, Extent::Wrong(comma)),
        };
    }
}
