//! Training steps as programs.

use std::collections::HashMap;

use rustorch_ir::{DType, Scalar};
use rustorch_macros::track_calls;
use rustorch_runtime::{Storage, WorkingMemory};
use rustorch_tensor::autograd::grad_with;
use rustorch_tensor::distributed::CommunicationGroup;
use rustorch_tensor::replay::{RandomKeys, record_keys};
use rustorch_tensor::{GradOptions, RusTorchError, RusTorchResult, Tensor, no_grad};

use super::anomaly::Suspect;
use super::program::{Kind, Program, Ran, Recorded, placeholder};
use super::ranks::Ranks;
use crate::amp::{GradScaler, non_finite};
use crate::call;
use crate::error::require;
use crate::nn::{Leaf, Module, ParameterId, get_total_norm, scaled};
use crate::optim::lr_scheduler::{LrScheduler, Schedule};
use crate::optim::{Optimizer, Rule};

const NAME: &str = "TrainStep";

/// Programs that are kept: of batches of other shapes, such as the last one of an epoch.
const KEPT: usize = 8;

/// The function that computes the loss of a batch.
type Loss<M> = dyn Fn(&M, &[Tensor]) -> RusTorchResult<Tensor> + Send + Sync;

/// A training step as one program: the loss of a batch, its gradients, their clipping, and the
/// update of parameters and optimiser in their memory.
///
/// The loss function is called to record the step, once for each set of shapes. Later steps run the
/// recording. Learning rates, numbers of steps and random keys are its data, so schedules and
/// dropout need no other program. If an optimiser's states do not begin as zeros
/// ([`SGD`](crate::optim::SGD) with momentum), the first step is a separate program. The numbers
/// are those of the same step made by [`Tensor::backward`] and [`Optimizer::step`].
///
/// ```
/// # extern crate rustorch_nn as rustorch;
/// use rustorch::nn::{Forward, Linear, MSELoss, Module};
/// use rustorch::optim::{SGD, SGDOptions};
/// use rustorch::train::TrainStep;
/// use rustorch_tensor::{RusTorchResult, tensor};
///
/// # fn main() -> RusTorchResult<()> {
/// let net = Linear::new(1, 1)?;
/// let sgd = SGD::new(net.named_parameters(), SGDOptions::default().lr(0.1))?;
/// let mut train = TrainStep::new(net, sgd, |net, batch| {
///     MSELoss::default().forward(&net.forward(&batch[0])?, &batch[1])
/// });
/// let (x, y) = (tensor![[1.0], [2.0]], tensor![[2.0], [4.0]]);
/// let first = train.step(&[&x, &y])?;
/// let mut last = first.clone();
/// for _ in 0..20 {
///     last = train.step(&[&x, &y])?;
/// }
/// assert!(last.item()? < first.item()?);
/// # Ok(())
/// # }
/// ```
pub struct TrainStep<M, R: Rule> {
    pub(super) module: M,
    pub(super) optimizer: Optimizer<R>,
    loss: Box<Loss<M>>,
    /// The largest norm of the gradients, and which norm.
    clip: Option<(f64, f64)>,
    /// Batches of an update.
    pub(super) every: usize,
    is_checked: bool,
    pub(super) scaler: Option<GradScaler>,
    /// Bytes that a step may take.
    pub(super) budget: Option<usize>,
    /// May values wait in the host's memory?
    pub(super) offloads: bool,
    /// Is looked for numbers that are not finite?
    detects_anomaly: bool,
    /// Sums of the gradients of batches, of parameters that want one; none where each batch has its update.
    pub(super) sums: Vec<Tensor>,
    /// Batches since the last update.
    pub(super) batches: usize,
    /// Batches so far.
    pub(super) steps: u64,
    pub(super) scheduler: Option<LrScheduler<Box<dyn Schedule>>>,
    pub(super) programs: Vec<Program>,
    /// The working memory of programs so far: the next one may have the same memory.
    pub(super) worked_in: Vec<WorkingMemory>,
    norm: Option<Tensor>,
    /// The ranks that share a batch, if there are several.
    ranks: Option<Ranks>,
}

