//! Gradients of layer norms and of norms by the mean square.

use rustorch_ir::ops::ReduceOp;
use rustorch_ir::{DType, Layout, Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts, Step};

use crate::dialect::Dialect;
use crate::emit::{Emitter, GpuKernel};
use crate::kernel::{Kernel, accumulator};
use crate::ops::cuda;
use crate::ops::functions::rounded;
use crate::ops::lines::Rows;
use crate::ops::reduce::{Combination, Elements, Lines};
use crate::ops::views::Memory;

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
    let x = &step.inputs[0];
    let [count, len] = op.lines(&x.ty);
    let places: Vec<_> = step.inputs.iter().chain(&step.outputs).collect();
    let rows = Rows::new(emitter.limits, len, &places);
    let dtype = x.ty.dtype;
    let resident = (RESIDENT / rows.tile.group()).max(1);
    let is_of_warps =
        emitter.dialect == Dialect::Cuda && cuda::norm_backward::accepts(dtype, &rows);
    let (each, mut kernel) = match is_of_warps {
        true => {
            let groups = emitter
                .limits
                .compute_units
                .saturating_mul(resident as usize);
            let each = count.div_ceil(groups.max(1)).max(1);
            let each = each.next_multiple_of(rows.tile.lines);
            (each, cuda::norm_backward::kernel(&rows, len))
        }
        false => {
            let text = concat!(
                include_str!("../../../kernels/lines.h"),
                include_str!("../../../kernels/vectors.h"),
                include_str!("../../../kernels/rows.h"),
                include_str!("../../../kernels/norm_backward.c")
            );
            let mut kernel = Kernel::new("norm_backward", text, rows.tile.group());
            rows.declare(&mut kernel);
            kernel.define("ACCUMULATOR", accumulator(dtype));
            (rows.each(count), kernel)
        }
    };
    let groups = count.div_ceil(each);
    if dtype != DType::F64 {
        // Rows wait for each other's sums: there have to be several under way.
        kernel.residence(rows.tile.group(), resident);
    }
    rows.define(&mut kernel, "X", x);
    rows.define(&mut kernel, "CT", &step.inputs[1]);
    kernel.define("ROUNDED(x)", rounded(dtype, "(x)".to_owned()));
    kernel.real("EPS", dtype, op.eps.0);
    kernel.define("IS_CENTRED", u8::from(op.is_centred));
    kernel.define("HAS_WEIGHT", u8::from(op.has_weight));
    kernel.define("HAS_OTHER", u8::from(op.adds));
    kernel.read("x", x);
    kernel.read("cts", &step.inputs[1]);
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
    if is_of_warps && !partial.is_empty() {
        return cuda::norm_backward::add_up(&partial, sums_of, [groups, len], emitter);
    }
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
