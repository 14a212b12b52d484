//! `serve`: models over HTTP.

pub(super) mod run_batch;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result};
use clap::Args;
use rustorch_chat::ReasoningFormat;
use rustorch_llm::engine::EngineOptions;
use rustorch_llm::spec::Pooling;
use rustorch_llm::{EncoderOptions, Engine, hugging_face};
use rustorch_server::{Keys, Limits, ServeOptions, ServedModel, Server};
use rustorch_tensor::with_runtime;

use super::chat::templates;
use crate::args::{ChangeArgs, ContextArgs, DeviceArgs, KeyArgs, PoolingArg};
use crate::bundled;
use crate::devices::Devices;
use crate::failure::Usage;
use crate::model::Source;
use crate::output::note;

const EXAMPLES: &str = "\
Examples:
  rustorch-cli serve -m model.gguf                     serve a model on http://127.0.0.1:8080
  rustorch-cli serve -m a.gguf -m b.gguf --port 8000   serve two models, which requests name `a` and `b`
  rustorch-cli serve -m model.gguf --host 0.0.0.0 --api-key-file keys.txt

The server has the interfaces of OpenAI, Anthropic, ollama and llama-server: docs/server.md lists the paths.";

/// Models that answer requests, and how they do.
#[derive(Debug, Args)]
pub(super) struct ServedArgs {
    /// Model: a GGUF file, the first part of a split one, or a folder of Hugging Face's transformers; repeatable.
    /// Requests name a model by its file's name without the extension [default: the bundled model]
    #[arg(short, long, value_name = "FILE")]
    model: Vec<PathBuf>,

    /// Names of the model in requests, with commas between them: the first is shown, the others are understood.
    /// Only with one model
    #[arg(short, long, value_name = "NAMES", value_delimiter = ',')]
    alias: Vec<String>,

    #[command(flatten)]
    keys: KeyArgs,

    #[command(flatten)]
    changes: ChangeArgs,

    /// Number of texts that each model computes at once, each with a context of -c tokens (-np)
    #[arg(long, value_name = "N", default_value_t = 4, help_heading = "Server")]
    parallel: usize,

    /// Compute a text by the same sums alone and in company, on the CPU: at most 8 texts in one pass
    #[arg(long, help_heading = "Server")]
    batch_invariant: bool,

    /// Pooling of tokens into a text's vector, for embeddings [default: the model's]
    #[arg(long, value_enum, value_name = "KIND", help_heading = "Server")]
    pooling: Option<PoolingArg>,

    /// Chat template: the name of a model family, a file, or the template itself [default: the model's own]
    #[arg(
        long,
        visible_alias = "chat-template-file",
        value_name = "NAME|FILE",
        help_heading = "Conversation"
    )]
    chat_template: Option<OsString>,

    /// Handling of reasoning: `none` leaves it in the answer; `auto`, `deepseek` and `deepseek-legacy` separate it
    #[arg(
        long,
        value_name = "FORMAT",
        default_value = "auto",
        help_heading = "Conversation"
    )]
    reasoning_format: ReasoningFormat,

    #[command(flatten)]
    context: ContextArgs,

    #[command(flatten)]
    pub(super) devices: DeviceArgs,
}

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    #[command(flatten)]
    models: ServedArgs,

    /// Name or address to listen on; 0.0.0.0 for all networks
    #[arg(
        long,
        value_name = "HOST",
        default_value = "127.0.0.1",
        help_heading = "Server"
    )]
    host: String,

    /// Port to listen on; 0 for a free one
    #[arg(
        long,
        value_name = "PORT",
        default_value_t = 8080,
        help_heading = "Server"
    )]
    port: u16,

    /// File of API keys, one a line. Requests then need one of them
    #[arg(long, value_name = "FILE", help_heading = "Server")]
    api_key_file: Option<PathBuf>,

    /// Number of requests to each model that may wait; more are refused
    #[arg(long, value_name = "N", default_value_t = 256, help_heading = "Server")]
    queue: usize,
}

