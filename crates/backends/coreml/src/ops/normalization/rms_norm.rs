use rustorch_ir::{Op, OpKind};
use smallvec::smallvec;

use crate::builder::{Builder, Var, Vars};
use crate::kernel::{Kernel, is_float, parameters};
use crate::proto::mil::DataType;

pub(crate) const KERNEL: Kernel = Kernel {
    kind: OpKind::RmsNorm,
    accepts: |call| call.operands_are(is_float),
    emit,
};

/// The least divisor of rows of halves, far above divisors with which `eps` would overflow.
const LEAST: f64 = 1.0 / 128.0;

/// Rows of halves are divided by their largest magnitude first, as squares of numbers over 255 are
/// infinite: `x / √(mean(x²) + eps)` is the same of `x / m` with `eps / m²`.
fn emit(b: &mut Builder, op: &Op, x: &[Var]) -> Vars {
    let eps = parameters!(op, RmsNorm).eps.0;
    let (x, weight) = (&x[0], x.get(1));
    let last = x.shape.len() - 1;
    let (x, eps) = match x.data_type {
        DataType::Float16 => {
            let magnitude = b.unary("abs", x);
            let largest = b.reduce("reduce_max", &magnitude, &[last]);
            let least = b.number(LEAST, x);
            let divisor = b.binary("maximum", &largest, &least);
            let root = b.number(eps.sqrt(), x);
            let root = b.binary("real_div", &root, &divisor);
            let x = b.binary("real_div", x, &divisor);
            (x, b.binary("mul", &root, &root))
        }
        _ => (x.clone(), b.number(eps, x)),
    };
    let square = b.binary("mul", &x, &x);
    let mean = b.reduce("reduce_mean", &square, &[last]);
    let sum = b.binary("add", &mean, &eps);
    let root = b.unary("sqrt", &sum);
    let y = b.binary("real_div", &x, &root);
    smallvec![match weight {
        Some(weight) => b.binary("mul", &y, weight),
        None => y,
    }]
}
