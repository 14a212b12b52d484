//! Seven programs as they were ported from PyTorch, line by line: `scripts/ported.py` has the originals.
//!
//! `cargo run --release -p rustorch --example ported` runs all of them in double precision and compares
//! their losses with PyTorch's. `… --example ported -- vae --scale 4 --steps 100` runs one of them larger
//! in single precision, and prints the seconds it took.

mod block;
mod char_gpt;
mod cnn;
mod dqn;
mod lstm_lengths;
mod mini_lm;
mod numbers;
mod transfer;
mod vae;

use std::collections::HashMap;
use std::time::Instant;

use rustorch::prelude::*;

/// Sizes, number of steps, and dtype of a program.
#[derive(Clone, Copy)]
pub(crate) struct Setting {
    scale: usize,
    steps: usize,
    dtype: DType,
}

/// Trains, and returns the loss of each step.
type Program = fn(Setting) -> RusTorchResult<Vec<f64>>;

const PROGRAMS: [(&str, Program); 7] = [
    ("char_gpt", char_gpt::losses),
    ("cnn", cnn::losses),
    ("vae", vae::losses),
    ("lstm_lengths", lstm_lengths::losses),
    ("dqn", dqn::losses),
    ("transfer", transfer::losses),
    ("mini_lm", mini_lm::losses),
];

/// PyTorch's losses of ten steps in double precision, by the names of programs.
const LOSSES: &str = include_str!("losses.json");

/// Relative difference that is taken for sums in another order.
const TOLERANCE: f64 = 1e-9;

/// Runs each program, and fails where a loss is not PyTorch's.
fn compare() -> Result<(), Box<dyn std::error::Error>> {
    let expected: HashMap<String, Vec<f64>> = serde_json::from_str(LOSSES)?;
    for (name, program) in PROGRAMS {
        let expected = &expected[name];
        let setting = Setting {
            scale: 1,
            steps: expected.len(),
            dtype: DType::F64,
        };
        let losses = program(setting)?;
        println!("{name}: {losses:.6?}");
        let is_near = |(a, b): (&f64, &f64)| (a - b).abs() <= TOLERANCE * b.abs();
        let agree = losses.len() == expected.len() && losses.iter().zip(expected).all(is_near);
        if !agree {
            return Err(format!("{name}: PyTorch's losses are {expected:.6?}").into());
        }
    }
    Ok(())
}

/// Runs one program in single precision: `NAME [--scale N] [--steps N]`.
fn time(name: &str, options: &[String]) -> Result<(), Box<dyn std::error::Error>> {
    let program = PROGRAMS.iter().find(|(known, _)| *known == name);
    let (_, program) = program.ok_or_else(|| format!("no program {name}"))?;
    let option = |name: &str, default: usize| {
        let at = options.iter().position(|option| option == name);
        let value = at.and_then(|at| options.get(at + 1));
        value.map_or(Ok(default), |value| value.parse())
    };
    let setting = Setting {
        scale: option("--scale", 1)?,
        steps: option("--steps", 10)?,
        dtype: DType::F32,
    };
    let start = Instant::now();
    let losses = program(setting)?;
    println!(
        "{name}: {:.3} s, last loss {:?}",
        start.elapsed().as_secs_f64(),
        losses.last()
    );
    Ok(())
}

pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.split_first() {
        Some((name, options)) if PROGRAMS.iter().any(|(known, _)| known == name) => {
            time(name, options)
        }
        _ => compare(),
    }
}
