//! Errors of requests, and their forms in each interface.

use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use rustorch_chat::ChatError;
use rustorch_errors::ErrorKind;
use rustorch_grammar::GrammarError;
use rustorch_llm::LlmError;
use serde_json::{Value, json};

/// A failed request. The error's form depends on the interface that was asked: see [`Dialect`].
#[derive(Clone, Debug)]
pub(crate) struct ApiError {
    pub(crate) status: StatusCode,
    pub(crate) message: String,
    /// The field at fault.
    pub(crate) param: Option<String>,
    pub(crate) code: Option<&'static str>,
    /// Tokens of the prompt, and of the context that they exceed.
    pub(crate) tokens: Option<(usize, usize)>,
}

/// Seconds after which a busy server is worth another request.
const RETRY_SECONDS: &str = "1";

impl ApiError {
    fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self {
            status,
            message: message.into(),
            param: None,
            code: None,
            tokens: None,
        }
    }

    /// A request that makes no sense.
    pub(crate) fn bad(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    /// A field that makes no sense.
    pub(crate) fn field(param: impl Into<String>, message: impl Into<String>) -> Self {
        let param = param.into();
        let message = format!("{param}: {}", message.into());
        Self {
            param: Some(param),
            ..Self::bad(message)
        }
    }

    /// A prompt that leaves no room for an answer.
    pub(crate) fn context(prompt: usize, context: usize) -> Self {
        let message = format!(
            "the request has {prompt} tokens, which with an answer exceeds the available context size of {context}; \
             shorten the request, or start the server with a larger -c"
        );
        Self {
            code: Some("context_length_exceeded"),
            tokens: Some((prompt, context)),
            ..Self::bad(message)
        }
    }

    /// A text that is too long for a vector or a score.
    pub(crate) fn input(tokens: usize, most: usize) -> Self {
        // Clients of llama-server look for these words.
        let message =
            format!("input ({tokens} tokens) is too large: at most {most} tokens fit; shorten it");
        Self {
            message,
            ..Self::context(tokens, most)
        }
    }

    pub(crate) fn unauthorized() -> Self {
        let message = "an API key is required: send Authorization: Bearer KEY, or x-api-key: KEY";
        Self {
            code: Some("invalid_api_key"),
            ..Self::new(StatusCode::UNAUTHORIZED, message)
        }
    }

    pub(crate) fn forbidden(message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, message)
    }

    pub(crate) fn no_model(name: &str, known: &[&str]) -> Self {
        let message = format!("there is no model {name:?}; there is {}", known.join(", "));
        Self {
            param: Some("model".to_owned()),
            code: Some("model_not_found"),
            ..Self::new(StatusCode::NOT_FOUND, message)
        }
    }

    pub(crate) fn no_path(path: &str) -> Self {
        let message = format!("there is no {path} here; docs/server.md lists the paths");
        Self::new(StatusCode::NOT_FOUND, message)
    }

    pub(crate) fn method(path: &str) -> Self {
        let message = format!("{path} takes another method");
        Self::new(StatusCode::METHOD_NOT_ALLOWED, message)
    }

    /// More requests than may wait.
    pub(crate) fn busy(queue: usize) -> Self {
        let message = format!("{queue} requests wait already; ask again later");
        Self {
            code: Some("queue_full"),
            ..Self::new(StatusCode::TOO_MANY_REQUESTS, message)
        }
    }

    /// Something that this model cannot do.
    pub(crate) fn unsupported(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_IMPLEMENTED, message)
    }

    pub(crate) fn too_large(limit: usize) -> Self {
        let message = format!("the body is larger than {limit} bytes");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, message)
    }

    pub(crate) fn too_slow() -> Self {
        let message = "the body did not arrive in time";
        Self::new(StatusCode::REQUEST_TIMEOUT, message)
    }

    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, message)
    }

    /// OpenAI's name of the kind.
    fn kind(&self) -> &'static str {
        match self.status.as_u16() {
            401 => "authentication_error",
            403 => "permission_error",
            404 | 405 => "not_found_error",
            413 => "request_too_large",
            429 => "rate_limit_error",
            400..=499 => "invalid_request_error",
            503 => "overloaded_error",
            _ => "server_error",
        }
    }

    /// The body of a response, or the last event of a stream.
    pub(crate) fn json(&self, dialect: Dialect) -> Value {
        let kind = self.kind();
        match dialect {
            Dialect::OpenAi => {
                // llama-server's name, by which clients shorten a conversation.
                let kind = match self.tokens {
                    Some(_) => "exceed_context_size_error",
                    None => kind,
                };
                let mut error = json!({
                    "message": self.message,
                    "type": kind,
                    "param": self.param,
                    "code": self.code,
                });
                if let Some((prompt, context)) = self.tokens {
                    error["n_prompt_tokens"] = prompt.into();
                    error["n_ctx"] = context.into();
                }
                json!({ "error": error })
            }
            Dialect::Anthropic => {
                let kind = match kind {
                    "server_error" => "api_error",
                    kind => kind,
                };
                json!({"type": "error", "error": {"type": kind, "message": self.message}})
            }
            Dialect::Ollama => json!({"error": self.message}),
        }
    }

    /// The response in the form of an interface.
    pub(crate) fn response(&self, dialect: Dialect) -> Response {
        let body = Body::from(self.json(dialect).to_string());
        let mut response = Response::new(body);
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        match self.status {
            StatusCode::TOO_MANY_REQUESTS => {
                headers.insert(RETRY_AFTER, HeaderValue::from_static(RETRY_SECONDS));
            }
            StatusCode::UNAUTHORIZED => {
                headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            _ => {}
        }
        response
    }
}

/// The error travels as an extension: the outermost layer knows the interface.
impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = self.status.into_response();
        response.extensions_mut().insert(self);
        response
    }
}

impl From<LlmError> for ApiError {
    fn from(error: LlmError) -> Self {
        match error {
            LlmError::Busy { .. } => Self {
                code: Some("queue_full"),
                ..Self::new(StatusCode::TOO_MANY_REQUESTS, error.to_string())
            },
            LlmError::Sampler { option, .. } => Self {
                param: Some(option.to_owned()),
                ..Self::bad(error.to_string())
            },
            error => Self::of_kind(error.kind(), error.to_string()),
        }
    }
}

impl From<ChatError> for ApiError {
    fn from(error: ChatError) -> Self {
        let status = match error {
            // The template's own limits and mistakes are met by what a request says.
            ChatError::Render { .. } | ChatError::Limit { .. } => StatusCode::BAD_REQUEST,
            ref error => status_of(error.kind()),
        };
        Self::new(status, error.to_string())
    }
}

impl From<GrammarError> for ApiError {
    fn from(error: GrammarError) -> Self {
        Self::bad(error.to_string())
    }
}

impl ApiError {
    fn of_kind(kind: ErrorKind, message: String) -> Self {
        Self::new(status_of(kind), message)
    }
}

fn status_of(kind: ErrorKind) -> StatusCode {
    match kind {
        ErrorKind::Argument => StatusCode::BAD_REQUEST,
        ErrorKind::Unsupported => StatusCode::NOT_IMPLEMENTED,
        ErrorKind::OutOfMemory | ErrorKind::Stopped => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// The interface that a path belongs to, and the form of its errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    OpenAi,
    Anthropic,
    Ollama,
}

impl Dialect {
    pub(crate) fn of(path: &str) -> Self {
        match path {
            path if path.starts_with("/v1/messages") => Self::Anthropic,
            path if path.starts_with("/api/") => Self::Ollama,
            _ => Self::OpenAi,
        }
    }
}
