//! The bundled model's tokens and logits against llama.cpp's.

use std::path::PathBuf;

use anyhow::{Context, Result};
use rustorch_gguf::Gguf;
use rustorch_llm::golden::{Agreement, Bounds, Golden};
use rustorch_llm::quantize::{FileType, QuantizeOptions, quantize};
use rustorch_llm::{Model, Session};

use super::findings::{Figure, Findings, Row};
use crate::model::Source;
use crate::subject::Subject;
use crate::{bundled, progress};

/// The models that there are answers for, and what became of the files that were given.
pub(super) struct Models {
    models: Vec<(FileType, Model)>,
    /// Files that are of no use.
    useless: Vec<(String, String)>,
}

impl Models {
    /// The bundled model and those in `files`. Of a file in half precision the other types are
    /// made.
    ///
    /// # Errors
    /// A file cannot be read, or is no model.
    pub(super) fn open(files: &[PathBuf]) -> Result<Self> {
        let mut found = Self {
            models: vec![(bundled::FILE_TYPE, Source::new(None).load()?)],
            useless: Vec::new(),
        };
        let name = found
            .bundled()
            .gguf()
            .metadata
            .str("general.name")?
            .to_owned();
        for path in files {
            let source = Source::new(Some(path.clone()));
            let gguf = source.open()?;
            let file_type = file_type(&gguf).filter(|ty| bundled::goldens(*ty).is_some());
            let file_type = match gguf.metadata.str("general.name") {
                Ok(given) if given == name => file_type,
                _ => None,
            };
            let Some(file_type) = file_type else {
                let why = format!("there are answers for {name} in {} only", all_types());
                found.useless.push((source.to_string(), why));
                continue;
            };
            if file_type == FileType::F16 {
                for (other, _) in bundled::GOLDENS {
                    if other != FileType::F16 && !found.has(other) {
                        found.models.push((other, quantised(&gguf, other)?));
                    }
                }
            }
            if !found.has(file_type) {
                found.models.push((file_type, source.load()?));
            }
        }
        Ok(found)
    }

    /// The model that is part of the program.
    pub(super) fn bundled(&self) -> &Model {
        &self.models[0].1
    }

    fn has(&self, file_type: FileType) -> bool {
        self.models.iter().any(|(ty, _)| *ty == file_type)
    }

    /// Checks the models.
    pub(super) fn check(&self, subject: &Subject) -> Findings {
        let bar = progress::steps("goldens", self.models.len());
        let mut rows = Vec::new();
        for (file_type, model) in &self.models {
            let row = check(subject, model, *file_type);
            let name = format!("{} {file_type}", bundled::MODEL);
            rows.push(row.unwrap_or_else(|e| Row::failed(name, format!("{e:#}"))));
            bar.inc(1);
        }
        bar.finish_and_clear();
        let useless = self.useless.iter();
        rows.extend(useless.map(|(file, why)| Row::skipped(file, why)));
        let missing: Vec<&str> = (bundled::GOLDENS.iter())
            .filter(|(ty, _)| !self.has(*ty))
            .map(|(ty, _)| ty.name())
            .collect();
        let left_out = match missing.is_empty() {
            true => Vec::new(),
            false => vec![format!(
                "{}, which need a file: -m models/classics-13m-f16.gguf of the repository checks \
                 F16 and what is made of it, all the others",
                missing.join(", ")
            )],
        };
        Findings {
            did: "The answers of llama.cpp 0.5.0 on the same file: for each prompt its tokens, \
                  then 48 greedy steps with their five largest logits. Tokens have to be equal \
                  where its own two best are not within its rounding noise."
                .to_owned(),
            left_out,
            rows,
        }
    }
}

fn check(subject: &Subject, model: &Model, file_type: FileType) -> Result<Row> {
    let goldens = Golden::parse(bundled::goldens(file_type).unwrap_or_default())?;
    let bounds = Bounds::of(file_type, subject.is_cpu());
    let mut session = Session::new(model, &subject.runtime(), subject.session(model)?)?;
    let agreement = Agreement::measure(&mut session, &goldens, &bounds)?;
    let Agreement {
        equal, mean, worst, ..
    } = agreement;
    let figures = vec![
        Figure::count("tokens equal", equal),
        Figure::count("tokens wrong", agreement.mistakes.len()).at_most(0.0),
        Figure::new("logits off, mean", mean.into()).at_most(short(bounds.mean)),
        Figure::new("logits off, largest", worst.into()).at_most(short(bounds.worst)),
    ];
    let row = Row::passed(format!("{} {file_type}", bundled::MODEL), figures);
    Ok(row.judged(agreement.problem(&bounds)))
}

/// A bound as it is written in the source: an `f32` has more digits as an `f64`.
fn short(bound: f32) -> f64 {
    (f64::from(bound) * 1e6).round() / 1e6
}

fn all_types() -> String {
    bundled::GOLDENS.map(|(ty, _)| ty.name()).join(", ")
}

fn file_type(gguf: &Gguf) -> Option<FileType> {
    let id = gguf.metadata.u32("general.file_type").ok()?;
    FileType::ALL.iter().copied().find(|ty| ty.id() == id)
}

/// A model in another type.
fn quantised(source: &Gguf, file_type: FileType) -> Result<Model> {
    let folder = tempfile::tempdir().context("there is no place for a temporary file")?;
    let path = folder.path().join("model.gguf");
    quantize(
        source,
        &path,
        file_type,
        &QuantizeOptions::default(),
        &mut |_| (),
    )?;
    // Read whole, for the file goes with its folder.
    let bytes = std::fs::read(&path).with_context(|| path.display().to_string())?;
    Ok(Model::load(Gguf::from_bytes(bytes)?)?)
}
