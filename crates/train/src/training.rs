//! A run: optimiser steps, validations, and the content of a checkpoint.

use std::sync::Arc;

use rustorch::amp::GradScaler;
use rustorch::nn::Module;
use rustorch::optim::{AdamW, AdamWOptions};
use rustorch::train::{StepMemory, TrainStep};
use rustorch_data::{DataLoader, Dataset, LoaderOptions, LoaderState};
use rustorch_files::Tensors;
use rustorch_ir::{DType, DeviceType};
use rustorch_tensor::distributed::{CommunicationGroup, ReduceOp};
use rustorch_tensor::{FetchedItem, Tensor, no_grad};
use serde_json::json;

use crate::{Checkpoints, Decoder, Precision, Schedule, TrainError, TrainingSettings};

/// AdamW's, as language models are usually trained with.
const BETAS: (f64, f64) = (0.9, 0.95);

/// The largest number of batches for validation.
const VALIDATION_BATCHES: usize = 50;

/// Parts of a validation batch if steps save memory, since these have no whole table of logits either.
const PARTS: usize = 16;

/// Samples: tensors `[context]` of tokens, `i32`, and of the next tokens, `i64`, negative if they
/// do not count.
pub type Samples = Arc<dyn Dataset>;

/// Progress so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct History {
    /// The loss of each step, in nats per token.
    pub losses: Vec<f64>,
    /// Validation losses, each with its step.
    pub validation: Vec<(u64, f64)>,
}

/// Metrics of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepMetrics {
    /// The step's number, from 1.
    pub step: u64,
    /// The mean loss of its tokens before the update, in nats.
    pub loss: f64,
    /// Its learning rate.
    pub lr: f64,
}

/// A run.
pub struct Training {
    settings: TrainingSettings,
    schedule: Schedule,
    /// An identity of the run, which separates its checkpoints from those of others.
    subject: serde_json::Value,
    /// The model, its optimiser, and the program of a step.
    train: TrainStep<Decoder, AdamWOptions>,
    /// Number of trained parameters.
    parameters: usize,
    /// Do steps take less memory than they would?
    saves_memory: bool,
    loader: DataLoader<Samples>,
    validation: Option<Samples>,
    history: History,
    /// Learning rate and loss of a step that was begun and not reported.
    ahead: Option<(f64, FetchedItem)>,
    /// The ranks that share each batch.
    group: CommunicationGroup,
}

impl Training {
    /// A new run. `subject` holds other facts that the results depend on: texts and sizes.
    ///
    /// # Errors
    /// Fails if settings are invalid, or if there are too few tokens for a batch.
    pub fn new(
        settings: TrainingSettings,
        subject: serde_json::Value,
        decoder: Decoder,
        samples: Samples,
        validation: Option<Samples>,
    ) -> Result<Self, TrainError> {
        let loader = loader(&settings, samples)?;
        let is_matrix = |(_, tensor): &(String, Tensor)| tensor.rank() >= 2;
        let trained = decoder.trained();
        let parameters = trained.iter().map(|(_, tensor)| tensor.numel()).sum();
        let named = trained.into_iter();
        let (matrices, others): (Vec<_>, Vec<_>) = named.partition(is_matrix);
        let with_decay = AdamWOptions::default()
            .lr(settings.lr)
            .betas(BETAS)
            .weight_decay(settings.weight_decay);
        let mut optimizer = AdamW::new(matrices, with_decay)?;
        optimizer.add_param_group(others, with_decay.weight_decay(0.0))?;
        let precision = settings.precision;
        let mut train = TrainStep::new(decoder, optimizer, move |decoder: &Decoder, batch| {
            decoder.loss(&batch[0], &batch[1], precision)
        })
        .with_checked_values();
        if settings.clip > 0.0 {
            train = train.clip_grad_norm(settings.clip, 2.0)?;
        }
        if precision == Precision::F16 {
            train = train.grad_scaler(GradScaler::new()?);
        }
        Ok(Self {
            schedule: Schedule::from(&settings),
            parameters,
            saves_memory: false,
            train,
            loader,
            validation: validation.filter(|samples| !samples.is_empty()),
            history: History::default(),
            ahead: None,
            group: CommunicationGroup::solo(),
            settings,
            subject,
        })
    }

