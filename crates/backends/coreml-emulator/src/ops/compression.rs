//! Constants that are made of smaller ones.

use crate::arguments::Arguments;
use crate::tensor::{Data, Tensor, for_each_index};

/// `scale · (data − offset)`, with the scale and offset of the element's block. The block's size
/// along each dimension is the size of `data` over that of `scale`.
pub(super) fn blockwise_shift_scale(x: &Arguments) -> Result<Tensor, String> {
    let (data, scale) = (x.get("data")?, x.get("scale")?);
    let offset = x.find("offset");
    if offset.is_some_and(|o| o.shape != scale.shape) {
        return Err("scale and offset of other shapes".to_owned());
    }
    let codes = match &data.data {
        Data::Int(codes) => codes.iter().map(|&code| code as f64).collect(),
        _ => data.as_floats()?.to_vec(),
    };
    let scales = scale.as_floats()?;
    let offsets = offset.map(Tensor::as_floats).transpose()?;
    let at = blocks(&data.shape, &scale.shape)?;
    let out = codes.iter().zip(at).map(|(code, at)| {
        let offset = offsets.map_or(0.0, |offsets| offsets[at]);
        scales[at] * (code - offset)
    });
    Ok(Tensor::floats(scale.data_type, &data.shape, out.collect()))
}

/// Values of indices in the palettes of their blocks. Entries are single numbers.
pub(super) fn lut_to_dense(x: &Arguments) -> Result<Tensor, String> {
    let (indices, lut) = (x.get("indices")?, x.get("lut")?);
    let [counts @ .., entries, 1] = &lut.shape[..] else {
        return Err(format!("a palette of shape {:?}", lut.shape));
    };
    let values = lut.as_floats()?;
    let palettes = blocks(&indices.shape, counts)?;
    let out = (indices.as_ints()?.iter().zip(palettes)).map(|(&index, palette)| {
        let place = usize::try_from(index).ok().filter(|place| place < entries);
        let place = place.ok_or_else(|| format!("index {index} of {entries} entries"))?;
        Ok(values[palette * entries + place])
    });
    let out = out.collect::<Result<_, String>>()?;
    Ok(Tensor::floats(lut.data_type, &indices.shape, out))
}

/// Block of each element, in their order; `counts` has the number of blocks along each dimension.
fn blocks(shape: &[usize], counts: &[usize]) -> Result<Vec<usize>, String> {
    if shape.len() != counts.len() {
        return Err(format!("{counts:?} blocks of {shape:?}"));
    }
    let sizes = shape.iter().zip(counts);
    let sizes: Option<Vec<usize>> = sizes
        .map(|(size, count)| size.checked_div(*count).filter(|n| n * count == *size))
        .collect();
    let sizes = sizes.ok_or("blocks that are not whole")?;
    let mut out = Vec::new();
    for_each_index(shape, |index| {
        let dims = index.iter().zip(&sizes).zip(counts);
        out.push(dims.fold(0, |at, ((i, size), count)| at * count + i / size));
        Ok(())
    })?;
    Ok(out)
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
