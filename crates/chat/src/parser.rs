//! Parsing of answers while they are generated.

use serde_json::Value;

use crate::answer::{Answer, AnswerPart, Delta};
use crate::call::{self, Context, Status, Tools, What};
use crate::reasoning::ReasoningFormat;
use crate::syntax::{AnswerSyntax, Call, Shape};

/// Options of a parser.
#[derive(Clone, Debug, Default)]
pub struct ParseOptions {
    /// The handling of reasoning.
    pub reasoning: ReasoningFormat,
    /// The tools that the model may call, as in OpenAI's API.
    pub tools: Vec<Value>,
    /// The end of the prompt that began the reasoning ([`AnswerSyntax::thinking_begun`]). If the answer continues
    /// reasoning that has begun, this end is part of the reasoning.
    pub thinking_begun: Option<String>,
}

/// Splits an answer into reasoning, content and tool calls while it is generated.
///
/// A mark counts only where its family writes it. Reasoning begins before anything else of a message, and a message
/// ends where only marks follow. Elsewhere a mark is text. Text that may become a mark is held back. Nothing is
/// dropped: text that only begins like a tool call becomes content, or stays reasoning.
pub struct AnswerParser {
    syntax: &'static AnswerSyntax,
    tools: Tools,
    separates: bool,
    /// Reasoning that is part of the content was begun.
    within: bool,
    /// The prompt's state, until the answer has text.
    begun: String,
    /// Text that no step is about yet.
    pending: String,
    mode: Mode,
    /// White space that comes next says nothing.
    skips_space: bool,
    place: Place,
    calls: usize,
    steps: Vec<AnswerPart>,
}

/// Part of a message that the parser is in.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    /// Only marks so far.
    Start,
    /// Its reasoning has ended.
    Reasoned,
    /// A tool call came last.
    Called,
    /// Text came last.
    Said,
}

