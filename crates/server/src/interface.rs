//! Interfaces that generate: a request is understood, answered, and its answer told in the interface's form.

use std::sync::Arc;

use axum::http::HeaderValue;
use axum::response::Response;
use serde_json::Value;

use crate::answers::{Plan, Started, Whole};
use crate::error::ApiError;
use crate::fields::Fields;
use crate::model::Loaded;
use crate::respond::{blocking, json_response};
use crate::speak::{self, Speaker};

/// The header that lists what was ignored.
const IGNORED: &str = "x-rustorch-ignored";

/// A way to ask for answers: the view of one request.
pub(crate) trait Interface: Sized + Send + 'static {
    /// The streams.
    type Speaker: Speaker;

    /// Understands a request.
    ///
    /// # Errors
    /// Fails if a field is wrong.
    fn read(model: &Arc<Loaded>, fields: Fields, salt: u64) -> Result<Understood<Self>, ApiError>;

    /// The whole response.
    fn response(&self, answers: &[Whole]) -> Value;
}

/// A request that is understood.
pub(crate) struct Understood<I: Interface> {
    pub(crate) plans: Vec<Plan>,
    /// If a stream is wanted.
    pub(crate) speaker: Option<I::Speaker>,
    pub(crate) view: I,
    /// Fields and tools without effect.
    pub(crate) ignored: Vec<String>,
}

/// Answers a request.
///
/// # Errors
/// Fails if a field is wrong, or if the prompt does not fit. Also fails if the queue is full, or the model fails.
pub(crate) async fn answer<I: Interface>(
    model: Arc<Loaded>,
    fields: Fields,
    salt: u64,
) -> Result<Response, ApiError> {
    let of = Arc::clone(&model);
    let understood = blocking(move || I::read(&of, fields, salt)).await?;
    let Understood {
        plans,
        speaker,
        view,
        ignored,
    } = understood;
    let started = Started::new(&model, plans)?;
    let response = match speaker {
        Some(speaker) => speak::stream(started, speaker),
        None => json_response(&view.response(&started.all().await?)),
    };
    Ok(ignoring(response, &ignored))
}

/// Lists in the response what was ignored.
pub(crate) fn ignoring(mut response: Response, ignored: &[String]) -> Response {
    if !ignored.is_empty() {
        let text: String = ignored
            .join(", ")
            .chars()
            .filter(|it| it.is_ascii_graphic() || *it == ' ')
            .collect();
        if let Ok(value) = HeaderValue::from_str(&text) {
            response.headers_mut().insert(IGNORED, value);
        }
    }
    response
}
