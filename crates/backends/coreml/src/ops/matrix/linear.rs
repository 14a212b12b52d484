use rustorch_ir::{DType, Op, OpKind};
use smallvec::smallvec;

use super::matmul::{add_bias, product};
use crate::builder::{Arg, Builder, Var, Vars};
use crate::kernel::{Kernel, are_blocks, is_float};

pub(crate) const KERNEL: Kernel = Kernel {
    kind: OpKind::Linear,
    accepts: |call| {
        let are_weights = |(operand, dtype): (usize, DType)| {
            let is_weight = operand == 1 && call.is_constant(operand);
            is_float(dtype) || is_weight && are_blocks(dtype, call.target)
        };
        let dtypes = call.signature.inputs.iter().map(|ty| ty.dtype);
        dtypes.enumerate().all(are_weights)
    },
    emit,
};

/// `linear` where weights and bias are constants, as it asks for; else a product.
fn emit(b: &mut Builder, _: &Op, x: &[Var]) -> Vars {
    let (weight, bias) = (b.cast(&x[1], x[0].data_type), x.get(2));
    let k = weight.shape[1];
    let rows = x[0].shape.elements() / k;
    let x = b.reshape(&x[0], &[rows, k]);
    if !weight.is_constant || bias.is_some_and(|bias| !bias.is_constant) {
        let y = product(b, &x, &weight, true);
        return add_bias(b, y, bias);
    }
    let mut args: Vec<(&str, Arg)> = vec![("x", (&x).into()), ("weight", (&weight).into())];
    args.extend(bias.map(|bias| ("bias", bias.into())));
    smallvec![b.op("linear", &args, x.data_type, &[rows, weight.shape[0]])]
}
