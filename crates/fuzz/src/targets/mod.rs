//! The list of targets.

mod graph;
mod machine;
mod models;
mod onnx;
mod samples;
mod tensors;
mod texts;
mod training;

use std::path::{Path, PathBuf};

use crate::Target;

const fn target(
    name: &'static str,
    rounds: usize,
    seeds: fn() -> Vec<Vec<u8>>,
    read: fn(&[u8]) -> Result<(), String>,
) -> Target {
    Target {
        name,
        seeds,
        read,
        rounds,
    }
}

/// All benchmarks. Caches with a checksum of all their contents are not among them: damage is found
/// there before anything is read. Examples are GPUs' compiled kernels and Core ML's programs.
pub const TARGETS: &[Target] = &[
    target("gguf", 20_000, models::files, models::file),
    target("model", 1000, models::models, models::model),
    target("architecture", 1000, models::heads, models::head),
    target("tokenizer", 2000, models::vocabularies, models::vocabulary),
    target("adapter", 10_000, models::adapters, models::adapter),
    target("session", 1000, models::sessions, models::session),
    target("safetensors", 20_000, tensors::safetensors, |bytes| {
        tensors::read(bytes, rustorch_files::Format::Safetensors)
    }),
    target("npy", 20_000, tensors::npy, |bytes| {
        tensors::read(bytes, rustorch_files::Format::Npy)
    }),
    target("npz", 20_000, tensors::npz, |bytes| {
        tensors::read(bytes, rustorch_files::Format::Npz)
    }),
    target("pytorch", 20_000, tensors::pytorch, |bytes| {
        tensors::read(bytes, rustorch_files::Format::PyTorch)
    }),
    target("tensors-gguf", 20_000, tensors::gguf, |bytes| {
        tensors::read(bytes, rustorch_files::Format::Gguf)
    }),
    target("raw", 20_000, tensors::raws, tensors::raw),
    target("onnx", 2000, onnx::models, onnx::model),
    target(
        "checkpoint",
        300,
        training::checkpoints,
        training::checkpoint,
    ),
    target(
        "chat-jsonl",
        5000,
        training::conversations,
        training::conversation,
    ),
    target("hf-config", 500, training::configs, training::config),
    target("hf-weights", 200, training::weights, training::weight),
    target(
        "hf-tokenizer",
        500,
        training::tokenizers,
        training::tokenizer,
    ),
    #[cfg(feature = "csv")]
    target("csv", 5000, samples::csvs, samples::csv),
    target("idx", 20_000, samples::idxs, samples::idx),
    target("cifar", 2000, samples::cifars, samples::cifar),
    #[cfg(feature = "image")]
    target("image", 2000, samples::images, samples::image),
    #[cfg(feature = "parquet")]
    target("parquet", 2000, samples::parquets, samples::parquet),
    target("gbnf", 2000, texts::gbnfs, texts::gbnf),
    target("regex", 2000, texts::regexes, texts::regex),
    target("json-schema", 1500, texts::schemas, texts::schema),
    target("lark", 500, texts::larks, texts::lark),
    target("template", 600, texts::templates, texts::template),
    target("messages", 500, texts::conversations, texts::conversation),
    target("answer", 10_000, texts::answers, texts::answer),
    target(
        "calibration",
        3000,
        machine::calibrations,
        machine::calibration,
    ),
    #[cfg(not(target_vendor = "apple"))]
    target("kernel-pack", 3000, machine::packs, machine::pack),
    target("graph", 50_000, graph::lists, graph::nodes),
];

/// Something in the repository.
fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path)
}

/// The files in a folder of the repository whose names end so.
fn all_in(folder: &str, ending: &str) -> Vec<Vec<u8>> {
    let entries = std::fs::read_dir(repository(folder)).expect("the folder is in the repository");
    let mut paths: Vec<PathBuf> = entries
        .map(|entry| entry.expect("the folder can be read").path())
        .filter(|path| path.to_string_lossy().ends_with(ending))
        .collect();
    paths.sort();
    let read = |path| std::fs::read(path).expect("the file can be read");
    paths.into_iter().map(read).collect()
}
