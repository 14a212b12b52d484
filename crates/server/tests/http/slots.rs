//! Slots, gaps in texts, and begun answers, as llama-server has them.

use serde_json::{Value, json};

use crate::client::Running;

fn asked(prompt: &str, more: Value) -> Value {
    let mut body = json!({"prompt": prompt, "n_predict": 4, "temperature": 0});
    let more = more.as_object().unwrap().clone();
    body.as_object_mut().unwrap().extend(more);
    body
}

/// Tokens of the prompt that were computed.
fn computed(reply: &Value) -> u64 {
    reply["timings"]["prompt_n"].as_u64().unwrap()
}

#[track_caller]
fn refused(server: &Running, path: &str, body: Value, param: Option<&str>, status: u16) {
    let reply = server.post(path, &body);
    assert_eq!(reply.status, status, "{body}: {}", reply.text);
    assert_eq!(
        reply.json()["error"]["param"].as_str(),
        param,
        "{body}: {}",
        reply.text
    );
}

#[test]
fn slots_are_chosen_saved_restored_and_erased() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_owned();
    let server = Running::changed(|_| {}, |it| it.features.slot_folder = Some(path.clone()));
    let text = "The king of the castle went to the sea, and";
    let in_slot = |slot: i64| server.ok("/completion", asked(text, json!({"id_slot": slot})));
    let first = in_slot(1);
    let whole = computed(&first);
    assert!(whole > 4 && first["timings"]["cache_n"] == 0);
    // The same slot has the text, and the other one does not.
    assert_eq!(computed(&in_slot(1)), 1);
    let saved = server.ok("/slots/1?action=save", json!({"filename": "one.bin"}));
    let tokens = saved["n_saved"].as_u64().unwrap();
    assert_eq!((&saved["id_slot"], tokens), (&json!(1), whole + 3));
    assert_eq!(
        saved["n_written"],
        folder.path().join("one.bin").metadata().unwrap().len()
    );
    assert_eq!(computed(&in_slot(0)), whole);
    let erased = server.ok("/slots/0?action=erase", json!({}));
    assert_eq!(erased["n_erased"], tokens);
    let restored = server.ok("/slots/0?action=restore", json!({"filename": "one.bin"}));
    assert_eq!(
        (&restored["n_restored"], &restored["n_read"]),
        (&saved["n_saved"], &saved["n_written"])
    );
    let again = in_slot(0);
    assert_eq!(
        (computed(&again), &again["content"]),
        (1, &first["content"])
    );
    let recomputed = asked(text, json!({"id_slot": 0, "cache_prompt": false}));
    let recomputed = server.ok("/completion", recomputed);
    assert_eq!(
        (computed(&recomputed), &recomputed["content"]),
        (whole, &first["content"])
    );
    let listed = server.get("/slots").ok();
    assert_eq!(listed.as_array().unwrap().len(), 2);
    assert_eq!(listed[0]["is_processing"], false);
    // One slot answers one request after the other.
    let chat = json!({"messages": [{"role": "user", "content": "Hi"}], "n": 3, "max_tokens": 2, "id_slot": 1});
    assert_eq!(
        server.ok("/v1/chat/completions", chat)["choices"]
            .as_array()
            .unwrap()
            .len(),
        3
    );
}

