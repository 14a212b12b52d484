//! Constants that are made of smaller ones.

use crate::arguments::Arguments;
use crate::tensor::{Tensor, for_each_index};

/// `scale · (data − offset)`, where the scale and offset of an element are those of its block, whose
/// size along each dimension is that of `data` over that of `scale`.
pub(super) fn blockwise_shift_scale(x: &Arguments) -> Result<Tensor, String> {
    let (data, scale) = (x.get("data")?, x.get("scale")?);
    let offset = x.find("offset");
    if data.shape.len() != scale.shape.len() || offset.is_some_and(|o| o.shape != scale.shape) {
        return Err("data, scale and offset of other shapes".to_owned());
    }
    let sizes = data.shape.iter().zip(&scale.shape);
    let block: Option<Vec<usize>> = sizes
        .map(|(data, scale)| data.checked_div(*scale).filter(|n| n * scale == *data))
        .collect();
    let block = block.ok_or("blocks that are not whole")?;
    let (codes, scales) = (data.as_ints()?, scale.as_floats()?);
    let offsets = offset.map(Tensor::as_floats).transpose()?;
    let mut out = Vec::with_capacity(codes.len());
    for_each_index(&data.shape, |index| {
        let dims = index.iter().zip(&block).zip(&scale.shape);
        let at = dims.fold(0, |at, ((i, block), scales)| at * scales + i / block);
        let offset = offsets.map_or(0.0, |offsets| offsets[at]);
        out.push(scales[at] * (codes[out.len()] as f64 - offset));
        Ok(())
    })?;
    Ok(Tensor::floats(scale.data_type, &data.shape, out))
}
