use rustorch_ir::{DType, Op, OpKind};
use smallvec::smallvec;

use crate::builder::{Builder, Var, Vars};
use crate::kernel::{Call, Kernel, is_any, is_float, parameters};
use crate::proto::mil::DataType;

pub(crate) const KERNEL: Kernel = Kernel {
    kind: OpKind::Cast,
    accepts,
    emit,
};

/// Refuses casts from floats to integers: Apple leaves the result of too large ones open.
fn accepts(call: &Call) -> bool {
    let (from, to) = (
        call.signature.inputs[0].dtype,
        call.signature.output().dtype,
    );
    let fits = is_float(to) || to == DType::Bool || !is_float(from);
    is_any(from) && is_any(to) && fits
}

fn emit(b: &mut Builder, op: &Op, x: &[Var]) -> Vars {
    let x = &x[0];
    let to = b.data_type(parameters!(op, Cast).dtype);
    let to = to.unwrap_or_else(|| unreachable!("supported are types of programs"));
    smallvec![match (x.data_type, to) {
        (DataType::Float16 | DataType::Float32, DataType::Bool) => {
            let zero = b.number(0.0, x);
            b.compare("not_equal", x, &zero)
        }
        _ => b.cast(x, to),
    }]
}