#[test]
fn wrong_actions_on_slots_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_owned();
    let server = Running::changed(|_| {}, |it| it.features.slot_folder = Some(path.clone()));
    std::fs::write(folder.path().join("other.bin"), "no slot").unwrap();
    let file = |name: &str| json!({"filename": name});
    refused(
        &server,
        "/slots/2?action=erase",
        json!({}),
        Some("id_slot"),
        400,
    );
    refused(
        &server,
        "/slots/x?action=erase",
        json!({}),
        Some("id_slot"),
        400,
    );
    refused(&server, "/slots/0", json!({}), Some("action"), 400);
    refused(
        &server,
        "/slots/0?action=burn",
        json!({}),
        Some("action"),
        400,
    );
    refused(
        &server,
        "/slots/0?action=save",
        json!({}),
        Some("filename"),
        400,
    );
    refused(
        &server,
        "/slots/0?action=save",
        file("../a"),
        Some("filename"),
        400,
    );
    refused(
        &server,
        "/slots/0?action=restore",
        file("none"),
        Some("filename"),
        400,
    );
    refused(
        &server,
        "/slots/0?action=save",
        json!({"filename": "a", "x": 1}),
        Some("x"),
        400,
    );
    refused(
        &server,
        "/slots/0?action=restore",
        file("other.bin"),
        Some("filename"),
        400,
    );
    for (field, value) in [
        ("id_slot", json!(2)),
        ("id_slot", json!(-2)),
        ("id_slot", json!("0")),
        ("cache_prompt", json!(1)),
        ("n_keep", json!(-2)),
        ("t_max_predict_ms", json!(-2)),
    ] {
        let mut body = asked("Once", json!({}));
        body[field] = value;
        refused(&server, "/completion", body, Some(field), 400);
    }
    let bare = Running::changed(|_| {}, |_| {});
    refused(&bare, "/slots/0?action=save", file("a"), None, 501);
    let hidden = Running::changed(|_| {}, |it| it.features.slots = false);
    assert_eq!(hidden.get("/slots").status, 501);
    refused(&hidden, "/slots/0?action=erase", json!({}), None, 501);
}

#[test]
fn keys_do_not_reach_the_slots_of_others() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_owned();
    let server = Running::changed(
        |_| {},
        |it| {
            it.keys = rustorch_server::Keys::of("one\ntwo");
            it.features.slot_folder = Some(path.clone());
        },
    );
    let ask = |key: &str, path: &str, body: Value| {
        server.send(
            "POST",
            path,
            &[("x-api-key", key)],
            body.to_string().as_bytes(),
        )
    };
    let text = asked("The king of the castle", json!({"id_slot": 0}));
    ask("one", "/completion", text).ok();
    let file = json!({"filename": "a"});
    let reply = ask("two", "/slots/0?action=save", file.clone());
    assert_eq!(reply.status, 400, "{}", reply.text);
    assert!(reply.text.contains("another key"), "{}", reply.text);
    assert!(!folder.path().join("a").exists());
    ask("one", "/slots/0?action=save", file).ok();
}

#[test]
fn gaps_are_filled() {
    let server = Running::changed(|_| {}, |_| {});
    let around = json!({
        "input_prefix": "The king said: ", "input_suffix": " and left.", "prompt": "my",
        "input_extra": [{"filename": "a.txt", "text": "A castle."}], "n_predict": 4, "temperature": 0,
    });
    let reply = server.ok("/infill", around.clone());
    let prompt = reply["prompt"].as_str().unwrap();
    let order = ["a.txt", "A castle.", "The king said: ", " and left.", "my"];
    let places: Vec<usize> = order.iter().map(|it| prompt.find(it).unwrap()).collect();
    assert!(places.is_sorted(), "{prompt}");
    assert_eq!(reply["tokens_predicted"], 4);
    let mut streamed = around;
    streamed["stream"] = true.into();
    let events = server.post("/infill", &streamed).events();
    let said: String = events
        .iter()
        .map(|it| it["content"].as_str().unwrap())
        .collect();
    assert_eq!(said, reply["content"].as_str().unwrap());
    for (extra, param) in [
        (json!({}), "input_extra[0]"),
        (json!({"filename": "a"}), "input_extra[0]"),
        (
            json!({"filename": 1, "text": "a"}),
            "input_extra[0].filename",
        ),
        (json!({"text": 1}), "input_extra[0].text"),
        (json!({"text": "a", "x": 1}), "input_extra[0].x"),
    ] {
        let reply = server.post("/infill", &json!({"input_extra": [extra]}));
        assert_eq!(reply.status, 400, "{}", reply.text);
        let found = reply.json()["error"]["param"].as_str().unwrap().to_owned();
        assert!(found.ends_with(param), "{found} for {param}");
    }
    refused(
        &server,
        "/infill",
        json!({"input_prefix": 1}),
        Some("input_prefix"),
        400,
    );
    let long = json!({"input_prefix": "king ".repeat(200)});
    assert!(
        server
            .post("/infill", &long)
            .text
            .contains("exceed_context_size_error")
    );
    let untrained = Running::shared();
    refused(
        untrained,
        "/infill",
        json!({"input_prefix": "a"}),
        None,
        501,
    );
}

