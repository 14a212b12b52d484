//! Vectors of texts, and scores of documents, by a model's encoder on a thread of its own.

use std::cmp::Reverse;
use std::mem;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread;

use rustorch_llm::spec::Pooling;
use rustorch_llm::{Encoder, EncoderOptions, Model};
use rustorch_runtime::Runtime;
use tokio::sync::oneshot;

use crate::error::ApiError;

/// Requests that may wait.
const QUEUE: usize = 256;

/// Texts that are computed before the next look at whether the client is still there.
const CHUNK: usize = 32;

/// A model's encoder. The first request begins its thread.
pub(crate) struct Vectors {
    devices: Runtime,
    options: EncoderOptions,
    jobs: OnceLock<SyncSender<Job>>,
}

/// A task of an encoder.
pub(crate) enum Work {
    /// Vectors.
    Embed {
        /// The tokens of each text.
        texts: Vec<Vec<u32>>,
        /// The length that a text's vector has to have.
        dimensions: Option<usize>,
    },
    /// Scores of documents.
    Rank {
        query: String,
        documents: Vec<String>,
    },
}

/// Vectors of texts, which are not scaled, or one score each.
pub(crate) struct Rows {
    pub(crate) rows: Vec<Vec<f32>>,
    /// Length of a token's vector.
    pub(crate) width: usize,
    pub(crate) pooling: Pooling,
}

struct Job {
    work: Work,
    reply: oneshot::Sender<Result<Rows, ApiError>>,
}

impl Vectors {
    /// An encoder with these options on these devices.
    pub(crate) fn new(devices: Runtime, options: EncoderOptions) -> Self {
        Self {
            devices,
            options,
            jobs: OnceLock::new(),
        }
    }

    /// Asks the encoder of `model`.
    ///
    /// # Errors
    /// Fails if too many requests wait, if the model has no such vectors, or if no device is left.
    pub(crate) async fn ask(&self, model: &Arc<Model>, work: Work) -> Result<Rows, ApiError> {
        let jobs = self.jobs.get_or_init(|| {
            let (jobs, given) = sync_channel(QUEUE);
            let (model, devices, options) = (
                Arc::clone(model),
                self.devices.clone(),
                self.options.clone(),
            );
            let thread = thread::Builder::new().name("encoder".to_owned());
            let run = move || run(&model, &devices, options, &given);
            if let Err(error) = thread.spawn(run) {
                tracing::error!("no thread for an encoder: {error}");
            }
            jobs
        });
        let (reply, answer) = oneshot::channel();
        jobs.try_send(Job { work, reply })
            .map_err(|error| match error {
                TrySendError::Full(_) => ApiError::busy(QUEUE),
                TrySendError::Disconnected(_) => ended(),
            })?;
        answer.await.unwrap_or_else(|_| Err(ended()))
    }
}

fn ended() -> ApiError {
    ApiError::internal("the encoder ended; start the server again")
}

fn run(model: &Model, devices: &Runtime, options: EncoderOptions, jobs: &Receiver<Job>) {
    let mut encoder = Encoder::new(model, devices, options).map_err(ApiError::from);
    for Job { work, reply } in jobs {
        // Nobody waits for it any more.
        if reply.is_closed() {
            continue;
        }
        let rows = match &mut encoder {
            Ok(encoder) => answer(encoder, work, || !reply.is_closed()),
            Err(error) => Err(error.clone()),
        };
        let _ = reply.send(rows);
    }
}

fn answer(
    encoder: &mut Encoder<'_>,
    work: Work,
    is_wanted: impl Fn() -> bool,
) -> Result<Rows, ApiError> {
    let rows = match work {
        Work::Embed { texts, dimensions } => {
            let width = encoder.width();
            if let Some(other) = dimensions.filter(|&dimensions| dimensions != width) {
                let problem = format!("{other}: the model's vectors have {width}, and are not cut");
                return Err(ApiError::field("dimensions", problem));
            }
            in_chunks(texts, Vec::len, is_wanted, |texts| {
                Ok(encoder.embed_tokens(texts)?)
            })?
        }
        Work::Rank { query, documents } => {
            in_chunks(documents, String::len, is_wanted, |documents| {
                let scores = encoder.rerank(&query, documents)?;
                Ok(scores.into_iter().map(|score| vec![score]).collect())
            })?
        }
    };
    Ok(Rows {
        rows,
        width: encoder.width(),
        pooling: encoder.pooling(),
    })
}

/// The rows of texts, in their order, computed by chunks.
///
/// # Errors
/// Fails with the first chunk that does, and when the rows are not wanted any more.
fn in_chunks<T: Default>(
    mut texts: Vec<T>,
    length: impl Fn(&T) -> usize,
    is_wanted: impl Fn() -> bool,
    mut compute: impl FnMut(&[T]) -> Result<Vec<Vec<f32>>, ApiError>,
) -> Result<Vec<Vec<f32>>, ApiError> {
    // The longest are first: texts of a chunk have about the same length, and a lack of memory shows at once.
    let mut order: Vec<usize> = (0..texts.len()).collect();
    order.sort_by_key(|&index| Reverse(length(&texts[index])));
    let mut rows = vec![Vec::new(); texts.len()];
    for indices in order.chunks(CHUNK) {
        if !is_wanted() {
            return Err(ApiError::internal("the client is gone"));
        }
        let taken = indices.iter().map(|&index| mem::take(&mut texts[index]));
        let chunk: Vec<T> = taken.collect();
        for (&index, row) in indices.iter().zip(compute(&chunk)?) {
            rows[index] = row;
        }
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn lengths(texts: &[Vec<u32>]) -> Result<Vec<Vec<f32>>, ApiError> {
        Ok(texts.iter().map(|text| vec![text.len() as f32]).collect())
    }

    #[test]
    fn chunks_keep_the_order() {
        let texts: Vec<Vec<u32>> = (0..100).map(|index| vec![0; index * 37 % 100]).collect();
        let expected = lengths(&texts).unwrap();
        let calls = Cell::new(0);
        let compute = |texts: &[Vec<u32>]| {
            calls.set(calls.get() + 1);
            lengths(texts)
        };
        let rows = in_chunks(texts, Vec::len, || true, compute).unwrap();
        assert_eq!((rows, calls.get()), (expected, 4));
    }

    #[test]
    fn a_client_that_leaves_ends_its_work() {
        let calls = Cell::new(0);
        let compute = |texts: &[Vec<u32>]| {
            calls.set(calls.get() + 1);
            lengths(texts)
        };
        let texts = vec![vec![1_u32]; 1000];
        let done = in_chunks(texts, Vec::len, || calls.get() < 2, compute);
        assert!(done.is_err());
        assert_eq!(calls.get(), 2);
    }
}
