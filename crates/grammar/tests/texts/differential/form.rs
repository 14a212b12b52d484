//! Grammars at random, and how they are written.

use std::fmt::Write;

use super::Random;

pub(super) const CHARACTERS: [char; 8] = ['a', 'b', 'c', '1', '-', ' ', 'é', '中'];

/// The texts of each rule. The first is the whole.
pub(super) type Rules = Vec<Vec<Vec<Item>>>;

pub(super) struct Item {
    pub(super) form: Form,
    pub(super) min: usize,
    pub(super) max: Option<usize>,
}

pub(super) enum Form {
    Text(String),
    Class { negated: bool, chars: Vec<char> },
    Rule(usize),
    Group(Vec<Vec<Item>>),
}

pub(super) struct Grammars {
    random: Random,
    rules: usize,
}

impl Grammars {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            random: Random(seed << 32),
            rules: 0,
        }
    }

    /// Rules that use each other.
    pub(super) fn rules(&mut self) -> Rules {
        self.rules = 1 + self.random.below(4);
        (0..self.rules).map(|_| self.texts(2)).collect()
    }

    /// One rule that uses none.
    pub(super) fn regular(&mut self) -> Rules {
        vec![self.texts(3)]
    }

    fn texts(&mut self, depth: usize) -> Vec<Vec<Item>> {
        let count = 1 + self.random.below(3);
        (0..count)
            .map(|_| {
                let items = self.random.below(4);
                (0..items).map(|_| self.item(depth)).collect()
            })
            .collect()
    }

    fn item(&mut self, depth: usize) -> Item {
        let once = (1, Some(1));
        let times = [
            once,
            once,
            once,
            once,
            (0, Some(1)),
            (0, None),
            (1, None),
            (2, None),
            (2, Some(4)),
            (0, Some(9)),
            (1, Some(12)),
            (7, Some(12)),
        ];
        let (min, max) = *self.random.of(&times);
        let form = self.form(depth);
        Item { form, min, max }
    }

    fn form(&mut self, depth: usize) -> Form {
        match self.random.below(10) {
            0..3 => {
                let len = 1 + self.random.below(3);
                Form::Text((0..len).map(|_| *self.random.of(&CHARACTERS)).collect())
            }
            3 | 4 if self.rules > 0 => Form::Rule(self.random.below(self.rules)),
            5 | 6 if depth > 0 => Form::Group(self.texts(depth - 1)),
            _ => {
                let negated = self.random.below(5) == 0;
                let chars = CHARACTERS.iter().copied();
                let mut chars: Vec<char> = chars.filter(|_| self.random.below(2) == 0).collect();
                if chars.is_empty() {
                    chars.push('a');
                }
                Form::Class { negated, chars }
            }
        }
    }
}

/// How it is written how often something comes.
fn times(item: &Item) -> String {
    match (item.min, item.max) {
        (1, Some(1)) => String::new(),
        (0, Some(1)) => "?".to_owned(),
        (0, None) => "*".to_owned(),
        (1, None) => "+".to_owned(),
        (min, None) => format!("{{{min},}}"),
        (min, Some(max)) => format!("{{{min},{max}}}"),
    }
}

fn class(negated: bool, chars: &[char]) -> String {
    let chars: String = chars
        .iter()
        .map(|c| c.to_string().replace('-', "\\-"))
        .collect();
    format!("[{}{chars}]", if negated { "^" } else { "" })
}

/// Alternatives of items one after the other.
fn join(texts: &[Vec<Item>], item: &mut dyn FnMut(&Item) -> String, space: &str) -> String {
    let texts = texts.iter().map(|items| {
        let items: Vec<String> = items.iter().map(&mut *item).collect();
        items.join(space)
    });
    texts.collect::<Vec<_>>().join("|")
}

fn gbnf_item(item: &Item) -> String {
    let form = match &item.form {
        Form::Text(text) => format!("\"{text}\""),
        Form::Class { negated, chars } => class(*negated, chars),
        Form::Rule(0) => "root".to_owned(),
        Form::Rule(rule) => format!("r{rule}"),
        Form::Group(texts) => format!("({})", join(texts, &mut gbnf_item, " ")),
    };
    // In quotes, signs of repetition apply to the last character alone.
    let form = match &item.form {
        Form::Text(_) => format!("({form})"),
        _ => form,
    };
    form + &times(item)
}

pub(super) fn gbnf(rules: &Rules) -> String {
    let mut gbnf = String::new();
    for (rule, texts) in rules.iter().enumerate() {
        let name = if rule == 0 {
            "root".to_owned()
        } else {
            format!("r{rule}")
        };
        writeln!(gbnf, "{name} ::= {}", join(texts, &mut gbnf_item, " ")).unwrap();
    }
    gbnf
}

fn regex_item(item: &Item) -> String {
    let form = match &item.form {
        Form::Text(text) => format!("(?:{})", text.replace('-', "\\-")),
        Form::Class { negated, chars } => class(*negated, chars),
        Form::Group(texts) => format!("(?:{})", join(texts, &mut regex_item, "")),
        Form::Rule(_) => unreachable!("a regular expression has no rules"),
    };
    form + &times(item)
}

pub(super) fn regex(rules: &Rules) -> String {
    format!("(?:{})", join(&rules[0], &mut regex_item, ""))
}

/// Lark with a lexeme for each character.
pub(super) fn lark(rules: &Rules) -> String {
    let mut lark = String::new();
    let mut groups = Vec::new();
    for (rule, texts) in rules.iter().enumerate() {
        let name = if rule == 0 {
            "start".to_owned()
        } else {
            format!("r{rule}")
        };
        lark_rule(&name, texts, &mut lark, &mut groups);
    }
    let mut at = 0;
    while let Some(texts) = groups.get(at).copied() {
        lark_rule(&format!("g{at}"), texts, &mut lark, &mut groups);
        at += 1;
    }
    lark
}

fn lark_rule<'a>(
    name: &str,
    texts: &'a [Vec<Item>],
    lark: &mut String,
    groups: &mut Vec<&'a [Vec<Item>]>,
) {
    let texts: Vec<String> = texts
        .iter()
        .map(|items| {
            let items: Vec<String> = items.iter().map(|item| lark_item(item, groups)).collect();
            if items.is_empty() {
                "\"\"".to_owned()
            } else {
                items.join(" ")
            }
        })
        .collect();
    writeln!(lark, "{name}: {}", texts.join(" | ")).unwrap();
}

fn lark_item<'a>(item: &'a Item, groups: &mut Vec<&'a [Vec<Item>]>) -> String {
    let form = match &item.form {
        Form::Text(text) => {
            let chars: Vec<String> = text
                .chars()
                .map(|c| format!("/{}/", class(false, &[c])))
                .collect();
            format!("({})", chars.join(" "))
        }
        Form::Class { negated, chars } => format!("/{}/", class(*negated, chars)),
        Form::Rule(0) => "start".to_owned(),
        Form::Rule(rule) => format!("r{rule}"),
        Form::Group(texts) => {
            groups.push(texts);
            format!("g{}", groups.len() - 1)
        }
    };
    form + &times(item)
}
