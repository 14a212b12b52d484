//! Damaged models: a change of a key or a tensor changes the logits, or is an error.

use rustorch_conformance::Extent;
use rustorch_gguf::{Array, GgmlType, Gguf, GgufWriter, TensorInfo, Value};
use rustorch_llm::{LlmError, Model};
use rustorch_testing::models::{Header, weights};

use crate::common::{headers, logits_of, none_of};

/// Headers that a commit tries; all together take minutes.
const CHOSEN: usize = 8;

/// Keys that do not change logits here, with the reasons.
const NOT_SEEN: &[(&str, &str)] = &[
    (
        "vocab_size",
        "the embedding table says it; llama.cpp asks for the key where there is no vocabulary",
    ),
    ("context_length", "it bounds what a session may hold"),
    (
        "rope.dimension_sections",
        "a text's token has one position for all sections",
    ),
    (
        "refact.feed_forward_length",
        "llama.cpp reads no feed-forward part of a file with experts",
    ),
    (
        "refact.expert_used_count",
        "llama.cpp compares it with the number of experts alone",
    ),
    (
        "hy_v3.feed_forward_length",
        "no layer of the model is dense",
    ),
    (
        "refact.expert_count",
        "llama.cpp asks only whether there are experts",
    ),
    (
        "hunyuan-moe.expert_feed_forward_length",
        "experts are as wide as the other key says",
    ),
    (
        "cohere2moe.expert_shared_count",
        "the shared expert has a width of its own",
    ),
    (
        "smallthinker.attention.sliding_window",
        "windows have 4,096 tokens, whatever it says",
    ),
    ("xielu.eps", "it bounds negative numbers from above"),
    (
        "step35.feed_forward_length",
        "no layer of the model is dense",
    ),
    (
        "mimo2.feed_forward_length",
        "no layer of the model is dense",
    ),
    (
        "minimax-m2.expert_feed_forward_length",
        "experts are as wide as the other key says",
    ),
];

/// Keys whose absence changes no logits here, with the reasons. Other values do.
const SAME_WITHOUT: &[(&str, &str)] = &[
    (
        "cohere2moe.expert_feed_forward_length",
        "without it experts are as wide as the dense part",
    ),
    (
        "exaone-moe.expert_gating_func",
        "the model has the architecture's own gating",
    ),
    (
        "minimax-m2.expert_gating_func",
        "the model has the architecture's own gating",
    ),
    (
        "minicpm.rope.scaling.type",
        "LongRoPE's divisors count without it, too",
    ),
    (
        "ernie4_5-moe.leading_dense_block_count",
        "experts are in every second layer, so that the first one is dense anyway",
    ),
    ("tokenizer.ggml.model", "the files have no vocabulary"),
    (
        "deepseek2.attention.q_lora_rank",
        "0 says the same: queries are one product",
    ),
    (
        "mistral4.attention.value_length",
        "the model's width, divided by its heads, is the same",
    ),
];

fn keys(header: &Header) -> Vec<String> {
    let keys = header.keys.iter().map(|(key, _)| key.to_owned());
    keys.collect()
}

/// Is the key among these?
fn is_among(keys: &[(&str, &str)], key: &str) -> bool {
    keys.iter().any(|(end, _)| key.ends_with(end))
}

/// Does a model give other logits, or is it refused?
fn is_seen(gguf: Gguf, expected: &[f32]) -> bool {
    logits_of(gguf).map_or(true, |found| found != expected)
}

/// Another value of the same type.
fn other(value: &Value) -> Value {
    match value {
        Value::Bool(flag) => (!flag).into(),
        Value::U32(n) => (2 * n + 1).into(),
        Value::F32(x) => (x * 4.0 + 0.5).into(),
        Value::String(_) => "other".into(),
        Value::Array(Array::Bool(flags)) => {
            flags.iter().map(|flag| !flag).collect::<Vec<bool>>().into()
        }
        Value::Array(Array::I32(list)) => list.iter().map(|n| n + 1).collect::<Vec<i32>>().into(),
        Value::Array(Array::F32(list)) => list.iter().map(|x| x + 1.0).collect::<Vec<f32>>().into(),
        other => panic!("no header has {other:?}"),
    }
}

