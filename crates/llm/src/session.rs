//! A run of a model: tokens in, logits out.

mod sharing;

use std::mem;
use std::ops::Range;
use std::slice;
use std::sync::atomic::{AtomicU64, Ordering};

use rustorch_ir::DType;
use rustorch_ir::passes::Stages;
use rustorch_runtime::{Explanation, Preference, PreferredUnits, Routing, Runtime};
use rustorch_tensor::{RusTorchError, Tensor, with_runtime};

use crate::LlmError;
use crate::kv_cache::{Cache, DRAFTS, LayerCache, check_cache, new_layers};
use crate::model::Model;
use crate::placement::Placement;
use crate::selection::{Scores, Selection, read_choice};
use crate::step::{Ahead, FEW, FEW_AT, Step, Wanted, place};

/// Options of a [`Session`].
#[derive(Clone, Debug)]
pub struct SessionOptions {
    /// Size of the context in tokens; 0 for the model's training context.
    pub context: usize,
    /// Tokens of a prompt in one forward pass.
    pub batch: usize,
    /// Element type of keys and values: `f16`, `bf16`, `f32` or `Q8_0`, whose rows are
    /// whole blocks of 32.
    pub cache_dtype: DType,
    /// The devices that may be used.
    pub routing: Routing,
    /// The devices of tensors and layers; none to leave them to the runtime.
    pub placement: Placement,
    /// For comparisons: the type that values are converted to, and back, when they move between devices, see
    /// [`Trace::converting`](rustorch_tensor::Trace::converting). `None` converts nothing there.
    pub converting: Option<DType>,
}

impl Default for SessionOptions {
    fn default() -> Self {
        Self {
            context: 0,
            batch: 512,
            cache_dtype: DType::F16,
            routing: Routing::default(),
            placement: Placement::default(),
            converting: None,
        }
    }
}

/// Tokens so far with their keys and values, and the programs that add more.
///
/// If a device is lost, data that only its memory held is lost, too.
pub struct Session<'m> {
    model: &'m Model,
    runtime: Runtime,
    options: SessionOptions,
    context: usize,
    tokens: Vec<u32>,
    /// Length of each fed batch.
    batches: Vec<usize>,
    cache: Cache,
    /// Two programs for one token take turns if the device runs ahead of the host. Another is for the latest
    /// size that is not among [`FEW`], and others are for these.
    steps: [Option<Step>; FEW_AT + FEW.len()],
    ahead: Option<Ahead>,
}

/// No programs yet.
const NO_STEPS: [Option<Step>; FEW_AT + FEW.len()] = [const { None }; FEW_AT + FEW.len()];

/// Tokens that went through models.
static TOKENS: AtomicU64 = AtomicU64::new(0);

/// Tokens that all sessions of this process have processed so far, prompts and generated ones.
pub fn tokens_processed() -> u64 {
    TOKENS.load(Ordering::Relaxed)
}

impl<'m> Session<'m> {
    /// An empty session of `model` on the devices of `runtime`.
    ///
    /// # Errors
    /// Fails if memory is too small for the cache, or if an option is invalid.
    pub fn new(
        model: &'m Model,
        runtime: &Runtime,
        options: SessionOptions,
    ) -> Result<Self, LlmError> {
        let context = match options.context {
            0 => model.spec().context,
            n => n,
        };
        if options.batch == 0 {
            return Err(LlmError::Input(
                "a batch needs at least one token".to_owned(),
            ));
        }
        let spec = model.spec();
        if !spec.makes_texts() {
            return Err(LlmError::not_causal("generation with", spec));
        }
        check_cache(spec, options.cache_dtype)?;
        Ok(Self {
            model,
            runtime: runtime.clone(),
            context,
            tokens: Vec::with_capacity(context.min(1 << 16)),
            batches: Vec::with_capacity(context.min(1 << 16)),
            cache: Cache::new(spec, context, options.batch, options.cache_dtype)?,
            options,
            steps: NO_STEPS,
            ahead: None,
        })
    }

