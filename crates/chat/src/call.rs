//! Tool calls in a model's text, complete or not.

mod tools;

use serde_json::Value;

use crate::literal::{self, Stop};
use crate::scan::{self, Extent};
use crate::syntax::{Call, Shape, Tags};

pub(crate) use tools::Tools;

/// A part of a tool call's text. It begins where the part before it ends, and ends at the byte `end`.
#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) end: usize,
    pub(crate) what: What,
}

/// The kind of a part.
#[derive(Debug)]
pub(crate) enum What {
    /// A mark without content.
    Mark,
    /// A call begins.
    Call { name: String, id: Option<String> },
    /// Its identifier, after the arguments.
    Id(String),
    /// Arguments in their final form.
    Raw,
    /// Arguments in another form.
    Arguments(String),
}

/// State of a call's text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Status {
    /// The call continues.
    Open,
    /// The call is complete.
    Done,
    /// From the end of the last part on it is not a call.
    Wrong,
}

impl Status {
    /// The place of the reader.
    fn of(stop: Stop) -> Self {
        match stop {
            Stop::Open => Status::Open,
            Stop::Wrong => Status::Wrong,
        }
    }
}

/// Place of a call's text in an answer.
#[derive(Clone, Copy)]
pub(crate) struct Context {
    /// Text was said before it in the same message.
    pub(crate) said: bool,
    /// Is the text at its end?
    pub(crate) last: bool,
}

/// May a call without a mark begin so?
pub(crate) fn may_begin(call: &Call, text: &str, tools: &Tools) -> bool {
    match call.shape {
        Shape::Recipient(said) => is_addressed(text, said, tools),
        _ => text.starts_with(['{', '[']),
    }
}

/// Is the first line the name of a tool, or `said`, as far as it has come?
fn is_addressed(text: &str, said: &str, tools: &Tools) -> bool {
    let mut names = [said].into_iter().chain(tools.names());
    match text.trim_start().split_once('\n') {
        Some((line, _)) => names.any(|name| name == line.trim()),
        None => names.any(|name| name.starts_with(text.trim())),
    }
}

/// The parts of the call that `text` begins with, `call.open` included.
pub(crate) fn parts(
    call: &Call,
    text: &str,
    tools: &Tools,
    Context { said, last }: Context,
) -> (Vec<Item>, Status) {
    let mut reader = Reader {
        text,
        tools,
        said,
        last,
        close: call.close,
        bare: call.open.is_empty(),
        items: Vec::new(),
    };
    let status = match call.shape {
        Shape::Json => reader.json(call.open.len()),
        Shape::Named(separator) => reader.named(call.open.len(), separator),
        Shape::Tagged(tags) => reader.tagged(call.open.len(), tags),
        Shape::Braced(before) => reader
            .braced(call.open.len(), before)
            .unwrap_or_else(Status::of),
        Shape::Recipient(said) => reader.recipient(call.open.len(), said),
        Shape::Lines => reader.lines(call.open.len()).unwrap_or_else(Status::of),
        Shape::Python => reader.python(call.open.len()).unwrap_or_else(Status::of),
    };
    if last && status == Status::Open {
        reader.cut_off(&call.shape);
    }
    (reader.items, status)
}

struct Reader<'t> {
    text: &'t str,
    tools: &'t Tools,
    said: bool,
    last: bool,
    close: &'static str,
    /// Without anything that says so, an object is a call only if it names a tool.
    bare: bool,
    items: Vec<Item>,
}

const NAMES: &[&str] = &["name", "tool_name", "function"];
const ARGUMENTS: &[&str] = &["arguments", "parameters", "args"];
const IDS: &[&str] = &["id", "tool_call_id"];