    /// Divides each batch among the ranks of a group, which have the same settings and samples. They begin with the
    /// weights of rank 0. Losses are those of the whole batch.
    ///
    /// # Errors
    /// Fails if a batch has fewer samples than there are ranks, or if the ranks cannot finish.
    pub fn data_parallel(mut self, group: &CommunicationGroup) -> Result<Self, TrainError> {
        let (batch, ranks) = (self.settings.batch, group.size());
        if batch < ranks {
            return Err(TrainError::Setting(format!(
                "--batch {batch}: {ranks} ranks cannot divide it; give at least {ranks}"
            )));
        }
        self.train = self.train.data_parallel(group)?;
        self.group = group.clone();
        Ok(self)
    }

    /// The largest batch, a power of two up to `most`, whose step fits into the free memory.
    ///
    /// # Errors
    /// Fails if not even one sample fits, or if a step cannot be planned.
    pub fn largest_batch(&mut self, most: usize) -> Result<usize, TrainError> {
        let most = most.min(self.loader.dataset().len()).max(1);
        let mut batch = 1 << most.ilog2();
        loop {
            let [tokens, targets] = self.zeros(batch)?;
            let tokens = [&tokens, &targets];
            match self.train.fits(&tokens)? {
                true => return Ok(batch),
                false if batch > 1 => batch /= 2,
                false => {
                    let problem = self.train.memory(&tokens).err();
                    let problem = problem.map_or_else(String::new, |error| error.to_string());
                    return Err(TrainError::Setting(format!(
                        "not even a step of one sample fits in memory; give a smaller --context or model ({problem})"
                    )));
                }
            }
        }
    }

    /// Limits the memory of steps to `bytes`: see [`TrainStep::memory_budget`].
    #[must_use]
    pub fn memory_budget(mut self, bytes: usize) -> Self {
        self.train = self.train.memory_budget(bytes);
        self.saves_memory = true;
        self
    }

    /// Offloads activations to the host's memory: see [`TrainStep::offload_activations`].
    #[must_use]
    pub fn offload_activations(mut self) -> Self {
        self.train = self.train.offload_activations();
        self.saves_memory = true;
        self
    }

    /// Memory of a step.
    ///
    /// # Errors
    /// Fails if the step does not fit into memory, or cannot be planned.
    pub fn memory(&mut self) -> Result<StepMemory, TrainError> {
        let [tokens, targets] = self.zeros(self.settings.batch.div_ceil(self.group.size()))?;
        Ok(self.train.memory(&[&tokens, &targets])?)
    }

    /// A batch of `batch` samples of zeros.
    fn zeros(&self, batch: usize) -> Result<[Tensor; 2], TrainError> {
        let zeros = |dtype| Tensor::zeros([batch, self.settings.context], dtype);
        Ok([zeros(DType::I32)?, zeros(DType::I64)?])
    }

    /// The batch size of the newest complete checkpoint, if there is one.
    ///
    /// # Errors
    /// Fails if the folder cannot be read.
    pub fn saved_batch(checkpoints: &Checkpoints) -> Result<Option<usize>, TrainError> {
        for (_, path) in checkpoints.list()? {
            let Ok(tensors) = rustorch_files::safetensors::load(&path) else {
                continue;
            };
            let run = tensors.metadata.get("run");
            let run: Option<serde_json::Value> = run.and_then(|run| serde_json::from_str(run).ok());
            let batch = run.and_then(|run| run["settings"]["batch"].as_u64());
            let batch = batch.and_then(|batch| usize::try_from(batch).ok());
            return Ok(batch.filter(|&batch| batch > 0));
        }
        Ok(None)
    }

    /// The current model.
    pub fn decoder(&self) -> &Decoder {
        self.train.module()
    }

    /// Progress so far.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// Steps that are done and whose losses are known.
    pub fn steps(&self) -> u64 {
        self.history.losses.len() as u64
    }

    /// Number of trained parameters.
    pub fn parameters(&self) -> usize {
        self.parameters
    }

