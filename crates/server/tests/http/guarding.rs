//! Keys, hosts, sizes, broken requests, clients that leave, and the end.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use rustorch_server::{Keys, Limits};
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
    let refused = server.send("GET", "/v1/models", &[], b"");
    assert_eq!(refused.json()["error"]["type"], "authentication_error");
    assert_eq!(refused.header("www-authenticate"), Some("Bearer"));
    for path in ["/v1/models", "/health", "/", "/nothing"] {
        let reply = server.get(path);
        assert_eq!(
            reply.header("x-content-type-options"),
            Some("nosniff"),
            "{path}"
        );
    }
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
    assert_eq!(
        status(format!("{{\"messages\": \"{}", "a".repeat(1 << 20)).as_bytes()),
        400
    );
    assert_eq!(status(b"null"), 400);
    assert_eq!(status(b""), 400);
    assert_eq!(server.get("/nothing").status, 404);
    assert_eq!(server.get("/v1/completions").status, 405);
    for path in ["/v1/models/%ff", "/page/%ff"] {
        let reply = server.get(path);
        let error = &reply.json()["error"];
        assert_eq!(
            (reply.status, &error["type"]),
            (400, &json!("invalid_request_error")),
            "{path}"
        );
    }
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
fn more_than_the_queue_can_hold_is_no_reason_to_wait() {
    let server = Running::new(Keys::none(), 1, 2, 128);
    let messages = json!([{"role": "user", "content": "a"}]);
    for (path, body, param) in [
        (
            "/v1/completions",
            json!({"prompt": ["a", "b", "c", "d"]}),
            "prompt",
        ),
        (
            "/v1/completions",
            json!({"prompt": ["a", "b"], "n": 2}),
            "n",
        ),
        (
            "/completion",
            json!({"prompt": ["a", "b", "c", "d"]}),
            "prompt",
        ),
        (
            "/v1/chat/completions",
            json!({"messages": messages, "n": 4}),
            "n",
        ),
    ] {
        let reply = server.post(path, &body);
        assert_eq!(
            (reply.status, reply.header("retry-after")),
            (400, None),
            "{path}"
        );
        assert_eq!(reply.json()["error"]["param"], param, "{path}");
    }
    let three = json!({"prompt": ["a", "b", "c"], "max_tokens": 1});
    server.ok("/v1/completions", three);
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

/// The status of what comes until the server closes the connection; 0 if it is nothing.
fn status_until_close(mut stream: TcpStream) -> u16 {
    let mut reply = Vec::new();
    // A server that has not read all resets the connection. One that keeps it open is at fault.
    if let Err(error) = stream.read_to_end(&mut reply) {
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    }
    let text = String::from_utf8_lossy(&reply);
    let status = text.split(' ').nth(1);
    status.map_or(0, |status| status.parse().unwrap())
}

#[test]
fn heads_have_limits() {
    let limits = Limits {
        head_time: Duration::from_millis(300),
        body_time: Duration::from_millis(300),
        ..Limits::default()
    };
    let server = Running::limited(Keys::none(), 1, 1, 128, limits);
    let connect = |text: &str| {
        let mut stream = TcpStream::connect(server.address).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        // The server may close as soon as it knows.
        let _ = stream.write_all(text.as_bytes());
        stream
    };
    // Heads that never end, slowly and at once; a body that does not come; no HTTP.
    for text in [
        "",
        "GET /health HT",
        "GET /health HTTP/1.1\r\nHost: localhost\r\n",
    ] {
        assert!(
            [0, 408].contains(&status_until_close(connect(text))),
            "{text}"
        );
    }
    let body = "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 9\r\n\r\n{";
    assert_eq!(status_until_close(connect(body)), 408);
    let long = format!(
        "GET /health HTTP/1.1\r\nHost: localhost\r\nX-Long: {}\r\n\r\n",
        "x".repeat(1 << 20)
    );
    assert!([0, 431].contains(&status_until_close(connect(&long))));
    let many = format!(
        "GET /health HTTP/1.1\r\nHost: localhost\r\n{}\r\n",
        "X: y\r\n".repeat(5000)
    );
    assert!([0, 431].contains(&status_until_close(connect(&many))));
    assert_eq!(status_until_close(connect("\x16\x03\x01\0\r\n\r\n")), 400);
    assert_eq!(server.get("/health").status, 200);
}

#[test]
fn clients_that_read_nothing_are_left() {
    let limits = Limits {
        connections: 1,
        write_time: Duration::from_millis(300),
        ..Limits::default()
    };
    let server = Running::limited(Keys::none(), 1, 1, 128, limits);
    let mut deaf = TcpStream::connect(server.address).unwrap();
    // More responses than the system keeps for a client.
    let request = "GET /page/style.css HTTP/1.1\r\nHost: localhost\r\n\r\n";
    // The server may close before all is sent.
    let _ = deaf.write_all(request.repeat(8000).as_bytes());
    // Its place is free once it is closed.
    assert_eq!(server.get("/health").status, 200);
    drop(deaf);
}

#[test]
fn connections_have_a_limit() {
    let limits = Limits {
        connections: 2,
        ..Limits::default()
    };
    let server = Running::limited(Keys::none(), 1, 1, 128, limits);
    let mut held: Vec<TcpStream> = (0..2)
        .map(|_| TcpStream::connect(server.address).unwrap())
        .collect();
    // Both are accepted once they were answered.
    for stream in &mut held {
        write!(stream, "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        stream.read_exact(&mut [0; 12]).unwrap();
    }
    let mut third = TcpStream::connect(server.address).unwrap();
    write!(third, "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    third
        .set_read_timeout(Some(Duration::from_millis(300)))
        .unwrap();
    assert!(third.read_exact(&mut [0; 12]).is_err());
    held.pop();
    third
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    let mut reply = [0; 12];
    third.read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b"HTTP/1.1 200");
}
