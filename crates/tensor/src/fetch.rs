//! Elements on their way to the host.

use rustorch_macros::track_calls;
use rustorch_runtime::{Fetched, HostBuffer, Storage};

use crate::Tensor;
use crate::devices::current;
use crate::error::{RusTorchResult, require};

/// A tensor's only element on its way to the host.
pub struct FetchedItem {
    tensor: Tensor,
    fetched: Fetched,
}

#[track_calls]
impl Tensor {
    /// Begins to bring the only element of a tensor to the host, as PyTorch's `to("cpu", non_blocking=True)` does. What is
    /// given to a device later does not delay it where the device can copy while it computes.
    ///
    /// # Errors
    /// More elements, or none; those of [`eval_all`](crate::eval_all).
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
    /// As [`Tensor::item`].
    pub fn item(self) -> RusTorchResult<f64> {
        let Self { tensor, fetched } = self;
        let mut bytes = vec![0; tensor.dtype().size().unwrap_or(0)];
        let read = fetched.read(&mut bytes).ok();
        match read.and_then(|()| HostBuffer::copy_of(&bytes)) {
            Some(memory) => {
                let (shape, dtype) = (tensor.shape(), tensor.dtype());
                Tensor::from_storage(Storage::from_host(memory), shape, dtype)?.item()
            }
            // Elements that a lost device had, or that came of a mistake, may be computed once more.
            None => tensor.item(),
        }
    }
}
