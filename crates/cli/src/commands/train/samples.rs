//! The samples of `train`: texts or conversations as tokens.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Result;
use rustorch_gguf::Metadata;
use rustorch_llm::{Model, hugging_face};
use rustorch_train::{Conversations, Corpus, Prepared, Samples, Text, Windows};

use super::options::Options;
use crate::commands::chat;
use crate::failure::Usage;
use crate::progress;

/// The training data, and the keys of its vocabulary.
pub(super) struct Learnt {
    pub(super) samples: Samples,
    pub(super) validation: Samples,
    pub(super) metadata: Metadata,
}

impl Options {
    /// The texts and the model that is trained further, read once.
    pub(super) fn prepared(&self) -> Result<Prepared> {
        let texts = self.text.iter().chain(&self.chat);
        let model = match &self.tuning.finetune {
            Some(path) => match hugging_face::folder(path) {
                Some(folder) => hugging_face::weights(&folder)?,
                None => vec![path.clone()],
            },
            None => Vec::new(),
        };
        let all = || texts.clone().chain(&self.val).chain(&model);
        let bar = progress::bytes(
            "reading",
            all()
                .filter_map(|path| Some(path.metadata().ok()?.len()))
                .sum(),
        );
        let open =
            |path: &PathBuf| -> Result<Text> { Ok(Text::open(path, |bytes| bar.inc(bytes))?) };
        let prepared = Prepared {
            texts: texts.clone().map(open).collect::<Result<_, _>>()?,
            validation: self.val.as_ref().map(open).transpose()?,
            vocab: self.tuning.finetune.is_none().then_some(self.size.vocab),
            model: model.iter().map(open).collect::<Result<_, _>>()?,
        };
        bar.finish_and_clear();
        Ok(prepared)
    }

    /// Makes samples of the texts or conversations.
    pub(super) fn learnt(
        &self,
        prepared: &Prepared,
        base: Option<&Model>,
        folder: &Path,
        context: usize,
    ) -> Result<Learnt> {
        if let (Some(path), Some(model)) = (&self.chat, base) {
            let tokenizer = model.tokenizer()?;
            let templates = chat::templates(model, tokenizer, None)?;
            let all = Conversations::read(path, &templates, tokenizer, context)?;
            let [samples, validation] = all.split_last().map(|part| -> Samples { Arc::new(part) });
            let metadata = model.gguf().metadata.clone();
            return Ok(Learnt {
                samples,
                validation,
                metadata,
            });
        }
        let vocabulary = base.map(|model| model.gguf().metadata.clone());
        let corpus = prepare(prepared, vocabulary, folder)?;
        let windows = |tokens| Windows::new(Arc::new(tokens), context);
        let learnt = windows(corpus.tokens);
        let [samples, validation] = match corpus.validation {
            Some(tokens) => {
                let count = tokens.len();
                let predicted = windows(tokens);
                if predicted.steps(1) == 0 {
                    let val = self.val.as_deref().unwrap_or(Path::new("")).display();
                    return Err(Usage(format!(
                        "{val}: the text is too short: it has {count} tokens, and a sample {context} and one more; \
                         give more text, or a smaller --context"
                    ))
                    .into());
                }
                [learnt, predicted]
            }
            None => learnt.split_last(),
        };
        Ok(Learnt {
            samples: Arc::new(samples),
            validation: Arc::new(validation),
            metadata: corpus.metadata,
        })
    }
}

/// Makes tokens of the texts, or takes those of the run that is gone on with.
fn prepare(prepared: &Prepared, vocabulary: Option<Metadata>, folder: &Path) -> Result<Corpus> {
    let learnt: u64 = prepared.texts.iter().map(|text| text.bytes).sum();
    let predicted = prepared.validation.as_ref().map_or(0, |text| text.bytes);
    let bar = progress::bytes("texts", 2 * learnt + predicted);
    let corpus = Corpus::prepare(prepared, vocabulary, folder, |what, bytes| {
        bar.set_message(what);
        bar.inc(bytes);
    })?;
    bar.finish_and_clear();
    Ok(corpus)
}

/// The keys of a new model with its vocabulary.
pub(super) fn merged(mut keys: Metadata, vocabulary: &Metadata) -> Metadata {
    for (key, value) in vocabulary.iter() {
        keys.insert(key, value.clone());
    }
    keys
}
