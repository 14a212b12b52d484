//! Generating text: the program without a command.

use std::io::{self, StdoutLock};
use std::ops::ControlFlow;
use std::process::{self, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use indicatif::ProgressBar;
use rustorch_llm::{
    Event, GenerateOptions, Generated, LayerBackend, Model, Selection, Session, Speed, Stop,
    generate_with,
};
use rustorch_runtime::{Fallback, Rules};
use rustorch_tensor::distributed::CommunicationGroup;
use rustorch_tensor::{Activity, with_runtime};
use rustorch_tokenizer::{EncodeOptions, StreamDecoder, Tokenizer};
use serde_json::json;

use super::chat;
use super::ranks::{RankArgs, any};
use crate::args::{
    ChatArgs, ContextArgs, DeviceArgs, Format, LengthArgs, ModelArgs, SamplingArgs,
    SpeculationArgs, TextArgs,
};
use crate::devices::Devices;
use crate::failure::{INTERRUPTED, Usage};
use crate::model::{self, Source};
use crate::output::{is_in_line, json_line, note, stream};
use crate::sampling::Words;
use crate::settings::{Settings, layer_runs, layers_json};
use crate::speculation::Guesses;
use crate::{bundled, progress, text};

#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    model: ModelArgs,

    #[command(flatten)]
    text: TextArgs,

    #[command(flatten)]
    length: LengthArgs,

    /// Number of first tokens that --context-shift keeps (attention sinks); -1 for the whole prompt
    #[arg(
        long,
        value_name = "N",
        default_value_t = 4,
        allow_negative_numbers = true
    )]
    #[arg(value_parser = clap::value_parser!(i64).range(-1..))]
    keep: i64,

    /// Process escapes in the prompt: \n, \t, \r, \\, \' and \"
    #[arg(short, long)]
    escape: bool,

    /// Run in conversation mode, like `chat`; options of conversations imply it (-cnv)
    #[arg(long)]
    conversation: bool,

    /// Do not print the prompt
    #[arg(long)]
    no_display_prompt: bool,

    /// Print special tokens (-sp)
    #[arg(long)]
    special: bool,

    /// Output format: text streams. json prints one object at the end: text, ids, devices, fallbacks, timings
    /// and more (docs/generation.md lists the fields)
    #[arg(long, value_enum, default_value_t)]
    format: Format,

    #[command(flatten)]
    chat: ChatArgs,

    #[command(flatten)]
    sampling: SamplingArgs,

    #[command(flatten)]
    speculation: SpeculationArgs,

    #[command(flatten)]
    context: ContextArgs,

    /// Division of a model: layer leaves whole layers to devices; row divides heads and features among --ranks or
    /// --gpus
    #[arg(
        long,
        value_enum,
        value_name = "MODE",
        default_value_t,
        help_heading = "Ranks"
    )]
    split_mode: SplitMode,

    #[command(flatten)]
    ranks: RankArgs,

    #[command(flatten)]
    devices: DeviceArgs,
}

/// The division of a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum SplitMode {
    #[default]
    Layer,
    Row,
}

/// A prompt as text and as tokens.
pub(super) struct Prompt {
    text: String,
    pub(super) ids: Vec<u32>,
}

pub(crate) fn run(options: &Options, start: Instant) -> Result<ExitCode> {
    if options.conversation || options.chat.is_conversation() {
        return chat::run(&options.conversation()?);
    }
    options.sampling.check()?;
    let run =
        |devices: &DeviceArgs, group: &CommunicationGroup| run_rank(options, devices, group, start);
    options
        .ranks
        .run(&options.devices, |ranks| options.check_ranks(ranks), run)
}

