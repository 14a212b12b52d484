//! Options of the server and its models.

use serde_json::json;

use crate::client::{MODEL, Running};

#[test]
fn requests_leave_values_to_the_server() {
    let server = Running::changed(
        |it| {
            it.defaults.sampler.seed = Some(42);
            it.defaults.max_tokens = Some(3);
            it.tags = vec!["small".to_owned()];
        },
        |_| {},
    );
    let text = || server.ok("/completion", json!({"prompt": "Once"}));
    let first = text();
    assert_eq!(
        (&first["tokens_predicted"], &first["content"]),
        (&json!(3), &text()["content"])
    );
    let settings = &first["generation_settings"];
    assert_eq!(
        (&settings["seed"], &settings["n_predict"]),
        (&json!(42), &json!(3))
    );
    let more = server.ok(
        "/completion",
        json!({"prompt": "Once", "n_predict": 5, "seed": 1}),
    );
    assert_eq!(
        (
            &more["tokens_predicted"],
            &more["generation_settings"]["seed"]
        ),
        (&json!(5), &json!(1))
    );
    let chat = json!({"messages": [{"role": "user", "content": "Hi"}]});
    assert_eq!(
        server.ok("/v1/chat/completions", chat)["usage"]["completion_tokens"],
        3
    );
    assert_eq!(
        server.get("/props").ok()["default_generation_settings"]["params"]["seed"],
        42
    );
    assert_eq!(
        server.get("/models").ok()["data"][0]["tags"],
        json!(["small"])
    );
}

#[test]
fn a_full_context_may_be_shifted() {
    let server = Running::changed(|it| it.defaults.context_shift = true, |_| {});
    let body =
        json!({"prompt": "Once upon a time", "n_predict": 300, "ignore_eos": true, "n_keep": 4});
    let reply = server.ok("/completion", body.clone());
    assert_eq!(
        (&reply["tokens_predicted"], &reply["truncated"]),
        (&json!(300), &json!(true))
    );
    let plain = Running::changed(|_| {}, |_| {});
    let reply = plain.post("/completion", &body);
    assert_eq!(reply.header("x-rustorch-ignored"), Some("n_keep"));
    assert!(reply.ok()["tokens_predicted"].as_u64().unwrap() < 128);
}

#[test]
fn the_first_model_may_answer_for_all() {
    let server = Running::changed(|_| {}, |it| it.features.any_model = true);
    let body = json!({"model": "gpt-9", "prompt": "Once", "max_tokens": 1});
    assert_eq!(server.ok("/v1/completions", body)["model"], MODEL);
}

#[test]
fn the_page_may_be_left_out() {
    let server = Running::changed(|_| {}, |it| it.features.page = false);
    assert_eq!(server.get("/").status, 404);
    assert_eq!(server.get("/page/main.js").status, 404);
    assert_eq!(server.get("/health").status, 200);
}

#[test]
fn listed_origins_may_ask() {
    let server = Running::changed(
        |_| {},
        |it| it.origins = "http://a.example".parse().unwrap(),
    );
    let ask = |method: &str, origin: &str| {
        let headers = [
            ("Origin", origin),
            ("Access-Control-Request-Method", "POST"),
        ];
        server.send(method, "/v1/models", &headers, b"")
    };
    let allowed = "Access-Control-Allow-Origin";
    for method in ["GET", "OPTIONS"] {
        let reply = ask(method, "http://a.example");
        assert_eq!(
            (reply.status, reply.header(allowed)),
            (200, Some("http://a.example"))
        );
        assert_eq!(reply.header("vary"), Some("Origin"));
    }
    let methods = ask("OPTIONS", "http://a.example");
    assert_eq!(
        methods.header("access-control-allow-methods"),
        Some("GET, POST, DELETE, OPTIONS")
    );
    let refused = ask("GET", "http://b.example");
    assert_eq!((refused.status, refused.header(allowed)), (403, None));
    assert_eq!(ask("OPTIONS", "http://b.example").header(allowed), None);
}

#[test]
fn figures_have_llama_servers_names() {
    let server = Running::changed(|_| {}, |_| {});
    let ask = || {
        server.ok(
            "/completion",
            json!({"prompt": "Once upon a time", "n_predict": 4}),
        )
    };
    let prompt = ask()["tokens_evaluated"].as_f64().unwrap();
    ask();
    let reply = server.get("/metrics");
    assert!(reply.header("process-start-time-unix").is_some());
    let figure = |name: &str| {
        let prefix = format!("llamacpp:{name} ");
        let line = reply
            .text
            .lines()
            .find_map(|line| line.strip_prefix(&prefix));
        line.unwrap().parse::<f64>().unwrap()
    };
    assert_eq!(figure("tokens_predicted_total"), 8.0);
    assert_eq!(figure("prompt_tokens_cached_total"), prompt - 1.0);
    assert!(figure("prompt_seconds_total") > 0.0 && figure("n_decode_total") >= 4.0);
    assert_eq!(figure("n_tokens_max"), prompt + 4.0);
}

/// A panel of the dashboard shows each of the server's own figures, and no other.
#[test]
fn the_dashboard_shows_all_figures() {
    let dashboard = include_str!("../../../../packaging/server/grafana.json");
    serde_json::from_str::<serde_json::Value>(dashboard).unwrap();
    let text = Running::shared().get("/metrics").text;
    let names = text.lines().filter_map(|line| {
        let name = line.strip_prefix("# TYPE ")?.split(' ').next()?;
        name.strip_prefix("rustorch_")
    });
    let names: std::collections::BTreeSet<&str> = names.collect();
    let shown = dashboard.split("rustorch_").skip(1).map(|rest| {
        let end = rest.find(|it: char| !it.is_ascii_lowercase() && it != '_');
        rest[..end.unwrap()].trim_end_matches("_bucket")
    });
    assert_eq!(shown.collect::<std::collections::BTreeSet<_>>(), names);
}

#[test]
fn predictions_come_in_their_order() {
    let server = Running::shared();
    let chat = |tokens: usize| {
        let messages = json!([{"role": "user", "content": "Hi"}]);
        json!({"@requestFormat": "chatCompletions", "messages": messages, "max_tokens": tokens})
    };
    let reply = server.ok("/predict", json!({"instances": [chat(3), chat(1)]}));
    let counts = reply["predictions"].as_array().unwrap().iter();
    let counts: Vec<_> = counts
        .map(|it| it["usage"]["completion_tokens"].as_u64().unwrap())
        .collect();
    assert_eq!(counts, [3, 1]);
    for (body, param) in [
        (json!({}), "instances"),
        (json!({"instances": []}), "instances"),
        (json!({"instances": [chat(1), 3]}), "instances[1]"),
        (json!({"instances": [{"messages": []}]}), "instances[0]"),
    ] {
        let reply = server.post("/predict", &body);
        assert_eq!(
            (reply.status, reply.json()["error"]["param"].as_str()),
            (400, Some(param))
        );
    }
}

#[cfg(target_os = "linux")]
#[test]
fn several_addresses_share_a_port() {
    let server = Running::changed(|_| {}, |it| it.host = "127.0.0.1, 127.0.0.2".to_owned());
    let port = server.address.port();
    for address in ["127.0.0.1", "127.0.0.2"] {
        assert!(
            std::net::TcpStream::connect((address, port)).is_ok(),
            "{address}"
        );
    }
}
