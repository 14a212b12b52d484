//! Operands that are indices, and places in a tensor as messages name them.

use std::sync::atomic::{AtomicUsize, Ordering};

use rustorch_ir::{DType, Layout, Shape};
use smallvec::SmallVec;

use crate::element::Element;
use crate::kernel::{Misuse, for_rows};
use crate::pool::Pool;
use crate::reader::{Reader, Runs};
use crate::view::View;

/// The coordinates of the element that is number `flat` in row-major order.
pub(crate) fn coordinates(shape: &[usize], mut flat: usize) -> SmallVec<[usize; 6]> {
    let mut coordinates = SmallVec::from_elem(0, shape.len());
    for (at, &size) in coordinates.iter_mut().zip(shape).rev() {
        *at = flat % size.max(1);
        flat /= size.max(1);
    }
    coordinates
}

/// The elements of an `i64` or `i32` operand, in row-major order, as indices of dimension
/// `dim` of `x`.
pub(crate) fn indices(
    pool: &Pool,
    index: &View,
    x: &View,
    dim: usize,
) -> Result<Vec<usize>, Misuse> {
    let size = x.shape()[dim];
    let found = match index.dtype() {
        DType::I64 => convert::<i64>(pool, index, size),
        _ => convert::<i32>(pool, index, size),
    };
    found.map_err(|(at, value)| {
        let at = coordinates(index.shape(), at);
        let range = format!("outside the {size} indices of dimension {dim} of {}", x.ty);
        Misuse(format!("the index {value} at {at:?} is {range}"))
    })
}

/// The indices, or place and value of the first that is not below `size`.
fn convert<I: Element<Compute = I> + Into<i64>>(
    pool: &Pool,
    index: &View,
    size: usize,
) -> Result<Vec<usize>, (usize, i64)> {
    let index = Reader::<I>::whole(index);
    let outside = AtomicUsize::new(usize::MAX);
    let mut indices = vec![0; index.len()];
    for_rows(pool, &mut indices, 1, 1, |first, part| {
        let mut index = index.clone();
        let values = index.read(first, part.len());
        for (i, (to, &from)) in part.iter_mut().zip(values).enumerate() {
            match usize::try_from(from.into()) {
                Ok(inside) if inside < size => *to = inside,
                _ => {
                    outside.fetch_min(first + i, Ordering::Relaxed);
                }
            }
        }
    });
    match outside.into_inner() {
        usize::MAX => Ok(indices),
        at => Err((at, index.clone().read(at, 1)[0].into())),
    }
}

/// Sets each element of `out`, of shape `shape`, to the element of `x` at the same
/// coordinates, but for that of `dim`, which `pick` tells for the number of the element.
pub(crate) fn take<T: Element>(
    pool: &Pool,
    out: &mut [T],
    shape: &Shape,
    x: &View,
    dim: usize,
    pick: impl Fn(usize) -> usize + Sync,
) {
    let data: &[T] = x.data();
    let mut lines = x.layout.clone();
    let stride = std::mem::take(&mut lines.strides[dim]);
    lines.offset = 0;
    lines.shape = shape.clone();
    let [lines] = Layout::collapse([&lines]);
    for_rows(pool, out, 1, 4, |first, part| {
        let mut next = first;
        for run in Runs::new(&lines, first..first + part.len()) {
            let out = &mut part[next - first..][..run.len];
            for (i, y) in out.iter_mut().enumerate() {
                *y = data[run.at + i * run.stride + pick(next + i) * stride];
            }
            next += run.len;
        }
    });
}
