//! Heat that spreads along a rod: a step is recorded once and run often, and the rod stays where it is.

use rustorch::prelude::*;

pub(crate) fn main() -> RusTorchResult<()> {
    // Cold at both ends, hot in the middle.
    let mut rod = Tensor::zeros([101], DType::F32)?;
    rod.copy_(
        &Tensor::arange_with(0, 101, 1, DType::F32)?
            .eq(50)?
            .to_dtype(DType::F32)?
            .mul(100.0)?,
    )?;
    rod.eval()?;
    let mut state = rod.clone();
    let around = state.roll(1, 0)?.add(&state.roll(-1, 0)?)?;
    let next = state.mul(0.5)?.add(&around.mul(0.25)?)?;
    let updated = state.copy_(&next)?.clone();
    let step = Trace::new(&[], &[&updated])?;
    for _ in 0..1000 {
        step.run(&[])?;
    }
    let heat = rod.to_vec::<f32>()?;
    println!(
        "in the middle {:.3}, at the ends {:.3}, in all {:.3}",
        heat[50],
        heat[0],
        heat.iter().sum::<f32>()
    );
    assert!((heat.iter().sum::<f32>() - 100.0).abs() < 0.01 && heat[50] < 5.0);
    Ok(())
}