#[track_calls(TrainStep)]
impl<M: Module, R: Rule> TrainStep<M, R> {
    /// Makes a step from a module, the optimiser of its parameters, and a loss function. The loss is a real tensor of
    /// one element. Branches in `loss` are decided at the recording.
    pub fn new(
        module: M,
        optimizer: Optimizer<R>,
        loss: impl Fn(&M, &[Tensor]) -> RusTorchResult<Tensor> + Send + Sync + 'static,
    ) -> Self {
        Self {
            module,
            optimizer,
            loss: Box::new(loss),
            clip: None,
            every: 1,
            is_checked: false,
            scaler: None,
            budget: None,
            offloads: false,
            detects_anomaly: false,
            sums: Vec::new(),
            batches: 0,
            steps: 0,
            scheduler: None,
            programs: Vec::new(),
            worked_in: Vec::new(),
            norm: None,
            ranks: None,
        }
    }

    /// Divides each batch among the ranks of a group: the gradients of all ranks' parts are added up before clipping
    /// and the update. All ranks get the parameters and buffers of rank 0.
    /// [`DataParallelTrainer`](super::DataParallelTrainer) divides batches.
    ///
    /// # Errors
    /// The ranks have other modules, or cannot finish.
    pub fn data_parallel(mut self, group: &CommunicationGroup) -> RusTorchResult<Self> {
        if group.size() > 1 {
            let ranks = Ranks::new(group);
            ranks.share(&self.module)?;
            self.forget_programs();
            self.ranks = Some(ranks);
        }
        Ok(self)
    }

    /// Clips gradients as [`clip_grad_norm_`](crate::nn::clip_grad_norm_), without waiting for the
    /// norm; [`TrainStep::grad_norm`] returns it.
    ///
    /// # Errors
    /// Fails for a maximum norm that is negative or NaN.
    pub fn clip_grad_norm(mut self, max_norm: f64, norm_type: f64) -> RusTorchResult<Self> {
        let expected = "a largest norm of 0 or more";
        require("clip_grad_norm", max_norm >= 0.0, expected, max_norm)?;
        self.clip = Some((max_norm, norm_type));
        Ok(self)
    }

    /// Accumulates gradients: one update for several batches, by the mean of their gradients. If
    /// losses are means, this equals one batch as large as all of them.
    ///
    /// # Errors
    /// Fails if the number is 0.
    pub fn accumulate(mut self, batches: usize) -> RusTorchResult<Self> {
        require("accumulate", batches > 0, "1 batch or more", batches)?;
        self.every = batches;
        Ok(self)
    }

    /// Sets the learning rates by a schedule, update by update.
    ///
    /// # Errors
    /// The same errors as [`LrScheduler::new`].
    pub fn schedule(mut self, schedule: impl Schedule + 'static) -> RusTorchResult<Self> {
        let schedule: Box<dyn Schedule> = Box::new(schedule);
        self.scheduler = Some(LrScheduler::new(&mut self.optimizer, schedule)?);
        Ok(self)
    }

    /// Adds loss scaling for gradients of `f16`; updates with infinite gradients are skipped. The
    /// optimiser does not count skipped updates, so a step waits until that is known.
    #[must_use]
    pub fn grad_scaler(mut self, scaler: GradScaler) -> Self {
        self.scaler = Some(scaler);
        self
    }

    /// The scaler.
    pub fn scaler(&self) -> Option<&GradScaler> {
        self.scaler.as_ref()
    }

    /// The mutable scaler, for example to load a saved state. Steps are then recorded again.
    pub fn scaler_mut(&mut self) -> Option<&mut GradScaler> {
        self.forget_programs();
        self.scaler.as_mut()
    }

    /// Checks each step's loss and gradients before the update. An infinite value or `NaN` is an
    /// error that names step, operation and module. To find it, the step is computed once more, and
    /// every value is checked. Each step waits for this check. With a [`GradScaler`], which skips
    /// such updates, it checks only the loss.
    #[must_use]
    pub fn detect_anomaly(mut self) -> Self {
        self.detects_anomaly = true;
        self
    }

