//! The engine's thread: it computes the requests' sequences, and sends events.

use std::mem;
use std::sync::PoisonError;
use std::time::Instant;

use rustorch_runtime::Runtime;

use super::batch::{Batch, Fed};
use super::request::{EngineEvent, TokenLogprobs, Usage, gone};
use super::scheduler::{Free, choose_slot};
use super::slot_task::SlotTask;
use super::slots::{Slots, unread};
use super::state::{EngineOptions, EngineStats, Job, Shared};
use crate::generate::{Stop, end_tokens};
use crate::kv_cache::DRAFTS;
use crate::selection::{Scores, Selection};
use crate::session::Session;
use crate::{LlmError, Model};

/// The use of a slot.
#[derive(Clone, Copy, Default)]
struct Use {
    /// The salt of its tokens.
    salt: u64,
    /// The number of the request that used it last; 0 for none.
    last: u64,
}

/// A request that is computed.
struct Running {
    job: Job,
    slot: usize,
    /// The token to feed behind the prompt's others: its last one, then the one that was chosen last.
    next: u32,
    begin: Instant,
    /// The time of the first token.
    first: Option<Instant>,
    usage: Usage,
}

/// The end of a request.
type Ended = Result<Stop, LlmError>;

/// The sequences and the requests that they have.
pub(super) struct Worker<'m, 's> {
    shared: &'s Shared,
    slots: Slots<'m>,
    uses: Vec<Use>,
    batch: Batch,
    /// In the order in which they began.
    running: Vec<Running>,
    ends: Vec<u32>,
    begun: u64,
    /// Counts since the state was updated.
    counts: EngineStats,
}

impl Job {
    /// Sends an event. Returns whether the request goes on.
    fn send(&mut self, event: EngineEvent) -> bool {
        (self.sink)(event).is_continue()
    }

    fn end(mut self, ended: Ended, usage: Usage) {
        self.send(match ended {
            Ok(stop) => EngineEvent::Done { stop, usage },
            Err(error) => EngineEvent::Failed(error),
        });
    }

    fn is_late(&self, now: Instant) -> bool {
        self.request.deadline.is_some_and(|at| at <= now)
    }
}

impl<'m, 's> Worker<'m, 's> {
    /// Empty sequences.
    ///
    /// # Errors
    /// The same errors as [`Session::new`].
    pub(super) fn new(
        model: &'m Model,
        runtime: &Runtime,
        options: &EngineOptions,
        shared: &'s Shared,
    ) -> Result<Self, LlmError> {
        let sequences = options.sequences;
        Ok(Self {
            shared,
            slots: Slots::new(model, runtime, sequences, &options.session)?,
            uses: vec![Use::default(); sequences],
            batch: Batch::new(runtime, options),
            running: Vec::new(),
            ends: end_tokens(model),
            begun: 0,
            counts: EngineStats::default(),
        })
    }

    /// Size of a sequence's context in tokens.
    pub(super) fn context(&self) -> usize {
        self.slots.get(0).context()
    }

    /// Answers requests until the engine is closed.
    pub(super) fn run(&mut self) {
        while self.take() {
            // Tokens of texts come before prompts, whose chunks would hold them up.
            self.decode();
            self.prefill();
        }
        for running in mem::take(&mut self.running) {
            running.job.end(Err(gone()), running.usage);
        }
        while let Some(job) = { self.shared.lock().queue.pop(|_| true) } {
            job.end(Err(gone()), Usage::default());
        }
    }

