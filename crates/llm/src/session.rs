//! A run of a model: tokens in, logits out.

use std::ops::Range;
use std::slice;
use std::sync::atomic::{AtomicU64, Ordering};

use rustorch_ir::DType;
use rustorch_runtime::{
    DeviceType, Explanation, Fetched, Preference, PreferredUnits, Routing, Runtime,
};
use rustorch_tensor::{RusTorchError, Tensor, with_runtime};

use crate::LlmError;
use crate::kv_cache::{LayerCache, check_cache, new_cache};
use crate::model::Model;
use crate::selection::{Scores, Selection, read_choice};
use crate::step::{Step, Wanted};

/// How a [`Session`] runs.
#[derive(Clone, Debug)]
pub struct SessionOptions {
    /// Tokens the context has room for; 0 for as many as the model was trained with.
    pub context: usize,
    /// Tokens of a prompt that go through the model together.
    pub batch: usize,
    /// Element type of keys and values: `f16`, `bf16`, `f32` or `Q8_0`, whose rows are
    /// whole blocks of 32.
    pub cache_dtype: DType,
    /// Which devices may be used.
    pub routing: Routing,
    /// The device of each layer, from the first on, as
    /// [`select_backend`](crate::select_backend) chooses them; those that are not here are
    /// left to the runtime.
    pub layers: Vec<DeviceType>,
    /// To compare with: the type that values are converted to, and back, where they go from one
    /// device to another, see [`Trace::converting`](rustorch_tensor::Trace::converting). `None`
    /// converts nothing there.
    pub converting: Option<DType>,
}

impl Default for SessionOptions {
    fn default() -> Self {
        Self {
            context: 0,
            batch: 512,
            cache_dtype: DType::F16,
            routing: Routing::default(),
            layers: Vec::new(),
            converting: None,
        }
    }
}

/// Tokens so far, with their keys and values, and the programs that add more.
///
/// When a device is lost, so is what only its memory held. The session then makes its cache
/// again from the tokens, on whatever device is next, and goes on.
pub struct Session<'m> {
    model: &'m Model,
    runtime: Runtime,
    options: SessionOptions,
    context: usize,
    tokens: Vec<u32>,
    /// How the tokens were fed: the length of each batch. Kernels for one token and for many
    /// add in different orders, so the cache is made again in the same batches.
    batches: Vec<usize>,
    cache: Vec<LayerCache>,
    /// Two programs for one token, which take turns where the device runs ahead of the host, the
    /// one for the latest size that is not among [`FEW`], and those for these.
    steps: [Option<Step>; FEW_AT + FEW.len()],
    ahead: Option<Ahead>,
}

/// Tokens that went through models.
static TOKENS: AtomicU64 = AtomicU64::new(0);

/// Tokens that all sessions of this process together have been fed so far, those of prompts and those
/// that were generated.
pub fn tokens_processed() -> u64 {
    TOKENS.load(Ordering::Relaxed)
}

/// The step of the latest other size.
const PROMPT: usize = 2;

/// Where the steps of [`FEW`] tokens begin.
const FEW_AT: usize = 3;

/// Sizes of batches that come again and again, where tokens are checked that may be right: each has a
/// program of its own, that stays.
pub(crate) const FEW: [usize; 5] = [2, 3, 4, 8, 16];

/// The place of the step for a batch of so many tokens.
fn place(tokens: usize) -> usize {
    match FEW.iter().position(|&few| few == tokens) {
        _ if tokens == 1 => 0,
        Some(i) => FEW_AT + i,
        None => PROMPT,
    }
}

/// A pass over one token that was queued before the host knew which: the best one of the pass
/// before, which the device handed on by itself.
struct Ahead {
    /// Where the pass before ended.
    past: usize,
    /// The token, as soon as it is known.
    token: Option<u32>,
    wanted: Wanted,
    /// Which of the steps.
    step: usize,
    /// The token that it chooses.
    chosen: Fetched,
}