    /// Tokens of a step.
    pub fn tokens_per_step(&self) -> u64 {
        (self.settings.batch * self.settings.context) as u64
    }

    /// Operations of a step's products; a multiplication and an addition are two. They cover the
    /// forward pass and both gradients. Frozen weights have one gradient.
    pub fn operations_per_step(&self) -> f64 {
        let context = self.settings.context;
        self.decoder().operations_per_token(context) * self.tokens_per_step() as f64
    }

    /// Steps of an epoch.
    pub fn steps_per_epoch(&self) -> u64 {
        self.loader.batches() as u64
    }

    /// Starts the next step. Returns finished steps that were not reported yet, none or several.
    ///
    /// # Errors
    /// Fails if a computation fails, or if it needs more memory than there is. Fails if the loss is
    /// infinite or NaN. The model may be of no use then.
    pub fn step(&mut self) -> Result<Vec<StepMetrics>, TrainError> {
        let step = self.begun() + 1;
        let lr = self.schedule.lr(step);
        let batch = self.loader.next_batch()?;
        self.check(&batch)?;
        for group in self.train.optimizer_mut().param_groups_mut() {
            group.options.lr = lr;
        }
        let ([tokens, targets], share) = self.part(&batch)?;
        let loss = self.train.step_part(&[&tokens, &targets], share)?;
        let is_done = loss.device() == Some(DeviceType::Cpu);
        // Sent at once: behind the next step it would be late.
        let loss = loss.fetch_item()?;
        let is_due = step.is_multiple_of(self.settings.every) || step == self.settings.steps;
        let mut done = Vec::from_iter(self.finish()?);
        self.ahead = Some((lr, loss));
        if is_done || is_due {
            done.extend(self.finish()?);
        }
        Ok(done)
    }

    /// This rank's samples of a batch, and their share of the tokens that count for the loss.
    fn part(&self, batch: &[Tensor]) -> Result<([Tensor; 2], f64), TrainError> {
        let (rank, ranks, rows) = (self.group.rank(), self.group.size(), batch[0].size(0)?);
        let start = |rank: usize| rows * rank / ranks;
        let part = |tensor: &Tensor| {
            let own = start(rank + 1) - start(rank);
            tensor.narrow(0, start(rank), own)
        };
        let (tokens, targets) = (part(&batch[0])?, part(&batch[1])?);
        if ranks == 1 {
            return Ok(([tokens, targets], 1.0));
        }
        let (own, all) = (counted(&targets)?, counted(&batch[1])?);
        // The mean of no tokens is NaN: others are taken, which count for nothing.
        let targets = match own > 0.0 {
            true => targets,
            false => targets.zeros_like()?,
        };
        Ok(([tokens, targets], if all > 0.0 { own / all } else { 0.0 }))
    }

    /// Waits for the started step, if it is not reported yet.
    ///
    /// # Errors
    /// The same errors as [`Self::step`].
    pub fn finish(&mut self) -> Result<Option<StepMetrics>, TrainError> {
        let Some((lr, loss)) = self.ahead.take() else {
            return Ok(None);
        };
        let (step, loss) = (self.steps() + 1, loss.item()?);
        if !loss.is_finite() {
            return Err(TrainError::Diverged { step, loss });
        }
        self.history.losses.push(loss);
        Ok(Some(StepMetrics { step, loss, lr }))
    }

    /// Number of started steps.
    pub fn begun(&self) -> u64 {
        self.steps() + u64::from(self.ahead.is_some())
    }

    /// Fails for tokens that are not in the vocabulary, as of a file that is damaged: kernels do not look.
    fn check(&self, batch: &[Tensor]) -> Result<(), TrainError> {
        let vocab = self.decoder().spec().vocab;
        let inputs = batch[0].flatten(0, -1)?.to_vec::<i32>()?;
        let targets = batch[1].flatten(0, -1)?.to_vec::<i64>()?;
        let inputs = inputs.into_iter().map(i64::from);
        let wrong = inputs
            .clone()
            .find(|id| *id < 0)
            .or_else(|| inputs.chain(targets).find(|id| *id >= vocab as i64));
        match wrong {
            None => Ok(()),
            Some(id) => Err(TrainError::Setting(format!(
                "token {id} is not among the {vocab} of the vocabulary: the tokens in the --checkpoint folder are \
                 damaged; begin with another folder"
            ))),
        }
    }

