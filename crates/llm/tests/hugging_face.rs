//! Folders of `transformers`: logits are what it computes, of the folder and of the GGUF file made of it.
//! `scripts/hugging-face-families.py` made the models and their logits.

use std::fs;
use std::ops::{ControlFlow, Range};
use std::path::{Path, PathBuf};

use rustorch_files::{Tensors, safetensors};
use rustorch_gguf::{GgmlType, Gguf};
use rustorch_ir::DType;
use rustorch_llm::{LlmError, Model, Session, SessionOptions, hugging_face};
use rustorch_tensor::{Tensor, runtime};
use rustorch_tokenizer::EncodeOptions;
use serde_json::{Value, json};
use tempfile::TempDir;

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/hugging_face")
}

/// A copy of a model's folder.
fn copy(name: &str) -> TempDir {
    let folder = TempDir::new().unwrap();
    for file in data().join(name).read_dir().unwrap() {
        let path = file.unwrap().path();
        fs::copy(&path, folder.path().join(path.file_name().unwrap())).unwrap();
    }
    let words = "tokenizer.json";
    fs::copy(data().join(words), folder.path().join(words)).unwrap();
    folder
}

/// Logits of the last two tokens of a text.
fn logits(gguf: Gguf) -> Vec<f32> {
    let model = Model::load(gguf).unwrap();
    // Beyond the original context of LongRoPE's model, other factors would count.
    let options = SessionOptions {
        context: 16,
        cache_dtype: DType::F32,
        ..SessionOptions::default()
    };
    let mut session = Session::new(&model, &runtime(), options).unwrap();
    let tokens: Vec<u32> = (0..12).map(|i| (i * 7 + 3) % 37).collect();
    let mut found = Vec::new();
    let each = |_: Range<usize>, rows: &[f32]| {
        found.extend_from_slice(rows);
        Ok::<_, LlmError>(())
    };
    session.feed_all(&tokens, each).unwrap();
    found.split_off(found.len() - 2 * model.spec().vocab)
}

fn nmse(found: &[f32], expected: &[f32]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let square = |x: f64| x * x;
    let pairs = found.iter().zip(expected);
    let error: f64 = pairs
        .map(|(&a, &b)| square(f64::from(a) - f64::from(b)))
        .sum();
    error / expected.iter().map(|&x| square(x.into())).sum::<f64>()
}

fn convert(folder: &Path) -> Gguf {
    let path = folder.join("out.gguf");
    let go_on = |_, _| ControlFlow::Continue(());
    assert!(
        hugging_face::convert(folder, &path, go_on)
            .unwrap()
            .is_continue()
    );
    Gguf::open(path).unwrap()
}

#[test]
fn logits_are_those_of_transformers() {
    let mut problems = Vec::new();
    for entry in data().read_dir().unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if !data().join(&name).is_dir() {
            continue;
        }
        let folder = copy(&name);
        let expected = fs::read_to_string(data().join(&name).join("logits.txt")).unwrap();
        let expected: Vec<f32> = expected
            .split_whitespace()
            .map(|x| x.parse().unwrap())
            .collect();
        let found = logits(hugging_face::open(folder.path()).unwrap());
        let error = nmse(&found, &expected);
        if error.is_nan() || error >= 1e-9 {
            problems.push(format!("{name}: NMSE {error:e}"));
        }
        assert_eq!(logits(convert(folder.path())), found, "{name}");
    }
    assert!(problems.is_empty(), "{problems:#?}");
}

#[test]
fn a_file_has_the_folders_tensors_and_keys() {
    let folder = copy("llama");
    let (open, file) = (
        hugging_face::open(folder.path()).unwrap(),
        convert(folder.path()),
    );
    assert_eq!(open.tensors().len(), file.tensors().len());
    for tensor in open.tensors() {
        let other = file.tensor(&tensor.name).unwrap();
        assert_eq!(
            (&tensor.dims, tensor.ty),
            (&other.dims, other.ty),
            "{}",
            tensor.name
        );
        assert_eq!(open.data(tensor), file.data(other), "{}", tensor.name);
    }
    let sorted = |gguf: &Gguf| {
        let mut keys: Vec<String> = gguf
            .metadata
            .iter()
            .map(|(k, v)| format!("{k} {v:?}"))
            .collect();
        keys.sort();
        keys
    };
    assert_eq!(sorted(&open), sorted(&file));
    assert_eq!(
        file.tensor("blk.0.attn_norm.weight").unwrap().ty,
        GgmlType::F32
    );
    assert_eq!(
        file.tensor("blk.0.attn_q.weight").unwrap().ty,
        GgmlType::BF16
    );
    assert_eq!(file.metadata.u32("general.file_type").unwrap(), 32);
}

