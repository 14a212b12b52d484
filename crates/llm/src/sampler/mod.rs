//! Choosing the next token from a model's logits.
//!
//! The chain is llama.cpp's, in its order and with its defaults (`common/common.h`, `common/sampling.cpp`),
//! unless the caller sets another order. With the same seed and the same logits it draws the same tokens.
//! Two points that C++ leaves open are fixed here: candidates of equal logit are ordered by token id, and a
//! NaN logit counts as −∞. Infinite logits are valid: those of +∞ share all the probability, and if every
//! logit is −∞ all tokens are equally likely.
//!
//! A grammar may constrain a chain ([`SamplerChain::constrain`]). It first chooses without the
//! grammar, as in llama.cpp. If the choice breaks the grammar, it chooses again among the allowed
//! tokens. If no token can continue the text, the result is an error, never a token.

//!
//! A sampler is a file here and a line in the list below. The file defines its options, from which the
//! builder's methods of [`SamplerConfig`], checks of values and the program's options derive.

mod adaptive_p;
mod candidates;
mod config;
mod definition;
mod dist;
mod dry;
mod infill;
mod kind;
mod logit_bias;
mod min_p;
mod mirostat;
mod mt19937;
mod penalties;
mod temperature;
mod top_k;
mod top_n_sigma;
mod top_p;
mod typical;
mod xtc;

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;

use rustorch_grammar::{Constraint, GrammarError};

use candidates::Candidates;
use definition::{Definition, sampler, samplers};
use dist::Dist;
use logit_bias::LogitBias;
use temperature::Greedy;

pub use definition::{Bounds, OptionValue, SamplerOption};
pub use dry::Breakers;
pub use infill::InfillTokens;
pub use kind::UnknownSampler;

use crate::LlmError;
use crate::selection::{Scores, Selection};

// In the order of the program's help.
samplers! {
    temperature: Temperature,
    top_k: TopK,
    top_p: TopP,
    min_p: MinP,
    typical: Typical,
    penalties: Penalties,
    top_n_sigma: TopNSigma,
    xtc: Xtc,
    dry: Dry,
    mirostat: Mirostat,
    adaptive_p: AdaptiveP,
    infill: Infill,
}

/// One step of the chain: reweighs the candidates or leaves fewer of them. The last leaves one.
trait Sampler {
    /// Changes `candidates`; at least one is left.
    fn apply(&mut self, candidates: &mut Candidates);

    /// Learns that `token` is now part of the text.
    fn accept(&mut self, _token: u32) {}
}

type Samplers = Vec<Box<dyn Sampler + Send>>;

/// The samplers of a [`SamplerConfig`], with a memory of the text so far.
pub struct SamplerChain {
    samplers: Samplers,
    candidates: Candidates,
    banned: Arc<[u32]>,
    /// Number of the best tokens that the chain looks at; `None` for all.
    looks_at: Option<usize>,
    seed: u32,
    constraint: Option<Constraint>,
    /// Logits among which only those in the form are possible.
    masked: Vec<f32>,
    /// Does the chain always pick the likeliest token?
    is_greedy: bool,
    /// The probabilities that the samplers left at the last choice, if they are kept.
    left: Option<Vec<(u32, f32)>>,
}

impl SamplerChain {
    /// Builds the chain without disabled samplers.
    ///
    /// # Errors
    /// [`LlmError`] for a value that is NaN, infinite or out of range where it is not allowed.
    pub fn new(config: &SamplerConfig) -> Result<Self, LlmError> {
        config.validate()?;
        let seed = config.seed.unwrap_or_else(random_seed);
        let config = config.resolved();
        let looks_at = config.looks_at();
        let samplers = match looks_at {
            // The candidates that the others leave have the best among them.
            Some(1) => vec![Box::new(Greedy) as Box<dyn Sampler + Send>],
            _ => samplers(&config, seed),
        };
        Ok(Self {
            samplers,
            candidates: Candidates::default(),
            banned: Arc::default(),
            looks_at,
            seed,
            constraint: None,
            masked: Vec::new(),
            is_greedy: looks_at == Some(1),
            left: None,
        })
    }

    /// Constrains later choices by a grammar.
    pub fn constrain(&mut self, constraint: Constraint) {
        self.constraint = Some(constraint);
        self.looks_at = None;
    }

    /// Keeps the probabilities of each choice, for [`probabilities`](Self::probabilities).
    pub fn keep_probabilities(&mut self) {
        self.left = Some(Vec::new());
    }

    /// The tokens that the samplers left at the last choice, with their probabilities, the likeliest first. Empty
    /// unless [`keep_probabilities`](Self::keep_probabilities) was called.
    pub fn probabilities(&self) -> &[(u32, f32)] {
        self.left.as_deref().unwrap_or_default()
    }

    /// Excludes these tokens from now on, as long as others remain.
    pub fn ban(&mut self, tokens: &[u32]) {
        self.banned = tokens.into();
    }

