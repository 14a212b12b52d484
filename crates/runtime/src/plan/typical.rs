//! The operation that a family is judged by, where no operation is given.

use rustorch_ir::ops::{
    Activation, ActivationKind, Binary, BinaryOp, Conv2d, Distribution, Linear, Matmul, Random,
    Reduce, ReduceOp, Softmax,
};
use rustorch_ir::{DType, Graph, Op, OpError, Shape, TensorType};

use crate::OpType;

/// An operation of a family on a tensor of this type, alone in a graph; `None` if the family has
/// none for it.
///
/// | family | operation |
/// | --- | --- |
/// | linear algebra | product with a matrix that is no larger; of blocks, one row with these weights |
/// | convolution | 3 × 3, to as many channels |
/// | activation | ReLU, or a sum of two of what is not floating-point |
/// | reduction | sum along the last dimension |
/// | normalization | softmax along the last dimension |
/// | complex math | product of two |
/// | distribution | normal numbers in such a tensor |
pub(crate) fn typical(op_type: OpType, tensor: &TensorType) -> Option<Graph> {
    let (op, inputs): (Op, Vec<TensorType>) = match op_type {
        OpType::LinearAlgebra => product(tensor),
        OpType::Convolution => convolution(tensor)?,
        OpType::Activation if tensor.dtype.is_float() => {
            let kind = ActivationKind::Relu;
            (Activation { kind }.into(), vec![tensor.clone()])
        }
        OpType::Activation => elementwise(BinaryOp::Add, tensor),
        OpType::Reduction => {
            let x = at_least(1, tensor);
            let dims = [x.rank() - 1].into_iter().collect();
            let (op, keepdim) = (ReduceOp::Sum, false);
            (Reduce { op, dims, keepdim }.into(), vec![x])
        }
        OpType::Normalization => {
            let x = at_least(1, tensor);
            (
                Softmax {
                    dim: x.rank() - 1,
                    log: false,
                }
                .into(),
                vec![x],
            )
        }
        OpType::ComplexMath => elementwise(BinaryOp::Mul, tensor),
        OpType::Distribution => random(tensor),
        OpType::CustomKernel | OpType::DistributedOps => return None,
    };
    let graph = alone(op, &inputs).ok()?;
    let found = graph.with_signature(&graph.nodes()[0], OpType::of);
    (found == Some(op_type)).then_some(graph)
}

/// A graph of one operation on inputs of these types.
///
/// # Errors
/// Fails if the operation is not defined for these types.
pub(crate) fn alone(op: Op, inputs: &[TensorType]) -> Result<Graph, OpError> {
    let mut graph = Graph::new();
    let mut values = Vec::with_capacity(inputs.len());
    for ty in inputs {
        values.push(graph.input(ty.clone())?);
    }
    let output = graph.push(op, &values)?;
    graph.output(output);
    Ok(graph)
}

/// The tensor with dimensions of size 1 in front, up to `rank` dimensions at least.
fn at_least(rank: usize, tensor: &TensorType) -> TensorType {
    let missing = rank.saturating_sub(tensor.rank());
    let ones = std::iter::repeat_n(1, missing);
    let shape: Shape = ones.chain(tensor.shape.iter().copied()).collect();
    TensorType::new(shape, tensor.dtype)
}

fn product(tensor: &TensorType) -> (Op, Vec<TensorType>) {
    let x = at_least(2, tensor);
    let [.., rows, columns] = x.shape[..] else {
        return (Matmul.into(), Vec::new());
    };
    if x.dtype.is_block() {
        let row = TensorType::new([1, columns], DType::F32);
        return (Linear.into(), vec![row, x]);
    }
    let other = TensorType::new([columns, rows.min(columns)], x.dtype);
    (Matmul.into(), vec![x, other])
}

fn convolution(tensor: &TensorType) -> Option<(Op, Vec<TensorType>)> {
    let x = at_least(4, tensor);
    // Whatever is in front is a batch.
    let (batch, image) = x.shape.split_at(x.rank() - 3);
    let images = (batch.iter()).try_fold(1usize, |images, &n| images.checked_mul(n))?;
    let channels = image[0];
    let shape = [images, channels, image[1], image[2]];
    let weight = TensorType::new([channels, channels, 3, 3], x.dtype);
    let padding = [1; 2];
    let op = Conv2d {
        padding,
        ..Conv2d::default()
    };
    Some((op.into(), vec![TensorType::new(shape, x.dtype), weight]))
}

fn elementwise(op: BinaryOp, tensor: &TensorType) -> (Op, Vec<TensorType>) {
    (Binary { op }.into(), vec![tensor.clone(), tensor.clone()])
}

fn random(tensor: &TensorType) -> (Op, Vec<TensorType>) {
    let op = Random {
        distribution: Distribution::Normal,
        shape: tensor.shape.clone(),
        dtype: tensor.dtype,
    };
    (op.into(), vec![TensorType::new([2], DType::I64)])
}