    /// Leaves checks of values, such as indices of classes and tokens, to the caller. Asynchronous devices may then
    /// return before a step is done.
    #[must_use]
    pub fn with_checked_values(mut self) -> Self {
        self.is_checked = true;
        self
    }

    /// The module.
    pub fn module(&self) -> &M {
        &self.module
    }

    /// The mutable module. Steps are then recorded again.
    pub fn module_mut(&mut self) -> &mut M {
        self.forget_programs();
        &mut self.module
    }

    /// Drops the recorded programs, so that the next step is recorded again.
    pub(super) fn forget_programs(&mut self) {
        self.programs.clear();
    }

    /// The optimiser.
    pub fn optimizer(&self) -> &Optimizer<R> {
        &self.optimizer
    }

    /// The mutable optimiser, for example to change learning rates or to load a saved state.
    pub fn optimizer_mut(&mut self) -> &mut Optimizer<R> {
        &mut self.optimizer
    }

    /// Number of batches so far, including those before a loaded state was saved.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Module and optimiser.
    pub fn into_parts(self) -> (M, Optimizer<R>) {
        (self.module, self.optimizer)
    }

    /// The norm of the last update's gradients before clipping; `None` without clipping.
    pub fn grad_norm(&self) -> Option<&Tensor> {
        self.norm.as_ref()
    }

    /// Makes a step with a batch, and returns the loss before the update. The function of
    /// [`TrainStep::new`] gets the batch's tensors. The step does not wait for the loss; reading it
    /// does.
    ///
    /// # Errors
    /// Fails for an invalid option of the optimiser. Also fails if the loss is not a real number or
    /// does not depend on the parameters. Also the errors of the function. Fails for a new batch
    /// shape whose step needs more memory than is free. Nothing was computed then, see
    /// [`TrainStep::memory`]. Fails if no device could compute the step. If
    /// [`is_data_lost`](rustorch_tensor::RusTorchError::is_data_lost) is true, load parameters and
    /// states again from a checkpoint.
    pub fn step(&mut self, batch: &[&Tensor]) -> RusTorchResult<Tensor> {
        let ranks = self.ranks.as_ref().map_or(1, |ranks| ranks.group().size());
        self.step_part(batch, 1.0 / ranks as f64)
    }

    /// Makes a step with this rank's part of a batch ([`TrainStep::data_parallel`]), and returns the loss of the
    /// whole batch. The mean loss of the part counts as `share` of it: the shares of all ranks add up to 1.
    ///
    /// # Errors
    /// The errors of [`TrainStep::step`]. A rank is missing, or makes another step.
    pub fn step_part(&mut self, part: &[&Tensor], share: f64) -> RusTorchResult<Tensor> {
        let numbers = self.numbers(share)?;
        let batch: Vec<&Tensor> = part.iter().copied().chain(&numbers).collect();
        let loss = self.step_with(&batch);
        match &self.ranks {
            Some(ranks) => loss.map_err(|error| ranks.group().explain(error)),
            None => loss,
        }
    }

    /// The operands of a step besides the batch.
    pub(super) fn numbers(&self, share: f64) -> RusTorchResult<Vec<Tensor>> {
        match &self.ranks {
            Some(_) => Ok(Ranks::numbers(share, self.steps)?.into()),
            None => Ok(Vec::new()),
        }
    }

