//! OpenAI's texts.

use serde_json::{Value, json};

use crate::client::{MODEL, Running};

const PROMPT: &str = "Once upon a time there was a king who";

fn text(reply: &Value) -> &str {
    reply["choices"][0]["text"].as_str().unwrap()
}

fn greedy(more: Value) -> Value {
    let mut body = json!({"model": MODEL, "prompt": PROMPT, "max_tokens": 12, "temperature": 0});
    let more = more.as_object().unwrap().clone();
    body.as_object_mut().unwrap().extend(more);
    body
}

/// The tokens that llama.cpp chose for the prompt.
fn expected() -> Vec<u64> {
    let golden = rustorch_classics::goldens::Q4_K_M.lines().next().unwrap();
    let golden: Value = serde_json::from_str(golden).unwrap();
    assert_eq!(golden["prompt"], PROMPT);
    let steps = golden["steps"].as_array().unwrap();
    steps
        .iter()
        .map(|step| step["id"].as_u64().unwrap())
        .collect()
}

#[test]
fn the_text_is_llama_cpps() {
    let server = Running::shared();
    let body = json!({"prompt": PROMPT, "n_predict": 8, "temperature": 0, "return_tokens": true});
    let reply = server.ok("/completion", body);
    let tokens: Vec<u64> = serde_json::from_value(reply["tokens"].clone()).unwrap();
    assert_eq!(tokens, expected()[..8]);
    let whole = server.ok("/v1/completions", greedy(json!({"max_tokens": 8})));
    assert_eq!(text(&whole), reply["content"].as_str().unwrap());
    assert_eq!(whole["choices"][0]["finish_reason"], "length");
    assert_eq!(whole["usage"]["completion_tokens"], 8);
    assert_eq!(whole["usage"]["prompt_tokens"], 11);
    assert_eq!(whole["usage"]["total_tokens"], 19);
    assert_eq!(whole["object"], "text_completion");
    assert_eq!(whole["model"], MODEL);
    // Token ids are a prompt, too.
    let ids = server.ok("/tokenize", json!({"content": PROMPT, "add_special": true}));
    let by_ids = server.ok(
        "/v1/completions",
        greedy(json!({"prompt": ids["tokens"], "max_tokens": 8})),
    );
    assert_eq!(text(&by_ids), text(&whole));
}

#[test]
fn a_stream_says_the_same() {
    let server = Running::shared();
    let whole = server.ok("/v1/completions", greedy(json!({})));
    let options = json!({"stream": true, "stream_options": {"include_usage": true}});
    let reply = server.post("/v1/completions", &greedy(options));
    assert!(reply.text.ends_with("data: [DONE]\n\n"));
    let events = reply.events();
    let (usage, chunks) = events.split_last().unwrap();
    assert_eq!(usage["choices"], json!([]));
    let counts = ["prompt_tokens", "completion_tokens", "total_tokens"];
    assert!(
        counts
            .iter()
            .all(|count| usage["usage"][count] == whole["usage"][count])
    );
    let said: String = chunks.iter().map(text).collect();
    assert_eq!(said, text(&whole));
    assert!(
        chunks
            .iter()
            .all(|chunk| chunk["usage"].is_null() && chunk["id"] == usage["id"])
    );
    assert_eq!(
        chunks.last().unwrap()["choices"][0]["finish_reason"],
        "length"
    );
}

#[test]
fn several_prompts_and_choices() {
    let server = Running::shared();
    let body = json!({"prompt": [PROMPT, "The sea"], "n": 2, "seed": 7, "max_tokens": 6, "temperature": 1.0});
    let reply = server.ok("/v1/completions", body.clone());
    let choices = reply["choices"].as_array().unwrap();
    assert_eq!(choices.len(), 4);
    assert!(
        choices
            .iter()
            .enumerate()
            .all(|(index, choice)| choice["index"] == index)
    );
    assert_ne!(choices[0]["text"], choices[1]["text"]);
    assert_eq!(reply["usage"]["completion_tokens"], 24);
    // The same seed says the same, also in a stream.
    let mut streamed = body;
    streamed["stream"] = true.into();
    let events = server.post("/v1/completions", &streamed).events();
    for choice in choices {
        let parts = events.iter().map(|event| &event["choices"][0]);
        let parts = parts.filter(|part| part["index"] == choice["index"]);
        let said: String = parts.map(|part| part["text"].as_str().unwrap()).collect();
        assert_eq!(said, choice["text"].as_str().unwrap());
    }
}

