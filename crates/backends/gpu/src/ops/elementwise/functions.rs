//! Elementwise operations as expressions of the portable dialect.

use rustorch_ir::ops::{ActivationKind, BinaryOp, CompareOp, TernaryOp, UnaryOp};
use rustorch_ir::{DType, Op};

use super::special;
use crate::kernel::{Kernel, name};

/// The result of `op`, of type `to`, on operands `x` of type `from`. It may have more digits
/// than `to`; storing or [`rounded`] drops them.
pub(crate) fn expression(op: &Op, from: DType, to: DType, x: &[&str]) -> Option<String> {
    Some(match op {
        Op::Contiguous(_) | Op::Offload(_) | Op::Reload(_) => x[0].to_owned(),
        Op::Unary(op) => unary(op.op, from, x[0])?,
        Op::Binary(op) => binary(op.op, from, x[0], x[1])?,
        Op::Compare(op) => compare(op.op, from, x[0], x[1])?,
        Op::Where(_) => format!("({} ? {} : {})", x[0], x[1], x[2]),
        Op::Activation(op) => activation(op.kind, from, x[0])?,
        Op::Ternary(op) => ternary(op.op, from, [x[0], x[1], x[2]])?,
        Op::Cast(_) => cast(from, to, x[0])?,
        _ => return None,
    })
}

/// The activation of a number of single precision, with CUDA's less precise quotient.
pub(crate) fn activated(kind: ActivationKind, x: &str) -> String {
    let value = activation(kind, DType::F32, x).unwrap_or_default();
    value.replace("QUOTIENT(", "__fdividef(")
}

/// `value` as it is when it has been stored as `dtype` and loaded.
pub(crate) fn rounded(dtype: DType, value: String) -> String {
    match dtype {
        DType::F16 | DType::BF16 => format!("round_{dtype}({value})"),
        _ => value,
    }
}

/// Defines `CONVERT`, which makes a value of scalar type `to` of one of type `from`.
pub(crate) fn convert(kernel: &mut Kernel, from: DType, to: DType) {
    let value = match from == to {
        true => None,
        false => cast(from, to, "(x)"),
    };
    kernel.define("CONVERT(x)", value.as_deref().unwrap_or("(x)"));
}

fn unary(op: UnaryOp, dtype: DType, x: &str) -> Option<String> {
    let t = name(dtype);
    if dtype.is_complex() {
        return Some(match op {
            UnaryOp::Neg => format!("make_{t}(-{x}.x, -{x}.y)"),
            UnaryOp::Conj => format!("make_{t}({x}.x, -{x}.y)"),
            UnaryOp::Exp => format!("exp_{t}({x})"),
            UnaryOp::Reciprocal => format!("reciprocal_{t}({x})"),
            UnaryOp::Abs => format!("hypot({x}.x, {x}.y)"),
            UnaryOp::Real => format!("{x}.x"),
            UnaryOp::Imag => format!("{x}.y"),
            _ => return None,
        });
    }
    let c = format!("compute_{t}");
    if !dtype.is_float() {
        // Through unsigned numbers, whose overflow is defined.
        let negative = format!("(({c})(0 - (ulong){x}))");
        return Some(match op {
            UnaryOp::Neg => negative,
            UnaryOp::Abs => format!("({x} < 0 ? {negative} : {x})"),
            UnaryOp::Sign => format!("(({c})(({x} > 0) - ({x} < 0)))"),
            UnaryOp::Not => format!("(({c})({x} == 0))"),
            _ => return None,
        });
    }
    let function = |name: &str| format!("{name}({x})");
    Some(match op {
        UnaryOp::Neg => format!("(-{x})"),
        UnaryOp::Abs => function("fabs"),
        UnaryOp::Sign => format!("(({c})(({x} > 0) - ({x} < 0)))"),
        UnaryOp::Exp => function("exp"),
        UnaryOp::Log => function("log"),
        UnaryOp::Sqrt => function("sqrt"),
        UnaryOp::Rsqrt => format!("(1 / sqrt({x}))"),
        UnaryOp::Reciprocal => format!("(1 / {x})"),
        UnaryOp::Sin => function("sin"),
        UnaryOp::Cos => function("cos"),
        UnaryOp::Tan => function("tan"),
        UnaryOp::Tanh => function(tanh(dtype)),
        UnaryOp::Erf => function("erf"),
        UnaryOp::Floor => function("floor"),
        UnaryOp::Ceil => function("ceil"),
        UnaryOp::Round => function("rint"),
        UnaryOp::Trunc => function("trunc"),
        UnaryOp::IsNan => format!("((uchar)({x} != {x}))"),
        _ => format!("{}({x})", called(op.defined()?.1, dtype)),
    })
}

