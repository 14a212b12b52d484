//! The table of kernels.

use std::rc::Rc;

use rustorch_ir::{Op, OpKind};
use rustorch_runtime::{KernelEntry, KernelTable, Layouts};
use smallvec::{SmallVec, smallvec};

use crate::Values;
use crate::operand::{Call, Misuse};
use crate::ops;

/// The results of an operation, one by one.
pub type Results = SmallVec<[Rc<Values>; 1]>;

/// Computes the results of an operation.
pub(crate) type Launch = fn(&Op, &Call) -> Result<Results, Misuse>;

/// Conversion of a kernel's results.
trait IntoResults {
    fn results(self) -> Results;
}

impl IntoResults for Rc<Values> {
    fn results(self) -> Results {
        smallvec![self]
    }
}

impl IntoResults for Values {
    fn results(self) -> Results {
        smallvec![Rc::new(self)]
    }
}

/// Results of operations whose parameters decide their number.
impl IntoResults for Vec<Values> {
    fn results(self) -> Results {
        self.into_iter().map(Rc::new).collect()
    }
}

impl<const N: usize> IntoResults for [Values; N] {
    fn results(self) -> Results {
        self.into_iter().map(Rc::new).collect()
    }
}

/// A row of the table for each operation and the function that evaluates it.
macro_rules! kernels {
    ($($kind:ident => $module:ident),* $(,)?) => {
        vec![$(KernelEntry {
            kind: OpKind::$kind,
            accepts: |_| true,
            layouts: Layouts::Contiguous,
            launch: |op, call| match op {
                Op::$kind(op) => ops::$module::evaluate(op, call).map(IntoResults::results),
                other => unreachable!("{} looked up as {}", other.name(), stringify!($kind)),
            },
        }),*]
    };
}

/// Every primitive, for all the types that its inference admits.
pub(crate) fn table() -> KernelTable<Launch> {
    KernelTable::new(kernels! {
        Full => full, Arange => arange, Random => random,
        AsStrided => view, Reshape => view, Permute => view, Expand => view, Slice => view,
        Contiguous => contiguous, Cast => cast, Concat => concat, Pad => pad,
        UpdateSlice => update_slice, Assign => assign,
        Unary => unary, Binary => binary, Compare => compare, Where => select,
        Reduce => reduce, ArgReduce => arg_reduce, Scan => scan, TopK => top_k,
        IndexSelect => index_select, Gather => gather, Scatter => scatter,
        Matmul => matmul,
        Fft => fft, Cholesky => cholesky, Ldl => ldl, LdlSolve => ldl_solve, Lu => lu, LuPivotsToPermutation => lu_pivots_to_permutation, Qr => qr, Svd => svd, Eigh => eigh, Eig => eig,
        Geqrf => geqrf, HouseholderProduct => householder_product,
        SolveTriangular => solve_triangular, MatrixExp => matrix_exp,
        Host => host, Conv2d => conv2d, ConvTranspose2d => conv_transpose2d, Pool2d => pool2d,
    })
}
