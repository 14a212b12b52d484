//! The kinds that few models have. The ids and pieces are llama.cpp's, of the vocabularies in `fixtures/kinds`, which
//! `fixtures/kinds.py` made.

use rustorch_gguf::{Metadata, Value};
use rustorch_tokenizer::EncodeOptions;
use serde::Deserialize;

use crate::common::{
    CONTROL, KINDS, NORMAL, byte_level, fixture, json_lines, kind, tokenizer, tokens,
};

const ALL: EncodeOptions = EncodeOptions {
    add_special: true,
    parse_special: true,
};

#[test]
fn ids_of_the_kind_for_tests_are_computed_from_five_bytes_each() {
    let texts: Vec<String> = (0..128).map(|id| format!("tok_{id}")).collect();
    let types = |text: &str| if text == "tok_5" { CONTROL } else { NORMAL };
    let mut metadata = tokens(
        "test",
        texts.iter().map(|text| (text.as_str(), types(text))),
    );
    metadata.insert("tokenizer.ggml.bos_token_id", 1u32);
    metadata.insert("tokenizer.ggml.add_bos_token", true);
    let it = tokenizer(&metadata);
    for (text, ids) in [
        ("", &[][..]),
        ("Hello, world!", &[50, 38, 41]),
        ("é中文🦀", &[83, 6, 26]),
    ] {
        assert_eq!(it.encode(text, ALL), ids, "{text}");
    }
    // A control token is found, and a normal one is text.
    let plain = EncodeOptions::default();
    assert_eq!(it.encode("tok_5 tok_127", plain), [6, 47, 54]);
    assert_eq!(it.encode("tok_5", ALL), [5]);
    assert_eq!(it.decode(&[0, 9, 10, 127, 5]), "09a7f");
    assert_eq!((it.bos(), it.adds_bos(), it.eos()), (Some(1), false, None));
}

/// Results of llama.cpp with a vocabulary.
#[derive(Deserialize)]
struct Golden {
    /// The vocabulary.
    kind: String,
    /// Keys that differ from the file's.
    keys: serde_json::Map<String, serde_json::Value>,
    /// Ids of each text, without special tokens.
    plain: Vec<Vec<u32>>,
    /// Ids of each text, with special tokens.
    special: Vec<Vec<u32>>,
    /// The bytes of each token in hexadecimal digits.
    #[serde(default)]
    pieces: Vec<String>,
}

impl Golden {
    fn metadata(&self) -> Metadata {
        let mut metadata = kind(&self.kind);
        for (key, value) in &self.keys {
            let value = match value {
                serde_json::Value::Bool(flag) => Value::from(*flag),
                serde_json::Value::String(text) => text.as_str().into(),
                number => u32::try_from(number.as_u64().unwrap()).unwrap().into(),
            };
            metadata.insert(format!("tokenizer.ggml.{key}"), value);
        }
        metadata
    }
}

fn goldens() -> (Vec<String>, Vec<Golden>) {
    let mut lines = json_lines(fixture("kinds.jsonl")).into_iter();
    let texts = serde_json::from_value(lines.next().unwrap()).unwrap();
    let goldens = lines.map(|line| serde_json::from_value(line).unwrap());
    let goldens: Vec<Golden> = goldens.collect();
    let all = |kind: &&str| goldens.iter().any(|golden| golden.kind == *kind);
    assert!(KINDS.iter().all(all));
    (texts, goldens)
}

#[test]
fn ids_are_llama_cpps() {
    let (texts, goldens) = goldens();
    for golden in goldens {
        let it = tokenizer(&golden.metadata());
        for (options, expected) in [
            (EncodeOptions::default(), &golden.plain),
            (ALL, &golden.special),
        ] {
            assert_eq!(texts.len(), expected.len());
            for (text, expected) in texts.iter().zip(expected) {
                let ids = it.encode(text, options);
                assert_eq!(
                    &ids, expected,
                    "{} {:?}: {text:?}",
                    golden.kind, golden.keys
                );
            }
        }
    }
}

#[test]
fn pieces_are_llama_cpps() {
    for golden in goldens().1 {
        let it = tokenizer(&golden.metadata());
        for (id, piece) in (0..).zip(&golden.pieces) {
            let text = it.token_text(id).unwrap();
            // llama.cpp reads these as if they were made of the alphabet of bytes.
            let misread =
                golden.kind == "whitespace" && !text.bytes().all(|byte| byte.is_ascii_graphic());
            let expected = match misread {
                true => &hex(text.as_bytes()),
                false => piece,
            };
            let bytes = it.token_bytes(id).unwrap();
            assert_eq!(&hex(&bytes), expected, "{} {id}", golden.kind);
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn separators_and_suppressed_tokens_are_known() {
    let mut metadata = kind("bert");
    let it = tokenizer(&metadata);
    assert_eq!(
        (it.sep(), it.adds_sep(), it.adds_bos()),
        (Some(3), true, true)
    );
    assert_eq!(it.suppressed(), [0; 0]);
    metadata.insert("tokenizer.ggml.add_sep_token", false);
    metadata.insert("tokenizer.ggml.suppress_tokens", vec![5i32, -1, 70_000, 1]);
    let it = tokenizer(&metadata);
    assert_eq!((it.sep(), it.adds_sep()), (Some(3), false));
    assert_eq!(it.suppressed(), [5, 1]);

    let mut metadata = byte_level(&[]);
    for (pre, adds_sep) in [
        ("jina-v1-en", true),
        ("roberta-bpe", true),
        ("gpt-2", false),
    ] {
        metadata.insert("tokenizer.ggml.pre", pre);
        let it = tokenizer(&metadata);
        assert_eq!((it.sep(), it.adds_sep()), (None, adds_sep), "{pre}");
    }
}

#[test]
fn some_architectures_drop_white_space_before_their_mask() {
    let mut metadata = byte_level(&[("<mask>", CONTROL)]);
    let space = tokenizer(&metadata).encode("a <mask>", ALL);
    metadata.insert("general.architecture", "nomic-bert-moe");
    let dropped = tokenizer(&metadata).encode("a <mask>", ALL);
    assert_eq!((space.len(), dropped.len()), (3, 2));
}
