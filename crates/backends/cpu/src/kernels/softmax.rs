//! Softmax of lines along any dimension.

use rustorch_ir::{Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts};

use crate::element::with_type;
use crate::fold::{Ordered, fold, sum};
use crate::kernel::{Args, Misuse};
use crate::launch::Launch;
use crate::lines::map_lines;
use crate::math::Real;
use crate::qmatmul::level::Level;
use crate::qmatmul::{Kernel, Simd};

pub(crate) const KERNEL: KernelEntry<Launch> = KernelEntry {
    kind: OpKind::Softmax,
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
    let Op::Softmax(op) = args.op else {
        return Err(Misuse("not a softmax".to_owned()));
    };
    with_type!(args.output.dtype(), floats T => {
        map_lines::<T, T>(&mut args, op.dim, WORK, |x, y| Level::current().run(Line { x, y }));
        Ok(())
    })
}

struct Line<'a, T> {
    x: &'a [T],
    y: &'a mut [T],
}

impl<T: Real + Ordered> Kernel for Line<'_, T> {
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        self.y.copy_from_slice(self.x);
        InPlace(self.y).run(s);
    }
}

/// The softmax of a line in its place. One that sees nothing at all (a mask of −∞) becomes
/// NaN, as by definition.
pub(super) struct InPlace<'a, T>(pub(super) &'a mut [T]);

impl<T: Real + Ordered> Kernel for InPlace<'_, T> {
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let line = self.0;
        let max = fold(line, T::LEAST, T::larger, T::larger);
        line.iter_mut().for_each(|x| *x = (*x - max).exponential());
        let scale = T::constant(1.0 / sum(line, |x| x.as_()));
        line.iter_mut().for_each(|x| *x = *x * scale);
    }
}