    fn step_with(&mut self, batch: &[&Tensor]) -> RusTorchResult<Tensor> {
        let storages = batch.iter().map(|tensor| tensor.storage());
        let storages: Vec<Storage> = storages.collect::<RusTorchResult<_>>()?;
        let (program, numbers) = self.program(batch, &storages)?;
        let Ran {
            loss,
            norm,
            is_skipped,
        } = self.programs[program].run(&storages, numbers)?;
        if self.detects_anomaly {
            let is_finite = loss.item()?.is_finite();
            if !is_finite || is_skipped && self.scaler.is_none() {
                return Err(self.anomaly(program, storages)?);
            }
        }
        self.steps += 1;
        match &self.programs[program].update {
            Some(update) => {
                if !is_skipped {
                    self.optimizer.advance(update);
                }
                self.batches = 0;
                self.norm = norm;
                if let Some(scheduler) = &mut self.scheduler {
                    scheduler.advance(&mut self.optimizer)?;
                }
            }
            None => self.batches += 1,
        }
        Ok(loss)
    }

    /// The key of the next step's program, for such a batch.
    pub(super) fn kind(&self, batch: &[&Tensor]) -> Kind {
        Kind {
            batch: Program::types(batch),
            updates: self.batches + 1 >= self.every,
            memory: self.optimizer.memory(),
        }
    }

    /// The program of such a step, recorded if it is a new one, and its numbers.
    pub(super) fn program(
        &mut self,
        batch: &[&Tensor],
        storages: &[Storage],
    ) -> RusTorchResult<(usize, Vec<Scalar>)> {
        require(NAME, !batch.is_empty(), "a batch of tensors", "one of none")?;
        let kind = self.kind(batch);
        // Programs of memory that is gone serve no later step.
        self.programs
            .retain(|program| program.kind.memory == kind.memory);
        if let Some(known) = self.programs.iter().position(|p| p.kind == kind) {
            let numbers = match &self.programs[known].update {
                Some(update) => self.optimizer.numbers(update)?,
                None => Some(Vec::new()),
            };
            match numbers {
                Some(numbers) => return Ok((known, numbers)),
                None => drop(self.programs.remove(known)),
            }
        }
        // No step is recorded from tensors that were lost with a device.
        self.check_memory()?;
        let mut program = self.new_program(kind)?;
        self.keep_to_budget(&mut program, storages)?;
        self.check_fit(&mut program, storages)?;
        if self.programs.len() == KEPT {
            self.programs.remove(0);
        }
        let numbers = program.first_numbers();
        self.programs.push(program);
        Ok((self.programs.len() - 1, numbers))
    }

    /// Records the program of such a step.
    pub(super) fn new_program(&mut self, mut kind: Kind) -> RusTorchResult<Program> {
        let placeholders = kind.batch.iter().map(placeholder);
        let placeholders: Vec<Tensor> = placeholders.collect::<RusTorchResult<_>>()?;
        let recorded = self.record(&placeholders, kind.updates);
        if recorded.is_err() {
            // A device may be lost while there is recorded.
            self.check_memory()?;
        }
        let recorded = recorded?;
        // States have got their memory.
        kind.memory = self.optimizer.memory();
        let state = self.module.state_dict();
        let state = state.iter().map(|(_, tensor)| tensor.clone()).collect();
        let mut program = Program::new(kind, &placeholders, recorded, state, self.is_checked)?;
        if self.offloads && self.budget.is_none() {
            program.offload()?;
        }
        Ok(program)
    }

    /// Fails if something that steps write over was lost with a device.
    fn check_memory(&self) -> RusTorchResult<()> {
        let state = self.module.state_dict();
        let mut tensors: Vec<&Tensor> = state.iter().map(|(_, tensor)| tensor).collect();
        tensors.extend(self.optimizer.tensors().chain(&self.sums));
        tensors.extend(self.scaler.iter().flat_map(GradScaler::tensors));
        tensors
            .iter()
            .try_for_each(|tensor| tensor.storage().map(drop))
    }

    /// The optimiser's parameters that want a gradient.
    fn wanted(&self) -> Vec<Tensor> {
        let groups = self.optimizer.param_groups().iter();
        let all = groups.flat_map(|group| group.named_parameters().map(|(_, tensor)| tensor));
        all.filter(|p| p.requires_grad()).cloned().collect()
    }