fn run_rank(
    options: &Options,
    devices: &DeviceArgs,
    group: &CommunicationGroup,
    start: Instant,
) -> Result<ExitCode> {
    let (devices, source) = (Devices::open(devices)?, options.source());
    // Conversions while loading count too.
    let load = || source.divided(group).load();
    let model = with_runtime(&devices.runtime, devices.routing, load)?;
    let guesses = options.speculation.open(&devices)?;
    let tokenizer = model.tokenizer().with_context(|| source.to_string())?;
    let prompt = options.prompt(&source, tokenizer)?;
    let mut sampling = options.sampling.clone();
    if group.size() > 1 && sampling.seed < 0 {
        sampling.seed = common_seed(group)?;
    }
    let mut sampler = sampling.chain(&Words::of(Some(tokenizer)))?;
    let settings = options.settings(&model, &devices)?;
    let mut session = Session::new(&model, &devices.runtime, settings.session)?;
    let interrupted = interrupts()?;
    let limits = options.limits(&prompt);
    model::load(&mut session, &limits.selection(&model, &mut sampler))?;
    let mut speculation = guesses.start(&options.context, &session)?;
    let cache = options.chat.prompt_cache.as_deref();
    if let Some(path) = cache.filter(|path| path.exists()) {
        session.restore(path)?;
    }
    let kept = session.keep_prefix(&prompt.ids);
    prompt.ids[..kept].iter().for_each(|&id| sampler.accept(id));
    let fed = &prompt.ids[kept..];
    let load = start.elapsed();

    tracing::info!("generating, after {} tokens of prompt", prompt.ids.len());
    let is_first = group.rank() == 0;
    let mut writer = Writer::new(options, tokenizer, &prompt, fed.len());
    writer.is_silent |= !is_first;
    let speculation = speculation.as_mut();
    let on_event = |event| {
        writer.hear(event)?;
        let is_interrupted = any(group, interrupted.load(Ordering::Relaxed))?;
        Ok::<_, anyhow::Error>(match is_interrupted {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        })
    };
    let generated = generate_with(
        &mut session,
        fed,
        &mut sampler,
        &limits,
        speculation,
        on_event,
    );
    let text = writer.end()?;
    let generated = generated?;
    if let Some(path) = cache.filter(|_| is_first) {
        session.save(path)?;
    }
    let outcome = Outcome {
        prompt: &prompt,
        generated,
        text,
        devices: &devices,
        guesses: &guesses,
        layers: &settings.layers,
        seed: sampler.seed(),
        context: session.context(),
        load,
    };
    match options.format {
        Format::Text => outcome.summary(),
        Format::Json if !is_first => {}
        Format::Json => json_line(&mut io::stdout().lock(), &outcome.json())?,
    }
    Ok(match outcome.generated.stop {
        Stop::Caller => ExitCode::from(INTERRUPTED),
        Stop::End | Stop::Limit | Stop::Context => ExitCode::SUCCESS,
    })
}

/// The seed of rank 0, by which all ranks choose the same tokens.
fn common_seed(group: &CommunicationGroup) -> Result<i64> {
    let seed = SystemTime::now().duration_since(UNIX_EPOCH)?.subsec_nanos();
    let mut seed = [seed];
    let data = seed[..].as_mut().into();
    group.group().broadcast(data, 0)?;
    Ok(seed[0].into())
}

impl Options {
    /// Fails if several ranks have nothing to divide.
    fn check_ranks(&self, ranks: usize) -> Result<()> {
        let problem = match (self.split_mode, ranks) {
            (SplitMode::Layer, 2..) => "several ranks divide a model with --split-mode row",
            (SplitMode::Row, 1) => "--split-mode row needs --ranks or --gpus, or a launcher",
            (SplitMode::Row, _) if self.chat.prompt_cache.is_some() => {
                "--prompt-cache: a rank has its own heads alone; omit it with --split-mode row"
            }
            _ => return Ok(()),
        };
        Err(Usage(problem.to_owned()).into())
    }

    /// The same as options of `chat`.
    fn conversation(&self) -> Result<chat::Options> {
        if self.format == Format::Json {
            let problem =
                "--format json does not apply to conversations (/save writes one as JSON)";
            return Err(Usage(problem.to_owned()).into());
        }
        Ok(chat::Options {
            model: self.model.clone(),
            text: self.text.clone(),
            length: self.length,
            chat: self.chat.clone(),
            sampling: self.sampling.clone(),
            speculation: self.speculation.clone(),
            context: self.context.clone(),
            devices: self.devices.clone(),
        })
    }

