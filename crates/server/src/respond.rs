//! Responses, and work that takes its time.

use axum::body::Body;
use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::response::Response;
use serde_json::Value;

use crate::error::ApiError;

/// A response of JSON.
pub(crate) fn json_response(value: &Value) -> Response {
    text_response(value.to_string(), "application/json")
}

/// A response of a text in this format.
pub(crate) fn text_response(text: impl Into<Body>, format: &'static str) -> Response {
    let mut response = Response::new(text.into());
    let format = HeaderValue::from_static(format);
    response.headers_mut().insert(CONTENT_TYPE, format);
    response
}

/// Work on another thread, while others are answered.
///
/// # Errors
/// The errors of the work.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|_| Err(ApiError::internal("a bug in the server; please report it")))
}