    /// Waits for work, ends requests that are given up, and begins others. Returns whether the engine goes on.
    fn take(&mut self) -> bool {
        let mut state = self.shared.lock();
        loop {
            self.update(&mut state.stats);
            if state.is_closed {
                return false;
            }
            let running = &self.running;
            let is_free = |task: &mut SlotTask| running.iter().all(|it| it.slot != task.slot);
            let tasks: Vec<SlotTask> = state.tasks.extract_if(.., is_free).collect();
            if !tasks.is_empty() {
                drop(state);
                tasks.into_iter().for_each(|task| self.act(task));
                state = self.shared.lock();
                continue;
            }
            if state.queue.len() > 0 || !self.running.is_empty() {
                break;
            }
            self.shared.idle.notify_all();
            state = (self.shared.work.wait(state)).unwrap_or_else(PoisonError::into_inner);
        }
        let (now, cancelled) = (Instant::now(), mem::take(&mut state.cancelled));
        let is_wanted = |job: &Job| !cancelled.contains(&job.id);
        let mut gone = Vec::new();
        for (job, late) in state.queue.give_up(now, is_wanted) {
            gone.push((job, late, Usage::default()));
        }
        let given_up = |running: &mut Running| running.job.is_late(now) || !is_wanted(&running.job);
        for running in self.running.extract_if(.., given_up) {
            let late = running.job.is_late(now);
            state.busy.retain(|busy| *busy != running.slot);
            gone.push((running.job, late, running.usage));
        }
        let mut begun: Vec<Job> = Vec::new();
        let mut taken: Vec<usize> = self.running.iter().map(|running| running.slot).collect();
        while self.running.len() + begun.len() < self.slots.len() {
            let can_begin = |job: &Job| job.request.slot.is_none_or(|slot| !taken.contains(&slot));
            let Some(job) = state.queue.pop(can_begin) else {
                break;
            };
            taken.extend(job.request.slot);
            begun.push(job);
        }
        // Requests for any slot take what the others leave.
        begun.sort_by_key(|job| job.request.slot.is_none());
        state.stats.running = self.running.len() + begun.len();
        drop(state);
        for (job, late, usage) in gone {
            let ended = match late {
                true => Err(LlmError::Deadline),
                false => Ok(Stop::Caller),
            };
            self.ended(job, ended, usage);
        }
        begun.into_iter().for_each(|job| self.begin(job));
        true
    }

    /// Does a task, whose slot is free.
    fn act(&mut self, task: SlotTask) {
        let own = &mut self.uses[task.slot].salt;
        let done = match self.slots.with_programs(task.slot) {
            Ok(session) => task.act(session, *own),
            Err(error) => Err(error),
        };
        if done.is_ok() {
            *own = task.salt;
        }
        // The caller may be gone.
        let _ = task.done.send(done);
    }

    /// Adds the counts to those that callers see.
    fn update(&mut self, stats: &mut EngineStats) {
        let new = mem::take(&mut self.counts);
        stats.finished += new.finished;
        stats.failed += new.failed;
        stats.prompt_tokens += new.prompt_tokens;
        stats.cached_tokens += new.cached_tokens;
        stats.generated_tokens += new.generated_tokens;
        stats.prompt_time += new.prompt_time;
        stats.generated_time += new.generated_time;
        stats.longest = stats.longest.max(new.longest);
        stats.steps += new.steps;
        stats.rows += new.rows;
    }

    /// Counts the end of a request, then sends it, so that a caller who hears of it sees the counts.
    fn ended(&mut self, job: Job, ended: Ended, usage: Usage) {
        self.counts.finished += 1;
        self.counts.failed += u64::from(ended.is_err());
        self.counts.prompt_time += usage.prefill.time;
        self.counts.generated_time += usage.decode.time;
        let tokens = (usage.prompt + usage.generated) as u64;
        self.counts.longest = self.counts.longest.max(tokens);
        self.update(&mut self.shared.lock().stats);
        job.end(ended, usage);
    }

    /// The same for a request that counts as running.
    fn stopped(&mut self, job: Job, ended: Ended, usage: Usage) {
        self.shared.lock().stats.running -= 1;
        self.ended(job, ended, usage);
    }

    /// Gives a request a slot: that of the longest common beginning.
    fn begin(&mut self, mut job: Job) {
        let (prompt, salt) = (&job.request.prompt, job.request.cache_salt);
        let wants_all = job.request.prompt_logprobs.is_some() || job.request.recompute;
        let is_free = |slot: &usize| self.running.iter().all(|running| running.slot != *slot);
        let free = (0..self.slots.len()).filter(is_free).map(|slot| {
            let Use { salt: own, last } = self.uses[slot];
            let shared = match salt == own && !wants_all {
                true => self.slots.get(slot).kept_of(prompt),
                false => 0,
            };
            Free { slot, shared, last }
        });
        let free: Vec<Free> = free.collect();
        let chosen = job
            .request
            .slot
            .or_else(|| choose_slot(&free, prompt.len()));
        let Some(slot) = chosen else {
            return self.stopped(job, Err(gone()), Usage::default());
        };
        self.begun += 1;
        let session = self.slots.get_mut(slot);
        if self.uses[slot].salt != salt || wants_all {
            session.truncate(0);
        }
        let cached = session.keep_prefix(prompt);
        self.uses[slot] = Use {
            salt,
            last: self.begun,
        };
        prompt.iter().for_each(|&id| job.chain.accept(id));
        let next = prompt[prompt.len() - 1];
        let begin = Instant::now();
        let usage = Usage {
            prompt: prompt.len(),
            cached,
            queued: begin - job.submitted,
            ..Usage::default()
        };
        self.counts.prompt_tokens += usage.prompt as u64;
        self.counts.cached_tokens += cached as u64;
        if !job.send(EngineEvent::Started { cached }) {
            return self.stopped(job, Ok(Stop::Caller), usage);
        }
        self.running.push(Running {
            job,
            slot,
            next,
            begin,
            first: None,
            usage,
        });
        self.shared.lock().busy.push(slot);
    }

