//! A run of a model: tokens in, logits out.

use std::ops::Range;

use rustorch_ir::DType;
use rustorch_runtime::{
    DeviceType, Explanation, HostBuffer, Preference, Routing, RunError, Runtime, Storage,
};
use rustorch_tensor::{RusTorchError, RusTorchResult, Tensor, Trace, with_runtime};

use crate::LlmError;
use crate::kv_cache::{LayerCache, new_cache};
use crate::model::Model;
use crate::selection::{Scores, Selection};

/// How a [`Session`] runs.
#[derive(Clone, Debug)]
pub struct SessionOptions {
    /// Tokens the context has room for; 0 for as many as the model was trained with.
    pub context: usize,
    /// Tokens of a prompt that go through the model together.
    pub batch: usize,
    /// Element type of keys and values: `f16` or `f32`.
    pub cache_dtype: DType,
    /// Which devices may be used.
    pub routing: Routing,
    /// The device of each layer, from the first on, as
    /// [`select_backend`](crate::select_backend) chooses them; those that are not here are
    /// left to the runtime.
    pub layers: Vec<DeviceType>,
    /// To compare with: the type that values are converted to, and back, where they go from one
    /// device to another, see [`Trace::converting`]. `None` converts nothing there.
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
    /// The program for one token, and the one for the latest other size.
    decode: Option<Step>,
    prompt: Option<Step>,
}

/// What is wanted of a forward pass, beside keys and values.
#[derive(Clone, PartialEq, Eq)]
enum Wanted {
    /// The logits of this many of its last tokens.
    Rows(usize),
    /// Of those of the last token what the next one is chosen from.
    Next(Selection),
}

/// A traced forward pass of a fixed number of tokens.
struct Step {
    /// Tokens in.
    tokens: usize,
    wanted: Wanted,
    trace: Trace,
    /// Token ids and positions, `i32`.
    inputs: [Storage; 2],
    /// What the last run handed out, whose memory the next one uses again.
    outputs: Vec<Storage>,
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
        if !matches!(options.cache_dtype, DType::F16 | DType::F32) {
            let given = options.cache_dtype;
            return Err(LlmError::Input(format!(
                "a cache of {given}: expected f16 or f32"
            )));
        }
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
            decode: None,
            prompt: None,
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

    /// Forgets all tokens but the first `len`.
    pub fn truncate(&mut self, len: usize) {
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
        let mut scores = Scores {
            ids: None,
            logits: std::mem::take(logits),
        };
        let fed = self.feed_wanting(tokens, &Wanted::Rows(1), &mut scores);
        *logits = scores.logits;
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
        let selection = selection.of_vocab(self.model.config().vocab);
        self.feed_wanting(tokens, &Wanted::Next(selection), scores)
    }

    fn feed_wanting(
        &mut self,
        tokens: &[u32],
        wanted: &Wanted,
        scores: &mut Scores,
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
        let mut scores = Scores::default();
        for batch in tokens.chunks(self.options.batch) {
            let start = self.tokens.len();
            self.step(batch, &Wanted::Rows(batch.len()), Some(&mut scores))?;
            each(start..self.tokens.len(), &scores.logits)?;
        }
        Ok(())
    }

    /// Where each operation of a pass over `tokens` tokens would go now, and why; how long it
    /// took, if the session has run such a pass while the runtime was
    /// [profiling](Runtime::set_profiling).
    ///
    /// # Errors
    /// No device can run some operation.
    pub fn explain(&self, tokens: usize) -> Result<Vec<Explanation>, LlmError> {
        let wanted = Wanted::Rows(1);
        let mut known = [&self.decode, &self.prompt].into_iter().flatten();
        let explained = match known.find(|step| step.is_for(tokens, &wanted)) {
            Some(step) => step.trace.executable().explain(),
            None => {
                let options = &self.options;
                let step = with_runtime(&self.runtime, options.routing, || {
                    Step::new(self.model, &self.cache, tokens, wanted, options.converting)
                })?;
                step.trace.executable().explain()
            }
        };
        Ok(explained.map_err(RusTorchError::from)?)
    }

