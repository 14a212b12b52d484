//! Takes answers apart while they are written.

use serde_json::Value;

use crate::answer::{Answer, Delta, Step};
use crate::call::{self, Status, Tools, What};
use crate::reasoning::ReasoningFormat;
use crate::syntax::{AnswerSyntax, Call, Shape};

/// What a parser is to know of an answer.
#[derive(Clone, Debug, Default)]
pub struct ParseOptions {
    /// What becomes of reasoning.
    pub reasoning: ReasoningFormat,
    /// The tools that the model was told of, as OpenAI's API has them. Without any there are no tool calls.
    pub tools: Vec<Value>,
    /// The end of the prompt that began reasoning ([`AnswerSyntax::thinking_begun`]). Where the answer goes on with
    /// reasoning, that is part of it.
    pub thinking_begun: Option<String>,
}

/// Takes an answer apart into reasoning, content and tool calls, as it comes.
///
/// Text is held back as long as it may turn out to be a mark. Nothing is dropped: what begins like a tool call
/// and is none becomes content.
pub struct AnswerParser {
    syntax: &'static AnswerSyntax,
    tools: Tools,
    separates: bool,
    /// Reasoning that is part of the content was begun.
    within: bool,
    /// What the prompt says of it, until something is said.
    begun: String,
    /// Text that no step is about yet.
    pending: String,
    mode: Mode,
    /// White space that comes next says nothing.
    skips_space: bool,
    /// Something was said, so that what follows does not begin the answer.
    said: bool,
    calls: usize,
    steps: Vec<Step>,
}

