//! Gradients of layer norms and of norms by the mean square.

use rustorch_ir::ops::ReduceOp;
use rustorch_ir::{DType, Layout, Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts, Step};

use super::functions::rounded;
use super::lines::Rows;
use super::reduce::{Combination, Elements, Lines};
use super::views::Memory;
use crate::emit::{Emitter, GpuKernel};
use crate::kernel::{Kernel, accumulator};

pub(crate) const KERNEL: KernelEntry<GpuKernel> = KernelEntry {
    kind: OpKind::NormBackward,
    accepts,
    layouts: Layouts::Contiguous,
    launch: GpuKernel::everywhere(emit),
};

/// Work-items that a compute unit is to hold, at least.
const RESIDENT: u32 = 512;

fn accepts(s: &Signature) -> bool {
    let Op::NormBackward(op) = s.op else {
        return false;
    };
    (1..=Rows::LONGEST).contains(&op.lines(s.inputs[0])[1])
}

fn emit(step: &Step, emitter: &mut Emitter) {
    let Op::NormBackward(op) = &step.last().op else {
        return;
    };
    let text = concat!(
        include_str!("../../kernels/lines.h"),
        include_str!("../../kernels/vectors.h"),
        include_str!("../../kernels/rows.h"),
        include_str!("../../kernels/norm_backward.c")
    );
    let (x, ct) = (&step.inputs[0], &step.inputs[1]);
    let [count, len] = op.lines(&x.ty);
    let places: Vec<_> = step.inputs.iter().chain(&step.outputs).collect();
    let rows = Rows::new(emitter.limits, len, &places);
    let each = rows.each(count);
    let groups = count.div_ceil(each);
    let dtype = x.ty.dtype;
    let mut kernel = Kernel::new("norm_backward", text, rows.tile.group());
    rows.declare(&mut kernel);
    if dtype != DType::F64 {
        // Rows wait for each other's sums: there have to be several under way.
        kernel.residence(rows.tile.group(), (RESIDENT / rows.tile.group()).max(1));
    }
    rows.define(&mut kernel, "X", x);
    rows.define(&mut kernel, "CT", ct);
    kernel.define("ACCUMULATOR", accumulator(dtype));
    kernel.define("ROUNDED(x)", rounded(dtype, "(x)".to_owned()));
    kernel.real("EPS", dtype, op.eps.0);
    kernel.define("IS_CENTRED", u8::from(op.is_centred));
    kernel.define("HAS_WEIGHT", u8::from(op.has_weight));
    kernel.define("HAS_OTHER", u8::from(op.adds));
    kernel.read("x", x);
    kernel.read("cts", ct);
    kernel.write("y", step.output());
    if op.has_weight {
        kernel.read("w", &step.inputs[2]);
    }
    if op.adds {
        kernel.read("other", &step.inputs[step.inputs.len() - 1]);
    }
    let (copy, sums_of) = match (op.also, step.outputs[1..].split_last()) {
        (Some(_), Some((copy, sums_of))) => (Some(copy), sums_of),
        _ => (None, &step.outputs[1..]),
    };
    kernel.define("HAS_COPY", u8::from(copy.is_some()));
    if let Some(copy) = copy {
        rows.define(&mut kernel, "C", copy);
        kernel.write("copy", copy);
    }
    let sums = match dtype {
        DType::F64 => DType::F64,
        _ => DType::F32,
    };
    let bytes = sums.size().unwrap_or(1) * groups * len;
    let partial: Vec<Memory> = sums_of
        .iter()
        .map(|_| Memory::Scratch(sums, emitter.scratch(bytes)))
        .collect();
    kernel.define_dtype("SUMS", sums);
    for (name, memory) in ["of_weight", "of_bias"].into_iter().zip(&partial) {
        memory.write(&mut kernel, name);
    }
    kernel.word("count", count);
    kernel.word("len", len);
    kernel.word("rows_each", each);
    emitter.launch(kernel.groups(groups, 1, 1));
    for (memory, result) in partial.into_iter().zip(sums_of) {
        let line = |size: usize, stride: usize| Layout {
            shape: [size].into(),
            strides: [stride].into_iter().collect(),
            offset: 0,
        };
        let lines = Lines {
            x: Elements::Memory(memory),
            starts: line(len, 1),
            along: line(groups, len),
        };
        let sum = Combination::of(ReduceOp::Sum, sums);
        lines.reduce(&sum, Memory::Place(result), None, emitter);
    }
}