    /// Ends the requests among the running ones that have an end here, in the same order.
    fn end(&mut self, ends: Vec<Option<Ended>>) {
        let running = mem::take(&mut self.running);
        for (running, ended) in running.into_iter().zip(ends) {
            match ended {
                None => self.running.push(running),
                Some(ended) => {
                    self.leave(running.slot);
                    self.stopped(running.job, ended, running.usage);
                }
            }
        }
    }

    /// Notes that no request has a slot any more.
    fn leave(&self, slot: usize) {
        self.shared.lock().busy.retain(|busy| *busy != slot);
    }

    /// Computes a chunk of the oldest prompt that has tokens left besides its last one.
    fn prefill(&mut self) {
        let is_left = |running: &Running| !running.is_ready(self.slots.get(running.slot));
        let Some(index) = self.running.iter().position(is_left) else {
            return;
        };
        let running = &mut self.running[index];
        let ended = match self.slots.with_programs(running.slot) {
            Ok(session) => running.prefill(session),
            Err(error) => Some(Err(error)),
        };
        let mut ends: Vec<_> = self.running.iter().map(|_| None).collect();
        ends[index] = ended;
        self.end(ends);
    }

    /// Computes the next token of each text whose prompt is done but for its last token.
    fn decode(&mut self) {
        let mut ends: Vec<Option<Ended>> = self.running.iter().map(|_| None).collect();
        let (mut rows, mut of, mut shifted) = (Vec::new(), Vec::new(), Vec::new());
        for (index, running) in self.running.iter().enumerate() {
            let session = self.slots.get(running.slot);
            if running.is_ready(session) {
                match running.is_over(session) {
                    Some(Stop::Context) if running.job.request.shift.is_some() => {
                        shifted.push(index);
                    }
                    Some(stop) => ends[index] = Some(Ok(stop)),
                    None => match make_ready(&mut self.slots, running.slot) {
                        Ok(()) => {
                            rows.push(running.fed());
                            of.push(index);
                        }
                        Err(error) => ends[index] = Some(Err(error)),
                    },
                }
            }
        }
        // Their next token comes in the next pass.
        for index in shifted {
            let shifted = self.running[index].shift(&mut self.slots);
            ends[index] = shifted.err().map(Err);
        }
        let (mut rows, mut of) = (&rows[..], &of[..]);
        while !rows.is_empty() {
            let count = rows.len().min(self.batch.most());
            match self.batch.feed(&mut self.slots, &rows[..count]) {
                Ok(scores) => {
                    self.counts.steps += 1;
                    self.counts.rows += count as u64;
                    for (scores, &index) in scores.iter().zip(of) {
                        let running = &mut self.running[index];
                        let before = running.usage.generated;
                        ends[index] = running.choose(scores, &self.ends);
                        self.counts.generated_tokens += (running.usage.generated - before) as u64;
                    }
                }
                Err(error) if count > 1 => {
                    self.batch.shrink(count, &error);
                    continue;
                }
                Err(error) => ends[of[0]] = Some(Err(error)),
            }
            (rows, of) = (&rows[count..], &of[count..]);
        }
        self.end(ends);
    }
}

/// Prepares a sequence for another token.
fn make_ready(slots: &mut Slots, slot: usize) -> Result<(), LlmError> {
    match slots.get(slot).is_ready() {
        true => Ok(()),
        false => slots.with_programs(slot)?.make_ready(&unread()),
    }
}

