//! Loading of a model's weights to the devices that use them.

use std::hint::black_box;

use rustorch_gguf::{Gguf, TensorInfo};

use crate::selection::Selection;
use crate::step::Wanted;
use crate::{LlmError, Session};

/// Bytes that the system is asked to read from disk before they are needed.
const AHEAD: usize = 256 << 20;

impl Session<'_> {
    /// Prepares generation with `selection`, and copies weights, keys and values to their devices.
    /// Without this call the first passes do the same.
    ///
    /// # Errors
    /// Fails if no device is left.
    pub fn load(
        &mut self,
        selection: &Selection,
        mut progress: impl FnMut(u64, u64),
    ) -> Result<(), LlmError> {
        let gguf = self.model().gguf();
        let wanted = Wanted::best(1, selection, self.model().spec().vocab);
        let mut file = File::new(gguf);
        file.read_ahead();
        self.token_step(&wanted)?.load(|loaded| {
            if let Some(tensor) = loaded.storage.host_address().and_then(|at| file.pass(at)) {
                match loaded.is_copied {
                    true => gguf.release(tensor),
                    false => touch(gguf.data(tensor)),
                }
                file.read_ahead();
            }
            progress(loaded.done, loaded.total);
        })
    }
}

/// A file that is read from its begin to its end.
struct File<'m> {
    gguf: &'m Gguf,
    /// Its tensors by their address, which is their order.
    tensors: Vec<(usize, &'m TensorInfo)>,
    /// Number of loaded weights.
    passed: usize,
    /// Number of weights that the system was asked for.
    asked: usize,
}

impl<'m> File<'m> {
    fn new(gguf: &'m Gguf) -> Self {
        let tensors = gguf.tensors().iter();
        let address = |tensor| gguf.data(tensor).as_ptr().addr();
        let mut tensors: Vec<_> = tensors.map(|tensor| (address(tensor), tensor)).collect();
        tensors.sort_by_key(|(at, _)| *at);
        Self {
            gguf,
            tensors,
            passed: 0,
            asked: 0,
        }
    }

    /// The tensor that begins at this address: it, and all before it, are loaded.
    fn pass(&mut self, address: usize) -> Option<&'m TensorInfo> {
        let place = self.tensors.binary_search_by_key(&address, |(at, _)| *at);
        let place = place.ok()?;
        self.passed = place + 1;
        Some(self.tensors[place].1)
    }

    /// Asks for the next weights.
    fn read_ahead(&mut self) {
        let mut ahead = 0;
        for (place, (_, tensor)) in self.tensors.iter().enumerate().skip(self.passed) {
            if ahead > AHEAD {
                break;
            }
            ahead += tensor.bytes();
            if place >= self.asked {
                self.gguf.read_ahead(tensor);
                self.asked = place + 1;
            }
        }
    }
}

/// Looks at every page.
fn touch(data: &[u8]) {
    const PAGE: usize = 4096;
    data.iter().step_by(PAGE).for_each(|byte| {
        black_box(*byte);
    });
}
