//! Models that the server answers with.

use std::sync::{Arc, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};

use rustorch_chat::{ChatTemplates, ControlTokens, ReasoningFormat};
use rustorch_grammar::{Constraint, Grammar, Vocabulary};
use rustorch_llm::engine::Engine;
use rustorch_tokenizer::{EncodeOptions, Tokenizer};

use crate::error::ApiError;
use crate::histogram::ModelMetrics;

/// A model to serve.
pub struct ServedModel {
    /// The name in requests.
    pub name: String,
    /// The engine.
    pub engine: Engine,
    /// The templates of its conversations.
    pub templates: ChatTemplates,
    /// The handling of reasoning, unless a request has its own.
    pub reasoning: ReasoningFormat,
    /// The size of its file, in bytes.
    pub bytes: u64,
}

/// A model, with what answers need of it.
pub(crate) struct Loaded {
    pub(crate) name: String,
    pub(crate) engine: Engine,
    pub(crate) templates: ChatTemplates,
    pub(crate) reasoning: ReasoningFormat,
    pub(crate) bytes: u64,
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
            engine,
            templates,
            reasoning,
            bytes,
        } = model;
        let control = ControlTokens::of(engine.model().tokenizer()?);
        Ok(Arc::new(Self {
            control,
            name,
            engine,
            templates,
            reasoning,
            bytes,
            created: now(),
            metrics: ModelMetrics::default(),
            vocabulary: OnceLock::new(),
        }))
    }

    /// The vocabulary.
    pub(crate) fn tokenizer(&self) -> &Tokenizer {
        let tokenizer = self.engine.model().tokenizer();
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