    /// The error that says where the numbers of the last run of a program stop being finite.
    fn anomaly(
        &mut self,
        program: usize,
        mut inputs: Vec<Storage>,
    ) -> RusTorchResult<RusTorchError> {
        inputs.extend_from_slice(self.programs[program].keys());
        let batch = self.programs[program].kind.batch.iter().map(placeholder);
        let batch: Vec<Tensor> = batch.collect::<RusTorchResult<_>>()?;
        let wanted = self.wanted();
        let ((results, _), keys) = self.recorded(|this| {
            let (loss, gradients) = this.differentiated(&batch, &wanted)?;
            Ok([loss.detach()]
                .into_iter()
                .chain(gradients.into_iter().flatten())
                .collect::<Vec<_>>())
        })?;
        let suspect = Suspect {
            step: self.steps,
            batch: &batch,
            keys: &keys,
            inputs: &inputs,
            results: &results,
            parameters: &self.module.named_parameters(),
        };
        suspect.first_anomaly()
    }

    /// The loss of a batch, and its gradients by parameters.
    fn differentiated(
        &self,
        batch: &[Tensor],
        wanted: &[Tensor],
    ) -> RusTorchResult<(Tensor, Vec<Option<Tensor>>)> {
        let (batch, share) = match (&self.ranks, batch) {
            (Some(_), [batch @ .., share, _]) => (batch, Some(share)),
            _ => (batch, None),
        };
        let loss = call::user(|| (self.loss)(&self.module, batch))?;
        let fits = loss.numel() == 1 && loss.dtype().is_float() && loss.requires_grad();
        let expected = "a loss of one real number that follows from parameters";
        let got = format_args!("{}{:?}", loss.dtype(), loss.shape());
        require(NAME, fits, expected, got)?;
        let seed = Tensor::full(loss.shape(), 1.0 / self.every as f64, loss.dtype())?;
        let seed = match &self.scaler {
            Some(scaler) => scaler.scale(&seed)?,
            None => seed,
        };
        let seed = match share {
            Some(share) => seed.mul(&share.to_dtype(seed.dtype())?)?,
            None => seed,
        };
        let options = GradOptions::default().gradient(&seed).allow_unused(true);
        let parameters: Vec<&Tensor> = wanted.iter().collect();
        let gradients = grad_with(&[&loss], &parameters, &options)?;
        Ok((loss, gradients))
    }

    /// Records a part of a step, with writes of `forward`, such as running statistics. They are done when the program
    /// runs.
    fn recorded<T>(
        &self,
        f: impl FnOnce(&Self) -> RusTorchResult<T>,
    ) -> RusTorchResult<((T, Vec<Tensor>), RandomKeys)> {
        let mut buffers = self.module.buffers().into_iter();
        let recorded = record_keys(|| f(self));
        let mut changed = Vec::new();
        self.module.visit("", &mut |_, leaf| {
            if let Leaf::Buffer(buffer) = leaf
                && let Some(before) = buffers.next()
            {
                let after = buffer.get();
                if !after.is_ready() {
                    changed.push(after);
                    buffer.set(before);
                }
            }
        });
        let (result, keys) = recorded?;
        Ok(((result, changed), keys))
    }

    /// Records a step.
    fn record(
        &mut self,
        batch: &[Tensor],
        updates: bool,
    ) -> RusTorchResult<(Recorded, RandomKeys)> {
        let wanted = self.wanted();
        no_grad(|| self.optimizer.prepare())?;
        if self.every > 1 && self.sums.len() != wanted.len() {
            let sums = wanted.iter().map(|parameter| {
                let sum = parameter.detach().zeros_like()?;
                sum.storage()?;
                Ok(sum)
            });
            self.sums = sums.collect::<RusTorchResult<_>>()?;
        }
        let ((mut recorded, changed), keys) = self.recorded(|this| {
            let (loss, gradients) = this.differentiated(batch, &wanted)?;
            no_grad(|| this.update(batch, loss.detach(), &wanted, gradients, updates))
        })?;
        recorded.written.extend(changed);
        Ok((recorded, keys))
    }

