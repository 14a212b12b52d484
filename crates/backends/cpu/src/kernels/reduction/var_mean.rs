//! Variances, standard deviations and means over some dimensions.

use rustorch_ir::ops::VarMean;
use rustorch_ir::{Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts};

use crate::element::{Element, with_type};
use crate::kernel::{Args, Misuse};
use crate::launch::Launch;
use crate::math::Real;
use crate::pool::Pool;
use crate::reduce::{Order, totals};
use crate::view::View;

pub(crate) const KERNEL: KernelEntry<Launch> = KernelEntry {
    kind: OpKind::VarMean,
    accepts,
    layouts: Layouts::Any,
    launch: Launch::Whole(launch),
};

fn accepts(_: &Signature) -> bool {
    true
}

fn launch(args: Args) -> Result<(), Misuse> {
    let Op::VarMean(op) = args.op else {
        return Err(Misuse("not a var_mean".to_owned()));
    };
    let Args {
        pool,
        inputs: [x],
        output: mut spread,
        mut others,
        ..
    } = args
    else {
        return Err(Misuse("var_mean has one operand".to_owned()));
    };
    let [mean] = &mut others[..] else {
        return Err(Misuse("var_mean has two results".to_owned()));
    };
    with_type!(x.dtype(), floats T => {
        var_mean::<T>(pool, x, op, spread.data(), mean.data());
        Ok(())
    })
}

/// Computes in double precision: squares of singles may be beyond the largest single, while the results are not.
fn var_mean<T: Element<Compute: Real>>(
    pool: &Pool,
    x: &View,
    op: &VarMean,
    spread: &mut [T::Compute],
    mean: &mut [T::Compute],
) {
    let order = Order::new(x.layout, &op.dims);
    let mut means = totals::<T>(pool, x, &order, None);
    means.iter_mut().for_each(|sum| *sum /= order.len() as f64);
    let squares = totals::<T>(pool, x, &order, Some(&means));
    let divisor = op.divisor(order.len());
    for (spread, square) in spread.iter_mut().zip(squares) {
        let variance = square / divisor;
        *spread = T::Compute::constant(if op.root { variance.sqrt() } else { variance });
    }
    for (mean, of) in mean.iter_mut().zip(means) {
        *mean = T::Compute::constant(of);
    }
}
