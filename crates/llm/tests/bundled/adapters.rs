//! Adapters and control vectors of the bundled model: against models whose weights are changed
//! themselves, on every device, and when they do not fit.

use std::sync::Arc;

use half::{bf16, f16};
use rustorch_cpu::Cpu;
use rustorch_gguf::{GgmlType, Gguf, GgufWriter, Metadata, Value};
use rustorch_ir::{BlockFormat, DType};
use rustorch_llm::{
    AdapterFile, LlmError, Model, ModelOptions, Placement, RopeKind, RopeOptions, Session,
    SessionOptions,
};
use rustorch_runtime::{Backend, DeviceType, Runtime};
use rustorch_tensor::host;
use rustorch_testing::adapters::{self, Tensors};
use rustorch_testing::random::Random;

use crate::common::{Devices, models};

/// Cost of rounding activations to 8 bits: the model in `Q4_K_M` beside the same weights in `f32`.
/// It is the mean square of the differences, relative to that of the logits.
const ROUNDING: f64 = 1e-3;

const PROMPT: [u32; 9] = [0, 48, 1299, 602, 260, 31, 555, 310, 13];

/// Numbers between -`limit` and `limit`.
fn draw(random: &mut Random, count: usize, limit: f32) -> Vec<f32> {
    let mut number = || (random.bits() >> 40) as f32 / (1 << 23) as f32 - 1.0;
    (0..count).map(|_| number() * limit).collect()
}

/// Numbers as a file has them in this type.
fn encode(values: &[f32], ty: GgmlType) -> Vec<u8> {
    match ty {
        GgmlType::F32 => values.iter().flat_map(|v| v.to_le_bytes()).collect(),
        GgmlType::F16 => (values.iter())
            .flat_map(|v| f16::from_f32(*v).to_le_bytes())
            .collect(),
        GgmlType::BF16 => (values.iter())
            .flat_map(|v| bf16::from_f32(*v).to_le_bytes())
            .collect(),
        block => {
            let format: BlockFormat = block.block_format().unwrap();
            let mut bytes = vec![0; values.len() / format.block_len() * format.block_bytes()];
            format.quantize(values, &mut bytes).unwrap();
            bytes
        }
    }
}

/// The numbers of a tensor of a file.
fn decode(gguf: &Gguf, name: &str) -> Vec<f32> {
    let info = gguf.tensor(name).unwrap();
    let data = gguf.data(info);
    let pairs = || data.chunks_exact(2).map(|b| [b[0], b[1]]);
    match info.ty {
        GgmlType::F32 => (data.chunks_exact(4))
            .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
            .collect(),
        GgmlType::F16 => pairs().map(|b| f16::from_le_bytes(b).to_f32()).collect(),
        GgmlType::BF16 => pairs().map(|b| bf16::from_le_bytes(b).to_f32()).collect(),
        block => {
            let mut values = vec![0.0; info.elements()];
            let format = block.block_format().unwrap();
            format.dequantize(data, &mut values).unwrap();
            values
        }
    }
}

/// A file in memory.
fn file(metadata: Metadata, tensors: &Tensors, ty: GgmlType) -> Gguf {
    Gguf::from_bytes(bytes(metadata, tensors, ty)).unwrap()
}

fn bytes(metadata: Metadata, tensors: &Tensors, ty: GgmlType) -> Vec<u8> {
    let mut writer = GgufWriter::new(metadata);
    for (name, (shape, _)) in tensors {
        let dims: Vec<u64> = shape.iter().rev().map(|&size| size as u64).collect();
        writer.add_tensor(name, dims, ty).unwrap();
    }
    let mut file = Vec::new();
    let filled = writer.write_to(&mut file, |info, out| {
        out.write_all(&encode(&tensors[&info.name].1, ty))
    });
    filled.unwrap();
    file
}

fn header(architecture: &str, alpha: f32) -> Metadata {
    let mut metadata = Metadata::new();
    metadata.insert("general.architecture", architecture);
    metadata.insert("general.type", "adapter");
    metadata.insert("adapter.type", "lora");
    metadata.insert("adapter.lora.alpha", alpha);
    metadata
}

fn named(gguf: Gguf, scale: f32) -> AdapterFile {
    AdapterFile {
        name: "adapter.gguf".to_owned(),
        gguf,
        scale,
    }
}