#[test]
fn several_files_are_one_model() {
    let folder = copy("llama");
    let whole = folder.path().join("model.safetensors");
    let expected = logits(hugging_face::open(folder.path()).unwrap());
    let tensors = safetensors::load(&whole).unwrap();
    let mut parts = [Tensors::new(), Tensors::new()];
    let mut map = serde_json::Map::new();
    for (i, (name, tensor)) in tensors.iter().enumerate() {
        parts[i % 2].insert(name, tensor.clone());
        map.insert(
            name.to_owned(),
            json!(format!("model-{}.safetensors", i % 2)),
        );
    }
    for (i, part) in parts.iter().enumerate() {
        safetensors::save(folder.path().join(format!("model-{i}.safetensors")), part).unwrap();
    }
    drop(tensors);
    fs::remove_file(whole).unwrap();
    let index = folder.path().join("model.safetensors.index.json");
    fs::write(&index, json!({"weight_map": map}).to_string()).unwrap();
    assert_eq!(logits(hugging_face::open(folder.path()).unwrap()), expected);
    fs::write(
        &index,
        json!({"weight_map": {"a": "../b.safetensors"}}).to_string(),
    )
    .unwrap();
    let error = hugging_face::open(folder.path()).unwrap_err().to_string();
    assert!(error.contains("is not a file of the folder"), "{error}");
}

#[test]
fn blocks_of_four_bits_change_their_order() {
    let folder = copy("gpt_oss");
    let path = folder.path().join("model.safetensors");
    let old = safetensors::load(&path).unwrap();
    let is_kept = |name: &&str| !name.ends_with("gate_up_proj");
    let mut tensors = Tensors::new();
    for name in old.names().filter(is_kept) {
        tensors.insert(name, old.get(name).unwrap().clone());
    }
    let bytes: Vec<u8> = (0..4 * 6 * 16).map(|i| (i * 37 % 251) as u8).collect();
    let scales: Vec<u8> = (0..4 * 6).map(|i| 100 + i as u8).collect();
    let of = |name: &str| format!("model.layers.0.mlp.experts.gate_up_proj_{name}");
    tensors.insert(
        of("blocks"),
        Tensor::from_slice(&bytes, [4, 6, 1, 16]).unwrap(),
    );
    tensors.insert(
        of("scales"),
        Tensor::from_slice(&scales, [4, 6, 1]).unwrap(),
    );
    let tensors = {
        let changed = folder.path().join("changed.safetensors");
        safetensors::save(&changed, &tensors).unwrap();
        drop((tensors, old));
        fs::rename(changed, &path).unwrap();
        hugging_face::open(folder.path()).unwrap()
    };
    for (name, first) in [("ffn_gate_exps", 0), ("ffn_up_exps", 1)] {
        let info = tensors.tensor(&format!("blk.0.{name}.weight")).unwrap();
        assert_eq!((info.ty, info.shape()), (GgmlType::Mxfp4, vec![4, 3, 32]));
        for (i, block) in tensors.data(info).chunks_exact(17).enumerate() {
            let row = i / 3 * 6 + i % 3 * 2 + first;
            assert_eq!(block[0], scales[row]);
            for element in 0..32 {
                let there = bytes[row * 16 + element / 2] >> (element % 2 * 4) & 15;
                let here = block[1 + element % 16] >> (element / 16 * 4) & 15;
                assert_eq!(here, there, "{name}, block {i}, element {element}");
            }
        }
    }
}

/// A change of a JSON file.
fn change(folder: &TempDir, name: &str, change: impl Fn(&mut Value)) {
    let path = folder.path().join(name);
    let mut value: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    change(&mut value);
    fs::write(path, value.to_string()).unwrap();
}

/// The one line that a folder is refused with.
fn refusal(folder: &TempDir) -> String {
    let opened = hugging_face::open(folder.path()).and_then(|gguf| Model::load(gguf).map(drop));
    let error = opened.unwrap_err().to_string();
    assert!(!error.contains('\n'), "{error}");
    let output = folder.path().join("out.gguf");
    let go_on = |_, _| ControlFlow::Continue(());
    assert!(
        hugging_face::convert(folder.path(), &output, go_on).is_err(),
        "{error}"
    );
    assert!(!output.exists());
    error
}

