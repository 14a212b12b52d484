//! Programs that keep their states.

use rustorch_coreml::{Emitter, Opset, Precision, Target};
use rustorch_ir::ops::{Activation, ActivationKind, UpdateSlice};
use rustorch_ir::{DType, Graph, TensorType};

use crate::device::{Device, Known};
use crate::{target, values};

const STATE: [usize; 3] = [4, 5, 6];

/// One row is written into a state of halves, along `dim`, and what it then holds is read.
fn graph(dim: usize, source: DType) -> Graph {
    let mut row = STATE;
    row[dim] = 1;
    let mut graph = Graph::new();
    let types = [
        TensorType::new(STATE, DType::F16),
        TensorType::new(row, source),
        TensorType::new([1], DType::I32),
    ];
    let operands = types.map(|ty| graph.input(ty).unwrap());
    let state = graph.push(UpdateSlice { dim }, &operands).unwrap();
    let kind = ActivationKind::Relu;
    let read = graph.push(Activation { kind }, &[state]).unwrap();
    graph.output(read);
    graph
}

/// Results of the programs of each graph. The device checks that their states equal those in
/// memory.
pub(crate) fn runs(device: &Device) -> Vec<Vec<u8>> {
    let mut results = Vec::new();
    for (dim, size) in STATE.into_iter().enumerate() {
        for source in [DType::F16, DType::F32] {
            let graph = graph(dim, source);
            let ramp = |dtype, count: usize, from: f64| {
                let x: Vec<f64> = (0..count).map(|i| from + i as f64 / 8.0).collect();
                values::encode(dtype, &x)
            };
            let row = graph.inputs()[1].shape.elements();
            for start in [0, size - 1] {
                let operands = [
                    ramp(DType::F16, STATE.iter().product(), -2.0),
                    ramp(source, row, 64.0),
                    values::encode(DType::I32, &[start as f64]),
                ];
                results.extend(device.predict(&graph, &operands).unwrap());
            }
        }
    }
    results
}

pub(crate) fn programs_that_keep_a_state_update_it() {
    for precision in [Precision::F32, Precision::F16] {
        let plain = target(Opset::CoreML8, precision);
        let keeping = Target {
            states: true,
            ..plain
        };
        let emitted = Emitter::new(keeping).emit(&graph(1, DType::F32), &Default::default());
        assert_eq!(emitted.unwrap().updates[0].kept.as_deref(), Some("x0"));
        let [keeping, plain] = [keeping, plain].map(|t| runs(&Device::new(t, Known::Nothing)));
        assert_eq!(keeping, plain);
    }
}
