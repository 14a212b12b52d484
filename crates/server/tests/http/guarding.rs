//! Keys, hosts, sizes, broken requests, clients that leave, and the end.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use rustorch_server::Keys;
use serde_json::json;

use crate::client::Running;

#[test]
fn keys_hosts_and_origins() {
    let server = Running::new(Keys::of("secret\n"), 1, 1, 128);
    let status =
        |path: &str, headers: &[(&str, &str)]| server.send("GET", path, headers, b"").status;
    assert_eq!(status("/health", &[]), 200);
    assert_eq!(status("/v1/models", &[]), 401);
    assert_eq!(
        status("/v1/models", &[("Authorization", "Bearer wrong")]),
        401
    );
    assert_eq!(
        status("/v1/models", &[("Authorization", "Bearer secret")]),
        200
    );
    assert_eq!(status("/v1/models", &[("x-api-key", "secret")]), 200);
    let error = server.send("GET", "/v1/models", &[], b"").json();
    assert_eq!(error["error"]["type"], "authentication_error");
    assert_eq!(status("/health", &[("Host", "evil.example")]), 403);
    assert_eq!(
        status("/health", &[("Origin", "https://evil.example")]),
        403
    );
}

#[test]
fn broken_requests_get_clear_answers() {
    let server = Running::shared();
    let status = |body: &[u8]| {
        let reply = server.send("POST", "/v1/chat/completions", &[], body);
        assert!(reply.json()["error"]["message"].is_string());
        reply.status
    };
    assert_eq!(status(b"{\"messages\": \"\xff\xfe\"}"), 400);
    assert_eq!(status("[".repeat(100_000).as_bytes()), 400);
    assert_eq!(
        status(format!("{{\"messages\": {}", "{\"a\":".repeat(100_000)).as_bytes()),
        400
    );
    assert_eq!(status(b"null"), 400);
    assert_eq!(status(b""), 400);
    assert_eq!(server.get("/nothing").status, 404);
    assert_eq!(server.get("/v1/completions").status, 405);
    // A body that is announced, and does not come.
    let mut half = TcpStream::connect(server.address).unwrap();
    write!(
        half,
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\n{{"
    )
    .unwrap();
    drop(half);
    // Others are answered.
    assert_eq!(server.get("/health").status, 200);
}

#[test]
fn large_bodies_are_refused() {
    let server = Running::shared();
    let mut stream = TcpStream::connect(server.address).unwrap();
    let size = 100 << 20;
    write!(
        stream,
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {size}\r\n\r\n"
    )
    .unwrap();
    let piece = vec![b' '; 1 << 20];
    // The server may close as soon as it knows.
    for _ in 0..100 {
        if stream.write_all(&piece).is_err() {
            break;
        }
    }
    let mut reply = [0; 12];
    if stream.read_exact(&mut reply).is_ok() {
        assert_eq!(&reply, b"HTTP/1.1 413");
    }
    assert_eq!(server.get("/health").status, 200);
}

/// Requests that run and wait.
fn busy(server: &Running) -> f64 {
    let text = server.get("/metrics").text;
    let lines = text.lines().filter(|line| {
        line.starts_with("rustorch_requests_running{")
            || line.starts_with("rustorch_requests_waiting{")
    });
    lines
        .map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap())
        .sum()
}

fn wait(what: &str, done: impl Fn() -> bool) {
    let begin = Instant::now();
    while !done() {
        assert!(begin.elapsed() < Duration::from_secs(20), "{what}");
        thread::sleep(Duration::from_millis(20));
    }
}

const ENDLESS: &str =
    r#"{"prompt": "Once", "max_tokens": 100000, "ignore_eos": true, "stream": true}"#;

#[test]
fn a_client_that_leaves_costs_nothing() {
    let server = Running::new(Keys::none(), 1, 8, 1 << 17);
    let mut first = server.begin("POST", "/v1/completions", &[], ENDLESS.as_bytes());
    let mut some = [0; 400];
    first.read_exact(&mut some).unwrap();
    // One that waits, and one that is not streamed.
    let waiting = server.begin("POST", "/v1/completions", &[], ENDLESS.as_bytes());
    let whole = ENDLESS.replace(", \"stream\": true", "");
    let unstreamed = server.begin("POST", "/v1/completions", &[], whole.as_bytes());
    wait("all are there", || busy(&server) >= 3.0);
    drop((first, waiting, unstreamed));
    wait("all are gone", || busy(&server) < 1.0);
}

#[test]
fn a_full_queue_is_told() {
    let server = Running::new(Keys::none(), 1, 1, 1 << 17);
    let streams: Vec<TcpStream> = (0..2)
        .map(|count| {
            let stream = server.begin("POST", "/v1/completions", &[], ENDLESS.as_bytes());
            wait("it is there", || busy(&server) > f64::from(count));
            stream
        })
        .collect();
    let reply = server.post("/v1/completions", &json!({"prompt": "Once"}));
    assert_eq!(
        (reply.status, reply.header("retry-after")),
        (429, Some("1"))
    );
    assert_eq!(reply.json()["error"]["code"], "queue_full");
    drop(streams);
}

#[test]
fn the_end_waits_for_answers() {
    let server = Running::new(Keys::none(), 1, 1, 512);
    let body = r#"{"prompt": "Once", "max_tokens": 200, "ignore_eos": true, "stream": true}"#;
    let mut stream = server.begin("POST", "/v1/completions", &[], body.as_bytes());
    let mut begun = vec![0; 200];
    stream.read_exact(&mut begun).unwrap();
    server.stopper().stop();
    let mut rest = String::new();
    stream.read_to_string(&mut rest).unwrap();
    assert!(
        rest.contains("\"finish_reason\":\"length\"") && rest.contains("[DONE]"),
        "{rest}"
    );
    server.join();
}
