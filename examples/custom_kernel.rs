//! An operation of one's own, with a kernel for GPUs, held to its definition.

use rustorch::custom::{
    Composite, CustomKernel, Graph, KernelLanguage, OpError, Results, TensorType, UnaryOp, ValueId,
};
use rustorch::prelude::*;

/// Mish: `x · tanh(log(1 + exp(x)))`.
#[derive(PartialEq, Eq, Hash, Debug)]
struct Mish;

const KERNEL: &str = "
FUNCTION float mish(float x) { return x * tanh(x > 20 ? x : log(1 + exp(x))); }

KERNEL_BEGIN
    if (ITEM < p.items) STORE(Y0, y0, ITEM, mish(LOAD(X0, x0, ITEM)));
KERNEL_END";

impl Composite for Mish {
    fn name(&self) -> &'static str {
        "mish"
    }

    fn decompose(&self, g: &mut Graph, inputs: &[ValueId]) -> Result<Results, OpError> {
        let x = inputs[0];
        let exp = g.unary(UnaryOp::Exp, x)?;
        let one = g.constant(1, g.ty(x).dtype)?;
        let sum = g.add(exp, one)?;
        let log = g.unary(UnaryOp::Log, sum)?;
        let tanh = g.unary(UnaryOp::Tanh, log)?;
        Ok([g.mul(x, tanh)?].into_iter().collect())
    }

    fn kernel(
        &self,
        _: KernelLanguage,
        x: &[&TensorType],
        _: &[TensorType],
    ) -> Option<CustomKernel> {
        (x[0].dtype == DType::F32).then(|| CustomKernel::for_each(KERNEL, x[0].shape.elements()))
    }
}

pub(crate) fn main() -> RusTorchResult<()> {
    let x = Tensor::linspace(-4, 4, 9, DType::F32)?;
    let [y] = Tensor::custom(Mish, &[&x])?;
    println!("{y}");
    assert!(y.allclose(&x.mish()?, 1e-5, 1e-6)?);
    for check in Tensor::check_kernels::<1>(Mish, &[&x])? {
        println!(
            "{}: off by {:.1e} at most",
            check.device, check.largest_difference
        );
    }
    Ok(())
}
