//! Rectangles of a matrix that several threads write at the same time.

use std::marker::PhantomData;
use std::ops::Range;

/// A matrix whose disjoint rectangles may be written at the same time.
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
    /// The places of the rows, if they do not follow each other.
    places: Option<&'a [usize]>,
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
            places: None,
            matrix: PhantomData,
        }
    }

    /// Some columns of the rows at `places`, neither empty.
    ///
    /// # Safety
    /// The places are different. Rectangles that exist at the same time must not overlap.
    pub(crate) unsafe fn scattered(&self, places: &'a [usize], columns: Range<usize>) -> Tile<'a> {
        let rows = self.len / self.columns;
        assert!(places.iter().all(|&place| place < rows));
        // SAFETY: promised by the caller. A row is taken at its place, which was checked.
        let tile = unsafe { self.tile(0..rows, columns) };
        Tile {
            rows: places.len(),
            places: Some(places),
            ..tile
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
        let row = self.places.map_or(row, |places| places[row]);
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
    fn rows_are_at_their_places() {
        let mut matrix = [0.0; 12];
        let output = Output::new(&mut matrix, 3);
        // SAFETY: the places are different, and there is one tile.
        let mut tile = unsafe { output.scattered(&[3, 1], 1..3) };
        assert_eq!((tile.rows(), tile.columns()), (2, 2));
        tile.row(0).fill(1.0);
        tile.row(1)[1] = 2.0;
        assert_eq!(
            matrix,
            [0.0, 0.0, 0.0, 0.0, 0.0, 2.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0]
        );
    }

    #[test]
    #[should_panic(expected = "place < rows")]
    fn places_lie_within_the_matrix() {
        let mut matrix = [0.0; 12];
        // SAFETY: there is one tile at most.
        unsafe { Output::new(&mut matrix, 4).scattered(&[0, 3], 0..2) };
    }

    #[test]
    #[should_panic(expected = "columns.end")]
    fn a_tile_lies_within_the_matrix() {
        let mut matrix = [0.0; 12];
        // SAFETY: there is one tile at most.
        unsafe { Output::new(&mut matrix, 4).tile(0..1, 3..5) };
    }
}
