//! The libraries' options for sampling.

use std::cell::OnceCell;
use std::path::Path;

use anyhow::{Context, Result, bail};
use rustorch_grammar::{Constraint, Grammar, Vocabulary};
use rustorch_llm::sampler::{SamplerChain, SamplerConfig, SamplerKind};
use rustorch_tokenizer::Tokenizer;

use crate::args::{FormArgs, SamplingArgs};
use crate::failure::Usage;
use crate::text::from_option;

/// The texts of a model's tokens, if it has them.
pub(crate) struct Words<'t> {
    tokenizer: Option<&'t Tokenizer>,
    /// Once a text was held to a form: it takes long to make.
    vocabulary: OnceCell<Vocabulary>,
}

impl<'t> Words<'t> {
    pub(crate) fn of(tokenizer: Option<&'t Tokenizer>) -> Self {
        let vocabulary = OnceCell::new();
        Self {
            tokenizer,
            vocabulary,
        }
    }

    /// Holds texts of these tokens to a grammar.
    fn constraint(&self, grammar: &Grammar) -> Result<Constraint> {
        let vocabulary = match self.vocabulary.get() {
            Some(vocabulary) => vocabulary,
            None => {
                let tokenizer = self.tokenizer.context(
                    "this model has no vocabulary, which grammars, schemas and patterns need",
                )?;
                let vocabulary = Vocabulary::new(tokenizer)?;
                self.vocabulary.get_or_init(|| vocabulary)
            }
        };
        let constraint = grammar.constrain(vocabulary);
        Ok(constraint.map_err(|error| Usage(error.to_string()))?)
    }
}

impl SamplingArgs {
    /// Checks the values, as far as that is possible without a vocabulary. So errors come before a
    /// model is loaded.
    ///
    /// # Errors
    /// Fails if a value is out of range.
    pub(crate) fn check(&self) -> Result<(), Usage> {
        let checked = self.config()?.check();
        checked.map_err(|error| Usage(error.to_string()))
    }

    /// The chain that chooses tokens of a model.
    ///
    /// # Errors
    /// Fails if a value is out of range, or if there is no vocabulary. Also fails if the grammar
    /// cannot be enforced.
    pub(crate) fn chain(&self, words: &Words) -> Result<SamplerChain> {
        let mut config = self.config()?;
        if let Some(tokenizer) = words.tokenizer {
            config.bind(tokenizer);
        }
        let mut chain = SamplerChain::new(&config).map_err(|error| Usage(error.to_string()))?;
        if let Some(grammar) = self.form.grammar()? {
            chain.constrain(words.constraint(&grammar)?);
        }
        Ok(chain)
    }

    /// The chain's configuration, without parts that need a vocabulary.
    fn config(&self) -> Result<SamplerConfig, Usage> {
        let seed =
            match self.seed {
                -1 => None,
                seed => Some(u32::try_from(seed).map_err(|_| {
                    Usage(format!("--seed {seed}: expected -1, or 0 to {}", u32::MAX))
                })?),
            };
        Ok(SamplerConfig {
            seed,
            samplers: self.order(),
            logit_bias: self
                .logit_bias
                .iter()
                .map(|it| (it.token, it.bias))
                .collect(),
            ..self.options.0.clone()
        })
    }

    fn order(&self) -> Vec<SamplerKind> {
        match (&self.sampler_seq, self.samplers.as_slice()) {
            (Some(sequence), _) => sequence.0.clone(),
            (None, []) => SamplerKind::DEFAULT.to_vec(),
            (None, samplers) => samplers.to_vec(),
        }
    }
}

impl FormArgs {
    /// The form that was asked for.
    ///
    /// # Errors
    /// Fails if the grammar's file cannot be read, or if there are several grammars.
    fn grammar(&self) -> Result<Option<Grammar>> {
        /// Beginning of llama.cpp's grammars in Lark.
        const LARK: &str = "%llguidance";
        let schema = text(&self.json_schema, self.json_schema_file.as_deref())?;
        let grammar = text(&self.grammar, self.grammar_file.as_deref())?;
        let grammar = grammar.map(|grammar| match grammar.starts_with(LARK) {
            true => Grammar::Lark(grammar),
            false => Grammar::Gbnf(grammar),
        });
        let forms = [
            grammar,
            schema.map(Grammar::JsonSchema),
            self.regex.clone().map(Grammar::Regex),
            self.lark.clone().map(Grammar::Lark),
        ];
        let mut forms = forms.into_iter().flatten();
        match (forms.next(), forms.next()) {
            (form, None) => Ok(form),
            _ => bail!(Usage("give only one schema, grammar or pattern".to_owned())),
        }
    }
}

/// The text that was given, or that of the file.
fn text(given: &Option<String>, file: Option<&Path>) -> Result<Option<String>> {
    match (given, file) {
        (None, Some(path)) => from_option(path).map(Some),
        (given, _) => Ok(given.clone()),
    }
}
