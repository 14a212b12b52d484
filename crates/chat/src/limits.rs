//! The places in templates at which values are limited.
//!
//! The engine counts a template's steps, and the bytes of the strings and lists that they make. Two things it
//! does not count. A sum of lists refers to its operands. If such sums are nested deeply enough, they are built
//! at once, whatever their length. Nested values are references. They may have any size or depth when they
//! become a string. So values pass through filters that check them: the operands of sums, written lists
//! and maps, and values of variables.
//!
//! ```text
//! a + b.c              (a)|summand + (b.c)|summand
//! [a, b], {'a': b}     (([a, b])|nested), (({'a': b})|nested)
//! set n.a = b          set n.a = ((b)|nested)
//! set a = b            set a = (b)|kept
//! ```

use std::cmp::Reverse;

/// A filter that holds values to a limit. The first of several for one value is the innermost.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Limit {
    /// The limit of a value that becomes a part of another.
    Nested,
    /// The limit of operands of sums.
    Summand,
    /// The limit of values assigned to a variable.
    Kept,
}

impl Limit {
    /// The filter's name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Nested => "nested",
            Self::Summand => "summand",
            Self::Kept => "kept",
        }
    }

    /// Brackets that open where the value begins. Text after a nested value may belong to it, as in `[1,
    /// 2][0]`. So the filter is within brackets, too.
    fn opening(self) -> &'static str {
        match self {
            Self::Nested => "((",
            Self::Summand | Self::Kept => "(",
        }
    }

    /// The text inserted after the value.
    fn closing(self) -> String {
        let close = match self {
            Self::Nested => ")",
            Self::Summand | Self::Kept => "",
        };
        format!(")|{}{close}", self.name())
    }
}

/// The places of inserted text: a byte of the template; whether the value ends there; where it begins, since of
/// values that end together the last is the innermost; and its limit.
type Place = (usize, bool, Reverse<usize>, Limit);

/// Marks `start..end` as a value that gets a limit.
fn mark(places: &mut Vec<Place>, limit: Limit, start: usize, end: usize) {
    places.push((start, false, Reverse(start), limit));
    places.push((end, true, Reverse(start), limit));
}

/// The template with its values given to filters. Its lines stay where they are.
pub(crate) fn with_limits(source: &str) -> String {
    let mut places = Vec::new();
    let mut at = 0;
    let after = |from: usize, text: &str| {
        let found = source[from..].find(text);
        found.map_or(source.len(), |it| from + it + text.len())
    };
    while let Some(start) = source[at..].find('{').map(|it| at + it) {
        at = match source.as_bytes().get(start + 1) {
            Some(b'#') => after(start + 2, "#}"),
            Some(b'{') => tag(source, start + 2, "}}", &mut places),
            Some(b'%') if begins_raw(&source[start + 2..]) => after(start, "endraw"),
            Some(b'%') => tag(source, start + 2, "%}", &mut places),
            _ => start + 1,
        };
    }
    // Places of inner brackets were found first, so they are not in order.
    places.sort_unstable();
    let mut out = String::with_capacity(source.len());
    let mut from = 0;
    for (at, ends, _, limit) in places {
        out += &source[from..at];
        match ends {
            true => out += &limit.closing(),
            false => out += limit.opening(),
        }
        from = at;
    }
    out + &source[from..]
}

/// Returns whether this is the inside of `{% raw %}`.
fn begins_raw(text: &str) -> bool {
    let inner = text.split("%}").next().unwrap_or_default();
    inner.trim_matches(|c: char| matches!(c, '-' | '+') || c.is_whitespace()) == "raw"
}

