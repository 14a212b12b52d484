//! A recogniser that tries everything.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};

use super::form::{Form, Item, Rules};

/// Knowledge of a text.
pub(super) struct Recogniser<'a> {
    text: &'a [u8],
    /// For each rule and place in the text what was read there so far.
    known: Vec<Vec<Read>>,
    /// Results for forms, by their addresses, as far as rules are known.
    forms: RefCell<HashMap<(*const Form, usize), Read>>,
}

/// Possible readings from a place on.
#[derive(Clone, Default, PartialEq)]
struct Read {
    /// Possible ends.
    ends: BTreeSet<usize>,
    /// Whether it may go on behind the text.
    goes_on: bool,
}

impl Read {
    fn extend(&mut self, other: Self) {
        self.ends.extend(other.ends);
        self.goes_on |= other.goes_on;
    }
}

impl<'a> Recogniser<'a> {
    pub(super) fn new(rules: &'a Rules, text: &'a [u8]) -> Self {
        let known = vec![vec![Read::default(); text.len() + 1]; rules.len()];
        let forms = RefCell::default();
        let mut new = Self { text, known, forms };
        loop {
            let mut changed = false;
            new.forms.borrow_mut().clear();
            for (rule, texts) in rules.iter().enumerate() {
                for at in 0..=text.len() {
                    let read = new.texts(texts, at);
                    changed |= new.known[rule][at] != read;
                    new.known[rule][at] = read;
                }
            }
            if !changed {
                return new;
            }
        }
    }

    /// Returns whether this is a text of the grammar.
    pub(super) fn matches(&self) -> bool {
        self.known[0][0].ends.contains(&self.text.len())
    }

    /// Does one begin with it?
    pub(super) fn may_go_on(&self) -> bool {
        self.matches() || self.known[0][0].goes_on
    }

    fn texts(&self, texts: &[Vec<Item>], at: usize) -> Read {
        let mut read = Read::default();
        texts
            .iter()
            .for_each(|items| read.extend(self.items(items, at)));
        read
    }

    fn items(&self, items: &[Item], at: usize) -> Read {
        let mut read = Read {
            ends: BTreeSet::from([at]),
            goes_on: false,
        };
        for item in items {
            let starts = std::mem::take(&mut read.ends);
            for start in starts {
                read.extend(self.item(item, start));
            }
        }
        read
    }

    fn item(&self, item: &Item, at: usize) -> Read {
        let mut read = Read::default();
        let mut starts = BTreeSet::from([at]);
        // Each but those that have to come takes something, or changes nothing.
        let most = item.max.unwrap_or(item.min + self.text.len() + 1);
        for times in 0..=most {
            if times >= item.min {
                read.ends.extend(&starts);
            }
            if times == most {
                break;
            }
            let mut next = Read::default();
            starts
                .iter()
                .for_each(|&start| next.extend(self.form(&item.form, start)));
            read.goes_on |= next.goes_on;
            starts = next.ends;
        }
        read
    }

    fn form(&self, form: &Form, at: usize) -> Read {
        let key = (std::ptr::from_ref(form), at);
        if let Some(read) = self.forms.borrow().get(&key) {
            return read.clone();
        }
        let rest = &self.text[at..];
        let mut read = match form {
            Form::Rule(rule) => self.known[*rule][at].clone(),
            Form::Group(texts) => self.texts(texts, at),
            Form::Text(text) => one(at, rest, &[text.as_bytes().to_vec()]),
            Form::Class { negated, chars } => match negated {
                false => one(
                    at,
                    rest,
                    &chars.iter().map(|&c| encoded(c)).collect::<Vec<_>>(),
                ),
                true => others(at, rest, chars),
            },
        };
        read.goes_on |= rest.is_empty();
        self.forms.borrow_mut().insert(key, read.clone());
        read
    }
}

fn encoded(c: char) -> Vec<u8> {
    c.to_string().into_bytes()
}

/// One of these texts.
fn one(at: usize, rest: &[u8], texts: &[Vec<u8>]) -> Read {
    let mut read = Read::default();
    for text in texts {
        if rest.starts_with(text) {
            read.ends.insert(at + text.len());
        }
        read.goes_on |= text.len() > rest.len() && text.starts_with(rest);
    }
    read
}

/// A character that is none of these.
fn others(at: usize, rest: &[u8], chars: &[char]) -> Read {
    let mut read = Read::default();
    match rest.utf8_chunks().next() {
        Some(chunk) if !chunk.valid().is_empty() => {
            let c = chunk.valid().chars().next().unwrap();
            if !chars.contains(&c) {
                read.ends.insert(at + c.len_utf8());
            }
        }
        // Part of a character, of which there are always others.
        _ => {
            let error = std::str::from_utf8(rest).err();
            read.goes_on = error.is_some_and(|error| error.error_len().is_none());
        }
    }
    read
}
