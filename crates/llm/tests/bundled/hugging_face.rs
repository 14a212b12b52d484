//! SmolLM2 as a folder of `transformers`: our own export of it, since no package ships that form.

use std::fs;
use std::ops::{ControlFlow, Range};
use std::path::Path;

use half::bf16;
use rustorch_files::{Tensors, safetensors};
use rustorch_gguf::{GgmlType, Gguf, TensorInfo};
use rustorch_llm::quantize::{FileType, QuantizeOptions, quantize};
use rustorch_llm::{LlmError, Model, Session, SessionOptions, hugging_face};
use rustorch_tensor::Tensor;
use rustorch_testing::fetched::ModelFile;
use rustorch_tokenizer::EncodeOptions;
use serde_json::{Map, Value, json};

use crate::goldens::cpu;

/// The name that `transformers` has for a tensor.
fn name(name: &str) -> String {
    let parts: Vec<&str> = name.split('.').collect();
    match parts[..] {
        ["token_embd", ..] => "model.embed_tokens.weight".to_owned(),
        ["output_norm", ..] => "model.norm.weight".to_owned(),
        ["blk", layer, part, _] => {
            let part = match part {
                "attn_norm" => "input_layernorm",
                "attn_q" => "self_attn.q_proj",
                "attn_k" => "self_attn.k_proj",
                "attn_v" => "self_attn.v_proj",
                "attn_output" => "self_attn.o_proj",
                "ffn_norm" => "post_attention_layernorm",
                "ffn_gate" => "mlp.gate_proj",
                "ffn_up" => "mlp.up_proj",
                "ffn_down" => "mlp.down_proj",
                other => panic!("{other}"),
            };
            format!("model.layers.{layer}.{part}.weight")
        }
        _ => panic!("{name}"),
    }
}

/// A tensor as `transformers` has it: pairs of rows that are rotated together are half a head apart.
fn tensor(gguf: &Gguf, info: &TensorInfo, width: usize) -> Tensor {
    let (data, shape) = (gguf.data(info), info.shape());
    let tensor = match info.ty {
        GgmlType::BF16 => {
            let numbers = data.as_chunks().0.iter();
            let numbers: Vec<bf16> = numbers.map(|&b| bf16::from_le_bytes(b)).collect();
            Tensor::from_slice(&numbers, &*shape).unwrap()
        }
        GgmlType::F32 => {
            let numbers = data.as_chunks().0.iter();
            let numbers: Vec<f32> = numbers.map(|&b| f32::from_le_bytes(b)).collect();
            Tensor::from_slice(&numbers, &*shape).unwrap()
        }
        other => panic!("{other}"),
    };
    if !info.name.contains("attn_q.") && !info.name.contains("attn_k.") {
        return tensor;
    }
    let heads = tensor
        .reshape([shape[0] / width, width / 2, 2, shape[1]])
        .unwrap();
    let halves = heads.permute([0, 2, 1, 3]).unwrap();
    halves.reshape(&*shape).unwrap()
}

/// Writes the folder.
fn export(gguf: &Gguf, folder: &Path) {
    let keys = &gguf.metadata;
    let size = |key: &str| keys.u32(&format!("llama.{key}")).unwrap();
    let number = |key: &str| f64::from(keys.f32(&format!("llama.{key}")).unwrap());
    let heads = size("attention.head_count");
    let width = size("embedding_length") / heads;
    let mut tensors = Tensors::new();
    for info in gguf.tensors() {
        tensors.insert(name(&info.name), tensor(gguf, info, width as usize));
    }
    safetensors::save(folder.join("model.safetensors"), &tensors).unwrap();
    let write = |name: &str, value: Value| fs::write(folder.join(name), value.to_string()).unwrap();
    write(
        "config.json",
        json!({
            "model_type": "llama", "hidden_act": "silu", "tie_word_embeddings": true,
            "hidden_size": size("embedding_length"), "num_hidden_layers": size("block_count"),
            "num_attention_heads": heads, "num_key_value_heads": size("attention.head_count_kv"),
            "intermediate_size": size("feed_forward_length"), "vocab_size": size("vocab_size"),
            "max_position_embeddings": size("context_length"), "rope_theta": number("rope.freq_base"),
            "rms_norm_eps": number("attention.layer_norm_rms_epsilon"),
        }),
    );
    let tokens = keys.str_array("tokenizer.ggml.tokens").unwrap();
    let types = keys.i32_array("tokenizer.ggml.token_type").unwrap();
    let ids = tokens.iter().enumerate();
    let vocab: Map<String, Value> = ids.map(|(id, text)| (text.clone(), json!(id))).collect();
    let special = (0..tokens.len()).filter(|&id| types[id] == 3);
    let added: Vec<Value> = special
        .map(|id| json!({"id": id, "content": tokens[id], "special": true}))
        .collect();
    write(
        "tokenizer.json",
        json!({
            "model": {"type": "BPE", "vocab": vocab, "merges": keys.str_array("tokenizer.ggml.merges").unwrap()},
            "added_tokens": added,
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
                {"type": "Digits", "individual_digits": true}, {"type": "ByteLevel", "use_regex": true}]},
        }),
    );
    let text = |key: &str| {
        tokens[keys.u32(&format!("tokenizer.ggml.{key}_token_id")).unwrap() as usize].clone()
    };
    write(
        "tokenizer_config.json",
        json!({
            "bos_token": text("bos"), "eos_token": text("eos"), "add_bos_token": false,
            "chat_template": keys.str("tokenizer.chat_template").unwrap(),
        }),
    );
}

/// The logits behind a text.
fn logits(model: &Model, ids: &[u32]) -> Vec<f32> {
    let options = SessionOptions {
        context: 64,
        ..SessionOptions::default()
    };
    let mut session = Session::new(model, &cpu(), options).unwrap();
    let mut last = Vec::new();
    let each = |_: Range<usize>, rows: &[f32]| {
        last = rows[rows.len() - model.spec().vocab..].to_vec();
        Ok::<_, LlmError>(())
    };
    session.feed_all(ids, each).unwrap();
    last
}

/// Tensors, tokens and logits of the folder are those of the file, with weights in BF16.
pub(crate) fn a_folder_of_transformers_is_the_same_model(file: &ModelFile) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bf16.gguf");
    let options = QuantizeOptions {
        allow_requantize: true,
        ..QuantizeOptions::default()
    };
    let go_on = &mut |_: rustorch_llm::quantize::Progress| ControlFlow::Continue(());
    quantize(
        &Gguf::open(&file.0).unwrap(),
        &path,
        FileType::BF16,
        &options,
        go_on,
    )
    .unwrap();
    let gguf = Gguf::open(&path).unwrap();
    export(&gguf, folder.path());

    let opened = hugging_face::open(folder.path()).unwrap();
    assert_eq!(opened.tensors().len(), gguf.tensors().len());
    for info in gguf.tensors() {
        let other = opened.tensor(&info.name).unwrap();
        assert!(opened.data(other) == gguf.data(info), "{}", info.name);
    }
    let template = "tokenizer.chat_template";
    assert_eq!(opened.metadata.get(template), gguf.metadata.get(template));
    let [one, other] = [gguf, opened].map(|gguf| Model::load(gguf).unwrap());
    let text = "<|im_start|>user\nHow much is 12 + 345? It's 357.<|im_end|>\n";
    let options = EncodeOptions {
        parse_special: true,
        ..EncodeOptions::default()
    };
    let [ids, ours] = [&one, &other].map(|m| m.tokenizer().unwrap().encode(text, options));
    assert_eq!(ids, ours);
    assert_eq!(logits(&one, &ids), logits(&other, &ids));
}