    pub(super) fn devices(&self) -> Result<Devices> {
        Devices::open(&self.devices)
    }

    pub(super) fn source(&self) -> Source {
        Source::from(&self.model)
    }

    pub(super) fn settings(&self, model: &Model, devices: &Devices) -> Result<Settings> {
        self.context.session(model, devices)
    }

    pub(super) fn format(&self) -> Format {
        self.format
    }

    /// The given prompt. Without one, a model begins by itself if it can, and the bundled one
    /// begins a story.
    pub(super) fn prompt(&self, source: &Source, tokenizer: &Tokenizer) -> Result<Prompt> {
        let text = match text::prompt(&self.text)? {
            Some(text) if self.escape => text::unescape(&text),
            Some(text) => text,
            None if source.is_bundled() => bundled::OPENING.to_owned(),
            None => String::new(),
        };
        // A prompt may contain special tokens, as in llama.cpp.
        let encode = EncodeOptions {
            add_special: true,
            parse_special: true,
        };
        let ids = tokenizer.encode(&text, encode);
        Ok(Prompt { text, ids })
    }

    /// The selection of every pass.
    pub(super) fn selection(&self, model: &Model) -> Result<Selection> {
        let mut sampler = self.sampling.chain(&Words::of(model.tokenizer().ok()))?;
        Ok(self.length.limits(None).selection(model, &mut sampler))
    }

    fn limits(&self, prompt: &Prompt) -> GenerateOptions {
        // All of the prompt for a number below 0.
        let keep = usize::try_from(self.keep).unwrap_or(prompt.ids.len());
        self.length
            .limits(self.length.context_shift.then_some(keep))
    }
}

/// A flag that Ctrl-C sets; a second Ctrl-C ends the program at once.
pub(super) fn interrupts() -> Result<Arc<AtomicBool>> {
    let interrupted = Arc::new(AtomicBool::new(false));
    let flag = interrupted.clone();
    ctrlc::set_handler(move || {
        if flag.swap(true, Ordering::Relaxed) {
            process::exit(INTERRUPTED.into());
        }
    })
    .context("Ctrl-C cannot be handled")?;
    Ok(interrupted)
}

/// Streams the text to standard output, and the prompt's progress to standard error.
struct Writer<'a> {
    options: &'a Options,
    tokenizer: &'a Tokenizer,
    prompt: &'a Prompt,
    /// Tokens of the prompt that go through the model.
    fed: usize,
    bar: ProgressBar,
    decoder: StreamDecoder<'a>,
    out: StdoutLock<'a>,
    /// The generated text.
    text: String,
    /// Is no text shown?
    is_silent: bool,
}

impl<'a> Writer<'a> {
    fn new(options: &'a Options, tokenizer: &'a Tokenizer, prompt: &'a Prompt, fed: usize) -> Self {
        Self {
            options,
            tokenizer,
            prompt,
            fed,
            bar: progress::steps("prompt", fed),
            decoder: tokenizer.decoder(),
            out: io::stdout().lock(),
            text: String::new(),
            is_silent: options.format == Format::Json,
        }
    }

    fn hear(&mut self, event: Event) -> io::Result<()> {
        match event {
            Event::Prompt { done } if done < self.fed => {
                self.bar.set_position(done as u64);
                Ok(())
            }
            // The bar goes before text comes: both may be on the same terminal.
            Event::Prompt { .. } => {
                self.bar.finish_and_clear();
                match self.options.no_display_prompt {
                    true => Ok(()),
                    false => self.show(&self.prompt.text),
                }
            }
            Event::Token(id) => {
                let mut text = self.decoder.push(id).to_owned();
                if self.options.special && self.tokenizer.is_control(id) {
                    text.push_str(self.tokenizer.token_text(id).unwrap_or_default());
                }
                self.text.push_str(&text);
                self.show(&text)
            }
            Event::Full => Ok(()),
            Event::Shifted { dropped } => {
                tracing::info!("the context was full; dropped {dropped} tokens");
                Ok(())
            }
        }
    }

