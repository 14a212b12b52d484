//! Reading texts.

use std::io::{self, IsTerminal, Read};
use std::path::Path;

use anyhow::{Context, Result, anyhow};

use crate::args::TextArgs;
pub(crate) use crate::escape::unescape;
use crate::failure::Usage;

/// The name that stands for standard input.
const STDIN: &str = "-";

/// The given text: by the options, else the piped input.
///
/// # Errors
/// Fails if the file or pipe cannot be read, or is not UTF-8.
pub(crate) fn given(args: &TextArgs) -> Result<Option<String>> {
    match (
        &args.prompt,
        args.file.as_ref().or(args.binary_file.as_ref()),
    ) {
        (Some(text), _) => Ok(Some(text.clone())),
        (None, Some(path)) => from_option(path).map(Some),
        (None, None) if !io::stdin().is_terminal() => from_stdin(),
        (None, None) => Ok(None),
    }
}

/// A prompt: [`given`], without one line break at the end of a file or pipe, as in llama.cpp. A file that is
/// taken as it is keeps it.
///
/// # Errors
/// The same errors as [`given`].
pub(crate) fn prompt(args: &TextArgs) -> Result<Option<String>> {
    let text = given(args)?;
    let as_it_is = args.prompt.is_some() || args.binary_file.is_some();
    Ok(text.map(|text| match text.strip_suffix('\n') {
        Some(line) if !as_it_is => line.to_owned(),
        _ => text,
    }))
}

/// The given texts with the lines of `file`. Without either, the lines of standard input.
///
/// # Errors
/// The same as [`from_option`]. Fails if there is no text; the error asks for what is `wanted`.
pub(crate) fn listed(
    mut given: Vec<String>,
    file: Option<&Path>,
    wanted: &str,
) -> Result<Vec<String>> {
    if file.is_some() || given.is_empty() {
        given.extend(lines(file)?);
    }
    match given.is_empty() {
        true => Err(Usage(format!("give {wanted}, -f or lines on standard input")).into()),
        false => Ok(given),
    }
}

/// The lines of a file that an option names, or of standard input, that are not empty.
fn lines(path: Option<&Path>) -> Result<Vec<String>> {
    let text = match path {
        Some(path) => from_option(path)?,
        None if io::stdin().is_terminal() => String::new(),
        None => from_stdin()?.unwrap_or_default(),
    };
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    Ok(lines.map(str::to_owned).collect())
}

/// The contents of a file that an option names, or of standard input, which `-` stands for.
///
/// # Errors
/// Fails if the text cannot be read, or is not UTF-8.
pub(crate) fn from_option(path: &Path) -> Result<String> {
    match path.as_os_str() == STDIN {
        true => Ok(from_stdin()?.unwrap_or_default()),
        false => from_file(path),
    }
}

/// The contents of a file.
///
/// # Errors
/// Fails if the text cannot be read, or is not UTF-8.
pub(crate) fn from_file(path: &Path) -> Result<String> {
    let name = path.display();
    let read = || std::fs::read(path);
    let bytes = read().with_context(|| format!("{name}: cannot read the file; check the path"))?;
    utf8(bytes).with_context(|| name.to_string())
}

/// The text from a pipe, if there is one.
fn from_stdin() -> Result<Option<String>> {
    let mut bytes = Vec::new();
    let read = io::stdin().read_to_end(&mut bytes);
    read.context("standard input: cannot be read; give a prompt with -p")?;
    let text = utf8(bytes).context("standard input")?;
    Ok((!text.is_empty()).then_some(text))
}

fn utf8(bytes: Vec<u8>) -> Result<String> {
    String::from_utf8(bytes).map_err(|e| {
        let at = e.utf8_error().valid_up_to();
        anyhow!("byte {at} is not UTF-8 text; convert the text to UTF-8, with iconv for example")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_of_a_wrong_byte_is_told() {
        let error = utf8(b"ab\xffc".to_vec()).unwrap_err().to_string();
        assert!(error.starts_with("byte 2 "), "{error}");
    }
}
