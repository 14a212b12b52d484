//! Streams of answers: parts become the events of an interface.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::HeaderValue;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::Response;
use futures_util::stream;
use serde_json::Value;
use tokio::sync::mpsc::{self, Sender};
use tokio::time::timeout;

use crate::answers::{Answers, Part, Started};
use crate::error::ApiError;

/// Silence after which a comment keeps the connection open.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// Pieces that may wait for a slow reader.
const AHEAD: usize = 64;

/// A stream's form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// Server-sent events.
    Events,
    /// A JSON object a line.
    Lines,
}

/// Text of a stream that is not sent yet.
pub(crate) struct Frames {
    framing: Framing,
    text: String,
}

impl Frames {
    /// An event without a name, or a line.
    pub(crate) fn data(&mut self, value: &Value) {
        match self.framing {
            Framing::Events => self.text += &format!("data: {value}\n\n"),
            Framing::Lines => self.text += &format!("{value}\n"),
        }
    }

    /// An event with a name.
    pub(crate) fn event(&mut self, name: &str, value: &Value) {
        self.text += &format!("event: {name}\n");
        self.data(value);
    }

    /// OpenAI's last event.
    pub(crate) fn done(&mut self) {
        self.text += "data: [DONE]\n\n";
    }

    fn keep_alive(&mut self) {
        if self.framing == Framing::Events {
            self.text += ": keep-alive\n\n";
        }
    }

    async fn send(&mut self, to: &Sender<Bytes>) -> Result<(), Gone> {
        match std::mem::take(&mut self.text) {
            text if text.is_empty() => Ok(()),
            text => to.send(text.into()).await.map_err(|_| Gone),
        }
    }
}

/// The client is gone.
struct Gone;

/// An interface's way to write a stream.
pub(crate) trait Speaker: Send + 'static {
    const FRAMING: Framing = Framing::Events;

    /// Writes what comes before the first part.
    fn begin(&mut self, _frames: &mut Frames) {}

    /// Writes a part of an answer.
    fn part(&mut self, choice: usize, part: Part, frames: &mut Frames);

    /// Writes what comes after the last part.
    fn end(&mut self, frames: &mut Frames);

    /// Writes an error, which is the end.
    fn error(&mut self, error: &ApiError, frames: &mut Frames);
}

/// The response that streams answers.
pub(crate) fn stream<S: Speaker>(started: Started, speaker: S) -> Response {
    let (to, from) = mpsc::channel::<Bytes>(AHEAD);
    tokio::spawn(speak(started, speaker, to));
    let pieces = stream::unfold(from, async |mut from| {
        let piece = from.recv().await?;
        Some((Ok::<_, Infallible>(piece), from))
    });
    let mut response = Response::new(Body::from_stream(Box::pin(pieces)));
    let content = match S::FRAMING {
        Framing::Events => "text/event-stream",
        Framing::Lines => "application/x-ndjson",
    };
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

/// Speaks until the end, or until the client is gone. Then the requests are cancelled.
async fn speak<S: Speaker>(started: Started, mut speaker: S, to: Sender<Bytes>) {
    let model = Arc::clone(started.model());
    let mut answers = Answers::new(started, model.tokenizer());
    let mut frames = Frames {
        framing: S::FRAMING,
        text: String::new(),
    };
    speaker.begin(&mut frames);
    loop {
        if let Err(Gone) = frames.send(&to).await {
            return;
        }
        let next = tokio::select! {
            () = to.closed() => return,
            next = timeout(KEEP_ALIVE, answers.next()) => next,
        };
        let is_last = match next {
            Err(_) => {
                frames.keep_alive();
                false
            }
            Ok(Ok(Some((choice, part)))) => {
                speaker.part(choice, part, &mut frames);
                false
            }
            Ok(Ok(None)) => {
                speaker.end(&mut frames);
                true
            }
            Ok(Err(error)) => {
                speaker.error(&error, &mut frames);
                true
            }
        };
        if is_last {
            // Whether anyone still reads makes no difference now.
            let _ = frames.send(&to).await;
            return;
        }
    }
}
