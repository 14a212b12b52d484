//! Many texts at once: an [`Engine`] owns a model's sequences, and answers [`Request`]s on a thread of its own.
//!
//! This example answers a hundred prompts:
//!
//! ```
//! use std::sync::Arc;
//!
//! use rustorch_gguf::Gguf;
//! use rustorch_llm::engine::{EngineOptions, Request};
//! use rustorch_llm::{Engine, LlmError, Model};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/classics-13m-Q4_K_M.gguf");
//! let model = Arc::new(Model::load(Gguf::open(path)?)?);
//! let options = EngineOptions { sequences: 4, queue: 100, ..EngineOptions::default() };
//! let engine = Engine::new(model.clone(), &rustorch_tensor::runtime(), options)?;
//! let submit = |number: u32| {
//!     let request = Request::new(model.tokenizer()?.encode(&format!("Chapter {number}."), Default::default()));
//!     engine.submit(Request { max_tokens: Some(4), ..request })
//! };
//! let streams: Vec<_> = (0..100).map(submit).collect::<Result<_, LlmError>>()?;
//! for stream in streams {
//!     let (ids, _stop, _usage) = stream.finish()?;
//!     assert!(!ids.is_empty());
//! }
//! # Ok(())
//! # }
//! ```

mod batch;
mod request;
mod scheduler;
mod slot_task;
mod slots;
mod state;
mod worker;

