//! A run: steps of an optimiser, validations, and all that a checkpoint has to keep.

use std::sync::Arc;

use rustorch::amp::GradScaler;
use rustorch::nn::Module;
use rustorch::optim::{AdamW, AdamWOptions};
use rustorch::train::{StepMemory, TrainStep};
use rustorch_data::{DataLoader, Dataset, LoaderOptions, LoaderState};
use rustorch_files::Tensors;
use rustorch_ir::{DType, DeviceType};
use rustorch_tensor::{FetchedItem, Tensor, no_grad};
use serde_json::json;

use crate::{Checkpoints, Decoder, Precision, Schedule, Settings, TrainError};

/// AdamW's, as language models are usually trained with.
const BETAS: (f64, f64) = (0.9, 0.95);

/// Of the text that is only predicted at most so many batches are.
const VALIDATION_BATCHES: usize = 50;

/// Parts that such a batch is predicted in where steps save memory, as these have no whole table of logits either.
const PARTS: usize = 16;

/// Samples: tensors `[context]` of tokens, `i32`, and of those that follow them, `i64`, below 0 where they do not count.
pub type Samples = Arc<dyn Dataset>;

/// What happened so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct History {
    /// The loss of each step, in nats a token.
    pub losses: Vec<f64>,
    /// Losses of validation, each with the step it is behind.
    pub validation: Vec<(u64, f64)>,
}

/// A step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// Its number; the first is 1.
    pub step: u64,
    /// The mean loss of its tokens before it, in nats.
    pub loss: f64,
    /// Its learning rate.
    pub lr: f64,
}

/// A run.
pub struct Training {
    settings: Settings,
    schedule: Schedule,
    /// What the run is of, for checkpoints to be told from those of others.
    subject: serde_json::Value,
    /// The model, its optimiser, and the program of a step.
    train: TrainStep<Decoder, AdamWOptions>,
    /// Numbers that are trained.
    parameters: usize,
    /// Do steps take less memory than they would?
    saves_memory: bool,
    loader: DataLoader<Samples>,
    validation: Option<Samples>,
    history: History,
    /// Learning rate and loss of a step that was begun and not told.
    ahead: Option<(f64, FetchedItem)>,
}

