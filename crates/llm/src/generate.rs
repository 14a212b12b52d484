//! The generation loop: a prompt goes in, tokens come out one by one.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use crate::sampler::SamplerChain;
use crate::selection::{Scores, Selection};
use crate::session::Session;
use crate::speculation::{Speculation, SpeculationStats};
use crate::{LlmError, Model};

/// When [`generate`] stops by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GenerateOptions {
    /// Tokens to generate at most; `None` for as many as the context has room for.
    pub max_tokens: Option<usize>,
    /// Makes tokens that end the text impossible, as llama.cpp's `--ignore-eos`.
    pub ignore_end: bool,
    /// When the context is full, [`Session::shift`] makes room, and keeps so many tokens at the
    /// beginning; `None` stops there.
    pub shift: Option<usize>,
}

impl GenerateOptions {
    /// What [`generate`] is going to ask the session for, which [`Session::load`] can prepare.
    /// The sampler is told which tokens are impossible.
    pub fn selection(&self, model: &Model, sampler: &mut SamplerChain) -> Selection {
        if self.ignore_end {
            sampler.ban(&end_tokens(model));
        }
        sampler.selection()
    }
}

/// Why generation stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The model ended the text; the token that says so is the last one generated. Or the text is
    /// at the end of its form.
    End,
    /// The limit of the options was reached.
    Limit,
    /// The context has no room for another token.
    Context,
    /// The caller asked for it.
    Caller,
}

/// What [`generate`] reports while it works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A part of the prompt went through the model.
    Prompt {
        /// Tokens of the prompt that are done.
        done: usize,
    },
    /// This token was generated.
    Token(u32),
    /// The context is full, and is shifted if the options say so; who stops here has it left as it
    /// is.
    Full,
    /// The context was full: so many of its tokens are forgotten.
    Shifted {
        /// How many.
        dropped: usize,
    },
}

/// Tokens that went through the model, and the time they took.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Speed {
    /// How many.
    pub tokens: usize,
    /// How long.
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

/// What [`generate`] did.
#[derive(Clone, Debug, PartialEq)]
pub struct Generated {
    /// The new tokens, with the one that ended the text.
    pub ids: Vec<u32>,
    /// Why there are no more.
    pub stop: Stop,
    /// The prompt's way through the model.
    pub prompt: Speed,
    /// The same for the new tokens, of which the last is not fed back; with choosing and telling
    /// them, during which a device may work on.
    pub decode: Speed,
    /// What became of guesses, if there were some.
    pub speculation: SpeculationStats,
}

/// Adds `prompt` to the session, then lets the model go on. `on_event` hears of each part of
/// the prompt and each token as it comes, and may stop.
///
/// # Errors
/// The prompt is empty or does not fit the context, no device is left, the text cannot go on in its
/// form, or `on_event` failed.
pub fn generate<E: From<LlmError>>(
    session: &mut Session,
    prompt: &[u32],
    sampler: &mut SamplerChain,
    options: &GenerateOptions,
    on_event: impl FnMut(Event) -> Result<ControlFlow<()>, E>,
) -> Result<Generated, E> {
    generate_with(session, prompt, sampler, options, None, on_event)
}

/// As [`generate`], with tokens that are guessed and checked several at a time, if `speculation` is
/// given: the text is the same.
///
/// # Errors
/// As [`generate`]; the draft model has no device left.
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
            "the prompt is empty, and this model does not begin texts by itself: give it some text"
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

/// A text that grows token by token, and a session that has all of it but the token that was chosen
/// last, and may have guesses behind.
struct Text<'s, 'm, 'd> {
    session: &'s mut Session<'m>,
    selection: Selection,
    speculation: Option<&'s mut Speculation<'d>>,
    /// The tokens, with the one that was chosen last.
    ids: Vec<u32>,
    /// How many of the session's tokens are no guesses.
    certain: usize,
    /// Where the tokens begin behind which these are the scores.
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

    /// Has the session forget guesses that are wrong, and those that nobody came to.
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

    /// Has the token that was chosen last go through the model, with guesses of what follows, of which
    /// no more than `left` are of use, with a token behind them.
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

    /// What the next token is chosen from.
    fn scores(&self) -> &Scores {
        &self.scores[self.certain - 1 - self.scored]
    }

    /// What became of guesses.
    fn stats(&mut self) -> SpeculationStats {
        let speculation = self.speculation.as_mut();
        speculation.map_or_else(SpeculationStats::default, |s| s.take_stats())
    }
}

impl Drop for Text<'_, '_, '_> {
    /// However it ends, the session has what is certain.
    fn drop(&mut self) {
        self.settle();
    }
}

/// The tokens that end a text: none if the model has no vocabulary.
fn end_tokens(model: &Model) -> Vec<u32> {
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
