//! The ids are llama.cpp's: of the vocabularies in `fixtures`, made by its `make.py`, and of the
//! bundled model.

use std::fs;

use rustorch_tokenizer::{EncodeOptions, Tokenizer, TokenizerError};
use serde_json::Value;

use crate::common::{NOT_BYTE_LEVEL, fixture, in_repository, json_lines, metadata, tokenizer};

fn texts() -> Vec<String> {
    serde_json::from_str(&fs::read_to_string(fixture("texts.json")).unwrap()).unwrap()
}

fn ids(value: &Value) -> Vec<u32> {
    serde_json::from_value(value.clone()).unwrap()
}

fn assert_ids(tokenizer: &Tokenizer, options: EncodeOptions, expected: &Value, what: &str) {
    let texts = texts();
    let expected = expected.as_array().unwrap();
    assert_eq!(texts.len(), expected.len());
    for (text, expected) in texts.iter().zip(expected) {
        assert_eq!(
            tokenizer.encode(text, options),
            ids(expected),
            "{what}: {text:?}"
        );
    }
}

#[test]
fn byte_level_with_every_pre_tokenizer() {
    let options = EncodeOptions {
        add_special: true,
        parse_special: false,
    };
    let mut metadata = metadata(fixture("byte_level.gguf"));
    let mut names = Vec::new();
    for line in json_lines(fixture("byte_level.jsonl")) {
        for name in line["pre"].as_array().unwrap() {
            let name = name.as_str().unwrap();
            metadata.insert("tokenizer.ggml.pre", name);
            let tokenizer = tokenizer(&metadata);
            assert_ids(&tokenizer, options, &line["ids"], name);
            names.push(name.to_owned());
        }
    }

    metadata.insert("tokenizer.ggml.pre", "unheard-of");
    let Err(error) = Tokenizer::from_gguf(&metadata) else {
        panic!("an unknown name must be refused")
    };
    let text = error.to_string();
    assert!(
        text.starts_with(r#"tokenizer.ggml.pre is "unheard-of", which is not supported"#),
        "{text}"
    );
    let TokenizerError::PreTokenizer { mut supported, .. } = error else {
        panic!("{text}")
    };
    // These have goldens in `kinds.jsonl`.
    names.extend(NOT_BYTE_LEVEL.map(str::to_owned));
    supported.sort_unstable();
    names.sort_unstable();
    assert_eq!(
        supported, names,
        "every name that is supported must have expected ids"
    );
}

#[test]
fn a_missing_pre_tokenizer_is_the_default_one() {
    let options = EncodeOptions {
        add_special: true,
        parse_special: false,
    };
    let tokenizer = tokenizer(&metadata(fixture("byte_level.gguf")));
    let lines = json_lines(fixture("byte_level.jsonl"));
    let default = lines
        .iter()
        .find(|line| line["pre"][0] == "default")
        .unwrap();
    assert_ids(&tokenizer, options, &default["ids"], "no pre-tokenizer");
}

#[test]
fn sentence_piece() {
    let tokenizer = tokenizer(&metadata(fixture("sentence_piece.gguf")));
    for line in json_lines(fixture("sentence_piece.jsonl")) {
        let special = line["special"].as_bool().unwrap();
        let options = EncodeOptions {
            add_special: special,
            parse_special: special,
        };
        assert_ids(
            &tokenizer,
            options,
            &line["ids"],
            &format!("special: {special}"),
        );
    }
}

#[test]
fn texts_come_back() {
    let mut byte_level = metadata(fixture("byte_level.gguf"));
    byte_level.insert("tokenizer.ggml.pre", "llama-bpe");
    let byte_level = tokenizer(&byte_level);
    let sentence_piece = tokenizer(&metadata(fixture("sentence_piece.gguf")));
    for text in texts() {
        let ids = byte_level.encode(&text, EncodeOptions::default());
        assert_eq!(byte_level.decode(&ids), text);

        // It keeps no difference between a space and its sign, and puts a space before text.
        let ids = sentence_piece.encode(&text, EncodeOptions::default());
        let spaces: String = sentence_piece.decode(&ids).split(' ').collect();
        assert_eq!(spaces, text.replace(['\u{2581}', ' '], ""));
    }
}

#[test]
fn the_bundled_model() {
    let options = EncodeOptions {
        add_special: true,
        parse_special: false,
    };
    let tokenizer = tokenizer(&metadata(in_repository("models/classics-13m-Q4_K_M.gguf")));
    let goldens = json_lines(in_repository("models/goldens/classics-13m-Q4_K_M.jsonl"));
    assert!(!goldens.is_empty());
    for golden in goldens {
        let prompt = golden["prompt"].as_str().unwrap();
        assert_eq!(
            tokenizer.encode(prompt, options),
            ids(&golden["ids"]),
            "{prompt:?}"
        );
    }

    let story = fs::read_to_string(in_repository("models/classics-eval.txt")).unwrap();
    let ids = tokenizer.encode(&story, EncodeOptions::default());
    assert_eq!(tokenizer.decode(&ids), story);
}