#[test]
fn stop_texts_end_a_text() {
    let server = Running::shared();
    let whole = server.ok("/v1/completions", greedy(json!({})));
    let word = text(&whole).split_whitespace().nth(3).unwrap().to_owned();
    let stopped = server.ok(
        "/v1/completions",
        greedy(json!({"stop": [word, "never there"]})),
    );
    assert_eq!(text(&stopped), text(&whole).split(&word).next().unwrap());
    assert_eq!(stopped["choices"][0]["finish_reason"], "stop");
    let body = json!({"prompt": PROMPT, "n_predict": 12, "temperature": 0, "stop": [word]});
    let native = server.ok("/completion", body);
    assert_eq!(
        (&native["stop_type"], &native["stopping_word"]),
        (&json!("word"), &json!(word))
    );
}

#[test]
fn log_probabilities_are_of_the_model() {
    let server = Running::shared();
    let reply = server.ok(
        "/v1/completions",
        greedy(json!({"logprobs": 3, "echo": true})),
    );
    let choice = &reply["choices"][0];
    let said = choice["text"].as_str().unwrap();
    assert!(said.starts_with(PROMPT), "{said}");
    let list = |name: &str| choice["logprobs"][name].as_array().unwrap().clone();
    let (tokens, logprobs, top) = (list("tokens"), list("token_logprobs"), list("top_logprobs"));
    assert_eq!((tokens.len(), logprobs.len(), top.len()), (23, 23, 23));
    assert!(logprobs[0].is_null() && top[0] == json!({}));
    for at in 1..23 {
        let logprob = logprobs[at].as_f64().unwrap();
        let best = top[at]
            .as_object()
            .unwrap()
            .values()
            .map(|it| it.as_f64().unwrap());
        let best = best.fold(f64::NEG_INFINITY, f64::max);
        assert!(logprob <= best + 1e-6 && logprob < 0.0);
        // The greedy text is of the best tokens.
        assert!(
            at < 11 || (logprob - best).abs() < 1e-6,
            "{at}: {logprob} {best}"
        );
    }
    // A prompt alone is scored without a new token.
    let scored = server.ok(
        "/v1/completions",
        greedy(json!({"logprobs": 1, "echo": true, "max_tokens": 0})),
    );
    let scored = &scored["choices"][0];
    assert_eq!(scored["text"], PROMPT);
    let prompt_logprobs = scored["logprobs"]["token_logprobs"].as_array().unwrap();
    assert_eq!(prompt_logprobs.len(), 11);
    for (one, other) in prompt_logprobs.iter().zip(&logprobs).skip(1) {
        assert!((one.as_f64().unwrap() - other.as_f64().unwrap()).abs() < 1e-3);
    }
}

#[test]
fn forms_and_biases_are_held_to() {
    let server = Running::shared();
    let schema = json!({"type": "object", "properties": {"n": {"enum": [1, 2]}}, "required": ["n"], "additionalProperties": false});
    let format = json!({"type": "json_schema", "json_schema": {"name": "n", "schema": schema}});
    let reply = server.ok(
        "/v1/completions",
        greedy(json!({"response_format": format, "max_tokens": 40})),
    );
    let made: Value = serde_json::from_str(text(&reply)).unwrap();
    assert!(made == json!({"n": 1}) || made == json!({"n": 2}), "{made}");
    assert_eq!(reply["choices"][0]["finish_reason"], "stop");
    let reply = server.ok(
        "/v1/completions",
        greedy(json!({"grammar": "root ::= \" yes\" | \" no\""})),
    );
    assert!([" yes", " no"].contains(&text(&reply)));
    let first = expected()[0].to_string();
    let reply = server.ok("/completion", json!({
        "prompt": PROMPT, "n_predict": 1, "temperature": 0, "return_tokens": true, "logit_bias": {first: -100},
    }));
    assert_ne!(reply["tokens"][0], expected()[0]);
    let reply = server.ok(
        "/v1/completions",
        greedy(json!({"samplers": ["top_k", "temperature"], "top_k": 1})),
    );
    assert_eq!(
        text(&reply),
        text(&server.ok("/v1/completions", greedy(json!({}))))
    );
}

