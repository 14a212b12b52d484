//! A runtime whose devices have no common dtype, for comparison.

use std::collections::HashMap;

use crate::ops::Cast;
use crate::{DType, DeviceType, Graph, OpError, ValueId};
use smallvec::SmallVec;

/// `graph` with its nodes on `devices`, and casts for every computed `f32` value that goes from one device to
/// another: to `dtype` where it comes from, and back where it goes to. Nodes are pinned to their devices.
/// Inputs, states and views of those are read as they are.
///
/// # Errors
/// The errors of [`Graph::push`].
pub fn converting(graph: &Graph, devices: &[DeviceType], dtype: DType) -> Result<Graph, OpError> {
    let mut out = Graph::new();
    let mut values = Vec::with_capacity(graph.len());
    for ty in graph.inputs() {
        values.push(out.input(ty.clone())?);
    }
    // The converted value of another device's, by value and device.
    let mut brought: HashMap<(ValueId, DeviceType), ValueId> = HashMap::new();
    for (node, &device) in graph.nodes().iter().zip(devices) {
        let mut operands: SmallVec<[ValueId; 4]> = SmallVec::new();
        for &value in &node.inputs {
            operands.push(match comes_from(graph, devices, value) {
                Some(other) if other != device => match brought.get(&(value, device)) {
                    Some(&known) => known,
                    None => {
                        let sent = out.push(Cast { dtype }, &[values[value.index()]])?;
                        out.pin(sent, Some(other));
                        let received = out.push(Cast { dtype: DType::F32 }, &[sent])?;
                        out.pin(received, Some(device));
                        brought.insert((value, device), received);
                        received
                    }
                },
                _ => values[value.index()],
            });
        }
        let first = out.push_node(node, &operands)?;
        out.pin(first, Some(device));
        values.extend(out.results(first));
    }
    for &output in graph.outputs() {
        out.output(values[output.index()]);
    }
    Ok(out)
}

/// The device that computes a value, if it is a computed `f32` value.
fn comes_from(graph: &Graph, devices: &[DeviceType], value: ValueId) -> Option<DeviceType> {
    let shown = graph.base(value);
    let is_computed = graph.ty(value).dtype == DType::F32 && graph.state_root(shown).is_none();
    let at = graph.producer(value)?;
    is_computed.then(|| devices[at])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TensorType;
    use crate::ops::UnaryOp;

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
        let out = converting(&graph, &[cpu, cpu, gpu, gpu, gpu], DType::F16).unwrap();
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