    /// Records what follows from the gradients of parameters.
    fn update(
        &self,
        batch: &[Tensor],
        loss: Tensor,
        wanted: &[Tensor],
        gradients: Vec<Option<Tensor>>,
        updates: bool,
    ) -> RusTorchResult<Recorded> {
        let mut recorded = Recorded {
            loss,
            norm: None,
            skips: None,
            written: Vec::new(),
            update: None,
        };
        let found = wanted.iter().zip(gradients).enumerate();
        let found = found.filter_map(|(i, (parameter, gradient))| Some((i, parameter, gradient?)));
        let mut found: Vec<(usize, &Tensor, Tensor)> = found.collect();
        let expected = "a loss that follows from parameters of the optimiser (a clone has its own, nn::share gives a handle)";
        require(NAME, !found.is_empty(), expected, "one of others")?;
        if self.detects_anomaly && self.scaler.is_none() {
            let found = found.iter().map(|(_, _, gradient)| gradient.clone());
            let loss = recorded.loss.reshape([0usize; 0])?;
            let skips = non_finite(&found.chain([loss]).collect::<Vec<_>>())?;
            // All ranks skip the update, or none.
            recorded.skips = Some(match (&self.ranks, batch) {
                (Some(ranks), [.., step]) => {
                    let skips = skips.to_dtype(DType::F32)?;
                    ranks.sums(&[skips], step)?.swap_remove(0).gt(0.0)?
                }
                _ => skips,
            });
        }
        if self.every > 1 {
            for (i, _, gradient) in &mut found {
                let memory = &self.sums[*i];
                let sum = memory.add(&*gradient)?;
                let mut written = memory.clone();
                let next = if updates {
                    memory.zeros_like()?
                } else {
                    sum.clone()
                };
                written.copy_(&match &recorded.skips {
                    Some(skips) => Tensor::where_(skips, memory, &next)?,
                    None => next,
                })?;
                recorded.written.push(written);
                *gradient = sum;
            }
        }
        if let (Some(ranks), [.., share, step]) = (&self.ranks, batch) {
            let loss = recorded.loss.mul(&share.to_dtype(recorded.loss.dtype())?)?;
            let gradients = found.iter().filter(|_| updates);
            let gradients = gradients.map(|(_, _, gradient)| gradient.clone());
            let own: Vec<Tensor> = [loss].into_iter().chain(gradients).collect();
            let mut sums = ranks.sums(&own, step)?.into_iter();
            if let Some(loss) = sums.next() {
                recorded.loss = loss;
            }
            for ((_, _, gradient), sum) in found.iter_mut().zip(sums) {
                *gradient = sum;
            }
        }
        if !updates {
            return Ok(recorded);
        }
        if let Some(scaler) = &self.scaler {
            let gradients: Vec<Tensor> = found.iter().map(|(_, _, g)| g.clone()).collect();
            let unscaled = scaler.unscaled(&gradients)?;
            let skips = non_finite(&unscaled)?;
            for ((_, _, gradient), unscaled) in found.iter_mut().zip(unscaled) {
                *gradient = unscaled;
            }
            recorded.written.extend(scaler.record_update(&skips)?);
            recorded.skips = Some(skips);
        }
        if let Some((max_norm, norm_type)) = self.clip {
            let gradients: Vec<Tensor> = found.iter().map(|(_, _, g)| g.clone()).collect();
            let norm = get_total_norm(&gradients, norm_type, false)?;
            let clipped = scaled(&gradients, max_norm, &norm)?;
            for ((_, _, gradient), clipped) in found.iter_mut().zip(clipped) {
                *gradient = clipped;
            }
            recorded.norm = Some(norm);
        }
        let gradients = found
            .into_iter()
            .map(|(_, parameter, g)| (ParameterId::of(parameter), g));
        let gradients: HashMap<ParameterId, Tensor> = gradients.collect();
        let gradient = |parameter: &Tensor| gradients.get(&ParameterId::of(parameter)).cloned();
        recorded.update = Some(
            self.optimizer
                .record_update(gradient, recorded.skips.as_ref())?,
        );
        Ok(recorded)
    }
}
