//! A conversation with a model: its messages, and the session that has read them.

use std::error::Error;
use std::ffi::OsStr;
use std::fmt;
use std::ops::ControlFlow;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use rustorch_chat::{
    Answer, AnswerParser, ChatTemplates, ControlTokens, Delta, Message, ParseOptions,
    ReasoningFormat, RenderOptions, Step, ToolCall, family, special_tokens,
};
use rustorch_llm::sampler::SamplerChain;
use rustorch_llm::{Event, GenerateOptions, Generated, Model, Session, Speculation, generate_with};
use rustorch_tokenizer::{StreamDecoder, Tokenizer};
use serde_json::{Value, json};

use super::stop::StopTexts;
use crate::sampling::Words;
use crate::text;

/// The family of models without a template, as in llama.cpp.
const DEFAULT_FAMILY: &str = "chatml";

/// Tokens at the beginning of a full context that are kept, at least: attention goes to them whatever
/// they say (Xiao et al., "Efficient Streaming Language Models with Attention Sinks", 2023).
const SINKS: usize = 4;

/// Why there is no answer.
#[derive(Debug)]
pub(super) struct Overflow {
    tokens: usize,
    context: usize,
}

impl fmt::Display for Overflow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tokens, context } = self;
        write!(
            f,
            "the conversation has {tokens} tokens, which do not fit the context of {context}: begin anew with \
             /clear, take a larger context (-c), or forget the oldest turns (--context-shift)"
        )
    }
}

impl Error for Overflow {}

/// What hears of an answer while it is made.
pub(super) trait Listener {
    /// This piece of text came, or nothing with a token.
    fn text(&mut self, text: &str) -> Result<ControlFlow<()>>;
    /// This piece of reasoning came.
    fn reasoning(&mut self, text: &str) -> Result<()>;
    /// The context is full: may its older half be forgotten?
    fn may_shift(&mut self) -> Result<bool>;
}

/// The text of tokens that a session has, as templates write it.
#[derive(Default)]
struct Fed {
    text: String,
    ids: Vec<u32>,
}

pub(super) struct Conversation<'m> {
    session: Session<'m>,
    speculation: Option<Speculation<'m>>,
    tokenizer: &'m Tokenizer,
    words: Words<'m>,
    templates: ChatTemplates,
    control: ControlTokens,
    messages: Vec<Message>,
    reasoning: ReasoningFormat,
    /// What the model may call, as templates have it.
    tools: Vec<Value>,
    fed: Fed,
}

impl<'m> Conversation<'m> {
    /// Without messages. `words` are the model's; `template` is the name of a family, a file or a template; without one it is the
    /// model's own. `tools` are what the model may call, as OpenAI's API has them.
    ///
    /// # Errors
    /// The model has no vocabulary; the template is wrong.
    pub(super) fn new(
        session: Session<'m>,
        words: Words<'m>,
        template: Option<&OsStr>,
        reasoning: ReasoningFormat,
        tools: Vec<Value>,
    ) -> Result<Self> {
        let model = session.model();
        let tokenizer = model.tokenizer()?;
        let talk = Self {
            templates: templates(model, tokenizer, template)?,
            control: ControlTokens::of(tokenizer),
            session,
            speculation: None,
            tokenizer,
            words,
            messages: Vec::new(),
            reasoning,
            tools,
            fed: Fed::default(),
        };
        let template = talk.templates.for_options(&talk.options(true));
        if !talk.tools.is_empty() && !template.takes_tools() {
            tracing::warn!(
                "the chat template does not tell the model of tools: the system prompt does (--chat-template \
                 names another template)"
            );
        }
        Ok(talk)
    }

    /// What templates are given beside messages.
    fn options(&self, answers: bool) -> RenderOptions {
        RenderOptions {
            add_generation_prompt: answers,
            tools: self.tools.clone(),
            ..RenderOptions::default()
        }
    }

