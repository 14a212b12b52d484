//! Drafts of a smaller model.

use super::Draft;
use crate::step::FEW;
use crate::{LlmError, Model, Scores, Selection, Session};

/// Number of tokens at the end by which vocabularies of one family may differ. They fill a table up
/// (llama.cpp's `SPEC_VOCAB_MAX_SIZE_DIFFERENCE`).
const PADDING: usize = 128;

/// The first tokens may have other names, as in llama.cpp: they are control tokens.
const CONTROL: u32 = 5;

/// Drafts the best tokens that are likely enough, as in llama.cpp.
const CANDIDATES: usize = 10;

/// Behind the text by more tokens than this, the draft reads them as a prompt.
const FAR: usize = 64;

const CURE: &str = "take a smaller model of the same family";

/// A smaller model, which drafts its most likely tokens.
pub struct ModelDraft<'m> {
    session: Session<'m>,
    selection: Selection,
    p_min: f32,
    scores: Scores,
}

impl<'m> ModelDraft<'m> {
    /// Drafts for `target` with the model of `session`. Drafting continues while the best token has
    /// `p_min` of the probability of the ten best.
    ///
    /// # Errors
    /// [`LlmError::Draft`] if the draft model has another vocabulary, or a smaller context.
    pub fn new(session: Session<'m>, target: &Session, p_min: f32) -> Result<Self, LlmError> {
        Self::check(session.model(), target.model())?;
        let (room, needed) = (session.context(), target.context());
        if room < needed {
            return Err(LlmError::Draft(format!(
                "its context has room for {room} tokens, the model's for {needed}; give both the same"
            )));
        }
        Ok(Self {
            session,
            selection: match p_min > 0.0 {
                true => Selection {
                    best: Some(CANDIDATES),
                    ..Selection::default()
                },
                false => Selection::best(),
            },
            p_min,
            scores: Scores::default(),
        })
    }

    /// Returns whether `draft` and `target` have the same vocabulary.
    ///
    /// # Errors
    /// [`LlmError::Draft`] with the first difference.
    pub fn check(draft: &Model, target: &Model) -> Result<(), LlmError> {
        let sizes = [draft, target].map(|model| model.spec().vocab);
        if sizes[0].abs_diff(sizes[1]) > PADDING {
            let [its, ours] = sizes;
            return Err(LlmError::Draft(format!(
                "its vocabulary has {its} tokens, the model's {ours}; {CURE}"
            )));
        }
        let (its, ours) = match (draft.tokenizer(), target.tokenizer()) {
            (Ok(its), Ok(ours)) => (its, ours),
            (Err(_), Err(_)) => return Ok(()),
            (Err(_), Ok(_)) => {
                return Err(LlmError::Draft(format!("it has no vocabulary; {CURE}")));
            }
            (Ok(_), Err(e)) => return Err(e),
        };
        let common = sizes[0].min(sizes[1]) as u32;
        let text = |id| [its, ours].map(|tokenizer| tokenizer.token_text(id).unwrap_or_default());
        let differing = (CONTROL..common).find(|&id| {
            let [its, ours] = text(id);
            its != ours
        });
        match differing {
            None => Ok(()),
            Some(id) => {
                let [its, ours] = text(id);
                Err(LlmError::Draft(format!(
                    "its token {id} is {its:?}, the model's {ours:?}; {CURE}"
                )))
            }
        }
    }

    /// Reads the new part of a text, in batches of few sizes, so that few programs are made.
    fn read(&mut self, tokens: &[u32]) -> Result<(), LlmError> {
        let kept = self.session.keep_prefix(tokens);
        let mut rest = &tokens[kept..];
        while !rest.is_empty() {
            let few = FEW.iter().rev().find(|&&few| few <= rest.len());
            let size = match rest.len() {
                far @ FAR.. => far,
                _ => few.copied().unwrap_or(1),
            };
            let (batch, behind) = rest.split_at(size);
            match behind.is_empty() {
                true => self.feed(batch)?,
                false => self.session.feed_ahead_of(batch, &self.selection)?,
            }
            rest = behind;
        }
        Ok(())
    }

    fn feed(&mut self, tokens: &[u32]) -> Result<(), LlmError> {
        let (selection, scores) = (&self.selection, &mut self.scores);
        self.session.feed_and_select(tokens, selection, scores)
    }

    /// The best token, if it is likely enough.
    fn best(&self) -> Option<u32> {
        let Scores { ids, logits } = &self.scores;
        let best = *ids.as_ref()?.first()?;
        let of_best = logits.iter().map(|logit| (logit - logits[0]).exp());
        (1.0 / of_best.sum::<f32>() >= self.p_min).then_some(best)
    }
}

impl Draft for ModelDraft<'_> {
    fn propose(&mut self, tokens: &[u32], max: usize) -> Result<Vec<u32>, LlmError> {
        let mut ids = Vec::with_capacity(max);
        let vocab = self.session.model().spec().vocab;
        // The model's vocabulary may be longer. Tokens beyond the draft's own mean nothing to the draft.
        if tokens.is_empty() || tokens.iter().any(|&id| id as usize >= vocab) {
            return Ok(ids);
        }
        self.read(tokens)?;
        while let Some(best) = self.best() {
            ids.push(best);
            if ids.len() >= max {
                break;
            }
            self.feed(&[best])?;
        }
        Ok(ids)
    }
}
