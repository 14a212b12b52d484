//! Architectures: descriptions by families, and the list of them.
//!
//! A description reads a file's keys and lists the parts of its decoder. Weights, caches and the
//! forward pass are built from it.

mod base;
mod command_r;
mod early;
mod encoders;
mod ernie;
mod experts;
mod gemma;
mod glm;
mod granite;
mod hunyuan;
mod llama;
mod olmo;
mod others;
mod phi;
mod plamo;
mod qwen;
mod recurrent;
mod rwkv;
mod windowed;

use crate::LlmError;
use crate::keys::Keys;
use crate::rotary::RopeOptions;
use crate::spec::ModelSpec;
use base::File;

/// An architecture: its name in `general.architecture`, and its description of a file.
struct Arch {
    name: &'static str,
    describe: fn(File) -> Result<ModelSpec, LlmError>,
}

/// Every architecture.
const ARCHITECTURES: &[&[Arch]] = &[
    command_r::ALL,
    early::ALL,
    encoders::ALL,
    ernie::ALL,
    experts::ALL,
    gemma::ALL,
    glm::ALL,
    granite::ALL,
    hunyuan::ALL,
    llama::ALL,
    olmo::ALL,
    others::ALL,
    phi::ALL,
    plamo::ALL,
    qwen::ALL,
    recurrent::ALL,
    rwkv::ALL,
    windowed::ALL,
];

/// The names of all architectures, sorted.
pub fn architectures() -> Vec<&'static str> {
    let mut names: Vec<_> = ARCHITECTURES
        .iter()
        .copied()
        .flatten()
        .map(|a| a.name)
        .collect();
    names.sort_unstable();
    names
}

/// The description of a file.
///
/// # Errors
/// Its architecture is not among the implemented ones, or needs parts that are not. Mistakes in keys are
/// [collected](Keys::problems).
pub(crate) fn describe(keys: &Keys, options: RopeOptions) -> Result<ModelSpec, LlmError> {
    let name = keys.prefix;
    let found = ARCHITECTURES
        .iter()
        .copied()
        .flatten()
        .find(|arch| arch.name == name);
    match found {
        Some(arch) => (arch.describe)(File { keys, options }),
        None => Err(LlmError::Unsupported {
            what: format!("architecture {name:?}"),
            supported: format!(
                "{} others are, llama, qwen3 and gemma3 among them; docs/models.md lists all",
                architectures().len()
            ),
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::architectures;

    /// The guide's list, and the README's number.
    #[test]
    fn documents_have_every_architecture() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let read = |name| fs::read_to_string(root.join(name)).unwrap();
        let guide = read("docs/models.md").replace('\n', " ");
        let names = architectures();
        assert!(guide.contains(&names.join(", ")), "{names:?}");
        let count = format!("GGUF models of {} architectures", names.len());
        assert!(read("README.md").contains(&count), "{count}");
    }
}
