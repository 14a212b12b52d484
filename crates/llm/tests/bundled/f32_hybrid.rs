//! The f32 hybrid: llama.cpp's answers without a conversion, and without a copy where devices
//! share the host's memory; what it is compared with really converts.

use std::io::Write;
use std::ops::ControlFlow;

use rustorch_gguf::{GgmlType, Gguf, GgufWriter};
use rustorch_llm::golden::largest;
use rustorch_llm::quantize::{FileType, QuantizeOptions, quantize};
use rustorch_llm::{F32Comparison, F32Variant, F32Workload, Model, Session, SessionOptions};
use rustorch_runtime::{DeviceType, Routing, Runtime};
use rustorch_tensor::{Activity, host};

use crate::common::{goldens, gpus, load};

/// The processor alone, and beside each device that shares its memory.
fn machines() -> Vec<Runtime> {
    let shared = (gpus().into_iter()).filter(|b| b.info().shares_host_memory);
    let beside = shared.map(|b| Runtime::new(host(0).into_iter().chain([b])));
    [Runtime::new(host(0))].into_iter().chain(beside).collect()
}

pub(crate) fn the_goldens_without_a_conversion_or_a_copy() {
    for name in ["Q4_K_M", "f16"] {
        let model = load(name);
        let golden = goldens(name).remove(0);
        for runtime in machines() {
            let options = SessionOptions {
                context: 64,
                ..SessionOptions::f32_hybrid(&model).unwrap()
            };
            let mut session = Session::new(&model, &runtime, options).unwrap();
            let mut logits = Vec::new();
            session.feed(&golden.ids, &mut logits).unwrap();
            for step in &golden.steps[..8] {
                // Only where llama.cpp's own choice is clear is another one a mistake.
                if step.top[0].1 - step.top[1].1 > 0.05 {
                    assert_eq!(largest(&logits), step.id, "{name}");
                }
                session.feed(&[step.id], &mut logits).unwrap();
            }
            assert_eq!(Activity::of(&runtime), Activity::default(), "{name}");
            let used: Vec<DeviceType> = runtime.used_devices().iter().map(|u| u.0).collect();
            let all = runtime.devices().map(|info| info.device);
            let expected: Vec<DeviceType> = all.filter(|d| *d != DeviceType::Reference).collect();
            assert_eq!(used, expected, "every device takes part");
        }
    }
}

pub(crate) fn what_it_is_compared_with_really_converts() {
    let model = load("Q4_K_M");
    let workload = F32Workload {
        prompt: 24,
        generate: 3,
        repetitions: 2,
    };
    let layers = model.spec().layers.len() as u64;
    for runtime in machines() {
        let compared = F32Comparison::measure(&model, &runtime, Routing::F32_HYBRID, workload);
        let compared = compared.unwrap();
        println!("{compared}");
        let of = |variant| compared.of(variant).unwrap();
        let [f32, half, converting] = F32Variant::ALL.map(of);
        for pass in [f32.prompt, f32.token] {
            assert_eq!(pass.activity, Activity::default());
            assert!(!pass.time.is_zero());
        }
        assert_eq!(half.token.activity.conversions, 2 * layers);
        assert_eq!(f32.cache_bytes, 2 * half.cache_bytes);
        let several = runtime.used_devices().len() > 1;
        // Values change device several times a layer, and each is converted there and back.
        let expected = if several { 4 * layers } else { 0 };
        let conversions = converting.token.activity.conversions;
        assert!(conversions >= expected, "{conversions}");
        assert_eq!(conversions > 0, several);
        assert_eq!(converting.working_bytes > f32.working_bytes, several);
        let time = compared.time_saved(F32Variant::Converting);
        let memory = compared.memory_saved(F32Variant::Converting);
        assert_eq!(time.is_some(), several);
        assert_eq!(memory.is_some_and(|saved| saved > 0.0), several);
        assert!(compared.memory_saved(F32Variant::HalfCache).unwrap() < 0.0);
    }
    let empty = F32Workload {
        prompt: 0,
        ..workload
    };
    let runtime = Runtime::new(host(1));
    assert!(F32Comparison::measure(&model, &runtime, Routing::F32_HYBRID, empty).is_err());
}

/// The model with one of its `f32` tensors in `f64`.
fn with_doubles(model: &Gguf) -> Gguf {
    let double = |name: &str| name == "blk.0.attn_norm.weight";
    let mut writer = GgufWriter::new(model.metadata.clone());
    for tensor in model.tensors() {
        let ty = match double(&tensor.name) {
            true => GgmlType::F64,
            false => tensor.ty,
        };
        writer.add_tensor(&tensor.name, &*tensor.dims, ty).unwrap();
    }
    let mut bytes = Vec::new();
    let fill = |tensor: &rustorch_gguf::TensorInfo, out: &mut dyn Write| {
        let data = model.data(model.tensor(&tensor.name).unwrap());
        match double(&tensor.name) {
            true => data.as_chunks().0.iter().try_for_each(|single| {
                out.write_all(&f64::from(f32::from_le_bytes(*single)).to_le_bytes())
            }),
            false => out.write_all(data),
        }
    };
    writer.write_to(&mut bytes, fill).unwrap();
    Gguf::from_bytes(bytes).unwrap()
}

pub(crate) fn doubles_are_refused_until_they_are_converted_on_purpose() {
    let doubles = with_doubles(load("f16").gguf());
    let model = Model::load(doubles.clone()).unwrap();
    let problem = SessionOptions::f32_hybrid(&model).unwrap_err().to_string();
    for part in ["blk.0.attn_norm.weight", "f64", "quantize IN OUT F32"] {
        assert!(problem.contains(part), "{problem}");
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("single.gguf");
    let options = QuantizeOptions::default();
    quantize(&doubles, &path, FileType::F32, &options, &mut |_| {
        ControlFlow::Continue(())
    })
    .unwrap();
    let single = Gguf::open(&path).unwrap();
    assert!(single.tensors().iter().all(|t| t.ty == GgmlType::F32));
    SessionOptions::f32_hybrid(&Model::load(single).unwrap()).unwrap();
}
