//! The table of kernels.

use std::rc::Rc;

use rustorch_ir::{Op, OpKind};
use rustorch_runtime::{KernelEntry, KernelTable, Layouts};

use crate::Values;
use crate::operand::{Call, Misuse};
use crate::ops;

/// Computes the result of an operation.
pub(crate) type Launch = fn(&Op, &Call) -> Result<Rc<Values>, Misuse>;

/// A row of the table for each operation and the function that evaluates it.
macro_rules! kernels {
    ($($kind:ident => $module:ident),* $(,)?) => {
        vec![$(KernelEntry {
            kind: OpKind::$kind,
            accepts: |_| true,
            layouts: Layouts::Contiguous,
            launch: |op, call| match op {
                Op::$kind(op) => ops::$module::evaluate(op, call).map(Into::into),
                other => unreachable!("{} looked up as {}", other.name(), stringify!($kind)),
            },
        }),*]
    };
}

/// Every primitive, for all the types that its inference admits.
pub(crate) fn table() -> KernelTable<Launch> {
    KernelTable(kernels! {
        Full => full, Arange => arange, Random => random,
        AsStrided => view, Reshape => view, Permute => view, Expand => view, Slice => view,
        Contiguous => contiguous, Cast => cast, Concat => concat, Pad => pad,
        UpdateSlice => update_slice,
        Unary => unary, Binary => binary, Compare => compare, Where => select,
        Reduce => reduce, ArgReduce => arg_reduce, Cumsum => cumsum, TopK => top_k,
        IndexSelect => index_select, Gather => gather, Scatter => scatter,
        Matmul => matmul,
        Conv2d => conv2d, ConvTranspose2d => conv_transpose2d, Pool2d => pool2d,
    })
}