/// Reads the tag whose inside begins at `at`, and returns its end.
fn tag(source: &str, at: usize, close: &str, places: &mut Vec<Place>) -> usize {
    let sign = usize::from(source[at..].starts_with(['-', '+']));
    let begin = at + sign;
    let mut at = begin;
    let mut levels = vec![Level {
        names_statement: close == "%}",
        ..Level::default()
    }];
    // The place at which the value of a `set` begins. Brackets before it are not values.
    let sets = close == "%}" && is_set(&source[begin..]);
    let mut value = None;
    while let Some(first) = source[at..].chars().next() {
        let rest = &source[at..];
        let signed = rest.strip_prefix(['-', '+']);
        let closes = |text: &str| levels.len() == 1 && text.starts_with(close);
        if closes(rest) || signed.is_some_and(closes) {
            break;
        }
        let length = match first {
            '"' | '\'' => string_length(rest, first),
            c if is_word(c) => word_length(rest),
            c => c.len_utf8(),
        };
        let end = at + length;
        let is_target = sets && value.is_none();
        match first {
            '=' if is_target && levels.len() == 1 => {
                value = Some(end);
                levels = vec![Level::default()];
            }
            '(' | '[' | '{' => {
                let mut inner = Level::default();
                if let Some(level) = levels.last_mut() {
                    let is_literal = first != '(' && !level.is_complete && !is_target;
                    inner.literal = is_literal.then_some(at);
                    level.part(at, end, false);
                }
                levels.push(inner);
            }
            ')' | ']' | '}' if levels.len() > 1 => {
                if let Some(mut inner) = levels.pop() {
                    inner.finish(places);
                    let literal = inner.literal.into_iter();
                    literal.for_each(|start| mark(places, Limit::Nested, start, end));
                }
                if let Some(level) = levels.last_mut() {
                    level.part(at, end, true);
                }
            }
            _ => {
                if let Some(level) = levels.last_mut() {
                    level.token(&source[at..end], at, places);
                }
            }
        }
        at = end;
    }
    for mut level in levels {
        level.finish(places);
    }
    if let Some(start) = value {
        let is_part = source[begin..start].contains('.');
        let limit = if is_part { Limit::Nested } else { Limit::Kept };
        let end = start + source[start..at].trim_end().len();
        mark(places, limit, start, end);
    }
    source.len().min(at + 2)
}

