//! The bundled model.

use rustorch_classics::goldens;
use rustorch_gguf::{Gguf, GgufError};
use rustorch_llm::quantize::FileType;

/// Its name in every type.
pub(crate) const MODEL: &str = rustorch_classics::NAME;

/// Its type.
pub(crate) const FILE_TYPE: FileType = FileType::Q4KM;

/// llama.cpp's answers for it, and for its weights in other types.
pub(crate) const GOLDENS: [(FileType, &str); 5] = [
    (FILE_TYPE, goldens::Q4_K_M),
    (FileType::Q5KM, goldens::Q5_K_M),
    (FileType::Q6K, goldens::Q6_K),
    (FileType::Q8_0, goldens::Q8_0),
    (FileType::F16, goldens::F16),
];

/// Its name.
pub(crate) const NAME: &str = "classics-13m-Q4_K_M";

/// Beginning of a story without a prompt.
pub(crate) const OPENING: &str = "Once upon a time there was a king who";

/// llama.cpp's answers for the model in a type.
pub(crate) fn goldens(file_type: FileType) -> Option<&'static str> {
    let found = GOLDENS.iter().find(|(ty, _)| *ty == file_type);
    found.map(|(_, text)| *text)
}

/// The model, where it lies in the program.
pub(crate) fn open() -> Result<Gguf, GgufError> {
    Gguf::from_static(rustorch_classics::MODEL)
}
