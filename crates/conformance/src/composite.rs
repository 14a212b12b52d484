//! Composites, whose kernels may round where their parts do not.

use rustorch_ir::case::Case;
use rustorch_ir::{BlockFormat, DType};

use crate::precision::{Precision, is_narrow};

/// Liberties of kernels of a composite, which its parts by themselves do not have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Composite {
    /// The floating-point dtype of fewest digits among its operands, in which products may read their factors.
    pub(crate) narrowest: DType,
    /// Is an operand in double precision?
    pub(crate) has_doubles: bool,
    /// Are operands quantised? Then products may quantise the others, too.
    pub(crate) is_quantised: bool,
    /// Are there blocks of which a minimum is subtracted?
    pub(crate) has_minima: bool,
}

impl Composite {
    /// Do kernels round operands of sums and products to halves or to 8 bits?
    pub(crate) fn rounds_inside(&self) -> bool {
        self.is_quantised || is_narrow(self.narrowest)
    }

    /// The composite of a case.
    pub(crate) fn of(case: &Case) -> Self {
        let dtypes = || case.inputs.iter().map(|x| x.ty.dtype);
        let floats = dtypes().filter(|dtype| dtype.is_float());
        let unit = |dtype: &DType| Precision::of(*dtype).unit();
        let narrowest = floats.max_by(|a, b| unit(a).total_cmp(&unit(b)));
        Self {
            narrowest: narrowest.unwrap_or(DType::F64),
            has_doubles: dtypes().any(|dtype| dtype.real() == DType::F64),
            is_quantised: dtypes().any(DType::is_block),
            has_minima: dtypes().any(has_minima),
        }
    }
}

/// Are values of a dtype products of scales and codes less minima?
fn has_minima(dtype: DType) -> bool {
    use BlockFormat::{Q2K, Q4_1, Q4K, Q5_1, Q5K};
    matches!(dtype, DType::Block(Q2K | Q4_1 | Q4K | Q5_1 | Q5K))
}
