//! `train`: trains a language model on texts.

mod options;
mod samples;
mod shown;

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::Result;
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
    // Settings that make no sense are told before texts are read.
    let asked = options.context.unwrap_or(CONTEXT);
    let batch = match options.run.batch {
        Batch::Of(batch) => batch,
        Batch::Auto => 1,
    };
    options.settings(asked, batch, 1).check().map_err(told)?;
    options.new_metadata(options.size.vocab, asked)?;
    // A run that ends with a file that cannot be written has taken long by then.
    let files = [Some(&options.out), options.tuning.merged.as_ref()];
    if let Some(path) = (files.into_iter().flatten()).find(|path| path.exists() && !path.is_file())
    {
        let what = match path.is_dir() {
            true => "a directory",
            false => "not an ordinary file",
        };
        let path = path.display();
        let problem = format!("{path}: this is {what}; give the path of a .gguf file");
        return Err(Usage(problem).into());
    }
    let base = options
        .tuning
        .finetune
        .as_ref()
        .map(|path| Source::new(Some(path.clone())).load())
        .transpose()?;
    let context = options.context(base.as_ref())?;
    let folder = options
        .checkpoint
        .clone()
        .unwrap_or_else(|| options.out.with_extension("checkpoint"));
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
    let Learnt {
        samples,
        validation,
        metadata,
    } = options.learnt(&prepared, base.as_ref(), &folder, context)?;
    if group.rank() == 0 {
        group.barrier()?;
    }
    let batch = match options.run.batch {
        Batch::Auto if options.resume => Training::saved_batch(&checkpoints)?,
        Batch::Auto => None,
        Batch::Of(batch) => Some(batch),
    };
    let count = samples.len();
    let settings = |batch: usize| options.settings(context, batch, (count / batch) as u64);
    let vocab = metadata.str_array("tokenizer.ggml.tokens")?.len();
    let keys = options.new_metadata(vocab, context)?;
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
    let begun = |settings: TrainingSettings| -> Result<Training> {
        let decoder = options.decoder(&keys, base.as_ref())?;
        let (samples, validation) = (samples.clone(), validation.clone());
        let begun = Training::new(
            settings,
            subject.clone(),
            decoder,
            samples,
            Some(validation),
        );
        let mut training = begun.map_err(told)?.data_parallel(group).map_err(told)?;
        if options.run.offload_activations {
            training = training.offload_activations();
        }
        Ok(match options.run.memory {
            Some(ByteCount(bytes)) => {
                training.memory_budget(usize::try_from(bytes).unwrap_or(usize::MAX))
            }
            None => training,
        })
    };
    let settings = match batch {
        Some(batch) => settings(batch),
        None => {
            let batch = begun(settings(1))?.largest_batch(LARGEST_BATCH);
            let batch = batch.map_err(told)?;
            note(format_args!("--batch {batch} fits in memory"));
            settings(batch)
        }
    };
    let mut training = begun(settings.clone())?;
    let metadata = match &base {
        Some(model) => model.gguf().metadata.clone(),
        None => merged(keys.clone(), &metadata),
    };
    if options.resume {
        for damaged in training.resume(&checkpoints)? {
            note(format_args!(
                "warning: {damaged}; continuing from the checkpoint before it"
            ));
        }
    }

    let mut run = Run {
        options,
        devices,
        group,
        training,
        metadata,
        checkpoints,
        total: settings.steps,
        bar: progress::steps("training", settings.steps as usize),
        begin: Instant::now(),
        first: 0,
        limit: limit(settings.precision),
        lost: (0, 0),
    };
    run.begin()?;
    while run.training.steps() < settings.steps {
        if let Err(error) = run.step(&settings) {
            match error.downcast::<TrainError>() {
                Ok(lost) if lost.is_data_lost() && group.size() == 1 => {
                    run.recover(lost, || begun(settings.clone()))?;
                }
                Ok(error) => return Err(error.into()),
                Err(error) => return Err(error),
            }
        }
        let is_interrupted = any(group, interrupted.load(Ordering::Relaxed))?;
        if is_interrupted && run.training.begun() < settings.steps {
            if let Some(step) = run.training.finish()? {
                run.tell(step, None)?;
            }
            if group.rank() == 0 {
                run.training.save(&run.checkpoints)?;
            }
            run.bar.finish_and_clear();
            note(format_args!(
                "stopped after step {} of {}; add --resume to continue",
                run.training.steps(),
                settings.steps
            ));
            return Ok(ExitCode::from(INTERRUPTED));
        }
    }
    if group.rank() == 0 {
        run.end()?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Settings that make no sense are bad usage.
fn told(error: TrainError) -> anyhow::Error {
    match error {
        TrainError::Setting(problem) => Usage(problem).into(),
        error => error.into(),
    }
}
