//! Vectors of texts. The bundled model makes texts, and its vectors are those of an `Encoder`.

use rustorch_gguf::Gguf;
use rustorch_llm::{Encoder, EncoderOptions, Model};
use serde_json::{Value, json};

use crate::client::{MODEL, Running};

const TEXTS: [&str; 2] = ["The king sat on his throne.", "A whale"];

fn expected() -> Vec<Vec<f32>> {
    let model = Model::load(Gguf::from_static(rustorch_classics::MODEL).unwrap()).unwrap();
    let options = EncoderOptions::default();
    let mut encoder = Encoder::new(&model, &rustorch_tensor::runtime(), options).unwrap();
    encoder.embed(&TEXTS).unwrap()
}

#[track_caller]
fn close(value: &Value, expected: &[f32]) {
    let value: Vec<f32> = serde_json::from_value(value.clone()).unwrap();
    assert_eq!(value.len(), expected.len());
    let difference = value.iter().zip(expected).map(|(a, b)| (a - b).abs());
    assert!(difference.fold(0.0, f32::max) < 1e-4);
}

#[test]
fn all_interfaces_give_the_encoders_vectors() {
    let server = Running::shared();
    let expected = expected();
    let openai = server.ok("/v1/embeddings", json!({"model": MODEL, "input": TEXTS}));
    let native = server.ok("/embeddings", json!({"content": TEXTS}));
    let ollama = server.ok("/api/embed", json!({"input": TEXTS, "keep_alive": "5m"}));
    for (index, expected) in expected.iter().enumerate() {
        assert_eq!(openai["data"][index]["index"], index);
        close(&openai["data"][index]["embedding"], expected);
        close(&native[index]["embedding"][0], expected);
        close(&ollama["embeddings"][index], expected);
    }
    let one = server.ok("/api/embeddings", json!({"prompt": TEXTS[0]}));
    close(&one["embedding"], &expected[0]);
    let counted: usize = TEXTS
        .iter()
        .map(|text| {
            let asked = json!({"content": text, "add_special": true});
            let ids = server.ok("/tokenize", asked);
            ids["tokens"].as_array().unwrap().len()
        })
        .sum();
    assert_eq!(openai["usage"]["prompt_tokens"], counted);
    assert_eq!(openai["usage"]["total_tokens"], counted);
    assert_eq!(ollama["prompt_eval_count"], counted);
    // Token ids, and another scaling.
    let ids = server.ok(
        "/tokenize",
        json!({"content": TEXTS[0], "add_special": true}),
    );
    let by_ids = server.ok("/v1/embeddings", json!({"input": ids["tokens"]}));
    close(&by_ids["data"][0]["embedding"], &expected[0]);
    let raw = server.ok(
        "/embedding",
        json!({"content": TEXTS[0], "embd_normalize": -1}),
    );
    let raw: Vec<f32> = serde_json::from_value(raw[0]["embedding"][0].clone()).unwrap();
    let size = raw.iter().map(|x| x * x).sum::<f32>().sqrt();
    assert!((size - 1.0).abs() > 1e-3);
    let scaled: Vec<f32> = raw.iter().map(|x| x / size).collect();
    close(&json!(scaled), &expected[0]);
}

#[test]
fn base64_has_the_same_numbers() {
    let server = Running::shared();
    let ask = |format: &str| {
        let asked = json!({"input": TEXTS[1], "encoding_format": format});
        server.ok("/v1/embeddings", asked)["data"][0]["embedding"].clone()
    };
    let numbers: Vec<f32> = serde_json::from_value(ask("float")).unwrap();
    let text = ask("base64");
    let text = text.as_str().unwrap();
    let digit = |byte: u8| match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let mut bytes = Vec::new();
    let (mut bits, mut count) = (0_u32, 0);
    for byte in text.bytes().filter(|&byte| byte != b'=') {
        bits = bits << 6 | u32::from(digit(byte));
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    let read: Vec<f32> = bytes
        .as_chunks::<4>()
        .0
        .iter()
        .map(|&it| f32::from_le_bytes(it))
        .collect();
    assert_eq!(read, numbers);
}

#[test]
fn wrong_requests_are_refused() {
    let server = Running::shared();
    let long = "king ".repeat(3000);
    for (path, body, words) in [
        ("/v1/embeddings", json!({}), "input"),
        ("/v1/embeddings", json!({"input": []}), "0 prompts"),
        (
            "/v1/embeddings",
            json!({"input": {"content": "x"}}),
            "expected a text",
        ),
        (
            "/v1/embeddings",
            json!({"input": "x", "dimensions": 3}),
            "are not cut",
        ),
        (
            "/v1/embeddings",
            json!({"input": "x", "encoding_format": "x"}),
            "encoding_format",
        ),
        ("/v1/embeddings", json!({"input": [99999]}), "99999"),
        (
            "/v1/embeddings",
            json!({"input": long}),
            "is too large: at most 512 tokens fit",
        ),
        (
            "/api/embed",
            json!({"input": long, "truncate": false}),
            "is too large",
        ),
        ("/embeddings", json!({"content": "x", "other": 1}), "other"),
        ("/rerank", json!({"query": "x"}), "documents"),
        (
            "/rerank",
            json!({"query": "x", "documents": []}),
            "0 documents",
        ),
        (
            "/rerank",
            json!({"query": "x", "documents": [1, 2]}),
            "documents",
        ),
        (
            "/rerank",
            json!({"query": "x", "documents": "y"}),
            "documents",
        ),
        (
            "/v1/rerank",
            json!({"query": "x", "documents": ["y"]}),
            "rank",
        ),
    ] {
        let reply = server.post(path, &body);
        assert_eq!(reply.status, 400, "{path}: {}", reply.text);
        assert!(reply.text.contains(words), "{path}: {}", reply.text);
    }
    // Fields of other rerankers are known: the model alone is at fault.
    let known = json!({"query": "x", "documents": ["y"], "max_tokens_per_doc": 9, "truncate": true,
        "truncation_direction": "right", "raw_scores": true});
    let reply = server.post("/v1/rerank", &known);
    assert_eq!(reply.status, 400);
    assert!(reply.text.contains("pooling"), "{}", reply.text);
    // ollama cuts.
    let cut = server.ok("/api/embed", json!({"input": long}));
    assert_eq!(cut["prompt_eval_count"], 512);
}