    /// What the model's tokens stand for.
    pub(super) fn words(&self) -> &Words<'m> {
        &self.words
    }

    /// Has answers guessed ahead from now on.
    pub(super) fn guess(&mut self, speculation: Option<Speculation<'m>>) {
        self.speculation = speculation;
    }

    pub(super) fn session(&mut self) -> &mut Session<'m> {
        &mut self.session
    }

    pub(super) fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Goes on with other messages.
    pub(super) fn set_messages(&mut self, messages: Vec<Message>) {
        self.messages = messages;
    }

    /// What the model is told before the conversation; nothing for none.
    pub(super) fn set_system(&mut self, text: &str) {
        self.messages.retain(|message| message.role() != "system");
        if !text.is_empty() {
            self.messages.insert(0, Message::system(text));
        }
    }

    /// Forgets all but what the model was told before.
    pub(super) fn clear(&mut self) {
        self.messages.retain(|message| message.role() == "system");
    }

    pub(super) fn say(&mut self, text: &str) {
        self.push(Message::user(text));
    }

    /// Goes on with this message.
    pub(super) fn push(&mut self, message: Message) {
        self.messages.push(message);
    }

    /// Forgets the last answer, if there is one behind what was said last.
    pub(super) fn forget_answer(&mut self) {
        while let Some("assistant" | "tool") = self.messages.last().map(Message::role) {
            self.messages.pop();
        }
    }

    /// Forgets what was said last, with its answer. Returns what it was.
    pub(super) fn undo(&mut self) -> Option<String> {
        self.forget_answer();
        let said = self.messages.pop_if(|message| message.role() == "user")?;
        Some(said.text())
    }

    /// Has what was said last answered, up to one of the texts `stops`. An answer that was ended counts as
    /// far as it came. With it come the tool calls that it wants made.
    ///
    /// # Errors
    /// An [`Overflow`]; the template refuses the messages; no device is left; those of `listener`.
    pub(super) fn answer(
        &mut self,
        sampler: &mut SamplerChain,
        limits: &GenerateOptions,
        stops: &[String],
        listener: &mut impl Listener,
    ) -> Result<(Generated, Vec<ToolCall>)> {
        let (text, ids) = self.fitting_prompt(listener)?;
        let limits = GenerateOptions {
            shift: Some(self.kept_tokens()),
            ..*limits
        };
        let kept = self.session.keep_prefix(&ids);
        ids[..kept].iter().for_each(|&id| sampler.accept(id));
        let template = self.templates.for_options(&self.options(true));
        let syntax = template.syntax_for(&self.options(true));
        let options = ParseOptions {
            reasoning: self.reasoning,
            thinking_begun: syntax.thinking_begun(&text).map(str::to_owned),
            tools: self.tools.clone(),
        };
        let parser = AnswerParser::new(syntax, &options);
        let mut reader = Reader::new(self.tokenizer, parser, stops);
        let (session, prompt) = (&mut self.session, &ids[kept..]);
        let guesses = self.speculation.as_mut();
        let on_event = |event| reader.hear(event, listener);
        let generated = generate_with(session, prompt, sampler, &limits, guesses, on_event)?;
        let Read { raw, mut answer } = reader.end(listener)?;
        let calls = self.name_calls(&mut answer);
        self.push(Message::answer(&answer));
        self.fed = self.as_fed(text + &raw, &ids, &generated.ids);
        Ok((generated, calls))
    }

    /// Gives calls without an identifier one. The calls, as the model wrote them; in the answer, those whose
    /// arguments templates could not write again have none.
    fn name_calls(&self, answer: &mut Answer) -> Vec<ToolCall> {
        let earlier = self.messages.iter().filter(|it| it.role() == "tool");
        let first = earlier.count();
        for (index, call) in answer.calls.iter_mut().enumerate() {
            if call.id.is_empty() {
                // Templates of Mistral's take identifiers of nine letters and digits alone.
                call.id = format!("call{:05}", first + index);
            }
        }
        let calls = answer.calls.clone();
        for call in &mut answer.calls {
            if !matches!(serde_json::from_str(&call.arguments), Ok(Value::Object(_))) {
                call.arguments = "{}".to_owned();
            }
        }
        calls
    }

    /// Text that templates write again, with its tokens, if they end where text does not flow on.
    fn as_fed(&self, text: String, prompt: &[u32], answer: &[u32]) -> Fed {
        match answer
            .last()
            .is_some_and(|&id| self.tokenizer.is_control(id))
        {
            true => Fed {
                text,
                ids: [prompt, answer].concat(),
            },
            false => Fed::default(),
        }
    }

    /// The prompt, as text and tokens; without the oldest turns, if it may be and is else too long.
    fn fitting_prompt(&mut self, listener: &mut impl Listener) -> Result<(String, Vec<u32>)> {
        let mut may_shift = false;
        loop {
            let (text, ids) = self.prompt(&self.messages, true)?;
            let (tokens, context) = (ids.len(), self.session.context());
            // There has to be room for the first token of the answer.
            if tokens < context {
                return Ok((text, ids));
            }
            may_shift = may_shift || listener.may_shift()?;
            if !may_shift || !self.forget_oldest_turn() {
                return Err(Overflow { tokens, context }.into());
            }
        }
    }

    /// Forgets the first thing that was said with what followed, unless it is the last.
    fn forget_oldest_turn(&mut self) -> bool {
        let messages = self.messages.iter().enumerate();
        let mut said = messages.filter(|(_, message)| message.role() == "user");
        let (Some((first, _)), Some((second, _))) = (said.next(), said.next()) else {
            return false;
        };
        self.messages.drain(first..second);
        true
    }

    /// The prompt of messages, as text and tokens. What the session has read stays as it was read.
    fn prompt(&self, messages: &[Message], answers: bool) -> Result<(String, Vec<u32>)> {
        let options = self.options(answers);
        let template = self.templates.for_options(&options);
        let prompt = template.render(messages, &options, &self.control)?;
        let Fed { text, ids } = &self.fed;
        let ids = match prompt.text().strip_prefix(text) {
            Some(rest) if !text.is_empty() => {
                let guards = prompt
                    .guards()
                    .iter()
                    .filter(|guard| guard.end > text.len());
                let moved = guards
                    .map(|guard| guard.start.saturating_sub(text.len())..guard.end - text.len());
                let guards: Vec<_> = moved.collect();
                [&ids[..], &self.tokenizer.encode_guarded(rest, &guards)].concat()
            }
            _ => prompt.encode(self.tokenizer),
        };
        Ok((prompt.text().to_owned(), ids))
    }

    /// Tokens that stay where the context is full: those of what the model was told first.
    fn kept_tokens(&self) -> usize {
        let systems: Vec<Message> = self
            .messages
            .iter()
            .take_while(|message| message.role() == "system")
            .cloned()
            .collect();
        let told = match systems.is_empty() {
            true => 0,
            // A template that wants more than that keeps what all do.
            false => self.prompt(&systems, false).map_or(0, |(_, ids)| ids.len()),
        };
        told.max(SINKS).min(self.session.context() / 2)
    }

    /// Writes the messages to a file, as [`Self::load`] reads them.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn save(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(&json!({"messages": self.messages}))?;
        std::fs::write(path, text + "\n").with_context(|| {
            format!(
                "{}: cannot be written; check the folder and its rights",
                path.display()
            )
        })
    }

    /// Goes on with the messages of a file: an object with `messages`, or an array of them.
    ///
    /// # Errors
    /// The file cannot be read, or is something else. The conversation is then as it was.
    pub(super) fn load(&mut self, path: &Path) -> Result<()> {
        let name = path.display().to_string();
        let value: Value = serde_json::from_str(&text::from_file(path)?)
            .map_err(|e| anyhow!("{name}: not JSON ({e}); expected what /save writes"))?;
        let messages = value.get("messages").unwrap_or(&value);
        self.messages = Message::list(messages).context(name)?;
        Ok(())
    }
}