/// Does the inside of a tag begin with the statement `set`?
fn is_set(inside: &str) -> bool {
    let rest = inside.trim_start().strip_prefix("set");
    rest.is_some_and(|rest| !rest.starts_with(is_word))
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The bytes of the name or number that a text begins with.
fn word_length(text: &str) -> usize {
    let number = text.starts_with(|c: char| c.is_ascii_digit());
    let mut before = ' ';
    let end = text.find(|c: char| {
        let exponent = matches!(before, 'e' | 'E') && matches!(c, '+' | '-');
        let goes_on = is_word(c) || (number && (c == '.' || exponent));
        before = c;
        !goes_on
    });
    end.unwrap_or(text.len())
}

/// The bytes of the string that a text begins with.
fn string_length(text: &str, quote: char) -> usize {
    let mut escaped = false;
    let end = text[1..].find(|c: char| {
        let ends = c == quote && !escaped;
        escaped = c == '\\' && !escaped;
        ends
    });
    end.map_or(text.len(), |it| it + 2)
}

/// The contents so far of a tag, or of brackets in it.
#[derive(Default)]
struct Level {
    /// The start of the brackets, if they are a list or map literal.
    literal: Option<usize>,
    /// Operands of the sum that is being read; there may be one alone.
    operands: Vec<(usize, usize)>,
    /// The operand that is being read.
    operand: Option<(usize, usize)>,
    /// The operand could end here.
    is_complete: bool,
    is_sum: bool,
    /// The next word is the statement's name.
    names_statement: bool,
    /// The next word is a name, behind a point or a bar, or in a test.
    names: bool,
    /// The last word was `not`, before `in` or the name of a test.
    negates: bool,
}

impl Level {
    fn token(&mut self, text: &str, at: usize, places: &mut Vec<Place>) {
        let end = at + text.len();
        let begins = self.operand.is_none();
        match text {
            "+" | "-" if !begins => {
                self.end_operand();
                self.is_sum |= text == "+";
            }
            "*" if begins => {}
            "," | ":" | "=" | "<" | ">" | "!" => self.finish(places),
            "." | "|" => {
                self.part(at, end, false);
                self.names = true;
            }
            space if space.trim().is_empty() => {}
            word if word.starts_with(is_word) => self.word(word, at, places),
            text => self.part(at, end, text.starts_with(['"', '\''])),
        }
    }

    fn word(&mut self, word: &str, at: usize, places: &mut Vec<Place>) {
        let end = at + word.len();
        if std::mem::take(&mut self.names_statement) {
            return;
        }
        let first = self.operand.is_none() && self.operands.is_empty();
        let negated = std::mem::take(&mut self.negates);
        match word {
            "not" if self.names => self.part(at, end, false),
            _ if self.names => {
                self.part(at, end, true);
                self.names = false;
            }
            "is" if self.is_complete => {
                self.part(at, end, false);
                self.names = true;
            }
            "and" | "or" | "in" | "if" | "else" | "recursive" if self.is_complete => {
                self.finish(places);
            }
            "not" if self.is_complete || first => {
                self.finish(places);
                self.negates = true;
            }
            "in" if negated => {}
            _ => self.part(at, end, true),
        }
    }

    /// Adds something to the operand.
    fn part(&mut self, start: usize, end: usize, is_complete: bool) {
        let (start, _) = self.operand.unwrap_or((start, end));
        self.operand = Some((start, end));
        self.is_complete = is_complete;
    }

    fn end_operand(&mut self) {
        self.operands.extend(self.operand.take());
        self.is_complete = false;
    }

    /// Ends the sum, if it is one.
    fn finish(&mut self, places: &mut Vec<Place>) {
        self.end_operand();
        let operands = std::mem::take(&mut self.operands);
        if std::mem::take(&mut self.is_sum) {
            for (start, end) in operands {
                mark(places, Limit::Summand, start, end);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::with_limits;

    /// With the names of the filters as their first letters.
    fn limited(source: &str) -> String {
        let filters = [("|summand", "|S"), ("|nested", "|N"), ("|kept", "|K")];
        let short = |text: String, (name, letter): (&str, &str)| text.replace(name, letter);
        filters.into_iter().fold(with_limits(source), short)
    }

    #[test]
    fn values_get_limits_and_nothing_else_changes() {
        for (source, expected) in [
            ("{{ a + b.c }}", "{{ (a)|S + (b.c)|S }}"),
            ("{{- a+b -}}", "{{- (a)|S+(b)|S -}}"),
            (
                "{{ a - -b + c[d + 1:] }}",
                "{{ (a)|S - (-b)|S + (c[(d)|S + (1)|S:])|S }}",
            ),
            (
                "{% set x = x*2 + y|f(1) %}",
                "{% set x =( (x*2)|S + (y|f(1))|S)|K %}",
            ),
            (
                "{% set if = if + if %}",
                "{% set if =( (if)|S + (if)|S)|K %}",
            ),
            (
                "{%- set recursive=recursive + recursive -%}",
                "{%- set recursive=((recursive)|S + (recursive)|S)|K -%}",
            ),
            (
                "{% for a in b + c recursive %}",
                "{% for a in (b)|S + (c)|S recursive %}",
            ),
            (
                "{% if not a + b not in c and d is not none %}",
                "{% if not (a)|S + (b)|S not in c and d is not none %}",
            ),
            (
                "{{ a + b is not defined }}",
                "{{ (a)|S + (b is not defined)|S }}",
            ),
            (
                "{{ 'x' + (a if b + c else d) ~ e }}",
                "{{ ('x')|S + ((a if (b)|S + (c)|S else d) ~ e)|S }}",
            ),
            (
                "{{ f(*a + b, k=c + d) }}",
                "{{ f(*(a)|S + (b)|S, k=(c)|S + (d)|S) }}",
            ),
            (
                "{{ {'a': b + c}['}}'] + \"\\\"}}\" }}",
                "{{ ((({'a': (b)|S + (c)|S})|N)['}}'])|S + (\"\\\"}}\")|S }}",
            ),
            (
                "{{ 1.5e+3 + a.in + b }}",
                "{{ (1.5e+3)|S + (a.in)|S + (b)|S }}",
            ),
            ("{{ a == b + c != d }}", "{{ a == (b)|S + (c)|S != d }}"),
            ("{{ a\n+\nb }}", "{{ (a)|S\n+\n(b)|S }}"),
            (
                "{% for a in [1, {'b': [2]}] if a not in [3] %}",
                "{% for a in (([1, (({'b': (([2])|N)})|N)])|N) if a not in (([3])|N) %}",
            ),
            (
                "{% set a.b = a['b'][0] + [c] %}",
                "{% set a.b =(( (a['b'][0])|S + ((([c])|N))|S)|N) %}",
            ),
            (
                "{% set a, b = b == a, [] %}",
                "{% set a, b =( b == a, (([])|N))|K %}",
            ),
            ("{% macro f(a, b=[]) %}", "{% macro f(a, b=(([])|N)) %}"),
            ("{% set x = 'a'[0]", "{% set x =( 'a'[0])|K"),
        ] {
            assert_eq!(limited(source), expected);
        }
        for same in [
            "a + b {# {{ a + b }} #} { + } {{ a - b }}{{ a.b * c }}",
            "{% raw %}{{ a + b }}{% endraw %}",
            "{%- raw -%}{{ a + b }}{%- endraw -%} {{ 'a + b' }}",
            "{{ unclosed - ",
            "{{ a }} + {% if b %} + {% endif %}+%}",
            "{% set x %}a + [b]{% endset %}{{ f(a)[0][1]['b'] }}",
        ] {
            assert_eq!(limited(same), same);
        }
    }
}
