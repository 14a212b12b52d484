//! Collectives as methods.

use rustorch_comm::ReduceOp;
use rustorch_ir::{DType, Scalar};
use rustorch_macros::track_calls;

use super::collective::{Collect, Kind};
use super::group::CommunicationGroup;
use crate::Tensor;
use crate::error::RusTorchResult;

#[track_calls(CommunicationGroup)]
impl CommunicationGroup {
    fn collect(&self, kind: Kind, x: &Tensor) -> RusTorchResult<Tensor> {
        let name = kind.name();
        let number = Scalar::Int(self.next_number());
        let number = Tensor::number(name, number, DType::I64, None)?;
        let operands = [x, &number].into_iter().chain(&self.pass);
        let function = Collect::new(&self.ranks, kind);
        let [result] = Tensor::host_function(function, &operands.collect::<Vec<_>>())
            .map_err(|error| self.explain(error))?;
        Ok(result)
    }

    /// The reduction of all ranks' tensors, of the same shape. All ranks get the same bits.
    ///
    /// Its gradient is the reduction of the gradients, for sums and averages.
    ///
    /// # Errors
    /// The dtype does not have the reduction, or the ranks cannot finish.
    pub fn all_reduce(&self, x: &Tensor, op: ReduceOp) -> RusTorchResult<Tensor> {
        match (self.size(), op) {
            (1, ReduceOp::PremulSum(factor)) => x.mul(factor),
            (1, _) => Ok(x.clone()),
            _ => self.collect(Kind::AllReduce(op), x),
        }
    }

    /// The tensors of all ranks, one after the other along the first dimension. Tensors of no dimension become `[ranks]`.
    ///
    /// # Errors
    /// The ranks cannot finish.
    pub fn all_gather(&self, x: &Tensor) -> RusTorchResult<Tensor> {
        match (self.size(), x.rank()) {
            (1, 0) => x.unsqueeze(0),
            (1, _) => Ok(x.clone()),
            _ => self.collect(Kind::AllGather, x),
        }
    }

    /// The part of this rank of the reduction of all ranks' tensors. Parts lie along the first dimension, in the
    /// order of ranks.
    ///
    /// # Errors
    /// The number of ranks does not divide the first dimension. Also fails if the dtype does not have the reduction, or
    /// if the ranks cannot finish.
    pub fn reduce_scatter(&self, x: &Tensor, op: ReduceOp) -> RusTorchResult<Tensor> {
        match self.size() {
            1 => self.all_reduce(x, op),
            _ => self.collect(Kind::ReduceScatter(op), x),
        }
    }

    /// The tensor of the rank `root`. The others' have its shape.
    ///
    /// # Errors
    /// There is no such rank, or the ranks cannot finish.
    pub fn broadcast(&self, x: &Tensor, root: usize) -> RusTorchResult<Tensor> {
        match (self.size(), root) {
            (1, 0) => Ok(x.clone()),
            _ => self.collect(Kind::Broadcast { root }, x),
        }
    }

    /// Sends the *i*-th part of the first dimension to rank *i*. The result has the parts for this rank, in the order
    /// of ranks.
    ///
    /// # Errors
    /// The number of ranks does not divide the first dimension, or the ranks cannot finish.
    pub fn all_to_all(&self, x: &Tensor) -> RusTorchResult<Tensor> {
        match self.size() {
            1 => Ok(x.clone()),
            _ => self.collect(Kind::AllToAll, x),
        }
    }
}

/// Collectives of the thread's current group ([`with_group`](super::with_group)). In a group of one they do nothing.
pub trait DistributedOperations: Sized {
    /// [`CommunicationGroup::all_reduce`].
    ///
    /// # Errors
    /// The errors of that method.
    fn all_reduce(&self, op: ReduceOp) -> RusTorchResult<Self>;

    /// [`CommunicationGroup::all_gather`].
    ///
    /// # Errors
    /// The errors of that method.
    fn all_gather(&self) -> RusTorchResult<Self>;

    /// [`CommunicationGroup::reduce_scatter`].
    ///
    /// # Errors
    /// The errors of that method.
    fn reduce_scatter(&self, op: ReduceOp) -> RusTorchResult<Self>;

    /// [`CommunicationGroup::broadcast`].
    ///
    /// # Errors
    /// The errors of that method.
    fn broadcast(&self, root: usize) -> RusTorchResult<Self>;

    /// [`CommunicationGroup::all_to_all`].
    ///
    /// # Errors
    /// The errors of that method.
    fn all_to_all(&self) -> RusTorchResult<Self>;
}

#[track_calls]
impl DistributedOperations for Tensor {
    fn all_reduce(&self, op: ReduceOp) -> RusTorchResult<Self> {
        CommunicationGroup::current().all_reduce(self, op)
    }

    fn all_gather(&self) -> RusTorchResult<Self> {
        CommunicationGroup::current().all_gather(self)
    }

    fn reduce_scatter(&self, op: ReduceOp) -> RusTorchResult<Self> {
        CommunicationGroup::current().reduce_scatter(self, op)
    }

    fn broadcast(&self, root: usize) -> RusTorchResult<Self> {
        CommunicationGroup::current().broadcast(self, root)
    }

    fn all_to_all(&self) -> RusTorchResult<Self> {
        CommunicationGroup::current().all_to_all(self)
    }
}

/// A point that no rank of a group passes before all have come.
#[derive(Clone, Debug)]
pub struct MultiGpuBarrier {
    group: CommunicationGroup,
}

#[track_calls(MultiGpuBarrier)]
impl MultiGpuBarrier {
    /// The barrier of a group.
    pub fn new(group: &CommunicationGroup) -> Self {
        Self {
            group: group.clone(),
        }
    }

    /// Waits for all ranks.
    ///
    /// # Errors
    /// The ranks cannot finish.
    pub fn wait(&self) -> RusTorchResult<()> {
        self.group.barrier()
    }
}
