//! Rectangles of a matrix that several threads write at the same time.

use std::marker::PhantomData;
use std::ops::Range;

/// A matrix of which disjoint rectangles may be written at the same time.
#[derive(Clone, Copy)]
pub(crate) struct Output<'a> {
    start: *mut f32,
    len: usize,
    columns: usize,
    matrix: PhantomData<&'a mut [f32]>,
}

// SAFETY: like a `&mut [f32]`, which may be sent; what threads share, `tile`, leaves the avoidance
// of conflicts to its caller.
unsafe impl Send for Output<'_> {}
// SAFETY: as above.
unsafe impl Sync for Output<'_> {}

/// A rectangle of a matrix.
pub(crate) struct Tile<'a> {
    start: *mut f32,
    rows: usize,
    columns: usize,
    /// From a row to the next.
    stride: usize,
    matrix: PhantomData<&'a mut [f32]>,
}

impl<'a> Output<'a> {
    /// A matrix of rows of `columns` values.
    pub(crate) fn new(matrix: &'a mut [f32], columns: usize) -> Self {
        Self {
            start: matrix.as_mut_ptr(),
            len: matrix.len(),
            columns,
            matrix: PhantomData,
        }
    }

    /// The rectangle of some rows and columns, neither empty.
    ///
    /// # Safety
    /// Rectangles that exist at the same time must not overlap.
    pub(crate) unsafe fn tile(&self, rows: Range<usize>, columns: Range<usize>) -> Tile<'a> {
        assert!(rows.end <= self.len / self.columns && columns.end <= self.columns);
        assert!(!rows.is_empty() && !columns.is_empty());
        Tile {
            // SAFETY: the first value of the rectangle lies within the matrix, by the assertions.
            start: unsafe { self.start.add(rows.start * self.columns + columns.start) },
            rows: rows.len(),
            columns: columns.len(),
            stride: self.columns,
            matrix: PhantomData,
        }
    }
}

impl Tile<'_> {
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    pub(crate) fn columns(&self) -> usize {
        self.columns
    }

    /// A row of the rectangle.
    #[inline(always)]
    pub(crate) fn row(&mut self, row: usize) -> &mut [f32] {
        assert!(row < self.rows);
        // SAFETY: the row lies within the matrix, as the rectangle does, and belongs to this
        // rectangle alone.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(row * self.stride), self.columns) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_are_where_they_say() {
        let mut matrix = [0.0; 12];
        let output = Output::new(&mut matrix, 4);
        // SAFETY: the two have no column in common.
        let (mut a, mut b) = unsafe { (output.tile(1..3, 0..1), output.tile(0..3, 2..4)) };
        assert_eq!((a.rows(), a.columns(), b.rows(), b.columns()), (2, 1, 3, 2));
        a.row(1)[0] = 1.0;
        b.row(0).fill(2.0);
        b.row(2)[1] = 3.0;
        assert_eq!(
            matrix,
            [0.0, 0.0, 2.0, 2.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 3.0]
        );
    }

    #[test]
    #[should_panic(expected = "columns.end")]
    fn a_tile_lies_within_the_matrix() {
        let mut matrix = [0.0; 12];
        // SAFETY: there is one tile at most.
        unsafe { Output::new(&mut matrix, 4).tile(0..1, 3..5) };
    }
}
