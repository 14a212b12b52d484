//! The maximum or average of windows, and where maxima are.

use std::ops::Range;

use num_traits::{PrimInt, Zero};
use rustorch_ir::ops::{Pool2d, PoolIndices, PoolKind};
use rustorch_ir::{Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts};

use crate::element::{Element, with_type};
use crate::fold::Ordered;
use crate::kernel::{Args, Misuse, SharedMut, for_rows};
use crate::launch::Launch;
use crate::math::Real;
use crate::reader::Reader;
use crate::window::Side;

pub(crate) const KERNEL: KernelEntry<Launch> = KernelEntry {
    kind: OpKind::Pool2d,
    accepts,
    layouts: Layouts::Any,
    launch: Launch::Whole(launch),
};

fn accepts(_: &Signature) -> bool {
    true
}

fn launch(mut args: Args) -> Result<(), Misuse> {
    let Op::Pool2d(op) = args.op else {
        return Err(Misuse("not a pool2d".to_owned()));
    };
    with_type!(args.output.dtype(), floats T => {
        pool2d::<T>(&mut args, op);
        Ok(())
    })
}

/// Places of maxima, in planes or windows.
enum Places<'a> {
    Plane(SharedMut<'a, i64>),
    Window(SharedMut<'a, u8>),
}

fn pool2d<T: Element<Compute: Real + Ordered>>(args: &mut Args, op: &Pool2d) {
    let (x, to) = (&args.inputs[0], args.output.ty.shape.clone());
    let from = x.shape();
    let side = |i: usize| Side {
        size: from[2 + i],
        count: to[2 + i],
        stride: op.stride[i],
        padding: op.padding[i],
        dilation: op.dilation[i],
    };
    let sides = [side(0), side(1)];
    let (pixels, plane) = (from[2] * from[3], to[2] * to[3]);
    let elements = op.kernel[0] * op.kernel[1];
    let x = Reader::<T>::whole(x);
    let work = elements * plane;
    let mut places = args.others.first_mut();
    let places = match op.indices {
        Some(PoolIndices::Plane) => places
            .as_mut()
            .map(|to| Places::Plane(SharedMut::new(to.data()))),
        Some(PoolIndices::Window) => places
            .as_mut()
            .map(|to| Places::Window(SharedMut::new(to.data()))),
        None => None,
    };
    for_rows(
        args.pool,
        args.output.data::<T>(),
        plane,
        work,
        |first, part| {
            let (mut x, mut buffer) = (x.clone(), Vec::new());
            for (index, out) in (first..).zip(part.chunks_exact_mut(plane)) {
                let x = x.read(index * pixels, pixels);
                let own = index * plane;
                T::write(out, &mut buffer, |out| match (op.kind, &places) {
                    (PoolKind::Max, Some(Places::Plane(places))) => {
                        // SAFETY: there is an index for each element, and planes are one thread's.
                        let places = unsafe { places.range(own, plane) };
                        find_largest(x, sides, op.kernel, out, places, |at, _| at as i64);
                    }
                    (PoolKind::Max, Some(Places::Window(places))) => {
                        // SAFETY: as above.
                        let places = unsafe { places.range(own, plane) };
                        find_largest(x, sides, op.kernel, out, places, |_, element| element as u8);
                    }
                    (PoolKind::Max, None) => {
                        out.fill(T::Compute::LEAST);
                        fold_windows(x, sides, op.kernel, out, T::Compute::larger);
                    }
                    (PoolKind::Average, _) => {
                        out.fill(T::Compute::zero());
                        fold_windows(x, sides, op.kernel, out, |sum, x| sum + x);
                        let scale = T::Compute::constant(1.0 / elements as f64);
                        out.iter_mut().for_each(|y| *y = *y * scale);
                    }
                });
            }
        },
    );
}

/// Combines each of `out` with the elements of its window in `x`.
fn fold_windows<T: Copy>(
    x: &[T],
    sides: [Side; 2],
    kernel: [usize; 2],
    out: &mut [T],
    step: impl Fn(T, T) -> T,
) {
    for_runs(sides, kernel, |windows, first, _| {
        let x = x[first..].iter().step_by(sides[1].stride);
        let out = &mut out[windows];
        out.iter_mut().zip(x).for_each(|(y, &x)| *y = step(*y, x));
    });
}

/// The largest element of each window in `x`: the first of equals, the last NaN. `place` turns its place in the plane
/// and in the window into an index, below the type's largest number. A window without elements has 0.
fn find_largest<T: Ordered, I: PrimInt>(
    x: &[T],
    sides: [Side; 2],
    kernel: [usize; 2],
    out: &mut [T],
    indices: &mut [I],
    place: impl Fn(usize, usize) -> I,
) {
    let nowhere = I::max_value();
    out.fill(T::LEAST);
    indices.fill(nowhere);
    for_runs(sides, kernel, |windows, first, element| {
        let places = (first..).step_by(sides[1].stride);
        let best = out[windows.clone()].iter_mut().zip(&mut indices[windows]);
        for ((y, index), at) in best.zip(places) {
            if *index == nowhere || x[at] > *y || x[at].is_unordered() {
                (*y, *index) = (x[at], place(at, element));
            }
        }
    });
    let missing = indices.iter_mut().filter(|index| **index == nowhere);
    missing.for_each(|index| *index = I::zero());
}

/// Goes through the windows of a plane, one place in the kernel after the other. Calls `body` with
/// adjacent windows. It also passes the first window's element at that place, which is on the
/// plane, and that element's number. The next windows' elements are a stride further each.
fn for_runs(
    [down, across]: [Side; 2],
    [height, width]: [usize; 2],
    mut body: impl FnMut(Range<usize>, usize, usize),
) {
    for (i, j) in (0..height).flat_map(|i| (0..width).map(move |j| (i, j))) {
        let inside = across.windows(j);
        if inside.is_empty() {
            continue;
        }
        for y in down.windows(i) {
            let first = down.at(y, i) * across.size + across.at(inside.start, j);
            let row = y * across.count;
            body(row + inside.start..row + inside.end, first, i * width + j);
        }
    }
}
