//! Constants that are made of smaller ones.

use crate::arguments::Arguments;
use crate::tensor::{Data, Tensor, for_each_index};

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

/// `scale · (quantized_data − zero_point)`, where scale and zero point are numbers, or vectors along
/// `axis`.
pub(super) fn affine_dequantize(x: &Arguments) -> Result<Tensor, String> {
    let (data, scale, zero) = (
        x.get("quantized_data")?,
        x.get("scale")?,
        x.get("zero_point")?,
    );
    let axis = x.need_sizes("axis")?[0];
    let size = *data.shape.get(axis).ok_or_else(|| format!("axis {axis}"))?;
    let inner: usize = data.shape[axis + 1..].iter().product();
    let vector = |x: &Tensor, numbers: Vec<f64>| match x.shape[..] {
        [] => Ok(vec![numbers[0]; size]),
        [n] if n == size => Ok(numbers),
        _ => Err(format!("{:?} along {axis} of {:?}", x.shape, data.shape)),
    };
    let scales = vector(scale, scale.as_floats()?.to_vec())?;
    let zeros = match &zero.data {
        Data::Int(codes) => codes.iter().map(|&code| code as f64).collect(),
        _ => zero.as_floats()?.to_vec(),
    };
    let zeros = vector(zero, zeros)?;
    let codes = data.as_ints()?.iter().enumerate();
    let out = codes.map(|(i, &code)| {
        let at = i / inner % size;
        scales[at] * (code as f64 - zeros[at])
    });
    Ok(Tensor::floats(scale.data_type, &data.shape, out.collect()))
}
