//! Calls cost what their operands do: ten times as many take about ten times as many instructions.

use std::env;
use std::fmt::Write;
use std::hint::black_box;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;

use rustorch_cpu::Cpu;
use rustorch_ir::DType;
use rustorch_runtime::{Backend, Routing, Runtime};
use rustorch_tensor::autograd::grad;
use rustorch_tensor::nn::{InterpolateMode, InterpolateOptions};
use rustorch_tensor::{Indexing, RusTorchResult, Tensor, Trace, eval_all, with_runtime};
use rustorch_testing::instructions::{self, rustorch_counted, tools};
use rustorch_testing::{Suite, tests};

/// Says what the program does instead of testing: runs a case of this name and size.
const VARIABLE: &str = "RUSTORCH_GROWTH";

/// The smaller size of a case. The larger one is ten times that.
const SIZE: usize = 20;

type Outcome = RusTorchResult<()>;

/// A case to count: its name, and its work at a size.
type Case = (&'static str, fn(usize) -> Outcome);

const CASES: [Case; 40] = [
    ("from_vec and to_vec", |n| {
        (0..n).try_for_each(|_| numbers(64)?.to_vec::<f32>().map(drop))
    }),
    ("from_vec and to_vec of much", |n| {
        numbers(100 * n)?.to_vec::<f32>().map(drop)
    }),
    ("display", |n| {
        let mut text = String::new();
        write!(text, "{}", numbers(n)?).expect("a string takes all");
        black_box(text);
        Ok(())
    }),
    ("display of parts", |n| {
        let x = numbers(n)?;
        let show = |i| x.select(0, i as isize).map(|x| drop(format!("{x}")));
        (0..n).try_for_each(show)
    }),
    ("cat", |n| done(&Tensor::cat(&vectors(n)?, 0)?)),
    ("stack", |n| done(&Tensor::stack(&vectors(n)?, 0)?)),
    ("stack of results", |n| {
        let parts = each(&vectors(n)?, |x| x.add(1))?;
        done(&Tensor::stack(&parts, 0)?)
    }),
    ("stack of repeats", |n| {
        let x = numbers(1)?;
        done(&Tensor::stack(&vec![&x; n], 0)?)
    }),
    ("hstack", |n| done(&Tensor::hstack(&vectors(n)?)?)),
    ("column_stack", |n| {
        done(&Tensor::column_stack(&references(&vectors(n)?))?)
    }),
    // A matrix of n elements.
    ("block_diag", |n| {
        done(&Tensor::block_diag(&references(&vectors(n.isqrt())?))?)
    }),
    ("meshgrid", |n| {
        let (x, y) = (numbers(10 * n)?, numbers(10)?);
        all(Tensor::meshgrid(&[&x, &y], Indexing::Ij)?)
    }),
    ("cartesian_prod", |n| {
        done(&Tensor::cartesian_prod(&[
            &numbers(10 * n)?,
            &numbers(10)?,
        ])?)
    }),
    ("einsum", |n| {
        let terms = vec!["a"; n].join(",");
        let product = Tensor::einsum(&format!("{terms}->a"), &references(&vectors(n)?))?;
        done(&product)
    }),
    ("split", |n| all(numbers(n)?.split(1, 0)?)),
    ("split_with_sizes", |n| {
        all(numbers(n)?.split_with_sizes(&vec![1usize; n][..], 0)?)
    }),
    ("chunk", |n| all(numbers(n)?.chunk(n, 0)?)),
    ("tensor_split", |n| all(numbers(n)?.tensor_split(n, 0)?)),
    ("unbind", |n| all(numbers(n)?.unbind(0)?)),
    ("unbind of a result", |n| {
        all(numbers(n)?.add(1)?.unbind(0)?)
    }),
    ("views of one base", |n| {
        let x = numbers(n)?;
        let views = (0..n).map(|i| x.narrow(0, i, 1)?.mul(2)?.sum(None, false));
        all(views.collect::<RusTorchResult<_>>()?)
    }),
    ("reading one by one", |n| {
        let x = numbers(n)?;
        let read = |i| x.select(0, i as isize)?.item().map(drop);
        (0..n).try_for_each(read)
    }),
    ("writing one by one", |n| {
        let x = numbers(n)?;
        for i in 0..n {
            x.select(0, i as isize)?.fill_(1)?;
        }
        done(&x)
    }),
    ("writing and reading", |n| {
        let mut x = numbers(4)?;
        for _ in 0..n {
            x.add_(1)?;
            black_box(x.select(0, 0)?.item()?);
        }
        Ok(())
    }),
    ("writing, recorded", |n| {
        let mut x = numbers(4)?;
        for _ in 0..n {
            x.add_(1)?;
        }
        done(&x)
    }),
    ("a chain", |n| done(&chain(&numbers(4)?, n)?)),
    ("a chain of sums", |n| {
        let mut x = numbers(4)?;
        for _ in 0..n {
            x = x.sub(&x.sum(None, false)?)?;
        }
        done(&x)
    }),
    ("a chain that shares", |n| {
        let mut x = numbers(4)?;
        for _ in 0..n {
            x = x.sigmoid()?.mul(&x.tanh()?)?.add(&x)?;
        }
        done(&x)
    }),
    ("a chain with handles", |n| {
        let mut held = vec![numbers(4)?];
        for i in 0..n {
            held.push(held[i].sin()?);
        }
        done(&held[n])
    }),
    ("a chain with views that are held", |n| {
        let (mut x, mut held) = (numbers(4)?, Vec::new());
        for _ in 0..n {
            x = x.sin()?;
            held.push(x.narrow(0, 1, 2)?);
        }
        done(&x)
    }),
    ("a chain that is dropped", |n| {
        chain(&numbers(4)?, n).map(drop)
    }),
    ("a chain, computed at each step", |n| {
        let mut x = numbers(4)?;
        for _ in 0..n {
            x = x.mul(2)?;
            x.eval()?;
        }
        Ok(())
    }),
    ("a chain, traced", |n| {
        let x = Tensor::placeholder([4], DType::F32)?;
        Trace::new(&[&x], &[&chain(&x, n)?]).map(drop)
    }),
    ("gradients of a chain", |n| {
        let x = numbers(4)?.requires_grad_(true)?;
        all(grad(&[&chain(&x, n)?.sum(None, false)?], &[&x])?)
    }),
    ("gradients of many", |n| {
        let parameters = each(&vectors(n)?, |x| x.clone().requires_grad_(true))?;
        let squares = each(&parameters, |x| x.mul(x))?;
        let loss = Tensor::cat(&squares, 0)?.sum(None, false)?;
        all(grad(&[&loss], &references(&parameters))?)
    }),
    ("updates of many", |n| {
        let mut parameters = vectors(n)?;
        for _ in 0..2 {
            for parameter in &mut parameters {
                let change = parameter.mul(0.1)?;
                parameter.sub_(&change)?;
            }
            eval_all(&references(&parameters))?;
        }
        Ok(())
    }),
    ("many that are held", |n| {
        let x = numbers(4)?;
        let held = (0..n).map(|i| {
            let held = x.add(i as f64)?;
            held.eval()?;
            Ok(held)
        });
        held.collect::<RusTorchResult<Vec<_>>>().map(drop)
    }),
    ("adaptive_avg_pool1d", |n| {
        let x = numbers(30 * n)?.reshape([1, 1, 30 * n])?;
        done(&x.adaptive_avg_pool1d([Some(20 * n)])?)
    }),
    ("adaptive_max_pool1d", |n| {
        let x = numbers(30 * n)?.reshape([1, 1, 30 * n])?;
        done(&x.adaptive_max_pool1d([Some(20 * n)])?)
    }),
    ("interpolate", |n| {
        let x = numbers(30 * n)?.reshape([1, 1, 30 * n])?;
        for mode in [InterpolateMode::Nearest, InterpolateMode::Linear] {
            let options = InterpolateOptions::default().mode(mode);
            done(&x.interpolate([20 * n], &options)?)?;
        }
        Ok(())
    }),
];

fn done(x: &Tensor) -> Outcome {
    x.eval()?;
    Ok(())
}

fn numbers(n: usize) -> RusTorchResult<Tensor> {
    Tensor::from_vec((0..n).map(|i| i as f32).collect(), [n])
}

/// Vectors, one for each unit of size.
fn vectors(n: usize) -> RusTorchResult<Vec<Tensor>> {
    (0..n).map(|_| numbers(1)).collect()
}

fn each(
    tensors: &[Tensor],
    f: impl FnMut(&Tensor) -> RusTorchResult<Tensor>,
) -> RusTorchResult<Vec<Tensor>> {
    tensors.iter().map(f).collect()
}

fn references(tensors: &[Tensor]) -> Vec<&Tensor> {
    tensors.iter().collect()
}

/// Computes what depends on all of these.
fn all(tensors: Vec<Tensor>) -> Outcome {
    let tensors = each(&tensors, |x| x.mul(3))?;
    eval_all(&references(&tensors))
}

fn chain(x: &Tensor, n: usize) -> RusTorchResult<Tensor> {
    (0..n).try_fold(x.clone(), |x, i| match i % 2 {
        0 => x.add(1),
        _ => x.sin(),
    })
}

fn run(case: &str, n: usize) {
    let (_, call) = CASES.iter().find(|(name, _)| *name == case).unwrap();
    let runtime = Runtime::new([Arc::new(Cpu::new(1)) as Arc<dyn Backend>]);
    with_runtime(&runtime, Routing::AUTO, || {
        // A first call prepares caches, which count for no size.
        call(2).unwrap();
        rustorch_counted(&mut || call(n).unwrap());
    });
}

/// Instructions that a case of a size takes.
fn count((case, _): &Case, n: usize) -> u64 {
    instructions::count(VARIABLE, &format!("{n} {case}"))
}

/// By how much a case may grow where it is ten times as large. Quadratic growth is a hundredfold.
fn limit((case, _): &Case) -> f64 {
    match *case {
        // A write takes more the more of them are recorded, up to a length that is soon reached.
        "writing, recorded" => 20.0,
        _ => 12.0,
    }
}

fn calls_take_what_their_operands_take(_: &Vec<String>) {
    let check = |case: &Case| {
        let (small, large) = (count(case, SIZE), count(case, 10 * SIZE));
        let growth = large as f64 / small as f64;
        assert!(
            growth < limit(case),
            "{}: {small} and {large} instructions",
            case.0
        );
    };
    let (these, those) = CASES.split_at(CASES.len() / 2);
    thread::scope(|scope| {
        scope.spawn(|| these.iter().for_each(check));
        those.iter().for_each(check);
    });
}

fn main() -> ExitCode {
    if let Ok(what) = env::var(VARIABLE) {
        let (n, case) = what.split_once(' ').unwrap();
        run(case, n.parse().unwrap());
        return ExitCode::SUCCESS;
    }
    Suite::new()
        .on(
            tools(),
            "RUSTORCH_TEST_VALGRIND",
            tests![calls_take_what_their_operands_take],
        )
        .run()
}
