//! Random numbers that are drawn inside chains.

use std::sync::Arc;

use rustorch_ir::ops::{CompareOp, Distribution, Random};
use rustorch_ir::{DType, Graph, OpError, TensorType};
use rustorch_reference::{Reference, Values};
use rustorch_runtime::{Backend, HostBuffer, Routing, Runtime, Storage};

/// Dropout gives the reference's result to the bit, whatever chains its random numbers are drawn in. For a gradient it
/// drops the same elements as for its operand. Elements may lie one after the other or not. Their number need not be a
/// multiple of the numbers drawn at once.
///
/// # Panics
/// Panics if the results differ.
pub fn check_dropout(device: Arc<dyn Backend>) {
    use DType::{BF16, F16, F32};
    let many = [520, 512];
    let cases = [
        (many, F32, false),
        (many, F16, false),
        (many, BF16, false),
        (many, F32, true),
        ([523, 511], F32, false),
        ([3, 5], BF16, true),
    ];
    let reference: Arc<dyn Backend> = Arc::new(Reference::new());
    let runtimes = [device, reference].map(|backend| Runtime::new([backend]));
    for (shape, dtype, turns) in cases {
        let graph = dropout(shape, dtype, turns).unwrap();
        let (seed, offset) = (-7_i64, (1_i64 << 32) - 1000);
        let count = shape.iter().product::<usize>();
        let numbers = |first: usize| {
            let numbers = (first..first + count).map(|i| (i % 253) as f64 - 126.0);
            Values::Float(numbers.collect()).encode(dtype)
        };
        let key = [seed.to_ne_bytes(), offset.to_ne_bytes()].concat();
        let inputs = [key, numbers(0), numbers(100)]
            .map(|bytes| Storage::from_host(HostBuffer::copy_of(&bytes).unwrap()));
        let [dropped, expected] = [0, 1].map(|i| {
            let runtime: &Runtime = &runtimes[i];
            let outputs = runtime.prepare(graph.clone(), Routing::AUTO).run(&inputs);
            let outputs = outputs.unwrap();
            let read = |output: &Storage| {
                let mut bytes = vec![0; output.bytes()];
                runtime.read(output, 0, &mut bytes).unwrap();
                bytes
            };
            outputs.iter().map(read).collect::<Vec<_>>()
        });
        assert!(
            dropped == expected,
            "{shape:?} {dtype}, across rows: {turns}"
        );
    }
}

/// Dropout of an operand and of a gradient, by a key; `turns` reads both across their rows.
fn dropout(shape: [usize; 2], dtype: DType, turns: bool) -> Result<Graph, OpError> {
    let mut g = Graph::new();
    let key = g.input(TensorType::new([2], DType::I64))?;
    let stored = match (turns, shape) {
        (false, _) => shape,
        (true, [rows, columns]) => [columns, rows],
    };
    let stored = [(); 2].map(|()| g.input(TensorType::new(stored, dtype)));
    let numbers = Random {
        distribution: Distribution::Uniform,
        shape: shape.into(),
        dtype: DType::F32,
    };
    let numbers = g.push(numbers, &[key])?;
    // Numbers that every dtype has, for the reference rounds none in between.
    let p = g.constant(0.125, DType::F32)?;
    let kept = g.compare(CompareOp::Ge, numbers, p)?;
    let [scale, zero] = [2.0, 0.0].map(|x| g.constant(x, DType::F32));
    let scale = g.select(kept, scale?, zero?)?;
    let scale = g.cast(scale, dtype)?;
    for x in stored {
        let x = match turns {
            false => x?,
            true => g.permute(x?, &[1, 0])?,
        };
        let y = g.mul(x, scale)?;
        g.output(y);
    }
    Ok(g)
}
