//! Tensors whose elements are in files beside the model.

use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};

use rustorch_files::Source;

use crate::error::{OnnxError, OnnxResult};
use crate::proto::TensorData;

/// The files in a model's folder, each mapped once.
pub(crate) struct Folder {
    path: PathBuf,
    files: HashMap<String, Source>,
}

impl Folder {
    /// The folder of the model at `path`.
    pub(crate) fn of(path: &Path) -> Self {
        let parent = path
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty());
        Self {
            path: parent.unwrap_or(Path::new(".")).to_owned(),
            files: HashMap::new(),
        }
    }

    /// The elements of a tensor: so many bytes.
    pub(crate) fn elements(&mut self, data: &TensorData, bytes: usize) -> OnnxResult<Source> {
        let entry = |key: &str| {
            let found = data.external.iter().find(|entry| entry.key == key);
            found.map(|entry| entry.value.as_str())
        };
        let location = entry("location").unwrap_or_default();
        let failed = |problem: String| OnnxError::External {
            tensor: data.name.clone(),
            location: location.to_owned(),
            problem,
        };
        let number = |key: &str| match entry(key).map(str::parse::<u64>) {
            None => Ok(None),
            Some(Ok(number)) => Ok(Some(number)),
            Some(Err(_)) => Err(failed(format!(
                "its {key} is not a number; export it again"
            ))),
        };
        let (offset, length) = (number("offset")?.unwrap_or(0), number("length")?);
        if length.is_some_and(|length| length != bytes as u64) {
            return Err(failed(format!(
                "its length is {}, and its shape needs {bytes} bytes; export it again",
                length.unwrap_or(0)
            )));
        }
        let file = self.file(location).map_err(failed)?;
        let part = file.part(format!("tensor {:?}", data.name), offset, bytes as u64);
        part.map_err(|e| failed(e.to_string()))
    }

    fn file(&mut self, location: &str) -> Result<Source, String> {
        if let Some(file) = self.files.get(location) {
            return Ok(file.clone());
        }
        let path = self.inside(location)?;
        let file = Source::open(path).map_err(|e| e.to_string())?;
        self.files.insert(location.to_owned(), file.clone());
        Ok(file)
    }

    /// The path of a file that is in the folder, also after links are followed.
    fn inside(&self, location: &str) -> Result<PathBuf, String> {
        let outside = || "it is outside of the model's folder; put it there".to_owned();
        let relative = Path::new(location);
        let is_plain = |part| matches!(part, Component::Normal(_) | Component::CurDir);
        if location.is_empty() || !relative.components().all(is_plain) {
            return Err(outside());
        }
        let missing = |e: std::io::Error| format!("{e}; put it into the model's folder");
        let path = self.path.join(relative).canonicalize().map_err(missing)?;
        let folder = self.path.canonicalize().map_err(missing)?;
        match path.starts_with(&folder) {
            true => Ok(path),
            false => Err(outside()),
        }
    }
}