/// Name in kernels of a function of numbers of `dtype`, which [`special`] or their language has.
fn called(name: &str, dtype: DType) -> String {
    match rustorch_ir::special::is_defined(name) {
        true => special::call(name, dtype),
        false => name.to_owned(),
    }
}

fn binary(op: BinaryOp, dtype: DType, a: &str, b: &str) -> Option<String> {
    let t = name(dtype);
    if dtype.is_complex() {
        let function = match op {
            BinaryOp::Add => "add",
            BinaryOp::Sub => "sub",
            BinaryOp::Mul => "mul",
            BinaryOp::Div => "quotient",
            _ => return None,
        };
        return Some(format!("{function}_{t}({a}, {b})"));
    }
    // Functions of single precision serve halves.
    let t = if dtype.is_float() && dtype != DType::F64 {
        "f32"
    } else {
        t
    };
    if dtype.is_float() {
        return Some(match op {
            BinaryOp::Add => format!("({a} + {b})"),
            BinaryOp::Sub => format!("({a} - {b})"),
            BinaryOp::Mul => format!("({a} * {b})"),
            BinaryOp::Div => format!("({a} / {b})"),
            BinaryOp::FloorDivide => format!("{}({a}, {b})", called("floor_divide", dtype)),
            BinaryOp::Remainder => format!("remainder_{t}({a}, {b})"),
            BinaryOp::Pow => format!("pow({a}, {b})"),
            BinaryOp::Maximum => format!("({a} > {b} || {a} != {a} ? {a} : {b})"),
            BinaryOp::Minimum => format!("({a} < {b} || {a} != {a} ? {a} : {b})"),
            BinaryOp::Complex => format!("make_{}({a}, {b})", name(dtype.complex()?)),
            BinaryOp::NextAfter => format!("next_after_{t}({a}, {b})"),
            BinaryOp::Ldexp => {
                // Beyond these the result is the same.
                let bounded = format!("({b} > 3000 ? 3000 : {b} < -3000 ? -3000 : (int){b})");
                format!("ldexp({a}, {bounded})")
            }
            _ => format!("{}({a}, {b})", called(op.defined()?.1, dtype)),
        });
    }
    let is_in_range = format!("({b} >= 0 && {b} < {})", 8 * dtype.size()?);
    let wrapping = |sign: &str| format!("((compute_{t})((ulong){a} {sign} (ulong){b}))");
    Some(match op {
        BinaryOp::Add => wrapping("+"),
        BinaryOp::Sub => wrapping("-"),
        BinaryOp::Mul => wrapping("*"),
        BinaryOp::And => wrapping("&"),
        BinaryOp::Or => wrapping("|"),
        BinaryOp::Xor => wrapping("^"),
        BinaryOp::Maximum => format!("({a} > {b} ? {a} : {b})"),
        BinaryOp::Minimum => format!("({a} < {b} ? {a} : {b})"),
        BinaryOp::Pow => format!("pow_{t}({a}, {b})"),
        BinaryOp::FloorDivide => format!("({b} == 0 ? {b} : floor_divide_{t}({a}, {b}))"),
        BinaryOp::Remainder => format!("({b} == 0 ? {b} : remainder_{t}({a}, {b}))"),
        BinaryOp::ShiftLeft => {
            format!("({is_in_range} ? (compute_{t})((ulong){a} << (uint){b}) : (compute_{t})0)")
        }
        BinaryOp::ShiftRight => {
            let sign = format!("(compute_{t})(0 - (ulong)({a} < 0))");
            format!("({is_in_range} ? (compute_{t})({a} >> (uint){b}) : {sign})")
        }
        BinaryOp::Gcd => {
            let magnitude = |x: &str| format!("({x} < 0 ? 0 - (ulong){x} : (ulong){x})");
            format!("((compute_{t})gcd_u64({}, {}))", magnitude(a), magnitude(b))
        }
        _ => return None,
    })
}

