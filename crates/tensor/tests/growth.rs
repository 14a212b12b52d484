//! Calls cost what their operands do: ten times as many take about ten times as many instructions.
//! Histories are counted at a hundred times the size as well.

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

/// The sizes of a case, each ten times the one before. The last one is that of histories alone: they are computed
/// before they become so long.
const SIZES: [usize; 3] = [20, 200, 2000];

/// The case whose history is not read.
const DROPPED: &str = "a chain that is dropped";

type Outcome = RusTorchResult<()>;

/// A case to count: its name, and its work at a size.
type Case = (&'static str, fn(usize) -> Outcome);

const CASES: [Case; 43] = [
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
    ("a chain that shares", |n| done(&sharing(numbers(4)?, n)?)),
    ("a chain with handles", |n| {
        done(&handles(numbers(4)?, n)?[n])
    }),
    ("a chain with views that are held", |n| {
        done(&views(numbers(4)?, n)?.0)
    }),
    (DROPPED, |n| chain(&numbers(4)?, n).map(drop)),
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
    ("gradients of a chain", |n| gradient(|x| chain(&x, n))),
    ("gradients of a chain that shares", |n| {
        gradient(|x| sharing(x, n))
    }),
    ("gradients of a chain with handles", |n| {
        let mut held = Vec::new();
        gradient(|x| {
            held = handles(x, n)?;
            Ok(held[n].clone())
        })
    }),
    ("gradients of a chain with views that are held", |n| {
        let mut held = Vec::new();
        gradient(|x| {
            let (last, views) = views(x, n)?;
            held = views;
            Ok(last)
        })
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

/// A chain whose operands are each read three times.
fn sharing(mut x: Tensor, n: usize) -> RusTorchResult<Tensor> {
    for _ in 0..n {
        x = x.sigmoid()?.mul(&x.tanh()?)?.add(&x)?;
    }
    Ok(x)
}

/// All values of a chain.
fn handles(x: Tensor, n: usize) -> RusTorchResult<Vec<Tensor>> {
    let mut held = vec![x];
    for i in 0..n {
        held.push(held[i].sin()?);
    }
    Ok(held)
}

/// The end of a chain, and a view of each value.
fn views(mut x: Tensor, n: usize) -> RusTorchResult<(Tensor, Vec<Tensor>)> {
    let mut held = Vec::new();
    for _ in 0..n {
        x = x.sin()?;
        held.push(x.narrow(0, 1, 2)?);
    }
    Ok((x, held))
}

/// Computes the gradient of a function's sum.
fn gradient(f: impl FnOnce(Tensor) -> RusTorchResult<Tensor>) -> Outcome {
    let x = numbers(4)?.requires_grad_(true)?;
    all(grad(&[&f(x.clone())?.sum(None, false)?], &[&x])?)
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

/// By how much a case may grow where it is ten times as large as at a size. Quadratic growth is a hundredfold.
fn limit((case, _): &Case, size: usize) -> f64 {
    match (*case, size) {
        // A write takes more the more of them are recorded, up to a length that is soon reached.
        ("writing, recorded", _) => 20.0,
        // The longer one is computed, as one that is read is: see below.
        (DROPPED, 200) => f64::INFINITY,
        _ => 12.0,
    }
}

fn is_history((case, _): &Case) -> bool {
    ["a chain", "gradients"]
        .iter()
        .any(|word| case.starts_with(word))
}

fn calls_take_what_their_operands_take(_: &Vec<String>) {
    let check = |case: &Case| {
        let sizes = match is_history(case) {
            true => &SIZES[..],
            false => &SIZES[..2],
        };
        let counts: Vec<u64> = sizes.iter().map(|&size| count(case, size)).collect();
        for (at, &size) in sizes[1..].iter().enumerate() {
            let growth = counts[at + 1] as f64 / counts[at] as f64;
            assert!(
                growth < limit(case, sizes[at]),
                "{}: {counts:?} instructions at sizes up to {size}",
                case.0
            );
        }
    };
    let (these, those) = CASES.split_at(CASES.len() / 2);
    thread::scope(|scope| {
        scope.spawn(|| these.iter().for_each(check));
        those.iter().for_each(check);
    });
}

/// A history that nobody reads is computed when it is as long as a history may be. So it takes no more than one that
/// is read, and grows as that does.
fn a_history_that_is_not_read_takes_no_more_than_one_that_is(_: &Vec<String>) {
    let case = |name: &str| CASES.iter().find(|(case, _)| *case == name).unwrap();
    let [long, longer] = [2000, 20_000].map(|size| count(case(DROPPED), size));
    let read = count(case("a chain"), 2000);
    assert!(long <= read, "{long} and {read} instructions");
    assert!(longer < 12 * long, "{long} and {longer} instructions");
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
            tests![
                calls_take_what_their_operands_take,
                a_history_that_is_not_read_takes_no_more_than_one_that_is
            ],
        )
        .run()
}