pub(super) fn run(options: &Options) -> Result<ExitCode> {
    options.models.check()?;
    let keys = match &options.api_key_file {
        None => Keys::none(),
        Some(path) => options.read_keys(path)?,
    };
    let devices = Devices::open(&options.models.devices)?;
    // A port that is taken is told before models are loaded.
    let server = Server::bind(ServeOptions {
        host: options.host.clone(),
        port: options.port,
        keys,
        limits: Limits::default(),
        devices: devices.runtime.clone(),
    })?;
    let models = options.models.load(options.queue, &devices)?;
    note(format_args!("listening on http://{}", server.address()));
    server.run(models)?;
    Ok(ExitCode::SUCCESS)
}

impl Options {
    fn read_keys(&self, path: &Path) -> Result<Keys> {
        let keys = Keys::read(path)
            .with_context(|| format!("{}: cannot read the keys", path.display()))?;
        match keys.is_empty() {
            true => Err(Usage(format!("{}: the file has no key", path.display())).into()),
            false => Ok(keys),
        }
    }
}

impl ServedArgs {
    /// # Errors
    /// Fails if nothing could be computed.
    pub(super) fn check(&self) -> Result<(), Usage> {
        if self.parallel == 0 {
            return Err(Usage("--parallel 0: give at least one text".to_owned()));
        }
        if !self.alias.is_empty() && self.model.len() > 1 {
            let problem = "--alias names one model, and there are several; rename their files";
            return Err(Usage(problem.to_owned()));
        }
        Ok(())
    }

    /// Texts that are computed at once.
    pub(super) fn parallel(&self) -> usize {
        self.parallel
    }

    /// The models. `queue` requests to each of them may wait.
    ///
    /// # Errors
    /// Fails if a model cannot be loaded, or if memory is too small for its texts.
    pub(super) fn load(&self, queue: usize, devices: &Devices) -> Result<Vec<ServedModel>> {
        let paths: Vec<Option<&PathBuf>> = match self.model.as_slice() {
            [] => vec![None],
            models => models.iter().map(Some).collect(),
        };
        let models = paths.into_iter();
        let models = models.map(|path| self.load_one(path, queue, devices));
        models.collect()
    }

    fn load_one(
        &self,
        path: Option<&PathBuf>,
        queue: usize,
        devices: &Devices,
    ) -> Result<ServedModel> {
        let source = Source::changed(path.cloned(), &self.keys, &self.changes);
        let model = with_runtime(&devices.runtime, devices.routing, || source.load())?;
        let tokenizer = model.tokenizer().with_context(|| source.to_string())?;
        let templates = templates(&model, tokenizer, self.chat_template.as_deref())?;
        let bytes = model.gguf().file_bytes();
        let model = Arc::new(model);
        let engine = match model.spec().makes_texts() {
            false => None,
            true => {
                let options = EngineOptions {
                    sequences: self.parallel,
                    queue,
                    session: self.context.session(&model, devices)?.session,
                    batch_invariant: self.batch_invariant,
                };
                Some(Engine::new(model.clone(), &devices.runtime, options)?)
            }
        };
        let file = name(path.map(PathBuf::as_path));
        let mut names = self.alias.iter().cloned();
        Ok(ServedModel {
            name: names.next().unwrap_or(file),
            aliases: names.collect(),
            path: source.to_string(),
            engine,
            model,
            devices: devices.runtime.clone(),
            encoder: EncoderOptions {
                pooling: self.pooling.map(Pooling::from),
                routing: devices.routing,
                ..EncoderOptions::default()
            },
            templates,
            reasoning: self.reasoning_format,
            bytes,
        })
    }
}

/// The name of a model in requests.
fn name(path: Option<&Path>) -> String {
    let Some(path) = path else {
        return bundled::NAME.to_owned();
    };
    let folder = hugging_face::folder(path);
    let name = match &folder {
        Some(folder) => folder.file_name(),
        None => path.file_stem(),
    };
    name.unwrap_or(path.as_os_str())
        .to_string_lossy()
        .into_owned()
}
