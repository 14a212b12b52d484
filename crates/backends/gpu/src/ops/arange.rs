//! Numbers at one distance from each other.

use rustorch_ir::{DType, Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts, Step};

use super::views::for_each;
use crate::emit::{Emitter, GpuKernel};
use crate::kernel::{halves, name};

pub(crate) const KERNEL: KernelEntry<GpuKernel> = KernelEntry {
    kind: OpKind::Arange,
    accepts,
    layouts: Layouts::Any,
    launch: GpuKernel::everywhere(emit),
};

fn accepts(_: &Signature) -> bool {
    true
}

fn emit(step: &Step, emitter: &mut Emitter) {
    let Op::Arange(op) = &step.last().op else {
        return;
    };
    let mut kernel = for_each("arange", include_str!("../../kernels/arange.c"), op.len);
    kernel.define_dtype("X", op.dtype);
    kernel.write("y", step.output());
    let value = if op.dtype.is_float() {
        // In double precision, as it is defined, where the device has that.
        let precision = match emitter.limits.has_f64 {
            true => DType::F64,
            false => DType::F32,
        };
        kernel.real("START", precision, op.start.as_f64());
        kernel.real("STEP", precision, op.step.as_f64());
        let value = format!("(START + (compute_{precision})(i) * STEP)");
        match op.dtype {
            // Not rounded twice.
            DType::F16 | DType::BF16 if precision == DType::F64 => format!("odd_of_f64{value}"),
            dtype => format!("((compute_{dtype}){value})"),
        }
    } else {
        let dtype = name(op.dtype);
        kernel.words("start", &halves(op.start.as_i64() as u64));
        kernel.words("step", &halves(op.step.as_i64() as u64));
        let [start, step] =
            ["start", "step"].map(|k| format!("((ulong)p.{k}[0] | (ulong)p.{k}[1] << 32)"));
        format!("((compute_{dtype})({start} + {step} * (ulong)(i)))")
    };
    kernel.define("VALUE(i)", value);
    emitter.launch(kernel);
}