impl Reader<'_> {
    fn push(&mut self, end: usize, what: What) {
        self.items.push(Item { end, what });
    }

    /// Takes the rest of a call that the text ends in: arguments, but where JSON has ended or has its own part.
    fn cut_off(&mut self, shape: &Shape) {
        let end = self.items.last().map(|item| item.end);
        let Some(end) = end.filter(|end| *end < self.text.len()) else {
            return;
        };
        let what = match shape {
            Shape::Tagged(_) | Shape::Braced(_) | Shape::Python | Shape::Lines => {
                What::Arguments(self.text[end..].to_owned())
            }
            Shape::Json | Shape::Named(_) | Shape::Recipient(_) => What::Mark,
        };
        self.push(self.text.len(), what);
    }

    fn json(&mut self, at: usize) -> Status {
        let at = scan::skip_space(self.text, at);
        match self.text.as_bytes().get(at) {
            None => Status::Open,
            Some(b'{') => self.objects(at),
            Some(b'[') => match self.text[at + 1..].trim_start().chars().next() {
                None => Status::Open,
                Some('{' | ']') => self.array(at),
                Some(_) => self.python(at).unwrap_or_else(Status::of),
            },
            Some(_) => Status::Wrong,
        }
    }

    /// Objects, one after the other up to the last mark.
    fn objects(&mut self, at: usize) -> Status {
        let mut here = at;
        loop {
            let end = match self.object(here) {
                Extent::To(end) => end,
                Extent::Open => return Status::Open,
                Extent::Wrong(_) => return Status::Wrong,
            };
            here = scan::skip_space(self.text, end);
            if self.close.is_empty() || !self.text[here..].starts_with('{') {
                return self.closed(end);
            }
        }
    }

    fn array(&mut self, at: usize) -> Status {
        let mut here = scan::skip_space(self.text, at + 1);
        loop {
            match self.text.as_bytes().get(here) {
                None => return Status::Open,
                // An empty list is not a call by itself.
                Some(b']') if !(self.bare && self.items.is_empty()) => {
                    return self.closed(here + 1);
                }
                Some(b'{') => {}
                Some(_) => return Status::Wrong,
            }
            let end = match self.object(here) {
                Extent::To(end) => end,
                Extent::Open => return Status::Open,
                Extent::Wrong(_) => return Status::Wrong,
            };
            let next = scan::skip_space(self.text, end);
            here = match self.text.as_bytes().get(next) {
                Some(b',') => scan::skip_space(self.text, next + 1),
                _ => next,
            };
        }
    }

    /// An object with a call's name and arguments, or with the name as the key of the arguments.
    fn object(&mut self, at: usize) -> Extent {
        let (members, extent) = scan::members(self.text, at);
        let find = |keys: &[&str]| members.iter().find(|it| keys.contains(&it.key.as_str()));
        let read = |member: &scan::Member| match member.extent {
            Extent::To(end) => serde_json::from_str(&self.text[member.start..end]).ok(),
            _ => None,
        };
        let string = |member| match read(member) {
            Some(Value::String(text)) => Some(text),
            _ => None,
        };
        let identifier = |member| match read(member) {
            Some(number @ Value::Number(_)) => Some(number.to_string()),
            _ => string(member),
        };
        let keyed = members
            .first()
            .filter(|it| self.tools.has(&it.key) && !is_known(&it.key));
        let (name, arguments) = match (keyed, find(NAMES).and_then(string)) {
            (Some(member), _) => (member.key.clone(), Some(member)),
            (None, Some(name)) => (name, find(ARGUMENTS)),
            (None, None) => {
                let wanders = members.first().is_some_and(|it| !is_known(&it.key));
                return match extent {
                    Extent::Open if !(self.bare && wanders) => extent,
                    _ => Extent::Wrong(at),
                };
            }
        };
        if self.bare && !self.tools.has(&name) {
            return Extent::Wrong(at);
        }
        let id = find(IDS);
        let Some(arguments) = arguments else {
            let end = match extent {
                Extent::To(end) => Some(end),
                _ => self.last.then_some(self.text.len()),
            };
            if let Some(end) = end {
                let id = id.and_then(identifier);
                self.push(end, What::Call { name, id });
            }
            if let Extent::To(end) = extent {
                self.push(end, What::Arguments("{}".to_owned()));
            }
            return extent;
        };
        let (start, reach) = (arguments.start, arguments.extent);
        let (before, behind) = match id.is_some_and(|it| it.start > start) {
            true => (None, id.and_then(identifier)),
            false => (id.and_then(identifier), None),
        };
        if self.text[start..].starts_with('"') {
            return self.quoted((name, before.or(behind)), start, reach, extent);
        }
        if reach == Extent::Wrong(start) {
            return reach;
        }
        self.push(start, What::Call { name, id: before });
        match reach {
            Extent::To(end) => self.push(end, What::Raw),
            Extent::Open => self.push(self.text.len(), What::Raw),
            Extent::Wrong(at) => self.push(at, What::Raw),
        }
        if let Extent::To(end) = extent {
            self.push(end, behind.map_or(What::Mark, What::Id));
        }
        extent
    }

    /// Arguments as JSON in a string.
    fn quoted(
        &mut self,
        (name, id): (String, Option<String>),
        start: usize,
        reach: Extent,
        extent: Extent,
    ) -> Extent {
        if let (Extent::To(end), Extent::To(whole)) = (reach, extent) {
            let arguments = serde_json::from_str(&self.text[start..end]).unwrap_or_default();
            self.push(start, What::Call { name, id });
            self.push(end, What::Arguments(arguments));
            self.push(whole, What::Mark);
        }
        extent
    }

    /// Completes a call at this end if its closing mark follows, or other text.
    fn closed(&mut self, end: usize) -> Status {
        let at = scan::skip_space(self.text, end);
        let rest = &self.text[at..];
        if self.close.is_empty() {
            self.push(end, What::Mark);
        } else if rest.starts_with(self.close) {
            self.push(at + self.close.len(), What::Mark);
        } else if self.close.starts_with(rest) {
            if !self.last {
                return Status::Open;
            }
            self.push(self.text.len(), What::Mark);
        } else {
            self.push(end, What::Mark);
        }
        Status::Done
    }

    fn named(&mut self, at: usize, separator: &str) -> Status {
        let rest = &self.text[at..];
        match rest.trim_start().as_bytes().first() {
            None => return Status::Open,
            Some(b'[' | b'{') => return self.json(at),
            Some(_) => {}
        }
        let length = match self.name_length(rest, &[separator]) {
            Ok(length) => length,
            Err(status) => return status,
        };
        let Some((name, id)) = name_and_id(&rest[..length]) else {
            return Status::Wrong;
        };
        let start = scan::skip_space(self.text, at + length + separator.len());
        match self.text.as_bytes().get(start) {
            Some(b'{') => {}
            None if !self.last => return Status::Open,
            _ => return Status::Wrong,
        }
        self.push(start, What::Call { name, id });
        match scan::value(self.text, start) {
            Extent::To(end) => {
                self.push(end, What::Raw);
                self.closed(end)
            }
            Extent::Open => {
                self.push(self.text.len(), What::Raw);
                Status::Open
            }
            Extent::Wrong(at) => {
                self.push(at, What::Raw);
                Status::Wrong
            }
        }
    }

    /// Arguments behind a line with the tool's name; behind `said` is text.
    fn recipient(&mut self, at: usize, said: &str) -> Status {
        const END: &str = "\n";
        if !is_addressed(&self.text[at..], said, self.tools) {
            return Status::Wrong;
        }
        let length = match self.name_length(&self.text[at..], &[END]) {
            Ok(length) => length,
            Err(status) => return status,
        };
        match self.text[at..at + length].trim() {
            name if name == said && !name.is_empty() && !self.said => {
                self.push(at + length + END.len(), What::Mark);
                Status::Done
            }
            name if self.tools.has(name) => self.named(at, END),
            _ => Status::Wrong,
        }
    }

    /// An object behind a name.
    fn braced(&mut self, at: usize, before: &str) -> Result<Status, Stop> {
        let start = scan::skip_space(self.text, at);
        let rest = &self.text[start..];
        if !rest.starts_with(before) {
            let begun = before.starts_with(rest);
            return Err(if begun { Stop::Open } else { Stop::Wrong });
        }
        let end = self.arguments(start + before.len(), b':', [b'{', b'}'])?;
        Ok(self.closed(end))
    }

    /// Calls in a list.
    fn python(&mut self, at: usize) -> Result<Status, Stop> {
        let mut here = literal::behind(self.text, at, b'[')?;
        let mut is_first = true;
        while let Some(start) = literal::next(self.text, here, b']', is_first)? {
            here = self.arguments(start, b'=', [b'(', b')'])?;
            is_first = false;
        }
        let end = literal::skip_to(self.text, here, b']');
        Ok(self.closed(end))
    }

    /// Calls on their own lines, up to the last mark.
    fn lines(&mut self, at: usize) -> Result<Status, Stop> {
        let mut here = at;
        loop {
            let start = scan::skip_space(self.text, here);
            let rest = &self.text[start..];
            if self.items.is_empty()
                || !self.close.starts_with(rest) && !rest.starts_with(self.close)
            {
                here = self.arguments(start, b'=', [b'(', b')'])?;
            } else {
                return Ok(self.closed(here));
            }
        }
    }

    /// A name and arguments in brackets, with `separator` behind their keys. Their end.
    fn arguments(
        &mut self,
        at: usize,
        separator: u8,
        [open, close]: [u8; 2],
    ) -> Result<usize, Stop> {
        let (name, end) = literal::key(self.text, at)?;
        if self.bare && !self.tools.has(&name) {
            return Err(Stop::Wrong);
        }
        let mut here = literal::behind(self.text, end, open)?;
        self.push(here, What::Call { name, id: None });
        let mut is_first = true;
        while let Some(start) = literal::next(self.text, here, close, is_first)? {
            let (key, end) = literal::key(self.text, start)?;
            let start = literal::behind(self.text, end, separator)?;
            let (lead, key) = (if is_first { "{" } else { ", " }, Value::from(key));
            self.push(start, What::Arguments(format!("{lead}{key}: ")));
            let (value, end) = literal::literal(self.text, start)?;
            self.push(end, What::Arguments(value.to_string()));
            here = end;
            is_first = false;
        }
        let end = literal::skip_to(self.text, here, close);
        let rest = if is_first { "{}" } else { "}" };
        self.push(end, What::Arguments(rest.to_owned()));
        Ok(end)
    }

    /// The bytes before the first of `ends`; a name is not endless.
    fn name_length(&self, rest: &str, ends: &[&str]) -> Result<usize, Status> {
        const MOST: usize = 512;
        match ends.iter().filter_map(|end| rest.find(end)).min() {
            Some(length) if length <= MOST => Ok(length),
            None if !self.last && rest.len() <= MOST => Err(Status::Open),
            _ => Err(Status::Wrong),
        }
    }

    fn tagged(&mut self, at: usize, tags: &Tags) -> Status {
        if self.said && !tags.name.is_empty() {
            return Status::Wrong;
        }
        let at = match self.name_length(&self.text[at..], &[tags.name]) {
            Ok(length) => at + length + tags.name.len(),
            Err(status) => return status,
        };
        let rest = &self.text[at..];
        let ends: &[&str] = match tags.name_end {
            "" => &[tags.key, self.close],
            end => &[end],
        };
        let length = match self.name_length(rest, ends) {
            Ok(length) => length,
            Err(status) => return status,
        };
        // A tag may have several attributes. The first one is the name.
        let name = rest[..length].split('"').next().unwrap_or_default();
        let name = name.trim().to_owned();
        if name.is_empty() || name.contains(|it: char| it.is_whitespace() || it == '<') {
            return Status::Wrong;
        }
        let mut here = at + length + tags.name_end.len();
        self.push(
            here,
            What::Call {
                name: name.clone(),
                id: None,
            },
        );
        let mut first = true;
        loop {
            let next = scan::skip_space(self.text, here);
            let rest = &self.text[next..];
            if rest.starts_with(self.close) {
                let end = if first { "{}" } else { "}" };
                self.push(next + self.close.len(), What::Arguments(end.to_owned()));
                return Status::Done;
            }
            if !rest.starts_with(tags.key) {
                let begun = tags.key.starts_with(rest) || self.close.starts_with(rest);
                return if begun { Status::Open } else { Status::Wrong };
            }
            let Some((key, value, end)) = argument(&self.text[next..], tags) else {
                return Status::Open;
            };
            here = next + end;
            let value = self.tools.typed(&name, key, value, tags);
            let lead = if first { "{" } else { ", " };
            first = false;
            let key = Value::from(key);
            self.push(here, What::Arguments(format!("{lead}{key}: {value}")));
        }
    }
}

