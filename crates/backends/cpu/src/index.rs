//! Operands that are indices, and places in a tensor as messages name them.

use rustorch_ir::{DType, Layout, Shape};
use smallvec::SmallVec;

use crate::element::Element;
use crate::elementwise::{Reader, Runs, read_all};
use crate::kernel::{Misuse, for_rows};
use crate::pool::Pool;
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
pub(crate) fn indices(index: &View, x: &View, dim: usize) -> Result<Vec<usize>, Misuse> {
    let size = x.shape()[dim];
    let inside = |i: i64| usize::try_from(i).is_ok_and(|i| i < size);
    let outside = match index.dtype() {
        DType::I64 => Reader::<i64>::whole(index).position(|i| !inside(i)),
        _ => Reader::<i32>::whole(index).position(|i| !inside(i.into())),
    };
    let all: Vec<i64> = match index.dtype() {
        DType::I64 => read_all::<i64>(index),
        _ => read_all::<i32>(index).into_iter().map(i64::from).collect(),
    };
    match outside {
        Some(at) => {
            let (value, at) = (all[at], coordinates(index.shape(), at));
            let range = format!("outside the {size} indices of dimension {dim} of {}", x.ty);
            Err(Misuse(format!("the index {value} at {at:?} is {range}")))
        }
        None => Ok(all.into_iter().map(|i| i as usize).collect()),
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
