//! Models that the server answers with.

pub(crate) mod adapters;
pub(crate) mod vectors;

use std::sync::{Arc, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};

use rustorch_chat::{ChatTemplates, ControlTokens, ReasoningFormat};
use rustorch_grammar::{Constraint, Grammar, Vocabulary};
use rustorch_llm::engine::{Engine, EngineStats};
use rustorch_llm::sampler::SamplerConfig;
use rustorch_llm::{EncoderOptions, Model, Scaling};
use rustorch_runtime::Runtime;
use rustorch_tokenizer::{EncodeOptions, Tokenizer};
use serde_json::{Value, json};

use crate::error::ApiError;
use crate::histogram::ModelMetrics;
use adapters::{Scale, scales};
use vectors::Vectors;

/// Values of what requests leave out.
#[derive(Clone, Debug, Default)]
pub struct RequestDefaults {
    /// The samplers, and the seed.
    pub sampler: SamplerConfig,
    /// The limit of an answer's tokens; `None` for the interface's own.
    pub max_tokens: Option<usize>,
    /// Drops the older half of a full context, where the text would end.
    pub context_shift: bool,
    /// Whether templates are asked for reasoning; `None` leaves it to the template.
    pub thinking: Option<bool>,
    /// Ends a last message of the assistant, where the answer would go on with it.
    pub ends_turns: bool,
    /// Shows the prompt in responses of chats.
    pub shows_prompt: bool,
}

/// A model to serve.
pub struct ServedModel {
    /// The name in requests.
    pub name: String,
    /// Further names in requests.
    pub aliases: Vec<String>,
    /// The file.
    pub path: String,
    /// The model.
    pub model: Arc<Model>,
    /// The engine; `None` for an encoder, which makes no texts.
    pub engine: Option<Engine>,
    /// The devices of its encoder.
    pub devices: Runtime,
    /// Options of its encoder. Vectors are scaled as requests want it.
    pub encoder: EncoderOptions,
    /// The templates of its conversations.
    pub templates: ChatTemplates,
    /// The handling of reasoning, unless a request has its own.
    pub reasoning: ReasoningFormat,
    /// The size of its file, in bytes.
    pub bytes: u64,
    /// Labels in the list of models.
    pub tags: Vec<String>,
    /// Values of what requests leave out.
    pub defaults: RequestDefaults,
    /// LoRA adapters, if there are some.
    pub adapters: Option<ServedAdapters>,
}

/// Makes a model again with other scales, one for each of its adapters.
type Rescale = Box<dyn Fn(&[f32]) -> Result<ServedModel, String> + Send + Sync>;

/// LoRA adapters of a model, whose scales requests change.
pub struct ServedAdapters {
    /// Files and scales.
    pub files: Vec<(String, f32)>,
    /// Makes the model again with other scales, one for each file.
    pub rescale: Rescale,
}

impl ServedAdapters {
    /// The adapters, as llama-server lists them.
    pub(crate) fn list(&self) -> Value {
        let one = |(id, (path, scale)): (usize, &(String, f32))| json!({"id": id, "path": path, "scale": scale});
        self.files.iter().enumerate().map(one).collect()
    }

    /// The scales of all adapters by those of some.
    ///
    /// # Errors
    /// Fails for an adapter that is not there, and for a scale that is no number.
    pub(crate) fn scales(&self, given: &[Scale]) -> Result<Vec<f32>, ApiError> {
        scales(given, self.files.len())
    }

    /// The scales now.
    pub(crate) fn current(&self) -> Vec<f32> {
        self.files.iter().map(|(_, scale)| *scale).collect()
    }
}

/// A model, with what answers need of it.
pub(crate) struct Loaded {
    pub(crate) name: String,
    pub(crate) aliases: Vec<String>,
    pub(crate) path: String,
    pub(crate) model: Arc<Model>,
    engine: Option<Engine>,
    pub(crate) vectors: Vectors,
    pub(crate) templates: ChatTemplates,
    pub(crate) reasoning: ReasoningFormat,
    pub(crate) bytes: u64,
    pub(crate) tags: Vec<String>,
    pub(crate) defaults: RequestDefaults,
    pub(crate) adapters: Option<ServedAdapters>,
    pub(crate) control: ControlTokens,
    /// Seconds since 1970.
    pub(crate) created: u64,
    pub(crate) metrics: ModelMetrics,
    /// Once a text was held to a form: it takes long to make.
    vocabulary: OnceLock<Result<Vocabulary, ApiError>>,
}

impl Loaded {
    /// # Errors
    /// Fails if the model has no vocabulary.
    pub(crate) fn new(model: ServedModel) -> Result<Arc<Self>, rustorch_llm::LlmError> {
        let ServedModel {
            name,
            aliases,
            path,
            model,
            engine,
            devices,
            encoder,
            templates,
            reasoning,
            bytes,
            tags,
            defaults,
            adapters,
        } = model;
        let encoder = EncoderOptions {
            scaling: Scaling::None,
            ..encoder
        };
        let control = ControlTokens::of(model.tokenizer()?);
        Ok(Arc::new(Self {
            control,
            name,
            aliases,
            path,
            model,
            engine,
            vectors: Vectors::new(devices, encoder),
            templates,
            reasoning,
            bytes,
            tags,
            defaults,
            adapters,
            created: now(),
            metrics: ModelMetrics::default(),
            vocabulary: OnceLock::new(),
        }))
    }

