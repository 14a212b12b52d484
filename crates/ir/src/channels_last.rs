//! Channels last: images between convolutions in the layout that devices compute fastest.
//!
//! If a device has a kernel for [`ChannelsLast`] of a convolution, [`arrange`] replaces the
//! convolution by it. The norms, pools and elementwise operations after it then read images in that
//! layout. All other operations see them as permuted views.

use smallvec::{SmallVec, smallvec};

use crate::fusion::Fused;
use crate::ops::ChannelsLast;
use crate::{Graph, Node, Op, OpError, OpKind, Signature, TensorType, ValueId};

/// The graph with [`ChannelsLast`] operations, if the device of a node `supports` them; `device`
/// returns a node's device by its index. `None` if most images would have to be permuted.
///
/// # Errors
/// Never fails for graphs of verified nodes.
pub fn arrange<D: Copy>(
    graph: &Graph,
    device: impl Fn(usize) -> D,
    supports: impl Fn(D, &Signature) -> bool,
) -> Result<Option<Fused>, OpError> {
    let is_convolution = |node: &Node| {
        let kind = node.op.kind();
        matches!(
            kind,
            OpKind::Conv2d | OpKind::ConvTranspose2d | OpKind::Conv2dWeight
        )
    };
    if !graph.nodes().iter().any(is_convolution) {
        return Ok(None);
    }
    let mut arranged = Arranged {
        graph: Graph::new(),
        origins: Vec::with_capacity(graph.nodes().len()),
        values: Vec::with_capacity(graph.len()),
        kept: 0,
        converted: 0,
    };
    for ty in graph.inputs() {
        let input = arranged.graph.input(ty.clone())?;
        arranged.values.push([Some(input), None]);
    }
    for (at, node) in graph.nodes().iter().enumerate() {
        let has_last = node.inputs.iter().any(|&v| arranged.has_last(v));
        let op = (is_convolution(node) || has_last)
            .then(|| with_channels_last(graph, node))
            .flatten()
            .filter(|op| {
                is_supported(graph, node, op, |signature| supports(device(at), signature))
            });
        match op {
            Some(op) => arranged.images(graph, at, node, op)?,
            None if has_last && is_elementwise(graph, node) => {
                arranged.elementwise(graph, at, node)?;
            }
            None => arranged.node(at, node)?,
        }
    }
    for &output in graph.outputs() {
        let last = graph.nodes().len().saturating_sub(1);
        let producer = graph.producer(output).unwrap_or(last);
        let value = arranged.value(output, 0, producer)?;
        arranged.graph.output(value);
    }
    Ok((arranged.kept > arranged.converted).then_some(Fused {
        graph: arranged.graph,
        origins: arranged.origins,
    }))
}

/// The node's operation for images with their channels last, if there is such a one.
fn with_channels_last(graph: &Graph, node: &Node) -> Option<Op> {
    let is_of_images = match node.op.kind() {
        OpKind::Conv2d
        | OpKind::ConvTranspose2d
        | OpKind::Conv2dWeight
        | OpKind::Pool2d
        | OpKind::MaxPool2dBackward => true,
        OpKind::BatchNormTrain | OpKind::BatchNormBackward => graph.ty(node.inputs[0]).rank() == 4,
        _ => false,
    };
    let op = Box::new(node.op.clone());
    is_of_images.then(|| ChannelsLast { op }.into())
}

fn is_supported(
    graph: &Graph,
    node: &Node,
    op: &Op,
    supports: impl FnOnce(&Signature) -> bool,
) -> bool {
    let ordered =
        |ty: &TensorType| TensorType::new(ChannelsLast::ORDER.map(|d| ty.shape[d]), ty.dtype);
    let inputs: SmallVec<[TensorType; 4]> = (node.inputs.iter().enumerate())
        .map(
            |(i, &v)| match ChannelsLast::is_image(&node.op, i, graph.ty(v)) {
                true => ordered(graph.ty(v)),
                false => graph.ty(v).clone(),
            },
        )
        .collect();
    let outputs: SmallVec<[TensorType; 1]> = (node.outputs.iter())
        .map(|ty| match ChannelsLast::gives_image(&node.op, ty) {
            true => ordered(ty),
            false => ty.clone(),
        })
        .collect();
    let inputs: SmallVec<[&TensorType; 4]> = inputs.iter().collect();
    supports(&Signature {
        op,
        inputs: &inputs,
        outputs: &outputs,
    })
}

/// Returns whether it is an operation on images, element by element, whose operands are images of that size and
/// numbers.
fn is_elementwise(graph: &Graph, node: &Node) -> bool {
    let shape = &node.outputs[0].shape;
    let fits = |&v: &ValueId| {
        let ty = graph.ty(v);
        ty.rank() == 0 || ty.shape == *shape
    };
    node.op.kind().is_elementwise()
        && shape.len() == 4
        && node.outputs.len() == 1
        && node.inputs.iter().all(fits)
}

/// A graph that is being made from another.
struct Arranged {
    graph: Graph,
    origins: Vec<SmallVec<[usize; 8]>>,
    /// For each value of the other, the new one, and that with its channels last.
    values: Vec<[Option<ValueId>; 2]>,
    /// Numbers of images that are read with their channels last, and of those that are read in the other order.
    kept: usize,
    converted: usize,
}