/// An adapter of all matrices of a model but its table.
fn adapter(model: &Gguf, rank: usize, ty: GgmlType, seed: u64) -> Gguf {
    let mut random = Random::new(seed);
    let mut tensors = Tensors::new();
    for info in model.tensors() {
        let [rows, columns] = info.shape()[..] else {
            continue;
        };
        if info.name.starts_with("blk.") {
            let (a, b) = ([rank, columns], [rows, rank]);
            for (side, shape) in [("a", a), ("b", b)] {
                let values = draw(&mut random, shape[0] * shape[1], 0.1);
                let name = format!("{}.lora_{side}", info.name);
                tensors.insert(name, (shape.to_vec(), values));
            }
        }
    }
    file(header("llama", 1.5 * rank as f32), &tensors, ty)
}

/// A control vector for all layers that can have one.
fn vector(width: usize, layers: usize) -> Gguf {
    let mut random = Random::new(77);
    let tensor = |layer| {
        let values = draw(&mut random, width, 0.5);
        (format!("direction.{layer}"), (vec![width], values))
    };
    let tensors: Tensors = (1..layers).map(tensor).collect();
    let mut metadata = Metadata::new();
    metadata.insert("general.architecture", "controlvector");
    file(metadata, &tensors, GgmlType::F32)
}

/// The numbers of all tensors.
fn numbers(gguf: &Gguf) -> Tensors {
    let tensor = |name: &String, shape| (name.clone(), (shape, decode(gguf, name)));
    let all = gguf.tensors().iter();
    all.map(|info| tensor(&info.name, info.shape())).collect()
}

/// Adds an adapter to its weights.
fn merge(tensors: &mut Tensors, adapter: &AdapterFile) {
    let alpha = adapter.gguf.metadata.f32("adapter.lora.alpha").unwrap();
    let scale = f64::from(adapter.scale * alpha);
    adapters::merge(tensors, &numbers(&adapter.gguf), scale, |_, _| 1.0);
}

fn shipped(name: &str) -> Gguf {
    Gguf::open(models().join(format!("classics-13m-{name}.gguf"))).unwrap()
}

/// The model with these tensors, in `f32`.
fn exact(like: &Gguf, tensors: &Tensors) -> Gguf {
    file(like.metadata.clone(), tensors, GgmlType::F32)
}

fn cpu() -> Arc<dyn Backend> {
    Arc::new(Cpu::new(0))
}

fn changed(gguf: &Gguf, options: &ModelOptions) -> Model {
    Model::load_with(gguf.clone(), options).unwrap()
}

fn with(loras: &[AdapterFile]) -> ModelOptions {
    ModelOptions {
        loras: loras.to_vec(),
        ..ModelOptions::default()
    }
}

fn session_options() -> SessionOptions {
    SessionOptions {
        context: 64,
        ..SessionOptions::default()
    }
}

/// The scores behind every token of the prompt, which goes through the model together, and behind one
/// more.
fn logits(model: &Model, runtime: &Runtime, options: SessionOptions) -> Vec<f32> {
    let mut session = Session::new(model, runtime, options).unwrap();
    let mut all = Vec::new();
    let fed = session.feed_all(&PROMPT, |_, rows| {
        all.extend_from_slice(rows);
        Ok::<_, LlmError>(())
    });
    fed.unwrap();
    let mut next = Vec::new();
    session.feed(&[7], &mut next).unwrap();
    all.extend_from_slice(&next);
    all
}

fn on_cpu(model: &Model) -> Vec<f32> {
    logits(model, &Runtime::new([cpu()]), session_options())
}

/// The same with nothing in halves.
fn exactly(model: &Model) -> Vec<f32> {
    let options = SessionOptions {
        cache_dtype: DType::F32,
        ..session_options()
    };
    logits(model, &Runtime::new([cpu()]), options)
}

/// The square of what differs, of the square of what is expected.
fn nmse(found: &[f32], expected: &[f32]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let square = |x: f64| x * x;
    let pairs = found.iter().zip(expected);
    let error: f64 = pairs
        .map(|(a, b)| square(f64::from(*a) - f64::from(*b)))
        .sum();
    let power: f64 = expected.iter().map(|&x| square(x.into())).sum();
    error / power
}

