//! Tiles of a matrix by four SIMD-groups, see `kernels/metal/simd_tile.h`.

/// Rows and columns of a tile.
pub(crate) const SIZES: [usize; 2] = [ROWS, COLUMNS];
const ROWS: usize = 32;
const COLUMNS: usize = 64;

/// Lanes of a group.
pub(crate) const GROUP: u32 = 128;

/// Tiles of a matrix of `m` rows and `n` columns.
pub(crate) fn count(m: usize, n: usize) -> usize {
    m.div_ceil(ROWS) * n.div_ceil(COLUMNS)
}

/// The text of a kernel of tiles.
pub(crate) fn text(kernel: &str) -> String {
    format!(
        "#define ROWS {ROWS}\n#define COLUMNS {COLUMNS}\n{}\n{kernel}",
        include_str!("../../../kernels/metal/simd_tile.h")
    )
}
