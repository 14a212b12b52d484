//! Cost of operations on small tensors besides their kernels, computed one by one: `cargo bench -p
//! rustorch-tensor --bench overhead -- [WORDS]`. Only rows with the words in their names run. `cargo
//! bench -p rustorch-tensor --bench overhead -- [WORDS]`, which leaves out what does not have the
//! words in its name.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustorch_cpu::Cpu;
use rustorch_ir::DType;
use rustorch_runtime::{Backend, Routing, Runtime};
use rustorch_tensor::{RusTorchResult, Tensor, with_runtime};

/// Elements of a tensor.
const ELEMENTS: usize = 100;

/// Operations one after the other: as many as are recorded before they are computed.
const CHAIN: u32 = 1000;

/// Runs of which the mean is taken.
const RUNS: u32 = 1000;

/// Means of which the least is shown: the one that was disturbed least.
const ROUNDS: usize = 40;

fn measure(what: &str, run: impl FnMut() -> RusTorchResult<Tensor>) {
    measure_each(what, RUNS, 1, run);
}

/// Prints the time of one of the `steps` operations that each of `runs` runs of a round has.
fn measure_each(
    what: &str,
    runs: u32,
    steps: u32,
    mut run: impl FnMut() -> RusTorchResult<Tensor>,
) {
    let mut once = || drop(black_box(run().expect("a result")));
    show(what, || {
        let start = Instant::now();
        (0..runs).for_each(|_| once());
        start.elapsed() / (runs * steps)
    });
}

/// Prints the least of several rounds.
fn show(what: &str, mut round: impl FnMut() -> Duration) {
    // Cargo adds an option of its own.
    let mut words = std::env::args().skip(1).filter(|word| word != "--bench");
    if !words.all(|word| what.contains(&word)) {
        return;
    }
    round();
    let best: Duration = (0..ROUNDS).map(|_| round()).min().unwrap_or_default();
    println!("{what:<44} {:>8.3} µs", best.as_secs_f64() * 1e6);
}

/// Sums one after the other: `x + y + y …`.
fn sums(x: &Tensor, y: &Tensor, count: u32) -> RusTorchResult<Tensor> {
    let mut sum = x.clone();
    for _ in 0..count {
        sum = sum.add(y)?;
    }
    Ok(sum)
}

/// Rounds in fresh runtimes. A round has `runs` runs with operands of different sizes, and `steps`
/// operations in each.
fn measure_new(
    what: &str,
    runs: u32,
    steps: u32,
    run: impl Fn(&Tensor, &Tensor) -> RusTorchResult<Tensor>,
) {
    let cpu = Arc::new(Cpu::new(0)) as Arc<dyn Backend>;
    show(what, || {
        let runtime = Runtime::new([cpu.clone()]);
        with_runtime(&runtime, Routing::AUTO, || {
            let operand = |size| Tensor::from_slice(&vec![0.5f32; size], [size]);
            let pairs = (ELEMENTS..ELEMENTS + runs as usize)
                .map(|size| Ok([operand(size)?, operand(size)?]))
                .collect::<RusTorchResult<Vec<_>>>()
                .expect("operands");
            let start = Instant::now();
            for [x, y] in &pairs {
                drop(black_box(run(x, y).expect("a result")));
            }
            start.elapsed() / (runs * steps)
        })
    });
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
        measure_each("x + y + y …, each of 1000, recorded", 5, CHAIN, || {
            sums(&x, &y, CHAIN)
        });
        measure_each("x + y + y …, each of 1000", 5, CHAIN, || {
            computed(sums(&x, &y, CHAIN))
        });
        measure_new("x + y, each of another shape", 100, 1, |x, y| {
            computed(x.add(y))
        });
        measure_new(
            "(x * y + x).relu(), each of another shape",
            100,
            1,
            |x, y| computed(x.mul(y)?.add(x)?.relu()),
        );
        measure_new(
            "x + y + y …, each of 1000, of another shape",
            5,
            CHAIN,
            |x, y| computed(sums(x, y, CHAIN)),
        );
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
