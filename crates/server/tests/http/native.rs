//! llama-server's paths, and the figures.

use serde_json::{Value, json};

use crate::client::{MODEL, Running};

#[test]
fn texts_and_tokens() {
    let server = Running::shared();
    let text = "The café of King 王";
    let ids = server.ok("/tokenize", json!({"content": text}))["tokens"].clone();
    assert_eq!(
        server.ok("/detokenize", json!({"tokens": ids}))["content"],
        text
    );
    let pieces = server.ok("/tokenize", json!({"content": text, "with_pieces": true}));
    let pieces = pieces["tokens"].as_array().unwrap();
    assert_eq!(pieces.len(), ids.as_array().unwrap().len());
    assert!(
        pieces
            .iter()
            .all(|it| it["piece"].is_string() || it["piece"].is_array())
    );
    for (path, body, param) in [
        ("/tokenize", json!({}), "content"),
        ("/detokenize", json!({"tokens": [1, -1]}), "tokens[1]"),
        ("/detokenize", json!({"tokens": [99999]}), "tokens"),
    ] {
        let reply = server.post(path, &body);
        assert_eq!(
            (reply.status, &reply.json()["error"]["param"]),
            (400, &json!(param))
        );
    }
}

#[test]
fn the_native_stream() {
    let server = Running::shared();
    let body =
        json!({"prompt": "Once upon a time", "n_predict": 6, "temperature": 0, "n_probs": 2});
    let whole = server.ok("/completion", body.clone());
    assert_eq!(
        (&whole["stop"], &whole["stop_type"]),
        (&json!(true), &json!("limit"))
    );
    assert_eq!(
        (&whole["tokens_predicted"], &whole["tokens_evaluated"]),
        (&json!(6), &json!(6))
    );
    assert_eq!(
        whole["completion_probabilities"].as_array().unwrap().len(),
        6
    );
    assert!(whole["timings"]["predicted_ms"].as_f64().unwrap() > 0.0);
    let mut streamed = body;
    streamed["stream"] = true.into();
    streamed["return_progress"] = true.into();
    let events = server.post("/completion", &streamed).events();
    assert!(events[0]["prompt_progress"]["total"] == 6, "{}", events[0]);
    let said: String = events
        .iter()
        .map(|it| it["content"].as_str().unwrap())
        .collect();
    assert_eq!(said, whole["content"].as_str().unwrap());
    assert_eq!(events.last().unwrap()["stop_type"], "limit");
}

#[test]
fn the_server_describes_itself() {
    let server = Running::shared();
    assert_eq!(server.get("/health").ok(), json!({"status": "ok"}));
    let models = server.get("/v1/models").ok();
    let ids: Vec<&Value> = models["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| &it["id"])
        .collect();
    assert_eq!(ids, ["classics", "other"]);
    assert_eq!(server.get("/v1/models/other").ok()["meta"]["n_ctx"], 512);
    assert_eq!(server.get("/v1/models/none").status, 404);
    let props = server.get("/props").ok();
    assert_eq!(
        (&props["model_alias"], &props["total_slots"]),
        (&json!(MODEL), &json!(2))
    );
    assert_eq!(server.get("/slots").ok().as_array().unwrap().len(), 2);
}

#[test]
fn figures_count() {
    let server = Running::shared();
    server.ok("/completion", json!({"prompt": "A king", "n_predict": 3}));
    let text = server.get("/metrics").text;
    let value = |name: &str| -> f64 {
        let line = text.lines().find(|line| line.starts_with(name));
        let line = line.unwrap_or_else(|| panic!("no {name} in {text}"));
        line.rsplit(' ').next().unwrap().parse().unwrap()
    };
    for name in [
        "rustorch_requests_running{model=\"classics\"}",
        "rustorch_requests_waiting{model=\"classics\"}",
        "rustorch_prefix_cached_tokens_total{model=\"classics\"}",
        "rustorch_fallbacks_total ",
    ] {
        assert!(value(name) >= 0.0);
    }
    assert!(value("rustorch_generated_tokens_total{model=\"classics\"}") >= 3.0);
    assert!(value("rustorch_time_to_first_token_seconds_count{model=\"classics\"}") >= 1.0);
    assert!(value("rustorch_time_between_tokens_seconds_count{model=\"classics\"}") >= 2.0);
}
