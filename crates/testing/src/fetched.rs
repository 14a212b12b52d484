//! Files that scripts of the project fetch, for tests that are ignored without them.

use std::env;
use std::path::{Path, PathBuf};

/// A model that was fetched.
#[derive(Clone, Debug)]
pub struct ModelFile(pub PathBuf);

/// SmolLM2-135M-Instruct in `Q4_1`, as `scripts/fetch-models.sh` fetches it into `target/models` or `$RUSTORCH_MODELS`.
///
/// # Errors
/// Fails if the file is missing. The error gives the reason, and the script that fetches it.
pub fn smollm2() -> Result<ModelFile, String> {
    fetched("SmolLM2-135M-Instruct.Q4_1.gguf", "scripts/fetch-models.sh")
}

/// The folder of all-MiniLM-L6-v2, as `scripts/fetch-models.sh` fetches it into the same folder.
///
/// # Errors
/// The folder is not there: the reason, and the script that fetches it.
pub fn minilm() -> Result<ModelFile, String> {
    fetched("all-MiniLM-L6-v2", "scripts/fetch-models.sh")
}

/// An ONNX model, as `scripts/fetch-onnx.sh` fetches it into the same folder: `silero_vad.onnx` or `magika.onnx`.
///
/// # Errors
/// Fails if the file is missing. The error gives the reason, and the script that fetches it.
pub fn onnx(name: &str) -> Result<ModelFile, String> {
    fetched(name, "scripts/fetch-onnx.sh")
}

fn fetched(name: &str, script: &str) -> Result<ModelFile, String> {
    let folder = match env::var_os("RUSTORCH_MODELS") {
        Some(folder) => PathBuf::from(folder),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/models"),
    };
    let file = folder.join(name);
    match file.exists() {
        true => Ok(ModelFile(file)),
        false => Err(format!(
            "no {}; run {script}, or set RUSTORCH_MODELS",
            file.display()
        )),
    }
}
