//! Answers that llama-server's clients expect.

use serde_json::{Value, json};

use crate::client::{MODEL, Running};

fn short(more: Value) -> Value {
    let mut body = json!({"prompt": "Once upon a time", "n_predict": 6, "temperature": 0});
    let more = more.as_object().unwrap().clone();
    body.as_object_mut().unwrap().extend(more);
    body
}

#[test]
fn prompts_come_in_many_forms() {
    let server = Running::shared();
    let text = "Once upon a time";
    let one = server.ok("/completion", short(json!({})));
    let ids =
        server.ok("/tokenize", json!({"content": text, "add_special": true}))["tokens"].clone();
    let halves = server.ok(
        "/tokenize",
        json!({"content": "Once upon", "add_special": true}),
    );
    let mut mixed = halves["tokens"].as_array().unwrap().clone();
    mixed.push(json!(" a time"));
    for prompt in [
        ids.clone(),
        json!({"prompt_string": text}),
        json!({"prompt_string": text, "multimodal_data": []}),
        json!({"prompt_string": text, "multimodal_data": null}),
        json!({"content": [{"type": "text", "text": "Once upon"}, {"type": "text", "text": " a time"}]}),
        json!(mixed),
    ] {
        let reply = server.ok("/completion", short(json!({"prompt": prompt})));
        assert_eq!(reply["content"], one["content"], "{prompt}");
    }
    let several = server.ok(
        "/completion",
        short(json!({"prompt": [ids, text, {"prompt_string": text}]})),
    );
    let several = several.as_array().unwrap();
    assert_eq!(several.len(), 3);
    for (index, reply) in several.iter().enumerate() {
        assert_eq!(
            (&reply["index"], &reply["content"]),
            (&json!(index), &one["content"])
        );
    }
    let image = json!({"prompt": {"prompt_string": text, "multimodal_data": ["aaaa"]}});
    for (wrong, words) in [
        (image, "image input is not supported"),
        (
            json!({"prompt": {"prompt_string": text, "multimodal_data": "aaaa"}}),
            "image input is not supported",
        ),
        (json!({"prompt": [[1.5]]}), "expected a text"),
        (json!({"prompt": []}), "0 prompts"),
        (json!({"prompt": {"content": "x"}}), "expected a text"),
        (
            json!({"prompt": {"content": [{"type": "audio"}]}}),
            "type text",
        ),
    ] {
        let reply = server.post("/completion", &short(wrong));
        assert_eq!(reply.status, 400);
        let message = reply.json()["error"]["message"].clone();
        assert!(message.as_str().unwrap().contains(words), "{message}");
    }
}

#[test]
fn the_last_event_has_the_settings() {
    let server = Running::shared();
    let asked = short(
        json!({"seed": 42, "stop": ["never"], "ignore_eos": true, "logit_bias": [[" king", -100]]}),
    );
    let whole = server.ok("/completion", asked.clone());
    let settings = &whole["generation_settings"];
    assert_eq!(
        (&settings["n_predict"], &settings["seed"]),
        (&json!(6), &json!(42))
    );
    assert_eq!(settings["stop"], json!(["never"]));
    // The tokens of a text, and those that end a text.
    let biases = settings["logit_bias"].as_array().unwrap();
    assert!(biases.iter().any(|it| it["bias"] == -100.0));
    assert!(biases.iter().any(|it| it["bias"].is_null()));
    assert!(whole["has_new_line"].is_boolean());
    assert_eq!(whole["truncated"], false);
    assert!(
        whole["prompt"]
            .as_str()
            .unwrap()
            .ends_with("Once upon a time")
    );
    let plain = server.ok("/completion", short(json!({})));
    assert_eq!(plain["generation_settings"]["logit_bias"], json!([]));
    let fields = json!({"response_fields": ["content", "generation_settings/n_predict", "none"]});
    let chosen = server.ok("/completion", short(fields));
    assert_eq!(
        chosen,
        json!({"content": plain["content"], "generation_settings/n_predict": 6})
    );
    let mut streamed = asked;
    streamed["stream"] = true.into();
    let events = server.post("/completion", &streamed).events();
    let (last, parts) = events.split_last().unwrap();
    assert_eq!(last["generation_settings"]["n_predict"], 6);
    assert!(
        parts
            .iter()
            .all(|part| part["stop"] == false && !part["tokens"].as_array().unwrap().is_empty())
    );
}

#[test]
fn a_full_context_is_said() {
    let server = Running::shared();
    let body = json!({"prompt": "Once", "ignore_eos": true, "temperature": 0});
    let reply = server.ok("/completion", body);
    let count = |name: &str| reply[name].as_u64().unwrap();
    assert_eq!(
        (&reply["truncated"], &reply["stop_type"]),
        (&json!(true), &json!("limit"))
    );
    assert!(count("tokens_evaluated") + count("tokens_predicted") >= 512);
}

#[test]
fn progress_and_times_come_in_each_event() {
    let server = Running::new(rustorch_server::Keys::none(), 1, 4, 512);
    let prompt = "The king and the queen of the land went to the sea. ".repeat(12);
    let asked = short(
        json!({"prompt": prompt, "stream": true, "return_progress": true, "timings_per_token": true}),
    );
    for is_cached in [false, true] {
        let events = server.post("/completion", &asked).events();
        let progress: Vec<&Value> = events
            .iter()
            .filter(|it| it.get("prompt_progress").is_some())
            .collect();
        let first = &progress[0];
        assert_eq!(
            first["prompt_progress"]["processed"],
            first["prompt_progress"]["cache"]
        );
        assert_eq!(
            first["prompt_progress"]["cache"].as_u64().unwrap() > 0,
            is_cached
        );
        assert_eq!(
            (
                &first["timings"]["prompt_n"],
                &first["timings"]["prompt_ms"]
            ),
            (&json!(0), &json!(0.0))
        );
        let last = &progress.last().unwrap()["prompt_progress"];
        assert_eq!(last["processed"], last["total"]);
        let counts = events
            .iter()
            .map(|it| it["timings"]["predicted_n"].as_u64().unwrap());
        assert!(counts.is_sorted());
        for event in &events {
            let timings = event["timings"].as_object().unwrap();
            assert!(
                timings
                    .values()
                    .all(|it| it.as_f64().is_some_and(|it| it >= 0.0)),
                "{timings:?}"
            );
        }
    }
}

