use rustorch_ir::ops::BinaryOp;
use rustorch_ir::{DType, Op, OpKind};
use smallvec::smallvec;

use crate::builder::{Builder, Var, Vars};
use crate::kernel::{Call, Kernel, is_float, parameters};
use crate::opset::Precision;

pub(crate) const KERNEL: Kernel = Kernel {
    kind: OpKind::Binary,
    accepts,
    emit,
};

fn name(op: BinaryOp) -> Option<&'static str> {
    Some(match op {
        BinaryOp::Add => "add",
        BinaryOp::Sub => "sub",
        BinaryOp::Mul => "mul",
        BinaryOp::Div => "real_div",
        BinaryOp::Pow => "pow",
        BinaryOp::Maximum => "maximum",
        BinaryOp::Minimum => "minimum",
        BinaryOp::And => "logical_and",
        BinaryOp::Or => "logical_or",
        BinaryOp::Xor => "logical_xor",
        _ => return None,
    })
}

/// Floats, or booleans where it is about them. Powers are taken in single precision alone: ONNX
/// Runtime, too, keeps those of halves from Core ML.
fn accepts(call: &Call) -> bool {
    let op = parameters!(call.signature.op, Binary).op;
    let dtype = match op {
        BinaryOp::And | BinaryOp::Or | BinaryOp::Xor => |d| d == DType::Bool,
        BinaryOp::Pow if call.target.precision == Precision::F16 => |_| false,
        BinaryOp::Pow => |d| d == DType::F32,
        _ => is_float,
    };
    name(op).is_some() && call.operands_are(dtype)
}

fn emit(b: &mut Builder, op: &Op, x: &[Var]) -> Vars {
    let name = name(parameters!(op, Binary).op);
    let name = name.unwrap_or_else(|| unreachable!("supported are those with a name"));
    smallvec![b.binary(name, &x[0], &x[1])]
}
