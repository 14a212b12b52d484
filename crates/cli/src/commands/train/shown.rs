//! A run of `train` as it is shown: its steps, its samples, its checkpoints.

use std::io::{self, Write};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use indicatif::ProgressBar;
use rustorch_gguf::Metadata;
use rustorch_ir::DType;
use rustorch_llm::sampler::{SamplerChain, SamplerConfig};
use rustorch_llm::{Event, GenerateOptions, Model, Session, SessionOptions, generate};
use rustorch_tensor::distributed::CommunicationGroup;
use rustorch_tensor::{RusTorchResult, Tensor};
use rustorch_train::{
    Checkpoints, Precision, StepMetrics, TrainError, Training, TrainingSettings, loss_curve,
};
use serde_json::json;

use super::options::Options;
use crate::args::Format;
use crate::devices::Devices;
use crate::output::{bytes, count, json_line, note};

/// A run as it is shown.
pub(super) struct Run<'a> {
    pub(super) options: &'a Options,
    pub(super) devices: &'a Devices,
    /// The ranks of the run. Rank 0 writes files.
    pub(super) group: &'a CommunicationGroup,
    pub(super) training: Training,
    /// The keys of the model's file.
    pub(super) metadata: Metadata,
    pub(super) checkpoints: Checkpoints,
    /// Steps of the whole run.
    pub(super) total: u64,
    pub(super) bar: ProgressBar,
    /// Time at which this process began its steps, and the number of earlier steps.
    pub(super) begin: Instant,
    pub(super) first: u64,
    /// Operations a second of a large product.
    pub(super) limit: f64,
    /// The last step that was lost with a device, and the number of its losses.
    pub(super) lost: (u64, usize),
}

/// Tries of a step that is lost with one device after the other.
const TRIES: usize = 3;

