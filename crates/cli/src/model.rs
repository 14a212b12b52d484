//! Opening a model: the file that was asked for, or the bundled one.

use std::fmt;
use std::path::PathBuf;

use anyhow::{Context, Result};
use indicatif::ProgressBar;
use rustorch_gguf::Gguf;
use rustorch_llm::{LlmError, Model, RowSplit, Selection, Session, hugging_face, load_tokenizer};
use rustorch_tensor::distributed::CommunicationGroup;
use rustorch_tokenizer::Tokenizer;

use crate::args::{ChangeArgs, FileArgs, KeyArgs, ModelArgs};
use crate::failure::Usage;
use crate::{bundled, progress};

/// Files above this size are worth a progress bar.
const LARGE: u64 = 64 << 20;

/// The source of a model, and its changes.
#[derive(Default)]
pub(crate) struct Source {
    file: FileArgs,
    changes: ChangeArgs,
    /// The ranks that the weights are divided among.
    ranks: Option<CommunicationGroup>,
}

impl From<&ModelArgs> for Source {
    fn from(args: &ModelArgs) -> Self {
        Self {
            file: args.file.clone(),
            changes: args.changes.clone(),
            ranks: None,
        }
    }
}

impl From<&FileArgs> for Source {
    fn from(args: &FileArgs) -> Self {
        Self {
            file: args.clone(),
            ..Self::default()
        }
    }
}

impl Source {
    /// The model in this file, as it is; without one, the bundled model.
    pub(crate) fn new(path: Option<PathBuf>) -> Self {
        Self {
            file: FileArgs {
                model: path,
                ..FileArgs::default()
            },
            ..Self::default()
        }
    }

    /// The model in this file with changes; without a file, the bundled model.
    pub(crate) fn changed(path: Option<PathBuf>, keys: &KeyArgs, changes: &ChangeArgs) -> Self {
        Self {
            file: FileArgs {
                model: path,
                keys: keys.clone(),
            },
            changes: changes.clone(),
            ranks: None,
        }
    }

    /// The same with weights divided among ranks, if there are several.
    pub(crate) fn divided(&self, ranks: &CommunicationGroup) -> Self {
        Self {
            file: self.file.clone(),
            changes: self.changes.clone(),
            ranks: (ranks.size() > 1).then(|| ranks.clone()),
        }
    }

    pub(crate) fn is_bundled(&self) -> bool {
        self.file.model.is_none()
    }

    /// The header of the file or folder, checked, with the values of keys that are given instead.
    ///
    /// # Errors
    /// Fails if the file is missing, or is not a valid GGUF file or folder. Also fails if a key has
    /// two values.
    pub(crate) fn open(&self) -> Result<Gguf> {
        let mut gguf = match &self.file.model {
            Some(path) => match hugging_face::folder(path) {
                Some(folder) => hugging_face::open(&folder)?,
                None => Gguf::open(path)?,
            },
            None => bundled::open()?,
        };
        self.file.keys.apply(&mut gguf.metadata)?;
        Ok(gguf)
    }

    /// The model, whose weights are still on disk; see [`load`].
    ///
    /// # Errors
    /// The same errors as [`Self::open`]. Also fails if the model is unsupported or damaged. Also
    /// fails if an adapter cannot be read or is for another model.
    pub(crate) fn load(&self) -> Result<Model> {
        let (gguf, mut options) = (self.open()?, self.changes.options()?);
        options.row_split = self.ranks.as_ref().map(RowSplit::new);
        Model::load_with(gguf, &options).map_err(|e| self.told(e))
    }

    /// The tokenizer alone.
    ///
    /// # Errors
    /// The same errors as [`Self::open`]. Also fails if the tokenizer is missing or unsupported.
    pub(crate) fn tokenizer(&self) -> Result<Tokenizer> {
        let tokenizer = load_tokenizer(&self.open()?).map_err(|e| self.told(e))?;
        tokenizer
            .ok_or(LlmError::NoVocabulary)
            .with_context(|| self.to_string())
    }

    /// The error, with the file's name. Errors of adapters name their file themselves.
    fn told(&self, error: LlmError) -> anyhow::Error {
        match error {
            LlmError::Adapter { .. } => error.into(),
            error => match self.file.keys.explain(error) {
                usage if usage.is::<Usage>() => usage,
                error => error.context(self.to_string()),
            },
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.file.model {
            Some(path) => path.display().fmt(f),
            None => f.write_str(bundled::NAME),
        }
    }
}

/// Brings a session's weights to its devices, so that the first tokens need not wait for disk or
/// link.
///
/// # Errors
/// Fails if no device is left.
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