    /// The mean loss on the validation text, if there is one.
    ///
    /// # Errors
    /// Fails if a computation fails.
    pub fn validate(&mut self) -> Result<Option<f64>, TrainError> {
        let Some(samples) = &self.validation else {
            return Ok(None);
        };
        let batch = self.settings.batch.min(samples.len());
        let indices: Vec<usize> = (0..samples.len()).collect();
        let (mut sum, mut count) = (0.0, 0.0);
        let part = match self.saves_memory {
            true => batch.div_ceil(PARTS),
            false => batch,
        };
        let batches = indices.chunks_exact(batch).take(VALIDATION_BATCHES);
        let (rank, ranks) = (self.group.rank(), self.group.size());
        let own = batches.flat_map(|indices| indices.chunks(part));
        for indices in own.skip(rank).step_by(ranks) {
            let batch = samples.get_batch(indices)?;
            let counted = counted(&batch[1])?;
            if counted > 0.0 {
                let precision = self.settings.precision;
                let loss = || self.decoder().loss(&batch[0], &batch[1], precision)?.item();
                sum += counted * no_grad(loss)?;
                count += counted;
            }
        }
        let sums = Tensor::from_vec(vec![sum, count], 2)?;
        let sums = self
            .group
            .all_reduce(&sums, ReduceOp::Sum)?
            .to_vec::<f64>()?;
        let loss = sums[0] / sums[1];
        self.history.validation.push((self.steps(), loss));
        Ok(Some(loss))
    }

    /// Writes a checkpoint of a run whose steps are all [done](Self::finish).
    ///
    /// # Errors
    /// Fails if the checkpoint cannot be written.
    pub fn save(&self, checkpoints: &Checkpoints) -> Result<(), TrainError> {
        let mut tensors = Tensors::new();
        tensors
            .metadata
            .insert("run".to_owned(), self.run().to_string());
        for (name, tensor) in self.decoder().trained() {
            tensors.insert(format!("model.{name}"), tensor.detach());
        }
        for (name, tensor) in self.train.optimizer().state_dict()? {
            tensors.insert(format!("optimizer.{name}"), tensor);
        }
        for (name, tensor) in self
            .train
            .scaler()
            .iter()
            .flat_map(|scaler| scaler.state_dict())
        {
            tensors.insert(format!("scaler.{name}"), tensor);
        }
        let numbers = |numbers: Vec<f64>| {
            let len = numbers.len();
            Tensor::from_vec(numbers, len)
        };
        let (steps, losses) = self
            .history
            .validation
            .iter()
            .map(|&(step, loss)| (step as f64, loss))
            .unzip();
        tensors.insert("history.losses", numbers(self.history.losses.clone())?);
        tensors.insert("history.validation_steps", numbers(steps)?);
        tensors.insert("history.validation_losses", numbers(losses)?);
        checkpoints.save(self.steps(), &tensors)?;
        Ok(())
    }

    /// Resumes from the newest complete checkpoint, if there is one. Returns the incomplete ones,
    /// with the reasons.
    ///
    /// # Errors
    /// Fails if a checkpoint belongs to another run.
    pub fn resume(&mut self, checkpoints: &Checkpoints) -> Result<Vec<TrainError>, TrainError> {
        let mut damaged = Vec::new();
        for (_, path) in checkpoints.list()? {
            let tensors = match rustorch_files::safetensors::load(&path) {
                Ok(tensors) => tensors,
                Err(error) => {
                    damaged.push(error.into());
                    continue;
                }
            };
            let wrong = |problem: String| TrainError::Checkpoint {
                path: path.clone(),
                problem,
            };
            let run = tensors
                .metadata
                .get("run")
                .and_then(|run| serde_json::from_str(run).ok());
            let run: serde_json::Value = run.unwrap_or_default();
            if let Some(differs) = difference(&run, &self.run()) {
                let advice =
                    "give the options that the run began with, or another --checkpoint folder";
                return Err(wrong(format!(
                    "it belongs to another run: {differs}; {advice}"
                )));
            }
            self.load(&tensors)?;
            break;
        }
        self.agree_on_steps(checkpoints)?;
        Ok(damaged)
    }

