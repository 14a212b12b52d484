//! llama.cpp's own test vocabularies, which `scripts/fetch-vocabs.sh` fetches.
//!
//! Each is a file `ggml-vocab-NAME.gguf`; most have texts in `….gguf.inp`, and their ids in
//! `….gguf.out`, a line for each. Ids are without BOS, and special tokens were not parsed. They are
//! looked for in `target/vocabs`, or where `RUSTORCH_VOCABS` says.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use rustorch_gguf::Gguf;
use rustorch_testing::{Suite, tests};
use rustorch_tokenizer::{EncodeOptions, Tokenizer};

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
        let tokenizer =
            Tokenizer::from_gguf(metadata).unwrap_or_else(|error| panic!("{name}: {error}"));
        match texts_and_ids(vocab) {
            Some(pair) => {
                check(&tokenizer, &name, &pair);
                pairs += 1;
                println!("{name}: {} texts as expected", pair.len());
            }
            None => println!("{name}: loaded; there are no texts for it"),
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
    let mut lines = lines.split('\n');
    let ids: Vec<_> = lines
        .by_ref()
        .take(texts.len())
        .map(|line| {
            line.split_whitespace()
                .map(|id| id.parse().unwrap())
                .collect()
        })
        .collect();
    // The last line may have an end.
    let is_complete = texts.len() == ids.len() && lines.all(str::is_empty);
    assert!(is_complete, "{}", vocab.display());
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
