//! Root-mean-square norm of `f32` rows.

use rustorch_ir::{DType, Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts};

use crate::fold::{fold, sum};
use crate::kernel::{Args, Misuse, for_rows};
use crate::launch::Launch;
use crate::simd::{Kernel, Level, Simd};

pub(crate) const KERNEL: KernelEntry<Launch> = KernelEntry {
    kind: OpKind::RmsNorm,
    accepts,
    layouts: Layouts::Contiguous,
    launch: Launch::Whole(launch),
};

/// Elements of a line whose squares are few in each lane, so that single precision adds them as well.
const SHORT: usize = 128;

fn accepts(s: &Signature) -> bool {
    s.output().dtype == DType::F32
}

fn launch(mut args: Args) -> Result<(), Misuse> {
    let Op::RmsNorm(op) = args.op else {
        return Err(Misuse("not an rms_norm".to_owned()));
    };
    let eps = op.eps.0 as f32;
    let width = *args.output.shape().last().unwrap_or(&1);
    let x: &[f32] = args.inputs[0].data();
    let weight: Option<&[f32]> = args.inputs.get(1).map(|w| w.data());
    for_rows(
        args.pool,
        args.output.data(),
        width,
        2 * width,
        |first, part| {
            let x = &x[first * width..][..part.len()];
            let y = part;
            Level::current().run(Lines {
                x,
                width,
                eps,
                weight,
                y,
            });
        },
    );
    Ok(())
}

/// The norms of lines.
struct Lines<'a> {
    x: &'a [f32],
    width: usize,
    eps: f32,
    weight: Option<&'a [f32]>,
    y: &'a mut [f32],
}

impl Kernel for Lines<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self {
            width, eps, weight, ..
        } = self;
        let rows = self.x.chunks_exact(width);
        for (y, x) in self.y.chunks_exact_mut(width).zip(rows) {
            Line { x, eps, weight, y }.run(s);
        }
    }
}

/// The norm of a line.
pub(in crate::kernels) struct Line<'a> {
    pub(in crate::kernels) x: &'a [f32],
    pub(in crate::kernels) eps: f32,
    pub(in crate::kernels) weight: Option<&'a [f32]>,
    pub(in crate::kernels) y: &'a mut [f32],
}

impl Kernel for Line<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let Self { x, eps, weight, y } = self;
        let squares = match x.len() {
            ..=SHORT => fold(x, 0.0, |sum, x| sum + x * x, |a, b| a + b),
            _ => sum(x, |x| x * x) as f32,
        };
        let scale = 1.0 / (squares / x.len() as f32 + eps).sqrt();
        match weight {
            Some(w) => {
                (y.iter_mut().zip(x).zip(w)).for_each(|((y, x), w)| *y = x * scale * w);
            }
            None => y.iter_mut().zip(x).for_each(|(y, x)| *y = x * scale),
        }
    }
}
