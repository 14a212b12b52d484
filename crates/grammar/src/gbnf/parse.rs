//! Reading a grammar; the rules are those of llama.cpp's `llama_grammar_parser`.

use std::collections::HashMap;

use super::{Alternatives, Element, Item, Rule, error_at};
use crate::GrammarError;

/// More repetitions than this have to be any number, as in llama.cpp.
const MAX_REPETITIONS: u32 = 2000;
/// Groups within groups.
const MAX_DEPTH: usize = 200;

/// The rules of a grammar, in the order in which they are named first.
///
/// `tokens` is the number of tokens, and `token` finds one by its text or name.
pub(super) fn parse(
    text: &str,
    tokens: usize,
    token: &dyn Fn(&str) -> Option<u32>,
) -> Result<Vec<Rule>, GrammarError> {
    let mut parser = Parser {
        text,
        at: 0,
        depth: 0,
        tokens,
        token,
        rules: Vec::new(),
        by_name: HashMap::new(),
    };
    parser.skip(true);
    while parser.peek().is_some() {
        parser.rule()?;
    }
    parser.check()?;
    Ok(parser.rules)
}

struct Parser<'a> {
    text: &'a str,
    /// The byte at which it is.
    at: usize,
    /// Groups that it is in.
    depth: usize,
    tokens: usize,
    token: &'a dyn Fn(&str) -> Option<u32>,
    rules: Vec<Rule>,
    by_name: HashMap<&'a str, usize>,
}

type Parsed<T> = Result<T, GrammarError>;

