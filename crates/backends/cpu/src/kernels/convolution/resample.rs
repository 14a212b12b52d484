//! Weighted sums of elements along a dimension.

use rustorch_ir::{Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts};

use crate::element::{Element, with_type};
use crate::index::indices;
use crate::kernel::{Args, Misuse, for_rows};
use crate::launch::Launch;
use crate::math::Real;
use crate::reader::{Reader, read_all};

pub(crate) const KERNEL: KernelEntry<Launch> = KernelEntry {
    kind: OpKind::Resample,
    accepts,
    layouts: Layouts::Any,
    launch: Launch::Whole(launch),
};

fn accepts(_: &Signature) -> bool {
    true
}

fn launch(mut args: Args) -> Result<(), Misuse> {
    let Op::Resample(op) = args.op else {
        return Err(Misuse("not a resample".to_owned()));
    };
    with_type!(args.output.dtype(), floats T => resample::<T>(&mut args, op.dim))
}

/// Places and weights of the elements of a result.
struct Taps<X> {
    places: Vec<usize>,
    weights: Vec<X>,
    /// Elements of the dimension, before and after.
    from: usize,
    to: usize,
}

fn resample<T: Element<Compute: Real>>(args: &mut Args, dim: usize) -> Result<(), Misuse> {
    let x = &args.inputs[0];
    let taps = Taps {
        places: indices(args.pool, &args.inputs[1], x, dim)?,
        weights: read_all::<T>(&args.inputs[2]),
        from: x.shape()[dim],
        to: args.output.shape()[dim],
    };
    let inner: usize = x.shape()[dim + 1..].iter().product();
    let x = Reader::<T>::whole(x);
    let count = taps.places.len() / taps.to.max(1);
    let out = args.output.data::<T>();
    if inner == 1 {
        for_rows(args.pool, out, taps.to, count * taps.to, |first, part| {
            let (mut x, mut buffer) = (x.clone(), Vec::new());
            for (line, out) in (first..).zip(part.chunks_exact_mut(taps.to)) {
                let x = x.read(line * taps.from, taps.from);
                T::write(out, &mut buffer, |y| taps.along(x, y));
            }
        });
        return Ok(());
    }
    for_rows(args.pool, out, inner, count * inner, |first, part| {
        let (mut x, mut buffer) = (x.clone(), Vec::new());
        for (row, out) in (first..).zip(part.chunks_exact_mut(inner)) {
            let (outer, i) = (row / taps.to, row % taps.to);
            T::write(out, &mut buffer, |y| {
                for tap in (i..taps.places.len()).step_by(taps.to) {
                    let start = (outer * taps.from + taps.places[tap]) * inner;
                    let (x, weight) = (x.read(start, inner), taps.weights[tap]);
                    let sums = y.iter_mut().zip(x);
                    match tap < taps.to {
                        true => sums.for_each(|(y, &x)| *y = x * weight),
                        false => sums.for_each(|(y, &x)| *y = *y + x * weight),
                    }
                }
            });
        }
    });
    Ok(())
}

impl<X: Real> Taps<X> {
    /// The results of a line.
    fn along(&self, x: &[X], y: &mut [X]) {
        let places = self.places.chunks_exact(self.to);
        for (tap, (places, weights)) in places.zip(self.weights.chunks_exact(self.to)).enumerate() {
            let parts = places
                .iter()
                .zip(weights)
                .map(|(&at, &weight)| x[at] * weight);
            match tap {
                0 => y.iter_mut().zip(parts).for_each(|(y, part)| *y = part),
                _ => y.iter_mut().zip(parts).for_each(|(y, part)| *y = *y + part),
            }
        }
    }
}