    /// The logits that the chain needs: if it begins with the best tokens, only theirs.
    pub fn selection(&self) -> Selection {
        Selection {
            best: self.looks_at,
            banned: self.banned.clone(),
        }
    }

    /// Chooses a token from the logits that [`Self::selection`] requests. The choice is that of
    /// [`Self::sample`] from all logits.
    ///
    /// # Errors
    /// The same errors as [`Self::sample`].
    ///
    /// # Panics
    /// The same errors as [`Self::sample`].
    pub fn choose(&mut self, scores: &Scores) -> Result<u32, GrammarError> {
        match &scores.ids {
            None => self.sample(&scores.logits),
            Some(ids) => {
                self.candidates.load_best(ids, &scores.logits);
                Ok(self.apply())
            }
        }
    }

    /// Chooses a token, `logits[id]` being the model's score of token `id`. The chain does not
    /// remember its choice until [`advance`](Self::advance) is called.
    ///
    /// # Errors
    /// Fails if no token can continue the text in its grammar.
    ///
    /// # Panics
    /// Panics if `logits` is empty: a model without a vocabulary has no next token.
    pub fn sample(&mut self, logits: &[f32]) -> Result<u32, GrammarError> {
        let token = self.sample_freely(logits);
        if self.allows(token)? {
            return Ok(token);
        }
        let mut masked = std::mem::take(&mut self.masked);
        masked.clear();
        masked.extend_from_slice(logits);
        if let Some(constraint) = &mut self.constraint {
            constraint.mask()?.apply(&mut masked);
        }
        let token = self.sample_freely(&masked);
        self.masked = masked;
        match self.allows(token)? {
            true => Ok(token),
            false => Err(GrammarError::Failed {
                reason: "every token that continues it is banned".to_owned(),
            }),
        }
    }

    /// Whether this token is in the form.
    fn allows(&mut self, token: u32) -> Result<bool, GrammarError> {
        let constraint = self.constraint.as_mut();
        constraint.map_or(Ok(true), |constraint| constraint.allows(token))
    }

    fn sample_freely(&mut self, logits: &[f32]) -> u32 {
        self.candidates.load(logits);
        self.banned.iter().for_each(|&id| self.candidates.ban(id));
        self.apply()
    }

    fn apply(&mut self) -> u32 {
        assert!(
            !self.candidates.entries.is_empty(),
            "sampling needs the logits of at least one token"
        );
        // The last one draws, unless the likeliest token is the only one that is left.
        let (others, last) = match (self.is_greedy, self.samplers.split_last_mut()) {
            (false, Some((last, others))) => (others, Some(last)),
            _ => (&mut self.samplers[..], None),
        };
        for sampler in others {
            sampler.apply(&mut self.candidates);
        }
        if let Some(left) = &mut self.left {
            self.candidates.softmax();
            left.clear();
            let entries = self.candidates.entries.iter();
            left.extend(entries.filter(|it| it.p > 0.0).map(|it| (it.id, it.p)));
            left.sort_unstable_by(|(a, p), (b, q)| q.total_cmp(p).then(a.cmp(b)));
        }
        if let Some(last) = last {
            last.apply(&mut self.candidates);
        }
        self.candidates.entries[0].id
    }

    /// Adds `token` to the text that samplers look at. It includes the prompt and the generated
    /// tokens, as in llama.cpp. Only generated tokens must follow the grammar: see
    /// [`advance`](Self::advance).
    pub fn accept(&mut self, token: u32) {
        for sampler in &mut self.samplers {
            sampler.accept(token);
        }
    }

    /// Adds `token`, which was generated, to the text.
    ///
    /// # Errors
    /// Fails if the grammar does not allow the token.
    pub fn advance(&mut self, token: u32) -> Result<(), GrammarError> {
        self.accept(token);
        let constraint = self.constraint.as_mut();
        constraint.map_or(Ok(()), |constraint| constraint.accept(token))
    }

    /// Returns whether the text may end here by its grammar. False without a grammar.
    pub fn is_complete(&self) -> bool {
        self.constraint
            .as_ref()
            .is_some_and(Constraint::is_complete)
    }

    /// The seed in use: the configured one, or the one chosen at random.
    pub fn seed(&self) -> u32 {
        self.seed
    }
}

/// The samplers that take part, in order, and the one that draws.
fn samplers(config: &SamplerConfig, seed: u32) -> Samplers {
    let mut samplers: Samplers = Vec::new();
    if !config.logit_bias.is_empty() {
        samplers.push(Box::new(LogitBias(config.logit_bias.clone())));
    }
    samplers.extend(config.active().map(|sampler| sampler.sampler(seed)));
    samplers.push(match config.draw() {
        Some(sampler) => sampler.sampler(seed),
        None => Box::new(Dist::new(seed)),
    });
    samplers
}

/// A seed from the operating system's entropy, which the standard library uses for hash keys.
fn random_seed() -> u32 {
    RandomState::new().build_hasher().finish() as u32
}
