//! `train`: trains a language model on texts.

mod options;
mod samples;
mod shown;

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::Result;
use rustorch_gguf::Metadata;
use rustorch_llm::Model;
use rustorch_tensor::distributed::CommunicationGroup;
use rustorch_tensor::with_runtime;
use rustorch_train::{Checkpoints, Text, TrainError, Training, TrainingSettings};
use serde_json::json;

use super::generate::interrupts;
use super::ranks::any;
use crate::args::{ByteCount, DeviceArgs};
use crate::devices::Devices;
use crate::failure::{INTERRUPTED, Usage};
use crate::model::Source;
use crate::output::note;
use crate::progress;

pub(crate) use options::Options;
use options::{Batch, CONTEXT, LARGEST_BATCH};
use samples::{Learnt, merged};
use shown::{Run, limit};

pub(super) fn run(options: &Options) -> Result<ExitCode> {
    let check = |ranks| options.check_ranks(ranks);
    let run = |devices: &DeviceArgs, group: &CommunicationGroup| run_rank(options, devices, group);
    options.ranks.run(&options.devices, check, run)
}

fn run_rank(
    options: &Options,
    devices: &DeviceArgs,
    group: &CommunicationGroup,
) -> Result<ExitCode> {
    let devices = Devices::open(devices)?;
    let interrupted = interrupts()?;
    with_runtime(&devices.runtime, devices.routing, || {
        train(options, &devices, group, &interrupted)
    })
}

fn train(
    options: &Options,
    devices: &Devices,
    group: &CommunicationGroup,
    interrupted: &AtomicBool,
) -> Result<ExitCode> {
    check(options)?;
    let base = options.tuning.finetune.as_ref();
    let base = base.map(|path| Source::new(Some(path.clone())).load());
    let base = base.transpose()?;
    let (checkpoints, task) = prepare(options, base.as_ref(), group)?;
    let settings = task.settings(&checkpoints)?;
    let mut training = task.begin(settings.clone())?;
    if options.resume {
        for damaged in training.resume(&checkpoints)? {
            note(format_args!(
                "warning: {damaged}; continuing from the checkpoint before it"
            ));
        }
    }
    let run = Run {
        options,
        devices,
        group,
        training,
        metadata: match &base {
            Some(model) => model.gguf().metadata.clone(),
            None => merged(task.keys.clone(), &task.learnt.metadata),
        },
        checkpoints,
        total: settings.steps,
        bar: progress::steps("training", settings.steps as usize),
        begin: Instant::now(),
        first: 0,
        limit: limit(settings.precision),
        lost: (0, 0),
    };
    take_steps(run, &task, &settings, interrupted)
}

/// Refuses settings and files that make no sense, before texts are read.
fn check(options: &Options) -> Result<()> {
    let asked = options.context.unwrap_or(CONTEXT);
    let batch = match options.run.batch {
        Batch::Of(batch) => batch,
        Batch::Auto => 1,
    };
    options
        .settings(asked, batch, 1)
        .check()
        .map_err(as_usage)?;
    options.new_metadata(options.size.vocab, asked)?;
    // A run that ends with a file that cannot be written has taken long by then.
    let mut files = [Some(&options.out), options.tuning.merged.as_ref()]
        .into_iter()
        .flatten();
    if let Some(path) = files.find(|path| path.exists() && !path.is_file()) {
        let what = match path.is_dir() {
            true => "a directory",
            false => "not an ordinary file",
        };
        let path = path.display();
        let problem = format!("{path}: this is {what}; give the path of a .gguf file");
        return Err(Usage(problem).into());
    }
    Ok(())
}

/// Opens the checkpoints and reads the texts.
fn prepare<'a>(
    options: &'a Options,
    base: Option<&'a Model>,
    group: &'a CommunicationGroup,
) -> Result<(Checkpoints, Task<'a>)> {
    let context = options.context(base)?;
    let folder = options.checkpoint.clone();
    let folder = folder.unwrap_or_else(|| options.out.with_extension("checkpoint"));
    // Rank 0 writes the tokens, which others then find.
    if group.rank() > 0 {
        group.barrier()?;
    }
    let checkpoints = Checkpoints::new(&folder)?;
    if let Some((step, _)) = checkpoints.list()?.first().filter(|_| !options.resume) {
        let folder = folder.display();
        let problem = format!(
            "{folder}: found a checkpoint of step {step}; continue with --resume, or choose another --checkpoint"
        );
        return Err(Usage(problem).into());
    }
    let prepared = options.prepared()?;
    let learnt = options.learnt(&prepared, base, &folder, context)?;
    if group.rank() == 0 {
        group.barrier()?;
    }
    let vocab = learnt.metadata.str_array("tokenizer.ggml.tokens")?.len();
    if base.is_none() && vocab < options.size.vocab {
        note(format_args!(
            "the texts give {vocab} tokens rather than {}",
            options.size.vocab
        ));
    }
    let hashes = |texts: &[Text]| Vec::from_iter(texts.iter().map(|text| text.sha256.clone()));
    let subject = json!({
        "model": base.is_none().then(|| options.subject(vocab, context)),
        "finetune": hashes(&prepared.model),
        "lora": options.tuning.lora,
        "texts": hashes(&prepared.texts),
        "validation": hashes(prepared.validation.as_slice()),
    });
    let task = Task {
        options,
        base,
        group,
        context,
        keys: options.new_metadata(vocab, context)?,
        learnt,
        subject,
    };
    Ok((checkpoints, task))
}

