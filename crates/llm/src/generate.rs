//! The generation loop: a prompt goes in, tokens come out one by one.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use rustorch_tokenizer::Tokenizer;

use crate::sampler::SamplerChain;
use crate::selection::{Scores, Selection};
use crate::session::Session;
use crate::speculation::{Speculation, SpeculationStats};
use crate::{LlmError, Model};

/// Conditions that stop [`generate`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GenerateOptions {
    /// Maximum number of tokens to generate; `None` for the room in the context.
    pub max_tokens: Option<usize>,
    /// Excludes end-of-text tokens, as llama.cpp's `--ignore-eos`.
    pub ignore_end: bool,
    /// Number of first tokens that [`Session::shift`] keeps when the context is full; `None` stops
    /// there.
    pub shift: Option<usize>,
}

impl GenerateOptions {
    /// The selection that [`generate`] will request from the session, for [`Session::load`] to
    /// prepare. The sampler is given the excluded tokens: those that the model suppresses, and ends
    /// by option.
    pub fn selection(&self, model: &Model, sampler: &mut SamplerChain) -> Selection {
        let suppressed = model.tokenizer().map(Tokenizer::suppressed);
        let mut banned = suppressed.unwrap_or_default().to_vec();
        if self.ignore_end {
            banned.extend(end_tokens(model));
        }
        if !banned.is_empty() {
            sampler.ban(&banned);
        }
        sampler.selection()
    }
}

/// The reason why generation stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The model ended the text; its end token is the last generated one. Also the end of a text in
    /// its grammar.
    End,
    /// The limit of the options was reached.
    Limit,
    /// The context has no room for another token.
    Context,
    /// The caller stopped it.
    Caller,
}

/// Events of [`generate`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A part of the prompt was processed.
    Prompt {
        /// Tokens of the prompt that are done.
        done: usize,
    },
    /// This token was generated.
    Token(u32),
    /// The context is full, and will be shifted if the options allow it. A handler that stops here
    /// finds the session unchanged.
    Full,
    /// The context was full, and some of its tokens were dropped.
    Shifted {
        /// Number of these tokens.
        dropped: usize,
    },
}

/// Number of processed tokens, and their time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Speed {
    /// Number of tokens.
    pub tokens: usize,
    /// Duration.
    pub time: Duration,
}

impl Speed {
    /// Tokens per second; `None` if there were none.
    pub fn per_second(&self) -> Option<f64> {
        let seconds = self.time.as_secs_f64();
        (self.tokens > 0 && seconds > 0.0).then(|| self.tokens as f64 / seconds)
    }

    fn add(&mut self, tokens: usize, since: Instant) {
        self.tokens += tokens;
        self.time += since.elapsed();
    }
}

/// The result of [`generate`].
#[derive(Clone, Debug, PartialEq)]
pub struct Generated {
    /// The new tokens, including the end token.
    pub ids: Vec<u32>,
    /// The reason why generation stopped.
    pub stop: Stop,
    /// Statistics of the prompt.
    pub prompt: Speed,
    /// Statistics of the new tokens. The last token is not fed back. Time for sampling and callbacks is included; a
    /// device may continue to work meanwhile.
    pub decode: Speed,
    /// Statistics of drafts, if there were any.
    pub speculation: SpeculationStats,
}

/// Adds `prompt` to the session, then generates. `on_event` is called for each part of the prompt
/// and each token, and may stop generation.
///
/// # Errors
/// Fails if the prompt is empty or does not fit the context. Also fails if no device is left, or if
/// `on_event` fails. Also fails if the grammar allows no token.
pub fn generate<E: From<LlmError>>(
    session: &mut Session,
    prompt: &[u32],
    sampler: &mut SamplerChain,
    options: &GenerateOptions,
    on_event: impl FnMut(Event) -> Result<ControlFlow<()>, E>,
) -> Result<Generated, E> {
    generate_with(session, prompt, sampler, options, None, on_event)
}

/// The same as [`generate`], with speculative decoding if `speculation` is given. On the CPU with up to three drafted
/// tokens, the text is the same. Elsewhere one of two nearly equal tokens may replace the other.
///
/// # Errors
/// The same errors as [`generate`]. Also fails if the draft model has no device left.
pub fn generate_with<E: From<LlmError>>(
    session: &mut Session,
    prompt: &[u32],
    sampler: &mut SamplerChain,
    options: &GenerateOptions,
    speculation: Option<&mut Speculation>,
    mut on_event: impl FnMut(Event) -> Result<ControlFlow<()>, E>,
) -> Result<Generated, E> {
    if prompt.is_empty() {
        return Err(LlmError::Input(
            "the prompt is empty, and this model has no token that begins a text; give a prompt"
                .to_owned(),
        )
        .into());
    }
    session.check(prompt)?;
    let mut run = Generated {
        ids: Vec::new(),
        stop: Stop::Caller,
        prompt: Speed::default(),
        decode: Speed::default(),
        speculation: SpeculationStats::default(),
    };
    let selection = options.selection(session.model(), sampler);
    let (ends, mut scores) = (end_tokens(session.model()), Scores::default());
    for batch in prompt.chunks(session.batch()) {
        let start = Instant::now();
        match run.prompt.tokens + batch.len() == prompt.len() {
            true => session.feed_and_select(batch, &selection, &mut scores)?,
            false => session.feed_ahead_of(batch, &selection)?,
        }
        run.prompt.add(batch.len(), start);
        let done = run.prompt.tokens;
        if on_event(Event::Prompt { done })?.is_break() {
            return Ok(run);
        }
    }
    prompt.iter().for_each(|&id| sampler.accept(id));

    let begin = Instant::now();
    let mut text = Text::new(session, selection, scores, speculation);
    run.stop = loop {
        let left = options.max_tokens.map(|limit| limit - run.ids.len());
        if left == Some(0) {
            break Stop::Limit;
        }
        if !run.ids.is_empty() {
            if !text.is_guessed() {
                text.settle();
                if text.is_full() {
                    let Some(keep) = options.shift else {
                        break Stop::Context;
                    };
                    if on_event(Event::Full)?.is_break() {
                        break Stop::Context;
                    }
                    // One that is kept whole has no room either.
                    let dropped = text.shift(keep)?;
                    if dropped == 0 {
                        break Stop::Context;
                    }
                    if on_event(Event::Shifted { dropped })?.is_break() {
                        break Stop::Caller;
                    }
                }
                text.feed(left)?;
            }
            text.go_on();
            run.decode.tokens += 1;
            run.decode.time = begin.elapsed();
        }
        let id = sampler.choose(text.scores()).map_err(LlmError::from)?;
        sampler.advance(id).map_err(LlmError::from)?;
        run.ids.push(id);
        text.push(id);
        if on_event(Event::Token(id))?.is_break() {
            break Stop::Caller;
        }
        if ends.contains(&id) || sampler.is_complete() {
            break Stop::End;
        }
    };
    run.speculation = text.stats();
    Ok(run)
}

