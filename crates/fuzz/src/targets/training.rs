//! Files that training reads: checkpoints, conversations, and models of `transformers`.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use rustorch_chat::{ChatTemplate, ChatTemplates};
use rustorch_data::Dataset;
use rustorch_llm::{Model, hugging_face};
use rustorch_train::{
    Checkpoints, Conversations, Decoder, ModelSize, Precision, Samples, Training, TrainingSettings,
};
use serde_json::{Map, Value, json};
use tempfile::TempDir;

use super::repository;
use super::tensors::on_cpu;

/// Tokens of a sample.
const CONTEXT: usize = 16;

const FILES: [&str; 4] = [
    "config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
];

/// The folder of a small model as `transformers` saves it.
fn small() -> PathBuf {
    repository("crates/train/tests/goldens/llama")
}

/// Training reads files, so the bytes become one.
fn with_file<T>(name: &str, bytes: &[u8], read: impl FnOnce(&Path) -> T) -> T {
    let folder = TempDir::new().expect("a folder");
    fs::write(folder.path().join(name), bytes).expect("the file can be written");
    read(folder.path())
}

fn line(error: impl ToString) -> String {
    error.to_string()
}

/// One file of a folder of a model, as it is.
fn part(name: &str) -> Vec<Vec<u8>> {
    let folders = ["llama", "qwen2"].map(|name| small().with_file_name(name));
    (folders.iter())
        .map(|folder| fs::read(folder.join(name)).expect("the file can be read"))
        .collect()
}

/// The model of a folder whose other files are sound. A model that was taken has a vocabulary, and loads.
fn model(name: &str, bytes: &[u8]) -> Result<(), String> {
    with_file(name, bytes, |folder| {
        for other in FILES.iter().filter(|&&other| other != name) {
            fs::copy(small().join(other), folder.join(other)).expect("the file can be copied");
        }
        on_cpu(|| {
            let model = Model::load(hugging_face::open(folder).map_err(line)?).map_err(line)?;
            model.tokenizer().map_err(line)?;
            Decoder::load(&model).map_err(line).map(drop)
        })
    })
}

pub(super) fn configs() -> Vec<Vec<u8>> {
    part(FILES[0])
}

pub(super) fn config(bytes: &[u8]) -> Result<(), String> {
    model(FILES[0], bytes)
}

pub(super) fn weights() -> Vec<Vec<u8>> {
    part(FILES[1])
}

pub(super) fn weight(bytes: &[u8]) -> Result<(), String> {
    model(FILES[1], bytes)
}

pub(super) fn tokenizers() -> Vec<Vec<u8>> {
    part(FILES[2])
}

pub(super) fn tokenizer(bytes: &[u8]) -> Result<(), String> {
    model(FILES[2], bytes)
}

static MODEL: LazyLock<Model> = LazyLock::new(|| {
    let file = on_cpu(|| hugging_face::open(&small()).map_err(line)).expect("a sound model");
    Model::load(file).expect("a sound model")
});

fn template() -> ChatTemplates {
    let source = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}";
    ChatTemplates::of(ChatTemplate::new(source, "model", Map::new()).expect("a sound template"))
}

pub(super) fn conversations() -> Vec<Vec<u8>> {
    let said = |role: &str, content: Value| json!({"role": role, "content": content});
    let lines = [
        json!({"messages": [said("user", "Hi".into()), said("assistant", "Ho".into())]}),
        json!({"messages": [said("system", "Be brief.".into()), said("user", json!([{"type": "text", "text": "a"}])),
            said("assistant", "b".into()), said("user", "c".into()), said("assistant", "é".into())]}),
        json!({"messages": [said("assistant", "".into()), said("assistant", "x".into())]}),
    ];
    let all = lines
        .iter()
        .map(|line| format!("{line}\n"))
        .collect::<String>();
    let mut seeds: Vec<Vec<u8>> = lines
        .iter()
        .map(|line| line.to_string().into_bytes())
        .collect();
    seeds.push(all.into_bytes());
    seeds
}

/// Accepted samples have the context's size.
pub(super) fn conversation(bytes: &[u8]) -> Result<(), String> {
    with_file("chat.jsonl", bytes, |folder| {
        let tokenizer = MODEL.tokenizer().map_err(line)?;
        let path = folder.join("chat.jsonl");
        // The template's lines are longer than a sample of a run needs.
        let context = 16 * CONTEXT;
        let read = Conversations::read(&path, &template(), tokenizer, context).map_err(line)?;
        for part in read.split_last() {
            for index in 0..part.len() {
                let sample = part.get(index).map_err(line)?;
                assert_eq!(sample[0].shape(), [context]);
                assert_eq!(sample[1].shape(), [context]);
            }
        }
        Ok(())
    })
}

/// A run of the smallest model, at its beginning.
fn run() -> Result<Training, String> {
    let size = ModelSize {
        vocab: 512,
        layers: 1,
        width: 4,
        heads: 2,
        kv_heads: 1,
        ff: 4,
        context: CONTEXT,
    };
    let settings = TrainingSettings {
        context: CONTEXT,
        batch: 1,
        steps: 4,
        lr: 0.01,
        min_lr: 0.001,
        warmup: 1,
        weight_decay: 0.1,
        clip: 1.0,
        precision: Precision::F32,
        seed: 1,
        every: 2,
    };
    let text = r#"{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}"#;
    let samples = with_file("chat.jsonl", text.as_bytes(), |folder| {
        let tokenizer = MODEL.tokenizer().map_err(line)?;
        let path = folder.join("chat.jsonl");
        Conversations::read(&path, &template(), tokenizer, CONTEXT).map_err(line)
    })?;
    let samples: Samples = Arc::new(samples);
    let keys = size.metadata("llama", "fuzzed").map_err(line)?;
    let decoder = Decoder::new(&keys, 1).map_err(line)?;
    Training::new(settings, Value::Null, decoder, samples, None).map_err(line)
}

/// A checkpoint at the beginning, and one behind a step.
pub(super) fn checkpoints() -> Vec<Vec<u8>> {
    on_cpu(|| {
        let folder = TempDir::new().expect("a folder");
        let checkpoints = Checkpoints::new(folder.path()).expect("a folder");
        let mut training = run().expect("a run");
        training.save(&checkpoints).expect("a checkpoint");
        training.step().expect("a step");
        training.finish().expect("a step");
        training.save(&checkpoints).expect("a checkpoint");
        let list = checkpoints.list().expect("the folder can be read");
        let read = |(_, path): (u64, PathBuf)| fs::read(path).expect("the file can be read");
        list.into_iter().map(read).collect()
    })
}

/// A run goes on from the checkpoint, and writes another one.
pub(super) fn checkpoint(bytes: &[u8]) -> Result<(), String> {
    with_file("step-00000001.safetensors", bytes, |folder| {
        on_cpu(|| {
            let checkpoints = Checkpoints::new(folder).map_err(line)?;
            let batch = Training::saved_batch(&checkpoints).map_err(line)?;
            assert_ne!(batch, Some(0), "a batch of no samples");
            let mut training = run()?;
            let damaged = training.resume(&checkpoints).map_err(line)?;
            training.save(&checkpoints).map_err(line)?;
            match damaged.first() {
                Some(error) => Err(line(error)),
                None => Ok(()),
            }
        })
    })
}