/// Two adapters in types of their own are what weights are that have them added. Weights are in `f32`,
/// so that all that is rounded is what goes into narrow products with blocks.
pub(crate) fn adapters_are_what_merged_weights_are() {
    let source = shipped("f16");
    let tensors = numbers(&source);
    let base = exact(&source, &tensors);
    let plain = exactly(&changed(&base, &ModelOptions::default()));
    for (ty, rank, bound) in [
        (GgmlType::F32, 3, 1e-10),
        (GgmlType::F16, 5, 1e-10),
        (GgmlType::BF16, 8, 1e-10),
        (GgmlType::Q8_0, 32, ROUNDING),
    ] {
        let first = named(adapter(&base, rank, ty, 1), 0.8);
        let second = named(adapter(&base, rank, ty, 2), -0.4);
        let loras = [first, second];
        let mut merged = tensors.clone();
        loras.iter().for_each(|lora| merge(&mut merged, lora));
        let merged = changed(&exact(&source, &merged), &ModelOptions::default());
        let expected = exactly(&merged);
        let found = exactly(&changed(&base, &with(&loras)));
        let (error, change) = (nmse(&found, &expected), nmse(&plain, &expected));
        println!("{ty}: NMSE {error:.1e}; without adapters {change:.1e}");
        assert!(change > 0.01, "{ty}: the adapters change little");
        assert!(error < bound, "{ty}: {error:e}");
    }
}

/// Weights stay quantised: the result is compared with the same weights in `f32`, with the adapter
/// added. The difference is about as large as without an adapter.
pub(crate) fn quantised_weights_take_adapters() {
    let source = shipped("Q4_K_M");
    let mut tensors = numbers(&source);
    let lora = named(adapter(&source, 8, GgmlType::F16, 3), 1.0);
    let none = ModelOptions::default();
    let before = nmse(
        &on_cpu(&changed(&source, &none)),
        &on_cpu(&changed(&exact(&source, &tensors), &none)),
    );
    merge(&mut tensors, &lora);
    let expected = on_cpu(&changed(&exact(&source, &tensors), &none));
    let after = nmse(
        &on_cpu(&changed(&source, &with(std::slice::from_ref(&lora)))),
        &expected,
    );
    let unchanged = nmse(&on_cpu(&changed(&source, &none)), &expected);
    println!("rounding: NMSE {before:.1e}, with an adapter {after:.1e}; left out {unchanged:.1e}");
    assert!(unchanged > 100.0 * after, "the adapter changes little");
    assert!(
        before < 2.0 * ROUNDING && after < 2.0 * ROUNDING,
        "{after:e}"
    );
}

/// An adapter of the table changes the looked-up rows. It does not change the output head, though
/// that is the same table.
pub(crate) fn a_table_takes_an_adapter_and_its_head_does_not() {
    let source = shipped("f16");
    let mut tensors = numbers(&source);
    let base = exact(&source, &tensors);
    let name = "token_embd.weight";
    let (shape, table) = tensors[name].clone();
    let (vocab, width, rank) = (shape[0], shape[1], 4);
    let mut random = Random::new(5);
    let a = draw(&mut random, vocab * rank, 0.2);
    let b = draw(&mut random, width * rank, 0.2);
    let sides = [
        (format!("{name}.lora_a"), (vec![vocab, rank], a.clone())),
        (format!("{name}.lora_b"), (vec![width, rank], b.clone())),
    ];
    let alpha = 6.0;
    let lora = file(header("llama", alpha), &sides.into(), GgmlType::F32);
    let scale = alpha / rank as f32;
    let mut sum = table.clone();
    for (row, a) in sum.chunks_exact_mut(width).zip(a.chunks_exact(rank)) {
        for (x, b) in row.iter_mut().zip(b.chunks_exact(rank)) {
            *x += scale * a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
        }
    }
    tensors.insert(name.to_owned(), (shape.clone(), sum));
    tensors.insert("output.weight".to_owned(), (shape, table));
    let expected = exactly(&changed(
        &exact(&source, &tensors),
        &ModelOptions::default(),
    ));
    let found = exactly(&changed(&base, &with(&[named(lora, 1.0)])));
    let plain = exactly(&changed(&base, &ModelOptions::default()));
    assert!(nmse(&plain, &expected) > 0.01, "the adapter changes little");
    let error = nmse(&found, &expected);
    assert!(error < 1e-9, "{error:e}");
}