#[test]
fn wrong_fields_are_named() {
    let server = Running::shared();
    for (more, param, words) in [
        (json!({"prompt": null}), "prompt", "missing"),
        (json!({"prompt": 3}), "prompt", "expected a text"),
        (json!({"prompt": [99999]}), "prompt", "99999"),
        (json!({"max_tokens": -2}), "max_tokens", "expected -1"),
        (json!({"n_predict": -2}), "n_predict", "expected -1"),
        (json!({"temperature": "hot"}), "temperature", "finite"),
        (json!({"top_p": 1.5}), "top_p", "0 to 1"),
        (json!({"n": 0}), "n", "1 to 128"),
        (json!({"seed": -5}), "seed", "expected -1"),
        (json!({"logprobs": 1000}), "logprobs", "0 to 100"),
        (json!({"best_of": 3}), "best_of", "value of n"),
        (json!({"suffix": "x"}), "suffix", "in the middle"),
        (json!({"logit_bias": {"99999": 1}}), "logit_bias", "99999"),
        (
            json!({"response_format": {"type": "x"}}),
            "response_format.type",
            "unknown variant",
        ),
        (
            json!({"response_format": {"type": "json_object"}, "grammar": "root ::= \"a\""}),
            "grammar",
            "give one",
        ),
        (
            json!({"stream_options": {"usage": true}}),
            "stream_options.usage",
            "unknown field",
        ),
        (json!({"wonder": 1}), "wonder", "unknown field"),
        (json!({"model": 7}), "model", "string"),
    ] {
        let reply = server.post("/v1/completions", &greedy(more.clone()));
        let error = &reply.json()["error"];
        assert_eq!(reply.status, 400, "{more}: {error}");
        assert_eq!(error["param"], param, "{more}: {error}");
        assert_eq!(error["type"], "invalid_request_error");
        assert!(
            error["message"].as_str().unwrap().contains(words),
            "{more}: {error}"
        );
    }
    let reply = server.post("/v1/completions", &greedy(json!({"model": "gpt-9"})));
    assert_eq!(reply.status, 404);
    let error = &reply.json()["error"];
    assert_eq!(
        (&error["param"], &error["code"]),
        (&json!("model"), &json!("model_not_found"))
    );
    assert!(
        error["message"]
            .as_str()
            .unwrap()
            .contains("classics, other")
    );
    let long = "king ".repeat(600);
    let error = server
        .post("/v1/completions", &greedy(json!({"prompt": long})))
        .json();
    assert_eq!(error["error"]["code"], "context_length_exceeded");
    assert_eq!(error["error"]["type"], "exceed_context_size_error");
    assert_eq!(error["error"]["n_ctx"], 512);
    assert!(error["error"]["n_prompt_tokens"].as_u64().unwrap() > 600);
    for path in ["/v1/completions", "/completion"] {
        let reply = server.post(path, &json!({"prompt": ["a", "king ".repeat(600)]}));
        assert_eq!(
            reply.json()["error"]["code"],
            "context_length_exceeded",
            "{path}"
        );
    }
    let messages = json!([{"role": "user", "content": "king ".repeat(600)}]);
    let reply = server.post(
        "/v1/chat/completions",
        &json!({"messages": messages, "n": 9}),
    );
    assert_eq!(reply.json()["error"]["code"], "context_length_exceeded");
    // Counting is no answer.
    let counted = server.ok(
        "/v1/chat/completions/input_tokens",
        json!({"messages": messages}),
    );
    assert!(counted["input_tokens"].as_u64().unwrap() > 600);
    let many = json!({"prompt": vec!["a"; 17], "n": 128});
    let error = server.post("/v1/completions", &greedy(many)).json();
    assert_eq!(error["error"]["param"], "n", "{error}");
    // Hints change nothing, and are listed.
    let reply = server.post(
        "/v1/completions",
        &greedy(json!({"user": "me", "store": false})),
    );
    assert_eq!(reply.header("x-rustorch-ignored"), Some("store, user"));
}