    /// Fails if ranks found other checkpoints.
    fn agree_on_steps(&self, checkpoints: &Checkpoints) -> Result<(), TrainError> {
        let own = Tensor::from_vec(vec![self.steps() as i64], 1)?;
        let all = self.group.all_gather(&own)?.to_vec::<i64>()?;
        let Some(rank) = all.iter().position(|&steps| steps != all[0]) else {
            return Ok(());
        };
        Err(TrainError::Checkpoint {
            path: checkpoints.folder().to_owned(),
            problem: format!(
                "rank 0 resumes after step {}, but rank {rank} after step {}; give a folder that all ranks reach",
                all[0], all[rank]
            ),
        })
    }

    fn load(&mut self, tensors: &Tensors) -> Result<(), TrainError> {
        let part = |prefix: &str| {
            let named = tensors
                .iter()
                .filter_map(|(name, tensor)| Some((name.strip_prefix(prefix)?, tensor.clone())));
            named.collect::<Tensors>()
        };
        let numbers =
            |name: &str| -> Result<Vec<f64>, TrainError> { Ok(tensors.get(name)?.to_vec()?) };
        let history = History {
            losses: numbers("history.losses")?,
            validation: (numbers("history.validation_steps")?
                .into_iter()
                .map(|step| step as u64))
            .zip(numbers("history.validation_losses")?)
            .collect(),
        };
        // Weights that are not trained are not in a checkpoint.
        let model = part("model.");
        for (name, _) in self.decoder().trained() {
            model.get(&name)?;
        }
        self.train.module_mut().load_state_dict(&model, false)?;
        let optimizer = self.train.optimizer_mut();
        optimizer.load_state_dict(&part("optimizer."))?;
        if let Some(scaler) = self.train.scaler_mut() {
            scaler.load_state_dict(&part("scaler."))?;
        }
        let (steps, batches) = (history.losses.len() as u64, self.loader.batches() as u64);
        self.loader.set_state(LoaderState {
            epoch: steps / batches,
            batch: (steps % batches) as usize,
        })?;
        self.history = history;
        Ok(())
    }

    /// The settings that determine the run's losses.
    fn run(&self) -> serde_json::Value {
        json!({ "settings": self.settings, "subject": self.subject })
    }
}

/// The number of targets that count.
fn counted(targets: &Tensor) -> Result<f64, TrainError> {
    let targets: Vec<i64> = targets.flatten(0, -1)?.to_vec()?;
    Ok(targets.iter().filter(|target| **target >= 0).count() as f64)
}

/// Batches of samples, shuffled.
fn loader(
    settings: &TrainingSettings,
    samples: Samples,
) -> Result<DataLoader<Samples>, TrainError> {
    settings.check()?;
    let (count, batch) = (samples.len(), settings.batch);
    if count < batch {
        let context = settings.context;
        return Err(TrainError::Setting(format!(
            "the text is too short: it has {count} samples of {context} tokens, fewer than the {batch} of a batch; \
             give more text, or a smaller --batch or --context"
        )));
    }
    let options = LoaderOptions {
        batch_size: batch,
        shuffle: Some(settings.seed),
        drop_last: true,
        workers: 1,
        ..LoaderOptions::default()
    };
    Ok(DataLoader::new(samples, options)?)
}

/// The first difference between two runs: the name of the setting, and both values.
fn difference(saved: &serde_json::Value, now: &serde_json::Value) -> Option<String> {
    if saved == now {
        return None;
    }
    match (saved.as_object(), now.as_object()) {
        (Some(saved), Some(now)) => now.iter().find_map(|(key, value)| {
            let other = saved.get(key).unwrap_or(&serde_json::Value::Null);
            let inner = difference(other, value)?;
            Some(format!("{key} {inner}"))
        }),
        _ => Some(format!("was {saved} and is {now}")),
    }
}