#[test]
fn an_answer_goes_on_with_the_last_message() {
    let server = Running::changed(|it| it.defaults.shows_prompt = true, |_| {});
    let ask = |content: Value, more: Value| {
        let messages =
            json!([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": content}]);
        let mut body = json!({"messages": messages, "max_tokens": 2, "temperature": 0});
        let more = more.as_object().unwrap().clone();
        body.as_object_mut().unwrap().extend(more);
        server.post("/v1/chat/completions", &body)
    };
    let prompt = |content: Value, more: Value| {
        ask(content, more).ok()["__verbose"]["prompt"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let begun = "<|im_start|>assistant\nThe king";
    assert!(prompt(json!("The king"), json!({})).ends_with(begun));
    let parts = json!([{"type": "text", "text": "The"}, {"type": "text", "text": "king"}]);
    assert!(prompt(parts, json!({})).ends_with("assistant\nThe\n\nking"));
    let asked = json!({"add_generation_prompt": false, "continue_final_message": true});
    assert!(prompt(json!("The king"), asked).ends_with(begun));
    let ended = prompt(json!("The king"), json!({"continue_final_message": false}));
    assert!(
        ended.ends_with("The king<|im_end|>\n<|im_start|>assistant\n"),
        "{ended}"
    );
    let both = json!({"add_generation_prompt": true, "continue_final_message": true});
    let reply = ask(json!("a"), both);
    assert_eq!(
        (reply.status, &reply.json()["error"]["param"]),
        (400, &json!("continue_final_message"))
    );
    let body =
        json!({"messages": [{"role": "user", "content": "Hi"}], "continue_final_message": true});
    refused(
        &server,
        "/v1/chat/completions",
        body,
        Some("continue_final_message"),
        400,
    );
    // Control tokens of a begun answer stay text.
    let counted = |content: &str| {
        let messages =
            json!([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": content}]);
        let body = json!({"messages": messages});
        server.ok("/v1/chat/completions/input_tokens", body)["input_tokens"]
            .as_u64()
            .unwrap()
    };
    assert!(counted("<|end_of_text|>") > counted("a") + 2);
}

#[test]
fn probabilities_after_the_samplers_are_told() {
    let server = Running::shared();
    let more =
        json!({"n_probs": 5, "post_sampling_probs": true, "temperature": 1, "top_k": 3, "seed": 7});
    let reply = server.ok("/completion", asked("The king", more));
    let tokens = reply["completion_probabilities"].as_array().unwrap();
    assert_eq!(tokens.len(), 4);
    for token in tokens {
        let top = token["top_probs"].as_array().unwrap();
        let probs: Vec<f64> = top.iter().map(|it| it["prob"].as_f64().unwrap()).collect();
        assert!(
            (1..=3).contains(&probs.len()) && probs.is_sorted_by(|a, b| a >= b),
            "{token}"
        );
        assert!((probs.iter().sum::<f64>() - 1.0).abs() < 1e-5, "{token}");
        assert!(probs.contains(&token["prob"].as_f64().unwrap()), "{token}");
        assert!(token.get("logprob").is_none());
    }
    let greedy = json!({"n_probs": 5, "post_sampling_probs": true});
    let reply = server.ok("/completion", asked("The king", greedy));
    for token in reply["completion_probabilities"].as_array().unwrap() {
        assert_eq!(
            (&token["prob"], token["top_probs"].as_array().unwrap().len()),
            (&json!(1.0), 1)
        );
    }
}

#[test]
fn a_time_ends_an_answer_after_a_line() {
    let server = Running::new(rustorch_server::Keys::none(), 1, 4, 1 << 17);
    // Lines without end: only the time ends them.
    let body = json!({
        "prompt": "Once", "n_predict": -1, "ignore_eos": true, "t_max_predict_ms": 1, "grammar": "root ::= \"\\n\"+",
    });
    let reply = server.ok("/completion", body);
    assert_eq!(
        (&reply["stop_type"], &reply["has_new_line"]),
        (&json!("limit"), &json!(true))
    );
    let body = json!({"prompt": "Once", "n_predict": 20, "ignore_eos": true, "t_max_predict_ms": 1, "grammar": "root ::= \"a\"+"});
    assert_eq!(server.ok("/completion", body)["tokens_predicted"], 20);
}
