//! Random numbers, the same on every device.

use rustorch_ir::ops::{Distribution, Random};
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

/// Are the numbers evenly distributed?
fn is_even(op: &Random) -> bool {
    op.distribution == Distribution::Uniform
}

/// Can the numbers be drawn one by one, in a chain of elementwise operations?
pub(crate) fn fuses(signature: &Signature) -> bool {
    let is_single = |dtype| matches!(dtype, DType::F16 | DType::BF16 | DType::F32);
    match signature.op {
        Op::Random(op) => is_even(op) && is_single(op.dtype) && accepts(signature),
        _ => false,
    }
}

/// Declares `block` and `word`, where the stream has the number of one of a work-item's `each` neighbours: of element
/// `i` + `element`, where `i` is `lane` · `each`.
pub(crate) fn place(element: usize, each: usize) -> String {
    let (block, word) = match each.is_multiple_of(BLOCK) {
        // The same for all of a block, so that compilers see that it is.
        true => {
            let (blocks, own) = (each / BLOCK, element / BLOCK);
            (
                format!("lane * {blocks} + {own}"),
                (element % BLOCK).to_string(),
            )
        }
        false => (
            format!("(i + {element}) / {BLOCK}"),
            format!("(i + {element}) % {BLOCK}"),
        ),
    };
    format!("const uint block = {block}, word = {word};")
}

/// The number there, where [`fuses`] it, by [`WORDS`].
pub(crate) fn expression(op: &Random, [seed, offset]: [&str; 2]) -> String {
    let bits = op.bits();
    let (shift, unit) = (32 - bits, (-f64::from(bits)).exp2());
    format!("((float)(random_word({seed}, {offset}, block, word) >> {shift}) * {unit:e}f)")
}

/// Functions that [`expression`] calls.
pub(crate) const WORDS: &str = include_str!("../../kernels/random_word.h");

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
    for (name, place) in ["seed", "offset"].into_iter().zip(&step.inputs) {
        kernel.read(name, place);
    }
    kernel.define_dtype("X", real);
    kernel.define("REAL", accumulator(real));
    kernel.define("BITS", if is_even(op) { op.bits() } else { 0 });
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
