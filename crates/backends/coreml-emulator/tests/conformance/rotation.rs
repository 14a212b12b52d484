//! Rotation in halves, by angles that halves could not tell apart.

use half::f16;
use rustorch_coreml::{Opset, Precision};
use rustorch_ir::ops::{Rope, RopeLayout, RopeScaling};
use rustorch_ir::{DType, Graph, TensorType};

use crate::device::{Device, Known};
use crate::{error, target, values};

const PAIRS: usize = 4;
/// The last are 8192 and its neighbour, which are one number in halves.
const POSITIONS: [f64; 4] = [0.0, 7.0, 8192.0, 8193.0];

/// Llama 3's factors as an input, and as a constant.
pub(crate) fn factors_of_frequencies_keep_single_precision() {
    let op = Rope {
        dims: 2 * PAIRS,
        layout: RopeLayout::Halves,
        base: 10_000.0.into(),
        scaling: RopeScaling::NONE,
    };
    let types = [
        TensorType::new([POSITIONS.len(), 2 * PAIRS], DType::F16),
        TensorType::new([POSITIONS.len()], DType::I32),
        TensorType::new([PAIRS], DType::F32),
    ];
    let factors = [1.0_f32, 1.7, 3.3, 8.0];
    let (frequencies, _) = op.frequencies(Some(&factors));
    let x: Vec<f64> = (0..POSITIONS.len() * 2 * PAIRS)
        .map(|i| f16::from_f64(1.0 - i as f64 / 16.0).to_f64())
        .collect();
    let rows = x.chunks(2 * PAIRS).zip(POSITIONS);
    let expected: Vec<f64> = rows
        .flat_map(|(row, position)| {
            let turned = |sum: fn(f64, f64, f64, f64) -> f64| {
                let pairs = frequencies.iter().enumerate();
                pairs.map(move |(i, f)| {
                    let (sin, cos) = (position * f).sin_cos();
                    sum(row[i], row[i + PAIRS], sin, cos)
                })
            };
            let first = turned(|a, b, sin, cos| a * cos - b * sin);
            first.chain(turned(|a, b, sin, cos| a * sin + b * cos))
        })
        .collect();
    let mut graph = Graph::new();
    let inputs = types.map(|ty| graph.input(ty).unwrap());
    let y = graph.push(op, &inputs).unwrap();
    graph.output(y);
    let operands = [
        values::encode(DType::F16, &x),
        values::encode(DType::I32, &POSITIONS),
        values::encode(DType::F32, &factors.map(f64::from)),
    ];
    for known in [Known::Nothing, Known::AllButTheFirst] {
        let device = Device::new(target(Opset::CoreML6, Precision::F16), known);
        let results = device.predict(&graph, &operands).unwrap();
        let result = values::decode(DType::F16, &results[0]);
        let error = error(&result, &expected);
        assert!(
            error < 1e-6,
            "{error:e}: {result:?}, should be {expected:?}"
        );
    }
}
