//! A conversation with a model.

mod conversation;
mod editor;
mod markdown;
mod screen;
mod slash;
mod tools;
mod turn;
mod wrap;

use std::io::{self, IsTerminal};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result};
use clap::{Args, CommandFactory, FromArgMatches, Parser};
use rustorch_chat::Message;
use rustorch_llm::{GenerateOptions, Generated, Model, Session};
use rustorch_tensor::with_runtime;

use crate::args::{
    ChatArgs, ContextArgs, DeviceArgs, LengthArgs, ModelArgs, SamplingArgs, SpeculationArgs,
    TextArgs,
};
use crate::devices::Devices;
use crate::failure::{self, INTERRUPTED};
use crate::model::{self, Source};
use crate::sampling::Words;
use crate::speculation::Guesses;
use crate::text;
pub(super) use conversation::templates;
use conversation::{Conversation, Overflow};
use editor::{Editor, Line};
use screen::{Interrupts, remark};
use slash::{Slash, help, spoken};
use tools::{Approval, Tools};

#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    pub(super) model: ModelArgs,

    /// The first user message
    #[command(flatten)]
    pub(super) text: TextArgs,

    #[command(flatten)]
    pub(super) length: LengthArgs,

    #[command(flatten)]
    pub(super) chat: ChatArgs,

    #[command(flatten)]
    pub(super) sampling: SamplingArgs,

    #[command(flatten)]
    pub(super) speculation: SpeculationArgs,

    #[command(flatten)]
    pub(super) context: ContextArgs,

    #[command(flatten)]
    pub(super) devices: DeviceArgs,
}

/// Options that can change during a conversation.
#[derive(Debug, Parser)]
#[command(name = "/set", no_binary_name = true, disable_help_flag = true)]
struct Settable {
    #[command(flatten)]
    sampling: SamplingArgs,
}

/// Next step of the conversation.
enum Next {
    End(ExitCode),
    /// Continue with another model, and these messages.
    Model(Box<Model>, Vec<Message>),
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let tools = options.chat.tool_command.as_deref().map(Tools::read);
    let tools = tools.transpose()?.unwrap_or_default();
    let approval = Approval::of(&options.chat.tool_approve, &tools)?;
    let devices = Devices::open(&options.devices)?;
    let source = Source::from(&options.model);
    let load = |source: &Source| with_runtime(&devices.runtime, devices.routing, || source.load());
    let mut model = Box::new(load(&source)?);
    let guesses = options.speculation.open(&devices)?;
    let mut messages = options
        .system()?
        .as_deref()
        .map(Message::system)
        .into_iter()
        .collect();
    let mut chat = Chat {
        options,
        devices: &devices,
        guesses: &guesses,
        sampling: options.sampling.clone(),
        interrupts: Interrupts::new()?,
        first: options.first()?,
        input: Input::new(options)?,
        tools,
        approval,
        answers: 0,
        last: None,
    };
    loop {
        match chat.converse(&model, messages, &load)? {
            Next::End(code) => return Ok(code),
            Next::Model(other, said) => (model, messages) = (other, said),
        }
    }
}

impl Options {
    /// The text that the user says first. Standard input is read before messages are read from it.
    fn first(&self) -> Result<Option<String>> {
        match self.text.is_given() {
            true => text::prompt(&self.text),
            false => Ok(None),
        }
    }

    /// The system prompt.
    fn system(&self) -> Result<Option<String>> {
        let ChatArgs {
            system_prompt,
            system_prompt_file,
            ..
        } = &self.chat;
        match system_prompt_file {
            Some(path) => Ok(Some(text::from_option(path)?.trim_end().to_owned())),
            None => Ok(system_prompt.clone()),
        }
    }
}

/// The source of the user's messages.
enum Input {
    /// A terminal.
    Editor(Box<Editor>),
    /// A pipe, or a file: a message a line.
    Lines(io::Lines<io::StdinLock<'static>>),
    /// A single message.
    Once(Option<String>),
}

impl Input {
    fn new(options: &Options) -> Result<Self> {
        let given = options.text.is_given();
        match (given && options.chat.single_turn, io::stdin().is_terminal()) {
            (true, _) => Ok(Self::Once(None)),
            (false, true) => Ok(Self::Editor(Box::new(Editor::new()?))),
            (false, false) => Ok(Self::Lines(io::stdin().lines())),
        }
    }

    fn is_terminal(&self) -> bool {
        matches!(self, Self::Editor(_))
    }