/// An adapter of scale 0 leaves every bit as it is.
pub(crate) fn a_scale_of_zero_changes_nothing() {
    let source = shipped("Q4_K_M");
    let config = Model::load(source.clone()).unwrap().spec().clone();
    let plain = on_cpu(&changed(&source, &ModelOptions::default()));
    let options = ModelOptions {
        loras: vec![named(adapter(&source, 4, GgmlType::F32, 1), 0.0)],
        control_vectors: vec![named(vector(config.width, config.layers.len()), 0.0)],
        ..ModelOptions::default()
    };
    assert!(plain == on_cpu(&changed(&source, &options)));
}

/// All at once: adapters, control vectors, and another rotary embedding.
fn all(source: &Gguf) -> ModelOptions {
    let config = Model::load(source.clone()).unwrap().spec().clone();
    ModelOptions {
        rope: RopeOptions {
            kind: Some(RopeKind::Yarn),
            freq_scale: Some(0.5),
            yarn_orig_ctx: Some(512),
            ..RopeOptions::default()
        },
        loras: vec![
            named(adapter(source, 4, GgmlType::F32, 1), 0.5),
            named(adapter(source, 6, GgmlType::F16, 2), 0.25),
            named(adapter(source, 6, GgmlType::BF16, 3), 0.25),
            named(adapter(source, 32, GgmlType::Q8_0, 4), 0.25),
        ],
        control_vectors: vec![named(vector(config.width, config.layers.len()), 0.3)],
        control_layers: Some((2, 4)),
        ..ModelOptions::default()
    }
}

/// A device alone gives what the CPU does: nearly the same if nothing is rounded to 8 bits.
/// Otherwise both are as far from the exact result as that rounding.
fn check_device(device: &Arc<dyn Backend>) {
    let runtime = Runtime::new([device.clone()]);
    for (name, loras, bound) in [("f16", 3, 1e-5), ("Q4_K_M", 4, 2.0 * ROUNDING)] {
        let source = shipped(name);
        let mut options = all(&source);
        options.loras.truncate(loras);
        let model = changed(&source, &options);
        let expected = on_cpu(&model);
        let found = logits(&model, &runtime, session_options());
        let plain = on_cpu(&changed(&source, &ModelOptions::default()));
        let (error, change) = (nmse(&found, &expected), nmse(&plain, &expected));
        let device = device.info().device;
        println!("{device}, {name}: NMSE {error:.1e}; the options change {change:.1e}");
        assert!(change > 10.0 * bound, "the options change little");
        assert!(error < bound, "{device}, {name}: {error:e}");
    }
}

pub(crate) fn adapters_on_opencl(opencl: &Devices) {
    opencl.iter().for_each(check_device);
    // The adapters of a split model are computed with their layers.
    let source = shipped("Q4_K_M");
    let model = changed(&source, &all(&source));
    let device = opencl[0].info().device;
    let runtime = Runtime::new(host(2).into_iter().chain(opencl.iter().cloned()));
    let mut layers = vec![DeviceType::Cpu; model.spec().layers.len()];
    layers[3..].fill(device);
    let options = SessionOptions {
        placement: Placement::of_layers(layers),
        ..session_options()
    };
    let found = logits(&model, &runtime, options);
    let used: Vec<_> = runtime.used_devices().iter().map(|used| used.0).collect();
    assert_eq!(used, [DeviceType::Cpu, device]);
    let error = nmse(&found, &on_cpu(&model));
    assert!(error < 2.0 * ROUNDING, "{error:e}");
}

pub(crate) fn adapters_on_emulated_metal(metal: &Devices) {
    metal.iter().for_each(check_device);
}

