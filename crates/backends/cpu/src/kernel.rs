//! The form of a kernel, and loops over its operands.

use std::marker::PhantomData;
use std::ops::Range;

use rustorch_ir::Op;
use smallvec::SmallVec;

use crate::pool::Pool;
use crate::view::{Target, View};

/// Arguments of a kernel.
pub(crate) struct Args<'a> {
    /// The worker threads.
    pub(crate) pool: &'a Pool,
    /// The operation with its parameters.
    pub(crate) op: &'a Op,
    /// The operands, in the layouts that the kernel's table entry asks for.
    pub(crate) inputs: &'a [View<'a>],
    /// The first result, for most operations the only one.
    pub(crate) output: Target<'a>,
    /// The results behind it.
    pub(crate) others: SmallVec<[Target<'a>; 4]>,
}

/// A mistake of the caller that shows only in the data, with its place.
#[derive(Debug)]
pub(crate) struct Misuse(pub(crate) String);

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
    pool.run_if_worth(count.div_ceil(each), count.saturating_mul(work), &|chunk| {
        let first = chunk * each;
        body(first..count.min(first + each));
    });
}

/// Splits `out` into chunks of whole rows. Calls `body` for each chunk in parallel, with the index
/// of its first row. `work` is the cost of a row in element operations.
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
    let count = out.len() / row;
    let base = SharedMut::new(out);
    for_ranges(pool, count, work, |rows| {
        // SAFETY: ranges are disjoint and inside `out`.
        let part = unsafe { base.range(rows.start * row, rows.len() * row) };
        body(rows.start, part);
    });
}

/// A mutable slice that threads share, each using its own elements.
pub(crate) struct SharedMut<'a, T> {
    start: *mut T,
    slice: PhantomData<&'a mut [T]>,
}

// SAFETY: its methods make their caller promise that no two threads use one element.
unsafe impl<T: Send> Sync for SharedMut<'_, T> {}

impl<'a, T> SharedMut<'a, T> {
    /// Shares `slice`.
    pub(crate) fn new(slice: &'a mut [T]) -> Self {
        Self {
            start: slice.as_mut_ptr(),
            slice: PhantomData,
        }
    }

    /// The address of element `index`.
    ///
    /// # Safety
    /// The index is inside the slice.
    pub(crate) unsafe fn at(&self, index: usize) -> *mut T {
        // SAFETY: promised by the caller.
        unsafe { self.start.add(index) }
    }

    /// `len` elements from `start` on.
    ///
    /// # Safety
    /// They are inside the slice, and nothing else uses them.
    pub(crate) unsafe fn range(&self, start: usize, len: usize) -> &'a mut [T] {
        // SAFETY: promised by the caller.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(start), len) }
    }
}