use std::ops::ControlFlow;
use std::sync::mpsc::{self, sync_channel};
use std::sync::{Arc, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use rustorch_runtime::Runtime;
use rustorch_tokenizer::Tokenizer;

use crate::generate::end_tokens;
use crate::sampler::SamplerChain;
use crate::{LlmError, Model};

use request::gone;
pub use request::{EngineEvent, Request, RequestId, Stream, TokenLogprobs, Usage};
pub use slot_task::SlotAction;
use slot_task::SlotTask;
use state::{Closing, Job, Shared};
pub use state::{EngineOptions, EngineStats};
use worker::Worker;

/// A model that answers many requests at once. Clones share one engine; the last one to go ends it, and its requests
/// fail.
#[derive(Clone)]
pub struct Engine(Arc<Handle>);

struct Handle {
    model: Arc<Model>,
    context: usize,
    sequences: usize,
    queue: usize,
    ends: Vec<u32>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Engine {
    /// An engine for `model` on the devices of `runtime`.
    ///
    /// # Errors
    /// Fails if memory is too small for the sequences, or if an option is invalid.
    pub fn new(
        model: Arc<Model>,
        runtime: &Runtime,
        options: EngineOptions,
    ) -> Result<Self, LlmError> {
        if options.sequences == 0 {
            let problem = "an engine needs at least one sequence";
            return Err(LlmError::Input(problem.to_owned()));
        }
        let shared = Arc::new(Shared::new(options.queue));
        let (sequences, queue) = (options.sequences, options.queue);
        let (begun, begin) = sync_channel(1);
        let thread = {
            let (model, runtime, shared) = (model.clone(), runtime.clone(), shared.clone());
            let work = move || match Worker::new(&model, &runtime, &options, &shared) {
                Ok(mut worker) => {
                    let _ = begun.send(Ok(worker.context()));
                    let _closing = Closing(&shared);
                    worker.run();
                }
                Err(error) => {
                    let _ = begun.send(Err(error));
                }
            };
            let thread = thread::Builder::new().name("engine".to_owned()).spawn(work);
            thread.map_err(|error| LlmError::Input(format!("no thread for an engine: {error}")))?
        };
        let context = begin.recv().map_err(|_| gone())??;
        Ok(Self(Arc::new(Handle {
            ends: end_tokens(&model),
            model,
            context,
            sequences,
            queue,
            shared,
            thread: Some(thread),
        })))
    }

    /// The model.
    pub fn model(&self) -> &Arc<Model> {
        &self.0.model
    }

    /// Size of a sequence's context in tokens.
    pub fn context(&self) -> usize {
        self.0.context
    }

    /// Sequences that are computed at once.
    pub fn sequences(&self) -> usize {
        self.0.sequences
    }

    /// Requests that it takes at once at most: those that are computed, and those that wait.
    pub fn capacity(&self) -> usize {
        self.0.sequences.saturating_add(self.0.queue)
    }

    /// Queues a request. `sink` gets its events on the engine's thread, must not block, and returns
    /// [`ControlFlow::Break`] to cancel. It gets the last event all the same.
    ///
    /// # Errors
    /// Fails with [`LlmError::Busy`] if the queue is full. Also fails if the prompt is empty, does not fit the context,
    /// or has tokens outside the vocabulary. Also fails for invalid options of samplers, and after [`Self::drain`].
    pub fn submit_to(
        &self,
        request: Request,
        sink: impl FnMut(EngineEvent) -> ControlFlow<()> + Send + 'static,
    ) -> Result<RequestId, LlmError> {
        let handle = &*self.0;
        self.check(&request)?;
        let mut chain = SamplerChain::new(&request.sampler)?;
        let suppressed = handle.model.tokenizer().map(Tokenizer::suppressed);
        let mut banned = suppressed.unwrap_or_default().to_vec();
        banned.extend(&request.banned);
        if request.ignore_end {
            banned.extend(&handle.ends);
        }
        if !banned.is_empty() {
            chain.ban(&banned);
        }
        if let Some(constraint) = &request.constraint {
            chain.constrain(constraint.clone());
        }
        if request.sampled_logprobs {
            chain.keep_probabilities();
        }
        let mut state = handle.shared.lock();
        if state.is_draining || state.is_closed {
            return Err(gone());
        }
        let id = RequestId(state.next);
        let (priority, deadline) = (request.priority, request.deadline);
        let job = Job {
            id,
            request,
            chain,
            sink: Box::new(sink),
            submitted: Instant::now(),
        };
        let free = handle.sequences - state.stats.running;
        state.queue.push(priority, deadline, job, free)?;
        state.next += 1;
        drop(state);
        handle.shared.work.notify_one();
        Ok(id)
    }

    /// Queues a request whose events come from the stream.
    ///
    /// # Errors
    /// The same errors as [`Self::submit_to`].
    pub fn submit(&self, request: Request) -> Result<Stream, LlmError> {
        let (sender, events) = mpsc::channel();
        let send = move |event| match sender.send(event) {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        };
        let id = self.submit_to(request, send)?;
        Ok(Stream {
            id,
            events,
            ended: false,
        })
    }

    /// Cancels a request: it ends with [`Stop::Caller`](crate::Stop::Caller), unless it has ended already.
    pub fn cancel(&self, id: RequestId) {
        self.0.shared.lock().cancelled.insert(id);
        self.0.shared.work.notify_one();
    }

    /// Counts since the begin.
    pub fn stats(&self) -> EngineStats {
        let state = self.0.shared.lock();
        EngineStats {
            waiting: state.queue.len(),
            ..state.stats
        }
    }

    /// The slots that requests have now, in no order.
    pub fn busy_slots(&self) -> Vec<usize> {
        self.0.shared.lock().busy.clone()
    }

    /// Acts on the tokens of a slot, when no request has it. Tokens of other salts are left alone, except that a
    /// restored file replaces them. Returns the number of tokens that were saved, restored or dropped.
    ///
    /// # Errors
    /// Fails if there is no such slot, or if it has tokens of another salt. Also fails if the file cannot be written,
    /// or does not fit the model.
    pub fn act(&self, slot: usize, action: SlotAction, salt: u64) -> Result<usize, LlmError> {
        self.check_slot(slot)?;
        let (done, result) = mpsc::channel();
        let mut state = self.0.shared.lock();
        if state.is_closed {
            return Err(gone());
        }
        state.tasks.push(SlotTask {
            slot,
            action,
            salt,
            done,
        });
        drop(state);
        self.0.shared.work.notify_one();
        result.recv().unwrap_or_else(|_| Err(gone()))
    }

    /// Takes no new requests, and waits until all have ended. A sink must not call it.
    pub fn drain(&self) {
        let shared = &self.0.shared;
        let mut state = shared.lock();
        state.is_draining = true;
        while !state.is_closed && (state.queue.len() > 0 || state.stats.running > 0) {
            state = shared
                .idle
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn check_slot(&self, slot: usize) -> Result<(), LlmError> {
        match self.0.sequences {
            count if slot < count => Ok(()),
            count => {
                let problem = format!("slot {slot}: there are {count}, which begin at 0");
                Err(LlmError::Input(problem))
            }
        }
    }

    fn check(&self, request: &Request) -> Result<(), LlmError> {
        let prompt = &request.prompt;
        if prompt.is_empty() {
            let problem = "the prompt is empty; a request needs at least one token";
            return Err(LlmError::Input(problem.to_owned()));
        }
        request.slot.map_or(Ok(()), |slot| self.check_slot(slot))?;
        let (context, spec) = (self.0.context, self.0.model.spec());
        if prompt.len() > context {
            return Err(LlmError::ContextFull {
                have: 0,
                more: prompt.len(),
                size: context,
                trained: spec.context,
            });
        }
        match prompt.iter().find(|&&id| id as usize >= spec.vocab) {
            Some(&id) => Err(LlmError::Token {
                id,
                vocab: spec.vocab,
            }),
            None => Ok(()),
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.lock().is_closed = true;
        self.shared.work.notify_one();
        let thread = self.thread.take();
        // A sink may have had the last handle.
        let thread = thread.filter(|thread| thread.thread().id() != thread::current().id());
        if let Some(thread) = thread {
            // Its panic is reported where it happens.
            let _ = thread.join();
        }
    }
}
