//! What operations on small tensors cost besides their kernels, computed one by one:
//! `cargo bench -p rustorch-tensor --bench overhead`.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustorch_cpu::Cpu;
use rustorch_ir::DType;
use rustorch_runtime::{Backend, Routing, Runtime};
use rustorch_tensor::{RusTorchResult, Tensor, with_runtime};

/// Elements of a tensor.
const ELEMENTS: usize = 100;

/// Runs of which the mean is taken.
const RUNS: u32 = 1000;

/// Means of which the least is shown: the one that was disturbed least.
const ROUNDS: usize = 40;

fn measure(what: &str, mut run: impl FnMut() -> RusTorchResult<Tensor>) {
    let mut once = || drop(black_box(run().expect("a result")));
    let mut round = || {
        let start = Instant::now();
        (0..RUNS).for_each(|_| once());
        start.elapsed() / RUNS
    };
    round();
    let best: Duration = (0..ROUNDS).map(|_| round()).min().unwrap_or_default();
    println!("{what:<44} {:>8.3} µs", best.as_secs_f64() * 1e6);
}

/// Computes the tensor now.
fn computed(tensor: RusTorchResult<Tensor>) -> RusTorchResult<Tensor> {
    let tensor = tensor?;
    tensor.eval()?;
    Ok(tensor)
}

fn main() -> RusTorchResult<()> {
    let runtime = Runtime::new([Arc::new(Cpu::new(0)) as Arc<dyn Backend>]);
    with_runtime(&runtime, Routing::AUTO, || {
        let x = Tensor::from_slice(&[1.5f32; ELEMENTS], [ELEMENTS])?;
        let y = Tensor::from_slice(&[0.5f32; ELEMENTS], [ELEMENTS])?;
        let mut next = 0.0;
        let mut fresh = || {
            next += 1.0;
            next
        };
        measure("x + y, recorded alone", || x.add(&y));
        measure("x + y", || computed(x.add(&y)));
        measure("x.exp()", || computed(x.exp()));
        measure("x * 2.5", || computed(x.mul(2.5)));
        measure("x * s, each s another", || computed(x.mul(fresh())));
        measure("(x * y + x).relu()", || {
            computed(x.mul(&y)?.add(&x)?.relu())
        });
        measure("x.sum()", || computed(x.sum(None, false)));
        runtime.set_recipe_limit(1 << 30);
        measure("x + y, with a recipe", || computed(x.add(&y)));
        measure("x.sum(), with a recipe", || computed(x.sum(None, false)));
        runtime.set_recipe_limit(0);
        measure("dropout: x * (rand < 0.9) / 0.9", || {
            let kept = Tensor::rand([ELEMENTS], DType::F32)?.lt(0.9)?;
            computed(x.mul(&kept)?.div(0.9))
        });
        Ok(())
    })
}
