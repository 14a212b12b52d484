//! What changes from run to run is data: it is planned once.

use rustorch_ir::DType;
use rustorch_runtime::{Routing, Runtime};
use rustorch_tensor::{Tensor, Trace, host, tensor, with_runtime};

use crate::Outcome;

fn on_host(f: impl FnOnce(&Runtime) -> Outcome) -> Outcome {
    let runtime = Runtime::new(host(1));
    with_runtime(&runtime, Routing::AUTO, || f(&runtime))
}

#[test]
fn ten_thousand_numbers_are_planned_once() -> Outcome {
    on_host(|runtime| {
        let x = Tensor::arange(0, 4, 1, DType::F32)?;
        x.eval()?;
        let before = runtime.plans().new;
        for s in 0..10_000 {
            let y = x.mul(s)?.to_vec::<f32>()?;
            assert_eq!(y[3], 3.0 * s as f32);
        }
        assert_eq!(runtime.plans().new, before + 1);
        // Together with others, too.
        for s in 1..=1000 {
            let y = x.clamp(-1, s)?.div(s)?.sub(0.5)?;
            assert_eq!(y.to_vec::<f32>()?[0], -0.5);
        }
        assert_eq!(runtime.plans().new, before + 2);
        Ok(())
    })
}

#[test]
fn ten_thousand_steps_of_dropout_are_planned_once() -> Outcome {
    on_host(|runtime| {
        let x = Tensor::ones([100], DType::F32)?;
        x.eval()?;
        let before = runtime.plans().new;
        let mut kept = 0.0;
        for _ in 0..10_000 {
            let mask = Tensor::rand([100], DType::F32)?.lt(0.9)?;
            kept += x.mul(&mask)?.mean(None, false)?.to_scalar::<f32>()?;
        }
        assert!((kept / 1e4 - 0.9).abs() < 1e-3, "{kept}");
        assert_eq!(runtime.plans().new, before + 1);
        assert_eq!(runtime.plans().reused, 9_999);
        Ok(())
    })
}

#[test]
fn a_trace_draws_by_the_key_it_is_given() -> Outcome {
    let key = Tensor::placeholder([2], DType::I64)?;
    let trace = Trace::new(&[&key], &[&Tensor::randn_keyed([6], DType::F32, &key)?])?;
    for seed in [1, -5] {
        let drawn = trace.run(&[tensor![seed, 0i64].storage()?])?.remove(0);
        let drawn = Tensor::from_storage(drawn, [6], DType::F32)?.to_vec::<f32>()?;
        let alone = Tensor::randn_seeded([6], DType::F32, seed as u64)?;
        assert_eq!(drawn, alone.to_vec::<f32>()?);
    }
    Ok(())
}

#[test]
fn numbers_of_a_trace_are_part_of_it() -> Outcome {
    let x = Tensor::placeholder([2], DType::F32)?;
    let y = x.mul(2.5)?.add(&Tensor::scalar(1, DType::F32)?)?;
    let trace = Trace::new(&[&x], &[&y])?;
    assert_eq!(trace.executable().graph().inputs().len(), 1);
    let y = trace.run(&[tensor![2.0, 4.0].storage()?])?.remove(0);
    let y = Tensor::from_storage(y, [2], DType::F32)?;
    assert_eq!(y.to_vec::<f32>()?, [6.0, 11.0]);
    Ok(())
}

#[test]
fn numbers_are_rounded_once_and_wrap() -> Outcome {
    // Just above the tie between 1 and its neighbour in f16, where f32 is the tie.
    let above = 1.0 + (-11f64).exp2() + (-40f64).exp2();
    let half = |x: &Tensor| x.to_dtype(DType::F64)?.to_vec::<f64>();
    let next = 1.0 + (-10f64).exp2();
    assert_eq!(half(&Tensor::scalar(above, DType::F16)?)?, [next]);
    let one = Tensor::ones([1], DType::F16)?;
    assert_eq!(half(&one.mul(above)?)?, [next]);
    assert_eq!(tensor![1u8].add(300)?.to_vec::<u8>()?, [45]);
    let z = tensor![1.0].add(num_complex::Complex::new(0.5, -2.0))?;
    assert_eq!(z.imag()?.to_scalar::<f32>()?, -2.0);
    Ok(())
}
