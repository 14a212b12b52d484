//! Collectives as operations.
//!
//! Operands are the tensor and the number of the collective in the program, an `i64`. In a recording the number of the
//! run follows. Ranks compare both.

use std::hash::{Hash, Hasher};
use std::mem;
use std::sync::{Arc, Weak};

use rustorch_comm as comm;
use rustorch_comm::{Buffer, BufferMut, Call, Group, ReduceOp, Tag};
use rustorch_ir::autodiff::{Cotangents, Differentiated, not_differentiable};
use rustorch_ir::ops::{Host, HostArray, HostArrayMut, HostFunction};
use rustorch_ir::{DType, Graph, OpError, ResultTypes, TensorType, ValueId};

use super::group::Ranks;

/// The kind of a collective.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    AllReduce(ReduceOp),
    AllGather,
    ReduceScatter(ReduceOp),
    Broadcast { root: usize },
    AllToAll,
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::AllReduce(_) => "all_reduce",
            Kind::AllGather => "all_gather",
            Kind::ReduceScatter(_) => "reduce_scatter",
            Kind::Broadcast { .. } => "broadcast",
            Kind::AllToAll => "all_to_all",
        }
    }

    fn op(self) -> Option<ReduceOp> {
        match self {
            Kind::AllReduce(op) | Kind::ReduceScatter(op) => Some(op),
            Kind::AllGather | Kind::Broadcast { .. } | Kind::AllToAll => None,
        }
    }
}

/// A collective of a group. Programs that are kept do not keep the group.
#[derive(Clone, Debug)]
pub(super) struct Collect {
    ranks: Weak<Ranks>,
    rank: usize,
    size: usize,
    kind: Kind,
    /// Is it the gradient of another one? Both have one number.
    is_gradient: bool,
}

impl Collect {
    pub(super) fn new(ranks: &Arc<Ranks>, kind: Kind) -> Self {
        Self {
            rank: ranks.group.rank(),
            size: ranks.group.size(),
            ranks: Arc::downgrade(ranks),
            kind,
            is_gradient: false,
        }
    }

    /// Everything that makes it another operation.
    fn key(&self) -> impl PartialEq + Hash + use<> {
        let op = self.kind.op();
        let factor = match op {
            Some(ReduceOp::PremulSum(factor)) => factor.to_bits(),
            _ => 0,
        };
        let root = match self.kind {
            Kind::Broadcast { root } => root,
            _ => 0,
        };
        let kinds = (
            mem::discriminant(&self.kind),
            op.map(|op| mem::discriminant(&op)),
        );
        (
            self.ranks.as_ptr().addr(),
            kinds,
            factor,
            root,
            self.is_gradient,
        )
    }
}

impl PartialEq for Collect {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Collect {}

impl Hash for Collect {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}

impl HostFunction for Collect {
    fn name(&self) -> &'static str {
        self.kind.name()
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<ResultTypes, OpError> {
        let x = inputs[0];
        let ranks = self.size;
        let wrong = |expected: String| Err(OpError::new(self.name(), expected, x));
        let Some((dtype, _)) = elements(x, self.kind.op()) else {
            return wrong("a tensor of numbers that ranks can combine (cast it first)".to_owned());
        };
        let rows = x.shape.first().copied();
        let mut shape = x.shape.to_vec();
        match self.kind {
            Kind::AllReduce(_) | Kind::Broadcast { .. } => {}
            Kind::AllGather => match shape.first_mut() {
                Some(rows) => *rows *= ranks,
                None => shape = vec![ranks],
            },
            Kind::ReduceScatter(_) | Kind::AllToAll => {
                let Some(rows) = rows.filter(|rows| rows.is_multiple_of(ranks)) else {
                    return wrong(format!(
                        "a first dimension that {ranks} ranks divide (pad it)"
                    ));
                };
                if matches!(self.kind, Kind::ReduceScatter(_)) {
                    shape[0] = rows / ranks;
                }
            }
        }
        if let Kind::Broadcast { root } = self.kind
            && root >= ranks
        {
            let expected = format!("a root below the number of ranks, {ranks}");
            return Err(OpError::new(self.name(), expected, root));
        }
        if let Some(op) = self.kind.op()
            && let Some(problem) = refused(op, dtype)
        {
            return wrong(problem);
        }
        Ok([TensorType::new(&shape[..], x.dtype)].into_iter().collect())
    }

    fn call(&self, inputs: &[HostArray], outputs: &mut [HostArrayMut]) -> Result<(), String> {
        let pass = match inputs.get(2) {
            Some(pass) => pass.data::<i64>()?[0],
            None => 0,
        };
        let number = 2 * inputs[1].data::<i64>()?[0] + i64::from(self.is_gradient);
        let tag = Tag { number, pass };
        let ranks = (self.ranks.upgrade())
            .ok_or("its group was dropped; keep the group as long as its programs")?;
        let done = self.collect(&*ranks.group, &inputs[0], &mut outputs[0], tag);
        done.map_err(|error| ranks.failed(error))
    }

    fn is_collective(&self) -> bool {
        true
    }

