//! Steps whose batch is divided among ranks.

use rustorch_tensor::distributed::{CommunicationGroup, ReduceOp};
use rustorch_tensor::{RusTorchResult, Tensor, no_grad};

use crate::nn::Module;

/// Bytes of gradients that are reduced together: PyTorch's default.
const BUCKET: usize = 25 << 20;

/// The ranks of a step. Each computes the gradients of its part of the batch.
pub(super) struct Ranks {
    group: CommunicationGroup,
}

impl Ranks {
    pub(super) fn new(group: &CommunicationGroup) -> Self {
        Self {
            group: group.clone(),
        }
    }

    pub(super) fn group(&self) -> &CommunicationGroup {
        &self.group
    }

    /// Copies parameters and buffers of rank 0 to all ranks.
    ///
    /// # Errors
    /// The ranks have other modules, or cannot finish.
    pub(super) fn share(&self, module: &impl Module) -> RusTorchResult<()> {
        no_grad(|| {
            for (_, tensor) in module.state_dict().iter() {
                let first = self.group.broadcast(tensor, 0)?;
                let mut own = tensor.detach();
                own.copy_(&first)?;
                own.eval()?;
            }
            Ok(())
        })
    }

    /// The operands of a step besides the batch: this rank's share of the batch's mean, and the number of the step.
    pub(super) fn numbers(share: f64, step: u64) -> RusTorchResult<[Tensor; 2]> {
        let alone = [0usize; 0];
        let share = Tensor::from_vec(vec![share as f32], alone)?;
        Ok([share, Tensor::from_vec(vec![step as i64], alone)?])
    }

    /// Records the sums of tensors over all ranks, `step` being the second of [`Ranks::numbers`]. The last tensors are
    /// reduced first, as the gradients of last layers are ready first.
    ///
    /// # Errors
    /// A dtype cannot be added.
    pub(super) fn sums(&self, tensors: &[Tensor], step: &Tensor) -> RusTorchResult<Vec<Tensor>> {
        let group = self.group.in_pass(step)?;
        let mut sums = Vec::with_capacity(tensors.len());
        for bucket in buckets(tensors) {
            let flat = bucket.iter().map(|tensor| tensor.reshape([tensor.numel()]));
            let flat: Vec<Tensor> = flat.collect::<RusTorchResult<_>>()?;
            let sum = group.all_reduce(&Tensor::cat(&flat, 0)?, ReduceOp::Sum)?;
            let mut start = 0;
            for tensor in bucket {
                let part = sum.narrow(0, start, tensor.numel())?;
                sums.push(part.reshape(tensor.shape())?);
                start += tensor.numel();
            }
        }
        sums.reverse();
        Ok(sums)
    }
}

/// Tensors in reverse order, in groups of one dtype and at most [`BUCKET`] bytes. A larger tensor is alone.
fn buckets(tensors: &[Tensor]) -> Vec<Vec<&Tensor>> {
    let bytes = |tensor: &Tensor| tensor.numel() * tensor.dtype().size().unwrap_or(0);
    let mut buckets: Vec<Vec<&Tensor>> = Vec::new();
    let mut room = 0;
    for tensor in tensors.iter().rev() {
        let last = buckets.last_mut();
        let fits = |bucket: &&mut Vec<&Tensor>| {
            bytes(tensor) <= room && bucket.iter().all(|other| other.dtype() == tensor.dtype())
        };
        match last.filter(fits) {
            Some(bucket) => bucket.push(tensor),
            None => {
                buckets.push(vec![tensor]);
                room = BUCKET;
            }
        }
        room = room.saturating_sub(bytes(tensor));
    }
    buckets
}

#[cfg(test)]
mod tests {
    use rustorch_ir::DType;

    use super::*;

    #[test]
    fn buckets_are_full_and_of_one_dtype() {
        let of = |mib: usize, dtype: DType| {
            let bytes = dtype.size().unwrap_or(1);
            Tensor::zeros([mib, (1 << 20) / bytes], dtype).unwrap()
        };
        let tensors = [
            of(30, DType::F32),
            of(5, DType::F32),
            of(10, DType::F16),
            of(12, DType::F32),
            of(12, DType::F32),
            of(1, DType::F32),
        ];
        let buckets = buckets(&tensors);
        let sizes: Vec<Vec<usize>> = (buckets.iter())
            .map(|bucket| bucket.iter().map(|tensor| tensor.shape()[0]).collect())
            .collect();
        assert_eq!(sizes, [vec![1, 12, 12], vec![10], vec![5], vec![30]]);
    }
}
