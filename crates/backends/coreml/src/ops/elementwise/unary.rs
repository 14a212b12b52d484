use rustorch_ir::ops::UnaryOp;
use rustorch_ir::{DType, Op, OpKind};
use smallvec::smallvec;

use crate::builder::{Builder, Var, Vars};
use crate::constant::Constant;
use crate::kernel::{Call, Kernel, is_float, parameters};

pub(crate) const KERNEL: Kernel = Kernel {
    kind: OpKind::Unary,
    accepts,
    emit,
};

/// Translation of a function.
enum Way {
    /// By an operation on `x` alone.
    Named(&'static str),
    /// Several operations.
    Composed(fn(&mut Builder, &Var) -> Var),
}

fn way(op: UnaryOp) -> Option<Way> {
    Some(match op {
        UnaryOp::Abs => Way::Named("abs"),
        UnaryOp::Exp => Way::Named("exp"),
        UnaryOp::Exp2 => Way::Named("exp2"),
        UnaryOp::Sqrt => Way::Named("sqrt"),
        UnaryOp::Sin => Way::Named("sin"),
        UnaryOp::Cos => Way::Named("cos"),
        UnaryOp::Tan => Way::Named("tan"),
        UnaryOp::Sinh => Way::Named("sinh"),
        UnaryOp::Cosh => Way::Named("cosh"),
        UnaryOp::Tanh => Way::Named("tanh"),
        UnaryOp::Asin => Way::Named("asin"),
        UnaryOp::Acos => Way::Named("acos"),
        UnaryOp::Atan => Way::Named("atan"),
        UnaryOp::Atanh => Way::Named("atanh"),
        UnaryOp::Erf => Way::Named("erf"),
        UnaryOp::Floor => Way::Named("floor"),
        UnaryOp::Ceil => Way::Named("ceil"),
        UnaryOp::Not => Way::Named("logical_not"),
        UnaryOp::Neg => Way::Composed(negate),
        UnaryOp::Sign => Way::Composed(sign),
        UnaryOp::Log => Way::Composed(log),
        UnaryOp::Reciprocal => Way::Composed(reciprocal),
        UnaryOp::Rsqrt => Way::Composed(|b, x| {
            let root = b.unary("sqrt", x);
            reciprocal(b, &root)
        }),
        UnaryOp::Trunc => Way::Composed(truncate),
        _ => return None,
    })
}

fn accepts(call: &Call) -> bool {
    let op = parameters!(call.signature.op, Unary).op;
    let dtype = match op {
        UnaryOp::Not => |d| d == DType::Bool,
        _ => is_float,
    };
    way(op).is_some() && call.operands_are(dtype)
}

fn emit(b: &mut Builder, op: &Op, x: &[Var]) -> Vars {
    smallvec![match way(parameters!(op, Unary).op) {
        Some(Way::Named(kind)) => b.unary(kind, &x[0]),
        Some(Way::Composed(compose)) => compose(b, &x[0]),
        None => unreachable!("supported are those that MIL can express"),
    }]
}

fn negate(b: &mut Builder, x: &Var) -> Var {
    let minus = b.number(-1.0, x);
    b.binary("mul", x, &minus)
}

/// By comparisons, for NaN has to give 0.
fn sign(b: &mut Builder, x: &Var) -> Var {
    let zero = b.number(0.0, x);
    let [above, below] = ["greater", "less"].map(|kind| {
        let is = b.compare(kind, x, &zero);
        b.cast(&is, x.data_type)
    });
    b.binary("sub", &above, &below)
}

/// The natural logarithm, without the number that is added to `x` unless another is given.
pub(crate) fn log(b: &mut Builder, x: &Var) -> Var {
    let epsilon = Constant::number(0.0, x.data_type);
    let args = [("x", x.into()), ("epsilon", epsilon.into())];
    b.op("log", &args, x.data_type, &x.shape)
}

/// The reciprocal as a quotient: `inverse` adds a number to `x`.
fn reciprocal(b: &mut Builder, x: &Var) -> Var {
    let one = b.number(1.0, x);
    b.binary("real_div", &one, x)
}

fn truncate(b: &mut Builder, x: &Var) -> Var {
    let zero = b.number(0.0, x);
    let is_negative = b.compare("less", x, &zero);
    let [up, down] = ["ceil", "floor"].map(|kind| b.unary(kind, x));
    b.select(&is_negative, &up, &down)
}