impl Run<'_> {
    pub(super) fn begin(&mut self) -> Result<()> {
        let memory = self.training.memory()?;
        self.first = self.training.steps();
        self.bar.set_position(self.first);
        self.bar.reset_eta();
        let (parameters, per_step) = (self.training.parameters(), self.training.tokens_per_step());
        let epochs = self.total as f64 / self.training.steps_per_epoch() as f64;
        let from = match self.first {
            0 => String::new(),
            first => format!(", from step {first} on"),
        };
        let ranks = match self.group.size() {
            1 => String::new(),
            ranks => format!(", {ranks} ranks"),
        };
        note(format_args!(
            "{} parameters, {} steps of {per_step} tokens ({epochs:.1} epochs) on {}{ranks}{from}; a step takes {}",
            count(parameters as u64),
            self.total,
            self.devices.name,
            bytes(memory.peak() as u64),
        ));
        match (self.options.run.offload_activations, memory.offloaded()) {
            (false, _) => {}
            (true, 0) => note(format_args!(
                "--offload-activations: nothing is offloaded; the CPU uses the host's memory, \
                 and short-lived values stay on their device"
            )),
            (true, waiting) => note(format_args!(
                "{} of activations are offloaded to host memory",
                bytes(waiting as u64)
            )),
        }
        self.begin = Instant::now();
        Ok(())
    }

    /// Begins a step, and shows those that are done.
    pub(super) fn step(&mut self, settings: &TrainingSettings) -> Result<()> {
        for step in self.training.step()? {
            let is_last = step.step == settings.steps;
            let is_due = step.step % settings.every == 0;
            let validated = match is_due || is_last {
                true => self.training.validate()?,
                false => None,
            };
            self.tell(step, validated)?;
            if is_due && !is_last {
                self.keep();
            }
        }
        Ok(())
    }

    /// Goes on from the newest checkpoint, or from the beginning, after weights were lost with a device.
    pub(super) fn recover(
        &mut self,
        error: TrainError,
        new: impl FnOnce() -> Result<Training>,
    ) -> Result<()> {
        let lost = self.training.steps() + 1;
        self.lost = match self.lost {
            (step, times) if step == lost => (step, times + 1),
            _ => (lost, 1),
        };
        if self.lost.1 > TRIES {
            return Err(error.into());
        }
        self.training = new()?;
        self.training.resume(&self.checkpoints)?;
        self.first = self.training.steps();
        self.begin = Instant::now();
        self.bar.set_position(self.first);
        self.bar.suspend(|| {
            note(format_args!(
                "warning: step {lost} was lost: {error}; continuing from step {}",
                self.first
            ))
        });
        Ok(())
    }

    /// Shows a step.
    pub(super) fn tell(&mut self, step: StepMetrics, validated: Option<f64>) -> Result<()> {
        if self.group.rank() > 0 {
            return Ok(());
        }
        let StepMetrics { step, loss, lr } = step;
        let made = (step - self.first) * self.training.tokens_per_step();
        let rate = made as f64 / self.begin.elapsed().as_secs_f64();
        let speed = self.speed(step, rate);
        self.bar.set_position(step);
        self.bar.set_message(format!("loss {loss:.4}, {speed}"));
        let mut out = io::stdout().lock();
        if self.options.output == Format::Json {
            let line = json!({
                "step": step,
                "loss": loss,
                "val_loss": validated,
                "tokens": step * self.training.tokens_per_step(),
                "tokens_per_s": rate,
                "lr": lr,
            });
            return Ok(json_line(&mut out, &line)?);
        }
        if let Some(validation) = validated {
            let text = self.text()?;
            self.bar.suspend(|| {
                writeln!(
                    out,
                    "step {step} of {}: loss {loss:.4}, validation {validation:.4}, {speed}\n  {text}",
                    self.total,
                )
            })?;
        }
        Ok(())
    }

    /// Speed, its share of the device's limit, and the remaining time.
    fn speed(&self, step: u64, rate: f64) -> String {
        let per_step = self.training.tokens_per_step() as f64;
        let operations = self.training.operations_per_step() * rate / per_step;
        let share = 100.0 * operations / self.limit;
        let left = (self.total - step) as f64 * per_step / rate;
        let left = Duration::try_from_secs_f64(left.ceil()).unwrap_or(Duration::MAX);
        let rate = count(rate as u64);
        match left.is_zero() {
            true => format!("{rate} tokens/s, {share:.0} % of the limit"),
            false => {
                let left = humantime::format_duration(left);
                format!("{rate} tokens/s, {share:.0} % of the limit, {left} left")
            }
        }
    }

    /// A sample of the model, on one line.
    fn text(&self) -> Result<String> {
        const LENGTH: usize = 48;
        let model = Model::load(rustorch_train::gguf(
            self.training.decoder(),
            &self.metadata,
        )?)?;
        let options = SessionOptions {
            context: model.spec().context.min(LENGTH + 1),
            routing: self.devices.routing,
            ..SessionOptions::default()
        };
        let mut session = Session::new(&model, &self.devices.runtime, options)?;
        let config = SamplerConfig {
            seed: Some(0),
            ..SamplerConfig::default()
        };
        let tokenizer = model.tokenizer()?;
        let prompt = Vec::from_iter(tokenizer.bos().or(tokenizer.eos()));
        if prompt.is_empty() {
            return Ok("(no sample: the vocabulary has no BOS token)".to_owned());
        }
        let limits = GenerateOptions {
            max_tokens: Some(LENGTH),
            ..GenerateOptions::default()
        };
        let go_on = |_: Event| Ok::<_, anyhow::Error>(ControlFlow::Continue(()));
        let told = generate(
            &mut session,
            &prompt,
            &mut SamplerChain::new(&config)?,
            &limits,
            go_on,
        )?;
        Ok(format!("{:?}", tokenizer.decode(&told.ids)))
    }

    /// Writes a checkpoint. If that fails, the run continues: the checkpoint before is still there.
    fn keep(&self) {
        if self.group.rank() > 0 {
            return;
        }
        let saved = self
            .training
            .save(&self.checkpoints)
            .map_err(anyhow::Error::from);
        if let Err(error) = saved.and_then(|()| self.draw()) {
            self.bar.suspend(|| {
                note(format_args!(
                    "warning: cannot write the checkpoint of step {}: {error:#}; training continues",
                    self.training.steps()
                ))
            });
        }
    }

    /// Writes the picture of the losses.
    fn draw(&self) -> Result<()> {
        let path = self.options.out.with_extension("svg");
        let written = std::fs::write(&path, loss_curve(self.training.history()));
        written.with_context(|| format!("{}: cannot write the loss curve", path.display()))
    }

    /// Writes the model.
    pub(super) fn end(self) -> Result<()> {
        self.bar.finish_and_clear();
        if self.options.checkpoint.is_some() {
            self.keep();
        }
        let (out, tuning, decoder) = (
            &self.options.out,
            &self.options.tuning,
            self.training.decoder(),
        );
        let what = match tuning.alpha() {
            Some(alpha) => {
                rustorch_train::save_adapter(out, decoder, alpha)?;
                "adapter"
            }
            None => {
                rustorch_train::save(out, decoder, &self.metadata)?;
                "model"
            }
        };
        let merged = match &tuning.merged {
            Some(path) => {
                rustorch_train::save(path, decoder, &self.metadata)?;
                format!(", the merged model to {}", path.display())
            }
            None => String::new(),
        };
        self.draw()?;
        note(format_args!(
            "wrote the {what} to {}{merged} and the loss curve to {}",
            self.options.out.display(),
            self.options.out.with_extension("svg").display()
        ));
        match self.options.checkpoint {
            Some(_) => Ok(()),
            None => Ok(self.checkpoints.remove()?),
        }
    }
}

/// Operations a second of a large product, with the dtype and device of the steps: no step can exceed it.
pub(super) fn limit(precision: Precision) -> f64 {
    /// Rows and columns of the smallest and largest matrices.
    const SIDES: [usize; 2] = [1024, 8192];
    /// Products take at least this long, so that launching them does not count.
    const LONG: Duration = Duration::from_millis(5);
    const ROUNDS: usize = 3;
    let dtype = match precision {
        Precision::F32 => DType::F32,
        Precision::BF16 => DType::BF16,
        Precision::F16 => DType::F16,
    };
    let measured = |side: usize| -> RusTorchResult<Duration> {
        let matrix = Tensor::rand_seeded([side, side], dtype, 0)?;
        let mut best = Duration::MAX;
        for _ in 0..ROUNDS {
            let begin = Instant::now();
            // An element is read, so that it has been computed.
            let product = matrix.matmul(&matrix)?;
            product
                .eval()?
                .select(0, 0)?
                .to_dtype(DType::F32)?
                .to_vec::<f32>()?;
            best = best.min(begin.elapsed());
        }
        Ok(best)
    };
    let [mut side, largest] = SIDES;
    loop {
        match measured(side) {
            Ok(time) if time < LONG && side < largest => side *= 2,
            Ok(time) => return 2.0 * (side as f64).powi(3) / time.as_secs_f64(),
            Err(_) => return f64::INFINITY,
        }
    }
}
