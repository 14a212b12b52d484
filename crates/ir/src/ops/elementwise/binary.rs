use smallvec::smallvec;

use crate::autodiff::{Cotangents, Differentiated};
use crate::case::{ARRANGEMENTS, Case, CaseOperand, Fill, SHAPES};
use crate::ops::*;
use crate::{Graph, Named, OpDef, OpType, ResultTypes, broadcast_shapes, special};

/// A binary function of operands of one dtype, broadcast against each other.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Binary {
    /// The function.
    pub op: BinaryOp,
}

/// Makes the functions: to those that backends have their own ways for come those that one line
/// defines for all of them.
macro_rules! functions {
    ($d:tt $($(#[$doc:meta])+ $name:ident = $symbol:literal, $definition:expr;)+) => {
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
            /// `a - b ⌊a / b⌋`, with `b`'s sign; an integer division by zero is the caller's
            /// mistake.
            Remainder,
            /// `aᵇ`; integers with a negative `b` give 0, or ±1 where `a` is ±1.
            Pow,
            /// The larger one; NaN if one is NaN.
            Maximum,
            /// The smaller one; NaN if one is NaN.
            Minimum,
            /// Bitwise and; logical for `bool`.
            And,
            /// Bitwise or; logical for `bool`.
            Or,
            /// Bitwise exclusive or; logical for `bool`.
            Xor,
            /// `a · 2ᵇ` for integers: 0 if `b` is negative or at least the number of bits.
            ShiftLeft,
            /// `⌊a / 2ᵇ⌋` for integers: 0, or −1 for a negative `a`, if `b` is negative or at least
            /// the number of bits.
            ShiftRight,
            /// Greatest common divisor of integers.
            Gcd,
            /// The next representable number after `a` in the direction of `b`, in single or double
            /// precision.
            NextAfter,
            /// `a + bi`: a complex number from two real numbers.
            Complex,
            $($(#[$doc])+ $name,)+
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
                Self::ShiftLeft,
                Self::ShiftRight,
                Self::Gcd,
                Self::NextAfter,
                Self::Complex,
                $(Self::$name,)+
            ];

            /// The definition of a function of floats that one line defines, and its name among the
            /// [special functions](crate::special) or else in the languages of GPUs.
            #[inline]
            pub fn defined(self) -> Option<(fn(f64, f64) -> f64, &'static str)> {
                match self {
                    $(Self::$name => Some(($definition, $symbol)),)+
                    _ => None,
                }
            }
        }

        /// The same as [`for_each_function`](crate::for_each_function), of functions in [`BinaryOp`].
        #[macro_export]
        macro_rules! for_each_binary_function {
            ($d table:ident) => { $d table! { $($name),+ } };
        }
    };
}

functions! {
    $
    /// The angle of the point at `b` to the right and `a` up, from −π to π.
    Atan2 = "atan2", f64::atan2;
    /// The remainder of a division that is truncated towards zero.
    Fmod = "fmod", |a, b| a % b;
    /// `√(a² + b²)`.
    Hypot = "hypot", f64::hypot;
    /// `a` with the sign of `b`.
    CopySign = "copysign", f64::copysign;
    /// `a · 2ᵇ` for an integer `b`.
    Ldexp = "ldexp", |a, b| libm::scalbn(a, b.clamp(-3000.0, 3000.0) as i32);
    /// The regularised lower incomplete gamma function.
    GammaInc = "gammainc", special::gammainc;
    /// The regularised upper incomplete gamma function.
    GammaIncC = "gammaincc", special::gammaincc;
    /// Hurwitz's zeta function.
    Zeta = "zeta", special::zeta;
    /// Chebyshev polynomial of the first kind, of degree `b`.
    ChebyshevT = "chebyshev_polynomial_t", special::chebyshev_polynomial_t;
    /// Chebyshev polynomial of the second kind, of degree `b`.
    ChebyshevU = "chebyshev_polynomial_u", special::chebyshev_polynomial_u;
    /// Chebyshev polynomial of the third kind, of degree `b`.
    ChebyshevV = "chebyshev_polynomial_v", special::chebyshev_polynomial_v;
    /// Chebyshev polynomial of the fourth kind, of degree `b`.
    ChebyshevW = "chebyshev_polynomial_w", special::chebyshev_polynomial_w;
    /// Physicist's Hermite polynomial of degree `b`.
    HermiteH = "hermite_polynomial_h", special::hermite_polynomial_h;
    /// Probabilist's Hermite polynomial of degree `b`.
    HermiteHe = "hermite_polynomial_he", special::hermite_polynomial_he;
    /// Laguerre polynomial of degree `b`.
    LaguerreL = "laguerre_polynomial_l", special::laguerre_polynomial_l;
    /// Legendre polynomial of degree `b`.
    LegendreP = "legendre_polynomial_p", special::legendre_polynomial_p;
}

impl BinaryOp {
    /// PyTorch's name of the function.
    pub fn name(self) -> &'static str {
        match self {
            Self::Add => "add",
            Self::Sub => "sub",
            Self::Mul => "mul",
            Self::Div => "div",
            Self::FloorDivide => "floor_divide",
            Self::Remainder => "remainder",
            Self::Pow => "pow",
            Self::Maximum => "maximum",
            Self::Minimum => "minimum",
            Self::And => "bitwise_and",
            Self::Or => "bitwise_or",
            Self::Xor => "bitwise_xor",
            Self::ShiftLeft => "bitwise_left_shift",
            Self::ShiftRight => "bitwise_right_shift",
            Self::Gcd => "gcd",
            Self::NextAfter => "nextafter",
            Self::Complex => "complex",
            other => other.defined().map_or(Binary::NAME, |(_, symbol)| symbol),
        }
    }

    /// Returns whether the function is defined for elements of `dtype`.
    pub fn accepts(self, dtype: DType) -> bool {
        let real = dtype.is_float() || dtype.is_int();
        match self {
            Self::Add | Self::Sub | Self::Mul => real || dtype.is_complex(),
            Self::Div => dtype.is_float() || dtype.is_complex(),
            Self::FloorDivide | Self::Remainder | Self::Pow => real,
            Self::Maximum | Self::Minimum => real || dtype == DType::Bool,
            Self::And | Self::Or | Self::Xor => dtype.is_int() || dtype == DType::Bool,
            Self::ShiftLeft | Self::ShiftRight | Self::Gcd => dtype.is_int(),
            Self::NextAfter | Self::Complex => dtype.complex().is_some(),
            _ => dtype.is_float(),
        }
    }

    /// Ranges of examples. Quotients are compared where rounding cannot cross an integer. Powers are
    /// compared where they are finite.
    fn domain(self, dtype: DType) -> [Fill; 2] {
        let usual = CaseOperand::new([], dtype).fill;
        match self {
            Self::FloorDivide | Self::Remainder => [Fill::Ints(0, 100), Fill::Ints(1, 9)],
            Self::Pow if dtype.is_int() => [Fill::Ints(0, 4); 2],
            Self::Pow | Self::Div => [Fill::Uniform(0.5, 2.0); 2],
            Self::Fmod => [Fill::Ints(-100, 100), Fill::Ints(1, 9)],
            Self::ShiftLeft | Self::ShiftRight => [Fill::Ints(0, 127), Fill::Ints(0, 70)],
            Self::Gcd => [Fill::Ints(0, 120); 2],
            Self::Ldexp => [usual, Fill::Ints(-5, 5)],
            Self::GammaInc | Self::GammaIncC => [Fill::Uniform(0.1, 30.0); 2],
            Self::Zeta => [Fill::Uniform(1.1, 9.0), Fill::Uniform(0.1, 30.0)],
            _ if self.is_special() => [usual, Fill::Ints(-1, 12)],
            _ => [usual; 2],
        }
    }

    /// Returns whether it is one of the [special functions](crate::special).
    fn is_special(self) -> bool {
        self.defined()
            .is_some_and(|(_, name)| special::is_defined(name))
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

    fn function(&self) -> Option<&'static str> {
        Some(self.op.name())
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<ResultTypes, OpError> {
        let [a, b] = operands(Self::NAME, inputs)?;
        require_same(Self::NAME, a, b)?;
        let expected = "a dtype that it is defined for";
        require(Self::NAME, self.op.accepts(a.dtype), expected, a)?;
        let shape = broadcast_shapes(Self::NAME, &a.shape, &b.shape)?;
        Ok(smallvec![TensorType::new(shape, self.op.output(a.dtype))])
    }

    fn vjp(&self, g: &mut Graph, node: &Differentiated) -> Result<Cotangents, OpError> {
        let ct = node.cotangent(g, 0)?;
        let operands = [node.inputs[0], node.inputs[1]];
        node.each(g, |g, i| self.op.vjp(g, operands, node.results[0], ct, i))
    }
}

impl Named for Binary {
    const NAME: &'static str = "binary";

    fn cases() -> Vec<Case> {
        let mut cases = Vec::new();
        // Unsigned integers include those beyond the largest signed one.
        for op in [
            BinaryOp::Add,
            BinaryOp::Sub,
            BinaryOp::Mul,
            BinaryOp::Maximum,
            BinaryOp::Minimum,
            BinaryOp::Gcd,
        ] {
            for dtype in DType::INTS {
                let any = Fill::Ints(i32::MIN.into(), i32::MAX.into());
                let wraps = CaseOperand::new([67], dtype).fill(any);
                cases.push(Case::new(Self { op }, [wraps.clone(), wraps]));
            }
        }
        for op in [BinaryOp::Maximum, BinaryOp::Minimum] {
            for dtype in DType::FLOATS {
                let special = |shape: &[usize]| CaseOperand::new(shape, dtype).fill(Fill::Special);
                cases.push(Case::new(Self { op }, [special(&[11, 1]), special(&[11])]));
            }
        }
        for &op in BinaryOp::ALL {
            for dtype in DType::SCALARS.into_iter().filter(|&d| op.accepts(d)) {
                let [left, right] = op.domain(dtype);
                let a = |shape: &[usize]| CaseOperand::new(shape, dtype).fill(left);
                let b = |shape: &[usize]| CaseOperand::new(shape, dtype).fill(right);
                let mut push = |a, b| cases.push(Case::new(Self { op }, [a, b]));
                // Special functions cannot get layouts wrong by themselves, so one shape is enough.
                if op.is_special() {
                    push(a(&[67]), b(&[67]));
                    continue;
                }
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
