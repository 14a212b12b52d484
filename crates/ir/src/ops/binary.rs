use smallvec::smallvec;

use super::*;
use crate::case::{ARRANGEMENTS, Case, Fill, Operand, SHAPES};
use crate::{Named, OpDef, OpType, ResultTypes, broadcast_shapes};

/// A function of two operands of one dtype, broadcast against each other.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Binary {
    /// The function.
    pub op: BinaryOp,
}

/// Functions of two elements. Integer arithmetic wraps.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum BinaryOp {
    /// `a + b`.
    Add,
    /// `a - b`.
    Sub,
    /// `a · b`.
    Mul,
    /// `a / b`, of floating-point and complex numbers.
    Div,
    /// `⌊a / b⌋`; an integer division by zero is the caller's mistake.
    FloorDivide,
    /// `a - b ⌊a / b⌋`, with `b`'s sign; an integer division by zero is the caller's mistake.
    Remainder,
    /// `aᵇ`; of integers with a negative `b`: 0, or ±1 where `a` is ±1.
    Pow,
    /// The larger; NaN where one is NaN.
    Maximum,
    /// The smaller; NaN where one is NaN.
    Minimum,
    /// Bitwise and; logical for `bool`.
    And,
    /// Bitwise or; logical for `bool`.
    Or,
    /// Bitwise exclusive or; logical for `bool`.
    Xor,
    /// `a + bi`: a complex number of two reals.
    Complex,
}

impl BinaryOp {
    /// Every function.
    pub const ALL: &[Self] = &[
        Self::Add,
        Self::Sub,
        Self::Mul,
        Self::Div,
        Self::FloorDivide,
        Self::Remainder,
        Self::Pow,
        Self::Maximum,
        Self::Minimum,
        Self::And,
        Self::Or,
        Self::Xor,
        Self::Complex,
    ];

    /// Is the function defined for elements of `dtype`?
    pub fn accepts(self, dtype: DType) -> bool {
        let real = dtype.is_float() || dtype.is_int();
        match self {
            Self::Add | Self::Sub | Self::Mul => real || dtype.is_complex(),
            Self::Div => dtype.is_float() || dtype.is_complex(),
            Self::FloorDivide | Self::Remainder | Self::Pow => real,
            Self::Maximum | Self::Minimum => real || dtype == DType::Bool,
            Self::And | Self::Or | Self::Xor => dtype.is_int() || dtype == DType::Bool,
            Self::Complex => dtype.complex().is_some(),
        }
    }

    /// Type of the result for elements of `dtype`.
    pub fn output(self, dtype: DType) -> DType {
        match self {
            Self::Complex => dtype.complex().unwrap_or(dtype),
            _ => dtype,
        }
    }
}

impl OpDef for Binary {
    fn op_type(&self) -> Option<OpType> {
        Some(match self.op {
            BinaryOp::Complex => OpType::ComplexMath,
            _ => OpType::Activation,
        })
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<ResultTypes, OpError> {
        let [a, b] = operands(Self::NAME, inputs)?;
        require_same(Self::NAME, a, b)?;
        let expected = format_args!("a dtype that {:?} is defined for", self.op);
        require(Self::NAME, self.op.accepts(a.dtype), expected, a)?;
        let shape = broadcast_shapes(Self::NAME, &a.shape, &b.shape)?;
        Ok(smallvec![TensorType::new(shape, self.op.output(a.dtype))])
    }
}

impl Named for Binary {
    const NAME: &'static str = "binary";

    fn cases() -> Vec<Case> {
        let mut cases = Vec::new();
        for op in [BinaryOp::Add, BinaryOp::Sub, BinaryOp::Mul] {
            for dtype in DType::INTS {
                let any = Fill::Ints(i32::MIN.into(), i32::MAX.into());
                let wraps = Operand::new([67], dtype).fill(any);
                cases.push(Case::new(Self { op }, [wraps.clone(), wraps]));
            }
        }
        for op in [BinaryOp::Maximum, BinaryOp::Minimum] {
            for dtype in DType::FLOATS {
                let special = |shape: &[usize]| Operand::new(shape, dtype).fill(Fill::Special);
                cases.push(Case::new(Self { op }, [special(&[11, 1]), special(&[11])]));
            }
        }
        for &op in BinaryOp::ALL {
            for dtype in DType::SCALARS.into_iter().filter(|&d| op.accepts(d)) {
                // Quotients are compared where rounding cannot cross an integer, powers
                // where they are finite.
                let (left, right) = match op {
                    BinaryOp::FloorDivide | BinaryOp::Remainder => {
                        (Fill::Ints(0, 100), Fill::Ints(1, 9))
                    }
                    BinaryOp::Pow if dtype.is_int() => (Fill::Ints(0, 4), Fill::Ints(0, 4)),
                    BinaryOp::Pow | BinaryOp::Div => {
                        (Fill::Uniform(0.5, 2.0), Fill::Uniform(0.5, 2.0))
                    }
                    _ => {
                        let fill = Operand::new([], dtype).fill;
                        (fill, fill)
                    }
                };
                let a = |shape: &[usize]| Operand::new(shape, dtype).fill(left);
                let b = |shape: &[usize]| Operand::new(shape, dtype).fill(right);
                let mut push = |a, b| cases.push(Case::new(Self { op }, [a, b]));
                for shape in SHAPES {
                    push(a(shape), b(shape));
                    push(a(shape), b(&[]));
                }
                push(a(&[3, 1, 5]), b(&[4, 1]));
                push(a(&[1, 35]), b(&[7, 1]));
                for arrange in ARRANGEMENTS {
                    push(a(&[3, 5, 7]).arrange(arrange), b(&[3, 5, 7]));
                    push(a(&[3, 5, 7]), b(&[5, 7]).arrange(arrange));
                }
            }
        }
        cases
    }
}