impl Running {
    /// Is all of the prompt computed but for its last token?
    fn is_ready(&self, session: &Session) -> bool {
        // A context that was full may have fewer tokens than the prompt.
        self.usage.generated > 0 || session.tokens().len() + 1 >= self.job.request.prompt.len()
    }

    /// Drops a part of a full context.
    ///
    /// # Errors
    /// The same errors as [`Session::shift`]. Also fails if all of the context has to stay.
    fn shift(&mut self, slots: &mut Slots) -> Result<(), LlmError> {
        let keep = self.job.request.shift.unwrap_or(0);
        let session = slots.with_programs(self.slot)?;
        match session.shift(keep, &unread())? {
            0 => {
                let problem = format!("{keep} tokens stay, which fill the context: keep fewer");
                Err(LlmError::Input(problem))
            }
            dropped => {
                self.usage.dropped += dropped;
                Ok(())
            }
        }
    }

    /// The reason why no further token is computed, if there is one.
    fn is_over(&self, session: &Session) -> Option<Stop> {
        match self.job.request.max_tokens {
            Some(0) => Some(Stop::Limit),
            _ if session.tokens().len() >= session.context() => Some(Stop::Context),
            _ => None,
        }
    }

    /// The row of a pass for the next token.
    fn fed(&self) -> Fed {
        Fed {
            slot: self.slot,
            token: self.next,
            selection: match self.job.request.logprobs {
                Some(_) => Selection::default(),
                None => self.job.chain.selection(),
            },
        }
    }

    /// Computes the next chunk of the prompt.
    fn prefill(&mut self, session: &mut Session) -> Option<Ended> {
        let (prompt, fed) = (&self.job.request.prompt, session.tokens().len());
        let left = &prompt[fed..prompt.len() - 1];
        let mut logprobs = Vec::new();
        let result = match self.job.request.prompt_logprobs {
            None => {
                let chunk = &left[..left.len().min(session.batch())];
                session.feed_ahead_of(chunk, &unread())
            }
            Some(count) => {
                // Few tokens at once: each of them has the logits of a vocabulary.
                let chunk = &left[..left.len().min(DRAFTS).min(session.batch())];
                session.feed_all(chunk, |positions, logits| {
                    let vocab = logits.len() / positions.len();
                    for (at, logits) in positions.zip(logits.chunks_exact(vocab)) {
                        logprobs.push(TokenLogprobs::of(logits, prompt[at + 1], count));
                    }
                    Ok::<_, LlmError>(())
                })
            }
        };
        if let Err(error) = result {
            return Some(Err(error));
        }
        let done = session.tokens().len();
        let goes_on = self.job.send(EngineEvent::Prompt { done, logprobs });
        (!goes_on).then_some(Ok(Stop::Caller))
    }

    /// Chooses the next token by its scores.
    fn choose(&mut self, scores: &Scores, ends: &[u32]) -> Option<Ended> {
        let job = &mut self.job;
        let now = Instant::now();
        let begin = *self.first.get_or_insert(now);
        if self.usage.generated == 0 {
            self.usage.prefill.tokens = self.usage.prompt - self.usage.cached;
            self.usage.prefill.time = now - self.begin;
            let (done, logprobs) = (self.usage.prompt, Vec::new());
            if !job.send(EngineEvent::Prompt { done, logprobs }) {
                return Some(Ok(Stop::Caller));
            }
        } else {
            self.usage.decode.tokens += 1;
            self.usage.decode.time = now - begin;
        }
        let chosen = job.chain.choose(scores);
        let chosen = chosen.and_then(|id| job.chain.advance(id).map(|()| id));
        let id = match chosen {
            Ok(id) => id,
            Err(error) => return Some(Err(error.into())),
        };
        let count = job.request.logprobs;
        let logprobs = count.map(|count| match job.request.sampled_logprobs {
            true => TokenLogprobs::sampled(job.chain.probabilities(), id, count),
            false => TokenLogprobs::of(&scores.logits, id, count),
        });
        (self.next, self.usage.generated) = (id, self.usage.generated + 1);
        if !job.send(EngineEvent::Token { id, logprobs }) {
            return Some(Ok(Stop::Caller));
        }
        if ends.contains(&id) || job.chain.is_complete() {
            return Some(Ok(Stop::End));
        }
        let is_last = job.request.max_tokens == Some(self.usage.generated);
        is_last.then_some(Ok(Stop::Limit))
    }
}
