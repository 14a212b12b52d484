//! Tiny random models of each architecture against llama.cpp's logits.
//! `data/architectures/generate.py` tells how both were made.

use std::path::{Path, PathBuf};

use rustorch_gguf::Gguf;
use rustorch_ir::{BlockFormat, DType};
use rustorch_llm::{LlmError, Model, Session, SessionOptions};
use rustorch_tensor::runtime;

/// The positions whose logits are in the text files.
const POSITIONS: [usize; 3] = [0, 11, 23];

fn data(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/architectures");
    folder.join(name)
}

fn expected(name: &str) -> Vec<f32> {
    let text = std::fs::read_to_string(data(&format!("{name}.txt"))).unwrap();
    text.split_whitespace()
        .map(|x| x.parse().unwrap())
        .collect()
}

/// Logits at [`POSITIONS`], with the tokens fed in batches of this size.
fn logits(name: &str, batch: usize) -> Vec<f32> {
    let model = Model::load(Gguf::open(data(&format!("{name}.gguf"))).unwrap()).unwrap();
    let options = SessionOptions {
        batch,
        cache_dtype: DType::F32,
        ..SessionOptions::default()
    };
    let mut session = Session::new(&model, &runtime(), options).unwrap();
    let tokens: Vec<u32> = (0..24).map(|i| (i * 7 + 3) % 40).collect();
    let mut found = Vec::new();
    let each = |positions: std::ops::Range<usize>, rows: &[f32]| {
        for (position, row) in positions.zip(rows.chunks_exact(model.spec().vocab)) {
            if POSITIONS.contains(&position) {
                found.extend_from_slice(row);
            }
        }
        Ok::<_, LlmError>(())
    };
    session.feed_all(&tokens, each).unwrap();
    found
}

fn check(name: &str) {
    let expected = expected(name);
    for batch in [24, 5, 1] {
        let found = logits(name, batch);
        assert_eq!(found.len(), expected.len());
        let square = |x: f64| x * x;
        let error: f64 = (found.iter().zip(&expected))
            .map(|(&a, &b)| square(f64::from(a) - f64::from(b)))
            .sum();
        let power: f64 = expected.iter().map(|&x| square(x.into())).sum();
        let nmse = error / power;
        assert!(nmse < 1e-9, "{name} in batches of {batch}: NMSE {nmse:e}");
    }
}

#[test]
fn a_cache_of_blocks_is_for_heads_of_whole_blocks() {
    let model = Model::load(Gguf::open(data("llama.gguf")).unwrap()).unwrap();
    let options = SessionOptions {
        cache_dtype: DType::Block(BlockFormat::Q8_0),
        ..SessionOptions::default()
    };
    let refused = Session::new(&model, &runtime(), options).err().unwrap();
    let expected = "a cache of Q8_0: heads of 8 are not whole blocks of 32";
    assert_eq!(refused.to_string(), expected);
}

#[test]
fn llama() {
    check("llama");
}

#[test]
fn llama_with_a_tied_head() {
    check("llama-tied");
}

#[test]
fn llama_with_linear_scaling() {
    check("llama-linear");
}

#[test]
fn llama_with_yarn() {
    check("llama-yarn");
}

#[test]
fn llama_3_with_frequency_factors() {
    check("llama3");
}

#[test]
fn qwen2_with_biases() {
    check("qwen2");
}

#[test]
fn qwen3_with_norms_and_wide_heads() {
    check("qwen3");
}

#[test]
fn gpt_oss_with_experts_of_mxfp4() {
    check("gpt-oss-mxfp4");
}
