//! `serve`: where it listens, what its page promises, how it ends.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, ChildStderr, Command, Stdio};

use crate::documents::{blocks, repository};
use crate::support::{model_arg, program, run};

/// A server, and the rest of what it says.
struct Serving {
    child: Child,
    address: String,
    stderr: BufReader<ChildStderr>,
}

impl Serving {
    fn new(args: &[&str]) -> Self {
        let mut command = program(["serve", "-b", "cpu", "--port", "0"].iter().chain(args));
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut said = String::new();
        let address = loop {
            let mut line = String::new();
            assert!(stderr.read_line(&mut line).unwrap() > 0, "it ended: {said}");
            said += &line;
            if let Some(address) = line.trim().strip_prefix("listening on http://") {
                break address.to_owned();
            }
        };
        Self {
            child,
            address,
            stderr,
        }
    }

    /// Sends SIGTERM, waits, and returns the rest of standard error.
    fn end(mut self) -> String {
        let id = self.child.id().to_string();
        let status = Command::new("kill").args(["-TERM", &id]).status().unwrap();
        assert!(status.success());
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
        let mut rest = String::new();
        self.stderr.read_to_string(&mut rest).unwrap();
        rest
    }

    fn ask(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        reply
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
    }
}

pub(crate) fn it_says_where_it_listens_and_ends_cleanly() {
    let model = model_arg("classics-13m-f16.gguf");
    let serving = Serving::new(&["-v", "-m", &model, "-np", "2", "-c", "256"]);
    let head = format!("Host: {}\r\nConnection: close\r\n", serving.address);
    let reply = serving.ask(&format!("GET /v1/models HTTP/1.1\r\n{head}\r\n"));
    assert!(
        reply.starts_with("HTTP/1.1 200 ") && reply.contains("\"classics-13m-f16\""),
        "{reply}"
    );
    let secret = "a very secret prompt";
    let body = format!(
        "{{\"prompt\": \"{secret}\", \"max_tokens\": 150, \"ignore_eos\": true, \"stream\": true}}"
    );
    let length = body.len();
    let mut stream = TcpStream::connect(&serving.address).unwrap();
    write!(
        stream,
        "POST /v1/completions HTTP/1.1\r\n{head}Content-Length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    let mut begun = [0; 200];
    stream.read_exact(&mut begun).unwrap();
    // The answer that has begun is ended.
    let told = serving.end();
    let mut rest = String::new();
    stream.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("data: [DONE]"), "{rest}");
    assert!(told.contains("/v1/completions 200"), "{told}");
    assert!(!told.contains("secret"), "{told}");
}

/// The page's requests run as they stand, but for the port.
pub(crate) fn requests_of_the_page_are_answered() {
    let page = fs::read_to_string(repository().join("docs/server.md")).unwrap();
    let requests: Vec<String> = blocks(&page, "bash")
        .iter()
        .flat_map(|block| block.lines().map(str::to_owned).collect::<Vec<_>>())
        .collect();
    assert!(requests.len() >= 7, "{requests:?}");
    let folder = tempfile::tempdir().unwrap();
    let serving = Serving::new(&["--slot-save-path", folder.path().to_str().unwrap()]);
    for request in requests {
        let here = request.replace("127.0.0.1:8080", &serving.address);
        assert_ne!(here, request);
        let failing = here.replace("curl -s", "curl -sS --fail-with-body");
        let output = Command::new("sh")
            .args(["-euc", &failing])
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success() && !text.is_empty(),
            "{request}: {text}"
        );
    }
    serving.end();
}

pub(crate) fn keys_are_read_again() {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), "one").unwrap();
    let serving = Serving::new(&["--api-key-file", file.path().to_str().unwrap()]);
    let status = |key: &str| {
        let head = format!(
            "Host: {}\r\nConnection: close\r\nx-api-key: {key}",
            serving.address
        );
        let reply = serving.ask(&format!("GET /v1/models HTTP/1.1\r\n{head}\r\n\r\n"));
        reply.split(' ').nth(1).unwrap().to_owned()
    };
    assert_eq!([status("one"), status("two")], ["200", "401"]);
    fs::write(file.path(), "two").unwrap();
    let id = serving.child.id().to_string();
    assert!(
        Command::new("kill")
            .args(["-HUP", &id])
            .status()
            .unwrap()
            .success()
    );
    // The signal needs its time.
    while status("two") != "200" {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert_eq!(status("one"), "401");
    serving.end();
}

pub(crate) fn mistakes_are_told() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let error = run(["serve", "-b", "cpu", "--port", &port]).error(1);
    assert!(
        error.contains(&format!("cannot listen on 127.0.0.1:{port}")),
        "{error}"
    );
    let error = run(["serve", "--api-key-file", "no/such/file"]).error(1);
    assert!(
        error.contains("no/such/file: cannot read the keys"),
        "{error}"
    );
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().join("keys");
    fs::write(&empty, "# none\n").unwrap();
    let error = run(["serve", "--api-key-file", &empty.display().to_string()]).error(2);
    assert!(error.contains("the file has no key"), "{error}");
    let model = model_arg("classics-13m-f16.gguf");
    let twice = run([
        "serve", "-b", "cpu", "--port", "0", "-m", &model, "-m", &model,
    ]);
    assert_eq!(twice.status, 1);
    assert!(
        twice
            .stderr
            .contains("two models have the name \"classics-13m-f16\""),
        "{}",
        twice.stderr
    );
    for (args, words) in [
        (["-np", "0"], "--parallel 0"),
        (
            ["--seed", "-2"],
            "--seed -2: expected -1, or 0 to 4294967295",
        ),
        (["--top-p", "7"], "top_p"),
        (["--api-key", " , "], "--api-key: there is no key"),
        (
            ["--slot-save-path", "no/such"],
            "--slot-save-path no/such: there is no such folder",
        ),
    ] {
        let error = run(["serve"].iter().chain(&args)).error(2);
        assert!(error.contains(words), "{error}");
    }
}
