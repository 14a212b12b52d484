//! Functions of each element: operands are read in blocks, and functions see nothing but
//! slices.

use crate::element::Element;
use crate::kernel::{Args, for_rows};
use crate::reader::Reader;

/// Elements that are worked on together: copies of operands stay in the cache.
const BLOCK: usize = 2048;

/// A reader of operand `i` broadcast to the shape of the result.
pub(crate) fn operand<'a, T: Element>(args: &Args<'a>, i: usize) -> Reader<'a, T> {
    let view = &args.inputs[i];
    Reader::new(view, &view.layout.broadcast_to(&args.output.ty.shape))
}

/// `out = f(x)`; `work` is the cost of an element, an addition's being 1.
pub(crate) fn map1<X: Element, Y: Element>(
    args: &mut Args,
    work: usize,
    f: impl Fn(&[X::Compute], &mut [Y::Compute]) + Sync,
) {
    let x = operand::<X>(args, 0);
    for_blocks::<Y, _>(args, work, &x, |x, at, y| f(x.read(at, y.len()), y));
}

/// `out = f(a, b)` of two broadcast operands.
pub(crate) fn map2<X: Element, Y: Element>(
    args: &mut Args,
    work: usize,
    f: impl Fn(&[X::Compute], &[X::Compute], &mut [Y::Compute]) + Sync,
) {
    let operands = (operand::<X>(args, 0), operand::<X>(args, 1));
    for_blocks::<Y, _>(args, work, &operands, |(a, b), at, y| {
        f(a.read(at, y.len()), b.read(at, y.len()), y);
    });
}

/// Calls `body` with the position and elements of each block of the result, in parallel,
/// and a copy of `operands` to read from.
pub(crate) fn for_blocks<Y: Element, R: Clone + Sync>(
    args: &mut Args,
    work: usize,
    operands: &R,
    body: impl Fn(&mut R, usize, &mut [Y::Compute]) + Sync,
) {
    for_rows(
        args.pool,
        args.output.data::<Y>(),
        1,
        work,
        |start, part| {
            let (mut operands, mut buffer) = (operands.clone(), Vec::new());
            for (i, block) in part.chunks_mut(BLOCK).enumerate() {
                let at = start + i * BLOCK;
                Y::write(block, &mut buffer, |y| body(&mut operands, at, y));
            }
        },
    );
}
