//! Low-rank adapters of experts.

use rustorch_gguf::{GgmlType, Gguf, GgufWriter, Metadata};
use rustorch_llm::{AdapterFile, Model, ModelOptions};
use rustorch_testing::models::Header;
use rustorch_testing::random::Random;

use crate::common::{cpu, difference, headers, logits, logits_of, options};

const RANK: usize = 3;
const ALPHA: f32 = 4.5;
const SCALE: f32 = 0.5;

/// Tensors by name, each with its dimensions, the fastest first, and its numbers.
type Tensors = Vec<(String, Vec<u64>, Vec<f32>)>;

fn file(metadata: Metadata, tensors: &Tensors) -> Gguf {
    let mut writer = GgufWriter::new(metadata);
    for (name, dims, _) in tensors {
        let added = writer.add_tensor(name, dims.clone(), GgmlType::F32);
        added.unwrap();
    }
    let numbers = |name: &str| &tensors.iter().find(|(own, ..)| own == name).unwrap().2;
    let bytes = |name: &str| -> Vec<u8> {
        let numbers = numbers(name).iter();
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
        (info.name.clone(), info.dims.clone(), numbers.collect())
    });
    all.collect()
}

/// An adapter of all experts of a model, with this many experts more than that.
fn adapter(model: &Gguf, more: u64) -> Tensors {
    let mut random = Random::new(7);
    let mut draw = |dims: &[u64]| -> Vec<f32> {
        let count = dims.iter().product::<u64>();
        let number = |_| ((random.bits() >> 40) as f32 / (1 << 23) as f32 - 1.0) * 0.1;
        (0..count).map(number).collect()
    };
    let mut all = Tensors::new();
    for info in model.tensors() {
        let [inputs, outputs, experts] = info.dims[..] else {
            continue;
        };
        let (rank, experts) = (RANK as u64, experts + more);
        for (side, dims) in [
            ("a", [inputs, rank, experts]),
            ("b", [rank, outputs, experts]),
        ] {
            let numbers = draw(&dims);
            all.push((format!("{}.lora_{side}", info.name), dims.to_vec(), numbers));
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

/// The model with the adapter's products added to its weights, in double precision. A weight's own factor of each
/// expert does not scale the adapter, as in llama.cpp's `build_lora_mm_id`.
fn merged(model: &Gguf, adapter: &Tensors, has_factors: bool) -> Gguf {
    let mut all = tensors(model);
    let factors = all.clone();
    let factor = |weight: &str, expert: usize| {
        let name = weight.replace(".weight", ".scale");
        let found = factors.iter().find(|(own, ..)| *own == name);
        found
            .filter(|_| has_factors)
            .map_or(1.0, |(.., factors)| f64::from(factors[expert]))
    };
    let mut changed = 0;
    for (name, dims, numbers) in &mut all {
        let side = |side: &str| {
            let name = format!("{name}.lora_{side}");
            adapter
                .iter()
                .find(|(own, ..)| *own == name)
                .map(|found| &found.2)
        };
        let (Some(a), Some(b)) = (side("a"), side("b")) else {
            continue;
        };
        changed += 1;
        let (inputs, outputs) = (dims[0] as usize, dims[1] as usize);
        for (at, number) in numbers.iter_mut().enumerate() {
            let (expert, row, column) =
                (at / (inputs * outputs), at / inputs % outputs, at % inputs);
            let product = (0..RANK).map(|r| {
                let a = a[(expert * RANK + r) * inputs + column];
                let b = b[(expert * outputs + row) * RANK + r];
                f64::from(a) * f64::from(b)
            });
            let scale = f64::from(SCALE * ALPHA) / RANK as f64;
            let added = scale * product.sum::<f64>() / factor(name, expert);
            *number = (f64::from(*number) + added) as f32;
        }
    }
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