/// A saved session goes on with the model that it was of, and with no other.
pub(crate) fn saved_sessions_know_what_changed_the_model() {
    let source = shipped("Q4_K_M");
    let whole = all(&source);
    let runtime = Runtime::new([cpu()]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("session.gguf");
    let model = changed(&source, &whole);
    let mut session = Session::new(&model, &runtime, session_options()).unwrap();
    let mut expected = Vec::new();
    session.feed(&PROMPT[..5], &mut expected).unwrap();
    session.save(&path).unwrap();
    session.feed(&PROMPT[5..], &mut expected).unwrap();
    let restored = |options: &ModelOptions| {
        let model = changed(&source, options);
        let mut session = Session::new(&model, &runtime, session_options()).unwrap();
        session.restore(&path)?;
        let mut logits = Vec::new();
        session.feed(&PROMPT[5..], &mut logits)?;
        Ok::<_, LlmError>(logits)
    };
    assert!(restored(&whole).unwrap() == expected, "the same bits");
    let other_scale = |options: &mut ModelOptions| options.loras[3].scale = 0.2;
    let other_weights = |options: &mut ModelOptions| {
        options.loras[3].gguf = adapter(&source, 32, GgmlType::Q8_0, 9);
    };
    let changes: [&dyn Fn(&mut ModelOptions); 7] = [
        &|options| *options = ModelOptions::default(),
        &|options| options.loras.truncate(3),
        &other_scale,
        &other_weights,
        &|options| options.control_vectors[0].scale = 0.31,
        &|options| options.control_layers = None,
        &|options| options.rope.freq_scale = Some(0.25),
    ];
    for (i, change) in changes.iter().enumerate() {
        let mut options = whole.clone();
        change(&mut options);
        let error = restored(&options).err().map(|e| e.to_string());
        let error = error.unwrap_or_else(|| panic!("change {i} is accepted"));
        assert!(error.contains("saved with another model"), "{error}");
    }
    // Another way to say the same.
    let mut same = whole.clone();
    same.rope.yarn_ext_factor = Some(1.0);
    assert!(restored(&same).unwrap() == expected);
}

/// A tiny model with a head of its own, which loads at once.
fn tiny() -> Gguf {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/architectures");
    Gguf::open(folder.join("llama.gguf")).unwrap()
}

#[track_caller]
fn refused(options: &ModelOptions, parts: &[&str]) {
    let error = Model::load_with(tiny(), options).err();
    let error = error.expect("it does not fit").to_string();
    for part in parts {
        assert!(error.contains(part), "no {part:?} in: {error}");
    }
}

/// An adapter of one weight of the tiny model.
fn one(weight: &str, a: [usize; 2], b: [usize; 2]) -> Tensors {
    let side = |side: &str, shape: [usize; 2]| {
        let values = vec![0.5; shape[0] * shape[1]];
        (format!("{weight}.lora_{side}"), (shape.to_vec(), values))
    };
    [side("a", a), side("b", b)].into()
}

pub(crate) fn adapters_of_other_models_are_refused() {
    let q = "blk.0.attn_q.weight";
    let fitting = one(q, [4, 32], [32, 4]);
    let lora = |metadata: Metadata, tensors: &Tensors, parts: &[&str]| {
        let parts = [&["adapter.gguf"], parts].concat();
        let gguf = file(metadata, tensors, GgmlType::F32);
        refused(&with(&[named(gguf, 1.0)]), &parts);
    };
    let head = || header("llama", 4.0);
    let fits = with(&[named(file(head(), &fitting, GgmlType::F32), 1.0)]);
    Model::load_with(tiny(), &fits).unwrap();

    lora(
        header("qwen2", 4.0),
        &fitting,
        &["an adapter for qwen2, but the model is llama"],
    );
    for (weight, a, b, parts) in [
        (
            "blk.9.attn_q.weight",
            [4, 32],
            [32, 4],
            &["the model has no blk.9.attn_q.weight"][..],
        ),
        (
            q,
            [4, 64],
            [32, 4],
            &["[4, 64]", "[32, 4]", "[32, 32]", "[r, 32]", q],
        ),
        (q, [4, 32], [48, 4], &["[4, 32]", "[48, 4]", "[32, 32]"]),
        (q, [4, 32], [32, 5], &["[4, 32]", "[32, 5]"]),
        (
            "token_embd.weight",
            [4, 32],
            [40, 4],
            &["[40, r] and [32, r]"],
        ),
        (
            "output_norm.weight",
            [4, 32],
            [32, 4],
            &["a matrix is expected"],
        ),
    ] {
        lora(head(), &one(weight, a, b), parts);
    }
    let mut half = fitting.clone();
    half.remove(&format!("{q}.lora_b"));
    lora(
        head(),
        &half,
        &["tensor blk.0.attn_q.weight.lora_a: there is no .lora_b"],
    );
    let mut other = fitting.clone();
    other.insert("blk.0.attn_q.bias".to_owned(), (vec![1], vec![0.0]));
    lora(head(), &other, &["tensor blk.0.attn_q.bias", "neither"]);
    lora(head(), &Tensors::new(), &["it changes nothing"]);

    let with_key = |key: &str, value: Value| {
        let mut metadata = head();
        metadata.insert(key, value);
        metadata
    };
    for (key, value, part) in [
        ("general.type", "model".into(), "not an adapter"),
        ("adapter.type", "ia3".into(), "adapter.type is \"ia3\""),
        ("adapter.lora.alpha", Value::F32(f32::NAN), "alpha is NaN"),
        ("adapter.lora.alpha", "x".into(), "must be f32"),
        (
            "adapter.alora.invocation_tokens",
            vec![1_u32].into(),
            "activated",
        ),
    ] {
        lora(with_key(key, value), &fitting, &[part]);
    }
    let gguf = file(head(), &fitting, GgmlType::F32);
    refused(
        &with(&[named(gguf.clone(), f32::INFINITY)]),
        &["a scale of inf"],
    );
    let refusal = Model::load(gguf).err().unwrap().to_string();
    assert!(
        refusal.contains("a LoRA adapter") && refusal.contains("--lora"),
        "{refusal}"
    );
}

pub(crate) fn control_vectors_of_other_models_are_refused() {
    let vectors = |tensors: &[(&str, usize)], ty, layers, parts: &[&str]| {
        let tensor = |&(name, len): &(&str, usize)| (name.to_owned(), (vec![len], vec![0.5; len]));
        let tensors = tensors.iter().map(tensor).collect();
        let gguf = file(Metadata::new(), &tensors, ty);
        let options = ModelOptions {
            control_vectors: vec![named(gguf, 1.0)],
            control_layers: layers,
            ..ModelOptions::default()
        };
        refused(&options, parts);
    };
    let f32 = GgmlType::F32;
    vectors(
        &[("direction.1", 64)],
        f32,
        None,
        &["adapter.gguf", "direction.1", "[64]", "[32]"],
    );
    vectors(
        &[("direction.0", 32)],
        f32,
        None,
        &["direction.0", "for 1 to 1"],
    );
    vectors(
        &[("direction.2", 32)],
        f32,
        None,
        &["direction.2", "2 layers"],
    );
    vectors(&[("direction.x", 32)], f32, None, &["direction.x", "alone"]);
    vectors(
        &[("output.weight", 32)],
        f32,
        None,
        &["output.weight", "-m"],
    );
    vectors(
        &[("direction.1", 32)],
        GgmlType::F16,
        None,
        &["expected F32, got F16"],
    );
    vectors(&[], f32, None, &["not a control vector"]);
    vectors(
        &[("direction.1", 32)],
        f32,
        Some((2, 2)),
        &["from layer 2 to 2", "has 1 to 1"],
    );
    vectors(
        &[("direction.1", 32)],
        f32,
        Some((5, 1)),
        &["from layer 5 to 1"],
    );
    let refusal = Model::load(vector(32, 2)).err().unwrap().to_string();
    assert!(refusal.contains("--control-vector"), "{refusal}");
}

pub(crate) fn impossible_rotary_embeddings_are_refused() {
    for (rope, part) in [
        (
            RopeOptions {
                freq_base: Some(0.0),
                ..RopeOptions::default()
            },
            "base",
        ),
        (
            RopeOptions {
                freq_scale: Some(f32::NAN),
                ..RopeOptions::default()
            },
            "scale",
        ),
        (
            RopeOptions {
                yarn_beta_slow: Some(-1.0),
                ..RopeOptions::default()
            },
            "slow beta",
        ),
        (
            RopeOptions {
                yarn_attn_factor: Some(f32::INFINITY),
                ..RopeOptions::default()
            },
            "attention",
        ),
    ] {
        refused(
            &ModelOptions {
                rope,
                ..ModelOptions::default()
            },
            &["rotary embedding", part],
        );
    }
}