impl Ahead {
    /// Is it the pass over these tokens?
    fn is_over(&self, past: usize, batch: &[u32], wanted: &Wanted) -> bool {
        self.past == past && batch == self.token.as_slice() && self.wanted == *wanted
    }
}

impl<'m> Session<'m> {
    /// An empty session of `model` on the devices of `runtime`.
    ///
    /// # Errors
    /// There is no memory for the cache; an option makes no sense.
    pub fn new(
        model: &'m Model,
        runtime: &Runtime,
        options: SessionOptions,
    ) -> Result<Self, LlmError> {
        let context = match options.context {
            0 => model.config().context,
            n => n,
        };
        if options.batch == 0 {
            return Err(LlmError::Input(
                "a batch needs at least one token".to_owned(),
            ));
        }
        check_cache(model.config(), options.cache_dtype)?;
        Ok(Self {
            model,
            runtime: runtime.clone(),
            context,
            tokens: Vec::with_capacity(context.min(1 << 16)),
            batches: Vec::with_capacity(context.min(1 << 16)),
            cache: new_cache(
                model.config(),
                context,
                options.cache_dtype,
                &options.layers,
            )?,
            options,
            steps: [const { None }; FEW_AT + FEW.len()],
            ahead: None,
        })
    }

    /// The model.
    pub fn model(&self) -> &'m Model {
        self.model
    }

    /// Tokens of a prompt that go through the model together.
    pub fn batch(&self) -> usize {
        self.options.batch
    }

    /// The tokens so far.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Tokens the context has room for.
    pub fn context(&self) -> usize {
        self.context
    }

    /// How the tokens were fed: the length of each batch.
    pub(crate) fn batches(&self) -> &[usize] {
        &self.batches
    }

    pub(crate) fn cache(&self) -> &[LayerCache] {
        &self.cache
    }

    pub(crate) fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Forgets what is not the beginning of `tokens`, and always the last of them, so that there
    /// is one to feed. Returns how many are still there: what follows them is to be fed.
    pub fn keep_prefix(&mut self, tokens: &[u32]) -> usize {
        let pairs = self.tokens.iter().zip(tokens);
        let same = pairs.take_while(|(a, b)| a == b).count();
        let kept = same.min(tokens.len().saturating_sub(1));
        self.truncate(kept);
        kept
    }

    /// Makes room in a full context: keeps the first `keep` tokens, forgets the older half of the
    /// others, and computes the newer half again, in its new place, by the programs for `selection`.
    /// Returns how many are forgotten.
    ///
    /// # Errors
    /// As [`Self::feed`].
    pub fn shift(&mut self, keep: usize, selection: &Selection) -> Result<usize, LlmError> {
        let keep = keep.min(self.tokens.len());
        let dropped = (self.tokens.len() - keep).div_ceil(2);
        let rest = self.tokens[keep + dropped..].to_vec();
        self.truncate(keep);
        self.feed_ahead_of(&rest, selection)?;
        Ok(dropped)
    }

    /// Puts other tokens, fed in these batches, with their keys and values in the place of all
    /// that there are.
    pub(crate) fn replace(
        &mut self,
        cache: Vec<LayerCache>,
        tokens: Vec<u32>,
        batches: Vec<usize>,
    ) -> Result<(), LlmError> {
        self.truncate(0);
        self.rebind(&cache)?;
        (self.cache, self.tokens, self.batches) = (cache, tokens, batches);
        Ok(())
    }

    /// Makes the programs write to another cache.
    fn rebind(&mut self, cache: &[LayerCache]) -> Result<(), LlmError> {
        for step in self.steps.iter_mut().flatten() {
            for (old, new) in self.cache.iter().zip(cache) {
                for (old, new) in [(&old.keys, &new.keys), (&old.values, &new.values)] {
                    if let Some(old) = old.storage_in_memory() {
                        step.rebind(&old, &new.storage()?)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Forgets all tokens but the first `len`. What the device has begun beyond them is waited
    /// for.
    pub fn truncate(&mut self, len: usize) {
        if let Some(ahead) = self.ahead.take() {
            // Should this have failed, so will the next pass, which says why.
            let _ = read_choice(ahead.chosen, None);
        }
        self.tokens.truncate(len);
        let mut rest = self.tokens.len();
        self.batches.retain_mut(|batch| {
            *batch = rest.min(*batch);
            rest -= *batch;
            *batch > 0
        });
    }

    /// Adds tokens; `logits` becomes the scores `[vocab]` of the token after the last.
    ///
    /// # Errors
    /// They do not fit the context, one is outside the vocabulary, or no device is left.
    pub fn feed(&mut self, tokens: &[u32], logits: &mut Vec<f32>) -> Result<(), LlmError> {
        let mut scores = [Scores {
            ids: None,
            logits: std::mem::take(logits),
        }];
        let fed = self.feed_wanting(tokens, &Wanted::logits(1), &mut scores);
        let [Scores { logits: read, .. }] = scores;
        *logits = read;
        fed
    }

    /// Adds tokens; `scores` becomes what `selection` asks for of the scores of the token after
    /// the last. The best are found by the device that computes the logits.
    ///
    /// # Errors
    /// As [`Self::feed`].
    pub fn feed_and_select(
        &mut self,
        tokens: &[u32],
        selection: &Selection,
        scores: &mut Scores,
    ) -> Result<(), LlmError> {
        let wanted = Wanted::best(1, selection, self.model.config().vocab);
        self.feed_wanting(tokens, &wanted, slice::from_mut(scores))
    }

    /// Adds tokens in one batch; for each of them an element of `scores` becomes what `selection`
    /// asks for of the scores of the token after it.
    ///
    /// # Errors
    /// As [`Self::feed`].
    pub fn feed_and_select_each(
        &mut self,
        tokens: &[u32],
        selection: &Selection,
        scores: &mut Vec<Scores>,
    ) -> Result<(), LlmError> {
        self.check(tokens)?;
        scores.resize(tokens.len(), Scores::default());
        let wanted = Wanted::best(tokens.len(), selection, self.model.config().vocab);
        self.step(tokens, &wanted, Some(scores))
    }

    /// Adds tokens, behind which others follow that [`Self::feed_and_select`] adds with the same
    /// selection: nobody waits for scores.
    ///
    /// # Errors
    /// As [`Self::feed`].
    pub fn feed_ahead_of(&mut self, tokens: &[u32], selection: &Selection) -> Result<(), LlmError> {
        self.check(tokens)?;
        let wanted = Wanted::best(1, selection, self.model.config().vocab);
        let mut batches = tokens.chunks(self.options.batch);
        batches.try_for_each(|batch| self.step(batch, &wanted, None))
    }

    fn feed_wanting(
        &mut self,
        tokens: &[u32],
        wanted: &Wanted,
        scores: &mut [Scores],
    ) -> Result<(), LlmError> {
        self.check(tokens)?;
        let batches = tokens.chunks(self.options.batch);
        let last = batches.len().saturating_sub(1);
        for (i, batch) in batches.enumerate() {
            // Of all but the last, only the cache counts.
            let scores = (i == last).then_some(&mut *scores);
            self.step(batch, wanted, scores)?;
        }
        Ok(())
    }

    /// Adds tokens and hands out the logits of every one of them: for each batch, the
    /// positions and their rows of `[vocab]`.
    ///
    /// # Errors
    /// As [`Self::feed`], and those of `each`.
    pub fn feed_all<E: From<LlmError>>(
        &mut self,
        tokens: &[u32],
        mut each: impl FnMut(Range<usize>, &[f32]) -> Result<(), E>,
    ) -> Result<(), E> {
        self.check(tokens)?;
        let mut scores = [Scores::default()];
        for batch in tokens.chunks(self.options.batch) {
            let start = self.tokens.len();
            self.step(batch, &Wanted::logits(batch.len()), Some(&mut scores))?;
            each(start..self.tokens.len(), &scores[0].logits)?;
        }
        Ok(())
    }

    /// Where each operation of a pass over `tokens` tokens that gives what `selection` asks for
    /// would go now, and why; how long it took, if the session has run such a pass while the runtime was
    /// [profiling](Runtime::set_profiling).
    ///
    /// # Errors
    /// No device can run some operation.
    pub fn explain(
        &self,
        tokens: usize,
        selection: &Selection,
    ) -> Result<Vec<Explanation>, LlmError> {
        let wanted = Wanted::best(1, selection, self.model.config().vocab);
        let mut known = self.steps.iter().flatten();
        let explained = match known.find(|step| step.is_for(tokens, &wanted)) {
            Some(step) => step.executable().explain(),
            None => {
                let options = &self.options;
                let step = with_runtime(&self.runtime, options.routing, || {
                    Step::new(self.model, &self.cache, tokens, wanted, options.converting)
                })?;
                step.executable().explain()
            }
        };
        Ok(explained.map_err(RusTorchError::from)?)
    }

    /// What devices that choose from several units say they prefer for a pass over `tokens` tokens that
    /// gives what `selection` asks for; nothing if the session has not run such a pass. That is no
    /// word about what ran where.
    pub fn preferred_units(&self, tokens: usize, selection: &Selection) -> Vec<PreferredUnits> {
        let wanted = Wanted::best(1, selection, self.model.config().vocab);
        let mut known = self.steps.iter().flatten();
        let step = known.find(|step| step.is_for(tokens, &wanted));
        step.map_or(Vec::new(), |step| step.executable().preferred_units())
    }

    /// Bytes that its programs work in: intermediate values, and what devices hand on; see
    /// [`Executable::working_bytes`](rustorch_runtime::Executable::working_bytes).
    pub fn working_bytes(&self) -> usize {
        let bytes = |step: &Step| step.executable().working_bytes().unwrap_or(0);
        self.steps.iter().flatten().map(bytes).sum()
    }

    /// Bytes of keys and values, of which the system provides those that are written to.
    pub fn cache_bytes(&self) -> usize {
        let tensors = self.cache.iter().flat_map(|c| [&c.keys, &c.values]);
        let bytes = |t: &Tensor| t.dtype().bytes_of(t.shape()).unwrap_or(0);
        tensors.map(bytes).sum()
    }

    /// The devices that a pass over one token is offered to as a whole.
    pub(crate) fn preference(&self) -> Result<Preference, LlmError> {
        let SessionOptions {
            routing,
            converting,
            ..
        } = self.options;
        let step = with_runtime(&self.runtime, routing, || {
            Step::new(self.model, &self.cache, 1, Wanted::logits(1), converting)
        })?;
        Ok(step.executable().preference())
    }

    /// Whether `tokens` could be added.
    pub(crate) fn check(&self, tokens: &[u32]) -> Result<(), LlmError> {
        let (have, more) = (self.tokens.len(), tokens.len());
        if have + more > self.context {
            return Err(LlmError::ContextFull {
                have,
                more,
                size: self.context,
                trained: self.model.config().context,
            });
        }
        let vocab = self.model.config().vocab;
        match tokens.iter().find(|&&id| id as usize >= vocab) {
            Some(&id) => Err(LlmError::Token { id, vocab }),
            None => Ok(()),
        }
    }

    /// One pass over a batch. Should the cache be lost with its device, it is made again.
    fn step(
        &mut self,
        batch: &[u32],
        wanted: &Wanted,
        mut scores: Option<&mut [Scores]>,
    ) -> Result<(), LlmError> {
        let past = self.tokens.len();
        let _span = self.runtime.span(match batch.len() {
            1 => "decode",
            _ => "prompt",
        });
        let mut result = self.pass(past, batch, wanted, scores.as_deref_mut());
        while matches!(&result, Err(LlmError::Tensor(e)) if e.is_data_lost()) {
            tracing::warn!(
                "the cache was lost with its device: making it again from {past} tokens"
            );
            result = self
                .rebuild(wanted)
                .and_then(|()| self.pass(past, batch, wanted, scores.as_deref_mut()));
        }
        result?;
        TOKENS.fetch_add(batch.len() as u64, Ordering::Relaxed);
        self.tokens.extend_from_slice(batch);
        self.batches.push(batch.len());
        Ok(())
    }

    /// Makes the cache again from the tokens so far, by the programs that are there.
    fn rebuild(&mut self, wanted: &Wanted) -> Result<(), LlmError> {
        let wanted = &wanted.of_last();
        let SessionOptions {
            cache_dtype,
            ref layers,
            ..
        } = self.options;
        let cache = new_cache(self.model.config(), self.context, cache_dtype, layers)?;
        self.rebind(&cache)?;
        self.cache = cache;
        let (tokens, batches) = (self.tokens.clone(), self.batches.clone());
        let mut done = 0;
        for len in batches {
            self.pass(done, &tokens[done..done + len], wanted, None)?;
            done += len;
        }
        Ok(())
    }

    /// Runs the program for a batch that begins at position `past`, unless that has begun.
    fn pass(
        &mut self,
        past: usize,
        batch: &[u32],
        wanted: &Wanted,
        scores: Option<&mut [Scores]>,
    ) -> Result<(), LlmError> {
        let begun = self.ahead.take();
        let begun = begun.filter(|ahead| ahead.is_over(past, batch, wanted));
        let (at, chosen) = match begun {
            Some(Ahead { step, chosen, .. }) => (step, Some(chosen)),
            None => {
                let at = place(batch.len());
                let runtime = self.runtime.clone();
                let step = self.step_for(at, batch.len(), wanted)?;
                step.run(&runtime, batch, past)?;
                (at, None)
            }
        };
        let (Some(scores), Some(step)) = (scores, &self.steps[at]) else {
            return Ok(());
        };
        let Some(id) = step.choice() else {
            return step.read(&self.runtime, scores);
        };
        let chosen = chosen.unwrap_or_else(|| self.runtime.fetch(id));
        if step.executable().is_queued() {
            // Should this fail, so will the pass when it is asked for, and say why.
            self.ahead = self
                .run_ahead(at, past + batch.len(), wanted)
                .ok()
                .flatten();
        }
        let id = read_choice(chosen, scores.first_mut())?;
        if let Some(ahead) = &mut self.ahead {
            ahead.token = Some(id);
        }
        Ok(())
    }

    /// Queues the pass over the token that step `before` chooses, whose place is `past`, if the
    /// context has room for it.
    fn run_ahead(
        &mut self,
        before: usize,
        past: usize,
        wanted: &Wanted,
    ) -> Result<Option<Ahead>, LlmError> {
        if past >= self.context {
            return Ok(None);
        }
        let next = usize::from(before == 0);
        self.step_for(next, 1, wanted)?;
        let Ok([Some(before), Some(step)]) = self.steps.get_disjoint_mut([before, next]) else {
            return Ok(None);
        };
        step.run_behind(before)?;
        let chosen = step.choice().map(|id| self.runtime.fetch(id));
        Ok(chosen.map(|chosen| Ahead {
            past,
            token: None,
            wanted: wanted.clone(),
            step: next,
            chosen,
        }))
    }

    /// The program for one token.
    pub(crate) fn token_step(&mut self, wanted: &Wanted) -> Result<&mut Step, LlmError> {
        self.step_for(0, 1, wanted)
    }

    /// The program for so many tokens, in this place among the steps.
    fn step_for(
        &mut self,
        at: usize,
        tokens: usize,
        wanted: &Wanted,
    ) -> Result<&mut Step, LlmError> {
        let place = &mut self.steps[at];
        // The old program's memory goes before the new one's comes.
        place.take_if(|step| !step.is_for(tokens, wanted));
        match place {
            Some(step) => Ok(step),
            none => {
                let (model, cache, options) = (self.model, &self.cache, &self.options);
                let step = with_runtime(&self.runtime, options.routing, || {
                    Step::new(model, cache, tokens, wanted.clone(), options.converting)
                })?;
                Ok(none.insert(step))
            }
        }
    }
}