    /// The next thing that is said. On a terminal one begins to edit with `text`.
    fn next(&mut self, text: &str) -> Result<Line> {
        Ok(match self {
            Self::Editor(editor) => editor.read(text)?,
            Self::Lines(lines) => match lines.next().transpose().context("standard input")? {
                Some(line) => Line::Said(line),
                None => Line::End,
            },
            Self::Once(said) => said.take().map_or(Line::End, Line::Said),
        })
    }
}

struct Chat<'a> {
    options: &'a Options,
    devices: &'a Devices,
    guesses: &'a Guesses<'a>,
    sampling: SamplingArgs,
    interrupts: Arc<Interrupts>,
    /// The text that the user says first, if the options have it.
    first: Option<String>,
    input: Input,
    tools: Tools,
    approval: Approval,
    /// Answers so far: each has its own random numbers.
    answers: i64,
    last: Option<Generated>,
}

impl<'a> Chat<'a> {
    /// Talks until the end, or until another model is asked for.
    fn converse(
        &mut self,
        model: &Model,
        messages: Vec<Message>,
        load: &impl Fn(&Source) -> Result<Model>,
    ) -> Result<Next> {
        let settings = self.options.context.session(model, self.devices)?;
        let mut session = Session::new(model, &self.devices.runtime, settings.session)?;
        let words = Words::of(model.tokenizer().ok());
        let mut sampler = self.sampling.chain(&words)?;
        let selection = self.limits().selection(model, &mut sampler);
        model::load(&mut session, &selection)?;
        self.restore(&mut session)?;
        let guesses: &'a Guesses = self.guesses;
        let speculation = guesses.start(&self.options.context, &session)?;
        let template = self.options.chat.chat_template.as_deref();
        let reasoning = self.options.chat.reasoning_format;
        let tools = self.tools.definitions();
        let mut talk = Conversation::new(session, words, template, reasoning, tools)?;
        talk.guess(speculation);
        talk.set_messages(messages);
        let mut edited = String::new();
        loop {
            let line = match self.first.take() {
                Some(said) => Line::Said(said),
                None => self.input.next(&std::mem::take(&mut edited))?,
            };
            let line = match line {
                Line::Said(line) => line,
                Line::Nothing => continue,
                Line::End => return self.end(&mut talk, ExitCode::SUCCESS),
            };
            if line.trim().is_empty() {
                continue;
            }
            let answers = match Slash::parse(&line) {
                None => {
                    let ChatArgs {
                        in_prefix,
                        in_suffix,
                        ..
                    } = &self.options.chat;
                    talk.say(&format!("{in_prefix}{}{in_suffix}", spoken(&line)));
                    true
                }
                Some(Err(problem)) => {
                    self.fails(anyhow::anyhow!(problem))?;
                    false
                }
                Some(Ok(Slash::Quit)) => return self.end(&mut talk, ExitCode::SUCCESS),
                Some(Ok(Slash::Model(path))) => match self.other(&path, load) {
                    Ok(model) => {
                        self.end(&mut talk, ExitCode::SUCCESS)?;
                        return Ok(Next::Model(Box::new(model), talk.messages().to_vec()));
                    }
                    Err(e) => {
                        self.fails(e)?;
                        false
                    }
                },
                Some(Ok(Slash::Edit)) => {
                    match talk.undo() {
                        Some(said) => edited = said,
                        None => self.fails(anyhow::anyhow!("/edit: there is no message yet"))?,
                    }
                    false
                }
                Some(Ok(slash)) => match self.command(slash, &mut talk) {
                    Ok(answers) => answers,
                    Err(e) => {
                        self.fails(e)?;
                        false
                    }
                },
            };
            if !answers {
                continue;
            }
            match self.turn(&mut talk) {
                Ok(true) if !self.input.is_terminal() => {
                    return self.end(&mut talk, ExitCode::from(INTERRUPTED));
                }
                Ok(_) if self.options.chat.single_turn => {
                    return self.end(&mut talk, ExitCode::SUCCESS);
                }
                Ok(_) => {}
                Err(e) => {
                    if e.is::<Overflow>() {
                        talk.undo();
                    }
                    self.fails(e)?;
                }
            }
        }
    }

    /// Another model to talk with.
    fn other(&self, path: &str, load: &impl Fn(&Source) -> Result<Model>) -> Result<Model> {
        let model = load(&Source::new(Some(path.into())))?;
        self.guesses.check(&model)?;
        Ok(model)
    }

    /// Reports a failure on a terminal, where the user can try again. Elsewhere it ends the program.
    fn fails(&self, error: anyhow::Error) -> Result<()> {
        match self.input.is_terminal() {
            true => {
                remark(format_args!("error: {}", failure::told(&error)));
                Ok(())
            }
            false => Err(error),
        }
    }

    fn limits(&self) -> GenerateOptions {
        self.options.length.limits(None)
    }

