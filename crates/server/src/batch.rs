//! OpenAI's batches: requests of a file, answered without a socket.

use std::io;
use std::sync::Arc;

use axum::body::to_bytes;
use rustorch_runtime::Runtime as Devices;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use crate::answers::unique;
use crate::connections::Limits;
use crate::error::Dialect;
use crate::guard::origins::Origins;
use crate::guard::{Guard, Keys};
use crate::model::ServedModel;
use crate::routes::{App, Features, batched};
use crate::server::{ServeError, loaded, runtime};

/// A request of a batch: a line of its file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BatchRequest {
    /// The name of the request in its batch.
    pub custom_id: String,
    /// The HTTP method, which is `POST`.
    pub method: String,
    /// The path of the interface, such as `/v1/chat/completions`.
    pub url: String,
    /// The request's fields.
    pub body: Map<String, Value>,
}

/// Models that answer batches.
pub struct Batches {
    runtime: Runtime,
    app: Arc<App>,
}

impl Batches {
    /// Models for batches. A request without a model's name gets the first.
    ///
    /// # Errors
    /// Fails if there is no model, if one has no vocabulary, or if two have one name.
    pub fn new(models: Vec<ServedModel>, devices: Devices) -> Result<Self, ServeError> {
        let guard = Guard {
            keys: Keys::none().into(),
            is_loopback: true,
            origins: Origins::default(),
        };
        Ok(Self {
            runtime: runtime()?,
            app: Arc::new(App::new(
                loaded(models)?,
                guard,
                devices,
                Limits::default(),
                Features::default(),
            )),
        })
    }

    /// Answers requests, `at_once` at a time. `each` gets the line of each answer when it is there, and the answer's
    /// HTTP status.
    ///
    /// # Errors
    /// Fails with the errors of `each`.
    pub fn run(
        &self,
        requests: impl IntoIterator<Item = BatchRequest>,
        at_once: usize,
        mut each: impl FnMut(Value, u16) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut requests = requests.into_iter();
        self.runtime.block_on(async {
            let mut running = JoinSet::new();
            loop {
                while running.len() < at_once.max(1)
                    && let Some(request) = requests.next()
                {
                    running.spawn(answer(Arc::clone(&self.app), request));
                }
                match running.join_next().await {
                    None => return Ok(()),
                    Some(answered) => {
                        let (line, status) = answered??;
                        each(line, status)?;
                    }
                }
            }
        })
    }
}

/// The line of an answer, and its status.
async fn answer(app: Arc<App>, request: BatchRequest) -> io::Result<(Value, u16)> {
    let response = batched(&app, &request.method, &request.url, request.body).await;
    let response = response.unwrap_or_else(|error| error.response(Dialect::OpenAi));
    let status = response.status().as_u16();
    let bytes = to_bytes(response.into_body(), usize::MAX).await;
    let body: Value = serde_json::from_slice(&bytes.map_err(io::Error::other)?)?;
    let line = json!({
        "id": unique("batch_req_"),
        "custom_id": request.custom_id,
        "response": {"status_code": status, "request_id": unique("req_"), "body": body},
        "error": null,
    });
    Ok((line, status))
}
