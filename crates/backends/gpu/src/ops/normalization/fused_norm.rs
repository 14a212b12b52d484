//! Norms with the residual before them and a conversion behind.

use rustorch_ir::{Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts, Step};

use crate::emit::{Emitter, GpuKernel};
use crate::kernel::{Kernel, accumulator};
use crate::ops::functions::rounded;
use crate::ops::lines::Rows;

pub(crate) const KERNEL: KernelEntry<GpuKernel> = KernelEntry {
    kind: OpKind::FusedNorm,
    accepts,
    layouts: Layouts::Contiguous,
    launch: GpuKernel::everywhere(emit),
};

fn accepts(s: &Signature) -> bool {
    let Op::FusedNorm(op) = s.op else {
        return false;
    };
    (1..=Rows::LONGEST).contains(&op.lines(s.inputs[0])[1])
}

fn emit(step: &Step, emitter: &mut Emitter) {
    let Op::FusedNorm(op) = &step.last().op else {
        return;
    };
    let text = concat!(
        include_str!("../../../kernels/lines.h"),
        include_str!("../../../kernels/vectors.h"),
        include_str!("../../../kernels/rows.h"),
        include_str!("../../../kernels/fused_norm.c")
    );
    let x = &step.inputs[0];
    let [count, len] = op.lines(&x.ty);
    let places: Vec<_> = step.inputs.iter().chain(&step.outputs).collect();
    let rows = Rows::new(emitter.limits, len, &places);
    let dtype = x.ty.dtype;
    let mut kernel = Kernel::new("fused_norm", text, rows.tile.group());
    rows.declare(&mut kernel);
    rows.define(&mut kernel, "X", x);
    kernel.define("ACCUMULATOR", accumulator(dtype));
    kernel.define("ROUNDED(x)", rounded(dtype, "(x)".to_owned()));
    kernel.real("EPS", dtype, op.eps.0);
    kernel.read("x", x);
    kernel.define("IS_CENTRED", u8::from(op.is_centred));
    kernel.define("HAS_OTHER", u8::from(op.adds));
    let before = 1 + usize::from(op.adds);
    if op.adds {
        let other = &step.inputs[1];
        rows.define(&mut kernel, "O", other);
        kernel.read("other", other);
        kernel.write("y", step.output());
    }
    let normed = &step.outputs[step.outputs.len() - 1];
    rows.define(&mut kernel, "N", normed);
    kernel.write("normed", normed);
    for (i, (name, macro_name)) in [("w", "HAS_WEIGHT"), ("b", "HAS_BIAS")].iter().enumerate() {
        let operand = step.inputs.get(before + i);
        kernel.define(macro_name, u8::from(operand.is_some()));
        if let Some(operand) = operand {
            kernel.read(name, operand);
        }
    }
    kernel.word("count", count);
    kernel.word("len", len);
    emitter.launch(kernel.groups(rows.tile.groups(count), 1, 1));
}