#[derive(Clone, Copy)]
enum Mode {
    Content,
    /// Reasoning, up to this mark.
    Thinking(&'static str),
    Calling(Progress),
}

/// Progress of a call's text towards steps.
#[derive(Clone, Copy)]
struct Progress {
    call: &'static Call,
    /// Bytes of white space and marks before it.
    lead: usize,
    /// It is in reasoning that this mark ends.
    thinking: Option<&'static str>,
    /// Parts of it.
    parts: usize,
    /// Bytes of it.
    bytes: usize,
}

/// A mark in content.
#[derive(Clone, Copy)]
enum Mark {
    /// It begins reasoning that this other mark ends.
    Think(&'static str),
    /// It is around reasoning that is part of the content.
    Said,
    Call(&'static Call),
    /// It stands before the text of a message.
    Open,
    /// It stands behind the text of a message.
    Close,
    /// It begins a group of tool calls.
    Wrap,
    /// It ends a group of tool calls.
    Unwrap,
}

/// The text behind a mark, after further marks and white space.
enum Behind {
    /// It may be this call, from this byte on.
    Call(&'static Call, usize),
    /// Another message begins.
    Message,
    /// Nothing more comes.
    End,
    /// More has to come before this is known.
    Unknown,
    Text,
}

impl AnswerParser {
    /// A parser for an answer in `syntax` that arrives in parts.
    pub fn new(syntax: &'static AnswerSyntax, options: &ParseOptions) -> Self {
        AnswerParser::with(syntax, options, true)
    }

    fn with(syntax: &'static AnswerSyntax, options: &ParseOptions, streamed: bool) -> Self {
        let separates = options.reasoning.separates(streamed);
        let mut parser = AnswerParser {
            syntax,
            tools: Tools::new(&options.tools),
            separates,
            within: false,
            begun: String::new(),
            pending: String::new(),
            mode: Mode::Content,
            skips_space: false,
            place: Place::Start,
            calls: 0,
            steps: Vec::new(),
        };
        if let Some(begun) = &options.thinking_begun {
            let thinks = |(open, _): &&(&str, &str)| begun.starts_with(open);
            match syntax.thinks.iter().find(thinks) {
                Some((open, close)) if separates => {
                    parser.mode = Mode::Thinking(close);
                    // An answer may go on with reasoning.
                    parser.skips_space = begun[open.len()..].trim().is_empty();
                }
                _ => {
                    parser.within = true;
                    parser.begun.clone_from(begun);
                }
            }
        }
        parser
    }

    /// Parses a whole answer.
    pub fn parse(syntax: &'static AnswerSyntax, options: &ParseOptions, text: &str) -> Answer {
        let mut parser = AnswerParser::with(syntax, options, false);
        let mut answer = Answer::default();
        let steps = parser.push(text).into_iter();
        for step in steps.chain(parser.finish()) {
            answer.add(&step);
        }
        answer
    }

    /// Adds more text.
    pub fn push(&mut self, text: &str) -> Vec<AnswerPart> {
        self.pending += text;
        while !self.pending.is_empty() && self.advance(false) {}
        std::mem::take(&mut self.steps)
    }

    /// Ends the text.
    pub fn finish(&mut self) -> Vec<AnswerPart> {
        while !self.pending.is_empty() && self.advance(true) {}
        std::mem::take(&mut self.steps)
    }

    /// Does the next thing; false if there is nothing to do before more comes.
    fn advance(&mut self, last: bool) -> bool {
        if self.skips_space {
            let space = self.pending.len() - self.pending.trim_start().len();
            if space > 0 {
                self.step(space, None);
                return true;
            }
            self.skips_space = false;
        }
        match self.mode {
            Mode::Content => self.content(last),
            Mode::Thinking(close) => self.think(close, last),
            Mode::Calling(progress) => self.call(progress, last),
        }
    }

    /// Makes a step of the first `bytes` that are pending.
    fn step(&mut self, bytes: usize, delta: Option<Delta>) {
        let source: String = self.pending.drain(..bytes).collect();
        self.steps.push(AnswerPart { source, delta });
    }

    /// Says the first `bytes` that are pending.
    fn say(&mut self, bytes: usize) {
        if bytes > 0 {
            let text = std::mem::take(&mut self.begun) + &self.pending[..bytes];
            if !text.trim().is_empty() {
                self.place = Place::Said;
            }
            self.step(bytes, Some(Delta::Content(text)));
        }
    }

    /// The marks that mean something at this place of the content, in the order in which they count.
    fn marks(&self) -> impl Iterator<Item = (&'static str, Mark)> + use<> {
        let AnswerSyntax {
            thinks,
            wraps,
            opens,
            closes,
            ..
        } = self.syntax;
        let (separates, within, place) = (self.separates, self.within, self.place);
        let thinks = thinks
            .iter()
            .filter(move |_| within || place == Place::Start)
            .map(move |(open, close)| match separates {
                true => (*open, Mark::Think(close)),
                false if within => (*close, Mark::Said),
                false => (*open, Mark::Said),
            });
        let opens = opens.iter().filter(move |_| place != Place::Said);
        let ends = wraps.iter().filter(move |_| place == Place::Called);
        thinks
            .chain(self.calls().map(|call| (call.open, Mark::Call(call))))
            .chain(opens.map(|text| (*text, Mark::Open)))
            .chain(closes.iter().map(|text| (*text, Mark::Close)))
            .chain(self.wraps().map(|text| (text, Mark::Wrap)))
            .chain(ends.map(|(_, text)| (*text, Mark::Unwrap)))
    }

    /// The calls that a mark begins; none without tools.
    fn calls(&self) -> impl Iterator<Item = &'static Call> + use<> {
        let called = !self.tools.is_empty();
        let calls = self.syntax.calls.iter();
        calls.filter(move |it| called && !it.open.is_empty())
    }

    /// The marks that begin groups of calls; none without tools.
    fn wraps(&self) -> impl Iterator<Item = &'static str> + use<> {
        let called = !self.tools.is_empty();
        let wraps = self.syntax.wraps.iter().filter(move |_| called);
        wraps.map(|(open, _)| *open)
    }

    fn content(&mut self, last: bool) -> bool {
        if let Some(begun) = self.bare_call(last) {
            return begun;
        }
        let found = self.marks().filter_map(|(text, mark)| {
            let at = self.pending.find(text)?;
            Some((at, text, mark))
        });
        let first = found.min_by_key(|(at, text, _)| (*at, usize::MAX - text.len()));
        let Some((at, text, mark)) = first else {
            let kept = self.kept(self.marks().map(|(text, _)| text), last);
            let ready = self.pending.len() - kept;
            self.say(ready);
            return ready > 0;
        };
        let before = self.pending[..at].trim_end().len();
        let found = &self.pending[at..];
        let mut longer = self.marks().filter(|(it, _)| it.len() > found.len());
        if !last && longer.any(|(it, _)| it.starts_with(found)) {
            self.say(before);
            return before > 0;
        }
        let end = at + text.len();
        // The text before marks decides which of them count.
        let ends_reasoning = self.within && matches!(mark, Mark::Said);
        if before > 0 && !ends_reasoning {
            self.say(before);
            return true;
        }
        match mark {
            Mark::Said => {
                self.say(end);
                if self.within {
                    self.end_reasoning(text);
                }
                self.within = !self.within;
            }
            Mark::Call(call) => self.begin_call(call, at, None),
            Mark::Open => {
                self.pass_mark(end);
                // Marks behind the beginning of a message may begin with a space.
                self.skips_space = text != self.syntax.next;
            }
            Mark::Close | Mark::Wrap => match (self.behind(end, last), mark) {
                (Behind::Unknown, _) => return false,
                (Behind::Call(call, lead), _) => self.begin_call(call, lead, None),
                (Behind::Message | Behind::End, Mark::Close) => {
                    self.pass_mark(end);
                    self.place = Place::Start;
                    self.skips_space = true;
                }
                _ => self.say(end),
            },
            Mark::Think(close) => {
                self.step(end, None);
                self.skips_space = true;
                self.mode = Mode::Thinking(close);
            }
            Mark::Unwrap => {
                self.step(end, None);
                self.skips_space = true;
            }
        }
        true
    }

    /// Passes over a mark before or behind the text of a message, which ends at this byte.
    fn pass_mark(&mut self, end: usize) {
        if !self.begun.is_empty() {
            // The model has left out the reasoning that the prompt begins.
            self.begun.clear();
            self.within = false;
        }
        self.step(end, None);
    }

    /// Begins a call behind `lead` bytes.
    fn begin_call(&mut self, call: &'static Call, lead: usize, thinking: Option<&'static str>) {
        self.mode = Mode::Calling(Progress {
            call,
            lead,
            thinking,
            parts: 0,
            bytes: 0,
        });
    }

    /// An answer that begins with a brace, or with a recipient, may be a call.
    fn bare_call(&mut self, last: bool) -> Option<bool> {
        let bare = self.syntax.calls.iter().find(|call| call.open.is_empty());
        let addressed = |call: &Call| matches!(call.shape, Shape::Recipient(_));
        // A word in place of a tool's name is a mark, also where there are no tools.
        let marked = |call: &Call| matches!(call.shape, Shape::Recipient(said) if !said.is_empty());
        let called = !self.tools.is_empty();
        let call = bare.filter(|it| match self.place {
            Place::Start | Place::Reasoned => called || marked(it),
            Place::Called => called && !addressed(it),
            Place::Said => false,
        })?;
        // Between calls there may be a semicolon.
        let skipped = |c: char| c.is_whitespace() || (c == ';' && self.place == Place::Called);
        let space = self.pending.len() - self.pending.trim_start_matches(skipped).len();
        if space < self.pending.len() {
            let begins = call::may_begin(call, &self.pending[space..], &self.tools);
            return begins.then(|| {
                self.begin_call(call, space, None);
                true
            });
        }
        (!last).then_some(false)
    }

    /// The text from `at` on, behind marks that end a message or begin a group of calls.
    fn behind(&self, mut at: usize, last: bool) -> Behind {
        let next = self.syntax.next;
        let marks = || self.syntax.closes.iter().copied().chain(self.wraps());
        loop {
            let rest = self.pending[at..].trim_start();
            at = self.pending.len() - rest.len();
            if rest.is_empty() {
                return if last { Behind::End } else { Behind::Unknown };
            }
            let call = self.calls().filter(|call| rest.starts_with(call.open));
            if let Some(call) = call.max_by_key(|call| call.open.len()) {
                return Behind::Call(call, at);
            }
            if !next.is_empty() && rest.starts_with(next) {
                return Behind::Message;
            }
            let mark = marks().filter(|mark| rest.starts_with(mark));
            if let Some(length) = mark.map(str::len).max() {
                at += length;
                continue;
            }
            let opens = self.calls().map(|call| call.open);
            let begun = opens.chain(marks()).chain([next]);
            return match begun.filter(|_| !last).any(|it| it.starts_with(rest)) {
                true => Behind::Unknown,
                false => Behind::Text,
            };
        }
    }

    /// Number of bytes at the end that may belong to one of `marks`, with the white space before.
    fn kept(&self, marks: impl Iterator<Item = &'static str>, last: bool) -> usize {
        if last {
            return 0;
        }
        let text = &self.pending;
        let begun = |mark: &str| {
            let ends = mark.char_indices().map(|(at, _)| at).rev();
            ends.filter(|&at| text.ends_with(&mark[..at])).max()
        };
        let mark = marks.filter_map(begun).max().unwrap_or_default();
        let before = &text[..text.len() - mark];
        mark + before.len() - before.trim_end().len()
    }

    fn think(&mut self, close: &'static str, last: bool) -> bool {
        let quotes = self.syntax.quotes_calls;
        let opens = self.calls().map(|call| call.open).chain(self.wraps());
        let opens: Vec<_> = opens.filter(|_| !quotes).collect();
        let end = self.pending.find(close);
        let call = opens
            .iter()
            .filter_map(|open| Some((self.pending.find(open)?, open.len())));
        let call = call.min_by_key(|(at, length)| (*at, usize::MAX - length));
        let at = match (end, call) {
            (Some(end), call) if call.is_none_or(|(call, _)| end <= call) => {
                let text = self.pending[..end].trim_end().len();
                self.reason(text);
                self.step(end - text + close.len(), None);
                self.mode = Mode::Content;
                self.end_reasoning(close);
                self.skips_space = true;
                return true;
            }
            (_, Some((at, _))) => at,
            _ => {
                let kept = self.kept(opens.into_iter().chain([close]), last);
                let ready = self.pending.len() - kept;
                self.reason(ready);
                return ready > 0;
            }
        };
        let text = self.pending[..at].trim_end().len();
        if text > 0 {
            self.reason(text);
            return true;
        }
        match self.behind(at, last) {
            Behind::Unknown => return false,
            Behind::Call(call, lead) => self.begin_call(call, lead, Some(close)),
            _ => self.reason(at + call.map_or(0, |(_, length)| length)),
        }
        true
    }

    /// Goes on behind reasoning, which `close` ended: it may have been a separate message.
    fn end_reasoning(&mut self, close: &str) {
        self.place = match self.syntax.closes.contains(&close) {
            true => Place::Start,
            false => Place::Reasoned,
        };
    }

    fn reason(&mut self, bytes: usize) {
        if bytes > 0 {
            let text = self.pending[..bytes].to_owned();
            self.step(bytes, Some(Delta::Reasoning(text)));
        }
    }

    fn call(&mut self, mut progress: Progress, last: bool) -> bool {
        let Progress { call, lead, .. } = progress;
        let context = Context {
            said: self.place == Place::Said,
            last,
        };
        let (parts, status) = call::parts(call, &self.pending[lead..], &self.tools, context);
        if !parts.is_empty() && lead > 0 {
            self.step(lead, None);
            progress.lead = 0;
        }
        let count = parts.len();
        let calls = parts
            .iter()
            .any(|part| matches!(part.what, What::Call { .. }));
        let before = progress.bytes;
        for (index, part) in parts.into_iter().enumerate().skip(progress.parts) {
            let open =
                matches!(part.what, What::Raw) && index + 1 == count && status == Status::Open;
            // Text of earlier steps stays pending until the call is complete, to be read again.
            let source = self.pending[progress.bytes..part.end].to_owned();
            progress.bytes = part.end;
            progress.parts = index + usize::from(!open);
            self.take(source, part.what);
        }
        if status == Status::Open && !last {
            self.mode = Mode::Calling(progress);
            return progress.bytes > before;
        }
        self.mode = Mode::Content;
        if progress.bytes == 0 {
            self.refuse_call(progress);
            return true;
        }
        // Anything but a call says that the text is for the user.
        self.place = if calls { Place::Called } else { Place::Said };
        self.pending.drain(..progress.bytes);
        self.skips_space = status == Status::Done;
        true
    }

    /// Returns text that begins like a call, and is none, as part of the text around it.
    fn refuse_call(&mut self, progress: Progress) {
        let Progress { call, lead, .. } = progress;
        let mut chars = self.pending[lead..].chars();
        let first = chars.next().map_or(0, char::len_utf8);
        let end = lead + call.open.len().max(first);
        match progress.thinking {
            Some(close) => {
                self.reason(end);
                self.mode = Mode::Thinking(close);
            }
            None => self.say(end),
        }
    }

    /// Makes a step of a call's part.
    fn take(&mut self, source: String, what: What) {
        let index = self.calls.saturating_sub(1);
        let delta = match what {
            What::Mark => None,
            What::Raw if source.is_empty() => return,
            What::Raw => Some(Delta::Arguments {
                index,
                text: source.clone(),
            }),
            What::Arguments(text) => Some(Delta::Arguments { index, text }),
            What::Id(id) => Some(Delta::Id { index, id }),
            What::Call { name, id } => {
                self.calls += 1;
                Some(Delta::Call {
                    index: self.calls - 1,
                    name,
                    id,
                })
            }
        };
        self.steps.push(AnswerPart { source, delta });
    }
}

#[cfg(test)]
mod tests;