    /// Runs a command.
    fn command(&mut self, slash: Slash, talk: &mut Conversation) -> Result<bool> {
        match slash {
            Slash::System(text) => talk.set_system(&text),
            Slash::Clear => talk.clear(),
            Slash::Regenerate => {
                talk.forget_answer();
                let is_said = talk.messages().last().is_some_and(|m| m.role() == "user");
                anyhow::ensure!(is_said, "/regen: there is no message yet");
                return Ok(true);
            }
            Slash::Undo => {
                let undone = talk.undo();
                anyhow::ensure!(undone.is_some(), "/undo: there is no message yet");
            }
            Slash::Save(path) => {
                talk.save(Path::new(&path))?;
                remark(format_args!(
                    "saved {} messages to {path}",
                    talk.messages().len()
                ));
            }
            Slash::Load(path) => {
                talk.load(Path::new(&path))?;
                remark(format_args!(
                    "loaded {} messages from {path}",
                    talk.messages().len()
                ));
            }
            Slash::Set(Some((name, value))) => {
                self.set(&name, &value, talk.words())?;
            }
            Slash::Set(None) => remark(settings(&self.sampling)),
            Slash::Stats => {
                let fallbacks = self.devices.runtime.fallbacks().len();
                let last = self.last.take();
                let told = last.as_ref().map(|last| self.summary(last, talk));
                self.last = last;
                let told = told.unwrap_or_else(|| "there is no answer yet".to_owned());
                remark(format_args!("{told} · fallbacks {fallbacks}"));
            }
            Slash::Think => {
                let last = talk
                    .messages()
                    .iter()
                    .rev()
                    .find(|m| m.role() == "assistant");
                let thought = last.and_then(|message| message.get("reasoning_content"));
                remark(
                    thought
                        .and_then(|text| text.as_str())
                        .unwrap_or("the answer has no reasoning"),
                );
            }
            Slash::Tools => remark(self.listing()),
            Slash::Help => remark(help()),
            Slash::Edit | Slash::Model(_) | Slash::Quit => {}
        }
        Ok(false)
    }

    /// The tools, a line each.
    fn listing(&self) -> String {
        let line = |tool: &tools::Tool| {
            let asked = match self.approval.has(&tool.name) {
                true => " (approved)",
                false => "",
            };
            format!("{:<20} {}{asked}", tool.name, tool.description)
        };
        let lines: Vec<String> = self.tools.iter().map(line).collect();
        match lines.is_empty() {
            true => "no tools; --tool-command FILE adds them".to_owned(),
            false => lines.join("\n"),
        }
    }

    /// Changes an option of sampling.
    fn set(&mut self, name: &str, value: &str, words: &Words) -> Result<()> {
        // Options without a new value keep theirs, instead of becoming the defaults.
        let command = Settable::command().mut_args(|arg| arg.default_values([] as [&str; 0]));
        let option = format!("--{}={value}", name.trim_start_matches('-'));
        let told = |e: clap::Error| {
            let text = e.to_string();
            let line = text.lines().next().unwrap_or_default();
            let problem = line.strip_prefix("error: ").unwrap_or(line).to_owned();
            anyhow::anyhow!("/set {name} {value}: {problem} (/set lists all options)")
        };
        let matches = command.try_get_matches_from([option]).map_err(told)?;
        let mut changed = Settable {
            sampling: self.sampling.clone(),
        };
        changed.update_from_arg_matches(&matches).map_err(told)?;
        // Impossible values are refused now, not with the next answer.
        changed.sampling.chain(words)?;
        self.sampling = changed.sampling;
        Ok(())
    }

    /// Brings back keys and values of an earlier conversation, if there is a file of them.
    fn restore(&self, session: &mut Session) -> Result<()> {
        match &self.options.chat.prompt_cache {
            Some(path) if path.exists() && self.answers == 0 => {
                let tokens = session.restore(path)?;
                remark(format_args!("{}: {tokens} tokens", path.display()));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Writes the files to keep.
    fn end(&self, talk: &mut Conversation, code: ExitCode) -> Result<Next> {
        if let Some(path) = &self.options.chat.prompt_cache {
            talk.session().save(path)?;
        }
        Ok(Next::End(code))
    }
}

/// The options of sampling, as they are.
fn settings(sampling: &SamplingArgs) -> String {
    let options = serde_json::to_value(sampling).unwrap_or_default();
    let options = options.as_object().into_iter().flatten();
    let lines = options.map(
        |(name, value)| match value.as_f64().filter(|_| value.is_f64()) {
            // In the digits of an f32.
            Some(number) => format!("{name:<20} {}", number as f32),
            None => format!("{name:<20} {value}"),
        },
    );
    lines.collect::<Vec<_>>().join("\n")
}
