//! A conversation with a model: its messages, and the session that has read them.

use std::error::Error;
use std::ffi::OsStr;
use std::fmt;
use std::ops::ControlFlow;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use rustorch_chat::{
    Answer, AnswerParser, AnswerPart, ChatTemplates, ControlTokens, Delta, Message, ParseOptions,
    ReasoningFormat, RenderOptions, StopTexts, ToolCall, family, special_tokens,
};
use rustorch_llm::sampler::SamplerChain;
use rustorch_llm::{Event, GenerateOptions, Generated, Model, Session, Speculation, generate_with};
use rustorch_tokenizer::{StreamDecoder, Tokenizer};
use serde_json::{Value, json};

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
            "the conversation of {tokens} tokens does not fit the context of {context}: start anew with /clear, set a \
             larger context (-c), or drop the oldest turns (--context-shift)"
        )
    }
}

impl Error for Overflow {}

/// A listener to an answer while it is made.
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
    /// The tools for the model, in the form that templates expect.
    tools: Vec<Value>,
    fed: Fed,
}

impl<'m> Conversation<'m> {
    /// A conversation without messages. `words` are the model's; `template` is the name of a family, a file or a
    /// template; without one it is the model's own. The model may call `tools`, which are in the form of OpenAI's API.
    ///
    /// # Errors
    /// Fails if the model has no vocabulary, or if the template is invalid.
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
                "the chat template has no place for tools; the system prompt lists them instead \
                 (--chat-template selects another template)"
            );
        }
        Ok(talk)
    }

    /// Options of templates besides messages.
    fn options(&self, answers: bool) -> RenderOptions {
        RenderOptions {
            add_generation_prompt: answers,
            tools: self.tools.clone(),
            ..RenderOptions::default()
        }
    }

    /// The texts of the model's tokens.
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

    /// The system prompt; nothing for none.
    pub(super) fn set_system(&mut self, text: &str) {
        self.messages.retain(|message| message.role() != "system");
        if !text.is_empty() {
            self.messages.insert(0, Message::system(text));
        }
    }

    /// Forgets all messages but the system prompt.
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

    /// Forgets the last answer, if there is one behind the last message.
    pub(super) fn forget_answer(&mut self) {
        while let Some("assistant" | "tool") = self.messages.last().map(Message::role) {
            self.messages.pop();
        }
    }

    /// Forgets the last message, with its answer. Returns the message.
    pub(super) fn undo(&mut self) -> Option<String> {
        self.forget_answer();
        let said = self.messages.pop_if(|message| message.role() == "user")?;
        Some(said.text())
    }

    /// Generates the answer to the last message, up to one of the texts `stops`.
    ///
    /// # Errors
    /// Fails with an [`Overflow`], if the template rejects the messages, or if no device is left.
    /// Also the errors of `listener`.
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

    /// Forgets the first turn, unless it is the last.
    fn forget_oldest_turn(&mut self) -> bool {
        let messages = self.messages.iter().enumerate();
        let mut said = messages.filter(|(_, message)| message.role() == "user");
        let (Some((first, _)), Some((second, _))) = (said.next(), said.next()) else {
            return false;
        };
        self.messages.drain(first..second);
        true
    }

    /// The prompt of messages, as text and tokens. The session keeps the tokens that it has read.
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

    /// Tokens that stay in a full context: those of the system prompt.
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
    /// Fails if the file cannot be written.
    pub(super) fn save(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(&json!({"messages": self.messages}))?;
        std::fs::write(path, text + "\n").with_context(|| {
            format!(
                "{}: cannot write the file; check the directory and its permissions",
                path.display()
            )
        })
    }

    /// Goes on with the messages of a file: an object with `messages`, or an array of them.
    ///
    /// # Errors
    /// Fails if the file cannot be read or has another format. The conversation is then unchanged.
    pub(super) fn load(&mut self, path: &Path) -> Result<()> {
        let read = messages(&text::from_file(path)?);
        self.messages = read.with_context(|| path.display().to_string())?;
        Ok(())
    }
}

/// The messages of a file with this text: an object with `messages`, or an array of them.
fn messages(text: &str) -> Result<Vec<Message>> {
    let value: Value = serde_json::from_str(text)
        .map_err(|e| anyhow!("not JSON ({e}); expected what /save writes"))?;
    Ok(Message::list(value.get("messages").unwrap_or(&value))?)
}

/// Parsed tokens of an answer.
#[derive(Default)]
struct Read {
    /// Their text, with control tokens.
    raw: String,
    /// The content, and the reasoning before it.
    answer: Answer,
}

/// Tokens of an answer as text.
struct Reader<'a> {
    tokenizer: &'a Tokenizer,
    decoder: StreamDecoder<'a>,
    parser: AnswerParser,
    stops: StopTexts,
    read: Read,
}

impl<'a> Reader<'a> {
    fn new(tokenizer: &'a Tokenizer, parser: AnswerParser, stops: &[String]) -> Self {
        Self {
            tokenizer,
            decoder: tokenizer.decoder(),
            parser,
            stops: StopTexts::new(stops.to_vec()),
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
        // The token that ends an answer is not part of it.
        let steps = match self.tokenizer.is_end_of_generation(id) {
            true => Vec::new(),
            false => self.parser.push(&piece),
        };
        let text = self.take(steps, listener)?;
        let heard = listener.text(&text)?;
        Ok(match self.stops.found() {
            Some(_) => ControlFlow::Break(()),
            None => heard,
        })
    }

    /// Keeps the pieces of steps. Returns the piece of the answer itself, to be shown.
    fn take(&mut self, steps: Vec<AnswerPart>, listener: &mut impl Listener) -> Result<String> {
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

    /// Returns the text that was kept back.
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
                "the model has no chat template; using {DEFAULT_FAMILY} (--chat-template selects another)"
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

#[cfg(test)]
mod tests {
    use rustorch_fuzz::Target;

    use super::*;
    use crate::failure::told;

    fn seeds() -> Vec<Vec<u8>> {
        let call = json!({"id": "1", "type": "function", "function": {"name": "f", "arguments": "{\"a\": 1}"}});
        let talk = json!([
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "content": "é", "name": "f", "tool_call_id": "1"},
        ]);
        let whole = json!({ "messages": talk });
        [talk, whole].map(|it| it.to_string().into_bytes()).into()
    }

    /// Messages that were taken are written, and read again unchanged.
    fn read(bytes: &[u8]) -> Result<(), String> {
        let read = |text: &str| messages(text).map_err(|e| told(&e));
        let found = read(&String::from_utf8_lossy(bytes))?;
        let written = json!({ "messages": found }).to_string();
        let again = json!({ "messages": read(&written)? }).to_string();
        assert_eq!(again, written);
        Ok(())
    }

    #[test]
    fn damaged_transcripts_are_refused_in_a_line() {
        static TRANSCRIPT: Target = Target {
            name: "transcript",
            seeds,
            read,
            rounds: 5000,
        };
        TRANSCRIPT.stand();
    }
}
