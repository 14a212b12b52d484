//! A small client, and servers to ask.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustorch_chat::{ChatTemplates, ReasoningFormat, family};
use rustorch_gguf::Gguf;
use rustorch_llm::engine::EngineOptions;
use rustorch_llm::{EncoderOptions, Engine, Model, SessionOptions};
use rustorch_server::{
    Features, Keys, Limits, Origins, RequestDefaults, ServeOptions, ServedModel, Server, Stopper,
};
use serde_json::Value;

pub(crate) const MODEL: &str = "classics";

/// The bundled model, with conversations in this family's form.
fn model(name: &str, template: &str, options: EngineOptions) -> ServedModel {
    let gguf = Gguf::from_static(rustorch_classics::MODEL).unwrap();
    model_of(gguf, name, template, options)
}

fn model_of(gguf: Gguf, name: &str, template: &str, options: EngineOptions) -> ServedModel {
    served(Model::load(gguf).unwrap(), name, template, options)
}

/// A model to serve, with conversations in this family's form.
pub(crate) fn served(
    model: Model,
    name: &str,
    template: &str,
    options: EngineOptions,
) -> ServedModel {
    let (model, devices) = (Arc::new(model), rustorch_tensor::runtime());
    let engine = Engine::new(model.clone(), &devices, options).unwrap();
    ServedModel {
        name: name.to_owned(),
        aliases: vec![format!("{name}-alias")],
        path: format!("{name}.gguf"),
        model,
        engine: Some(engine),
        devices,
        encoder: EncoderOptions::default(),
        templates: ChatTemplates::of(family(template).unwrap()),
        reasoning: ReasoningFormat::Auto,
        bytes: rustorch_classics::MODEL.len() as u64,
        tags: Vec::new(),
        defaults: RequestDefaults::default(),
        adapters: None,
    }
}

fn engine_options(sequences: usize, queue: usize, context: usize) -> EngineOptions {
    EngineOptions {
        sequences,
        queue,
        session: SessionOptions {
            context,
            ..SessionOptions::default()
        },
        ..EngineOptions::default()
    }
}

fn serve_options(keys: Keys, limits: Limits) -> ServeOptions {
    ServeOptions {
        host: "127.0.0.1".to_owned(),
        port: 0,
        keys,
        limits,
        devices: rustorch_tensor::runtime(),
        origins: Origins::default(),
        features: Features::default(),
    }
}

