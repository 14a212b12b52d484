//! The form of a kernel, and loops over its operands.

use std::ops::Range;

use rustorch_ir::Op;

use crate::pool::Pool;
use crate::view::{Target, View};

/// What a kernel is given.
pub(crate) struct Args<'a> {
    /// The worker threads.
    pub(crate) pool: &'a Pool,
    /// The operation with its parameters.
    pub(crate) op: &'a Op,
    /// The operands, in the layouts that the kernel's table entry asks for.
    pub(crate) inputs: &'a [View<'a>],
    /// The result.
    pub(crate) output: Target<'a>,
}

/// A mistake of the caller that shows only in the data: what and where.
#[derive(Debug)]
pub(crate) struct Misuse(pub(crate) String);

/// How a kernel is launched.
pub(crate) type Launch = fn(Args) -> Result<(), Misuse>;

/// Elements below which a loop is not worth sharing.
const SHARE: usize = 8 * 1024;

/// Calls `body` with ranges that cover `0..count`, in parallel. `work` is the cost of one
/// index in element operations.
pub(crate) fn for_ranges(
    pool: &Pool,
    count: usize,
    work: usize,
    body: impl Fn(Range<usize>) + Sync,
) {
    let each = count
        .div_ceil(4 * pool.threads())
        .max(SHARE.div_ceil(work.max(1)));
    pool.run(count.div_ceil(each), &|chunk| {
        let first = chunk * each;
        body(first..count.min(first + each));
    });
}

/// Splits `out` into chunks of whole rows and calls `body` with the index of the first row
/// of each chunk, in parallel. `work` is the cost of a row in element operations.
pub(crate) fn for_rows<T: Send>(
    pool: &Pool,
    out: &mut [T],
    row: usize,
    work: usize,
    body: impl Fn(usize, &mut [T]) + Sync,
) {
    if out.is_empty() {
        return;
    }
    let base = SharedMut(out.as_mut_ptr());
    for_ranges(pool, out.len() / row, work, |rows| {
        // SAFETY: ranges are disjoint and inside `out`, which outlives the loop.
        let part = unsafe { base.range(rows.start * row, rows.len() * row) };
        body(rows.start, part);
    });
}

/// A mutable slice's start that threads may share, each for a range of its own.
pub(crate) struct SharedMut<T>(pub(crate) *mut T);

// SAFETY: `range` makes its caller promise that ranges are disjoint.
unsafe impl<T: Send> Sync for SharedMut<T> {}

impl<T> SharedMut<T> {
    /// The address of element `index`.
    ///
    /// # Safety
    /// It is inside the slice, which is alive.
    pub(crate) unsafe fn at(&self, index: usize) -> *mut T {
        // SAFETY: promised by the caller.
        unsafe { self.0.add(index) }
    }

    /// `len` elements from `start` on.
    ///
    /// # Safety
    /// They are inside the slice, which is alive, and no other thread uses them.
    #[expect(
        clippy::mut_from_ref,
        reason = "disjoint ranges of one exclusive slice"
    )]
    pub(crate) unsafe fn range(&self, start: usize, len: usize) -> &mut [T] {
        // SAFETY: promised by the caller.
        unsafe { std::slice::from_raw_parts_mut(self.0.add(start), len) }
    }
}
