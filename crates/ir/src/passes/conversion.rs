//! A runtime whose devices have no common dtype, for comparison.

use std::collections::HashMap;

use smallvec::SmallVec;

use super::{Pass, Places, Rewriting, Rewritten};
use crate::ops::Cast;
use crate::{DType, DeviceType, Graph, OpError, ValueId};

/// Casts for every computed `f32` value that goes from one device to another: to `dtype` where it comes from, and back
/// where it goes to. Nodes are pinned to their devices. Inputs, states and views of those are read as they are.
pub struct Conversion<'a> {
    /// The device of each node.
    pub devices: &'a [DeviceType],
    /// Dtype of values on their way.
    pub dtype: DType,
}

impl Pass for Conversion<'_> {
    fn name(&self) -> &'static str {
        "conversion"
    }

    fn run(&self, graph: &Graph, _places: &dyn Places) -> Result<Option<Rewritten>, OpError> {
        let mut out = Rewriting::new(graph)?;
        // The converted value of another device's, by value and device.
        let mut brought: HashMap<(ValueId, DeviceType), ValueId> = HashMap::new();
        for (at, (node, &device)) in graph.nodes().iter().zip(self.devices).enumerate() {
            let mut operands: SmallVec<[ValueId; 4]> = SmallVec::new();
            for &value in &node.inputs {
                operands.push(match comes_from(graph, self.devices, value) {
                    Some((from, other)) if other != device => match brought.get(&(value, device)) {
                        Some(&known) => known,
                        None => {
                            let there = Cast { dtype: self.dtype };
                            let back = Cast { dtype: DType::F32 };
                            let computed = out.value(value)?;
                            let sent = out.push_on(Some(other), there, &[computed], from)?;
                            let received = out.push_on(Some(device), back, &[sent], at)?;
                            brought.insert((value, device), received);
                            received
                        }
                    },
                    _ => out.value(value)?,
                });
            }
            let first = out.push_on(Some(device), node.op.clone(), &operands, at)?;
            for (old, new) in node.results().zip(out.graph().results(first)) {
                out.set(old, new);
            }
        }
        out.finish().map(Some)
    }
}

/// The node that computes a value, and its device, if it is a computed `f32` value.
fn comes_from(
    graph: &Graph,
    devices: &[DeviceType],
    value: ValueId,
) -> Option<(usize, DeviceType)> {
    let shown = graph.base(value);
    let is_computed = graph.ty(value).dtype == DType::F32 && graph.state_root(shown).is_none();
    let at = graph.producer(value)?;
    is_computed.then(|| (at, devices[at]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TensorType;
    use crate::ops::UnaryOp;
    use crate::passes::OneDevice;

    #[test]
    fn what_changes_device_is_cast_there_and_back_once() {
        let (cpu, gpu) = (DeviceType::Cpu, DeviceType::Metal(0));
        let mut graph = Graph::new();
        let x = graph.input(TensorType::new([2, 3], DType::F32)).unwrap();
        let y = graph.unary(UnaryOp::Neg, x).unwrap();
        let flat = graph.reshape(y, [6]).unwrap();
        let a = graph.unary(UnaryOp::Exp, flat).unwrap();
        let b = graph.mul(flat, a).unwrap();
        let c = graph.unary(UnaryOp::Neg, x).unwrap();
        graph.output(b);
        graph.output(c);
        let conversion = Conversion {
            devices: &[cpu, cpu, gpu, gpu, gpu],
            dtype: DType::F16,
        };
        let out = conversion.run(&graph, &OneDevice(|_| true));
        let out = out.unwrap().unwrap().graph;
        let nodes: Vec<_> = out.nodes().iter().map(|n| (n.op.name(), n.pin)).collect();
        let expected = [
            ("unary", cpu),
            ("reshape", cpu),
            ("cast", cpu),
            ("cast", gpu),
            ("unary", gpu),
            ("binary", gpu),
            ("unary", gpu),
        ];
        assert_eq!(nodes, expected.map(|(name, device)| (name, Some(device))));
        let types = |g: &Graph| {
            g.outputs()
                .iter()
                .map(|&v| g.ty(v).clone())
                .collect::<Vec<_>>()
        };
        assert_eq!(types(&out), types(&graph));
    }
}