/// What came of the tokens of an answer.
#[derive(Default)]
struct Read {
    /// Their text, with control tokens.
    raw: String,
    /// What it says, and what was thought before.
    answer: Answer,
}

/// Tokens of an answer as text.
struct Reader<'a> {
    tokenizer: &'a Tokenizer,
    decoder: StreamDecoder<'a>,
    parser: AnswerParser,
    stops: StopTexts<'a>,
    read: Read,
}

impl<'a> Reader<'a> {
    fn new(tokenizer: &'a Tokenizer, parser: AnswerParser, stops: &'a [String]) -> Self {
        Self {
            tokenizer,
            decoder: tokenizer.decoder(),
            parser,
            stops: StopTexts::new(stops),
            read: Read::default(),
        }
    }

    fn hear(&mut self, event: Event, listener: &mut impl Listener) -> Result<ControlFlow<()>> {
        let id = match event {
            Event::Token(id) => id,
            Event::Full if !listener.may_shift()? => return Ok(ControlFlow::Break(())),
            Event::Full | Event::Prompt { .. } | Event::Shifted { .. } => {
                return Ok(ControlFlow::Continue(()));
            }
        };
        let mut piece = self.decoder.push(id).to_owned();
        if self.tokenizer.is_control(id) {
            piece.push_str(self.tokenizer.token_text(id).unwrap_or_default());
        }
        self.read.raw.push_str(&piece);
        // What ends an answer is not part of it.
        let steps = match self.tokenizer.is_end_of_generation(id) {
            true => Vec::new(),
            false => self.parser.push(&piece),
        };
        let text = self.take(steps, listener)?;
        let heard = listener.text(&text)?;
        Ok(match self.stops.found() {
            true => ControlFlow::Break(()),
            false => heard,
        })
    }

