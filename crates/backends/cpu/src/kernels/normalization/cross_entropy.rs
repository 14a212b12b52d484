//! Cross entropy of lines along any dimension with a class each.

use std::sync::atomic::{AtomicUsize, Ordering};

use rustorch_ir::ops::CrossEntropy;
use rustorch_ir::{Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts};

use super::softmax::LogSum;
use crate::element::{Element, with_type};
use crate::index::coordinates;
use crate::kernel::{Args, Misuse, for_rows};
use crate::launch::Launch;
use crate::math::Real;
use crate::reader::Reader;
use crate::simd::Level;

pub(crate) const KERNEL: KernelEntry<Launch> = KernelEntry {
    kind: OpKind::CrossEntropy,
    accepts,
    layouts: Layouts::Any,
    launch: Launch::Whole(launch),
};

/// Cost of an element beside an addition.
const WORK: usize = 4;

fn accepts(_: &Signature) -> bool {
    true
}

fn launch(mut args: Args) -> Result<(), Misuse> {
    let Op::CrossEntropy(op) = args.op else {
        return Err(Misuse("not a cross_entropy".to_owned()));
    };
    with_type!(args.inputs[0].dtype(), floats T => cross_entropy::<T>(&mut args, op))
}

fn cross_entropy<T: Element<Compute: Real>>(
    args: &mut Args,
    op: &CrossEntropy,
) -> Result<(), Misuse> {
    let (x, class) = (&args.inputs[0], &args.inputs[1]);
    let (ty, classes) = (x.ty, x.shape()[op.dim]);
    let mut order: Vec<usize> = (0..x.shape().len()).filter(|&d| d != op.dim).collect();
    order.push(op.dim);
    let x = Reader::<T>::new(x, &x.layout.permute(&order));
    let class = Reader::<i64>::whole(class);
    let (level, outside) = (Level::current(), AtomicUsize::new(usize::MAX));
    let out = args.output.data::<T::Compute>();
    for_rows(args.pool, out, 1, WORK * classes, |first, part| {
        let (mut x, mut class) = (x.clone(), class.clone());
        for (line, loss) in (first..).zip(part) {
            let class = class.read(line, 1)[0];
            *loss = T::Compute::constant(0.0);
            if class == op.ignore_index {
                continue;
            }
            match usize::try_from(class).ok().filter(|&class| class < classes) {
                Some(class) => {
                    let x = x.read(line * classes, classes);
                    let [mut max, mut log] = [*loss; 2];
                    level.run(LogSum {
                        x,
                        max: &mut max,
                        log: &mut log,
                    });
                    *loss = -((x[class] - max) - log);
                }
                None => {
                    outside.fetch_min(line, Ordering::Relaxed);
                }
            }
        }
    });
    match outside.into_inner() {
        usize::MAX => Ok(()),
        line => {
            let value = class.clone().read(line, 1)[0];
            let at = coordinates(args.inputs[1].shape(), line);
            let dim = op.dim;
            let range = format!("outside the {classes} indices of dimension {dim} of {ty}");
            Err(Misuse(format!("the index {value} at {at:?} is {range}")))
        }
    }
}
