//! `x · wᵀ + bias` for `f32` activations, from weights as they lie in memory.

use std::cell::RefCell;

use rustorch_ir::{DType, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts};

use super::matmul::dots;
use crate::kernel::{Args, Misuse, for_rows};
use crate::launch::Launch;
use crate::product::{Batch, Matrix, products};
use crate::qmatmul::{self, Scratch, Weight, WeightType};
use crate::view::View;

pub(crate) const KERNEL: KernelEntry<Launch> = KernelEntry {
    kind: OpKind::Linear,
    accepts,
    layouts: Layouts::Contiguous,
    launch: Launch::Whole(launch),
};

thread_local! {
    /// Converted activations: as large as the largest product of this thread so far.
    pub(in crate::kernels) static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// The matrix of weights that an operand is.
pub(in crate::kernels) fn weight<'a>(w: &View<'a>) -> Result<Weight<'a>, Misuse> {
    let (n, k) = (w.shape()[0], w.shape()[1]);
    let weight_type =
        weight_type(w.dtype()).ok_or_else(|| Misuse("weights of no known type".to_owned()))?;
    Weight::new(weight_type, w.dense_bytes(), n, k).map_err(|e| Misuse(e.to_string()))
}

/// The type of weights that a dtype is.
pub(in crate::kernels) fn weight_type(dtype: DType) -> Option<WeightType> {
    match dtype {
        DType::F32 => Some(WeightType::F32),
        DType::F16 => Some(WeightType::F16),
        DType::BF16 => Some(WeightType::BF16),
        DType::Block(format) => Some(WeightType::Block(format)),
        _ => None,
    }
}

fn accepts(s: &Signature) -> bool {
    s.inputs[0].dtype == DType::F32 && weight_type(s.inputs[1].dtype).is_some()
}

fn launch(mut args: Args) -> Result<(), Misuse> {
    let weight = weight(&args.inputs[1])?;
    let x: &[f32] = args.inputs[0].data();
    let (n, k) = (weight.n(), weight.k());
    let rows: usize = args.output.shape().iter().rev().skip(1).product();
    let out: &mut [f32] = args.output.data();
    let is_single = weight.weight_type() == WeightType::F32;
    if is_single && args.inputs[0].shape().len() == 1 {
        let rows = Matrix {
            data: args.inputs[1].data(),
            strides: [k, 1],
        };
        dots(args.pool, rows, x, out);
    } else if is_single && rows > qmatmul::MAX_FEW && qmatmul::pads(k) {
        let matrix = |data, strides| Batch::one(Matrix { data, strides });
        let (x, w) = (matrix(x, [k, 1]), matrix(args.inputs[1].data(), [1, k]));
        products(args.pool, &x, &w, [rows, k, n], out);
    } else {
        SCRATCH.with_borrow_mut(|scratch| {
            qmatmul::linear(args.pool, &weight, x, rows, out, scratch);
        });
    }
    if let Some(bias) = args.inputs.get(2) {
        let bias: &[f32] = bias.data();
        for_rows(args.pool, out, n, n, |_, part| {
            for row in part.chunks_exact_mut(n) {
                row.iter_mut().zip(bias).for_each(|(y, b)| *y += b);
            }
        });
    }
    Ok(())
}