impl Arranged {
    fn has_last(&self, v: ValueId) -> bool {
        self.values[v.index()][1].is_some()
    }

    /// The new value in the order `order`: 1 with the channels last. `at` is the node that asks.
    fn value(&mut self, v: ValueId, order: usize, at: usize) -> Result<ValueId, OpError> {
        let known = self.values[v.index()];
        if let Some(value) = known[order] {
            self.kept += order;
            return Ok(value);
        }
        let missing = || {
            let got = format!("%{}", v.index());
            OpError::new("channels_last", "operands that are computed before", got)
        };
        let other = known[1 - order].ok_or_else(missing)?;
        let dims = [ChannelsLast::BACK, ChannelsLast::ORDER][order];
        let value = self.graph.permute(other, &dims)?;
        self.converted += 1 - order;
        self.origins.push(smallvec![at]);
        self.values[v.index()][order] = Some(value);
        Ok(value)
    }

    /// Sets the next values of the other graph.
    fn results(&mut self, first: ValueId, order: impl Fn(usize) -> usize) {
        for (i, result) in self.graph.results(first).into_iter().enumerate() {
            let mut value = [None; 2];
            value[order(i)] = Some(result);
            self.values.push(value);
        }
    }

    fn images(&mut self, from: &Graph, at: usize, node: &Node, op: Op) -> Result<(), OpError> {
        let mut inputs: SmallVec<[ValueId; 8]> = SmallVec::new();
        for (i, &v) in node.inputs.iter().enumerate() {
            let is_image = ChannelsLast::is_image(&node.op, i, from.ty(v));
            inputs.push(self.value(v, usize::from(is_image), at)?);
        }
        let first = self.graph.push(op, &inputs)?;
        self.origins.push(smallvec![at]);
        self.results(first, |i| {
            usize::from(ChannelsLast::gives_image(&node.op, &node.outputs[i]))
        });
        Ok(())
    }

    fn elementwise(&mut self, from: &Graph, at: usize, node: &Node) -> Result<(), OpError> {
        let mut inputs: SmallVec<[ValueId; 8]> = SmallVec::new();
        for &v in &node.inputs {
            let is_image = from.ty(v).rank() == 4;
            inputs.push(self.value(v, usize::from(is_image), at)?);
        }
        let first = self.graph.push(node.op.clone(), &inputs)?;
        self.origins.push(smallvec![at]);
        self.results(first, |_| 1);
        Ok(())
    }

    fn node(&mut self, at: usize, node: &Node) -> Result<(), OpError> {
        let mut inputs: SmallVec<[ValueId; 8]> = SmallVec::new();
        for &v in &node.inputs {
            inputs.push(self.value(v, 0, at)?);
        }
        let first = self.graph.push_node(node, &inputs)?;
        self.origins.push(smallvec![at]);
        self.results(first, |_| 0);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;
    use crate::ops::{Activation, ActivationKind, BatchNormTrain, Conv2d, Reduce, ReduceOp};

    fn names(graph: &Graph) -> Vec<&'static str> {
        graph.nodes().iter().map(|node| node.op.name()).collect()
    }

    fn network() -> Graph {
        let mut g = Graph::new();
        let mut input = |shape: &[usize]| g.input(TensorType::new(shape, DType::BF16)).unwrap();
        let (x, w, of_channels) = (input(&[2, 8, 6, 6]), input(&[8, 8, 1, 1]), input(&[8]));
        let y = g.push(Conv2d::default(), &[x, w]).unwrap();
        let norm = BatchNormTrain {
            eps: 1e-5.into(),
            adds: false,
            relu: false,
        };
        let y = g.push(norm, &[y, of_channels, of_channels]).unwrap();
        let kind = ActivationKind::Relu;
        let relu = g.push(Activation { kind }, &[y]).unwrap();
        let y = g.push(Conv2d::default(), &[relu, w]).unwrap();
        let y = g.add(y, relu).unwrap();
        let sum = Reduce {
            op: ReduceOp::Sum,
            dims: [2, 3].into_iter().collect(),
            keepdim: false,
        };
        let y = g.push(sum, &[y]).unwrap();
        g.output(y);
        g
    }

    #[test]
    fn images_stay_so_between_convolutions() {
        let arranged = arrange(&network(), |_| (), |(), _| true).unwrap().unwrap();
        let expected = [
            "permute",
            "channels_last",
            "channels_last",
            "activation",
            "channels_last",
            "binary",
            "permute",
            "reduce",
        ];
        assert_eq!(names(&arranged.graph), expected);
        assert_eq!(arranged.origins.len(), expected.len());
        assert_eq!(arranged.origins[0][..], [0]);
    }

    #[test]
    fn a_convolution_alone_is_left_as_it_is() {
        let mut g = Graph::new();
        let [x, w] = [[2, 8, 6, 6], [8, 8, 1, 1]]
            .map(|shape| g.input(TensorType::new(shape, DType::BF16)).unwrap());
        let y = g.push(Conv2d::default(), &[x, w]).unwrap();
        g.output(y);
        assert!(arrange(&g, |_| (), |(), _| true).unwrap().is_none());
    }

    #[test]
    fn devices_without_such_kernels_keep_their_graphs() {
        assert!(
            arrange(&network(), |_| (), |(), _| false)
                .unwrap()
                .is_none()
        );
    }
}