    /// The model.
    pub fn model(&self) -> &'m Model {
        self.model
    }

    /// Tokens of a prompt in one forward pass.
    pub fn batch(&self) -> usize {
        self.options.batch
    }

    /// The tokens so far.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Size of the context in tokens.
    pub fn context(&self) -> usize {
        self.context
    }

    /// Length of each fed batch.
    pub(crate) fn batches(&self) -> &[usize] {
        &self.batches
    }

    pub(crate) fn options(&self) -> &SessionOptions {
        &self.options
    }

    pub(crate) fn cache(&self) -> &Cache {
        &self.cache
    }

    pub(crate) fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Keeps the longest common prefix with `tokens`, except the last token, so that one is left to
    /// feed. Keeps fewer tokens if the cache does not hold the state after all of these. Returns the number of kept
    /// tokens: feed the tokens after them.
    pub fn keep_prefix(&mut self, tokens: &[u32]) -> usize {
        let kept = self.kept_of(tokens);
        self.truncate(kept);
        kept
    }

    /// The number of tokens that [`Self::keep_prefix`] would keep.
    pub(crate) fn kept_of(&self, tokens: &[u32]) -> usize {
        let pairs = self.tokens.iter().zip(tokens);
        let same = pairs.take_while(|(a, b)| a == b).count();
        let kept = same.min(tokens.len().saturating_sub(1));
        self.cache.resume(kept)
    }

    /// Makes room in a full context: keeps the first `keep` tokens, and drops the older half of the others. The newer
    /// half is recomputed at its new positions, by the programs for `selection`. Returns the number of dropped
    /// tokens.
    ///
    /// # Errors
    /// The same errors as [`Self::feed`].
    pub fn shift(&mut self, keep: usize, selection: &Selection) -> Result<usize, LlmError> {
        let keep = keep.min(self.tokens.len());
        let dropped = (self.tokens.len() - keep).div_ceil(2);
        let rest = self.tokens[keep + dropped..].to_vec();
        self.truncate(keep);
        self.feed_ahead_of(&rest, selection)?;
        Ok(dropped)
    }

    /// Drops all tokens but the first `len`. Waits for the device's work on later tokens.
    ///
    /// Layers with a window may have dropped keys and values that are needed then. If so, the next tokens wait until
    /// all of these tokens have been computed again.
    pub fn truncate(&mut self, len: usize) {
        self.settle_ahead();
        self.tokens.truncate(len);
        let mut rest = self.tokens.len();
        self.batches.retain_mut(|batch| {
            *batch = rest.min(*batch);
            rest -= *batch;
            *batch > 0
        });
    }

    /// Waits for the device's work on later tokens.
    fn settle_ahead(&mut self) {
        if let Some(ahead) = self.ahead.take() {
            // Should this have failed, so will the next pass, which says why.
            let _ = read_choice(ahead.chosen, None);
        }
    }

    /// Adds tokens; `logits` becomes the scores `[vocab]` of the token after the last.
    ///
    /// # Errors
    /// Fails if the tokens do not fit the context, or if one is outside the vocabulary. Also fails
    /// if no device is left.
    pub fn feed(&mut self, tokens: &[u32], logits: &mut Vec<f32>) -> Result<(), LlmError> {
        let mut scores = [Scores {
            ids: None,
            logits: mem::take(logits),
        }];
        let fed = self.feed_wanting(tokens, &Wanted::logits(1), &mut scores);
        let [Scores { logits: read, .. }] = scores;
        *logits = read;
        fed
    }

    /// Adds tokens. `scores` becomes the next token's scores that `selection` requests.
    ///
    /// # Errors
    /// The same errors as [`Self::feed`].
    pub fn feed_and_select(
        &mut self,
        tokens: &[u32],
        selection: &Selection,
        scores: &mut Scores,
    ) -> Result<(), LlmError> {
        let wanted = Wanted::best(1, selection, self.model.spec().vocab);
        self.feed_wanting(tokens, &wanted, slice::from_mut(scores))
    }

    /// Adds tokens in one batch. For each of them, an element of `scores` becomes the next token's
    /// scores that `selection` requests.
    ///
    /// # Errors
    /// The same errors as [`Self::feed`]. A model with windows refuses more tokens than a batch has, if its keys have to
    /// move. It always takes 16.
    pub fn feed_and_select_each(
        &mut self,
        tokens: &[u32],
        selection: &Selection,
        scores: &mut Vec<Scores>,
    ) -> Result<(), LlmError> {
        self.check(tokens)?;
        scores.resize(tokens.len(), Scores::default());
        let wanted = Wanted::best(tokens.len(), selection, self.model.spec().vocab);
        self.step(tokens, &wanted, Some(scores))
    }

    /// Adds tokens without waiting for scores. A call of [`Self::feed_and_select`] with the same
    /// selection has to follow.
    ///
    /// # Errors
    /// The same errors as [`Self::feed`].
    pub fn feed_ahead_of(&mut self, tokens: &[u32], selection: &Selection) -> Result<(), LlmError> {
        self.check(tokens)?;
        let wanted = Wanted::best(1, selection, self.model.spec().vocab);
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

    /// Adds tokens and passes the logits of each one to `each`: for every batch, the positions and
    /// their rows of `[vocab]`.
    ///
    /// # Errors
    /// The same errors as [`Self::feed`], and the errors of `each`.
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

    /// The current device of each operation in a pass over `tokens` tokens for `selection`, with
    /// the reason. If the session has run such a pass under [profiling](Runtime::set_profiling), it
    /// also has the times.
    ///
    /// # Errors
    /// Fails if no device can run some operation.
    pub fn explain(
        &self,
        tokens: usize,
        selection: &Selection,
    ) -> Result<Vec<Explanation>, LlmError> {
        let explained = self.with_step(tokens, selection, |step| step.executable().explain())?;
        Ok(explained.map_err(RusTorchError::from)?)
    }

    /// The passes over the graph of such a pass, by their stages, with their changes.
    ///
    /// # Errors
    /// Fails if no device can run some operation.
    pub fn passes(&self, tokens: usize, selection: &Selection) -> Result<Stages, LlmError> {
        Ok(self.with_step(tokens, selection, Step::passes)??)
    }

    /// Calls `ask` with a pass over `tokens` tokens, one that has run or a new one.
    fn with_step<R>(
        &self,
        tokens: usize,
        selection: &Selection,
        ask: impl FnOnce(&Step) -> R,
    ) -> Result<R, LlmError> {
        let wanted = Wanted::best(1, selection, self.model.spec().vocab);
        let mut known = self.steps.iter().flatten();
        match known.find(|step| step.is_for(tokens, &wanted)) {
            Some(step) => Ok(ask(step)),
            None => Ok(ask(&self.traced(tokens, wanted)?)),
        }
    }

    /// The preferred compute units of devices with several units, for a pass over `tokens` tokens
    /// for `selection`. It is empty if the session has not run such a pass. Preferences do not
    /// prove where operations ran.
    pub fn preferred_units(&self, tokens: usize, selection: &Selection) -> Vec<PreferredUnits> {
        let wanted = Wanted::best(1, selection, self.model.spec().vocab);
        let mut known = self.steps.iter().flatten();
        let step = known.find(|step| step.is_for(tokens, &wanted));
        step.map_or(Vec::new(), |step| step.executable().preferred_units())
    }

    /// Bytes of its programs' working memory: intermediate values, and values passed between
    /// devices; see [`Executable::working_bytes`](rustorch_runtime::Executable::working_bytes).
    pub fn working_bytes(&self) -> usize {
        let bytes = |step: &Step| step.executable().working_bytes().unwrap_or(0);
        self.steps.iter().flatten().map(bytes).sum()
    }

    /// Bytes of keys and values; the system allocates only pages that are written.
    pub fn cache_bytes(&self) -> usize {
        let layers = self.cache.layers().iter();
        let tensors = layers.flat_map(LayerCache::tensors);
        let bytes = |t: &Tensor| t.dtype().bytes_of(t.shape()).unwrap_or(0);
        tensors.map(bytes).sum()
    }

    /// The devices that a pass over one token is offered to as a whole.
    pub(crate) fn preference(&self) -> Result<Preference, LlmError> {
        let step = self.traced(1, Wanted::logits(1))?;
        Ok(step.executable().preference())
    }

    /// A new pass over this number of tokens.
    fn traced(&self, tokens: usize, wanted: Wanted) -> Result<Step, LlmError> {
        traced(
            self.model,
            &self.runtime,
            &self.options,
            &self.cache,
            tokens,
            wanted,
        )
    }

    /// Whether `tokens` could be added.
    pub(crate) fn check(&self, tokens: &[u32]) -> Result<(), LlmError> {
        let (have, more) = (self.tokens.len(), tokens.len());
        if have + more > self.context {
            return Err(LlmError::ContextFull {
                have,
                more,
                size: self.context,
                trained: self.model.spec().context,
            });
        }
        let vocab = self.model.spec().vocab;
        match tokens.iter().find(|&&id| id as usize >= vocab) {
            Some(&id) => Err(LlmError::Token { id, vocab }),
            None => Ok(()),
        }
    }

    /// A pass over a batch.
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
        let mut result = self
            .reach_back(wanted)
            .and_then(|()| self.pass(past, batch, wanted, scores.as_deref_mut()));
        while matches!(&result, Err(LlmError::Tensor(e)) if e.is_data_lost()) {
            tracing::warn!(
                "the KV cache was lost with its device; recomputing it from {past} tokens"
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
        let (spec, options) = (self.model.spec(), &self.options);
        let layers = new_layers(spec, self.context, options.batch, options.cache_dtype)?;
        self.rebind(&layers)?;
        self.cache.replace(layers, 0, &self.runtime)?;
        self.feed_again(0, wanted)
    }

    /// Makes the cache hold what the next token sees.
    pub(crate) fn reach_back(&mut self, wanted: &Wanted) -> Result<(), LlmError> {
        let past = self.tokens.len();
        if self.cache.reaches(past) {
            return Ok(());
        }
        let from = self.cache.resume(past);
        tracing::debug!(
            "the cache does not hold all that token {past} sees; recomputing it from token {from} on"
        );
        if from == 0 {
            self.cache.begin_at(0, &self.runtime)?;
        }
        self.feed_again(from, wanted)
    }

    /// Computes the state of the tokens so far, from this one on. Should it fail, the next call does it again.
    fn feed_again(&mut self, from: usize, wanted: &Wanted) -> Result<(), LlmError> {
        let wanted = &wanted.of_last();
        let most = self.options.batch.max(DRAFTS);
        let (tokens, batches) = (self.tokens.clone(), self.batches.clone());
        let mut begin = 0;
        for len in batches {
            let end = begin + len;
            let mut done = from.clamp(begin, end);
            for part in tokens[done..end].chunks(most) {
                self.pass(done, part, wanted, None)?;
                done += part.len();
            }
            begin = end;
        }
        self.cache.complete();
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
                let (routing, end) = (self.options.routing, past + batch.len());
                self.cache.make_room(&runtime, routing, past, end)?;
                let step = self.step_for(at, batch.len(), wanted)?;
                step.run(&runtime, batch, past)?;
                self.cache.advance(past, end);
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

    /// Queues the pass over the token that step `before` chooses, at the position `past`. Does nothing if the context
    /// or a window's memory is full, or if the model has recurrent states.
    fn run_ahead(
        &mut self,
        before: usize,
        past: usize,
        wanted: &Wanted,
    ) -> Result<Option<Ahead>, LlmError> {
        if past >= self.context || !self.cache.may_run_ahead(past + 1) {
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

    /// The program for this number of tokens, in this place among the steps.
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
                let (model, runtime, cache) = (self.model, &self.runtime, &self.cache);
                let step = traced(model, runtime, &self.options, cache, tokens, wanted.clone())?;
                Ok(none.insert(step))
            }
        }
    }
}

/// A new pass over this number of tokens.
fn traced(
    model: &Model,
    runtime: &Runtime,
    options: &SessionOptions,
    cache: &Cache,
    tokens: usize,
    wanted: Wanted,
) -> Result<Step, LlmError> {
    let (placement, converting) = (&options.placement, options.converting);
    with_runtime(runtime, options.routing, || {
        Step::new(model, cache, tokens, wanted, placement, converting)
    })
}
