//! Training that resumes from checkpoints.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustorch_errors::ErrorKind;
use rustorch_files::{FileError, load, save};
use rustorch_tensor::{RusTorchError, RusTorchResult, Tensor};

use super::TrainStep;
use crate::call;
use crate::nn::Module;
use crate::optim::Rule;
use crate::optim::lr_scheduler::lrs;

/// Checkpoints in a folder: the latest files `step-00000100.safetensors` and so on. A file is
/// either complete or absent.
#[derive(Clone, Debug)]
pub struct Checkpoints {
    folder: PathBuf,
    keep: usize,
}

/// The reason why training with checkpoints cannot go on.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// A step failed, or a state does not match.
    #[error(transparent)]
    Step(#[from] RusTorchError),
    /// A file cannot be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// The folder cannot be read or written.
    #[error("{path}: {source}; check the path", path = .path.display())]
    Folder {
        /// The folder, or the file in it.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// Steps were lost again and again without a checkpoint in between.
    #[error("step {step} was lost with its device {times} times: {error}")]
    LostAgain {
        /// The step.
        step: u64,
        /// Number of times.
        times: usize,
        /// The last failure.
        error: Box<RusTorchError>,
    },
}

impl CheckpointError {
    /// The kind, for programs that react to it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Step(error) => error.kind(),
            Self::File(error) => error.kind(),
            Self::Folder { source, .. } => source.into(),
            Self::LostAgain { .. } => ErrorKind::DataLost,
        }
    }
}

/// The line of [`Display`](fmt::Display), as Rust prints this form of an error that `main` returns.
impl fmt::Debug for CheckpointError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Steps that were lost with a device, and are repeated.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Resumed {
    /// The step that failed, counted from 0.
    pub lost: u64,
    /// The number of steps before the checkpoint: training continues with the step of this number.
    pub from: u64,
    /// The failure.
    pub error: RusTorchError,
}

impl fmt::Display for Resumed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { lost, from, error } = self;
        let again = lost + 1 - from;
        write!(
            f,
            "step {lost} was lost ({error}); {again} steps are made again, from step {from} on"
        )
    }
}

/// Progress of [`TrainStep::fit`].
#[derive(Debug)]
pub enum Progress<'a, M> {
    /// A step was made; reading its loss is optional.
    Step {
        /// Its number, from 0 on.
        step: u64,
        /// The loss of its batch, before its update.
        loss: &'a Tensor,
        /// The module behind the step.
        module: &'a M,
        /// The learning rate of each group of the optimiser in the step. A schedule sets the next ones behind it.
        rates: &'a [f64],
    },
    /// Steps were lost.
    Resumed(&'a Resumed),
}

/// Number of times that a step may be lost in a row.
const TRIES: usize = 8;

impl Checkpoints {
    /// Checkpoints in a folder, which is created if missing. Only the latest `keep` files are kept.
    ///
    /// # Errors
    /// Fails if the folder cannot be made.
    pub fn new(folder: impl Into<PathBuf>, keep: usize) -> Result<Self, CheckpointError> {
        let (folder, keep) = (folder.into(), keep.max(1));
        fs::create_dir_all(&folder).map_err(|source| CheckpointError::Folder {
            path: folder.clone(),
            source,
        })?;
        Ok(Self { folder, keep })
    }

    /// The files, oldest first, each with the number of steps before it.
    ///
    /// # Errors
    /// Fails if the folder cannot be read.
    pub fn files(&self) -> Result<Vec<(u64, PathBuf)>, CheckpointError> {
        let failed = |source| CheckpointError::Folder {
            path: self.folder.clone(),
            source,
        };
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.folder).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            let name = path.file_name().and_then(|name| name.to_str());
            let steps = name.and_then(|name| {
                let number = name.strip_prefix("step-")?.strip_suffix(".safetensors")?;
                number.parse().ok()
            });
            files.extend(steps.map(|steps| (steps, path)));
        }
        files.sort();
        Ok(files)
    }

    /// Saves the training state, and returns the file.
    ///
    /// # Errors
    /// Fails if the system reports an error, or if a tensor was lost with its device.
    pub fn save<M: Module, R: Rule>(
        &self,
        train: &TrainStep<M, R>,
    ) -> Result<PathBuf, CheckpointError> {
        let path = self
            .folder
            .join(format!("step-{:08}.safetensors", train.steps()));
        save(&path, &train.state_dict()?)?;
        let files = self.files()?;
        for (_, old) in &files[..files.len().saturating_sub(self.keep)] {
            remove(old)?;
        }
        Ok(path)
    }

    /// Loads the latest file, and returns the number of steps before it; `None` if there is no
    /// file.
    ///
    /// # Errors
    /// Fails for a damaged file. Also the errors of [`TrainStep::load_state_dict`].
    #[track_caller]
    pub fn load_latest<M: Module, R: Rule>(
        &self,
        train: &mut TrainStep<M, R>,
    ) -> Result<Option<u64>, CheckpointError> {
        let _call = call::enter("Checkpoints.load_latest");
        let Some((_, path)) = self.files()?.pop() else {
            return Ok(None);
        };
        train.load_state_dict(&load(path)?)?;
        Ok(Some(train.steps()))
    }
}