    /// Writes the rest of the text and ends the line.
    fn end(mut self) -> io::Result<String> {
        self.bar.finish_and_clear();
        let rest = std::mem::replace(&mut self.decoder, self.tokenizer.decoder()).finish();
        self.text.push_str(&rest);
        self.show(&rest)?;
        if is_in_line() {
            self.show("\n")?;
        }
        Ok(self.text)
    }

    fn show(&mut self, text: &str) -> io::Result<()> {
        if self.is_silent || text.is_empty() {
            return Ok(());
        }
        stream(&mut self.out, text)
    }
}

/// The results of a run.
struct Outcome<'a> {
    prompt: &'a Prompt,
    generated: Generated,
    text: String,
    devices: &'a Devices,
    guesses: &'a Guesses<'a>,
    layers: &'a [LayerBackend],
    seed: u32,
    context: usize,
    /// From the program's start until the prompt.
    load: Duration,
}

impl Outcome<'_> {
    /// Says on standard error how it went.
    fn summary(&self) {
        let Generated {
            stop,
            prompt,
            decode,
            ref speculation,
            ..
        } = self.generated;
        if stop == Stop::Context {
            note(format_args!(
                "\nstopped: the context of {} tokens is full (-c sets its size)",
                self.context
            ));
        }
        let speed = |speed: Speed| match speed.per_second() {
            Some(rate) => format!("{} tokens, {rate:.1} tokens/s", speed.tokens),
            None => format!("{} tokens", speed.tokens),
        };
        note(format_args!(
            "\nload {:.0} ms · prompt {} · decode {} · seed {}",
            milliseconds(self.load),
            speed(prompt),
            speed(decode),
            self.seed,
        ));
        if let Some(told) = self.guesses.summary(speculation) {
            note(told);
        }
        let fallbacks = match self.devices.runtime.fallbacks().len() {
            0 => "no fallbacks".to_owned(),
            1 => "1 fallback".to_owned(),
            n => format!("{n} fallbacks"),
        };
        let activity = match self.devices.routing.rules {
            Rules::F32Hybrid => format!(" · {}", Activity::of(&self.devices.runtime)),
            Rules::Selector | Rules::MacHybrid => String::new(),
        };
        note(format_args!(
            "backend {} · ran on {} · {} CPU threads · {fallbacks}{activity}",
            self.devices.name,
            self.devices.used().join(", "),
            self.devices.threads,
        ));
    }

    fn json(&self) -> serde_json::Value {
        let Generated {
            stop,
            prompt,
            decode,
            ref ids,
            ref speculation,
        } = self.generated;
        let fallbacks = self.devices.runtime.fallbacks();
        let activity = Activity::of(&self.devices.runtime);
        json!({
            "prompt_ids": self.prompt.ids,
            "ids": ids,
            "text": self.text,
            "backend": self.devices.name,
            "devices": self.devices.used(),
            "layers": layers_json(&layer_runs(self.layers)),
            "fallbacks": fallbacks.iter().map(fallback_json).collect::<Vec<_>>(),
            "conversions": activity.conversions,
            "copies": activity.copied.copies,
            "copied_bytes": activity.copied.bytes,
            "stop": stop_name(stop),
            "speculation": self.guesses.json(speculation),
            "seed": self.seed,
            "timings": {
                "load_ms": milliseconds(self.load),
                "prompt_n": prompt.tokens,
                "prompt_tps": prompt.per_second(),
                "decode_n": decode.tokens,
                "decode_tps": decode.per_second(),
            },
        })
    }
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn stop_name(stop: Stop) -> &'static str {
    match stop {
        Stop::End => "end",
        Stop::Limit => "limit",
        Stop::Context => "context",
        Stop::Caller => "interrupt",
    }
}

fn fallback_json(fallback: &Fallback) -> serde_json::Value {
    let error = &fallback.error;
    json!({
        "from": error.device.to_string(),
        "to": fallback.to.map(|device| device.to_string()),
        "op": error.op,
        "class": error.class.to_string(),
        "message": error.message,
    })
}
