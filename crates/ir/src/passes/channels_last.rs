//! Channels last: images between convolutions in the layout that devices compute fastest.
//!
//! If a device has a kernel for [`ChannelsLast`] of a convolution, that replaces the convolution. The
//! norms, pools and elementwise operations after it then read images in that layout. All other
//! operations see them as permuted views.

use smallvec::SmallVec;

use super::{Pass, Places, Rewriting, Rewritten};
use crate::ops::{ChannelsLast, Permute};
use crate::{Graph, Node, Op, OpError, OpKind, Signature, TensorType, ValueId};

/// Puts in [`ChannelsLast`] operations that the device of a node supports, unless most images would have
/// to be permuted.
pub struct ChannelsLastImages;

impl Pass for ChannelsLastImages {
    fn name(&self) -> &'static str {
        "channels last"
    }

    fn run(&self, graph: &Graph, places: &dyn Places) -> Result<Option<Rewritten>, OpError> {
        if !graph.nodes().iter().any(is_convolution) {
            return Ok(None);
        }
        let mut arranged = Arranged {
            out: Rewriting::new(graph)?,
            last: vec![None; graph.len()],
            kept: 0,
            converted: 0,
        };
        for (at, node) in graph.nodes().iter().enumerate() {
            let has_last = node.inputs.iter().any(|&v| arranged.has_last(v));
            let op = (is_convolution(node) || has_last)
                .then(|| with_channels_last(graph, node))
                .flatten()
                .filter(|op| is_supported(graph, node, op, |s| places.supports(at, s)));
            match op {
                Some(op) => arranged.images(at, node, op)?,
                None if has_last && is_elementwise(graph, node) => {
                    arranged.elementwise(at, node)?
                }
                None => arranged.node(at, node)?,
            }
        }
        for &output in graph.outputs() {
            let last = graph.nodes().len().saturating_sub(1);
            let producer = graph.producer(output).unwrap_or(last);
            arranged.value(output, false, producer)?;
        }
        match arranged.kept > arranged.converted {
            true => arranged.out.finish().map(Some),
            false => Ok(None),
        }
    }
}

fn is_convolution(node: &Node) -> bool {
    let kind = node.op.kind();
    matches!(
        kind,
        OpKind::Conv2d | OpKind::ConvTranspose2d | OpKind::Conv2dWeight
    )
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

/// A graph in the making, with images in two orders.
struct Arranged<'g> {
    out: Rewriting<'g>,
    /// For each value of the source, that with its channels last.
    last: Vec<Option<ValueId>>,
    /// Numbers of images that are read with their channels last, and of those that are read in the other order.
    kept: usize,
    converted: usize,
}

impl Arranged<'_> {
    fn has_last(&self, v: ValueId) -> bool {
        self.last[v.index()].is_some()
    }

    /// The new value, with its channels last or as it was. `at` is the node that asks.
    fn value(&mut self, v: ValueId, last: bool, at: usize) -> Result<ValueId, OpError> {
        match (last, self.last[v.index()], self.out.known(v)) {
            (true, Some(value), _) => {
                self.kept += 1;
                Ok(value)
            }
            (false, Some(image), None) => {
                self.converted += 1;
                let value = self.permute(image, &ChannelsLast::BACK, at)?;
                self.out.set(v, value);
                Ok(value)
            }
            (true, None, _) => {
                let value = self.permute(self.out.value(v)?, &ChannelsLast::ORDER, at)?;
                self.last[v.index()] = Some(value);
                Ok(value)
            }
            (false, _, _) => self.out.value(v),
        }
    }

    fn permute(&mut self, v: ValueId, dims: &[usize], at: usize) -> Result<ValueId, OpError> {
        let dims = dims.iter().copied().collect();
        self.out.push(Permute { dims }, &[v], at)
    }

    /// Sets the results of a node.
    fn results(&mut self, node: &Node, first: ValueId, is_last: impl Fn(usize) -> bool) {
        let results = self.out.graph().results(first);
        for (i, (old, new)) in node.results().zip(results).enumerate() {
            match is_last(i) {
                true => self.last[old.index()] = Some(new),
                false => self.out.set(old, new),
            }
        }
    }

    fn images(&mut self, at: usize, node: &Node, op: Op) -> Result<(), OpError> {
        let from = self.out.source();
        let mut inputs: SmallVec<[ValueId; 8]> = SmallVec::new();
        for (i, &v) in node.inputs.iter().enumerate() {
            let is_image = ChannelsLast::is_image(&node.op, i, from.ty(v));
            inputs.push(self.value(v, is_image, at)?);
        }
        let first = self.out.push(op, &inputs, at)?;
        self.results(node, first, |i| {
            ChannelsLast::gives_image(&node.op, &node.outputs[i])
        });
        Ok(())
    }

    fn elementwise(&mut self, at: usize, node: &Node) -> Result<(), OpError> {
        let from = self.out.source();
        let mut inputs: SmallVec<[ValueId; 8]> = SmallVec::new();
        for &v in &node.inputs {
            inputs.push(self.value(v, from.ty(v).rank() == 4, at)?);
        }
        let first = self.out.push(node.op.clone(), &inputs, at)?;
        self.results(node, first, |_| true);
        Ok(())
    }

    fn node(&mut self, at: usize, node: &Node) -> Result<(), OpError> {
        for &v in &node.inputs {
            self.value(v, false, at)?;
        }
        self.out.keep(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;
    use crate::ops::{Activation, ActivationKind, BatchNormTrain, Conv2d, Reduce, ReduceOp};
    use crate::passes::OneDevice;

    fn names(graph: &Graph) -> Vec<&'static str> {
        graph.nodes().iter().map(|node| node.op.name()).collect()
    }

    fn arrange(graph: &Graph) -> Option<Rewritten> {
        let arranged = ChannelsLastImages.run(graph, &OneDevice(|_| true));
        arranged.unwrap()
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
        let arranged = arrange(&network()).unwrap();
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
        assert!(arrange(&g).is_none());
    }

    #[test]
    fn devices_without_such_kernels_keep_their_graphs() {
        let arranged = ChannelsLastImages.run(&network(), &OneDevice(|_| false));
        assert!(arranged.unwrap().is_none());
    }
}
