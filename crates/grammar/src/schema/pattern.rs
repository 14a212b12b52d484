//! Patterns of strings.
//!
//! JSON Schema's patterns are ECMA-262's regular expressions with its flag `u`; llguidance's are those of
//! Rust's `regex`. Equal parts are passed on, and others are spelled in Rust's syntax. Patterns that Rust's
//! syntax cannot express are refused.

use std::fmt::Write;
use std::iter::Peekable;
use std::str::Chars;

/// More repetitions than this are refused.
const MAX_REPETITIONS: u64 = 10_000;

/// Line ends, which ECMA-262's `.` leaves out.
const LINE_ENDS: &str = r"\n\r\u{2028}\u{2029}";
/// The characters of ECMA-262's `\s`.
const SPACES: &str = r"\t\n\u{B}\u{C}\r \u{A0}\u{FEFF}\u{2028}\u{2029}\p{Zs}";

/// The pattern as Rust's `regex` has it, or why it has none.
pub(super) fn to_rust(pattern: &str) -> Result<String, String> {
    let mut writer = Writer {
        rest: pattern.chars().peekable(),
        rust: String::with_capacity(pattern.len()),
        in_class: false,
    };
    while let Some(c) = writer.rest.next() {
        writer.sign(c)?;
    }
    match writer.in_class {
        true => Err("the pattern has [ without ]".to_owned()),
        false => Ok(writer.rust),
    }
}

struct Writer<'a> {
    rest: Peekable<Chars<'a>>,
    rust: String,
    in_class: bool,
}

impl Writer<'_> {
    fn sign(&mut self, c: char) -> Result<(), String> {
        match (c, self.in_class) {
            ('\\', _) => return self.escape(),
            ('[', false) => return self.open_class(),
            (']', true) => {
                self.in_class = false;
                self.rust.push(']');
            }
            // In Rust's classes these may mean operations on sets.
            ('[' | '&' | '~', true) => self.rust.extend(['\\', c]),
            ('.', false) => self.rust.extend(["[^", LINE_ENDS, "]"]),
            ('(', false) => return self.open_group(),
            ('{', false) => return self.repetition(),
            (c, _) => self.rust.push(c),
        }
        Ok(())
    }

    fn open_class(&mut self) -> Result<(), String> {
        self.in_class = true;
        self.rust.push('[');
        if self.rest.next_if_eq(&'^').is_some() {
            self.rust.push('^');
        }
        match self.rest.peek() {
            Some(']') => Err("the pattern has empty brackets".to_owned()),
            _ => Ok(()),
        }
    }

    fn open_group(&mut self) -> Result<(), String> {
        self.rust.push('(');
        if self.rest.next_if_eq(&'?').is_none() {
            return Ok(());
        }
        match self.rest.next() {
            Some(':') => self.rust.push_str("?:"),
            Some('<') if !matches!(self.rest.peek(), Some('=' | '!')) => self.rust.push_str("?<"),
            _ => return Err("the pattern uses look-around, which is not supported".to_owned()),
        }
        Ok(())
    }

    /// The numbers of a repetition, which must not be huge.
    fn repetition(&mut self) -> Result<(), String> {
        self.rust.push('{');
        let mut number = 0_u64;
        while let Some(c) = self.rest.next_if(|c| c.is_ascii_digit() || *c == ',') {
            number = match c.to_digit(10) {
                Some(digit) => number.saturating_mul(10).saturating_add(digit.into()),
                None => 0,
            };
            if number > MAX_REPETITIONS {
                return Err(format!(
                    "the pattern repeats more than {MAX_REPETITIONS} times"
                ));
            }
            self.rust.push(c);
        }
        Ok(())
    }

    fn escape(&mut self) -> Result<(), String> {
        let c = self.rest.next();
        match c.ok_or("the pattern ends with a backslash")? {
            'd' => self.set("0-9", false),
            'w' => self.set("0-9A-Za-z_", false),
            's' => self.set(SPACES, false),
            'D' => self.set("0-9", true),
            'W' => self.set("0-9A-Za-z_", true),
            'S' => self.set(SPACES, true),
            c @ ('t' | 'n' | 'r' | 'v' | 'f') => self.rust.extend(['\\', c]),
            c @ ('p' | 'P') => self.rust.extend(['\\', c]),
            '0' => self.character(0)?,
            'b' if self.in_class => self.character(8)?,
            'x' => {
                let number = self.hexadecimal(2)?;
                self.character(number)?;
            }
            'u' => {
                let number = self.unicode()?;
                self.character(number)?;
            }
            'c' => {
                let letter = self.rest.next().filter(char::is_ascii_alphabetic);
                let letter = letter.ok_or("the pattern has \\c without a letter")?;
                self.character(u32::from(letter) % 32)?;
            }
            c if c.is_ascii_punctuation() => self.rust.extend(['\\', c]),
            c => {
                return Err(format!("the pattern has \\{c}, which is not supported"));
            }
        }
        Ok(())
    }

    /// A set of characters, or all others.
    fn set(&mut self, characters: &str, others: bool) {
        match (self.in_class, others) {
            (true, false) => self.rust.push_str(characters),
            (_, true) => self.rust.extend(["[^", characters, "]"]),
            (false, false) => self.rust.extend(["[", characters, "]"]),
        }
    }

    /// A character by its number. A class may contain characters that JSON has only as \u, which strings do not
    /// have here. It must contain others, too.
    fn character(&mut self, number: u32) -> Result<(), String> {
        let written = matches!(number, 8 | 9 | 10 | 12 | 13 | 0x20..=0x7E | 0x80..);
        if !written && !self.in_class {
            return Err(format!(
                "the pattern has the control character U+{number:04X}, which is not written in texts"
            ));
        }
        // Writing to a string does not fail.
        let _ = write!(self.rust, "\\u{{{number:X}}}");
        Ok(())
    }

    /// The number after \u: four digits, twice where they are half of a character, or any in braces.
    fn unicode(&mut self) -> Result<u32, String> {
        if self.rest.next_if_eq(&'{').is_some() {
            let mut number = 0_u32;
            while let Some(digit) = self.rest.peek().and_then(|c| c.to_digit(16)) {
                self.rest.next();
                number = number.saturating_mul(16).saturating_add(digit);
            }
            let closed = self.rest.next() == Some('}');
            return match closed {
                true => Ok(number),
                false => Err("the pattern has \\u{ without }".to_owned()),
            };
        }
        let high = self.hexadecimal(4)?;
        if !(0xD800..0xDC00).contains(&high) {
            return Ok(high);
        }
        let low = match (self.rest.next(), self.rest.next()) {
            (Some('\\'), Some('u')) => self.hexadecimal(4)?,
            _ => 0,
        };
        match (0xDC00..0xE000).contains(&low) {
            true => Ok(0x1_0000 + ((high - 0xD800) << 10) + (low - 0xDC00)),
            false => Err("the pattern has half a character".to_owned()),
        }
    }

    fn hexadecimal(&mut self, digits: usize) -> Result<u32, String> {
        (0..digits).try_fold(0, |number, _| {
            let digit = self.rest.next().and_then(|c| c.to_digit(16));
            let digit = digit.ok_or_else(|| format!("{digits} hexadecimal digits are expected"))?;
            Ok(number * 16 + digit)
        })
    }
}