    fn vjp(&self, g: &mut Graph, node: &Differentiated) -> Result<Cotangents, OpError> {
        let ct = node.cotangent(g, 0)?;
        let gradient = self.gradient(g, ct, &node.inputs[1..])?;
        let operands = node.needed.iter().enumerate();
        Ok(operands
            .map(|(i, &is_needed)| (i == 0 && is_needed).then_some(gradient))
            .collect())
    }
}

impl Collect {
    fn collect(
        &self,
        group: &dyn Group,
        x: &HostArray,
        y: &mut HostArrayMut,
        tag: Tag,
    ) -> Result<(), comm::CommError> {
        let unknown =
            || comm::CommError::Invalid(format!("{}: {} has no elements", self.name(), x.ty));
        let (dtype, shape) = elements(x.ty, self.kind.op()).ok_or_else(unknown)?;
        let (_, out) = elements(y.ty, self.kind.op()).ok_or_else(unknown)?;
        let ranks = group.size();
        let input = Buffer::new(dtype, &shape, x.bytes)?;
        if matches!(self.kind, Kind::AllReduce(_) | Kind::Broadcast { .. }) {
            y.bytes.copy_from_slice(x.bytes);
        }
        let output = BufferMut::new(dtype, &out, y.bytes)?;
        let call = match self.kind {
            Kind::AllReduce(op) => Call::all_reduce(output, op),
            Kind::AllGather => Call::all_gather(ranks, input, output),
            Kind::ReduceScatter(op) => Call::reduce_scatter(ranks, input, output, op),
            Kind::Broadcast { root } => Call::broadcast(ranks, output, root),
            Kind::AllToAll => Call::all_to_all(ranks, input, output),
        };
        group.call(call?.at(tag))
    }

    /// The gradient of the operand, if the loss is the sum of all ranks' losses.
    fn gradient(&self, g: &mut Graph, ct: ValueId, rest: &[ValueId]) -> Result<ValueId, OpError> {
        let collected = |g: &mut Graph, kind| {
            let operands: Vec<ValueId> = [ct].into_iter().chain(rest.iter().copied()).collect();
            let gradient = Self {
                kind,
                is_gradient: !self.is_gradient,
                ..self.clone()
            };
            g.push(Host::new(gradient), &operands)
        };
        match self.kind {
            Kind::AllReduce(op @ (ReduceOp::Sum | ReduceOp::Avg)) => {
                collected(g, Kind::AllReduce(op))
            }
            Kind::AllReduce(ReduceOp::PremulSum(factor)) => {
                let sum = collected(g, Kind::AllReduce(ReduceOp::Sum))?;
                g.mul_scalar(sum, factor)
            }
            Kind::ReduceScatter(ReduceOp::Sum) => collected(g, Kind::AllGather),
            Kind::ReduceScatter(ReduceOp::Avg) => {
                let all = collected(g, Kind::AllGather)?;
                g.mul_scalar(all, 1.0 / self.size as f64)
            }
            Kind::ReduceScatter(ReduceOp::PremulSum(factor)) => {
                let all = collected(g, Kind::AllGather)?;
                g.mul_scalar(all, factor)
            }
            Kind::AllReduce(op) | Kind::ReduceScatter(op) => Err(not_differentiable(
                self.name(),
                format!("the {op} of ranks (sum and avg have one)"),
            )),
            Kind::AllGather => collected(g, Kind::ReduceScatter(ReduceOp::Sum)),
            Kind::Broadcast { root } => {
                let sum = collected(g, Kind::AllReduce(ReduceOp::Sum))?;
                match self.rank == root {
                    true => Ok(sum),
                    false => {
                        // The call has to be made here, too.
                        let never = g.full([0usize; 0].into(), false, DType::Bool)?;
                        let zero = g.zeros_like(sum)?;
                        g.select(never, sum, zero)
                    }
                }
            }
            Kind::AllToAll => collected(g, Kind::AllToAll),
        }
    }
}

/// Elements as ranks know them: the dtype, and the shape. A collective that only moves elements takes any dtype, by
/// its bytes. Complex numbers are pairs.
fn elements(ty: &TensorType, op: Option<ReduceOp>) -> Option<(comm::DType, Vec<usize>)> {
    let mut shape = ty.shape.to_vec();
    let dtype = match ty.dtype {
        DType::U8 => comm::DType::U8,
        DType::I8 => comm::DType::I8,
        DType::U16 => comm::DType::U16,
        DType::I16 => comm::DType::I16,
        DType::U32 => comm::DType::U32,
        DType::I32 => comm::DType::I32,
        DType::U64 => comm::DType::U64,
        DType::I64 => comm::DType::I64,
        DType::F16 => comm::DType::F16,
        DType::BF16 => comm::DType::BF16,
        DType::F32 => comm::DType::F32,
        DType::F64 => comm::DType::F64,
        DType::Complex64 | DType::Complex128 if op.is_none_or(adds) => {
            shape.push(2);
            match ty.dtype {
                DType::Complex64 => comm::DType::F32,
                _ => comm::DType::F64,
            }
        }
        dtype if op.is_none() => {
            shape.push(dtype.size()?);
            comm::DType::U8
        }
        _ => return None,
    };
    Some((dtype, shape))
}

/// Is it a sum of its operands?
fn adds(op: ReduceOp) -> bool {
    matches!(op, ReduceOp::Sum | ReduceOp::Avg | ReduceOp::PremulSum(_))
}

/// Why ranks cannot reduce a dtype so.
fn refused(op: ReduceOp, dtype: comm::DType) -> Option<String> {
    let mut none: [u8; 0] = [];
    let data = BufferMut::new(dtype, &[0], &mut none).ok()?;
    Call::all_reduce(data, op)
        .err()
        .map(|_| match dtype.is_float() {
            true => format!("integers for {op}"),
            false => format!("floats for {op}"),
        })
}
