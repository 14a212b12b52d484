//! `/lora-adapters`: scales of adapters, which change the answers.

use rustorch_gguf::{GgmlType, Gguf, GgufWriter, Metadata};
use rustorch_llm::engine::EngineOptions;
use rustorch_llm::{AdapterFile, Model, ModelOptions};
use rustorch_server::{ServedAdapters, ServedModel};
use serde_json::{Value, json};

use crate::client::{MODEL, Running, served};

const RANK: u64 = 2;

/// An adapter of the first queries, which changes them much.
fn adapter() -> Gguf {
    let mut metadata = Metadata::new();
    metadata.insert("general.architecture", "llama");
    metadata.insert("general.type", "adapter");
    metadata.insert("adapter.type", "lora");
    metadata.insert("adapter.lora.alpha", 2.0_f32);
    let mut writer = GgufWriter::new(metadata);
    for (side, dims) in [("a", [512, RANK]), ("b", [RANK, 512])] {
        let name = format!("blk.0.attn_output.weight.lora_{side}");
        writer.add_tensor(&name, dims, GgmlType::F32).unwrap();
    }
    let mut file = Vec::new();
    let filled = writer.write_to(&mut file, |_, out| {
        let values = (0..512 * RANK).map(|i| (i * 37 % 101) as f32 / 101.0 - 0.5);
        out.write_all(&values.flat_map(f32::to_le_bytes).collect::<Vec<u8>>())
    });
    filled.unwrap();
    Gguf::from_bytes(file).unwrap()
}

/// The bundled model with the adapter.
fn adapted(scale: f32) -> ServedModel {
    let file = AdapterFile {
        name: "a.gguf".to_owned(),
        gguf: adapter(),
        scale,
    };
    let options = ModelOptions {
        loras: vec![file],
        ..ModelOptions::default()
    };
    let gguf = Gguf::from_static(rustorch_classics::MODEL).unwrap();
    let model = Model::load_with(gguf, &options).unwrap();
    let mut served = served(model, MODEL, "chatml", EngineOptions::default());
    served.adapters = Some(ServedAdapters {
        files: vec![("a.gguf".to_owned(), scale)],
        rescale: Box::new(|scales| Ok(adapted(scales[0]))),
    });
    served
}

#[test]
fn scales_change_answers() {
    let server = Running::changed(|it| *it = adapted(1.0), |_| {});
    let text = |more: Value| {
        let mut body =
            json!({"prompt": "The king of the castle", "n_predict": 12, "temperature": 0});
        let more = more.as_object().unwrap().clone();
        body.as_object_mut().unwrap().extend(more);
        server.post("/completion", &body)
    };
    let plain = {
        let body = json!({"prompt": "The king of the castle", "n_predict": 12, "temperature": 0});
        Running::shared().ok("/completion", body)["content"].clone()
    };
    let listed = |scale: f32| json!([{"id": 0, "path": "a.gguf", "scale": scale}]);
    assert_eq!(server.get("/lora-adapters").ok(), listed(1.0));
    let with = text(json!({})).ok()["content"].clone();
    assert_ne!(with, plain);
    let set = |scales: Value| server.post("/lora-adapters", &scales);
    assert_eq!(set(json!([])).ok(), json!({"success": true}));
    assert_eq!(server.get("/lora-adapters").ok(), listed(0.0));
    assert_eq!(text(json!({})).ok()["content"], plain);
    set(json!([{"id": 0, "scale": 1.0}])).ok();
    assert_eq!(
        text(json!({"lora": [{"id": 0, "scale": 1.0}]})).ok()["content"],
        with
    );
    let other = text(json!({"lora": [{"id": 0, "scale": 0.5}]}));
    assert_eq!(
        (other.status, &other.json()["error"]["param"]),
        (400, &json!("lora"))
    );
    for (scales, param) in [
        (json!([{"id": 1, "scale": 1.0}]), "[0].id"),
        (json!([{"id": 0, "scale": 1e300}]), "[0].scale"),
        (json!([{"id": 0}]), "[0]"),
        (json!([{"id": 0, "scale": 1, "x": 1}]), "[0].x"),
    ] {
        let reply = set(scales);
        assert_eq!(reply.status, 400, "{}", reply.text);
        let found = reply.json()["error"]["param"].clone();
        assert!(
            found.as_str().is_some_and(|found| found.ends_with(param)),
            "{found} for {param}"
        );
    }
    assert_eq!(set(json!({"id": 0})).status, 400);
    assert_eq!(server.get("/lora-adapters").ok(), listed(1.0));
}

#[test]
fn a_model_without_adapters_has_no_scales() {
    let server = Running::shared();
    assert_eq!(server.get("/lora-adapters").ok(), json!([]));
    let reply = server.post("/lora-adapters", &json!([{"id": 0, "scale": 1.0}]));
    assert_eq!(reply.status, 400, "{}", reply.text);
    server.post("/lora-adapters", &json!([])).ok();
}
