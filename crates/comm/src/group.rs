//! The interface of all groups.

use std::fmt::Debug;
use std::sync::Arc;

use crate::call::{Call, Memory};
use crate::reduce::{Part, reduce};
use crate::{Buffer, BufferMut, CommError, ReduceOp};

/// Ranks that compute together, seen from one of them.
///
/// All ranks make the same calls in the same order. Point-to-point messages between two ranks are in order, too.
/// A rank makes one call at a time: a second thread waits for the first one's call.
///
/// A call that fails returns [`CommError::Failed`] on every rank, if not at once then at its next call. The buffers of
/// a failed call hold no result.
pub trait Group: Send + Sync + Debug {
    /// The number of this rank, from 0.
    fn rank(&self) -> usize;

    /// The number of ranks.
    fn size(&self) -> usize;

    /// Number of times that ranks were lost before this group was made.
    fn epoch(&self) -> u64;

    /// Makes a call; the methods below do so.
    ///
    /// # Errors
    /// Fails if the ranks cannot finish it.
    fn call(&self, call: Call<'_>) -> Result<(), CommError>;

    /// Ends the epoch: all ranks' calls fail with this reason, if not at once then from their next call on.
    fn abort(&self, reason: &str);

    /// The group of the remaining ranks, after a failure. They keep their order and have the next epoch. This group stays
    /// failed.
    ///
    /// Each remaining rank calls it. More than half of the ranks have to, or half of them with rank 0.
    ///
    /// # Errors
    /// Fails if nothing failed before, if this rank was given up, or if too few ranks remain.
    fn shrink(&self) -> Result<Arc<dyn Group>, CommError>;

    /// Reduces `data` over all ranks. All get the same bits: elements are combined in the order of ranks.
    ///
    /// # Errors
    /// Fails if the dtype does not have the reduction, or if the ranks cannot finish.
    fn all_reduce(&self, data: BufferMut<'_>, op: ReduceOp) -> Result<(), CommError> {
        self.call(Call::all_reduce(data, op)?)
    }

    /// Collects the `input` of all ranks in `output`, in their order.
    ///
    /// # Errors
    /// Fails if the output has the wrong size, or if the ranks cannot finish.
    fn all_gather(&self, input: Buffer<'_>, output: BufferMut<'_>) -> Result<(), CommError> {
        self.call(Call::all_gather(self.size(), input, output)?)
    }

    /// Reduces `input` over all ranks. Each rank gets its part, in the order of ranks.
    ///
    /// # Errors
    /// Fails for sizes that do not fit, or for a reduction that the dtype lacks. Also fails if the ranks cannot finish.
    fn reduce_scatter(
        &self,
        input: Buffer<'_>,
        output: BufferMut<'_>,
        op: ReduceOp,
    ) -> Result<(), CommError> {
        self.call(Call::reduce_scatter(self.size(), input, output, op)?)
    }

    /// Copies `data` of the rank `root` to all ranks.
    ///
    /// # Errors
    /// Fails if there is no such rank, or if the ranks cannot finish.
    fn broadcast(&self, data: BufferMut<'_>, root: usize) -> Result<(), CommError> {
        self.call(Call::broadcast(self.size(), data, root)?)
    }

    /// Sends the *i*-th part of `input` to rank *i*, and collects the parts for this rank in `output`.
    ///
    /// # Errors
    /// Fails if the sizes do not fit, or if the ranks cannot finish.
    fn all_to_all(&self, input: Buffer<'_>, output: BufferMut<'_>) -> Result<(), CommError> {
        self.call(Call::all_to_all(self.size(), input, output)?)
    }

    /// Sends `data` to a rank, and does not wait until that receives it.
    ///
    /// # Errors
    /// Fails if there is no other rank of this number, or if it is missing.
    fn send(&self, data: Buffer<'_>, to: usize) -> Result<(), CommError> {
        self.call(Call::send(self.rank(), self.size(), data, to)?)
    }

    /// Receives `data` from a rank, which sends the same dtype and shape.
    ///
    /// # Errors
    /// Fails if there is no other rank of this number, or if nothing comes from it.
    fn recv(&self, data: BufferMut<'_>, from: usize) -> Result<(), CommError> {
        self.call(Call::recv(self.rank(), self.size(), data, from)?)
    }

    /// Waits for all ranks.
    ///
    /// # Errors
    /// Fails if the ranks cannot finish.
    fn barrier(&self) -> Result<(), CommError> {
        self.call(Call::barrier())
    }
}

/// A group of one rank. Its calls only copy their input.
#[derive(Debug, Clone, Copy, Default)]
pub struct Solo;

impl Group for Solo {
    fn rank(&self) -> usize {
        0
    }

    fn size(&self) -> usize {
        1
    }

    fn epoch(&self) -> u64 {
        0
    }

    fn call(&self, call: Call<'_>) -> Result<(), CommError> {
        match (call.memory, call.op) {
            (Memory::Both { input, output }, None) => output.copy_from_slice(input),
            (Memory::Both { input, output }, Some(op)) => {
                reduce(
                    call.dtype,
                    op,
                    &[Part {
                        bytes: input,
                        factor: op.factor(),
                    }],
                    output,
                );
            }
            (Memory::Write(data), Some(op @ ReduceOp::PremulSum(factor))) => {
                let own = data.to_vec();
                reduce(
                    call.dtype,
                    op,
                    &[Part {
                        bytes: &own,
                        factor,
                    }],
                    data,
                );
            }
            _ => {}
        }
        Ok(())
    }

    fn abort(&self, _: &str) {}

    fn shrink(&self) -> Result<Arc<dyn Group>, CommError> {
        Err(CommError::Invalid(
            "shrink: nothing failed; a group of one continues".into(),
        ))
    }
}