/// A model and the texts that it learns.
struct Task<'a> {
    options: &'a Options,
    /// The model that is trained further.
    base: Option<&'a Model>,
    group: &'a CommunicationGroup,
    context: usize,
    /// Keys of a new model.
    keys: Metadata,
    learnt: Learnt,
    /// The texts, tokenizer and architecture that a checkpoint has to be of.
    subject: serde_json::Value,
}

impl Task<'_> {
    /// The settings, with the batch that was asked for, was saved, or fits in memory.
    fn settings(&self, checkpoints: &Checkpoints) -> Result<TrainingSettings> {
        let count = self.learnt.samples.len();
        let settings = |batch| {
            let epoch = (count / batch) as u64;
            self.options.settings(self.context, batch, epoch)
        };
        let known = match self.options.run.batch {
            Batch::Auto if self.options.resume => Training::saved_batch(checkpoints)?,
            Batch::Auto => None,
            Batch::Of(batch) => Some(batch),
        };
        if let Some(batch) = known {
            return Ok(settings(batch));
        }
        let mut training = self.begin(settings(1))?;
        let batch = training.largest_batch(LARGEST_BATCH).map_err(as_usage)?;
        note(format_args!("--batch {batch} fits in memory"));
        Ok(settings(batch))
    }

    /// The training before its first step.
    fn begin(&self, settings: TrainingSettings) -> Result<Training> {
        let decoder = self.options.decoder(&self.keys, self.base)?;
        let (samples, validation) = (&self.learnt.samples, &self.learnt.validation);
        let training = Training::new(
            settings,
            self.subject.clone(),
            decoder,
            samples.clone(),
            Some(validation.clone()),
        )
        .map_err(as_usage)?;
        let mut training = training.data_parallel(self.group).map_err(as_usage)?;
        if self.options.run.offload_activations {
            training = training.offload_activations();
        }
        Ok(match self.options.run.memory {
            Some(ByteCount(bytes)) => {
                training.memory_budget(usize::try_from(bytes).unwrap_or(usize::MAX))
            }
            None => training,
        })
    }
}

/// Takes all steps that are left, until an interrupt.
fn take_steps(
    mut run: Run,
    task: &Task,
    settings: &TrainingSettings,
    interrupted: &AtomicBool,
) -> Result<ExitCode> {
    let group = task.group;
    run.begin()?;
    while run.training.steps() < settings.steps {
        if let Err(error) = run.step(settings) {
            match error.downcast::<TrainError>() {
                Ok(lost) if lost.is_data_lost() && group.size() == 1 => {
                    run.recover(lost, || task.begin(settings.clone()))?;
                }
                Ok(error) => return Err(error.into()),
                Err(error) => return Err(error),
            }
        }
        let is_interrupted = any(group, interrupted.load(Ordering::Relaxed))?;
        if is_interrupted && run.training.begun() < settings.steps {
            return stop(run, settings.steps);
        }
    }
    if group.rank() == 0 {
        run.end()?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Saves what was learnt before an interrupt.
fn stop(mut run: Run, steps: u64) -> Result<ExitCode> {
    if let Some(step) = run.training.finish()? {
        run.tell(step, None)?;
    }
    if run.group.rank() == 0 {
        run.training.save(&run.checkpoints)?;
    }
    run.bar.finish_and_clear();
    note(format_args!(
        "stopped after step {} of {steps}; add --resume to continue",
        run.training.steps(),
    ));
    Ok(ExitCode::from(INTERRUPTED))
}

/// Settings that make no sense are bad usage.
fn as_usage(error: TrainError) -> anyhow::Error {
    match error {
        TrainError::Setting(problem) => Usage(problem).into(),
        error => error.into(),
    }
}
