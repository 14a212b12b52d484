//! The syntaxes of model families for reasoning and tool calls.

mod list;

use list::GENERIC;
pub(crate) use list::SYNTAXES;

/// The syntax of one family.
#[derive(Debug, PartialEq)]
pub struct AnswerSyntax {
    /// Its name.
    pub name: &'static str,
    /// Texts of its templates: those of one group are enough, all of them.
    pub(crate) signs: &'static [&'static [&'static str]],
    /// Tool calls within reasoning are part of it. In other families models forget to end it.
    pub(crate) quotes_calls: bool,
    /// The marks around reasoning.
    pub(crate) thinks: &'static [(&'static str, &'static str)],
    /// The mark that begins a tool call, and the form of the call.
    pub(crate) calls: &'static [Call],
    /// Marks before and behind a group of tool calls.
    pub(crate) wraps: &'static [(&'static str, &'static str)],
    /// Marks before the text of a message.
    pub(crate) opens: &'static [&'static str],
    /// Marks behind the text of a message.
    pub(crate) closes: &'static [&'static str],
    /// Mark that begins another message of the same answer; nothing if answers are one message.
    pub(crate) next: &'static str,
}

/// A way to write a tool call. White space may be between its parts.
#[derive(Debug, PartialEq)]
pub(crate) struct Call {
    /// Its first mark; nothing for JSON that an answer begins with.
    pub(crate) open: &'static str,
    pub(crate) shape: Shape,
    /// Its last mark, which models may forget.
    pub(crate) close: &'static str,
}

#[derive(Debug, PartialEq)]
pub(crate) enum Shape {
    /// Objects with the name and the arguments, an array of them, or a list of Python's calls.
    Json,
    /// The name, this text, and the arguments as JSON; or as [`Shape::Json`] if it begins with a bracket.
    Named(&'static str),
    /// The name, and arguments in tags.
    Tagged(&'static Tags),
    /// This text, the name, and the arguments as an object without quotes around its keys.
    Braced(&'static str),
    /// A list of Python's calls, with named arguments.
    Python,
    /// Python's calls, on their own lines.
    Lines,
    /// On its own line the name, and the arguments as JSON; or this word, and no call. Answers may
    /// begin so.
    Recipient(&'static str),
}

/// The tags around arguments.
#[derive(Debug, PartialEq)]
pub(crate) struct Tags {
    /// Mark before the name, where a message begins; text in between is skipped.
    pub(crate) name: &'static str,
    /// Behind the name; nothing if it ends where a key begins, or the call ends.
    pub(crate) name_end: &'static str,
    pub(crate) key: &'static str,
    pub(crate) key_end: &'static str,
    /// Mark before the value; text in between is skipped.
    pub(crate) value: &'static str,
    pub(crate) value_end: &'static str,
    /// The marks around values that contain such tags.
    pub(crate) quote: (&'static str, &'static str),
    /// Do the key and the text behind it come after `value_end`, too?
    pub(crate) nests: bool,
}

impl Tags {
    /// The syntax of a family without special features.
    const PLAIN: Self = Self {
        name: "",
        name_end: "",
        key: "",
        key_end: "",
        value: "",
        value_end: "",
        quote: ("", ""),
        nests: false,
    };
}

impl AnswerSyntax {
    /// The families' names.
    pub fn names() -> impl Iterator<Item = &'static str> {
        SYNTAXES.iter().map(|it| it.name)
    }

    /// The syntax of a name.
    pub fn named(name: &str) -> Option<&'static Self> {
        SYNTAXES.iter().find(|it| it.name == name)
    }

    /// The syntax that a template asks for, detected from its text.
    pub fn detect(template: &str) -> &'static Self {
        let has_all = |signs: &&[&str]| signs.iter().all(|sign| template.contains(sign));
        let fits = |it: &&AnswerSyntax| it.signs.iter().any(has_all);
        SYNTAXES.iter().find(fits).unwrap_or(&GENERIC)
    }

    /// The marks around a list of calls as JSON, if answers have such lists.
    pub(crate) fn call_marks(&self) -> Option<(&'static str, &'static str)> {
        let call = self.calls.first()?;
        let lists = call.shape == Shape::Json && !call.close.is_empty();
        lists.then_some((call.open, call.close))
    }

    /// The marks around a call as a JSON object with `name` and `arguments`, if answers have such calls. Marks may be
    /// empty.
    pub fn json_call(&self) -> Option<(&'static str, &'static str)> {
        let call = self.calls.iter().find(|call| call.shape == Shape::Json)?;
        Some((call.open, call.close))
    }

    /// The mark that begins reasoning, if answers have any.
    pub fn begins_thinking(&self) -> Option<&'static str> {
        self.thinks.first().map(|(open, _)| *open)
    }

    /// The end of a prompt that began reasoning, which the answer continues.
    pub fn thinking_begun<'p>(&self, prompt: &'p str) -> Option<&'p str> {
        self.thinks.iter().find_map(|(open, close)| {
            let tail = &prompt[prompt.rfind(open)?..];
            (!tail.contains(close) && tail[open.len()..].trim().is_empty()).then_some(tail)
        })
    }
}