impl Training {
    /// A run at its beginning. `subject` says what else it follows from: texts and sizes.
    ///
    /// # Errors
    /// Settings make no sense; there are too few tokens for a batch.
    pub fn new(
        settings: Settings,
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
            settings,
            subject,
        })
    }

    /// The largest batch, a power of two up to `most`, whose step fits into the memory that is free now.
    ///
    /// # Errors
    /// Not even a single sample's does; a step cannot be planned.
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
                        "not even a step of one sample fits into memory; give a smaller --context or model ({problem})"
                    )));
                }
            }
        }
    }

    /// Has steps take at most so many bytes: see [`TrainStep::memory_budget`].
    #[must_use]
    pub fn memory_budget(mut self, bytes: usize) -> Self {
        self.train = self.train.memory_budget(bytes);
        self.saves_memory = true;
        self
    }

    /// Has values that gradients need wait in the host's memory: see [`TrainStep::offload_activations`].
    #[must_use]
    pub fn offload_activations(mut self) -> Self {
        self.train = self.train.offload_activations();
        self.saves_memory = true;
        self
    }

    /// What a step takes.
    ///
    /// # Errors
    /// It does not fit into memory, or cannot be planned.
    pub fn memory(&mut self) -> Result<StepMemory, TrainError> {
        let [tokens, targets] = self.zeros(self.settings.batch)?;
        Ok(self.train.memory(&[&tokens, &targets])?)
    }

    /// A batch of so many samples, of nothing.
    fn zeros(&self, batch: usize) -> Result<[Tensor; 2], TrainError> {
        let zeros = |dtype| Tensor::zeros([batch, self.settings.context], dtype);
        Ok([zeros(DType::I32)?, zeros(DType::I64)?])
    }

    /// The batch of the newest checkpoint that is whole, if there is one.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn saved_batch(checkpoints: &Checkpoints) -> Result<Option<usize>, TrainError> {
        for (_, path) in checkpoints.list()? {
            let Ok(tensors) = rustorch_files::safetensors::load(&path) else {
                continue;
            };
            let run = tensors.metadata.get("run");
            let run: Option<serde_json::Value> = run.and_then(|run| serde_json::from_str(run).ok());
            let batch = run.and_then(|run| run["settings"]["batch"].as_u64());
            return Ok(batch.map(|batch| batch as usize));
        }
        Ok(None)
    }

    /// The model as it is.
    pub fn decoder(&self) -> &Decoder {
        self.train.module()
    }

    /// What happened so far.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// Steps that were made, and whose losses are known.
    pub fn steps(&self) -> u64 {
        self.history.losses.len() as u64
    }

    /// Numbers that are trained.
    pub fn parameters(&self) -> usize {
        self.parameters
    }

    /// Tokens of a step.
    pub fn tokens_per_step(&self) -> u64 {
        (self.settings.batch * self.settings.context) as u64
    }

    /// Operations that a step's products take, a multiplication and an addition being two: of the pass forward, and of
    /// its two gradients, of which weights that stay have one.
    pub fn operations_per_step(&self) -> f64 {
        let decoder = self.decoder();
        let config = decoder.config();
        // A token attends to half of the context before it, by its keys and its values.
        let width = config.heads * (config.key_width + config.value_width);
        let attention = (config.layers * width * self.settings.context) as f64 / 2.0;
        let passes = |matrix: Tensor| match matrix.requires_grad() {
            true => 3.0 * matrix.numel() as f64,
            false => 2.0 * matrix.numel() as f64,
        };
        let products: f64 = decoder.matrices().map(passes).sum();
        2.0 * (products + 3.0 * attention) * self.tokens_per_step() as f64
    }

    /// Steps of an epoch.
    pub fn steps_per_epoch(&self) -> u64 {
        self.loader.batches() as u64
    }

    /// Begins the next step, and returns those that are done and were not told yet, none or several. A GPU has its next step
    /// before the loss of the last one is read, so that it does not wait for that; all are done where a validation and a
    /// checkpoint are due, and at the end.
    ///
    /// # Errors
    /// A computation fails; it needs more memory than there is. The loss is infinite, or no number: then the model may
    /// be of no use any more.
    pub fn step(&mut self) -> Result<Vec<Step>, TrainError> {
        let step = self.begun() + 1;
        let lr = self.schedule.lr(step);
        let batch = self.loader.next_batch()?;
        self.check(&batch)?;
        for group in self.train.optimizer_mut().param_groups_mut() {
            group.options.lr = lr;
        }
        let loss = self.train.step(&[&batch[0], &batch[1]])?;
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

    /// Waits for the step that was begun and not told, if there is one.
    ///
    /// # Errors
    /// As [`Self::step`].
    pub fn finish(&mut self) -> Result<Option<Step>, TrainError> {
        let Some((lr, loss)) = self.ahead.take() else {
            return Ok(None);
        };
        let (step, loss) = (self.steps() + 1, loss.item()?);
        if !loss.is_finite() {
            return Err(TrainError::Diverged { step, loss });
        }
        self.history.losses.push(loss);
        Ok(Some(Step { step, loss, lr }))
    }

    /// Steps that were begun.
    pub fn begun(&self) -> u64 {
        self.steps() + u64::from(self.ahead.is_some())
    }

    /// Fails for tokens that are not in the vocabulary, as of a file that is damaged: kernels do not look.
    fn check(&self, batch: &[Tensor]) -> Result<(), TrainError> {
        let vocab = self.decoder().config().vocab;
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

    /// The mean loss on the text that is only predicted, if there is one.
    ///
    /// # Errors
    /// A computation fails.
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
        for indices in batches.flat_map(|indices| indices.chunks(part)) {
            let batch = samples.get_batch(indices)?;
            let targets: Vec<i64> = batch[1].flatten(0, -1)?.to_vec()?;
            let counted = targets.iter().filter(|target| **target >= 0).count() as f64;
            if counted > 0.0 {
                let precision = self.settings.precision;
                let loss = || self.decoder().loss(&batch[0], &batch[1], precision)?.item();
                sum += counted * no_grad(loss)?;
                count += counted;
            }
        }
        let loss = sum / count;
        self.history.validation.push((self.steps(), loss));
        Ok(Some(loss))
    }

    /// Writes a checkpoint, of a run whose steps are all [done](Self::finish).
    ///
    /// # Errors
    /// It cannot be written.
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

    /// Goes on from the newest checkpoint that is whole, if there is one. Returns those that are not, with the reasons.
    ///
    /// # Errors
    /// A checkpoint is of another run.
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
                return Err(wrong(format!("it is of another run: {differs}; {advice}")));
            }
            self.load(&tensors)?;
            break;
        }
        Ok(damaged)
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
        // What is not trained is not in a checkpoint.
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

    /// What the run's losses follow from.
    fn run(&self) -> serde_json::Value {
        json!({ "settings": self.settings, "subject": self.subject })
    }
}

/// Batches of samples, shuffled.
fn loader(settings: &Settings, samples: Samples) -> Result<DataLoader<Samples>, TrainError> {
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

/// Where two runs differ first: the names of what differs, and both values.
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
