//! Normalisation of lines to mean 0 and variance 1.

use rustorch_ir::ops::LayerNorm;
use rustorch_ir::{Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts};

use crate::element::{Element, with_type};
use crate::fold::sum;
use crate::kernel::{Args, Misuse, for_rows};
use crate::launch::Launch;
use crate::lines::Writer;
use crate::math::Real;
use crate::reader::{Reader, read_all};
use crate::simd::{Kernel, Level, Simd};

pub(crate) const KERNEL: KernelEntry<Launch> = KernelEntry {
    kind: OpKind::LayerNorm,
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
    let Op::LayerNorm(op) = args.op else {
        return Err(Misuse("not a layer_norm".to_owned()));
    };
    with_type!(args.output.dtype(), floats T => {
        layer_norm::<T>(&mut args, op);
        Ok(())
    })
}

fn layer_norm<T: Element<Compute: Real>>(args: &mut Args, op: &LayerNorm) {
    let x = &args.inputs[0];
    let weight = args.inputs.get(1).map(read_all::<T>);
    let bias = args.inputs.get(2).map(read_all::<T>);
    let normalization = Normalization {
        len: x.shape()[x.shape().len() - op.dims..].iter().product(),
        eps: op.eps.0,
    };
    normalize::<T>(args, &normalization, |_| Affine {
        weight: weight.as_deref(),
        bias: bias.as_deref(),
        each: 1,
    });
}

/// Normalisation of lines.
pub(in crate::kernels) struct Normalization {
    /// Elements of a line.
    pub(in crate::kernels) len: usize,
    /// Added to the variance.
    pub(in crate::kernels) eps: f64,
}

/// Scale and shift of a normalised line.
#[derive(Clone, Copy)]
pub(in crate::kernels) struct Affine<'a, T> {
    /// Multiplies.
    pub(in crate::kernels) weight: Option<&'a [T]>,
    /// Is added; comes with a weight.
    pub(in crate::kernels) bias: Option<&'a [T]>,
    /// Neighbours that a weight is for.
    pub(in crate::kernels) each: usize,
}

/// Normalises the lines of operand 0; `affine` is given their numbers.
pub(in crate::kernels) fn normalize<'a, T: Element<Compute: Real>>(
    args: &mut Args,
    normalization: &Normalization,
    affine: impl Fn(usize) -> Affine<'a, T::Compute> + Sync,
) {
    let &Normalization { len, eps } = normalization;
    let x = Reader::<T>::whole(&args.inputs[0]);
    let out = args.output.data::<T>();
    let writer = Writer::<T>::new(out.len(), len);
    for_rows(args.pool, out, len, WORK * len, |first, part| {
        let (mut x, mut writer) = (x.clone(), writer.clone());
        for (line, out) in (first..).zip(part.chunks_exact_mut(len)) {
            writer.write(out, |y| {
                let x = x.read(line * len, len);
                let affine = affine(line);
                Level::current().run(Line { x, eps, affine, y });
            });
        }
    });
}

struct Line<'a, T> {
    x: &'a [T],
    eps: f64,
    affine: Affine<'a, T>,
    y: &'a mut [T],
}

impl<T: Real> Kernel for Line<'_, T> {
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let n = self.x.len() as f64;
        let mean = T::constant(sum(self.x, |x| x) / n);
        let variance = sum(self.x, |x| (x - mean) * (x - mean)) / n;
        let scale = T::constant(1.0 / (variance + self.eps).sqrt());
        let Affine { weight, bias, each } = self.affine;
        if let (Some(weight), 2..) = (weight, each) {
            let parts = self.x.chunks_exact(each).zip(self.y.chunks_exact_mut(each));
            for (i, ((x, y), &weight)) in parts.zip(weight).enumerate() {
                let bias = bias.map_or(T::zero(), |bias| bias[i]);
                let results = y.iter_mut().zip(x);
                results.for_each(|(y, &x)| *y = (x - mean) * scale * weight + bias);
            }
            return;
        }
        let normal = self.x.iter().map(|&x| (x - mean) * scale);
        let results = self.y.iter_mut().zip(normal);
        match (weight, bias) {
            (Some(weight), Some(bias)) => {
                let factors = weight.iter().zip(bias);
                results
                    .zip(factors)
                    .for_each(|((y, x), (&w, &b))| *y = x * w + b);
            }
            (Some(weight), None) => results.zip(weight).for_each(|((y, x), &w)| *y = x * w),
            (None, _) => results.for_each(|(y, x)| *y = x),
        }
    }
}
