//! The bundled model in the types for which the program has llama.cpp's answers.

use std::ops::ControlFlow;
use std::path::PathBuf;

use anyhow::{Context, Result};
use rustorch_gguf::Gguf;
use rustorch_llm::golden::{Agreement, Bounds, Golden};
use rustorch_llm::quantize::{FileType, QuantizeOptions, quantize};
use rustorch_llm::{Model, Preset, Session};

use crate::bundled;
use crate::model::Source;
use crate::subject::Subject;

/// The model in a type.
pub(crate) struct Variant {
    pub(crate) file_type: FileType,
    pub(crate) model: Model,
}

/// The types that there are.
pub(crate) struct Variants {
    /// The bundled one first.
    pub(crate) all: Vec<Variant>,
    /// Files that are of no use, and why.
    pub(crate) useless: Vec<(String, String)>,
}

impl Variants {
    /// The bundled model and those in `files`. The other types are made from a file in f16.
    ///
    /// # Errors
    /// Fails if a file cannot be read, or is not a model.
    pub(crate) fn open(files: &[PathBuf]) -> Result<Self> {
        let mut found = Self {
            all: vec![Variant {
                file_type: bundled::FILE_TYPE,
                model: Source::new(None).load()?,
            }],
            useless: Vec::new(),
        };
        let name = found
            .bundled()
            .model
            .gguf()
            .metadata
            .str("general.name")?
            .to_owned();
        for path in files {
            let source = Source::new(Some(path.clone()));
            let gguf = source.open()?;
            let is_it = gguf
                .metadata
                .str("general.name")
                .is_ok_and(|given| given == name);
            let Some(file_type) = answered_type(&gguf).filter(|_| is_it) else {
                let types: Vec<&str> = bundled::GOLDENS.iter().map(|(ty, _)| ty.name()).collect();
                let types = types.join(", ");
                let why = format!("only files of \"{name}\" in {types} have reference answers");
                found.useless.push((source.to_string(), why));
                continue;
            };
            if !found.has(file_type) {
                let model = source.load()?;
                found.all.push(Variant { file_type, model });
            }
            if file_type == FileType::F16 {
                for file_type in found.missing() {
                    let model = quantised(&gguf, file_type)?;
                    found.all.push(Variant { file_type, model });
                }
            }
        }
        Ok(found)
    }

    /// The bundled model.
    pub(crate) fn bundled(&self) -> &Variant {
        &self.all[0]
    }

    /// The model in a type, if there is a file of it.
    pub(crate) fn get(&self, file_type: FileType) -> Option<&Variant> {
        self.all.iter().find(|v| v.file_type == file_type)
    }

    fn has(&self, file_type: FileType) -> bool {
        self.get(file_type).is_some()
    }

    /// The types for which there are answers and no file.
    pub(crate) fn missing(&self) -> Vec<FileType> {
        let types = bundled::GOLDENS.iter().map(|(ty, _)| *ty);
        types.filter(|ty| !self.has(*ty)).collect()
    }
}

impl Variant {
    /// Its name: `classics-13m Q4_K_M`.
    pub(crate) fn name(&self) -> String {
        format!("{} {}", bundled::MODEL, self.file_type)
    }

    /// Limits of the logits' differences from llama.cpp's on a device.
    pub(crate) fn bounds(&self, subject: &Subject) -> Bounds {
        Bounds::of(self.file_type, subject.is_cpu())
    }

    /// Agreement of its answers with llama.cpp's.
    ///
    /// # Errors
    /// Fails if a device fails.
    pub(crate) fn agreement(&self, subject: &Subject) -> Result<Agreement> {
        let goldens = Golden::parse(bundled::goldens(self.file_type).unwrap_or_default())?;
        let options = subject.session(&self.model)?;
        let mut session = Session::new(&self.model, &subject.runtime(), options)?;
        Ok(Agreement::measure(
            &mut session,
            &goldens,
            &self.bounds(subject),
        )?)
    }
}

/// A model of the bundled one's shape with random weights: it takes the same time and memory.
///
/// # Errors
/// Fails if memory is too small for the model.
pub(crate) fn random(file_type: FileType) -> Result<Model> {
    let preset: Preset = bundled::MODEL.parse()?;
    Ok(Model::load(preset.build(file_type)?)?)
}

/// The type of a file, if there are answers for it.
fn answered_type(gguf: &Gguf) -> Option<FileType> {
    let id = gguf.metadata.u32("general.file_type").ok()?;
    let mut types = bundled::GOLDENS.iter().map(|(ty, _)| *ty);
    types.find(|ty| ty.id() == id)
}

/// A model in another type.
fn quantised(source: &Gguf, file_type: FileType) -> Result<Model> {
    let folder = tempfile::tempdir().context("cannot create a temporary directory")?;
    let path = folder.path().join("model.gguf");
    let options = QuantizeOptions::default();
    quantize(source, &path, file_type, &options, &mut |_| {
        ControlFlow::Continue(())
    })?;
    // Read whole, for the file goes with its folder.
    let bytes = std::fs::read(&path).with_context(|| path.display().to_string())?;
    Ok(Model::load(Gguf::from_bytes(bytes)?)?)
}
