//! Answers of the library: at once, and failures by callbacks when it likes.

use std::pin::pin;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};

use rustorch_runtime::FailureClass;

/// A failure: its class, and the library's text.
pub(crate) type Failure = (FailureClass, String);

/// Failures of a device, from any thread.
#[derive(Default)]
pub(crate) struct Faults {
    /// Why the device is lost.
    lost: OnceLock<Failure>,
    /// The first failure that nobody has heard of.
    first: Mutex<Option<Failure>>,
}

impl Faults {
    /// From now on the device is lost.
    pub(crate) fn lose(&self, class: FailureClass, why: String) {
        // The first reason counts.
        let _ = self.lost.set((class, why));
    }

    /// Notes an error that no scope has caught.
    pub(crate) fn note(&self, error: &wgpu::Error) {
        let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert_with(|| class_of(error));
    }

    /// Fails if the device is lost, or with the failure that was noted, once.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        if let Some(lost) = self.lost.get() {
            return Err(lost.clone());
        }
        let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        first.take().map_or(Ok(()), Err)
    }
}

/// The answer to an error.
pub(crate) fn class_of(error: &wgpu::Error) -> Failure {
    let class = match error {
        wgpu::Error::OutOfMemory { .. } => FailureClass::OutOfMemory { never_fits: false },
        wgpu::Error::Validation { .. } => FailureClass::Unsupported,
        wgpu::Error::Internal { .. } => FailureClass::Lost,
    };
    // The library's texts have several lines.
    let text = error.to_string();
    let lines: Vec<&str> = text.split_whitespace().collect();
    (class, lines.join(" "))
}

/// The result of a call that the native library answers at once.
pub(crate) fn at_once<T>(call: impl Future<Output = T>) -> Option<T> {
    match pin!(call).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => Some(result),
        Poll::Pending => None,
    }
}
