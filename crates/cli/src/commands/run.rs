//! `run`: an ONNX model on tensors of `.npy` files.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use rustorch_files::npy;
use rustorch_onnx::{Info, Model, Value};
use rustorch_tensor::{Tensor, eval_all, with_runtime};

use crate::args::DeviceArgs;
use crate::devices::Devices;
use crate::failure::Usage;
use crate::output::note;

const EXAMPLES: &str = "\
Examples:
  rustorch-cli run model.onnx                                    without inputs: an error lists those of the model
  rustorch-cli run model.onnx -i image.npy -o out                write each output as out/NAME.npy
  rustorch-cli run model.onnx -i x=sound.npy -i rate=rate.npy    give the names of inputs

The command prints a line for each output: name, dtype and shape. In file names, unsafe characters of an output's name \
become _.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    /// ONNX model
    #[arg(value_name = "MODEL")]
    model: PathBuf,

    /// File of an input; without a name it is the next input that has no file; repeatable
    #[arg(short, long, value_name = "[NAME=]FILE.npy")]
    input: Vec<OsString>,

    /// Directory for the outputs, one .npy file each [default: none is written]
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,

    #[command(flatten)]
    devices: DeviceArgs,
}

pub(super) fn run(options: &Options) -> Result<()> {
    let devices = Devices::open(&options.devices)?;
    with_runtime(&devices.runtime, devices.routing, || {
        let model = Model::load(&options.model)?;
        let results = model.run(inputs(&model, &options.input)?)?;
        let mut tensors = Vec::new();
        for (name, value) in &results {
            collect(name.clone(), value, &mut tensors);
        }
        eval_all(
            &tensors
                .iter()
                .map(|(_, tensor)| *tensor)
                .collect::<Vec<_>>(),
        )?;
        if let Some(folder) = &options.output {
            write(folder, &tensors)?;
        }
        let mut out = io::stdout().lock();
        for (name, value) in &results {
            writeln!(out, "{name}: {value}")?;
        }
        Ok::<_, anyhow::Error>(())
    })?;
    note(format_args!("computed on {}", devices.used().join(", ")));
    Ok(())
}

/// Tensors of the given files, each with the name of its input.
fn inputs(model: &Model, given: &[OsString]) -> Result<Vec<(String, Tensor)>> {
    let files: Vec<_> = given.iter().map(named).collect();
    let is_free = |info: &&Info| files.iter().all(|(name, _)| *name != Some(&info.name[..]));
    let mut free = model.inputs().iter().filter(is_free);
    let mut inputs = Vec::new();
    for (name, path) in &files {
        let next = || free.next().map(|info| &info.name[..]);
        let name = name.or_else(next).ok_or_else(|| too_many(model, path))?;
        inputs.push((name.to_owned(), npy::load(path)?));
    }
    Ok(inputs)
}

fn too_many(model: &Model, path: &Path) -> Usage {
    let infos: Vec<String> = model.inputs().iter().map(Info::to_string).collect();
    Usage(format!(
        "--input {}: every input has a file already; the model takes {}",
        path.display(),
        infos.join("; ")
    ))
}

/// A file with the name before `=`, unless there is a file of the whole text.
fn named(text: &OsString) -> (Option<&str>, PathBuf) {
    let parts = text.to_str().and_then(|text| text.split_once('='));
    match parts {
        Some((name, path)) if !Path::new(text).exists() => (Some(name), path.into()),
        _ => (None, text.into()),
    }
}

/// The tensors of a value; those of a list are numbered.
fn collect<'a>(name: String, value: &'a Value, tensors: &mut Vec<(String, &'a Tensor)>) {
    match value {
        Value::Tensor(tensor) => tensors.push((name, tensor)),
        Value::List(parts) => {
            for (index, part) in parts.iter().enumerate() {
                collect(format!("{name}-{index}"), part, tensors);
            }
        }
        _ => {}
    }
}

/// Writes a file for each tensor.
fn write(folder: &Path, tensors: &[(String, &Tensor)]) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("--output {}", folder.display()))?;
    let mut stems = Vec::new();
    for (index, (name, tensor)) in tensors.iter().enumerate() {
        let plain = stem(name);
        let stem = match stems.contains(&plain) {
            true => format!("{index}-{plain}"),
            false => plain,
        };
        npy::save(folder.join(format!("{stem}.npy")), tensor)?;
        stems.push(stem);
    }
    Ok(())
}

/// A name without letters that mean something in paths.
fn stem(name: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || c == '-' || c == '_';
    let letter = |(index, c)| match c {
        '.' if index > 0 => c,
        c if is_plain(c) => c,
        _ => '_',
    };
    name.chars().enumerate().map(letter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stems_stay_in_their_folder() {
        for (name, expected) in [
            ("scores", "scores"),
            ("/model/layer.0/out:1", "_model_layer.0_out_1"),
            ("..", "_."),
            ("C:\\x", "C__x"),
        ] {
            assert_eq!(stem(name), expected);
        }
    }

    #[test]
    fn names_are_before_the_first_sign() {
        let parts = |text: &str| {
            let text = OsString::from(text);
            let (name, path) = named(&text);
            (name.map(str::to_owned), path)
        };
        assert_eq!(parts("x.npy"), (None, "x.npy".into()));
        assert_eq!(parts("x=a=b.npy"), (Some("x".to_owned()), "a=b.npy".into()));
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a=b.npy");
        fs::write(&file, "").unwrap();
        assert_eq!(parts(file.to_str().unwrap()), (None, file));
    }
}
