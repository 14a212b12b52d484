//! Tiles of a matrix by a group of work-items, see `kernels/tile.h`.

use crate::kernel::Kernel;

/// Terms of a sum that are added one after the other.
pub(crate) const CHAIN: usize = 256;

/// Blocks of a tile and elements of a block, along the rows and the columns.
#[derive(Clone, Copy)]
pub(crate) struct Tile {
    pub(crate) lanes: [usize; 2],
    pub(crate) each: [usize; 2],
    /// Whether it is made by a group of one, for a processor. Its compiler makes vectors of blocks.
    pub(crate) of_one: bool,
}

impl Tile {
    /// Work-items of a group.
    pub(crate) fn group(&self) -> u32 {
        match self.of_one {
            true => 1,
            false => (self.lanes[0] * self.lanes[1]) as u32,
        }
    }

    pub(crate) fn rows(&self) -> usize {
        self.lanes[0] * self.each[0]
    }

    pub(crate) fn columns(&self) -> usize {
        self.lanes[1] * self.each[1]
    }

    /// Tiles of a matrix of `m` rows and `n` columns.
    pub(crate) fn count(&self, m: usize, n: usize) -> usize {
        m.div_ceil(self.rows()) * n.div_ceil(self.columns())
    }

    /// The text of a kernel of tiles.
    pub(crate) fn text(kernel: &str) -> String {
        format!("{}\n{kernel}", include_str!("../../../kernels/tile.h"))
    }

    /// Defines the words of the text. `pad` is the additional length of tiles' rows in local
    /// memory. With it, work-items along the other dimension write to different banks.
    pub(crate) fn define(&self, kernel: &mut Kernel, pad: usize) {
        let blocks = self.lanes[0] * self.lanes[1] / self.group() as usize;
        for (name, value) in [
            ("ROWS", self.rows()),
            ("COLUMNS", self.columns()),
            ("LANES_ROW", self.lanes[0]),
            ("LANES_COLUMN", self.lanes[1]),
            ("LANE_ROWS", self.each[0]),
            ("LANE_COLUMNS", self.each[1]),
            ("BLOCKS", blocks),
            ("ARE_NEIGHBOURS", usize::from(self.of_one)),
            ("PAD", if self.of_one { 0 } else { pad }),
        ] {
            kernel.define(name, value);
        }
    }
}
