//! Copies of elements to the host in the background.

use std::task::Poll;

use rustorch_macros::track_calls;
use rustorch_runtime::{Fetched, HostBuffer, Storage};

use crate::Tensor;
use crate::device::devices::current;
use crate::error::{RusTorchResult, require};

/// A tensor's only element during its copy to the host.
pub struct FetchedItem {
    tensor: Tensor,
    fetched: Fetched,
}

#[track_calls]
impl Tensor {
    /// Starts to copy the only element of a tensor to the host, as PyTorch's
    /// `to("cpu", non_blocking=True)` does. Later work does not delay it, if the device can copy
    /// while it computes.
    ///
    /// # Errors
    /// Fails if the tensor has not exactly one element. Also the errors of
    /// [`eval_all`](crate::eval_all).
    pub fn fetch_item(&self) -> RusTorchResult<FetchedItem> {
        require("fetch_item", self.numel() == 1, "one element", self.ty())?;
        let storage = self.whole_storage()?;
        let (runtime, _) = current();
        Ok(FetchedItem {
            tensor: self.clone(),
            fetched: runtime.fetch(&storage),
        })
    }
}

impl FetchedItem {
    /// Waits for the element.
    ///
    /// # Errors
    /// The same errors as [`Tensor::item`].
    pub fn item(self) -> RusTorchResult<f64> {
        let Self { tensor, fetched } = self;
        let mut bytes = room(&tensor);
        let read = fetched.read(&mut bytes).is_ok();
        element(&tensor, read.then_some(&bytes))
    }

    /// The element, if it has arrived. It does not wait, if the device can copy while it computes.
    ///
    /// # Errors
    /// The same errors as [`Tensor::item`].
    pub fn poll(&mut self) -> Poll<RusTorchResult<f64>> {
        let mut bytes = room(&self.tensor);
        let arrived = self.fetched.poll(&mut bytes);
        arrived.map(|read| element(&self.tensor, read.is_ok().then_some(&bytes)))
    }
}

/// Memory for an element.
fn room(tensor: &Tensor) -> Vec<u8> {
    vec![0; tensor.dtype().size().unwrap_or(0)]
}

/// The value of a tensor's only element, from its bytes.
fn element(tensor: &Tensor, bytes: Option<&Vec<u8>>) -> RusTorchResult<f64> {
    match bytes.and_then(|bytes| HostBuffer::copy_of(bytes)) {
        Some(memory) => {
            let (shape, dtype) = (tensor.shape(), tensor.dtype());
            Tensor::from_storage(Storage::from_host(memory), shape, dtype)?.item()
        }
        // Elements that a lost device had, or that came of a mistake, may be computed once more.
        None => tensor.item(),
    }
}