pub(crate) fn absent_and_other_keys_are_seen() {
    let mut problems = Vec::new();
    for header in Extent::of_tests().choose(headers(), CHOSEN) {
        let expected = logits_of(header.model().unwrap()).unwrap();
        for key in keys(&header).iter().filter(|key| !is_among(NOT_SEEN, key)) {
            let mut changed = header.clone();
            let value = changed.keys.remove(key).unwrap();
            let is_same = is_among(SAME_WITHOUT, key);
            if !is_same && !is_seen(changed.model().unwrap(), &expected) {
                problems.push(format!("{}: without {key}", header.name));
            }
            changed.keys.insert(key, other(&value));
            if !is_seen(changed.model().unwrap(), &expected) {
                problems.push(format!("{}: other {key}", header.name));
            }
        }
    }
    none_of(&problems);
}

/// Another value of a key that tests leave out has no effect on some model. Else tests need not leave it out.
pub(crate) fn keys_that_are_left_out_are_not_seen() {
    let headers = headers();
    let is_unseen = |(header, key): (&Header, String)| {
        let expected = logits_of(header.model().unwrap()).unwrap();
        let mut changed = header.clone();
        let value = changed.keys.remove(&key).unwrap();
        changed.keys.insert(&key, other(&value));
        !is_seen(changed.model().unwrap(), &expected)
    };
    let is_needed = |end: &str| {
        let mut with = headers.iter().filter_map(|header| {
            let key = keys(header).into_iter().find(|key| key.ends_with(end))?;
            Some((header, key))
        });
        with.any(is_unseen)
    };
    let problems: Vec<_> = (NOT_SEEN.iter())
        .filter(|(end, _)| !is_needed(end))
        .map(|(end, _)| format!("{end} is seen"))
        .collect();
    none_of(&problems);
}

pub(crate) fn other_weights_are_seen() {
    let mut problems = Vec::new();
    for header in Extent::of_tests().choose(headers(), CHOSEN) {
        let expected = logits_of(header.model().unwrap()).unwrap();
        for (name, _) in &header.tensors {
            let changed = |tensor: &TensorInfo| {
                let mut weights = weights(tensor);
                if tensor.name == *name {
                    weights.reverse();
                    weights.iter_mut().for_each(|x| *x *= 1.25);
                }
                weights
            };
            let is_seen = is_seen(header.model_with(changed).unwrap(), &expected);
            if is_seen == header.ignores(name) {
                let what = if is_seen { "is read" } else { "is not read" };
                problems.push(format!("{}: {name} {what}", header.name));
            }
        }
    }
    none_of(&problems);
}

/// The error of loading a header; weights do not matter.
fn refusal(header: &Header) -> Option<LlmError> {
    Model::load(header.model_with(|_| Vec::new()).unwrap()).err()
}

/// The index of a tensor that the first layer has to have: its last product.
fn needed_product(header: &Header) -> usize {
    let names = [
        "attn_output",
        "ssm_out",
        "shortconv.out_proj",
        "time_mix_output",
        "ffn_down",
    ];
    let index = |name: &str| {
        let name = format!("blk.0.{name}.weight");
        header.tensors.iter().position(|(known, _)| *known == name)
    };
    names.into_iter().find_map(index).unwrap()
}