/// Removes a file, if it is there.
fn remove(path: &Path) -> Result<(), CheckpointError> {
    match fs::remove_file(path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => Err(CheckpointError::Folder {
            path: path.to_owned(),
            source,
        }),
        _ => Ok(()),
    }
}

impl<M: Module, R: Rule> TrainStep<M, R> {
    /// Trains until the number of steps is `steps`. Saves a checkpoint at regular intervals. It begins with
    /// the latest checkpoint, if there is one. `batch` returns the tensors of a step by its number, always
    /// the same ones; `each` is called for every step.
    ///
    /// If a device is lost together with parameters or states, the latest checkpoint is loaded. Training then
    /// continues on the other devices, with the losses of an uninterrupted run.
    ///
    /// # Errors
    /// The errors of `batch` and `each`, except losses of data. Also the errors of
    /// [`TrainStep::step`] and [`Checkpoints::save`]. Also fails if a step is lost again and again.
    #[track_caller]
    pub fn fit(
        &mut self,
        steps: u64,
        checkpoints: (&Checkpoints, u64),
        mut batch: impl FnMut(u64) -> RusTorchResult<Vec<Tensor>>,
        mut each: impl FnMut(Progress<M>) -> RusTorchResult<()>,
    ) -> Result<(), CheckpointError> {
        let _call = call::enter("TrainStep.fit");
        let (checkpoints, every) = checkpoints;
        if checkpoints.load_latest(self)?.is_none() {
            checkpoints.save(self)?;
        }
        let mut lost = (0, 0);
        while self.steps() < steps {
            let step = self.steps();
            let mut made = || -> Result<(), CheckpointError> {
                let tensors = call::user(|| batch(step))?;
                let rates = lrs(&self.optimizer);
                let loss = self.step(&tensors.iter().collect::<Vec<_>>())?;
                let progress = Progress::Step {
                    step,
                    loss: &loss,
                    module: &self.module,
                    rates: &rates,
                };
                call::user(|| each(progress))?;
                if self.steps().is_multiple_of(every.max(1)) || self.steps() == steps {
                    checkpoints.save(self)?;
                }
                Ok(())
            };
            let error = match made() {
                Ok(()) => continue,
                Err(error) => data_lost(error)?,
            };
            lost = match lost {
                (at, times) if at == step => (at, times + 1),
                _ => (step, 1),
            };
            if lost.1 > TRIES {
                let (times, error) = (lost.1, Box::new(error));
                return Err(CheckpointError::LostAgain { step, times, error });
            }
            let from = checkpoints.load_latest(self)?.unwrap_or_default();
            let resumed = Resumed {
                lost: step,
                from,
                error,
            };
            call::user(|| each(Progress::Resumed(&resumed)))?;
        }
        Ok(())
    }
}

/// The loss of data that an error is, if it is one.
fn data_lost(error: CheckpointError) -> Result<RusTorchError, CheckpointError> {
    match error {
        CheckpointError::Step(error) if error.is_data_lost() => Ok(error),
        CheckpointError::File(error) => match cause(&error).filter(|cause| cause.is_data_lost()) {
            Some(lost) => Ok(lost.clone()),
            None => Err(CheckpointError::File(error)),
        },
        other => Err(other),
    }
}

/// The failure of a tensor that could not be written to a file.
fn cause(error: &FileError) -> Option<&RusTorchError> {
    match error {
        FileError::File { error, .. } => cause(error),
        FileError::Tensor { error, .. } => Some(error),
        _ => None,
    }
}
