//! Random numbers, the same on every device.

use rustorch_ir::ops::Distribution;
use rustorch_ir::{DType, Layout, Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts, Place, Step};

use super::views::for_each;
use crate::emit::{Emitter, GpuKernel};
use crate::kernel::accumulator;

pub(crate) const KERNEL: KernelEntry<GpuKernel> = KernelEntry {
    kind: OpKind::Random,
    accepts,
    layouts: Layouts::Any,
    launch: GpuKernel::everywhere(emit),
};

/// Numbers of a block of the generator.
const BLOCK: usize = 4;

/// Are the numbers few enough to be counted?
fn accepts(signature: &Signature) -> bool {
    numbers(
        signature.output().dtype,
        signature.output().shape.elements(),
    ) <= u32::MAX as usize
}

/// Real numbers in `elements` of `dtype`.
fn numbers(dtype: DType, elements: usize) -> usize {
    elements.saturating_mul(1 + usize::from(dtype.is_complex()))
}

fn emit(step: &Step, emitter: &mut Emitter) {
    let Op::Random(op) = &step.last().op else {
        return;
    };
    let real = op.dtype.real();
    let count = numbers(op.dtype, step.output().ty.shape.elements());
    let mut kernel = for_each(
        "random",
        include_str!("../../kernels/random.c"),
        count.div_ceil(BLOCK),
    );
    let key = &step.inputs[0];
    kernel.read("key", key);
    kernel.word("key_stride", key.layout.strides[0]);
    kernel.define_dtype("X", real);
    kernel.define("REAL", accumulator(real));
    let bits = match (op.distribution, real) {
        (Distribution::Normal, _) => 0,
        (_, DType::F16) => 11,
        (_, DType::BF16) => 8,
        (_, DType::F32) => 24,
        _ => 32,
    };
    kernel.define("BITS", bits);
    let deviation = match op.dtype.is_complex() {
        true => std::f64::consts::FRAC_1_SQRT_2,
        false => 1.0,
    };
    kernel.real("DEVIATION", real, deviation);
    kernel.real("TURN", real, std::f64::consts::TAU);
    // A complex number is two of its parts.
    let mut y: Place = step.output().clone();
    y.ty.dtype = real;
    y.layout = Layout::contiguous(&[count].into());
    kernel.write("y", &y);
    kernel.word("numbers", count);
    emitter.launch(kernel);
}
