//! Norms of halves, where squares of them would be infinite, or nothing beside `eps`.

use half::f16;
use rustorch_coreml::{Opset, Precision};
use rustorch_ir::ops::RmsNorm;
use rustorch_ir::{DType, Graph, TensorType};

use crate::device::{Device, Known};
use crate::{error, target, values};

const EPS: f64 = 1e-5;

pub(crate) fn rows_of_halves_neither_overflow_nor_vanish() {
    let mut graph = Graph::new();
    let x = graph.input(TensorType::new([4, 16], DType::F16)).unwrap();
    let y = graph.push(RmsNorm { eps: EPS.into() }, &[x]).unwrap();
    graph.output(y);
    let scales = [6e4, 1.0, 3e-3, 0.0];
    let x: Vec<f64> = (0..64)
        .map(|i| scales[i / 16] * (1.0 - (i % 16) as f64 / 8.0))
        .map(|x| f16::from_f64(x).to_f64())
        .collect();
    let device = Device::new(target(Opset::CoreML6, Precision::F16), Known::Nothing);
    let results = device
        .predict(&graph, &[values::encode(DType::F16, &x)])
        .unwrap();
    let results = values::decode(DType::F16, &results[0]);
    for (result, x) in results.chunks(16).zip(x.chunks(16)) {
        let mean = x.iter().map(|x| x * x).sum::<f64>() / 16.0;
        let expected: Vec<f64> = x.iter().map(|x| x / (mean + EPS).sqrt()).collect();
        let error = error(result, &expected);
        assert!(
            error < 1e-5,
            "{error:e}: {result:?}, should be {expected:?}"
        );
    }
}
