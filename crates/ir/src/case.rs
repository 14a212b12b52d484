//! Conformance cases: small examples of an operation.

use crate::{DType, Op, Shape, TensorType};

/// Choice of an operand's elements.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Fill {
    /// Uniform from `low..high`.
    Uniform(f64, f64),
    /// Integers from `low..high`.
    Ints(i64, i64),
    /// A few special values of a floating type (0, −0, ±1, ±∞, NaN, large, tiny) repeated.
    Special,
    /// Diagonally dominant matrices: 2, 3, 4 … on the diagonal, and −0.25 to 0.25 elsewhere (both
    /// parts of complex numbers). Their factors are unique by a wide margin. Contiguous operands of
    /// two dimensions or more.
    Dominant,
    /// 0 and −∞, as in masks of scores; never more than four −∞ in a row.
    Mask,
}

/// Layout of an operand in memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Arrange {
    /// Row-major without gaps.
    Contiguous,
    /// Stored with its dimensions in reverse order.
    Transposed,
    /// Every second element along the last dimension of a larger storage, not at its start.
    Strided,
    /// The rows of a wider storage: dense rows with gaps between them.
    Rows,
    /// Every second dimension, the first among them, broadcast from one stored index.
    Broadcast,
}

/// An operand of a case.
#[derive(Clone, PartialEq, Debug)]
pub struct CaseOperand {
    /// Type of the operand.
    pub ty: TensorType,
    /// Its elements.
    pub fill: Fill,
    /// Its layout in memory.
    pub arrange: Arrange,
}

impl CaseOperand {
    /// A contiguous operand with uniform elements from −2 to 2 (integers: −4 to 5; unsigned and
    /// booleans from 0).
    pub fn new(shape: impl Into<Shape>, dtype: DType) -> Self {
        let fill = match dtype {
            DType::Bool => Fill::Ints(0, 2),
            d if d.is_unsigned() => Fill::Ints(0, 9),
            d if d.is_int() => Fill::Ints(-4, 5),
            _ => Fill::Uniform(-2.0, 2.0),
        };
        Self {
            ty: TensorType::new(shape, dtype),
            fill,
            arrange: Arrange::Contiguous,
        }
    }

    /// Replaces the elements.
    pub fn fill(mut self, fill: Fill) -> Self {
        self.fill = fill;
        self
    }

    /// Changes the layout.
    pub fn arrange(mut self, arrange: Arrange) -> Self {
        self.arrange = arrange;
        self
    }
}

/// An operation with operands.
#[derive(Clone, PartialEq, Debug)]
pub struct Case {
    /// The operation.
    pub op: Op,
    /// Its operands.
    pub inputs: Vec<CaseOperand>,
}

impl Case {
    /// A case of `op` on `inputs`.
    pub fn new(op: impl Into<Op>, inputs: impl Into<Vec<CaseOperand>>) -> Self {
        Self {
            op: op.into(),
            inputs: inputs.into(),
        }
    }
}

/// Shapes for tests of every elementwise kernel: rank 0, size 1, empty, odd sizes beyond a vector
/// register, several dimensions.
pub const SHAPES: [&[usize]; 6] = [&[], &[1], &[0, 3], &[67], &[3, 1, 5], &[2, 3, 4, 17]];

/// Layouts for tests of every kernel that reads strides.
pub const ARRANGEMENTS: [Arrange; 5] = [
    Arrange::Contiguous,
    Arrange::Transposed,
    Arrange::Strided,
    Arrange::Rows,
    Arrange::Broadcast,
];

/// The operation on one operand: each dtype, shape and layout.
pub fn elementwise(
    op: &Op,
    dtypes: &[DType],
    adjust: impl Fn(CaseOperand) -> CaseOperand,
) -> Vec<Case> {
    let mut cases = Vec::new();
    for &dtype in dtypes {
        for shape in SHAPES {
            cases.push(Case::new(
                op.clone(),
                [adjust(CaseOperand::new(shape, dtype))],
            ));
        }
        for arrange in ARRANGEMENTS {
            let operand = CaseOperand::new([3, 5, 7], dtype).arrange(arrange);
            cases.push(Case::new(op.clone(), [adjust(operand)]));
        }
    }
    cases
}