/// Whether a call has such a key.
fn is_known(key: &str) -> bool {
    key == "type"
        || [NAMES, ARGUMENTS, IDS]
            .iter()
            .any(|keys| keys.contains(&key))
}

/// The key, the value and the end of the argument that `text` begins with.
fn argument<'t>(text: &'t str, tags: &Tags) -> Option<(&'t str, &'t str, usize)> {
    let key_start = tags.key.len();
    let key_end = key_start + text[key_start..].find(tags.key_end)?;
    let behind = key_end + tags.key_end.len();
    let start = behind + text[behind..].find(tags.value)? + tags.value.len();
    let key = text[key_start..key_end].trim();
    let close = match tags.nests {
        true => format!("{}{key}{}", tags.value_end, tags.key_end),
        false => tags.value_end.to_owned(),
    };
    let (open_quote, close_quote) = tags.quote;
    let quoted = text[start..].strip_prefix(open_quote);
    if let Some(quoted) = quoted.filter(|_| !open_quote.is_empty()) {
        let length = quoted.find(&format!("{close_quote}{close}"))?;
        let end = start + open_quote.len() + length + close_quote.len() + close.len();
        return Some((key, &quoted[..length], end));
    }
    let end = start + text[start..].find(&close)?;
    let value = &text[start..end];
    // On lines of its own, it is without their breaks.
    let value = match value.strip_prefix('\n') {
        Some(lines) => lines.strip_suffix('\n').unwrap_or(lines),
        None => value,
    };
    Some((key, value, end + close.len()))
}

/// The tool's name, and the identifier that is written with it: `functions.NAME:0` of Kimi,
/// `NAME[CALL_ID]ID` of Mistral, and `ID<|tool_call:name|>NAME` of Solar.
fn name_and_id(text: &str) -> Option<(String, Option<String>)> {
    let text = text.trim();
    let named = text.split_once("[CALL_ID]");
    let named = named.or_else(|| {
        text.split_once("<|tool_call:name|>")
            .map(|(id, name)| (name, id))
    });
    let (text, given) = match named {
        Some((name, id)) => (name, Some(id.to_owned())),
        None => (text, None),
    };
    let end = text.find(|it: char| it.is_whitespace() || it == '<' || it == '{');
    let whole = &text[..end.unwrap_or(text.len())];
    let name = whole.strip_prefix("functions.").unwrap_or(whole);
    let numbered = name
        .rsplit_once(':')
        .filter(|(_, it)| it.parse::<u32>().is_ok());
    let (name, id) = match numbered {
        Some((name, _)) => (name, Some(whole.to_owned())),
        None => (name, given),
    };
    (!name.is_empty()).then(|| (name.to_owned(), id))
}
