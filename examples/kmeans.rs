//! Points put into groups by Lloyd's method.

use rustorch::nn::CdistMode;
use rustorch::prelude::*;

const GROUPS: usize = 3;

pub(crate) fn main() -> RusTorchResult<()> {
    manual_seed(7);
    // 100 points around each of three places.
    let places = tensor![[0.0, 0.0], [8.0, 0.0], [0.0, 8.0]];
    let points = places
        .repeat_interleave(100, 0)?
        .add(&Tensor::randn([300, 2], DType::F32)?)?;
    let mut centres = points.index_select(0, &tensor![0, 150, 299])?;
    for _ in 0..10 {
        let distances = points.cdist(&centres, 2.0, CdistMode::default())?;
        let group = distances.argmin(1, false)?;
        let members = group.one_hot(GROUPS)?.to_dtype(DType::F32)?;
        let sums = members.t()?.matmul(&points)?;
        centres = sums.div(&members.sum(0, false)?.unsqueeze(1)?)?;
    }
    println!("{centres}");
    assert!(centres.allclose(&places, 0.0, 0.5)?);
    Ok(())
}
