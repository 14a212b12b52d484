//! Low-rank adapters of experts, and of all parts of Gemma 4.

use rustorch_gguf::{GgmlType, Gguf, GgufWriter, Metadata};
use rustorch_llm::spec::Role;
use rustorch_llm::{AdapterFile, Model, ModelOptions};
use rustorch_testing::adapters::{Tensors, merge};
use rustorch_testing::models::Header;
use rustorch_testing::random::Random;

use crate::common::{cpu, difference, headers, logits, logits_of, options};

const RANK: usize = 3;
const ALPHA: f32 = 4.5;
const SCALE: f32 = 0.5;

fn file(metadata: Metadata, tensors: &Tensors) -> Gguf {
    let mut writer = GgufWriter::new(metadata);
    for (name, (shape, _)) in tensors {
        let dims: Vec<u64> = shape.iter().rev().map(|&size| size as u64).collect();
        let added = writer.add_tensor(name, dims, GgmlType::F32);
        added.unwrap();
    }
    let bytes = |name: &str| -> Vec<u8> {
        let numbers = tensors[name].1.iter();
        numbers.flat_map(|x| x.to_le_bytes()).collect()
    };
    let written = writer.to_memory(|_, info, out| out.copy_from_slice(&bytes(&info.name)));
    written.unwrap()
}

/// The tensors of a file, which are all of `f32`.
fn tensors(gguf: &Gguf) -> Tensors {
    let all = gguf.tensors().iter().map(|info| {
        assert_eq!(info.ty, GgmlType::F32, "{}", info.name);
        let data = gguf.data(info).chunks_exact(4);
        let numbers = data.map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]));
        (info.name.clone(), (info.shape(), numbers.collect()))
    });
    all.collect()
}

/// Numbers for a tensor of this shape.
fn draw(random: &mut Random, shape: Vec<usize>) -> (Vec<usize>, Vec<f32>) {
    let number = |_| ((random.bits() >> 40) as f32 / (1 << 23) as f32 - 1.0) * 0.1;
    let numbers = (0..shape.iter().product()).map(number).collect();
    (shape, numbers)
}

/// An adapter of all experts of a model, with this many experts more than that.
fn adapter(model: &Gguf, more: usize) -> Tensors {
    let mut random = Random::new(7);
    let mut all = Tensors::new();
    for info in model.tensors() {
        let [experts, outputs, inputs] = info.shape()[..] else {
            continue;
        };
        let experts = experts + more;
        for (side, shape) in [
            ("a", vec![experts, RANK, inputs]),
            ("b", vec![experts, outputs, RANK]),
        ] {
            let name = format!("{}.lora_{side}", info.name);
            all.insert(name, draw(&mut random, shape));
        }
    }
    all
}

fn with_adapter(model: &Gguf, tensors: &Tensors) -> ModelOptions {
    let mut metadata = Metadata::new();
    let architecture = model.metadata.str("general.architecture").unwrap();
    metadata.insert("general.architecture", architecture);
    metadata.insert("general.type", "adapter");
    metadata.insert("adapter.type", "lora");
    metadata.insert("adapter.lora.alpha", ALPHA);
    let lora = AdapterFile {
        name: "adapter.gguf".to_owned(),
        gguf: file(metadata, tensors),
        scale: SCALE,
    };
    ModelOptions {
        loras: vec![lora],
        ..ModelOptions::default()
    }
}

/// The model with the adapter added to its weights. A weight's own factor of each expert does not scale the adapter,
/// as in llama.cpp's `build_lora_mm_id`.
fn merged(model: &Gguf, adapter: &Tensors, has_factors: bool) -> Gguf {
    let mut all = tensors(model);
    let factors = all.clone();
    let factor = |weight: &str, expert: usize| {
        let found = factors.get(&weight.replace(".weight", ".scale"));
        // A router's tensor of this name is a norm's.
        let found = found.filter(|_| has_factors && weight.contains("_exps"));
        found.map_or(1.0, |(_, factors)| f64::from(factors[expert]))
    };
    let changed = merge(&mut all, adapter, f64::from(SCALE * ALPHA), factor);
    assert!(changed > 0, "no experts");
    file(model.metadata.clone(), &all)
}