#[test]
fn bad_keys_are_refused_with_their_name() {
    let cases: [(&str, &str, Value, &str); 17] = [
        (
            "llama",
            "model_type",
            json!("mamba"),
            "config.json: model_type: \"mamba\" is not supported; afmoe,",
        ),
        ("llama", "model_type", json!(null), "model_type: missing"),
        ("llama", "hidden_size", json!(null), "hidden_size: missing"),
        (
            "llama",
            "hidden_size",
            json!("a"),
            "hidden_size: expected 0 to 268435456, got \"a\"",
        ),
        (
            "llama",
            "num_attention_heads",
            json!(0),
            "num_attention_heads: expected more than 0, got 0",
        ),
        (
            "llama",
            "num_key_value_heads",
            json!(3),
            "self_attn.k_proj.weight: 8 rows are not a multiple of 6",
        ),
        (
            "llama",
            "num_hidden_layers",
            json!(1_000_000),
            "num_hidden_layers: 1000000 layers are more than 4096",
        ),
        (
            "llama",
            "num_hidden_layers",
            json!(3),
            "blk.2.attn_norm.weight: missing",
        ),
        (
            "llama",
            "head_dim",
            json!(4),
            "attn_q.weight: expected shape [8, 16], got [16, 16]",
        ),
        (
            "llama",
            "hidden_act",
            json!("relu"),
            "hidden_act: expected \"silu\" or \"swish\" for llama, got \"relu\"",
        ),
        (
            "llama",
            "quantization_config",
            json!({"quant_method": "awq"}),
            "quantization_config: \"awq\" is not supported",
        ),
        (
            "llama",
            "rope_parameters",
            json!({"rope_type": "ntk"}),
            "rope_scaling: \"ntk\" is not supported",
        ),
        (
            "llama",
            "rope_parameters",
            json!({"rope_type": "linear"}),
            "expected a number above 0 for factor",
        ),
        (
            "phi3-long",
            "partial_rotary_factor",
            json!(7),
            "partial_rotary_factor: expected 0 to 1, got 7",
        ),
        ("mixtral", "num_local_experts", json!(5), "4 experts, of 5"),
        (
            "gemma2",
            "query_pre_attn_scalar",
            json!(99),
            "query_pre_attn_scalar: expected 16, got 99",
        ),
        (
            "qwen3_moe",
            "norm_topk_prob",
            json!(false),
            "norm_topk_prob: expected true for qwen3moe, got false",
        ),
    ];
    for (name, key, value, expected) in cases {
        let folder = copy(name);
        change(&folder, "config.json", |config| {
            if key == "partial_rotary_factor" {
                config["rope_parameters"][key] = value.clone();
            }
            config[key] = value.clone();
        });
        let error = refusal(&folder);
        assert!(error.contains(expected), "{name} {key}: {error}");
    }
}

