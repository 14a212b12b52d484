//! The libraries' options for sampling.

use std::cell::OnceCell;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use rustorch_grammar::{Constraint, Grammar, Vocabulary};
use rustorch_llm::sampler::{
    Breakers, Dry, InfillTokens, Mirostat, MirostatVersion, SamplerChain, SamplerConfig,
    SamplerKind,
};
use rustorch_tokenizer::Tokenizer;

use crate::args::{FormArgs, SamplingArgs};
use crate::escape::unescape;
use crate::failure::Usage;
use crate::text::from_option;

/// Sequence breakers of llama.cpp.
const BREAKERS: [&str; 4] = ["\n", ":", "\"", "*"];

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
        let mut config = self.config()?;
        config.samplers.retain(|&kind| kind != SamplerKind::Infill);
        let chain = SamplerChain::new(&config);
        chain.map(drop).map_err(|error| Usage(error.to_string()))
    }

    /// The chain that chooses tokens of a model.
    ///
    /// # Errors
    /// Fails if a value is out of range, or if there is no vocabulary. Also fails if the grammar
    /// cannot be enforced.
    pub(crate) fn chain(&self, words: &Words) -> Result<SamplerChain> {
        let mut config = self.config()?;
        if let Some(tokenizer) = words.tokenizer {
            if config.dry.multiplier != 0.0 {
                config.dry.breakers = Arc::new(Breakers::new(&self.breakers(), tokenizer));
            }
            if config.samplers.contains(&SamplerKind::Infill) {
                config.infill = Some(Arc::new(InfillTokens::new(tokenizer)));
            }
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
            // llama.cpp takes -1 for the whole text.
            penalty_last_n: usize::try_from(self.repeat_last_n).unwrap_or(usize::MAX),
            repeat_penalty: self.repeat_penalty,
            frequency_penalty: self.frequency_penalty,
            presence_penalty: self.presence_penalty,
            dry: Dry {
                multiplier: self.dry_multiplier,
                base: self.dry_base,
                allowed_length: self.dry_allowed_length,
                last_n: self.dry_penalty_last_n,
                breakers: Arc::default(),
            },
            top_n_sigma: self.top_nsigma,
            top_k: usize::try_from(self.top_k).unwrap_or(0),
            typical_p: self.typical,
            top_p: self.top_p,
            min_p: self.min_p,
            xtc_probability: self.xtc_probability,
            xtc_threshold: self.xtc_threshold,
            temperature: self.temp,
            dynatemp_range: self.dynatemp_range,
            dynatemp_exponent: self.dynatemp_exp,
            adaptive_target: self.adaptive_target,
            adaptive_decay: self.adaptive_decay,
            mirostat: self.mirostat(),
            infill: None,
        })
    }

    fn order(&self) -> Vec<SamplerKind> {
        match (&self.sampler_seq, self.samplers.as_slice()) {
            (Some(sequence), _) => sequence.0.clone(),
            (None, []) => SamplerKind::DEFAULT.to_vec(),
            (None, samplers) => samplers.to_vec(),
        }
    }

    fn mirostat(&self) -> Option<Mirostat> {
        let version = match self.mirostat {
            1 => MirostatVersion::One,
            2 => MirostatVersion::Two,
            _ => return None,
        };
        Some(Mirostat {
            version,
            entropy: self.mirostat_ent,
            learning_rate: self.mirostat_lr,
        })
    }

    /// The texts given, or llama.cpp's; as there, those before `none` do not count.
    fn breakers(&self) -> Vec<String> {
        let given = &self.dry_sequence_breaker;
        match given.iter().rposition(|text| text == "none") {
            _ if given.is_empty() => BREAKERS.map(str::to_owned).to_vec(),
            Some(none) => given[none + 1..]
                .iter()
                .map(|text| unescape(text))
                .collect(),
            None => given.iter().map(|text| unescape(text)).collect(),
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