pub(crate) fn all_that_is_wrong_with_tensors_is_one_error() {
    let mut problems = Vec::new();
    for header in headers() {
        let mut changed = header.clone();
        let removed = needed_product(&header);
        let removed = changed.tensors.remove(removed).0;
        let misshapen = changed.tensors.iter_mut();
        let mut misshapen = misshapen.filter(|(name, _)| {
            !header.ignores(name) && name.starts_with("blk.1.") && name.ends_with(".weight")
        });
        let (first, dims) = misshapen.next().unwrap();
        dims[0] += 1;
        let (second, dims) = misshapen.next().unwrap();
        dims[0] += 2;
        let expected = [
            removed,
            first.clone(),
            second.clone(),
            "blk.0.new.weight".to_owned(),
        ];
        changed.tensors.push((expected[3].clone(), vec![1]));
        let found = refusal(&changed).map_or("nothing".to_owned(), |error| error.to_string());
        if !expected.iter().all(|name| found.contains(name.as_str())) {
            problems.push(format!("{}: {expected:?} is {found}", header.name));
        }
    }
    none_of(&problems);
}

/// Types of whole numbers, of blocks in norms, and of no kernels.
pub(crate) fn types_that_weights_may_not_have_are_one_error() {
    let wrong = [
        (
            "blk.0.attn_norm.weight",
            GgmlType::Q8_0,
            "expected floats, got ",
        ),
        (
            "blk.0.attn_q.weight",
            GgmlType::I32,
            "expected floats or blocks, got I32",
        ),
        ("blk.1.attn_output.weight", GgmlType::I8, "got I8"),
        (
            "blk.1.ffn_down.weight",
            GgmlType::Iq4Nl,
            "IQ4_NL is not supported",
        ),
        (
            "output_norm.weight",
            GgmlType::Q4_0,
            "expected floats, got ",
        ),
    ];
    let sound = header("llama-dense");
    let mut writer = GgufWriter::new(sound.keys.clone());
    for (name, dims) in &sound.tensors {
        let ty = wrong.iter().find(|(own, ..)| own == name);
        let ty = ty.map_or(GgmlType::F32, |(_, ty, _)| *ty);
        writer.add_tensor(name, dims.clone(), ty).unwrap();
    }
    let file = writer.to_memory(|_, _, _| ()).unwrap();
    let error = Model::load(file).err().unwrap().to_string();
    assert!(error.starts_with("5 problems: "), "{error}");
    for (name, _, problem) in wrong {
        let named = error.split("; ").find(|part| part.contains(name));
        assert!(
            named.is_some_and(|part| part.contains(problem)),
            "{name}: {error}"
        );
    }
}

/// Values that are of no use where the same key has a number, a flag or a list.
fn impossible(value: &Value) -> Vec<Value> {
    let numbers: Vec<Value> = vec![
        0_u32.into(),
        1_000_000_000_u32.into(),
        u64::MAX.into(),
        (-1_i32).into(),
        f32::NAN.into(),
        (-1.0_f32).into(),
        Vec::<i32>::new().into(),
        vec![0_i32, -1].into(),
    ];
    match value {
        Value::String(_) => vec!["".into(), 1_u32.into()],
        _ => numbers,
    }
}

/// A value of another type is an error; an impossible one is an error or a model, and never a panic.
pub(crate) fn impossible_keys_are_refused() {
    let mut problems = Vec::new();
    for header in headers() {
        for key in keys(&header) {
            let mut changed = header.clone();
            let value = changed.keys.remove(&key).unwrap();
            for bad in impossible(&value) {
                changed.keys.insert(&key, bad);
                let _ = refusal(&changed);
            }
            changed.keys.insert(&key, vec!["text".to_owned()]);
            if refusal(&changed).is_none() && !is_among(NOT_SEEN, &key) {
                problems.push(format!("{}: {key} of texts", header.name));
            }
        }
    }
    none_of(&problems);
}

/// The header of this name.
fn header(name: &str) -> Header {
    let mut headers = headers().into_iter();
    headers.find(|header| header.name == name).unwrap()
}

