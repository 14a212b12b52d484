//! Elementwise operations, one or a chain of them: the kernel is generated.

use std::fmt::Write;

use rustorch_ir::{DType, Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, PartOperand, Step};

use super::functions::{expression, rounded};
use super::{GROUP, entry, is_float, is_known, launch_for_each, places};
use crate::emit::{Emitter, GpuKernel};
use crate::kernel::Kernel;

const fn pointwise(kind: OpKind) -> KernelEntry<GpuKernel> {
    entry(kind, accepts, emit)
}

pub(super) const KERNELS: [KernelEntry<GpuKernel>; 9] = [
    pointwise(OpKind::Full),
    pointwise(OpKind::Contiguous),
    pointwise(OpKind::Cast),
    pointwise(OpKind::Unary),
    pointwise(OpKind::Binary),
    pointwise(OpKind::Compare),
    pointwise(OpKind::Where),
    pointwise(OpKind::Activation),
    pointwise(OpKind::Ternary),
];

/// Returns whether there is an expression for it.
pub(crate) fn accepts(signature: &Signature) -> bool {
    let to = signature.output().dtype;
    let Some(last) = signature.inputs.last() else {
        return signature.op.kind() == OpKind::Full && is_known(to);
    };
    let operands = vec!["x"; signature.inputs.len()];
    signature.inputs.iter().all(|x| is_known(x.dtype))
        && expression(signature.op, last.dtype, to, &operands).is_some()
}

/// Appends the kernel of a step.
pub(crate) fn emit(step: &Step, emitter: &mut Emitter) {
    let y = step.output();
    let shape = &y.ty.shape;
    let n = shape.elements();
    let mut kernel = Kernel::new("pointwise", "", GROUP);
    kernel.word("n", n);
    let mut body = String::from(
        "@compute @workgroup_size(GROUP)\nfn pointwise(@builtin(workgroup_id) group: vec3<u32>, \
             @builtin(local_invocation_index) lane: u32) {\n    \
             let i = (group.x + group.y * ROW) * GROUP + lane;\n    if (i >= p.n) { return; }\n",
    );
    for (k, place) in step.inputs.iter().enumerate() {
        let name = format!("x{k}");
        kernel.read(&name, place);
        let text = places(&mut kernel, &name, &place.layout.broadcast_to(shape));
        body.insert_str(0, &text);
        let _ = writeln!(body, "    let v_{name} = load_{name}(at_{name}(i));");
    }
    for at in 0..step.parts.len() {
        let value = value(step, at, &mut kernel);
        let value = rounded(step.parts[at].dtype, value);
        let _ = writeln!(body, "    let t{at} = {value};");
    }
    kernel.write("y", y);
    let last = step.parts.len() - 1;
    let _ = writeln!(body, "    store_y(i, t{last});\n}}");
    kernel.set_text(body);
    launch_for_each(emitter, kernel, n);
}

/// The expression of part `at`, in terms of the operands and of `t0`, `t1` and so on.
fn value(step: &Step, at: usize, kernel: &mut Kernel) -> String {
    let part = &step.parts[at];
    if let Op::Full(full) = &part.op {
        // Constants are parameters, so that one kernel serves all.
        let name = format!("k{at}");
        return match part.dtype {
            dtype if is_float(dtype) => {
                kernel.word(&name, (full.value.as_f64() as f32).to_bits() as usize);
                format!("of_bits(p.{name})")
            }
            DType::Bool => {
                kernel.word(&name, usize::from(full.value.as_i64() != 0));
                format!("p.{name}")
            }
            dtype => {
                kernel.word(&name, full.value.as_i64() as u32 as usize);
                match dtype {
                    DType::U32 | DType::U16 | DType::U8 => format!("p.{name}"),
                    _ => format!("bitcast<i32>(p.{name})"),
                }
            }
        };
    }
    let operands: Vec<String> = (part.operands.iter())
        .map(|operand| match operand {
            PartOperand::Input(k) => format!("v_x{k}"),
            PartOperand::Part(k) => format!("t{k}"),
        })
        .collect();
    let operands: Vec<&str> = operands.iter().map(String::as_str).collect();
    let from = part.operands.last().map_or(part.dtype, |o| step.dtype(*o));
    // Lowering offers only what has been accepted.
    expression(&part.op, from, part.dtype, &operands).unwrap_or_default()
}
