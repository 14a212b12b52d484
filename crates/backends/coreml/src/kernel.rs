//! Rows of the table of operations.

use rustorch_ir::{DType, Op, OpKind, Signature, TensorType};
use rustorch_runtime::{KernelEntry, Layouts};

use crate::blocks;
use crate::builder::{Builder, Var, Vars};
use crate::opset::Target;

/// An operation that is to be put into a program.
pub(crate) struct Call<'a> {
    /// The operation and its types.
    pub(crate) signature: Signature<'a>,
    /// For each operand, is it known when the program is compiled?
    pub(crate) constant: &'a [bool],
    /// Target of the program.
    pub(crate) target: Target,
}

impl Call<'_> {
    /// Is the operand known when the program is compiled, or not there?
    pub(crate) fn is_constant(&self, operand: usize) -> bool {
        self.constant.get(operand).is_none_or(|&constant| constant)
    }

    /// Are all operands of one of these types?
    pub(crate) fn operands_are(&self, accepts: fn(DType) -> bool) -> bool {
        self.signature.inputs.iter().all(|ty| accepts(ty.dtype))
    }

    /// Do all tensors have elements, and no more dimensions or larger ones than ML Programs know?
    pub(crate) fn fits(&self) -> bool {
        self.signature.types().all(fits)
    }
}

/// Translation of an operation to operations of an ML Program.
pub(crate) struct Kernel {
    /// The operation.
    pub(crate) kind: OpKind,
    /// Calls that it accepts, of those that [fit](Call::fits).
    pub(crate) accepts: fn(&Call) -> bool,
    /// Appends it to a program and returns its results, in any shape with their elements.
    pub(crate) emit: fn(&mut Builder, &Op, &[Var]) -> Vars,
}

impl Kernel {
    /// The row of the table.
    pub(crate) fn entry(self) -> KernelEntry<Self> {
        KernelEntry {
            kind: self.kind,
            accepts: |_| true,
            layouts: Layouts::Contiguous,
            launch: self,
        }
    }
}

/// Tensors of a program have five dimensions at most, and sizes that `int32` holds; arrays at its
/// boundary have elements.
pub(crate) fn fits(ty: &TensorType) -> bool {
    let elements = ty.shape.elements();
    ty.rank() <= 5 && elements > 0 && i32::try_from(elements).is_ok()
}

/// A type that is computed in.
pub(crate) fn is_float(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::F16)
}

/// Weights in blocks that a program can have.
pub(crate) fn are_blocks(dtype: DType, target: Target) -> bool {
    dtype.is_block() && target.opset >= blocks::SINCE
}

/// A type that most operations take that only move elements.
pub(crate) fn is_number(dtype: DType) -> bool {
    is_float(dtype) || matches!(dtype, DType::I32 | DType::I64)
}

/// A type that changes of shape and `select` take.
pub(crate) fn is_any(dtype: DType) -> bool {
    is_number(dtype) || dtype == DType::Bool
}

/// The parameters of an operation that was looked up by its kind.
macro_rules! parameters {
    ($op:expr, $kind:ident) => {
        match $op {
            rustorch_ir::Op::$kind(op) => op,
            other => unreachable!("{} looked up as {}", other.name(), stringify!($kind)),
        }
    };
}
pub(crate) use parameters;