#[test]
fn bad_files_are_refused_with_their_name() {
    let write = |name: &'static str, text: &'static str| {
        move |folder: &TempDir| fs::write(folder.path().join(name), text).unwrap()
    };
    let remove = |name: &'static str| {
        move |folder: &TempDir| fs::remove_file(folder.path().join(name)).unwrap()
    };
    let edit = |pointer: &'static str, value: Value| {
        move |folder: &TempDir| {
            change(folder, "tokenizer.json", |file| {
                *file.pointer_mut(pointer).unwrap() = value.clone();
            });
        }
    };
    let with = |name: &'static str, tensor: fn() -> Tensor| {
        move |folder: &TempDir| {
            let path = folder.path().join("model.safetensors");
            let mut tensors = safetensors::load(&path).unwrap();
            tensors.insert(name, tensor());
            safetensors::save(&path, &tensors).unwrap();
        }
    };
    let ones = || Tensor::ones([3, 3], DType::F32).unwrap();
    let bytes = || Tensor::zeros([16, 16], DType::U8).unwrap();
    type Case<'a> = (Box<dyn Fn(&TempDir) + 'a>, &'a str);
    let cases: Vec<Case> = vec![
        (
            Box::new(remove("config.json")),
            "config.json: cannot read the file",
        ),
        (
            Box::new(write("config.json", "{{")),
            "config.json: key must be a string",
        ),
        (
            Box::new(write("config.json", "[]")),
            "config.json: invalid type",
        ),
        (
            Box::new(remove("model.safetensors")),
            "there is no model.safetensors",
        ),
        (
            Box::new(write("model.safetensors", "none")),
            "model.safetensors",
        ),
        (
            Box::new(remove("tokenizer.json")),
            "tokenizer.json: cannot read the file",
        ),
        (
            Box::new(write("tokenizer.json", "{}")),
            "tokenizer.json: missing field `model`",
        ),
        (
            Box::new(write("tokenizer_config.json", "3")),
            "tokenizer_config.json: invalid type",
        ),
        (
            Box::new(edit("/model/type", json!("WordLevel"))),
            "kind \"WordLevel\" is not supported",
        ),
        (
            Box::new(edit("/pre_tokenizer/use_regex", json!(false))),
            "pre_tokenizer: [] is not one of those known",
        ),
        (
            Box::new(edit("/model/vocab/A", json!(70))),
            "token 70 \"A\" is outside of the embedding table of 40 rows",
        ),
        (
            Box::new(with("model.layers.0.extra.weight", ones)),
            "model.layers.0.extra.weight: not a tensor of the model type",
        ),
        (
            Box::new(with("model.layers.0.mlp.up_proj.weight", ones)),
            "blk.0.ffn_up.weight: expected shape [24, 16], got [3, 3]",
        ),
        (
            Box::new(with("model.layers.0.self_attn.v_proj.weight", bytes)),
            "v_proj.weight: u8 is not supported",
        ),
        (
            Box::new(with("layers.0.mlp.up_proj.weight", ones)),
            "layers.0.mlp.up_proj.weight: has the same place as",
        ),
    ];
    for (harm, expected) in cases {
        let folder = copy("llama");
        harm(&folder);
        let error = refusal(&folder);
        assert!(error.contains(expected), "{expected:?} in: {error}");
    }
}

/// Whatever the bytes, a folder is a model or one error.
#[test]
fn damaged_files_end_in_an_error_at_most() {
    for name in ["llama3", "phi3-long", "gpt_oss", "mixtral"] {
        for file in ["config.json", "model.safetensors", "tokenizer.json"] {
            let folder = copy(name);
            let path = folder.path().join(file);
            let sound = fs::read(&path).unwrap();
            let mut state = 1u32;
            let mut next = |below: usize| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 8) as usize % below
            };
            for _ in 0..40 {
                let mut bytes = sound.clone();
                // Headers have the most meaning.
                let reach = bytes.len().min(2000);
                for _ in 0..=next(3) {
                    bytes[next(reach)] = b"0123456789-.[]{}\",:x"[next(20)];
                }
                bytes.truncate(if next(4) == 0 {
                    next(bytes.len())
                } else {
                    bytes.len()
                });
                fs::write(&path, bytes).unwrap();
                let opened = hugging_face::open(folder.path()).and_then(Model::load);
                if let Err(error) = opened {
                    assert!(!error.to_string().is_empty());
                }
            }
        }
    }
}

/// Both forms of a SentencePiece vocabulary give its tokens (`scripts/hugging-face-words.py`).
#[test]
fn tokens_of_sentence_piece_are_its_own() {
    let all = data().with_file_name("hugging_face_words");
    let forms = ["tokenizer.json", "tokenizer.model"];
    let kinds = ["bpe", "unigram"].map(|kind| forms.map(|form| (all.join(kind), form)));
    for (words, name) in kinds.into_iter().flatten() {
        let expected = fs::read_to_string(words.join("expected.json")).unwrap();
        let expected: Vec<Value> = serde_json::from_str(&expected).unwrap();
        let folder = copy("llama");
        let path = folder.path().join("model.safetensors");
        change(&folder, "config.json", |config| {
            config["vocab_size"] = json!(400)
        });
        let mut tensors = safetensors::load(&path).unwrap();
        for table in ["model.embed_tokens.weight", "lm_head.weight"] {
            tensors.insert(table, Tensor::zeros([400, 16], DType::BF16).unwrap());
        }
        safetensors::save(&path, &tensors).unwrap();
        fs::remove_file(folder.path().join("tokenizer.json")).unwrap();
        fs::copy(words.join(name), folder.path().join(name)).unwrap();
        let settings = json!({"add_bos_token": true, "bos_token": {"content": "<s>"}, "eos_token": "</s>",
            "chat_template": [{"name": "default", "template": "{{ a }}"}, {"name": "tool_use", "template": "b"}]});
        fs::write(
            folder.path().join("tokenizer_config.json"),
            settings.to_string(),
        )
        .unwrap();
        let generation = json!({"eos_token_id": [2, 3], "temperature": 0.6, "top_k": 20});
        fs::write(
            folder.path().join("generation_config.json"),
            generation.to_string(),
        )
        .unwrap();
        let gguf = hugging_face::open(folder.path()).unwrap();
        let keys = &gguf.metadata;
        assert_eq!(keys.str("tokenizer.chat_template").unwrap(), "{{ a }}");
        assert_eq!(keys.str("tokenizer.chat_template.tool_use").unwrap(), "b");
        assert_eq!(keys.u32("tokenizer.ggml.eos_token_id").unwrap(), 2);
        assert_eq!(keys.u32("tokenizer.ggml.eot_token_id").unwrap(), 3);
        assert_eq!(keys.f32("general.sampling.temp").unwrap(), 0.6);
        let model = Model::load(gguf).unwrap();
        let tokenizer = model.tokenizer().unwrap();
        assert_eq!([tokenizer.bos(), tokenizer.eos()], [Some(1), Some(2)]);
        for row in &expected {
            let options = EncodeOptions {
                add_special: true,
                ..EncodeOptions::default()
            };
            let ids = tokenizer.encode(row["text"].as_str().unwrap(), options);
            assert_eq!(json!(ids), row["ids"], "{words:?} {name}: {row}");
        }
    }
}