/// A text that grows token by token, and its session. The session has all tokens but the last chosen one, and
/// may have drafted tokens behind.
struct Text<'s, 'm, 'd> {
    session: &'s mut Session<'m>,
    selection: Selection,
    speculation: Option<&'s mut Speculation<'d>>,
    /// The tokens, with the one that was chosen last.
    ids: Vec<u32>,
    /// Number of the session's tokens that are not guesses.
    certain: usize,
    /// The position of the first token with these scores.
    scored: usize,
    scores: Vec<Scores>,
}

impl<'s, 'm, 'd> Text<'s, 'm, 'd> {
    /// The text that the session has, behind which these are the scores.
    fn new(
        session: &'s mut Session<'m>,
        selection: Selection,
        scores: Scores,
        speculation: Option<&'s mut Speculation<'d>>,
    ) -> Self {
        let ids = session.tokens().to_vec();
        Self {
            selection,
            speculation,
            certain: ids.len(),
            scored: ids.len() - 1,
            scores: vec![scores],
            ids,
            session,
        }
    }

    /// Adds a token that was chosen.
    fn push(&mut self, id: u32) {
        self.ids.push(id);
        if self.is_guessed()
            && let Some(speculation) = &mut self.speculation
        {
            speculation.accept();
        }
    }

    /// Has the session the token that was chosen last, because it was guessed?
    fn is_guessed(&self) -> bool {
        self.session.tokens().get(self.certain) == self.ids.last()
    }

    /// Makes the session forget wrong and unused guesses.
    fn settle(&mut self) {
        if self.session.tokens().len() > self.certain {
            self.session.truncate(self.certain);
        }
        if let Some(speculation) = &mut self.speculation {
            speculation.settle();
        }
    }

    /// Has the context no room for the token that was chosen last?
    fn is_full(&self) -> bool {
        self.certain >= self.session.context()
    }

    /// Makes room in a full context, see [`Session::shift`].
    fn shift(&mut self, keep: usize) -> Result<usize, LlmError> {
        let last = self.ids.split_off(self.certain);
        let dropped = self.session.shift(keep, &self.selection)?;
        self.ids.clear();
        self.ids.extend_from_slice(self.session.tokens());
        self.certain = self.ids.len();
        self.ids.extend(last);
        Ok(dropped)
    }

    /// Runs the last chosen token through the model, with up to `left` drafted tokens and a token behind them.
    fn feed(&mut self, left: Option<usize>) -> Result<(), LlmError> {
        let batch = self.session.batch().min(left.unwrap_or(usize::MAX));
        let room = batch.min(self.session.context() - self.certain) - 1;
        let mut fed = self.ids[self.certain..].to_vec();
        if let Some(speculation) = &mut self.speculation {
            fed.extend(speculation.propose(&self.ids, room)?);
        }
        let begin = Instant::now();
        let (selection, scores) = (&self.selection, &mut self.scores);
        self.session.feed_and_select_each(&fed, selection, scores)?;
        self.scored = self.certain;
        if let Some(speculation) = &mut self.speculation {
            speculation.fed(begin.elapsed());
        }
        Ok(())
    }

    /// Goes on behind the token that was chosen last, which went through the model.
    fn go_on(&mut self) {
        self.certain = self.ids.len();
    }

    /// The source of the next token.
    fn scores(&self) -> &Scores {
        &self.scores[self.certain - 1 - self.scored]
    }

    /// Statistics of drafts.
    fn stats(&mut self) -> SpeculationStats {
        let speculation = self.speculation.as_mut();
        speculation.map_or_else(SpeculationStats::default, |s| s.take_stats())
    }
}

impl Drop for Text<'_, '_, '_> {
    /// At any end, the session keeps its certain tokens.
    fn drop(&mut self) {
        self.settle();
    }
}

/// The tokens that end a text: none if the model has no vocabulary.
pub(crate) fn end_tokens(model: &Model) -> Vec<u32> {
    let Ok(tokenizer) = model.tokenizer() else {
        return Vec::new();
    };
    (0..tokenizer.vocab_size() as u32)
        .filter(|&id| tokenizer.is_end_of_generation(id))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speed_of_nothing_is_unknown() {
        assert_eq!(Speed::default().per_second(), None);
        let speed = Speed {
            tokens: 3,
            time: Duration::from_millis(500),
        };
        assert_eq!(speed.per_second(), Some(6.0));
    }
}