impl<'a> Parser<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn next(&mut self) -> Parsed<char> {
        let c = self.peek();
        let c = c.ok_or_else(|| self.error("the grammar is incomplete"))?;
        self.at += c.len_utf8();
        Ok(c)
    }

    /// Continues behind `sign`, if it comes next.
    fn take(&mut self, sign: &str) -> bool {
        let comes = self.rest().starts_with(sign);
        self.at += if comes { sign.len() } else { 0 };
        comes
    }

    fn expect(&mut self, sign: &str) -> Parsed<()> {
        match self.take(sign) {
            true => Ok(()),
            false => Err(self.error(format!("{sign} is expected here"))),
        }
    }

    fn take_while(&mut self, keep: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let end = rest.find(|c| !keep(c)).unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    fn error(&self, reason: impl Into<String>) -> GrammarError {
        error_at(self.text, self.at, reason)
    }

    /// Goes on behind spaces and comments.
    fn skip(&mut self, lines: bool) {
        loop {
            self.take_while(|c| c == ' ' || c == '\t' || (lines && (c == '\r' || c == '\n')));
            match self.peek() {
                Some('#') => self.take_while(|c| c != '\r' && c != '\n'),
                _ => break,
            };
        }
    }

    /// The rule of the name that comes.
    fn name(&mut self) -> Parsed<usize> {
        let at = self.at;
        let name = self.take_while(|c| c.is_ascii_alphanumeric() || c == '-');
        if name.is_empty() {
            return Err(self.error("the name of a rule is expected here"));
        }
        Ok(*self.by_name.entry(name).or_insert_with(|| {
            self.rules.push(Rule {
                name: name.to_owned(),
                at,
                texts: None,
            });
            self.rules.len() - 1
        }))
    }

    fn rule(&mut self) -> Parsed<()> {
        let rule = self.name()?;
        self.skip(false);
        self.expect("::=")?;
        self.skip(true);
        let texts = self.alternatives(false)?;
        // The last definition of a rule counts, as in llama.cpp.
        self.rules[rule].texts = Some(texts);
        match self.peek() {
            None | Some('\r' | '\n') => self.skip(true),
            Some(c) => {
                return Err(self.error(format!(
                    "{c:?} does not continue the rule; the next rule begins on a new line"
                )));
            }
        }
        Ok(())
    }

    fn alternatives(&mut self, nested: bool) -> Parsed<Alternatives> {
        let mut texts = vec![self.sequence(nested)?];
        while self.take("|") {
            self.skip(true);
            texts.push(self.sequence(nested)?);
        }
        Ok(texts)
    }

    fn sequence(&mut self, nested: bool) -> Parsed<Vec<Item>> {
        let mut items = Vec::new();
        // Whether there is an element that signs of repetition could apply to.
        let mut repeatable = false;
        let mut signs = 0;
        while let Some(c) = self.peek() {
            let start = self.at;
            let element = match c {
                '"' => self.literal()?,
                '[' => Some(self.class()?),
                '<' | '!' => Some(self.token()?),
                '(' => Some(self.group()?),
                '.' => {
                    self.at += 1;
                    Some(Element::Any)
                }
                '*' | '+' | '?' | '{' => {
                    let times = self.repetition()?;
                    let Some(item) = items.pop().filter(|_| repeatable) else {
                        return Err(error_at(
                            self.text,
                            start,
                            format!("there is nothing before {c} that could be repeated"),
                        ));
                    };
                    signs += 1;
                    if signs > MAX_DEPTH {
                        let reason = format!(
                            "more than {MAX_DEPTH} signs of repetition one behind the other; leave \
                             some out"
                        );
                        return Err(error_at(self.text, start, reason));
                    }
                    items.push(repeated(item, times));
                    self.skip(nested);
                    continue;
                }
                c if c.is_ascii_alphanumeric() || c == '-' => Some(Element::Rule(self.name()?)),
                _ => break,
            };
            self.skip(nested);
            signs = 0;
            repeatable = element.is_some();
            items.extend(element.map(|what| Item {
                what,
                min: 1,
                max: Some(1),
            }));
        }
        Ok(items)
    }

    /// A text in quotes; none if it is empty.
    fn literal(&mut self) -> Parsed<Option<Element>> {
        self.expect("\"")?;
        let mut chars = Vec::new();
        while !self.take("\"") {
            let start = self.at;
            let c = self.character()?;
            chars.push(char::from_u32(c).ok_or_else(|| {
                error_at(self.text, start, format!("U+{c:04X} is not a character"))
            })?);
        }
        Ok((!chars.is_empty()).then_some(Element::Text(chars)))
    }

    fn class(&mut self) -> Parsed<Element> {
        let start = self.at;
        self.expect("[")?;
        let negated = self.take("^");
        let mut ranges = Vec::new();
        let mut empty = true;
        while !self.take("]") {
            let at = self.at;
            let first = self.character()?;
            let last = match self.rest().starts_with('-') && !self.rest().starts_with("-]") {
                true => {
                    self.at += 1;
                    self.character()?
                }
                false => first,
            };
            if last < first {
                return Err(error_at(self.text, at, "this range ends before it begins"));
            }
            ranges.extend(characters(first, last));
            empty = false;
        }
        if empty || (ranges.is_empty() && !negated) {
            return Err(error_at(
                self.text,
                start,
                "no character is in these brackets; for any character, write .",
            ));
        }
        Ok(match ranges.is_empty() {
            true => Element::Any,
            false => Element::Class { negated, ranges },
        })
    }

    /// A character's number, from itself or behind a backslash.
    fn character(&mut self) -> Parsed<u32> {
        let start = self.at;
        let c = self.next()?;
        if c != '\\' {
            return Ok(c.into());
        }
        let digits = match self.next()? {
            'x' => 2,
            'u' => 4,
            'U' => 8,
            't' => return Ok('\t'.into()),
            'r' => return Ok('\r'.into()),
            'n' => return Ok('\n'.into()),
            c @ ('\\' | '"' | '[' | ']' | '-') => return Ok(c.into()),
            c => {
                return Err(error_at(
                    self.text,
                    start,
                    format!(
                        "\\{c} means nothing; there are \\t \\r \\n \\\\ \\\" \\[ \\] \\- \\xHH \
                         \\uHHHH \\UHHHHHHHH"
                    ),
                ));
            }
        };
        let text = self.rest().get(..digits).unwrap_or_default();
        let number = match text.bytes().all(|b| b.is_ascii_hexdigit()) {
            true => u32::from_str_radix(text, 16).ok(),
            false => None,
        };
        self.at += text.len();
        number.ok_or_else(|| {
            error_at(
                self.text,
                start,
                format!("{digits} hexadecimal digits are expected here"),
            )
        })
    }

    /// `<[id]>` or `<name>`, with ! before it for any other token.
    fn token(&mut self) -> Parsed<Element> {
        let negated = self.take("!");
        let start = self.at;
        self.expect("<")?;
        let id = if self.take("[") {
            let digits = self.take_while(|c| c.is_ascii_digit());
            self.expect("]>")?;
            digits.parse().ok()
        } else {
            self.take_while(|c| c != '>' && c != '\n');
            self.expect(">")?;
            (self.token)(&self.text[start..self.at])
        };
        let id = id.filter(|&id: &u32| (id as usize) < self.tokens);
        let id = id.ok_or_else(|| {
            let name = &self.text[start..self.at];
            let reason = format!(
                "{name} is not a token of this model, whose ids end before {}",
                self.tokens
            );
            error_at(self.text, start, reason)
        })?;
        Ok(Element::Token { id, negated })
    }

    fn group(&mut self) -> Parsed<Element> {
        self.expect("(")?;
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.error(format!(
                "more than {MAX_DEPTH} groups within groups; give some of them names"
            )));
        }
        self.skip(true);
        let texts = self.alternatives(true)?;
        self.expect(")")?;
        self.depth -= 1;
        Ok(Element::Group(texts))
    }

    /// Least and largest number of repetitions.
    fn repetition(&mut self) -> Parsed<(u32, Option<u32>)> {
        Ok(match self.next()? {
            '*' => (0, None),
            '+' => (1, None),
            '?' => (0, Some(1)),
            _ => {
                self.skip(false);
                let min = self.number()?;
                if min > MAX_REPETITIONS {
                    return Err(self.error(format!(
                        "more than {MAX_REPETITIONS} repetitions are too many"
                    )));
                }
                self.skip(false);
                let max = if self.take(",") {
                    self.skip(false);
                    let bounded = self.peek().is_some_and(|c| c.is_ascii_digit());
                    let max = bounded.then(|| self.number()).transpose()?;
                    self.skip(false);
                    max
                } else {
                    Some(min)
                };
                self.expect("}")?;
                if max.is_some_and(|max| max < min) {
                    return Err(self.error("the maximum is below the minimum"));
                }
                (min, max)
            }
        })
    }

    fn number(&mut self) -> Parsed<u32> {
        let digits = self.take_while(|c| c.is_ascii_digit());
        let number = digits.parse().ok();
        number.ok_or_else(|| self.error("a number of repetitions is expected here"))
    }

    /// Whether all rules are defined, and one is the root.
    fn check(&self) -> Parsed<()> {
        if let Some(rule) = self.rules.iter().find(|rule| rule.texts.is_none()) {
            let reason = format!("there is no rule {0}; write {0} ::= …", rule.name);
            return Err(error_at(self.text, rule.at, reason));
        }
        match self.by_name.contains_key("root") {
            true => Ok(()),
            false => Err(self.error("there is no rule root, at which texts begin")),
        }
    }
}

/// `item` so often.
fn repeated(item: Item, (min, max): (u32, Option<u32>)) -> Item {
    let what = match (item.min, item.max) {
        (1, Some(1)) => item.what,
        _ => Element::Group(vec![vec![item]]),
    };
    Item { what, min, max }
}

/// The characters of these numbers; there are none between U+D800 and U+DFFF.
fn characters(first: u32, last: u32) -> impl Iterator<Item = (char, char)> {
    const LOW: u32 = 0xD7FF;
    const HIGH: u32 = 0xE000;
    let parts = [
        (first, last.min(LOW)),
        (first.max(HIGH), last.min(char::MAX.into())),
    ];
    parts.into_iter().filter_map(|(first, last)| {
        let range = (char::from_u32(first)?, char::from_u32(last)?);
        (first <= last).then_some(range)
    })
}
