//! Checkpoints, from which a run resumes.

use std::fs;
use std::path::{Path, PathBuf};

use rustorch_files::{Tensors, safetensors};

use crate::TrainError;

/// Number of kept checkpoints: one more than is needed, in case the newest is damaged.
const KEPT: usize = 2;

const PREFIX: &str = "step-";
const SUFFIX: &str = ".safetensors";

/// Beginnings of unfinished files' names: those of `rustorch-files`, `rustorch-gguf` and `tempfile`.
const UNFINISHED: [&str; 3] = [".tensors-", ".gguf-", ".tmp"];

/// The checkpoints in a folder.
pub struct Checkpoints {
    folder: PathBuf,
}

impl Checkpoints {
    /// The checkpoints in `folder`, which is created if it is missing.
    ///
    /// # Errors
    /// Fails if the folder cannot be made.
    pub fn new(folder: &Path) -> Result<Self, TrainError> {
        fs::create_dir_all(folder).map_err(TrainError::io(folder, "make the folder"))?;
        let checkpoints = Self {
            folder: folder.to_owned(),
        };
        // A run that was killed may have left unfinished files.
        for (name, path) in checkpoints.files()? {
            if UNFINISHED.iter().any(|prefix| name.starts_with(prefix)) {
                fs::remove_file(&path).map_err(TrainError::io(&path, "remove the file"))?;
            }
        }
        Ok(checkpoints)
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The names of the folder's files.
    fn files(&self) -> Result<Vec<(String, PathBuf)>, TrainError> {
        let failed = |error| TrainError::io(&self.folder, "read the folder")(error);
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            files.extend(
                entry
                    .file_name()
                    .into_string()
                    .ok()
                    .map(|name| (name, entry.path())),
            );
        }
        Ok(files)
    }

    /// The files with their steps, the newest first.
    ///
    /// # Errors
    /// Fails if the folder cannot be read.
    pub fn list(&self) -> Result<Vec<(u64, PathBuf)>, TrainError> {
        let step = |(name, path): (String, PathBuf)| {
            let number = name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?;
            Some((number.parse().ok()?, path))
        };
        let mut found: Vec<(u64, PathBuf)> = self.files()?.into_iter().filter_map(step).collect();
        found.sort_unstable();
        found.reverse();
        Ok(found)
    }

    /// Writes a checkpoint, which appears when it is complete, and removes old ones.
    ///
    /// # Errors
    /// Fails if the checkpoint cannot be written. Earlier ones are kept.
    pub fn save(&self, step: u64, tensors: &Tensors) -> Result<PathBuf, TrainError> {
        let path = self.folder.join(format!("{PREFIX}{step:08}{SUFFIX}"));
        safetensors::save(&path, tensors)?;
        for (_, old) in self.list()?.into_iter().skip(KEPT) {
            fs::remove_file(&old).map_err(TrainError::io(&old, "remove the old checkpoint"))?;
        }
        Ok(path)
    }

    /// Removes the folder with all files of the run.
    ///
    /// # Errors
    /// Fails if the folder cannot be removed.
    pub fn remove(self) -> Result<(), TrainError> {
        fs::remove_dir_all(&self.folder).map_err(TrainError::io(&self.folder, "remove the folder"))
    }
}
