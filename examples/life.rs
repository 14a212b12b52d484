//! Conway's game of life: neighbours are counted by a convolution.

use rustorch::nn::{ConvOptions, ConvPadding};
use rustorch::prelude::*;

const SIZE: usize = 12;

pub(crate) fn main() -> RusTorchResult<()> {
    // A glider in the corner.
    let glider = [(0, 1), (1, 2), (2, 0), (2, 1), (2, 2)];
    let mut cells = vec![0f32; SIZE * SIZE];
    for (row, column) in glider {
        cells[row * SIZE + column] = 1.0;
    }
    let mut cells = Tensor::from_vec(cells, [1, 1, SIZE, SIZE])?;
    let around =
        tensor![[1.0, 1.0, 1.0], [1.0, 0.0, 1.0], [1.0, 1.0, 1.0]].reshape([1, 1, 3, 3])?;
    let same = ConvOptions::default().padding(ConvPadding::Same);
    for _ in 0..8 {
        let neighbours = cells.conv2d(&around, None, &same)?;
        let born = neighbours.eq(3.0)?;
        let stays = neighbours.eq(2.0)?.logical_and(&cells.gt(0.5)?)?;
        cells = born.logical_or(&stays)?.to_dtype(DType::F32)?;
    }
    let cells = cells.to_vec::<f32>()?;
    for row in cells.chunks(SIZE) {
        println!(
            "{}",
            row.iter()
                .map(|&cell| if cell > 0.5 { "# " } else { ". " })
                .collect::<String>()
        );
    }
    // After 8 steps it is two cells further along the diagonal.
    let moved = glider.map(|(row, column)| cells[(row + 2) * SIZE + column + 2]);
    assert_eq!((moved, cells.iter().sum::<f32>()), ([1.0; 5], 5.0));
    Ok(())
}
