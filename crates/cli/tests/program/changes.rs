//! Options that change a model: llama.cpp's logits with the same options, and options that make no sense.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::support::{Run, program, run};

/// The files that `scripts/change-goldens.py` made.
fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/changes")
}

/// A tiny model.
fn tiny(name: &str) -> String {
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../llm/tests/data/architectures");
    models.join(format!("{name}.gguf")).display().to_string()
}

/// The program in the folder of the files.
fn changed(args: &[&str], options: &str) -> Run {
    let mut command = program(args);
    command.args(options.split_whitespace());
    command.current_dir(data()).output().unwrap().into()
}

fn logits(model: &str, options: &str) -> Vec<f64> {
    let ids: Vec<String> = (0..24).map(|i| ((i * 7 + 3) % 40).to_string()).collect();
    let args = ["logits", "-b", "cpu", "-ctk", "f32", "-ctv", "f32"];
    let model = ["-m", &tiny(model), "--ids", &ids.join(",")];
    let found = changed(&[&args[..], &model].concat(), options).json();
    let row = |position: usize| found["logits"][position].as_array().unwrap().clone();
    let rows = [11, 23].map(row).concat();
    rows.iter().map(|logit| logit.as_f64().unwrap()).collect()
}

/// The square of what differs, of the square of what is expected.
fn nmse(found: &[f64], expected: &[f64]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let pairs = found.iter().zip(expected);
    let error: f64 = pairs.map(|(a, b)| (a - b).powi(2)).sum();
    error / expected.iter().map(|b| b * b).sum::<f64>()
}

pub(crate) fn options_mean_what_they_mean_in_llama_cpp() {
    let text = std::fs::read_to_string(data().join("goldens.json")).unwrap();
    let goldens: Vec<Value> = serde_json::from_str(&text).unwrap();
    assert_eq!(goldens.len(), 36);
    for golden in goldens {
        let [model, options] = ["model", "options"].map(|key| golden[key].as_str().unwrap());
        let expected = golden["logits"].as_array().unwrap().iter();
        let expected: Vec<f64> = expected.map(|logit| logit.as_f64().unwrap()).collect();
        let error = nmse(&logits(model, options), &expected);
        assert!(error < 1e-9, "{model} {options}: NMSE {error:e}");
    }
}

pub(crate) fn of_two_scales_the_later_counts() {
    let plain = logits("llama", "");
    let scaled = logits("llama", "--rope-freq-scale 0.25");
    assert!(scaled != plain);
    assert!(logits("llama", "--rope-freq-scale 3 --rope-scale 4") == scaled);
    assert!(logits("llama", "--rope-scale 3 --rope-freq-scale 0.25") == scaled);
    // These values stand for the model's own.
    let own = "--rope-freq-base 0 --rope-freq-scale 0 --yarn-orig-ctx 0 --yarn-ext-factor -1 \
               --yarn-attn-factor -1 --yarn-beta-slow -1 --yarn-beta-fast -1";
    assert!(logits("llama", own) == plain);
}

/// Wherever a model is opened, the same options change it.
pub(crate) fn every_command_takes_them() {
    let tiny = tiny("llama");
    let bench = [
        "bench", "-m", &tiny, "-b", "cpu", "-r", "1", "-p", "4", "-n", "0",
    ];
    let options = "--lora all.gguf --rope-scaling yarn --rope-scale 2 --control-vector vector.gguf";
    changed(&bench, options).ok();

    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("text.txt");
    std::fs::write(&text, "Once upon a time there was a king. ".repeat(20)).unwrap();
    let text = text.display().to_string();
    let base = "--rope-freq-base 100";
    let perplexity = ["perplexity", "-b", "cpu", "-f", &text, "-c", "64"];
    let generate = [
        "-b",
        "cpu",
        "-p",
        "Once upon a time",
        "-n",
        "12",
        "--temp",
        "0",
    ];
    let talk = [
        "chat", "-b", "cpu", "-p", "Once", "-st", "-n", "12", "--temp", "0",
    ];
    let chatml = ["--chat-template", "chatml"];
    for args in [&perplexity[..], &generate, &[&talk[..], &chatml].concat()] {
        let plain = changed(args, "").ok();
        assert_ne!(changed(args, base).ok(), plain, "{args:?}");
        assert_eq!(changed(args, "").ok(), plain, "{args:?}");
    }
    let tokens = ["tokenize", "-p", "Once"];
    let without = "--override-kv tokenizer.ggml.add_bos_token=bool:false";
    let [with, without] = ["", without].map(|options| changed(&tokens, options).ok());
    assert_ne!(with, without);
}

