//! Sums in templates, whose operands get a limit.
//!
//! The engine counts a template's steps, and the bytes of the strings and lists that they make. A sum of lists is not
//! counted: it refers to its operands, and when such sums are within each other often enough, is made all at
//! once, whatever its length. A template that doubles a list a few dozen times would take all memory. So the operands
//! of every sum go through a filter, which looks at their lengths: `a + b.c` becomes `(a)|F + (b.c)|F`.

/// Where text is put in: a byte of the template, and whether it opens a bracket there, or closes it.
type Place = (usize, bool);

/// The template with the operands of sums given to `filter`. Its lines stay where they are.
pub(crate) fn with_limits(source: &str, filter: &str) -> String {
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
    // Those of inner brackets are found first.
    places.sort_unstable();
    let mut out = String::with_capacity(source.len());
    let mut from = 0;
    for (at, opens) in places {
        out += &source[from..at];
        out += if opens { "(" } else { ")|" };
        out += if opens { "" } else { filter };
        from = at;
    }
    out + &source[from..]
}

/// Is this the inside of `{% raw %}`?
fn begins_raw(text: &str) -> bool {
    let inner = text.split("%}").next().unwrap_or_default();
    inner.trim_matches(|c: char| matches!(c, '-' | '+') || c.is_whitespace()) == "raw"
}

/// Reads the tag whose inside begins at `at`, and returns its end.
fn tag(source: &str, at: usize, close: &str, places: &mut Vec<Place>) -> usize {
    let sign = usize::from(source[at..].starts_with(['-', '+']));
    let mut at = at + sign;
    let mut levels = vec![Level {
        names_statement: close == "%}",
        ..Level::default()
    }];
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
        match first {
            '(' | '[' | '{' => {
                if let Some(level) = levels.last_mut() {
                    level.part(at, end, false);
                }
                levels.push(Level::default());
            }
            ')' | ']' | '}' if levels.len() > 1 => {
                let inner = levels.pop();
                inner.into_iter().for_each(|mut it| it.finish(places));
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
    source.len().min(at + 2)
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

/// What a tag, or brackets in it, contains so far.
#[derive(Default)]
struct Level {
    /// Operands of the sum that is being read, of which there may be one alone.
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
                places.extend([(start, true), (end, false)]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::with_limits;

    #[test]
    fn operands_of_sums_get_limits_and_nothing_else_changes() {
        for (source, expected) in [
            ("{{ a + b.c }}", "{{ (a)|F + (b.c)|F }}"),
            ("{{- a+b -}}", "{{- (a)|F+(b)|F -}}"),
            (
                "{{ a - -b + c[d + 1:] }}",
                "{{ (a)|F - (-b)|F + (c[(d)|F + (1)|F:])|F }}",
            ),
            (
                "{% set x = x*2 + y|f(1) %}",
                "{% set x = (x*2)|F + (y|f(1))|F %}",
            ),
            ("{% set if = if + if %}", "{% set if = (if)|F + (if)|F %}"),
            (
                "{% set recursive = recursive + recursive %}",
                "{% set recursive = (recursive)|F + (recursive)|F %}",
            ),
            (
                "{% for a in b + c recursive %}",
                "{% for a in (b)|F + (c)|F recursive %}",
            ),
            (
                "{% if not a + b not in c and d is not none %}",
                "{% if not (a)|F + (b)|F not in c and d is not none %}",
            ),
            (
                "{{ a + b is not defined }}",
                "{{ (a)|F + (b is not defined)|F }}",
            ),
            (
                "{{ 'x' + (a if b + c else d) ~ e }}",
                "{{ ('x')|F + ((a if (b)|F + (c)|F else d) ~ e)|F }}",
            ),
            (
                "{{ f(*a + b, k=c + d) }}",
                "{{ f(*(a)|F + (b)|F, k=(c)|F + (d)|F) }}",
            ),
            (
                "{{ {'a': b + c}['}}'] + \"\\\"}}\" }}",
                "{{ ({'a': (b)|F + (c)|F}['}}'])|F + (\"\\\"}}\")|F }}",
            ),
            (
                "{{ 1.5e+3 + a.in + b }}",
                "{{ (1.5e+3)|F + (a.in)|F + (b)|F }}",
            ),
            ("{{ a == b + c != d }}", "{{ a == (b)|F + (c)|F != d }}"),
            ("{{ a\n+\nb }}", "{{ (a)|F\n+\n(b)|F }}"),
        ] {
            assert_eq!(with_limits(source, "F"), expected);
        }
        for same in [
            "a + b {# {{ a + b }} #} { + } {{ a - b }}{{ a.b * c }}",
            "{% raw %}{{ a + b }}{% endraw %}",
            "{%- raw -%}{{ a + b }}{%- endraw -%} {{ 'a + b' }}",
            "{{ unclosed - ",
            "{{ a }} + {% if b %} + {% endif %}+%}",
        ] {
            assert_eq!(with_limits(same, "F"), same);
        }
    }
}
