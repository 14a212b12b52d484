//! Dimensions in reverse order.

use rustorch_ir::{Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts, Step};

use super::views::{define_rank, dimensions, for_each, words};
use crate::emit::{Emitter, GpuKernel};

pub(crate) const KERNEL: KernelEntry<GpuKernel> = KernelEntry {
    kind: OpKind::Flip,
    accepts,
    layouts: Layouts::Any,
    launch: GpuKernel::everywhere(emit),
};

fn accepts(_: &Signature) -> bool {
    true
}

fn emit(step: &Step, emitter: &mut Emitter) {
    let Op::Flip(op) = &step.last().op else {
        return;
    };
    let (x, y) = (words(&step.inputs[0]), words(step.output()));
    let count = y.ty.shape.elements();
    let mut kernel = for_each("flip", include_str!("../../../kernels/flip.c"), count);
    kernel.define_dtype("X", x.ty.dtype);
    kernel.read("x", &x);
    kernel.write("y", &y);
    let mut start = 0;
    let (mut shape, mut strides): (Vec<usize>, Vec<u32>) = (Vec::new(), Vec::new());
    for (d, (&size, &stride)) in x.layout.shape.iter().zip(&x.layout.strides).enumerate() {
        // Kernels count positions modulo 2³².
        let mut step = stride as u32;
        if op.dims.contains(&d) {
            start += size.saturating_sub(1) * stride;
            step = step.wrapping_neg();
        }
        // Dimensions that are gone through as one.
        match (shape.last_mut(), strides.last_mut()) {
            (Some(before), Some(last)) if *last == step.wrapping_mul(size as u32) => {
                (*before, *last) = (*before * size, step);
            }
            _ => {
                shape.push(size);
                strides.push(step);
            }
        }
    }
    kernel.word("start", start);
    kernel.word("rank", shape.len().max(1));
    define_rank(&mut kernel, "RANK", shape.len().max(1), "rank");
    let strides: Vec<usize> = strides.into_iter().map(|stride| stride as usize).collect();
    dimensions(&mut kernel, "shape", &shape);
    dimensions(&mut kernel, "strides", &strides);
    emitter.launch(kernel);
}