/// A server in this process.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    stopper: Stopper,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    pub(crate) fn new(keys: Keys, sequences: usize, queue: usize, context: usize) -> Self {
        Self::limited(keys, sequences, queue, context, Limits::default())
    }

    pub(crate) fn limited(
        keys: Keys,
        sequences: usize,
        queue: usize,
        context: usize,
        limits: Limits,
    ) -> Self {
        let options = || engine_options(sequences, queue, context);
        let models = vec![
            model(MODEL, "chatml", options()),
            model("other", "llama3", options()),
        ];
        Self::serving(models, keys, limits)
    }

    /// A server of one model.
    pub(crate) fn of_one(sequences: usize, queue: usize, context: usize) -> Self {
        let one = model(MODEL, "chatml", engine_options(sequences, queue, context));
        Self::serving(vec![one], Keys::none(), Limits::default())
    }

    /// A server of the bundled model with two slots, and changes to it and to the server's options. The model has
    /// tokens that fill gaps.
    pub(crate) fn changed(
        change_model: impl Fn(&mut ServedModel),
        change_server: impl Fn(&mut ServeOptions),
    ) -> Self {
        let mut gguf = Gguf::from_static(rustorch_classics::MODEL).unwrap();
        for (name, token) in [("pre", 2_u32), ("suf", 3), ("mid", 4), ("sep", 5)] {
            let key = format!("tokenizer.ggml.fim_{name}_token_id");
            gguf.metadata.insert(&key, token);
        }
        let mut model = model_of(gguf, MODEL, "chatml", engine_options(2, 64, 128));
        change_model(&mut model);
        let mut options = serve_options(Keys::none(), Limits::default());
        change_server(&mut options);
        Self::with(vec![model], options)
    }

    fn serving(models: Vec<ServedModel>, keys: Keys, limits: Limits) -> Self {
        Self::with(models, serve_options(keys, limits))
    }

    fn with(models: Vec<ServedModel>, options: ServeOptions) -> Self {
        let server = Server::bind(options).unwrap();
        let (address, stopper) = (server.address(), server.stopper());
        let thread = Some(thread::spawn(|| server.run(models).unwrap()));
        Self {
            address,
            stopper,
            thread,
        }
    }

    /// The server that most tests share.
    pub(crate) fn shared() -> &'static Self {
        static SHARED: OnceLock<Running> = OnceLock::new();
        SHARED.get_or_init(|| Self::new(Keys::none(), 2, 64, 512))
    }

    pub(crate) fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Waits for the end.
    pub(crate) fn join(mut self) {
        self.thread.take().unwrap().join().unwrap();
    }

    pub(crate) fn get(&self, path: &str) -> Reply {
        self.send("GET", path, &[], b"")
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Reply {
        self.send("POST", path, &[], body.to_string().as_bytes())
    }

    /// The JSON of a reply that succeeds.
    #[track_caller]
    pub(crate) fn ok(&self, path: &str, body: Value) -> Value {
        self.post(path, &body).ok()
    }

    pub(crate) fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Reply {
        let mut stream = self.begin(method, path, headers, body);
        let mut all = Vec::new();
        // A server that refuses a large body may close before all of it is sent.
        let _ = stream.read_to_end(&mut all);
        Reply::parse(&all)
    }

    /// Sends a request, and leaves the reply to be read.
    pub(crate) fn begin(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(120)))
            .unwrap();
        let mut head = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
        if !headers.iter().any(|(name, _)| *name == "Host") {
            head += &format!("Host: {}\r\n", self.address);
        }
        for (name, value) in headers {
            head += &format!("{name}: {value}\r\n");
        }
        head += &format!("Content-Length: {}\r\n\r\n", body.len());
        stream.write_all(head.as_bytes()).unwrap();
        let _ = stream.write_all(body);
        stream
    }
}

/// The chunks of a body, joined.
fn joined(mut body: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    loop {
        let line = body
            .windows(2)
            .position(|it| it == b"\r\n")
            .expect("a chunk's size");
        let size = std::str::from_utf8(&body[..line]).unwrap();
        let size = usize::from_str_radix(size, 16).unwrap();
        plain.extend_from_slice(&body[line + 2..line + 2 + size]);
        body = &body[line + 2 + size + 2..];
        if size == 0 {
            return plain;
        }
    }
}

/// A response.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    head: String,
    pub(crate) text: String,
}

impl Reply {
    fn parse(bytes: &[u8]) -> Self {
        let end = bytes.windows(4).position(|it| it == b"\r\n\r\n");
        let end =
            end.unwrap_or_else(|| panic!("no response: {:?}", String::from_utf8_lossy(bytes)));
        let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
        let body = &bytes[end + 4..];
        let is_chunked = head
            .to_ascii_lowercase()
            .contains("transfer-encoding: chunked");
        let plain = if is_chunked {
            joined(body)
        } else {
            body.to_vec()
        };
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let text = String::from_utf8(plain).unwrap();
        Self { status, head, text }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then_some(value.trim())
        })
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|e| panic!("{e}: {}", self.text))
    }

    #[track_caller]
    pub(crate) fn ok(&self) -> Value {
        assert_eq!(self.status, 200, "{}", self.text);
        self.json()
    }

    /// The data of the events, without the last `[DONE]`.
    #[track_caller]
    pub(crate) fn events(&self) -> Vec<Value> {
        assert_eq!(self.status, 200, "{}", self.text);
        assert_eq!(self.header("content-type"), Some("text/event-stream"));
        let data = self
            .text
            .lines()
            .filter_map(|line| line.strip_prefix("data: "));
        let data: Vec<&str> = data.filter(|data| *data != "[DONE]").collect();
        data.iter()
            .map(|data| serde_json::from_str(data).unwrap())
            .collect()
    }

    /// The values of the lines.
    #[track_caller]
    pub(crate) fn lines(&self) -> Vec<Value> {
        assert_eq!(self.status, 200, "{}", self.text);
        assert_eq!(self.header("content-type"), Some("application/x-ndjson"));
        self.text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }
}
