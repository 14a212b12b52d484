//! Elementwise operations as expressions in WGSL.

use rustorch_ir::ops::{ActivationKind, BinaryOp, CompareOp, TernaryOp, UnaryOp};
use rustorch_ir::{DType, Op};

use super::{is_float, is_known};
use crate::ops::functions::sign;

/// The result of `op`, of type `to`, on operands `x`, of which the last has type `from`. It may have more digits than
/// `to`; [`rounded`] drops them.
pub(super) fn expression(op: &Op, from: DType, to: DType, x: &[&str]) -> Option<String> {
    if !is_known(from) || !is_known(to) {
        return None;
    }
    Some(match op {
        Op::Contiguous(_) => x[0].to_owned(),
        Op::Unary(op) => unary(op.op, from, x[0])?,
        Op::Binary(op) => binary(op.op, from, x[0], x[1])?,
        Op::Compare(op) => {
            let holds = compare(op.op, from, x[0], x[1]);
            format!("select(0u, 1u, {holds})")
        }
        Op::Where(_) => format!("select({}, {}, {} != 0u)", x[2], x[1], x[0]),
        Op::Activation(op) => activation(op.kind, from, x[0])?,
        Op::Ternary(op) => ternary(op.op, from, [x[0], x[1], x[2]])?,
        Op::Cast(_) => cast(from, to, x[0])?,
        _ => return None,
    })
}

/// `value` as it is when it has been stored as `dtype` and loaded.
pub(super) fn rounded(dtype: DType, value: String) -> String {
    match dtype {
        DType::F16 | DType::BF16 | DType::I8 | DType::I16 | DType::U8 | DType::U16 => {
            let bits = 8 * dtype.size().unwrap_or(4);
            let mask = (1u32 << bits) - 1;
            format!("load_{dtype}(store_{dtype}({value}) & {mask}u)")
        }
        _ => value,
    }
}

/// A constant in single precision.
fn number(value: f32) -> String {
    format!("{value:?}")
}

fn is_signed(dtype: DType) -> bool {
    matches!(dtype, DType::I32 | DType::I16 | DType::I8)
}

fn negative(x: &str) -> String {
    format!("bitcast<f32>(bitcast<u32>({x}) ^ 0x80000000u)")
}

fn unary(op: UnaryOp, dtype: DType, x: &str) -> Option<String> {
    if !is_float(dtype) {
        let zero = if is_signed(dtype) { "0" } else { "0u" };
        return Some(match op {
            UnaryOp::Neg => format!("({zero} - {x})"),
            UnaryOp::Abs if is_signed(dtype) => format!("select({x}, 0 - {x}, {x} < 0)"),
            UnaryOp::Abs => x.to_owned(),
            UnaryOp::Sign if is_signed(dtype) => {
                format!("(select(0, 1, {x} > 0) - select(0, 1, {x} < 0))")
            }
            UnaryOp::Sign => format!("min({x}, 1u)"),
            UnaryOp::Not => format!("select(0u, 1u, {x} == 0u)"),
            _ => return None,
        });
    }
    let function = |name: &str| format!("{name}_f32({x})");
    Some(match op {
        UnaryOp::Neg => negative(x),
        UnaryOp::Abs => format!("bitcast<f32>(bitcast<u32>({x}) & 0x7fffffffu)"),
        UnaryOp::Sign => function("sign"),
        UnaryOp::Exp => function("exp"),
        UnaryOp::Exp2 => function("exp2"),
        UnaryOp::Log => function("log"),
        UnaryOp::Sqrt => function("sqrt"),
        UnaryOp::Rsqrt => format!("quotient(1.0, sqrt_f32({x}))"),
        UnaryOp::Reciprocal => format!("quotient(1.0, {x})"),
        UnaryOp::Tanh => function("tanh"),
        UnaryOp::Erf => function("erf"),
        UnaryOp::Floor => function("floor"),
        UnaryOp::Ceil => function("ceil"),
        UnaryOp::Round => function("round"),
        UnaryOp::Trunc => function("trunc"),
        UnaryOp::IsNan => format!("select(0u, 1u, is_nan({x}))"),
        _ => return None,
    })
}

