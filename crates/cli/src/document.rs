//! Reports as files, in Markdown or JSON.

use std::fmt::Display;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Serialize;

use crate::args::{DocumentArgs, DocumentFormat};

/// A report that is to be written.
pub(crate) struct Document {
    format: DocumentFormat,
    /// The target; standard output without.
    path: Option<PathBuf>,
}

impl Document {
    /// The path in the options, else `name` with its format's extension in the current folder.
    ///
    /// # Errors
    /// Fails if the file cannot be created. It is better to report this before the work than after
    /// it.
    pub(crate) fn open(args: &DocumentArgs, name: &str) -> Result<Self> {
        let is_json = |path: &PathBuf| path.extension().is_some_and(|e| e == "json");
        let format = args.format.unwrap_or(match &args.output {
            Some(path) if is_json(path) => DocumentFormat::Json,
            _ => DocumentFormat::Md,
        });
        let path = match &args.output {
            Some(path) if path.as_os_str() == "-" => return Ok(Self { format, path: None }),
            Some(path) => path.clone(),
            None => PathBuf::from(name).with_extension(format.extension()),
        };
        check_writable(&path)
            .with_context(|| format!("cannot write the report {}", path.display()))?;
        Ok(Self {
            format,
            path: Some(path),
        })
    }

    /// The file's name, if it is one.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Writes it in its format; returns the file's name, or `None` for standard output.
    ///
    /// # Errors
    /// Fails if the report cannot be written.
    pub(crate) fn write(self, report: &(impl Display + Serialize)) -> Result<Option<String>> {
        let text = match self.format {
            DocumentFormat::Md => report.to_string(),
            DocumentFormat::Json => serde_json::to_string_pretty(report)? + "\n",
        };
        match self.path {
            None => {
                io::stdout().lock().write_all(text.as_bytes())?;
                Ok(None)
            }
            Some(path) => {
                let name = path.display().to_string();
                fs::write(path, text).with_context(|| name.clone())?;
                Ok(Some(name))
            }
        }
    }
}

/// Can a file be written? The error comes before the work rather than after it. An existing file stays as it is
/// until then.
///
/// # Errors
/// Fails if the file cannot be written.
pub(crate) fn check_writable(path: &Path) -> io::Result<()> {
    let is_new = !path.exists();
    OpenOptions::new().append(true).create(true).open(path)?;
    match is_new {
        true => fs::remove_file(path),
        false => Ok(()),
    }
}
