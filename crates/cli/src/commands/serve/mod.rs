//! `serve`: models over HTTP.

mod defaults;
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
use rustorch_server::{
    Features, Keys, Limits, Origins, ServeOptions, ServedAdapters, ServedModel, Server,
};
use rustorch_tensor::with_runtime;

use super::chat::templates;
use crate::args::{ChangeArgs, ContextArgs, DeviceArgs, KeyArgs, PoolingArg};
use crate::bundled;
use crate::devices::Devices;
use crate::failure::Usage;
use crate::model::Source;
use crate::output::note;
use defaults::DefaultArgs;

const EXAMPLES: &str = "\
Examples:
  rustorch-cli serve -m model.gguf                     serve a model on http://127.0.0.1:8080
  rustorch-cli serve -m a.gguf -m b.gguf --port 8000   serve two models, which requests name `a` and `b`
  rustorch-cli serve -m model.gguf --host 0.0.0.0 --api-key-file keys.txt

The server has the interfaces of OpenAI, Anthropic, ollama and llama-server: docs/server.md lists the paths.";

/// Models that answer requests, and how they do.
#[derive(Clone, Debug, Args)]
pub(super) struct ServedArgs {
    /// Model: a GGUF file, the first part of a split one, or a folder of Hugging Face's transformers; repeatable.
    /// Requests name a model by its file's name without the extension [default: the bundled model]
    #[arg(short, long, value_name = "FILE")]
    model: Vec<PathBuf>,

    /// Names of the model in requests, with commas between them: the first is shown, the others are understood.
    /// Only with one model
    #[arg(short, long, value_name = "NAMES", value_delimiter = ',')]
    alias: Vec<String>,

    /// Labels of the models in the list of models, with commas between them
    #[arg(long, value_name = "LABELS", value_delimiter = ',')]
    tags: Vec<String>,

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
    defaults: DefaultArgs,

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

    /// Name or address to listen on; 0.0.0.0 for all networks. Separate several with commas
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

    /// API keys, with commas between them. Other programs of this machine may see them: a file is safer
    #[arg(
        long,
        value_name = "KEYS",
        conflicts_with = "api_key_file",
        help_heading = "Server"
    )]
    api_key: Option<String>,

    /// Origins of other pages that may ask, with commas between them: localhost for this machine's, * for all
    #[arg(
        long,
        value_name = "ORIGINS",
        default_value = "",
        hide_default_value = true,
        help_heading = "Server"
    )]
    cors_origins: Origins,

    /// Answer requests for unknown models by the first one, instead of status 404
    #[arg(long, help_heading = "Server")]
    any_model: bool,

    /// Serve no page
    #[arg(long, visible_alias = "no-webui", help_heading = "Server")]
    no_ui: bool,

    /// Show no slots, and act on none
    #[arg(long, help_heading = "Server")]
    no_slots: bool,

    /// Folder in which requests save and restore slots
    #[arg(long, value_name = "FOLDER", help_heading = "Server")]
    slot_save_path: Option<PathBuf>,

    /// Number of requests to each model that may wait; more are refused
    #[arg(long, value_name = "N", default_value_t = 256, help_heading = "Server")]
    queue: usize,
}

pub(super) fn run(options: &Options) -> Result<ExitCode> {
    options.models.check()?;
    let keys = options.keys()?;
    let features = options.features()?;
    let devices = Devices::open(&options.models.devices)?;
    // A port that is taken is told before models are loaded.
    let server = Server::bind(ServeOptions {
        host: options.host.clone(),
        port: options.port,
        keys,
        limits: Limits::default(),
        devices: devices.runtime.clone(),
        origins: options.cors_origins.clone(),
        features,
    })?;
    let models = options.models.load(options.queue, &devices)?;
    for address in server.addresses() {
        note(format_args!("listening on http://{address}"));
    }
    server.run(models)?;
    Ok(ExitCode::SUCCESS)
}

impl Options {
    /// # Errors
    /// Fails if there is no key where some were given.
    fn keys(&self) -> Result<Keys> {
        match (&self.api_key, &self.api_key_file) {
            (None, None) => Ok(Keys::none()),
            (None, Some(path)) => self.read_keys(path),
            (Some(keys), _) => {
                let keys = Keys::of(&keys.replace(',', "\n"));
                match keys.is_empty() {
                    true => Err(Usage("--api-key: there is no key".to_owned()).into()),
                    false => Ok(keys),
                }
            }
        }
    }

    /// # Errors
    /// Fails if the folder of slots is none.
    fn features(&self) -> Result<Features, Usage> {
        let folder = self.slot_save_path.as_ref();
        if let Some(path) = folder.filter(|path| !path.is_dir()) {
            let problem = format!(
                "--slot-save-path {}: there is no such folder",
                path.display()
            );
            return Err(Usage(problem));
        }
        Ok(Features {
            page: !self.no_ui,
            slots: !self.no_slots,
            slot_folder: folder.cloned(),
            any_model: self.any_model,
        })
    }

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
        self.defaults.values().map(drop)
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
        let models = models.map(|path| self.load_one(path, queue, devices, None));
        models.collect()
    }

    fn load_one(
        &self,
        path: Option<&PathBuf>,
        queue: usize,
        devices: &Devices,
        scales: Option<&[f32]>,
    ) -> Result<ServedModel> {
        let changes = match scales {
            None => self.changes.clone(),
            Some(scales) => self.changes.rescaled(scales),
        };
        let source = Source::changed(path.cloned(), &self.keys, &changes);
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
            tags: self.tags.clone(),
            defaults: self.defaults.values()?,
            adapters: self.adapters(&changes, path, queue, devices),
        })
    }
}

impl ServedArgs {
    /// The adapters of a model with these changes.
    fn adapters(
        &self,
        changes: &ChangeArgs,
        path: Option<&PathBuf>,
        queue: usize,
        devices: &Devices,
    ) -> Option<ServedAdapters> {
        let files = changes.adapters.loras();
        let (args, path, devices) = (self.clone(), path.cloned(), devices.clone());
        (!files.is_empty()).then(|| ServedAdapters {
            files: files
                .into_iter()
                .map(|it| (it.path.display().to_string(), it.scale))
                .collect(),
            rescale: Box::new(move |scales| {
                let again = args.load_one(path.as_ref(), queue, &devices, Some(scales));
                again.map_err(|error| format!("{error:#}"))
            }),
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