#[derive(Clone, Copy)]
enum Mode {
    Content,
    /// Until this mark.
    Thinking(&'static str),
    Calling(Progress),
}

/// How much of a call's text has become steps.
#[derive(Clone, Copy)]
struct Progress {
    call: &'static Call,
    /// White space before it.
    lead: usize,
    /// Parts of it.
    parts: usize,
    /// Bytes of it.
    bytes: usize,
}

/// What a mark in content means.
#[derive(Clone, Copy)]
enum Mark {
    Think(&'static str),
    /// Around reasoning that is part of the content.
    Said,
    Call(&'static Call),
    Silent,
    /// Around tool calls.
    Wrap,
}

impl AnswerParser {
    /// A parser for an answer in `syntax` that comes in parts.
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
            said: false,
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

    /// A whole answer.
    pub fn parse(syntax: &'static AnswerSyntax, options: &ParseOptions, text: &str) -> Answer {
        let mut parser = AnswerParser::with(syntax, options, false);
        let mut answer = Answer::default();
        let steps = parser.push(text).into_iter();
        for step in steps.chain(parser.finish()) {
            answer.add(&step);
        }
        answer
    }

    /// More text.
    pub fn push(&mut self, text: &str) -> Vec<Step> {
        self.pending += text;
        while !self.pending.is_empty() && self.advance(false) {}
        std::mem::take(&mut self.steps)
    }

    /// The end of the text.
    pub fn finish(&mut self) -> Vec<Step> {
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
        self.steps.push(Step { source, delta });
    }

    /// Says the first `bytes` that are pending.
    fn say(&mut self, bytes: usize) {
        if bytes > 0 {
            let text = std::mem::take(&mut self.begun) + &self.pending[..bytes];
            self.said |= !text.trim().is_empty();
            self.step(bytes, Some(Delta::Content(text)));
        }
    }

    /// The marks that mean something where content is, in the order in which they count.
    fn marks(&self) -> impl Iterator<Item = (&'static str, Mark)> + use<> {
        let syntax = self.syntax;
        let called = !self.tools.is_empty();
        let (separates, within) = (self.separates, self.within);
        let thinks = syntax
            .thinks
            .iter()
            .map(move |(open, close)| match separates {
                true => (*open, Mark::Think(close)),
                false if within => (*close, Mark::Said),
                false => (*open, Mark::Said),
            });
        let calls = syntax
            .calls
            .iter()
            .filter(move |it| called && !it.open.is_empty());
        let wraps = syntax.wraps.iter().filter(move |_| called);
        thinks
            .chain(calls.map(|call| (call.open, Mark::Call(call))))
            .chain(syntax.silent.iter().map(|text| (*text, Mark::Silent)))
            .chain(wraps.map(|text| (*text, Mark::Wrap)))
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
        if let Mark::Said = mark {
            self.within = !self.within;
            self.say(at + text.len());
            return true;
        }
        if before > 0 {
            self.say(before);
            return true;
        }
        if matches!(mark, Mark::Wrap) && !self.wraps_call(at + text.len()) {
            return self.unclear(at + text.len(), last);
        }
        if let Mark::Call(call) = mark {
            self.mode = Mode::Calling(Progress {
                call,
                lead: at,
                parts: 0,
                bytes: 0,
            });
            return true;
        }
        if matches!(mark, Mark::Silent) && !self.begun.is_empty() {
            // The model has left out the reasoning that the prompt begins.
            self.begun.clear();
            self.within = false;
        }
        self.step(at + text.len(), None);
        self.skips_space = !matches!(mark, Mark::Silent);
        if let Mark::Think(close) = mark {
            self.mode = Mode::Thinking(close);
        }
        true
    }

    /// An answer that begins with a brace, or with a recipient, may be a call.
    fn bare_call(&mut self, last: bool) -> Option<bool> {
        let bare = self.syntax.calls.iter().find(|call| call.open.is_empty());
        let addressed = |call: &Call| call.shape == Shape::Recipient;
        let call = bare.filter(|it| !self.said && (!self.tools.is_empty() || addressed(it)))?;
        let space = self.pending.len() - self.pending.trim_start().len();
        if space < self.pending.len() {
            let begins = addressed(call) || self.pending[space..].starts_with('{');
            return begins.then(|| {
                self.mode = Mode::Calling(Progress {
                    call,
                    lead: space,
                    parts: 0,
                    bytes: 0,
                });
                true
            });
        }
        (!last).then_some(false)
    }

    /// Whether what is around calls is: behind one, or before one that follows at once.
    fn wraps_call(&self, end: usize) -> bool {
        let rest = self.pending[end..].trim_start();
        self.calls > 0
            || self
                .syntax
                .calls
                .iter()
                .any(|call| rest.starts_with(call.open))
    }

    /// Whether a mark that ends at `end` is before a call shows later; then it is content.
    fn unclear(&mut self, end: usize, last: bool) -> bool {
        let rest = self.pending[end..].trim_start();
        let begun = self
            .syntax
            .calls
            .iter()
            .any(|call| call.open.starts_with(rest));
        if begun && !last {
            return false;
        }
        self.say(end);
        true
    }

    /// How many bytes at the end may belong to one of `marks`, with the white space before.
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
        let called = !self.syntax.quotes_calls && !self.tools.is_empty();
        let calls = self.syntax.calls.iter().map(|call| call.open);
        let opens = calls.chain(self.syntax.wraps.iter().copied());
        let opens: Vec<_> = opens.filter(|it| called && !it.is_empty()).collect();
        let end = self.pending.find(close);
        let call = opens
            .iter()
            .filter_map(|open| self.pending.find(open))
            .min();
        let (at, length) = match (end, call) {
            (Some(end), call) if call.is_none_or(|call| end <= call) => (end, close.len()),
            (_, Some(call)) => (call, 0),
            _ => {
                let kept = self.kept(opens.into_iter().chain([close]), last);
                let ready = self.pending.len() - kept;
                self.reason(ready);
                return ready > 0;
            }
        };
        let text = self.pending[..at].trim_end().len();
        self.reason(text);
        self.step(at - text + length, None);
        self.mode = Mode::Content;
        self.skips_space = true;
        true
    }

    fn reason(&mut self, bytes: usize) {
        if bytes > 0 {
            let text = self.pending[..bytes].to_owned();
            self.step(bytes, Some(Delta::Reasoning(text)));
        }
    }

    fn call(&mut self, mut progress: Progress, last: bool) -> bool {
        let Progress { call, lead, .. } = progress;
        let (parts, status) = call::parts(call, &self.pending[lead..], &self.tools, last);
        if !parts.is_empty() && lead > 0 {
            self.step(lead, None);
            progress.lead = 0;
        }
        let count = parts.len();
        let before = progress.bytes;
        for (index, part) in parts.into_iter().enumerate().skip(progress.parts) {
            let open =
                matches!(part.what, What::Raw) && index + 1 == count && status == Status::Open;
            // What is a step already stays pending until the call is complete, to be read again.
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
        self.said = true;
        self.pending.drain(..progress.bytes);
        if status == Status::Done {
            self.skips_space = true;
        } else if status == Status::Open && progress.bytes > 0 {
            // The end of a call that is cut off.
            self.step(self.pending.len(), None);
        } else if progress.bytes == 0 {
            let mut chars = self.pending[progress.lead..].chars();
            let first = chars.next().map_or(0, char::len_utf8);
            self.say(progress.lead + call.open.len().max(first));
        }
        true
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
        self.steps.push(Step { source, delta });
    }
}