/// A model with experts whose products are apart, or joined, or have biases.
fn models() -> Vec<Header> {
    let mut found = headers();
    found.retain(|header| ["qwen3moe-moe", "gpt-oss-moe", "dbrx-moe"].contains(&&*header.name));
    assert_eq!(found.len(), 3);
    found
}

pub(crate) fn experts_are_extended() {
    for header in models() {
        let model = header.model().unwrap();
        let adapter = adapter(&model, 0);
        // The others do not read the factors of their files.
        let has_factors = header.name == "qwen3moe-moe";
        let changed = Model::load_with(model.clone(), &with_adapter(&model, &adapter)).unwrap();
        let found = logits(&changed, &cpu(), options()).unwrap();
        let expected = logits_of(merged(&model, &adapter, has_factors)).unwrap();
        let unchanged = logits_of(model).unwrap();
        let name = &header.name;
        let error = difference(&found, &expected);
        assert!(error < 1e-4, "{name}: {error}");
        let effect = difference(&found, &unchanged);
        assert!(effect > 1e-2, "{name}: {effect}");
    }
}

/// Adapters of all products, of the keys that serve for values, and of the table of the layers' own inputs.
pub(crate) fn all_parts_of_gemma4_are_extended() {
    const TABLE: &str = "per_layer_token_embd.weight";
    let header = headers().into_iter().find(|h| h.name == "gemma4-moe");
    let model = header.unwrap().model().unwrap();
    let mut random = Random::new(11);
    let mut all = adapter(&model, 0);
    for info in model.tensors() {
        let shape = info.shape();
        let is_product = Role::of(&info.name).is_some() && info.name != "token_embd.weight";
        if let ([outputs, inputs], true) = (&shape[..], is_product) {
            let (outputs, inputs) = (*outputs, *inputs);
            for (side, shape) in [("a", vec![RANK, inputs]), ("b", vec![outputs, RANK])] {
                let name = format!("{}.lora_{side}", info.name);
                all.insert(name, draw(&mut random, shape));
            }
        }
    }
    assert!(all.len() > 60, "{}", all.len());
    // A table's adapter lies the other way round: rows of the first matrix are looked up.
    let mut turned = all.clone();
    let [a, b] = ["a", "b"].map(|side| format!("{TABLE}.lora_{side}"));
    turned.insert(a.clone(), all[&b].clone());
    turned.insert(b, transposed(&all[&a]));
    let changed = Model::load_with(model.clone(), &with_adapter(&model, &turned)).unwrap();
    let found = logits(&changed, &cpu(), options()).unwrap();
    let expected = logits_of(merged(&model, &all, true)).unwrap();
    let error = difference(&found, &expected);
    assert!(error < 1e-4, "{error}");
    // Each part of the adapter has an effect.
    for part in [
        "attn_k.",
        "ffn_down.",
        "inp_gate.",
        "per_layer_model_proj.",
        "per_layer_token_embd.",
    ] {
        let mut without = turned.clone();
        without.retain(|name, _| !name.contains(part));
        let less = Model::load_with(model.clone(), &with_adapter(&model, &without)).unwrap();
        let effect = difference(&logits(&less, &cpu(), options()).unwrap(), &found);
        assert!(effect > 1e-4, "{part} {effect}");
    }
}

fn transposed((shape, numbers): &(Vec<usize>, Vec<f32>)) -> (Vec<usize>, Vec<f32>) {
    let (rows, columns) = (shape[0], shape[1]);
    let at = |i: usize| numbers[i % rows * columns + i / rows];
    (vec![columns, rows], (0..rows * columns).map(at).collect())
}

pub(crate) fn other_shapes_are_refused() {
    let model = models().remove(0).model().unwrap();
    let options = with_adapter(&model, &adapter(&model, 1));
    let error = Model::load_with(model, &options).err().unwrap().to_string();
    let is_whole = error.contains("lora_a: it is [") && error.contains(", r, ");
    assert!(
        is_whole && error.contains("it belongs to another model"),
        "{error}"
    );
}
