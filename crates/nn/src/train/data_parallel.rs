//! Training by several ranks: `torch.nn.parallel.DistributedDataParallel`.

use std::path::PathBuf;

use rustorch_macros::track_calls;
use rustorch_tensor::distributed::CommunicationGroup;
use rustorch_tensor::{RusTorchError, RusTorchResult, Tensor};

use super::checkpoints::{CheckpointError, Checkpoints};
use super::step::TrainStep;
use crate::error::{require, unexpected};
use crate::nn::Module;
use crate::optim::Rule;

/// A [`TrainStep`] whose batches are divided among the ranks of a group. All ranks have the same parameters, and make
/// the same calls.
///
/// The losses and updates are those of one rank with the whole batch, up to rounding. The loss of a batch has to be
/// the mean of its rows' losses. A rank's rows count as their share of the batch. So the ranks need not
/// divide its size.
///
/// ```
/// # extern crate rustorch_nn as rustorch;
/// use rustorch::nn::{Forward, Linear, MSELoss, Module};
/// use rustorch::optim::{SGD, SGDOptions};
/// use rustorch::train::{DataParallelTrainer, TrainStep};
/// use rustorch_tensor::distributed::CommunicationGroup;
/// use rustorch_tensor::{RusTorchResult, tensor};
///
/// # fn main() -> RusTorchResult<()> {
/// // A process that no launcher started is a group of one.
/// let group = CommunicationGroup::of_environment(Default::default())?;
/// let net = Linear::new(1, 1)?;
/// let sgd = SGD::new(net.named_parameters(), SGDOptions::default().lr(0.1))?;
/// let step = TrainStep::new(net, sgd, |net, batch| {
///     MSELoss::default().forward(&net.forward(&batch[0])?, &batch[1])
/// });
/// let mut trainer = DataParallelTrainer::new(&group, step)?;
/// let (x, y) = (tensor![[1.0], [2.0]], tensor![[2.0], [4.0]]);
/// let loss = trainer.step(&[&x, &y])?; // the same on all ranks
/// # let _ = loss;
/// # Ok(())
/// # }
/// ```
pub struct DataParallelTrainer<M, R: Rule> {
    group: CommunicationGroup,
    train: TrainStep<M, R>,
}

#[track_calls(DataParallelTrainer)]
impl<M: Module, R: Rule> DataParallelTrainer<M, R> {
    /// A step for the ranks of a group. All get the parameters and buffers of rank 0.
    ///
    /// # Errors
    /// The ranks have other modules, or cannot finish.
    pub fn new(group: &CommunicationGroup, train: TrainStep<M, R>) -> RusTorchResult<Self> {
        Ok(Self {
            train: train.data_parallel(group)?,
            group: group.clone(),
        })
    }

    /// Makes a step with a batch, which all ranks pass whole. Each computes its rows of the tensors' first dimension.
    /// Returns the loss of the whole batch.
    ///
    /// # Errors
    /// The tensors have no rows, or other numbers of them. The errors of [`TrainStep::step`], which end the group. A
    /// rank is missing, or ended the group.
    pub fn step(&mut self, batch: &[&Tensor]) -> RusTorchResult<Tensor> {
        let rows = batch.first().and_then(|tensor| tensor.shape().first());
        let rows = rows.copied().unwrap_or(0);
        let is_whole = |tensor: &&Tensor| tensor.shape().first() == Some(&rows);
        let expected = "tensors of the same number of rows, at least 1";
        let shapes: Vec<&[usize]> = batch.iter().map(|tensor| tensor.shape()).collect();
        let fits = rows > 0 && batch.iter().all(is_whole);
        let checked = require("step", fits, expected, format_args!("{shapes:?}"));
        checked.map_err(|error| self.ended(error))?;
        let (rank, ranks) = (self.group.rank(), self.group.size());
        let start = |rank: usize| rows * rank / ranks;
        let own = start(rank + 1) - start(rank);
        // A rank without rows computes one for nothing: all ranks make the same calls.
        let part = |tensor: &&Tensor| tensor.narrow(0, start(rank).min(rows - 1), own.max(1));
        let part = batch.iter().map(part).collect::<RusTorchResult<Vec<_>>>();
        let part = part.map_err(|error| self.ended(error))?;
        self.step_part(&part.iter().collect::<Vec<_>>(), own as f64 / rows as f64)
    }

    /// Makes a step with this rank's own part of a batch. Its mean loss counts as `share` of the whole batch's: the
    /// shares of all ranks add up to 1. Returns the loss of the whole batch.
    ///
    /// # Errors
    /// The errors of [`TrainStep::step`], which end the group. A rank is missing, or ended the group.
    pub fn step_part(&mut self, part: &[&Tensor], share: f64) -> RusTorchResult<Tensor> {
        let loss = self.train.step_part(part, share);
        loss.map_err(|error| self.ended(error))
    }

    /// The error of this rank, which other ranks hear of.
    fn ended(&self, error: RusTorchError) -> RusTorchError {
        let error = self.group.explain(error);
        if !matches!(error, RusTorchError::Collective { .. }) {
            self.group.abort(&error.to_string());
        }
        error
    }

    /// The group.
    pub fn group(&self) -> &CommunicationGroup {
        &self.group
    }

    /// The step.
    pub fn train_step(&self) -> &TrainStep<M, R> {
        &self.train
    }

    /// The step. Ranks have to change it alike.
    pub fn train_step_mut(&mut self) -> &mut TrainStep<M, R> {
        &mut self.train
    }

    /// Rank 0 saves the training state. It can be loaded by any number of ranks. Returns the file on rank 0.
    ///
    /// # Errors
    /// The errors of [`Checkpoints::save`]. A rank is missing.
    pub fn save(&self, checkpoints: &Checkpoints) -> Result<Option<PathBuf>, CheckpointError> {
        let saved = (self.group.rank() == 0).then(|| checkpoints.save(&self.train));
        if let Some(Err(error)) = &saved {
            self.group.abort(&error.to_string());
        }
        let saved = saved.transpose()?;
        self.group.barrier()?;
        Ok(saved)
    }

    /// Loads the latest file on all ranks, which have to reach the folder. Returns the number of steps before it;
    /// `None` if there is no file.
    ///
    /// # Errors
    /// The errors of [`Checkpoints::load_latest`]. Ranks found other files.
    pub fn load_latest(
        &mut self,
        checkpoints: &Checkpoints,
    ) -> Result<Option<u64>, CheckpointError> {
        let loaded = checkpoints.load_latest(&mut self.train);
        if let Err(error) = &loaded {
            self.group.abort(&error.to_string());
        }
        let own = loaded?;
        self.agree(own)?;
        Ok(own)
    }

    /// Fails if a rank has another number.
    fn agree(&self, own: Option<u64>) -> RusTorchResult<()> {
        let number = own.map_or(-1, |steps| steps as i64);
        let all = self.group.all_gather(&Tensor::from_vec(vec![number], 1)?)?;
        let all = all.to_vec::<i64>()?;
        let other = all.iter().position(|&steps| steps != all[0]);
        other.map_or(Ok(()), |rank| {
            let found = |steps: i64| match steps {
                -1 => "none".to_owned(),
                steps => format!("that of step {steps}"),
            };
            let expected = "one checkpoint on all ranks, in a folder that all reach";
            let got = format_args!(
                "{} on rank 0, {} on rank {rank}",
                found(all[0]),
                found(all[rank])
            );
            Err(unexpected("load_latest", expected, got))
        })
    }
}