/// Pre-tokenizers are known by their structure: `tokenizer.json` of a model of each has these steps.
#[test]
fn pre_tokenizers_have_llama_cpps_names() {
    let split =
        |regex: &str| json!({"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated"});
    let bytes =
        |regex: bool| json!({"type": "ByteLevel", "add_prefix_space": false, "use_regex": regex});
    let digits = |each: bool| json!({"type": "Digits", "individual_digits": each});
    let words = |number: &str| {
        let begin = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|";
        split(&format!(
            r"{begin}{number}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
        ))
    };
    let cased = |end: &str, number: &str| {
        let (upper, lower) = (
            r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]",
            r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]",
        );
        let before = r"[^\r\n\p{L}\p{N}]?";
        split(&format!(
            r"{before}{upper}*{lower}+{end}|{before}{upper}+{lower}*{end}|{number}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
        ))
    };
    let contraction = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?";
    let cases = [
        (vec![bytes(true)], false, "gpt-2"),
        (vec![digits(true), bytes(true)], false, "starcoder"),
        (vec![words(r"\p{N}{1,3}"), bytes(false)], true, "llama-bpe"),
        (vec![words(r"\p{N}{1,3}"), bytes(false)], false, "dbrx"),
        (vec![words(r"\p{N}"), bytes(false)], false, "qwen2"),
        (
            vec![cased(contraction, r"\p{N}{1,3}"), bytes(false)],
            false,
            "gpt-4o",
        ),
        (vec![cased("", r"\p{N}"), bytes(false)], false, "tekken"),
        (
            vec![
                json!({"type": "Punctuation", "behavior": "Contiguous"}),
                bytes(true),
                digits(false),
                split("[0-9][0-9][0-9]"),
            ],
            false,
            "falcon",
        ),
    ];
    for (steps, is_whole, expected) in cases {
        let folder = copy("llama");
        change(&folder, "tokenizer.json", |file| {
            file["pre_tokenizer"] = match &steps[..] {
                [one] => one.clone(),
                _ => json!({"type": "Sequence", "pretokenizers": steps}),
            };
            file["model"]["ignore_merges"] = json!(is_whole);
        });
        let gguf = hugging_face::open(folder.path()).unwrap();
        assert_eq!(gguf.metadata.str("tokenizer.ggml.pre").unwrap(), expected);
        Model::load(gguf).unwrap();
    }
}

/// The guide's table has all types that an error lists.
#[test]
fn the_guide_lists_all_types() {
    let folder = copy("llama");
    change(&folder, "config.json", |config| {
        config["model_type"] = json!("mamba")
    });
    let error = refusal(&folder);
    let (_, list) = error.split_once("is not supported; ").unwrap();
    let types: Vec<&str> = list.trim_end_matches(" are").split(", ").collect();
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/models.md");
    let guide = fs::read_to_string(guide).unwrap();
    for name in &types {
        assert!(
            guide.contains(&format!("`{}`", name.trim_end_matches("_text"))),
            "{name}"
        );
    }
    assert!(types.len() >= 55, "{types:?}");
}
