//! Lines of the last dimensions with mean 0 and variance 1.

use rustorch_ir::{Layout, Op, OpKind, Param, Signature};
use rustorch_runtime::{KernelEntry, Layouts, Step};

use crate::driver::Limits;
use crate::emit::{Emitter, GpuKernel};
use crate::kernel::{Kernel, accumulator};
use crate::ops::lines::{exact, held_vector, line_kernel};

pub(crate) const KERNEL: KernelEntry<GpuKernel> = KernelEntry {
    kind: OpKind::LayerNorm,
    accepts,
    layouts: Layouts::Contiguous,
    launch: GpuKernel::everywhere(emit),
};

fn accepts(_: &Signature) -> bool {
    true
}

fn emit(step: &Step, emitter: &mut Emitter) {
    let Op::LayerNorm(op) = &step.last().op else {
        return;
    };
    let shape = &step.output().ty.shape;
    let (outer, inner) = shape.split_at(shape.len() - op.dims);
    let lines = [outer, inner].map(|sizes| sizes.iter().product::<usize>());
    let affine = Affine::OfElements;
    emitter.launch(normalize(
        "layer_norm",
        step,
        lines,
        op.eps,
        affine,
        emitter.limits,
    ));
}

/// Elements that share a weight and a bias.
pub(in crate::ops) enum Affine {
    /// One for each element of a line.
    OfElements,
    /// One for each channel. A line, one of `groups`, has `channels` of `pixels` elements.
    OfChannels {
        groups: usize,
        channels: usize,
        pixels: usize,
    },
}

/// The kernel `name` that normalises contiguous lines, of a number and a length.
pub(in crate::ops) fn normalize(
    name: &'static str,
    step: &Step,
    lines: [usize; 2],
    eps: Param,
    affine: Affine,
    limits: &Limits,
) -> Kernel {
    let text = concat!(
        include_str!("../../../kernels/lines.h"),
        include_str!("../../../kernels/vectors.h"),
        include_str!("../../../kernels/held.h"),
        include_str!("../../../kernels/layer_norm.c")
    );
    let view = Layout::contiguous(&lines.into());
    let mut kernel = line_kernel(name, text, step, [&view, &view], 1, limits);
    let sums = exact(step.output().ty.dtype, lines[1], limits);
    kernel.define("ACCUMULATOR", accumulator(sums));
    kernel.define("VECTOR", held_vector(step, [&view, &view], 1, limits));
    kernel.real("EPS", step.output().ty.dtype, eps.0);
    for (i, (name, macro_name)) in [("w", "HAS_WEIGHT"), ("b", "HAS_BIAS")].iter().enumerate() {
        let operand = step.inputs.get(1 + i);
        kernel.define(macro_name, u8::from(operand.is_some()));
        if let Some(operand) = operand {
            kernel.read(name, operand);
        }
    }
    match affine {
        Affine::OfElements => kernel.define("AFFINE(line, j)", "(j)"),
        Affine::OfChannels {
            groups,
            channels,
            pixels,
        } => {
            kernel.word("groups", groups);
            kernel.word("channels", channels);
            kernel.word("pixels", pixels);
            let channel = "((line) % p.groups * p.channels + (j) / p.pixels)";
            kernel.define("AFFINE(line, j)", channel);
        }
    }
    kernel
}