fn binary(op: BinaryOp, dtype: DType, a: &str, b: &str) -> Option<String> {
    if is_float(dtype) {
        let function = |name: &str| format!("{name}({a}, {b})");
        return Some(match op {
            BinaryOp::Add => function("sum"),
            BinaryOp::Sub => function("difference"),
            BinaryOp::Mul => function("product"),
            BinaryOp::Div => function("quotient"),
            BinaryOp::Maximum => function("larger"),
            BinaryOp::Minimum => function("smaller"),
            BinaryOp::CopySign => function("with_sign"),
            _ => return None,
        });
    }
    let (signed, bits) = (is_signed(dtype), 8 * dtype.size()?);
    let suffix = if signed { "" } else { "u" };
    let is_in_range = match signed {
        true => format!("({b} >= 0 && {b} < {bits})"),
        false => format!("({b} < {bits}u)"),
    };
    Some(match op {
        BinaryOp::Add => format!("({a} + {b})"),
        BinaryOp::Sub => format!("({a} - {b})"),
        BinaryOp::Mul => format!("({a} * {b})"),
        BinaryOp::And => format!("({a} & {b})"),
        BinaryOp::Or => format!("({a} | {b})"),
        BinaryOp::Xor => format!("({a} ^ {b})"),
        BinaryOp::Maximum => format!("max({a}, {b})"),
        BinaryOp::Minimum => format!("min({a}, {b})"),
        BinaryOp::ShiftLeft => {
            format!("select(0{suffix}, {a} << (u32({b}) & 31u), {is_in_range})")
        }
        BinaryOp::ShiftRight => {
            let sign = match signed {
                true => format!("select(0, -1, {a} < 0)"),
                false => "0u".to_owned(),
            };
            format!("select({sign}, {a} >> (u32({b}) & 31u), {is_in_range})")
        }
        _ => return None,
    })
}

fn compare(op: CompareOp, dtype: DType, a: &str, b: &str) -> String {
    if is_float(dtype) {
        return match op {
            CompareOp::Eq => format!("eq({a}, {b})"),
            CompareOp::Ne => format!("!eq({a}, {b})"),
            CompareOp::Lt => format!("lt({a}, {b})"),
            CompareOp::Le => format!("le({a}, {b})"),
            CompareOp::Gt => format!("lt({b}, {a})"),
            CompareOp::Ge => format!("le({b}, {a})"),
        };
    }
    format!("({a} {} {b})", sign(op))
}

fn activation(kind: ActivationKind, dtype: DType, x: &str) -> Option<String> {
    if !is_float(dtype) {
        return None;
    }
    Some(match kind {
        ActivationKind::Relu => format!("select({x}, 0.0, lt({x}, 0.0))"),
        ActivationKind::Sigmoid => format!("sigmoid_f32({x})"),
        ActivationKind::Silu => format!("product({x}, sigmoid_f32({x}))"),
        ActivationKind::Gelu => {
            let root = number(std::f32::consts::FRAC_1_SQRT_2);
            let inner = format!("erf_f32(product({x}, {root}))");
            format!("product(product(0.5, {x}), sum(1.0, {inner}))")
        }
        ActivationKind::GeluTanh => {
            // x / 2 · (1 + tanh z) is x / (1 + exp(-2z)).
            let scale = number(-2.0 * (2.0 / std::f32::consts::PI).sqrt());
            let cube = format!("product(product(product(0.044715, {x}), {x}), {x})");
            let inner = format!("product({scale}, sum({x}, {cube}))");
            format!("quotient({x}, sum(1.0, exp_f32({inner})))")
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
            let way = format!("difference({b}, {a})");
            let near = format!("sum({a}, product({way}, {c}))");
            let far = format!("difference({b}, product({way}, difference(1.0, {c})))");
            format!("select({far}, {near}, lt(abs({c}), 0.5))")
        }
    })
}

fn cast(from: DType, to: DType, x: &str) -> Option<String> {
    if from == to {
        return Some(x.to_owned());
    }
    if to == DType::Bool {
        return Some(match is_float(from) {
            true => format!("select(1u, 0u, eq({x}, 0.0))"),
            false if is_signed(from) => format!("select(0u, 1u, {x} != 0)"),
            false => format!("min({x}, 1u)"),
        });
    }
    let is_half = matches!(to, DType::F16 | DType::BF16);
    Some(match (is_float(from), is_float(to)) {
        (true, true) => x.to_owned(),
        // They would be rounded twice.
        (false, true) if is_half && matches!(from, DType::I32 | DType::U32) => return None,
        (false, true) => format!("f32({x})"),
        (true, false) => {
            let bits = 8 * to.size()?;
            match is_signed(to) {
                true => format!("cut_signed({x}, {bits}u)"),
                false => format!("cut_unsigned({x}, {bits}u)"),
            }
        }
        (false, false) => match (is_signed(from), is_signed(to)) {
            (true, false) => format!("bitcast<u32>({x})"),
            (false, true) => format!("bitcast<i32>({x})"),
            _ => x.to_owned(),
        },
    })
}