/// An error names the key that makes no sense.
pub(crate) fn contradictions_are_named() {
    let sound = header("llama-moe");
    let wrong: [(&str, Option<Value>, &str); 17] = [
        ("block_count", None, "missing"),
        ("block_count", Some(1_000_000_000_u32.into()), "more than"),
        ("block_count", Some(0_u32.into()), "got 0"),
        ("embedding_length", None, "missing"),
        ("embedding_length", Some("64".into()), "string"),
        ("embedding_length", Some(u64::MAX.into()), "expected 1 to"),
        ("attention.head_count", Some(0_u32.into()), "got 0"),
        (
            "attention.head_count",
            Some(vec![4_i32].into()),
            "expected 2 numbers, one for each layer, got 1",
        ),
        (
            "attention.head_count",
            Some(vec![4_i32, 4, 4].into()),
            "expected 2 numbers, one for each layer, got 3",
        ),
        (
            "attention.head_count",
            Some(vec![4_i32, -4].into()),
            "got -4",
        ),
        (
            "attention.head_count_kv",
            Some(3_u32.into()),
            "does not divide",
        ),
        ("attention.layer_norm_rms_epsilon", None, "missing"),
        (
            "attention.layer_norm_rms_epsilon",
            Some((-1.0_f32).into()),
            "at least 0",
        ),
        ("expert_used_count", Some(9_u32.into()), "9 of 8 experts"),
        (
            "expert_group_used_count",
            Some(5_u32.into()),
            "5 of 4 groups",
        ),
        ("expert_count", Some(1_000_000_u32.into()), "more than"),
        ("rope.freq_base", Some(0.0_f32.into()), "more than 0"),
    ];
    let mut problems = Vec::new();
    for (name, value, expected) in wrong {
        let key = format!("llama.{name}");
        let mut changed = sound.clone();
        changed.keys.remove(&key);
        if let Some(value) = value {
            changed.keys.insert(&key, value);
        }
        let found = refusal(&changed).map_or("nothing".to_owned(), |error| error.to_string());
        if !found.contains(name) || !found.contains(expected) {
            problems.push(format!("{key}, {expected:?}: {found}"));
        }
    }
    none_of(&problems);
}

pub(crate) fn an_unknown_architecture_is_one_short_line() {
    let mut changed = header("llama-dense");
    changed.keys.insert("general.architecture", "unheard-of");
    let error = refusal(&changed).unwrap().to_string();
    assert!(
        error.starts_with("architecture \"unheard-of\" is not supported; "),
        "{error}"
    );
    assert!(error.len() < 160, "{error}");
}

/// Mistakes in several keys and tensors, of which none hides another.
pub(crate) fn all_that_is_wrong_is_one_error() {
    let mut problems = Vec::new();
    for header in headers() {
        let message = |changed: &Header| {
            let found = refusal(changed);
            found.map_or("nothing".to_owned(), |error| error.to_string())
        };
        let is_needed = |key: &String| {
            let mut changed = header.clone();
            changed.keys.remove(key);
            message(&changed).contains(key.as_str())
        };
        // Tensors follow from the kinds of layers.
        let others = [
            "general.",
            "tokenizer.",
            "interleave_moe_layer_step",
            "kimi-linear.attention.head_count_kv",
        ];
        let own = |key: &String| !others.iter().any(|part| key.contains(part));
        let mut needed = keys(&header).into_iter().filter(own).filter(is_needed);
        let mut changed = header.clone();
        let mut expected = Vec::new();
        for key in needed.by_ref().take(3) {
            changed.keys.remove(&key);
            expected.push(key);
        }
        for key in needed {
            changed.keys.insert(&key, vec!["text".to_owned()]);
            expected.push(key);
        }
        let removed = needed_product(&header);
        expected.push(changed.tensors.remove(removed).0);
        expected.push("blk.0.new.weight".to_owned());
        changed
            .tensors
            .push((expected[expected.len() - 1].clone(), vec![1]));
        let found = message(&changed);
        for name in expected
            .iter()
            .filter(|name| !found.contains(name.as_str()))
        {
            problems.push(format!("{}: {name} is not in {found}", header.name));
        }
        // Nothing else is wrong.
        if !found.starts_with(&format!("{} problems: ", expected.len())) {
            problems.push(format!("{}: {} of {found}", header.name, expected.len()));
        }
    }
    none_of(&problems);
}
