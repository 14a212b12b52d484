//! Models that are split over several files, `NAME-00001-of-00003.gguf` and so on.
//!
//! Source: llama_split_path and the loading of parts in llama.cpp's llama-model-loader.cpp. The first part holds the
//! metadata; each part holds `split.no` (from 0), `split.count`, `split.tensors.count` (of all parts) and its tensors.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use crate::Metadata;
use crate::error::{GgufError, SplitProblem};

/// The keys that describe a part, not the model.
const KEYS: [&str; 3] = [NUMBER_KEY, COUNT_KEY, TENSORS_KEY];
const NUMBER_KEY: &str = "split.no";
const COUNT_KEY: &str = "split.count";
const TENSORS_KEY: &str = "split.tensors.count";

/// The first part's keys about the split.
pub(crate) struct Split {
    /// The number of parts, at least 2.
    pub(crate) count: u32,
    /// The number of tensors in all parts.
    tensors: u64,
    /// The parts' common name and folder, without number.
    stem: PathBuf,
}

impl Split {
    /// The number of parts of the model to which a file with this metadata belongs; 1 if it is not split.
    pub(crate) fn part_count(metadata: &Metadata) -> Result<u32, GgufError> {
        Ok(metadata
            .opt_as::<u16>(COUNT_KEY)?
            .unwrap_or(1)
            .max(1)
            .into())
    }

    /// The split whose first part has this metadata and path, or `None` if the model is in one file.
    pub(crate) fn of(metadata: &Metadata, path: &Path) -> Result<Option<Self>, GgufError> {
        let count = Self::part_count(metadata)?;
        if count == 1 {
            return Ok(None);
        }
        let part = part_number(metadata)?;
        let stem = stem(path, &suffix(part, count)).ok_or(SplitProblem::Name { part, count })?;
        let split = Split {
            count,
            tensors: metadata.u64(TENSORS_KEY)?,
            stem,
        };
        if part != 1 {
            return Err(SplitProblem::NotFirst {
                part,
                count,
                first: split.path(1),
            }
            .into());
        }
        Ok(Some(split))
    }

    /// The path of a part, numbered from 1.
    pub(crate) fn path(&self, part: u32) -> PathBuf {
        let mut path = self.stem.clone().into_os_string();
        path.push(suffix(part, self.count));
        path.into()
    }

    /// Fails unless this metadata is that of the given part.
    pub(crate) fn expect_part(&self, part: u32, metadata: &Metadata) -> Result<(), GgufError> {
        let found_part = part_number(metadata)?;
        let found_count = metadata.get_as::<u16>(COUNT_KEY)?.into();
        if (found_part, found_count) == (part, self.count) {
            Ok(())
        } else {
            Err(SplitProblem::WrongPart {
                part,
                count: self.count,
                found_part,
                found_count,
            }
            .into())
        }
    }

    /// Fails unless all parts together hold this many tensors.
    pub(crate) fn expect_tensors(&self, found: usize) -> Result<(), GgufError> {
        let (count, expected, found) = (self.count, self.tensors, found as u64);
        if found == expected {
            Ok(())
        } else {
            Err(SplitProblem::WrongTensorCount {
                count,
                expected,
                found,
            }
            .into())
        }
    }

    /// Takes out of the metadata what is true of the part only.
    pub(crate) fn forget(metadata: &mut Metadata) {
        for key in KEYS {
            metadata.remove(key);
        }
    }
}

/// The number of the part with this metadata, from 1.
fn part_number(metadata: &Metadata) -> Result<u32, GgufError> {
    Ok(u32::from(metadata.get_as::<u16>(NUMBER_KEY)?) + 1)
}

/// How the name of a part ends.
fn suffix(part: u32, count: u32) -> String {
    format!("-{part:05}-of-{count:05}.gguf")
}

/// The path without this suffix, if it ends so.
fn stem(path: &Path, suffix: &str) -> Option<PathBuf> {
    let name = path.file_name()?;
    let name = without(name, suffix)?;
    Some(path.parent()?.join(name))
}

/// A name without its end, if it ends so; the rest need not be UTF-8.
#[cfg(unix)]
fn without<'n>(name: &'n OsStr, end: &str) -> Option<&'n OsStr> {
    use std::os::unix::ffi::OsStrExt;

    name.as_bytes()
        .strip_suffix(end.as_bytes())
        .map(OsStr::from_bytes)
}

/// A name without its end, if it ends so.
#[cfg(not(unix))]
fn without<'n>(name: &'n OsStr, end: &str) -> Option<&'n OsStr> {
    name.to_str()?.strip_suffix(end).map(OsStr::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(number: u16, count: u16) -> Metadata {
        let mut metadata = Metadata::new();
        metadata.insert(NUMBER_KEY, number);
        metadata.insert(COUNT_KEY, count);
        metadata.insert(TENSORS_KEY, 7i32);
        metadata
    }

    #[test]
    fn parts_are_found_beside_the_first() {
        let split = Split::of(&part(0, 12), Path::new("dir/m-00001-of-00012.gguf"))
            .unwrap()
            .unwrap();
        assert_eq!(split.path(11), Path::new("dir/m-00011-of-00012.gguf"));
    }

    #[test]
    fn a_model_in_one_file_is_not_split() {
        assert!(
            Split::of(&Metadata::new(), Path::new("m.gguf"))
                .unwrap()
                .is_none()
        );
        assert!(
            Split::of(&part(0, 1), Path::new("m.gguf"))
                .unwrap()
                .is_none()
        );
    }

    #[test]
    fn what_is_true_of_the_part_is_forgotten() {
        let mut metadata = part(0, 2);
        metadata.insert("general.name", "m");
        Split::forget(&mut metadata);
        assert_eq!(
            metadata.iter().map(|(key, _)| key).collect::<Vec<_>>(),
            ["general.name"]
        );
    }
}
