//! Compares with the answers of PyTorch, or of ONNX's node tests: [`rustorch_conformance::replay`].

use std::io;
use std::process::ExitCode;

use rustorch_conformance::replay::{Options, run};

fn main() -> ExitCode {
    run(&Options::of_the_program(), &mut io::stdout().lock())
}
