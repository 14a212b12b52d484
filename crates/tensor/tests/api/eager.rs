//! Each operation computed as it is called, as `RUSTORCH_EAGER=1` asks. The variable is read once, so that these tests run
//! in a program of their own.

use std::env;
use std::process::Command;

use rustorch_ir::DType;
use rustorch_tensor::{RusTorchResult, Tensor, Trace, no_grad, tensor};

use crate::Outcome;

const VARIABLE: &str = "RUSTORCH_EAGER";

/// Runs tests of this program as if each were alone, with operations computed as they are called.
fn eagerly(tests: &[&str]) {
    let mut program = Command::new(env::current_exe().expect("this program"));
    let program = program.env(VARIABLE, "1").env("RUSTORCH_PROGRAMS", "100");
    let output = program.arg("--exact").args(tests).output();
    let output = output.expect("a program");
    let said = String::from_utf8_lossy(&output.stdout);
    let passed = format!("{} passed", tests.len());
    assert!(output.status.success() && said.contains(&passed), "{said}");
}

fn is_eager() -> bool {
    env::var_os(VARIABLE).is_some()
}

#[test]
fn operations_are_computed_as_they_are_called() {
    if !is_eager() {
        eagerly(&[
            "eager::results_are_ready",
            "eager::mistakes_appear_at_the_call",
            "eager::gradients_are_as_ever",
            "eager::traces_are_recorded_as_ever",
            "programs::memory_is_shared_whatever_is_computed_when",
            "programs::gradients_are_the_same_whatever_is_computed_when",
        ]);
    }
}

#[test]
fn results_are_ready() -> Outcome {
    let x = tensor![[1.0, 2.0], [3.0, 4.0]];
    let y = (&x * 2)?;
    let (values, indices) = y.topk(1, 1, true)?;
    let written = y.copy()?;
    written.t()?.i(0)?.fill_(9)?;
    let made = [
        Tensor::zeros(3, DType::F32)?,
        Tensor::randn(3, DType::F32)?,
        y.t()?,
        y.reshape(4)?.narrow(0, 1, 2)?,
        y.softmax(1)?,
        y.matmul(&x)?.sum(None, false)?,
        values,
        indices,
        written,
    ];
    let ready: Vec<bool> = made.iter().map(Tensor::is_ready).collect();
    assert!(!is_eager() || ready == [true; 9], "{ready:?}");
    assert_eq!(made[8].to_vec::<f32>()?, [9.0, 4.0, 9.0, 8.0]);
    Ok(())
}

#[test]
fn mistakes_appear_at_the_call() -> Outcome {
    let (x, far) = (tensor![[1.0, 2.0], [3.0, 4.0]], tensor![0, 7]);
    let line = line!() + 2;
    let calls: [(&str, RusTorchResult<Tensor>); 4] = [
        ("index_select", x.index_select(0, &far)),
        ("embedding", x.embedding(&far)),
        ("gather", x.gather(0, &tensor![[7, 0]])),
        ("one_hot", far.one_hot(3)),
    ];
    for (i, (method, result)) in calls.into_iter().enumerate() {
        let result = match is_eager() {
            true => result,
            // Otherwise the call is recorded, and reading finds the mistake.
            false => result?.eval().cloned(),
        };
        let said = result.unwrap_err().to_string();
        let place = format!("{method} at {}:{}:", file!(), line as usize + i);
        assert!(said.starts_with(&place), "{said}");
    }
    let mut written = x.copy()?;
    let wrong = written.index_add_(0, &far, &x, 1).map(|_| ());
    assert_eq!(wrong.is_err(), is_eager());
    Ok(())
}

#[test]
fn gradients_are_as_ever() -> Outcome {
    let mut x = tensor![1.0, 2.0, 3.0].requires_grad_(true)?.clone();
    let y = (&x * &x)?.exp()?.mul(0.01)?.sum(None, false)?;
    y.backward()?;
    let gradient = x.grad().expect("a gradient");
    assert_eq!(gradient.is_ready(), is_eager());
    let expected = [1.0f32, 2.0, 3.0].map(|x| 0.02 * x * (x * x).exp());
    crate::assert_close(&gradient, &expected);
    no_grad(|| x -= &gradient);
    assert!(x.is_leaf() && x.requires_grad());
    crate::assert_close(
        &x.detach(),
        &[1.0 - expected[0], 2.0 - expected[1], 3.0 - expected[2]],
    );
    Ok(())
}

#[test]
fn traces_are_recorded_as_ever() -> Outcome {
    let (weight, x) = (
        tensor![[1.0, 2.0], [3.0, 4.0]],
        Tensor::placeholder([1, 2], DType::F32)?,
    );
    let mut seen = Tensor::zeros([1, 2], DType::F32)?;
    seen.eval()?;
    seen.add_(&x)?;
    let trace = Trace::new(&[&x], &[&x.linear(&weight, None)?.relu()?, &seen])?;
    for (input, expected) in [([1.0, 0.0], [1.0, 3.0]), ([-1.0, 1.0], [1.0, 1.0])] {
        let input = Tensor::from_slice(&input.map(|x| x as f32), [1, 2])?;
        let y = trace.run(&[input.storage()?])?;
        let y = Tensor::from_storage(y[0].clone(), [1, 2], DType::F32)?;
        crate::assert_close(&y, &expected);
    }
    let last = trace.run(&[tensor![[5.0, 5.0]].storage()?])?;
    let last = Tensor::from_storage(last[1].clone(), [1, 2], DType::F32)?;
    crate::assert_close(&last, &[5.0, 6.0]);
    Ok(())
}
