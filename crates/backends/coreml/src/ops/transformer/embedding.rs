use rustorch_ir::{DType, Op, OpKind};
use smallvec::smallvec;

use crate::builder::{Builder, Var, Vars};
use crate::kernel::{Call, Kernel, are_blocks, is_number, parameters};
use crate::ops::index_select::gather;

pub(crate) const KERNEL: Kernel = Kernel {
    kind: OpKind::Embedding,
    accepts,
    emit,
};

/// Also of weights in blocks that are a constant, of formats without minima: rows of others would not
/// be the same to the last bit, as they are on other devices.
fn accepts(call: &Call) -> bool {
    let table = call.signature.inputs[0].dtype;
    let mut others = call.signature.types().skip(1);
    let are_exact = match table {
        DType::Block(format) => are_blocks(table, call.target) && !format.has_minima(),
        _ => false,
    };
    let is_table = is_number(table) || call.is_constant(0) && are_exact;
    is_table && others.all(|ty| is_number(ty.dtype))
}

fn emit(b: &mut Builder, op: &Op, x: &[Var]) -> Vars {
    let rows = gather(b, &x[0], &x[1], 0);
    let to = b.data_type(parameters!(op, Embedding).dtype);
    let to = to.unwrap_or_else(|| unreachable!("supported are types of programs"));
    smallvec![b.cast(&rows, to)]
}