fn compare(op: CompareOp, dtype: DType, a: &str, b: &str) -> Option<String> {
    if dtype.is_complex() {
        let (each, both) = match op {
            CompareOp::Eq => ("==", "&&"),
            CompareOp::Ne => ("!=", "||"),
            _ => return None,
        };
        return Some(format!(
            "((uchar)({a}.x {each} {b}.x {both} {a}.y {each} {b}.y))"
        ));
    }
    Some(format!("((uchar)({a} {} {b}))", sign(op)))
}

/// The operator of a comparison, which C and WGSL share.
pub(crate) fn sign(op: CompareOp) -> &'static str {
    match op {
        CompareOp::Eq => "==",
        CompareOp::Ne => "!=",
        CompareOp::Lt => "<",
        CompareOp::Le => "<=",
        CompareOp::Gt => ">",
        CompareOp::Ge => ">=",
    }
}

fn tanh(dtype: DType) -> &'static str {
    match dtype {
        DType::F64 => "tanh_f64",
        _ => "tanh_f32",
    }
}

fn activation(kind: ActivationKind, dtype: DType, x: &str) -> Option<String> {
    if !dtype.is_float() {
        return None;
    }
    // A constant in the precision that is computed in.
    let number = |value: f64| match dtype {
        DType::F64 => format!("{value:?}"),
        _ => format!("{:?}f", value as f32),
    };
    let sigmoid = format!("QUOTIENT(1, 1 + exp(-{x}))");
    Some(match kind {
        ActivationKind::Relu => format!("({x} < 0 ? 0 : {x})"),
        ActivationKind::Sigmoid => sigmoid,
        ActivationKind::Silu => format!("({x} * {sigmoid})"),
        ActivationKind::Gelu => {
            let (half, root) = (number(0.5), number(std::f64::consts::FRAC_1_SQRT_2));
            format!("({half} * {x} * (1 + erf({x} * {root})))")
        }
        ActivationKind::GeluTanh => {
            // x / 2 · (1 + tanh z) is x / (1 + exp(-2z)).
            let scale = number(-2.0 * (2.0 / std::f64::consts::PI).sqrt());
            let cubic = number(0.044715);
            let inner = format!("{scale} * ({x} + {cubic} * {x} * {x} * {x})");
            format!("QUOTIENT({x}, 1 + exp({inner}))")
        }
    })
}

fn ternary(op: TernaryOp, dtype: DType, [a, b, c]: [&str; 3]) -> Option<String> {
    Some(match op {
        TernaryOp::Clamp => {
            let raised = binary(BinaryOp::Maximum, dtype, a, b)?;
            binary(BinaryOp::Minimum, dtype, &raised, c)?
        }
        TernaryOp::Lerp => {
            let half = match dtype {
                DType::F64 => "0.5",
                _ => "0.5f",
            };
            let way = format!("({b} - {a})");
            format!("(fabs({c}) < {half} ? {a} + {way} * {c} : {b} - {way} * (1 - {c}))")
        }
    })
}

fn cast(from: DType, to: DType, x: &str) -> Option<String> {
    if from.is_float8() {
        return match from == to {
            true => Some(x.to_owned()),
            false => cast(DType::F32, to, &format!("{from}_to_f32({x})")),
        };
    }
    if to == DType::Bool {
        return Some(match from.is_complex() {
            true => format!("((uchar)({x}.x != 0 || {x}.y != 0))"),
            false => format!("((uchar)({x} != 0))"),
        });
    }
    if to.is_complex() {
        let (re, im) = match from.is_complex() {
            true => (format!("{x}.x"), format!("{x}.y")),
            false => (x.to_owned(), "0".to_owned()),
        };
        return Some(format!("make_{}({re}, {im})", name(to)));
    }
    // Only the real part of a complex number is left.
    let (x, from) = match from.is_complex() {
        true => (format!("{x}.x"), from.real()),
        false => (x.to_owned(), from),
    };
    let is_narrow = to.is_float8() || matches!(to, DType::F16 | DType::BF16);
    let value = match (from.is_float(), to.is_float() || to.is_float8()) {
        // Not rounded twice.
        (true, true) if is_narrow && from == DType::F64 => format!("odd_of_f64({x})"),
        (false, true) if is_narrow && from == DType::U64 => format!("odd_of_u64({x})"),
        (false, true) if is_narrow => format!("odd_of_i64((long){x})"),
        (true, true) if to.is_float8() => x,
        (true, false) => format!("cut_{}({x})", name(to)),
        _ => format!("((compute_{}){x})", name(to)),
    };
    Some(match to.is_float8() {
        true => format!("f32_to_{to}({value})"),
        false => value,
    })
}
