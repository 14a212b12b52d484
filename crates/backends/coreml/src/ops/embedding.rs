use rustorch_ir::{Op, OpKind};
use smallvec::smallvec;

use super::index_select::gather;
use crate::builder::{Builder, Var, Vars};
use crate::kernel::{Kernel, is_number, parameters};

pub(crate) const KERNEL: Kernel = Kernel {
    kind: OpKind::Embedding,
    accepts: |call| call.signature.types().all(|ty| is_number(ty.dtype)),
    emit,
};

fn emit(b: &mut Builder, op: &Op, x: &[Var]) -> Vars {
    let rows = gather(b, &x[0], &x[1], 0);
    let to = b.data_type(parameters!(op, Embedding).dtype);
    let to = to.unwrap_or_else(|| unreachable!("accepted are types of programs"));
    smallvec![b.cast(&rows, to)]
}