    /// Bytes that its programs work in: intermediate values, and what devices hand on; see
    /// [`Executable::working_bytes`](rustorch_runtime::Executable::working_bytes).
    pub fn working_bytes(&self) -> usize {
        let steps = [&self.decode, &self.prompt].into_iter().flatten();
        let bytes = |step: &Step| step.trace.executable().working_bytes().unwrap_or(0);
        steps.map(bytes).sum()
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
            Step::new(self.model, &self.cache, 1, Wanted::Rows(1), converting)
        })?;
        let preference = step.trace.executable().preference();
        Ok(preference.map_err(RusTorchError::from)?)
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
        mut scores: Option<&mut Scores>,
    ) -> Result<(), LlmError> {
        let past = self.tokens.len();
        let mut result = self.pass(past, batch, wanted, scores.as_deref_mut());
        while let Err(LlmError::Tensor(RusTorchError::Run(RunError::DataLost { .. }))) = result {
            tracing::warn!(
                "the cache was lost with its device: making it again from {past} tokens"
            );
            result = self
                .rebuild(wanted)
                .and_then(|()| self.pass(past, batch, wanted, scores.as_deref_mut()));
        }
        result?;
        self.tokens.extend_from_slice(batch);
        self.batches.push(batch.len());
        Ok(())
    }

    /// Makes the cache again from the tokens so far, by the programs that are there.
    fn rebuild(&mut self, wanted: &Wanted) -> Result<(), LlmError> {
        let wanted = match wanted {
            Wanted::Rows(_) => &Wanted::Rows(1),
            next => next,
        };
        let SessionOptions {
            cache_dtype,
            ref layers,
            ..
        } = self.options;
        let cache = new_cache(self.model.config(), self.context, cache_dtype, layers)?;
        for step in [&mut self.decode, &mut self.prompt].into_iter().flatten() {
            for (old, new) in self.cache.iter().zip(&cache) {
                for (old, new) in [(&old.keys, &new.keys), (&old.values, &new.values)] {
                    step.trace.rebind(&old.storage()?, &new.storage()?)?;
                }
            }
        }
        self.cache = cache;
        let (tokens, batches) = (self.tokens.clone(), self.batches.clone());
        let mut done = 0;
        for len in batches {
            self.pass(done, &tokens[done..done + len], wanted, None)?;
            done += len;
        }
        Ok(())
    }

    /// Runs the program for a batch that begins at position `past`.
    fn pass(
        &mut self,
        past: usize,
        batch: &[u32],
        wanted: &Wanted,
        scores: Option<&mut Scores>,
    ) -> Result<(), LlmError> {
        let slot = match batch.len() {
            1 => &mut self.decode,
            _ => &mut self.prompt,
        };
        let is_known = |step: &Step| step.is_for(batch.len(), wanted);
        if !slot.as_ref().is_some_and(is_known) {
            // The old program's memory goes before the new one's comes.
            *slot = None;
            let (model, cache, options) = (self.model, &self.cache, &self.options);
            let step = with_runtime(&self.runtime, options.routing, || {
                Step::new(
                    model,
                    cache,
                    batch.len(),
                    wanted.clone(),
                    options.converting,
                )
            })?;
            *slot = Some(step);
        }
        let Some(step) = slot else { return Ok(()) };
        let ids = batch.iter().map(|&id| id as i32);
        let positions = (past as i32..).take(batch.len());
        for (storage, values) in step.inputs.iter().zip([collect(ids), collect(positions)]) {
            self.runtime
                .write(storage, &values)
                .map_err(RusTorchError::from)?;
        }
        step.trace.run_into(&step.inputs, &mut step.outputs)?;
        match scores {
            Some(scores) => step.read(&self.runtime, scores),
            None => Ok(()),
        }
    }
}

fn collect(values: impl Iterator<Item = i32>) -> smallvec::SmallVec<[u8; 64]> {
    values.flat_map(i32::to_ne_bytes).collect()
}

impl Step {
    fn new(
        model: &Model,
        cache: &[LayerCache],
        tokens: usize,
        wanted: Wanted,
        converting: Option<DType>,
    ) -> Result<Self, LlmError> {
        let input = || {
            let buffer = HostBuffer::zeroed(size_of::<i32>() * tokens);
            let buffer = buffer.ok_or_else(|| LlmError::Input("out of memory".to_owned()))?;
            Ok::<_, LlmError>(Storage::from_host(buffer))
        };
        let trace = || -> RusTorchResult<Trace> {
            let ids = Tensor::placeholder([tokens], DType::I32)?;
            let positions = Tensor::placeholder([tokens], DType::I32)?;
            let forward = |rows| {
                let architecture = model.architecture();
                architecture.forward(&ids, &positions, cache, rows)
            };
            let outputs = match &wanted {
                Wanted::Rows(rows) => vec![forward(*rows)?],
                Wanted::Next(selection) => selection.of(&forward(1)?)?,
            };
            let outputs: Vec<&Tensor> = outputs.iter().collect();
            let trace = Trace::new(&[&ids, &positions], &outputs)?;
            match converting {
                Some(dtype) => trace.converting(dtype),
                None => Ok(trace),
            }
        };
        Ok(Self {
            tokens,
            trace: trace()?,
            wanted,
            inputs: [input()?, input()?],
            outputs: Vec::new(),
        })
    }

    fn is_for(&self, tokens: usize, wanted: &Wanted) -> bool {
        self.tokens == tokens && self.wanted == *wanted
    }

    /// Reads what the last run handed out.
    fn read(&self, runtime: &Runtime, scores: &mut Scores) -> Result<(), LlmError> {
        let all = Selection::default();
        let selection = match &self.wanted {
            Wanted::Rows(_) => &all,
            Wanted::Next(selection) => selection,
        };
        let read = selection.read(runtime, &self.outputs, scores);
        Ok(read.map_err(RusTorchError::from)?)
    }
}
