//! Models of Hugging Face's `transformers`: tokens and logits are what it computes (`scripts/hugging-face-goldens.py`).

use std::fs;
use std::path::{Path, PathBuf};

use rustorch_llm::{Model, hugging_face};
use rustorch_runtime::{Routing, Runtime};
use rustorch_tensor::{Tensor, host, with_runtime};
use rustorch_tokenizer::EncodeOptions;
use rustorch_train::Decoder;
use serde_json::Value;

fn goldens(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/goldens")
        .join(name)
}

#[test]
fn tokens_and_logits_are_those_of_transformers() {
    for name in ["llama", "qwen2"] {
        let folder = goldens(name);
        let expected = fs::read_to_string(folder.join("expected.json")).unwrap();
        let expected: Value = serde_json::from_str(&expected).unwrap();
        let model = Model::load(hugging_face::open(&folder).unwrap()).unwrap();
        let tokenizer = model.tokenizer().unwrap();
        let text = expected["text"].as_str().unwrap();
        let ids = tokenizer.encode(text, EncodeOptions::default());
        let wanted: Vec<u32> = serde_json::from_value(expected["ids"].clone()).unwrap();
        assert_eq!(ids, wanted, "{name}");
        assert_eq!([tokenizer.bos(), tokenizer.eos()], [Some(300), Some(301)]);
        let logits = with_runtime(&Runtime::new(host(1)), Routing::AUTO, || {
            let decoder = Decoder::load(&model).unwrap();
            let ids: Vec<i32> = ids.iter().map(|&id| id as i32).collect();
            let tokens = Tensor::from_vec(ids.clone(), [1, ids.len()]).unwrap();
            let logits = decoder.forward(&tokens).unwrap();
            let last = logits.select(0, 0).unwrap().select(0, -1).unwrap();
            last.to_vec::<f32>().unwrap()
        });
        let wanted: Vec<f32> = serde_json::from_value(expected["logits"].clone()).unwrap();
        assert_eq!(logits.len(), wanted.len());
        let off = logits.iter().zip(&wanted).map(|(a, b)| (a - b).abs());
        let largest = off.fold(0.0, f32::max);
        assert!(largest < 1e-3, "{name}: {largest}");
    }
}

#[test]
fn what_is_not_read_is_told_in_a_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let refused = |told: &str| {
        let loaded = hugging_face::open(folder.path()).and_then(Model::load);
        let error = loaded.err().unwrap().to_string();
        assert!(
            error.contains(told) && !error.contains('\n'),
            "{told:?} in: {error}"
        );
    };
    refused("config.json");
    for name in [
        "config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "model.safetensors",
    ] {
        fs::copy(goldens("llama").join(name), path(name)).unwrap();
    }
    let change = |name: &str, from: &str, to: &str| {
        let text = fs::read_to_string(goldens("llama").join(name)).unwrap();
        assert!(text.contains(from), "{name}");
        fs::write(path(name), text.replace(from, to)).unwrap();
    };
    change(
        "config.json",
        "\"model_type\": \"llama\"",
        "\"model_type\": \"mamba\"",
    );
    refused("\"mamba\" is not supported");
    change(
        "config.json",
        "\"rope_type\": \"default\"",
        "\"rope_type\": \"ntk\"",
    );
    refused("rope_scaling: \"ntk\"");
    change(
        "config.json",
        "\"num_attention_heads\": 4",
        "\"num_attention_heads\": 5",
    );
    refused("32 rows are not a multiple of 10");
    change("config.json", "\"vocab_size\": 304", "\"vocab_size\": 200");
    refused("vocab_size: expected 304");
    change(
        "config.json",
        "\"num_hidden_layers\": 2",
        "\"num_hidden_layers\": 3",
    );
    refused("blk.2.attn_norm.weight");
    change("config.json", "{", "{{");
    refused("config.json");
    change("config.json", "{", "{");
    change("tokenizer.json", "\"BPE\"", "\"Unigram\"");
    refused("is not supported");
    change("tokenizer.json", "ByteLevel", "Metaspace");
    refused("is not supported");
    fs::remove_file(path("tokenizer.json")).unwrap();
    refused("tokenizer.json");
    fs::copy(
        goldens("llama").join("tokenizer.json"),
        path("tokenizer.json"),
    )
    .unwrap();
    assert!(hugging_face::open(folder.path()).is_ok());
    fs::write(path("model.safetensors"), "none").unwrap();
    refused("model.safetensors");
    fs::remove_file(path("model.safetensors")).unwrap();
    let index = r#"{"weight_map": {"lm_head.weight": "../model.safetensors"}}"#;
    fs::write(path("model.safetensors.index.json"), index).unwrap();
    refused("is not a file of the folder");
}