    /// The engine.
    ///
    /// # Errors
    /// Fails for a model that makes no texts.
    pub(crate) fn engine(&self) -> Result<&Engine, ApiError> {
        self.engine.as_ref().ok_or_else(|| {
            let name = &self.name;
            let problem = format!(
                "{name} is an encoder, which makes no texts: ask /v1/embeddings or /rerank"
            );
            ApiError::unsupported(problem)
        })
    }

    /// Figures of the engine; zeros without one.
    pub(crate) fn stats(&self) -> EngineStats {
        self.engine.as_ref().map(Engine::stats).unwrap_or_default()
    }

    /// The sequences that requests have now.
    pub(crate) fn busy_slots(&self) -> Vec<usize> {
        let engine = self.engine.as_ref();
        engine.map(Engine::busy_slots).unwrap_or_default()
    }

    /// Size of a text's context in tokens.
    pub(crate) fn context(&self) -> usize {
        let engine = self.engine.as_ref();
        engine.map_or(self.model.spec().context, Engine::context)
    }

    /// Texts that are computed at once.
    pub(crate) fn sequences(&self) -> usize {
        self.engine.as_ref().map_or(0, Engine::sequences)
    }

    /// The vocabulary.
    pub(crate) fn tokenizer(&self) -> &Tokenizer {
        let tokenizer = self.model.tokenizer();
        tokenizer.expect("the server takes models with vocabularies alone")
    }

    /// Tokens of a prompt, in which special tokens count, as in llama.cpp.
    pub(crate) fn encode(&self, text: &str) -> Vec<u32> {
        let options = EncodeOptions {
            add_special: true,
            parse_special: true,
        };
        self.tokenizer().encode(text, options)
    }

    /// The text of tokens, with the special ones.
    pub(crate) fn shown(&self, ids: &[u32]) -> String {
        let tokenizer = self.tokenizer();
        let mut decoder = tokenizer.decoder();
        let mut text = String::new();
        for &id in ids {
            text += decoder.push(id);
            if tokenizer.is_control(id) {
                text += tokenizer.token_text(id).unwrap_or_default();
            }
        }
        text + &decoder.finish()
    }

    /// Is it a name of this model?
    pub(crate) fn is_named(&self, name: &str) -> bool {
        self.name == name || self.aliases.iter().any(|alias| alias == name)
    }

    /// Checks that tokens are in the vocabulary.
    pub(crate) fn check_tokens(
        &self,
        param: &str,
        ids: impl IntoIterator<Item = u32>,
    ) -> Result<(), ApiError> {
        let size = self.tokenizer().vocab_size();
        match ids.into_iter().find(|&id| id as usize >= size) {
            None => Ok(()),
            Some(id) => Err(ApiError::field(
                param,
                format!("token {id} is not among the {size} of the vocabulary"),
            )),
        }
    }

    /// Checks that this many answers can be waited for at once.
    ///
    /// # Errors
    /// Fails with the field `param` if they never can. Also fails for a model that makes no texts.
    pub(crate) fn check_answers(&self, param: &str, answers: usize) -> Result<(), ApiError> {
        let most = self.engine()?.capacity();
        match answers <= most {
            true => Ok(()),
            false => {
                let problem = format!("{answers} answers; this server has at most {most} at once");
                Err(ApiError::field(param, problem))
            }
        }
    }

    /// Checks that a prompt of this many tokens leaves room for an answer.
    ///
    /// # Errors
    /// Fails if it does not, or is empty. Also fails for a model that makes no texts.
    pub(crate) fn check_prompt(&self, tokens: usize) -> Result<(), ApiError> {
        let context = self.engine()?.context();
        match tokens {
            0 => Err(ApiError::bad("the prompt is empty; give a text")),
            // There has to be room for the first token of the answer.
            _ if tokens >= context => Err(ApiError::context(tokens, context)),
            _ => Ok(()),
        }
    }

    /// Holds texts of the model to a grammar.
    ///
    /// # Errors
    /// Fails if the grammar is wrong, or cannot be enforced.
    pub(crate) fn constraint(&self, grammar: &Grammar) -> Result<Constraint, ApiError> {
        let vocabulary = self
            .vocabulary
            .get_or_init(|| Vocabulary::new(self.tokenizer()).map_err(ApiError::from));
        let vocabulary = vocabulary.as_ref().map_err(Clone::clone)?;
        Ok(grammar.constrain(vocabulary)?)
    }
}

/// Seconds since 1970.
pub(crate) fn now() -> u64 {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH);
    elapsed.map_or(0, |elapsed| elapsed.as_secs())
}
