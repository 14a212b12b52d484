//! llama.cpp's own test vocabularies, which `scripts/fetch-vocabs.sh` fetches.
//!
//! Each is a file `ggml-vocab-NAME.gguf`; most have texts in `….gguf.inp` and, a line for each, their
//! ids without BOS and without parsing special tokens in `….gguf.out`. They are looked for in
//! `target/vocabs`, or where `RUSTORCH_VOCABS` says.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use rustorch_gguf::Gguf;
use rustorch_testing::{Suite, tests};
use rustorch_tokenizer::{EncodeOptions, Tokenizer, TokenizerError};

const SEPARATOR: &str = "\n__ggml_vocab_test__\n";

fn main() -> ExitCode {
    let tests = tests![all_pairs_pass];
    Suite::new().on(find(), "RUSTORCH_TEST_VOCABS", tests).run()
}

/// The vocabularies, or what brings them.
fn find() -> Result<Vec<PathBuf>, String> {
    let folder = match env::var_os("RUSTORCH_VOCABS") {
        Some(folder) => PathBuf::from(folder),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/vocabs"),
    };
    let vocabs = vocabs_in(&folder);
    match vocabs.is_empty() {
        true => Err(format!(
            "no ggml-vocab-*.gguf in {}; run scripts/fetch-vocabs.sh, or set RUSTORCH_VOCABS",
            folder.display()
        )),
        false => Ok(vocabs),
    }
}

fn all_pairs_pass(vocabs: &Vec<PathBuf>) {
    let mut pairs = 0;
    for vocab in vocabs {
        let name = vocab.file_name().unwrap().to_string_lossy().into_owned();
        let gguf = Gguf::open(vocab).unwrap_or_else(|error| panic!("{error}"));
        let metadata = &gguf.metadata;
        let model = metadata.str("tokenizer.ggml.model").unwrap();
        match Tokenizer::from_gguf(metadata) {
            Ok(tokenizer) => match texts_and_ids(vocab) {
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
        "there are vocabularies but no texts; fetch them again"
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
