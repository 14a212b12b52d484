//! The page that talks to the server: files of the program, and the devices that it shows.

use axum::http::HeaderValue;
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, REFERRER_POLICY};
use axum::response::Response;
use rustorch_runtime::{Fallback, Hardware, Runtime};
use serde_json::{Value, json};

use crate::error::ApiError;
use crate::respond::text_response;

/// The folder of the page's files.
pub(crate) const FOLDER: &str = "/page/";

/// The file at the root.
pub(crate) const INDEX: &str = "index.html";

/// The worker that keeps the page in the browser, for the whole server.
const WORKER: &str = "worker.js";

/// The policy of the page: no script but its own, and no request to any other place.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      img-src 'self' data: blob:; worker-src 'self'; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'";

macro_rules! files {
    ($($name:literal)*) => {
        &[$(($name, include_str!(concat!("../page/", $name)))),*]
    };
}

/// The files, by their names.
const FILES: &[(&str, &str)] = files![
    "index.html" "style.css" "words.css" "answer.js" "api.js" "conversation.js" "devices.js" "dom.js" "inline.js"
    "main.js" "markdown.js" "message.js" "request.js" "settings.js" "sidebar.js" "store.js" "tree.js" "worker.js"
];

/// A file of the page.
///
/// # Errors
/// Fails if there is none of this name.
pub(crate) fn file(name: &str) -> Result<Response, ApiError> {
    let found = FILES.iter().find(|(file, _)| *file == name);
    let (_, text) = found.ok_or_else(|| ApiError::no_path(&format!("{FOLDER}{name}")))?;
    let format = match name.rsplit('.').next() {
        Some("html") => "text/html; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        _ => "text/javascript; charset=utf-8",
    };
    let mut response = text_response(*text, format);
    let headers = response.headers_mut();
    for (name, value) in [
        (CONTENT_SECURITY_POLICY, POLICY),
        (REFERRER_POLICY, "no-referrer"),
        // A server of another version may answer next time.
        (CACHE_CONTROL, "no-cache"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    if name == WORKER {
        headers.insert("service-worker-allowed", HeaderValue::from_static("/"));
    }
    Ok(response)
}

/// The devices, and the operations that moved to another one.
pub(crate) fn devices(runtime: &Runtime) -> Value {
    let devices = runtime.devices().map(|info| {
        let kind = match info.hardware {
            Hardware::Processor => "cpu",
            Hardware::Gpu => "gpu",
            Hardware::NeuralEngine => "npu",
        };
        json!({"name": info.name, "id": info.device.to_string(), "kind": kind, "memory_bytes": info.memory_bytes})
    });
    let fallback = |Fallback { error, to }: Fallback| {
        json!({
            "operation": error.op,
            "from": error.device.to_string(),
            "to": to.map(|to| to.to_string()),
            "reason": error.message,
        })
    };
    json!({
        "devices": devices.collect::<Vec<_>>(),
        "fallbacks": runtime.fallbacks().into_iter().map(fallback).collect::<Vec<_>>(),
    })
}
