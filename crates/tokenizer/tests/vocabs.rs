//! llama.cpp's own test vocabularies, which `scripts/fetch-vocabs.sh` fetches.
//!
//! Each is a file `ggml-vocab-NAME.gguf`; most have texts in `….gguf.inp` and, a line for each, their
//! ids without BOS and without parsing special tokens in `….gguf.out`. They are looked for in
//! `target/vocabs`, or where `RUSTORCH_VOCABS` says.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use rustorch_tokenizer::{EncodeOptions, Tokenizer, TokenizerError};

use crate::common::{in_repository, metadata};

const SEPARATOR: &str = "\n__ggml_vocab_test__\n";

#[test]
fn all_pairs_pass() {
    let folder = match env::var_os("RUSTORCH_VOCABS") {
        Some(folder) => PathBuf::from(folder),
        None => in_repository("target/vocabs"),
    };
    let vocabs = vocabs_in(&folder);
    if vocabs.is_empty() {
        println!(
            "skipped: no ggml-vocab-*.gguf in {}; run scripts/fetch-vocabs.sh, or set RUSTORCH_VOCABS",
            folder.display()
        );
        return;
    }
    let mut pairs = 0;
    for vocab in vocabs {
        let name = vocab.file_name().unwrap().to_string_lossy().into_owned();
        let metadata = metadata(&vocab);
        let model = metadata.str("tokenizer.ggml.model").unwrap();
        match Tokenizer::from_gguf(&metadata) {
            Ok(tokenizer) => match texts_and_ids(&vocab) {
                Some(pair) => {
                    check(&tokenizer, &name, &pair);
                    pairs += 1;
                    println!("{name}: {} texts as expected", pair.len());
                }
                None => println!("{name}: loaded; there are no texts for it"),
            },
            Err(TokenizerError::Model { model: refused }) => {
                assert_eq!(refused, model);
                assert!(
                    model != "llama" && model != "gpt2",
                    "{name}: {model} must be supported"
                );
                println!("{name}: refused, for it is {model}");
            }
            Err(error) => panic!("{name}: {error}"),
        }
    }
    assert!(
        pairs > 0,
        "{} has vocabularies but no texts; fetch them again",
        folder.display()
    );
}

fn vocabs_in(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    let paths = entries.map(|entry| entry.unwrap().path());
    let mut vocabs: Vec<_> = paths
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "gguf")
        })
        .collect();
    vocabs.sort();
    vocabs
}

fn texts_and_ids(vocab: &Path) -> Option<Vec<(String, Vec<u32>)>> {
    let read = |extension| fs::read_to_string(vocab.with_extension(extension)).ok();
    let (texts, lines) = (read("gguf.inp")?, read("gguf.out")?);
    let texts: Vec<_> = texts.split(SEPARATOR).map(str::to_owned).collect();
    let ids: Vec<_> = lines
        .split('\n')
        .map(|line| {
            line.split_whitespace()
                .map(|id| id.parse().unwrap())
                .collect()
        })
        .collect();
    assert_eq!(texts.len(), ids.len(), "{}", vocab.display());
    Some(texts.into_iter().zip(ids).collect())
}

fn check(tokenizer: &Tokenizer, name: &str, pair: &[(String, Vec<u32>)]) {
    for (text, ids) in pair {
        assert_eq!(
            tokenizer.encode(text, EncodeOptions::default()),
            *ids,
            "{name}: {text:?}"
        );
    }
}
