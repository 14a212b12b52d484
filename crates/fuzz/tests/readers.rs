//! Every reader takes damaged input or refuses it with a line. Inputs that once led to something else are in the
//! folder `found`, by targets.

use std::fs;
use std::path::Path;

use rustorch_fuzz::{TARGETS, Target};
use rustorch_testing::memory::Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Tries inputs that were found, sound ones, and damaged ones.
fn stands(name: &str) {
    let target = Target::named(name).unwrap();
    let found = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("found")
        .join(name);
    for entry in fs::read_dir(found).into_iter().flatten() {
        let input = fs::read(entry.unwrap().path()).unwrap();
        // Taken or refused: it does not panic.
        let _ = target.try_input(&input);
    }
    target.stand();
}

macro_rules! readers {
    ($($test:ident $name:literal),+ $(,)?) => {
        $(
            #[test]
            fn $test() {
                stands($name);
            }
        )+

        #[test]
        fn all_are_tried() {
            let tried = [$($name),+];
            let apart = ["kernel-pack", "csv", "image", "parquet"];
            assert!(TARGETS.iter().all(|target| tried.contains(&target.name) || apart.contains(&target.name)));
        }
    };
}

readers! {
    gguf "gguf",
    model "model",
    architecture "architecture",
    adapter "adapter",
    session "session",
    tokenizer "tokenizer",
    safetensors "safetensors",
    npy "npy",
    npz "npz",
    pytorch "pytorch",
    tensors_gguf "tensors-gguf",
    raw "raw",
    onnx "onnx",
    checkpoint "checkpoint",
    chat_jsonl "chat-jsonl",
    hf_config "hf-config",
    hf_weights "hf-weights",
    hf_tokenizer "hf-tokenizer",
    idx "idx",
    cifar "cifar",
    gbnf "gbnf",
    regex "regex",
    json_schema "json-schema",
    lark "lark",
    template "template",
    messages "messages",
    answer "answer",
    calibration "calibration",
    graph "graph",
}

#[cfg(not(target_vendor = "apple"))]
#[test]
fn kernel_pack() {
    stands("kernel-pack");
}

#[cfg(feature = "csv")]
#[test]
fn csv() {
    stands("csv");
}

#[cfg(feature = "image")]
#[test]
fn image() {
    stands("image");
}

#[cfg(feature = "parquet")]
#[test]
fn parquet() {
    stands("parquet");
}
