//! Opening a model: the file that was asked for, or the bundled one.

use std::fmt;
use std::path::PathBuf;

use anyhow::{Context, Result};
use indicatif::ProgressBar;
use rustorch_gguf::Gguf;
use rustorch_llm::{LlmError, Model, Selection, Session, load_tokenizer};
use rustorch_tokenizer::Tokenizer;

use crate::args::ModelArgs;
use crate::{bundled, progress};

/// Files above this size are worth a progress bar.
const LARGE: u64 = 64 << 20;

/// Where a model comes from.
pub(crate) struct Source(Option<PathBuf>);

impl From<&ModelArgs> for Source {
    fn from(args: &ModelArgs) -> Self {
        Self(args.model.clone())
    }
}

impl Source {
    /// The model in this file; without one, the bundled model.
    pub(crate) fn new(path: Option<PathBuf>) -> Self {
        Self(path)
    }

    pub(crate) fn is_bundled(&self) -> bool {
        self.0.is_none()
    }

    /// The file's header, checked.
    ///
    /// # Errors
    /// There is no such file, or it is not a sound GGUF file.
    pub(crate) fn open(&self) -> Result<Gguf> {
        Ok(match &self.0 {
            Some(path) => Gguf::open(path)?,
            None => bundled::open()?,
        })
    }

    /// The model, whose weights are still on disk; see [`load`].
    ///
    /// # Errors
    /// As [`Self::open`]; the model is of a kind that is not supported, or damaged.
    pub(crate) fn load(&self) -> Result<Model> {
        Model::load(self.open()?).with_context(|| self.to_string())
    }

    /// The tokenizer alone.
    ///
    /// # Errors
    /// As [`Self::open`]; there is no tokenizer, or it is not supported.
    pub(crate) fn tokenizer(&self) -> Result<Tokenizer> {
        let tokenizer = load_tokenizer(&self.open()?).with_context(|| self.to_string())?;
        tokenizer
            .ok_or(LlmError::NoVocabulary)
            .with_context(|| self.to_string())
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(path) => path.display().fmt(f),
            None => f.write_str(bundled::NAME),
        }
    }
}

/// Brings a session's weights to its devices, so that the first tokens need not wait for disk or
/// link.
///
/// # Errors
/// No device is left.
pub(crate) fn load(session: &mut Session, selection: &Selection) -> Result<()> {
    let bar = match session.model().gguf().file_bytes() {
        size if size > LARGE => progress::bytes("loading", size),
        _ => ProgressBar::hidden(),
    };
    session.load(selection, |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    })?;
    bar.finish_and_clear();
    Ok(())
}