/// A model does not continue from another model's cache.
pub(crate) fn a_prompt_is_kept_with_what_changed_the_model() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("cache.gguf").display().to_string();
    let args = [
        "-b",
        "cpu",
        "-p",
        "Once upon a time",
        "-n",
        "4",
        "--prompt-cache",
        &cache,
    ];
    let options = "--rope-scaling linear --rope-scale 2";
    changed(&args, options).ok();
    changed(&args, "--rope-freq-scale 0.5").ok();
    let told = changed(&args, "").error(1);
    assert!(
        told.contains(&cache) && told.contains("another model"),
        "{told}"
    );
}

pub(crate) fn adapters_are_told_from_models() {
    let inspect = |file: &str, options| changed(&["inspect", file], options);
    let text = inspect("all.gguf", "").ok();
    assert!(
        text.contains("a LoRA adapter, for use with --lora"),
        "{text}"
    );
    assert_eq!(
        inspect("all.gguf", "--format json").json()["used_with"],
        "--lora"
    );
    let vector = inspect("vector.gguf", "--format json").json();
    assert_eq!(vector["used_with"], "--control-vector");
    assert_eq!(
        run(["inspect", "--format", "json"]).json()["used_with"],
        "-m"
    );
    for (file, option) in [("all.gguf", "--lora"), ("vector.gguf", "--control-vector")] {
        let told = changed(&["-p", "x", "-m", file], "").error(1);
        assert!(told.contains(file) && told.contains(option), "{told}");
    }
}

pub(crate) fn what_does_not_fit_is_told() {
    let model = tiny("llama");
    let logits = ["logits", "-b", "cpu", "--ids", "1", "-m", &model];
    let key = "--override-kv llama";
    for (options, status, parts) in [
        (
            "--lora nowhere.gguf",
            1,
            &["nowhere.gguf", "cannot open"][..],
        ),
        (
            "--lora qwen2.gguf",
            1,
            &["qwen2.gguf: an adapter for qwen2, but the model is llama"],
        ),
        (
            "--lora vector.gguf",
            1,
            &["vector.gguf: not an adapter", "--control-vector"],
        ),
        ("--control-vector all.gguf", 1, &["all.gguf", "--lora"]),
        ("--lora-scaled all.gguf", 2, &["expected FILE:SCALE"]),
        ("--lora all.gguf,", 2, &["expected a file name"]),
        (
            "--control-vector vector.gguf --control-vector-layer-range 2 5",
            1,
            &["has 1 to 1"],
        ),
        ("--rope-scaling ntk", 2, &["ntk", "none, linear, yarn"]),
        ("--rope-scale 0", 2, &["0", "above 0"]),
        (
            "--rope-freq-base -5",
            2,
            &["--rope-freq-base", "at least 0"],
        ),
        ("--yarn-ext-factor nan", 2, &["nan", "expected a number"]),
        (&format!("{key}.x"), 2, &["expected KEY=TYPE:VALUE"]),
        (
            &format!("{key}.rope.freq_base=int:3"),
            2,
            &["--override-kv llama.rope.freq_base", "f32"],
        ),
        (
            &format!("{key}.block_count=float:3"),
            2,
            &["llama.block_count", "not f64 3"],
        ),
        (
            &format!("{key}.block_count=int:-3"),
            2,
            &["llama.block_count", "-3"],
        ),
        (
            &format!("{key}.x=int:3,llama.x=int:4"),
            2,
            &["llama.x: given twice"],
        ),
        (
            &format!("{key}.embedding_length=int:64"),
            1,
            &["expected shape"],
        ),
    ] {
        let told = changed(&logits, options).error(status);
        assert!(
            parts.iter().all(|part| told.contains(part)),
            "{options}: {told}"
        );
    }
    // A key that nobody reads.
    changed(&logits, &format!("{key}.x=int:3")).ok();
    let told = changed(&["bench", "--preset", "classics-13m"], "--lora all.gguf").error(2);
    assert!(
        told.contains("--lora") && told.contains("--preset"),
        "{told}"
    );
    let bos = "--override-kv tokenizer.ggml.add_bos_token=int:1";
    let told = changed(&["tokenize", "-p", "x"], bos).error(2);
    assert!(told.contains("the model expects bool, not i64 1"), "{told}");
}