#[test]
fn chats_have_llama_servers_fields() {
    let server = Running::shared();
    let messages = json!([{"role": "user", "content": "Who is the king?"}]);
    let asked = json!({"messages": messages, "n_predict": 4, "temperature": 0, "cache_prompt": true, "id_slot": 0});
    let whole = server.ok("/chat/completions", asked.clone());
    assert!(
        whole["system_fingerprint"]
            .as_str()
            .unwrap()
            .starts_with('b')
    );
    assert_eq!(whole["timings"]["predicted_n"], 4);
    assert!(whole.get("__verbose").is_none());
    let mut verbose = asked.clone();
    verbose["verbose"] = true.into();
    let verbose = server.ok("/chat/completions", verbose);
    let prompt = verbose["__verbose"]["prompt"].as_str().unwrap();
    assert!(
        prompt.contains("Who is the king?") && prompt.contains("<|im_start|>"),
        "{prompt}"
    );
    let mut streamed = asked;
    streamed["stream"] = true.into();
    streamed["stream_options"] = json!({"include_usage": true});
    streamed["logprobs"] = true.into();
    streamed["top_logprobs"] = 2.into();
    let events = server.post("/chat/completions", &streamed).events();
    let delta = &events[0]["choices"][0]["delta"];
    assert!(
        delta["content"].is_null()
            && delta["role"] == "assistant"
            && events[0].get("timings").is_none()
    );
    let usage = events.last().unwrap();
    assert_eq!(
        (&usage["choices"], &usage["timings"]["predicted_n"]),
        (&json!([]), &json!(4))
    );
    for event in &events[1..events.len() - 2] {
        assert!(
            event["choices"][0]["logprobs"]["content"].is_array(),
            "{event}"
        );
    }
    let counted = server.ok(
        "/chat/completions/input_tokens",
        json!({"messages": messages}),
    );
    assert_eq!(counted["input_tokens"], whole["usage"]["prompt_tokens"]);
    let counted = server.ok(
        "/v1/responses/input_tokens",
        json!({"input": "Who is the king?"}),
    );
    assert_eq!(counted["input_tokens"], whole["usage"]["prompt_tokens"]);
    assert_eq!(
        server.ok("/responses", json!({"input": "Hi", "max_output_tokens": 2}))["object"],
        "response"
    );
}

#[test]
fn the_last_event_has_what_was_held_back() {
    let server = Running::shared();
    let whole = server.ok("/completion", short(json!({})));
    let whole = whole["content"].as_str().unwrap();
    let end = whole.chars().last().unwrap().to_string();
    let asked = short(json!({"stop": [format!("{end}<never>")], "stream": true}));
    let events = server.post("/completion", &asked).events();
    let said = |events: &[Value]| -> String {
        let texts = events.iter().map(|it| it["content"].as_str().unwrap());
        texts.collect()
    };
    assert_eq!(said(&events), whole);
    let (last, parts) = events.split_last().unwrap();
    assert_eq!(last["content"], end);
    assert!(
        parts
            .iter()
            .all(|part| !part["tokens"].as_array().unwrap().is_empty())
    );
}

#[test]
fn limits_of_tokens_have_several_names() {
    let server = Running::of_one(1, 4, 128);
    let messages = json!([{"role": "user", "content": "Hi"}]);
    let counted = |path: &str, more: Value| {
        let mut body = match path {
            "/v1/completions" => json!({"prompt": "Once upon a time"}),
            _ => json!({"messages": messages}),
        };
        body["ignore_eos"] = true.into();
        let more = more.as_object().unwrap().clone();
        body.as_object_mut().unwrap().extend(more);
        let reply = server.ok(path, body);
        reply["usage"]["completion_tokens"].as_u64().unwrap()
    };
    for path in ["/v1/completions", "/v1/chat/completions"] {
        assert!(counted(path, json!({"max_tokens": -1})) > 20, "{path}");
        assert!(counted(path, json!({"n_predict": -1})) > 20, "{path}");
        let both = json!({"max_tokens": 9, "n_predict": 3});
        assert_eq!(counted(path, both), 3, "{path}");
    }
    let both = short(json!({"n_predict": 3, "max_tokens": 9}));
    assert_eq!(server.ok("/completion", both)["tokens_predicted"], 3);
}

#[test]
fn models_have_aliases() {
    let server = Running::shared();
    let reply = server.ok(
        "/completion",
        short(json!({"model": "other-alias", "n_predict": 1})),
    );
    assert_eq!(reply["model"], "other");
    let listed = server.get("/models").ok();
    assert_eq!(
        listed["data"][0]["aliases"],
        json!([MODEL, format!("{MODEL}-alias")])
    );
    assert_eq!(listed["data"][0]["tags"], json!([]));
    let props = server.get("/props").ok();
    assert_eq!(props["model_path"], "classics.gguf");
    assert!(props["default_generation_settings"]["params"]["seed"].is_number());
}