    /// Keeps what steps say. Returns what there is to show of the answer itself.
    fn take(&mut self, steps: Vec<Step>, listener: &mut impl Listener) -> Result<String> {
        let mut shown = String::new();
        for step in steps {
            match &step.delta {
                Some(Delta::Content(text)) => {
                    let text = self.stops.push(text);
                    self.read.answer.content += &text;
                    shown += &text;
                }
                Some(Delta::Reasoning(text)) => {
                    self.read.answer.reasoning += text;
                    listener.reasoning(text)?;
                }
                _ => self.read.answer.add(&step),
            }
        }
        Ok(shown)
    }

    /// Gives out what was kept back.
    fn end(mut self, listener: &mut impl Listener) -> Result<Read> {
        let rest = std::mem::replace(&mut self.decoder, self.tokenizer.decoder()).finish();
        self.read.raw.push_str(&rest);
        let mut steps = self.parser.push(&rest);
        steps.extend(self.parser.finish());
        let mut text = self.take(steps, listener)?;
        let kept = self.stops.finish();
        self.read.answer.content += &kept;
        text += &kept;
        // There is nothing left to end.
        let _ = listener.text(&text)?;
        Ok(self.read)
    }
}

/// The templates that were asked for.
pub(in crate::commands) fn templates(
    model: &Model,
    tokenizer: &Tokenizer,
    wanted: Option<&OsStr>,
) -> Result<ChatTemplates> {
    let metadata = &model.gguf().metadata;
    let tokens = special_tokens(metadata, tokenizer)?;
    let of_source = |source: &str, name: &str| {
        let template = rustorch_chat::ChatTemplate::new(source, name, tokens.clone())?;
        Ok(ChatTemplates::of(template))
    };
    match wanted {
        None if metadata.get("tokenizer.chat_template").is_none() => {
            tracing::warn!(
                "the model has no chat template: {DEFAULT_FAMILY} is used (--chat-template names another)"
            );
            Ok(ChatTemplates::of(family(DEFAULT_FAMILY)?))
        }
        None => Ok(ChatTemplates::from_gguf(metadata, tokenizer)?),
        Some(path) if Path::new(path).is_file() => {
            of_source(&text::from_file(Path::new(path))?, &path.to_string_lossy())
        }
        Some(given) => match given.to_string_lossy() {
            source if source.contains("{{") || source.contains("{%") => {
                of_source(&source, "--chat-template")
            }
            name => match family(&name) {
                Ok(template) => Ok(ChatTemplates::of(template)),
                Err(e) => bail!("--chat-template {name}: no such file, and {e}"),
            },
        },
    }
}
