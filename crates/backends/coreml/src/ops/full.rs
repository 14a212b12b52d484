use rustorch_ir::{DType, Op, OpKind, TensorType};
use smallvec::smallvec;

use crate::builder::{Builder, Var, Vars, program_shape};
use crate::constant::Constant;
use crate::kernel::{Call, Kernel, is_float, parameters};
use crate::proto::mil::DataType;

pub(crate) const KERNEL: Kernel = Kernel {
    kind: OpKind::Full,
    accepts: |call: &Call| {
        let dtype = call.signature.output().dtype;
        is_float(dtype) || dtype == DType::I32 || dtype == DType::Bool
    },
    emit,
};

/// `fill`; one number is a constant.
fn emit(b: &mut Builder, op: &Op, _: &[Var]) -> Vars {
    let op = parameters!(op, Full);
    let shape = program_shape(&TensorType::new(op.shape.clone(), op.dtype));
    let to = b.data_type(op.dtype);
    let to = to.unwrap_or_else(|| unreachable!("supported are types of programs"));
    let one = |shape: &[usize]| match to {
        DataType::Int32 => Constant::tensor_of_ints(vec![op.value.as_i64() as i32], shape),
        DataType::Bool => Constant::bools(vec![op.value.as_i64() != 0], shape),
        _ => Constant::floats([op.value.as_f64()], shape, to),
    };
    if shape.elements() == 1 {
        return smallvec![b.constant(&one(&shape))];
    }
    let args = [
        ("shape", Constant::ints(&shape).into()),
        ("value", one(&[]).into()),
    ];
    smallvec![b.op("fill", &args, to, &shape)]
}
