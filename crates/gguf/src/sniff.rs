//! Recognises other formats by their first bytes, so that the error can say what to do.

use crate::error::GgufError;

/// The format of a file's first bytes.
pub(crate) const MAGIC: &[u8; 4] = b"GGUF";

const CONVERT: &str = "convert it with llama.cpp's convert_hf_to_gguf.py";
const CONVERT_OLD: &str =
    "this format ended in 2023, convert the original model with a current llama.cpp";
const FETCH: &str = "download the .gguf file itself";
const UNPACK: &str = "unpack it first";

/// First bytes, what they mean, what to do. Letters are compared without regard to case.
const KNOWN: &[(&[u8], &str, &str)] = &[
    // The old formats wrote their names as little-endian numbers, hence backwards (llama.h before August 2023).
    (b"lmgg", "an old unversioned GGML model", CONVERT_OLD),
    (b"fmgg", "an old GGMF model", CONVERT_OLD),
    (b"tjgg", "an old GGJT model", CONVERT_OLD),
    (b"algg", "an old GGLA adapter", CONVERT_OLD),
    (
        b"PK\x03\x04",
        "a zip archive, perhaps a PyTorch checkpoint",
        CONVERT,
    ),
    (
        b"\x80\x02",
        "a Python pickle, perhaps an old PyTorch checkpoint",
        CONVERT,
    ),
    (b"\x89HDF", "an HDF5 file", CONVERT),
    (
        b"version https://git-lfs",
        "a git-lfs pointer, not the model it points to",
        "run `git lfs pull` to fetch the model",
    ),
    (b"<!doctype", "a web page", FETCH),
    (b"<html", "a web page", FETCH),
    (
        b"<?xml",
        "an XML document, perhaps an error message from a server",
        FETCH,
    ),
    (
        b"{",
        "a JSON document, perhaps an error message or a model's configuration",
        FETCH,
    ),
    (b"\x1f\x8b", "a gzip archive", UNPACK),
    (b"\x28\xb5\x2f\xfd", "a zstd archive", UNPACK),
    (b"\xfd7zXZ", "an xz archive", UNPACK),
    (b"7z\xbc\xaf", "a 7z archive", UNPACK),
];

/// Fails unless these bytes begin as a GGUF file does; the error says what they look like instead.
pub(crate) fn expect_gguf(bytes: &[u8]) -> Result<(), GgufError> {
    if bytes.starts_with(MAGIC) {
        return Ok(());
    }
    if bytes.is_empty() {
        return Err(GgufError::Empty);
    }
    if MAGIC.starts_with(bytes) {
        return Err(GgufError::Truncated {
            place: "the header".into(),
            offset: 0,
            needed: MAGIC.len() as u64,
            left: bytes.len() as u64,
        });
    }
    if bytes.iter().take(MAGIC.len()).eq(MAGIC.iter().rev()) {
        return Err(GgufError::BigEndian);
    }
    let not_gguf = |found: &str, advice| {
        Err(GgufError::NotGguf {
            found: format!("it looks like {found}"),
            advice,
        })
    };
    if is_safetensors(bytes) {
        return not_gguf("a safetensors file", CONVERT);
    }
    let text = bytes.trim_ascii_start();
    for &(start, found, advice) in KNOWN {
        if text
            .get(..start.len())
            .is_some_and(|first| first.eq_ignore_ascii_case(start))
        {
            return not_gguf(found, advice);
        }
    }
    let first = bytes[..bytes.len().min(MAGIC.len())].escape_ascii();
    Err(GgufError::NotGguf {
        found: format!("it begins with `{first}` where `GGUF` should be"),
        advice: "check that this is the right file",
    })
}

/// Whether these are the length of a JSON text (u64) and that text's beginning.
fn is_safetensors(bytes: &[u8]) -> bool {
    bytes.len() > 9 && bytes[6..8] == [0, 0] && bytes[8] == b'{'
}
