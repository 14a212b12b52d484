//! The part of Python's literals that headers of `.npy` are written in.

use rustorch_gguf::quoted;

/// A value in such a header.
#[derive(Debug, PartialEq)]
pub(crate) enum Literal<'a> {
    Text(&'a str),
    Bool(bool),
    /// A tuple of numbers.
    Sizes(Vec<usize>),
    /// A list, of whatever.
    List,
}

/// The entries of a dictionary, which is all of `text`.
///
/// # Errors
/// The error names the expected text and its place.
pub(crate) fn dictionary(text: &str) -> Result<Vec<(&str, Literal<'_>)>, String> {
    let mut rest = Rest { text, at: 0 };
    rest.expect('{')?;
    let mut entries = Vec::new();
    while !rest.take('}') {
        let key = rest.text()?;
        rest.expect(':')?;
        let value = rest.value()?;
        entries.push((key, value));
        if !rest.take(',') {
            rest.expect('}')?;
            break;
        }
    }
    match rest.peek() {
        None => Ok(entries),
        Some(_) => Err(rest.wrong("nothing behind the dictionary")),
    }
}

/// The rest of the text.
struct Rest<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Rest<'a> {
    /// The next character that is not a space.
    fn peek(&mut self) -> Option<char> {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start().len();
        self.text[self.at..].chars().next()
    }

    fn take(&mut self, wanted: char) -> bool {
        let is_there = self.peek() == Some(wanted);
        self.at += if is_there { wanted.len_utf8() } else { 0 };
        is_there
    }

    fn expect(&mut self, wanted: char) -> Result<(), String> {
        match self.take(wanted) {
            true => Ok(()),
            false => Err(self.wrong(&format!("`{wanted}`"))),
        }
    }

    fn wrong(&mut self, wanted: &str) -> String {
        let found = match self.peek() {
            Some(found) => quoted(&found.to_string()),
            None => "the end".to_owned(),
        };
        format!(
            "expected {wanted} at character {}, found {found}",
            self.at + 1
        )
    }

    fn text(&mut self) -> Result<&'a str, String> {
        let quote = match self.peek() {
            Some(quote @ ('\'' | '"')) => quote,
            _ => return Err(self.wrong("a text")),
        };
        let from = self.at + 1;
        let Some(len) = self.text[from..].find(quote) else {
            return Err(self.wrong("a text that ends"));
        };
        self.at = from + len + 1;
        Ok(&self.text[from..from + len])
    }

    /// Letters or digits.
    fn word(&mut self) -> &'a str {
        self.peek();
        let rest = &self.text[self.at..];
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric());
        let word = &rest[..end.unwrap_or(rest.len())];
        self.at += word.len();
        word
    }

    fn value(&mut self) -> Result<Literal<'a>, String> {
        match self.peek() {
            Some('\'' | '"') => Ok(Literal::Text(self.text()?)),
            Some('(') => self.sizes(),
            Some('[') => self.list(),
            _ => {
                let at = self.at;
                match self.word() {
                    "True" => Ok(Literal::Bool(true)),
                    "False" => Ok(Literal::Bool(false)),
                    _ => {
                        self.at = at;
                        Err(self.wrong("a text, a tuple, True or False"))
                    }
                }
            }
        }
    }

    fn sizes(&mut self) -> Result<Literal<'a>, String> {
        self.expect('(')?;
        let mut sizes = Vec::new();
        while !self.take(')') {
            let at = self.at;
            // Python 2 wrote numbers with an L.
            let word = self.word();
            let Ok(size) = word.strip_suffix('L').unwrap_or(word).parse() else {
                self.at = at;
                return Err(self.wrong("a size"));
            };
            sizes.push(size);
            if !self.take(',') {
                self.expect(')')?;
                break;
            }
        }
        Ok(Literal::Sizes(sizes))
    }

    /// A list up to the bracket that closes it; texts in it have none.
    fn list(&mut self) -> Result<Literal<'a>, String> {
        let mut depth = 0usize;
        for (at, c) in self.text[self.at..].char_indices() {
            match c {
                '[' => depth += 1,
                ']' => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                self.at += at + 1;
                return Ok(Literal::List);
            }
        }
        Err(self.wrong("a list that ends"))
    }
}
