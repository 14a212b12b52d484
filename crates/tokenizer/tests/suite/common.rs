//! Helpers of the tests.

use std::fs;
use std::path::{Path, PathBuf};

use rustorch_gguf::{Gguf, Metadata};
use rustorch_tokenizer::Tokenizer;
use serde_json::Value;

/// A path below the repository's root.
pub(crate) fn in_repository(path: impl AsRef<Path>) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path)
}

/// Pre-tokenizers of vocabularies whose words are not made of bytes.
pub(crate) const NOT_BYTE_LEVEL: [&str; 4] = [
    "gemma4",
    "granite-embed-multi-311m",
    "sarvam-moe",
    "whitespace",
];

/// The kinds in `fixtures/kinds`.
pub(crate) const KINDS: [&str; 7] = [
    "bert",
    "t5",
    "rwkv",
    "plamo2",
    "gemma4",
    "whitespace",
    "hybriddna",
];

/// A file in the folder of fixtures.
pub(crate) fn fixture(name: &str) -> PathBuf {
    in_repository("crates/tokenizer/tests/fixtures").join(name)
}

/// The values of a file that has one on each line.
pub(crate) fn json_lines(path: PathBuf) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// The metadata of a GGUF file.
pub(crate) fn metadata(path: impl AsRef<Path>) -> Metadata {
    Gguf::open(path)
        .unwrap_or_else(|error| panic!("{error}"))
        .metadata
        .clone()
}

/// The metadata of a vocabulary in `fixtures/kinds`.
pub(crate) fn kind(name: &str) -> Metadata {
    metadata(fixture(&format!("kinds/{name}.gguf")))
}

/// Token types, by GGUF's numbers.
pub(crate) const NORMAL: i32 = 1;
pub(crate) const UNKNOWN: i32 = 2;
pub(crate) const CONTROL: i32 = 3;
pub(crate) const USER_DEFINED: i32 = 4;
pub(crate) const BYTE: i32 = 6;

/// Metadata of a tokenizer of the kind `model` with these tokens, and nothing but that.
pub(crate) fn tokens<'t>(
    model: &str,
    tokens: impl IntoIterator<Item = (&'t str, i32)>,
) -> Metadata {
    let (texts, types): (Vec<String>, Vec<i32>) = tokens
        .into_iter()
        .map(|(text, ty)| (text.to_owned(), ty))
        .unzip();
    let mut metadata = Metadata::new();
    metadata.insert("tokenizer.ggml.model", model);
    metadata.insert("tokenizer.ggml.tokens", texts);
    metadata.insert("tokenizer.ggml.token_type", types);
    metadata
}

/// Metadata of a byte-level tokenizer that has these tokens first, then one for each byte, and no merges.
pub(crate) fn byte_level(added: &[(&str, i32)]) -> Metadata {
    let is_visible = |byte: &u8| matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
    let visible = (0..=255).filter(is_visible).map(char::from);
    let others = (0x100..)
        .map_while(char::from_u32)
        .take(256 - visible.clone().count());
    let alphabet: Vec<String> = visible.chain(others).map(String::from).collect();
    let alphabet = alphabet.iter().map(|text| (text.as_str(), NORMAL));

    let mut metadata = tokens("gpt2", added.iter().copied().chain(alphabet));
    metadata.insert("tokenizer.ggml.pre", "gpt-2");
    metadata.insert("tokenizer.ggml.merges", Vec::<String>::new());
    metadata
}

/// Metadata of a SentencePiece tokenizer whose tokens have the given scores. `<unk>`, `<s>`, `</s>`
/// and one token for each byte come first.
pub(crate) fn sentence_piece(pieces: &[(&str, f32)]) -> Metadata {
    let special = [("<unk>", UNKNOWN), ("<s>", CONTROL), ("</s>", CONTROL)];
    let bytes: Vec<String> = (0..=255).map(|byte| format!("<0x{byte:02X}>")).collect();
    let bytes = bytes.iter().map(|text| (text.as_str(), BYTE));
    let normal = pieces.iter().map(|&(text, _)| (text, NORMAL));
    let scores: Vec<f32> = std::iter::repeat_n(0.0, 259)
        .chain(pieces.iter().map(|&(_, score)| score))
        .collect();

    let mut metadata = tokens("llama", special.into_iter().chain(bytes).chain(normal));
    metadata.insert("tokenizer.ggml.scores", scores);
    metadata
}

/// The tokenizer that `metadata` describes.
pub(crate) fn tokenizer(metadata: &Metadata) -> Tokenizer {
    Tokenizer::from_gguf(metadata).unwrap_or_else(|error| panic!("{error}"))
}
