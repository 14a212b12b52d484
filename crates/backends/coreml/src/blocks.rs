//! Weights in blocks as constants that stay small: codes, with a scale and for some formats an offset
//! for each group of neighbours in a row. An operation makes floats of them where Core ML loads the
//! program, or later: `constexpr_blockwise_shift_scale`, and in older sets `constexpr_affine_dequantize`
//! of a matrix that has a group in each row (coremltools, `converters/mil/mil/ops/defs`:
//! `iOS18/compression.py` and `iOS16/constexpr_ops.py`).

use bytemuck::Pod;
use rustorch_ir::BlockFormat;
use rustorch_quant::{
    BlockQ2K, BlockQ3K, BlockQ4_0, BlockQ4_1, BlockQ4K, BlockQ5_0, BlockQ5_1, BlockQ5K, BlockQ6K,
    BlockQ8_0, unpack_scales_mins,
};

use crate::opset::Opset;
use crate::proto::mil::DataType;

/// The first set of operations that can say groups, with codes of 8 bits.
pub(crate) const SINCE: Opset = Opset::CoreML6;
/// The first that knows groups as such, also with codes of 4 bits.
pub(crate) const GROUPS_SINCE: Opset = Opset::CoreML8;

/// Weights, each of them `scale · (code − offset)`.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Groups {
    /// `Int8` or `Uint8`, or `Int4` or `Uint4` with two codes in a byte.
    pub(crate) data_type: DataType,
    pub(crate) codes: Vec<u8>,
    /// Weights that share a scale and an offset.
    pub(crate) len: usize,
    pub(crate) scales: Vec<f32>,
    /// None where they are all 0.
    pub(crate) offsets: Vec<f32>,
}

impl Groups {
    /// With codes of 8 bits.
    pub(crate) fn widened(self) -> Self {
        let nibbles = |x: &u8| [x & 0xF, x >> 4];
        let (data_type, codes) = match self.data_type {
            DataType::Uint4 => (
                DataType::Uint8,
                self.codes.iter().flat_map(nibbles).collect(),
            ),
            DataType::Int4 => {
                let signed = |x: u8| ((x << 4) as i8 >> 4) as u8;
                let codes = self.codes.iter().flat_map(nibbles).map(signed);
                (DataType::Int8, codes.collect())
            }
            _ => (self.data_type, self.codes),
        };
        Self {
            data_type,
            codes,
            ..self
        }
    }
}

/// Is there a form of weights in blocks of this format?
pub(crate) fn has_form(format: BlockFormat) -> bool {
    groups(format, &[]).is_some()
}

/// Have weights of this format an offset, beside their scale?
pub(crate) fn has_offsets(format: BlockFormat) -> bool {
    use BlockFormat::{Q2K, Q4_1, Q4K, Q5_1, Q5K};
    matches!(format, Q4_1 | Q5_1 | Q2K | Q4K | Q5K)
}

/// Weights of whole blocks; `None` of formats that have no form here.
pub(crate) fn groups(format: BlockFormat, blocks: &[u8]) -> Option<Groups> {
    use DataType::{Int4, Int8, Uint4, Uint8};
    Some(match format {
        BlockFormat::Q8_0 => symmetric(blocks, Int8, 32, |b: &BlockQ8_0| {
            (b.qs.to_vec(), vec![b.d.to_f32()])
        }),
        BlockFormat::Q4_0 => symmetric(blocks, Int4, 32, |b: &BlockQ4_0| {
            (centred(&b.codes(), 8), vec![b.d.to_f32()])
        }),
        BlockFormat::Q5_0 => symmetric(blocks, Int8, 32, |b: &BlockQ5_0| {
            (centred(&b.codes(), 16), vec![b.d.to_f32()])
        }),
        BlockFormat::Q3K => symmetric(blocks, Int4, 16, |b: &BlockQ3K| {
            (
                centred(&b.codes(), 4),
                scaled(b.d.to_f32(), b.group_scales()),
            )
        }),
        BlockFormat::Q6K => symmetric(blocks, Int8, 16, |b: &BlockQ6K| {
            (centred(&b.codes(), 32), scaled(b.d.to_f32(), b.scales))
        }),
        BlockFormat::Q4_1 => affine(blocks, Uint4, 32, |b: &BlockQ4_1| {
            (b.codes().to_vec(), vec![(b.d.to_f32(), -b.m.to_f32())])
        }),
        BlockFormat::Q5_1 => affine(blocks, Uint8, 32, |b: &BlockQ5_1| {
            (b.codes().to_vec(), vec![(b.d.to_f32(), -b.m.to_f32())])
        }),
        BlockFormat::Q2K => affine(blocks, Uint4, 16, |b: &BlockQ2K| {
            let (d, dmin) = (b.d.to_f32(), b.dmin.to_f32());
            let group = |x: &u8| (d * f32::from(x & 0xF), dmin * f32::from(x >> 4));
            (b.codes().to_vec(), b.scales.iter().map(group).collect())
        }),
        BlockFormat::Q4K => affine(blocks, Uint4, 32, |b: &BlockQ4K| {
            let groups = packed_groups(b.d.to_f32(), b.dmin.to_f32(), &b.scales);
            (b.codes().to_vec(), groups)
        }),
        BlockFormat::Q5K => affine(blocks, Uint8, 32, |b: &BlockQ5K| {
            let groups = packed_groups(b.d.to_f32(), b.dmin.to_f32(), &b.scales);
            (b.codes().to_vec(), groups)
        }),
        _ => return None,
    })
}

/// Codes around 0.
fn centred(codes: &[u8], zero: i8) -> Vec<i8> {
    codes.iter().map(|&code| code as i8 - zero).collect()
}

fn scaled<const N: usize>(d: f32, scales: [i8; N]) -> Vec<f32> {
    scales.map(|scale| d * f32::from(scale)).to_vec()
}

/// Scale and minimum of each group.
fn packed_groups(d: f32, dmin: f32, packed: &[u8; 12]) -> Vec<(f32, f32)> {
    let (scales, mins) = unpack_scales_mins(packed);
    let groups = scales.into_iter().zip(mins);
    groups
        .map(|(scale, min)| (d * f32::from(scale), dmin * f32::from(min)))
        .collect()
}

fn blocks_of<B: Pod>(blocks: &[u8]) -> impl Iterator<Item = B> {
    let blocks = blocks.chunks_exact(size_of::<B>());
    blocks.map(bytemuck::pod_read_unaligned)
}

/// Formats without minima: codes of a block and the scales of its groups.
fn symmetric<B: Pod>(
    blocks: &[u8],
    data_type: DataType,
    len: usize,
    parts: impl Fn(&B) -> (Vec<i8>, Vec<f32>),
) -> Groups {
    let (mut codes, mut scales) = (Vec::new(), Vec::new());
    for block in blocks_of(blocks) {
        let (block_codes, block_scales) = parts(&block);
        codes.extend(block_codes.into_iter().map(|code| code as u8));
        scales.extend(block_scales);
    }
    Groups {
        data_type,
        codes: packed(data_type, codes),
        len,
        scales,
        offsets: Vec::new(),
    }
}

/// Formats whose weights are `scale · code − min`: codes of a block, and scale and minimum of each
/// of its groups. Where the scale is 0 all weights of a group are the same.
fn affine<B: Pod>(
    blocks: &[u8],
    data_type: DataType,
    len: usize,
    parts: impl Fn(&B) -> (Vec<u8>, Vec<(f32, f32)>),
) -> Groups {
    let (mut codes, mut scales, mut offsets) = (Vec::new(), Vec::new(), Vec::new());
    for block in blocks_of(blocks) {
        let (mut block_codes, groups) = parts(&block);
        for (codes, (scale, min)) in block_codes.chunks_exact_mut(len).zip(groups) {
            let is_flat = scale == 0.0;
            if is_flat {
                codes.fill(0);
            }
            scales.push(if is_flat { 1.0 } else { scale });
            offsets.push(if is_flat { min } else { min / scale });
        }
        codes.extend(block_codes);
    }
    Groups {
        data_type,
        codes: packed(data_type, codes),
        len,
        scales,
        offsets,
    }
}

/// Codes as `weight.bin` has them: of four bits, the first of two is the lower one.
fn packed(data_type: DataType, codes: Vec<u8>) -> Vec<u8> {
    match data_type {
        DataType::Int4 | DataType::Uint4 => {
            let pairs = codes.as_chunks().0.iter();
            pairs.map(|[low, high]| low & 0xF | high << 4).collect()
        }
        _ => codes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unpacked(groups: &Groups) -> Vec<f64> {
        let nibbles = || groups.codes.iter().flat_map(|&x| [x & 0xF, x >> 4]);
        match groups.data_type {
            DataType::Int4 => nibbles().map(|x| f64::from((x << 4) as i8 >> 4)).collect(),
            DataType::Uint4 => nibbles().map(f64::from).collect(),
            DataType::Int8 => groups.codes.iter().map(|&x| f64::from(x as i8)).collect(),
            _ => groups.codes.iter().map(|&x| f64::from(x)).collect(),
        }
    }

    #[test]
    fn groups_are_the_weights_of_their_blocks() {
        let mut known = 0;
        for &format in BlockFormat::ALL {
            // A row of zeros, one of equal numbers, and others.
            let x: Vec<f32> = (0..1024_i32)
                .map(|i| match i / 256 {
                    0 => 0.0,
                    1 => -3.0,
                    _ => ((i * 37 % 101) as f32 - 40.0) / 16.0,
                })
                .collect();
            let mut blocks = vec![0; format.row_bytes(x.len()).unwrap()];
            format.quantize(&x, &mut blocks).unwrap();
            let Some(groups) = groups(format, &blocks) else {
                assert!(!has_form(format));
                continue;
            };
            known += 1;
            let mut expected = vec![0.0; x.len()];
            format.dequantize(&blocks, &mut expected).unwrap();
            let codes = unpacked(&groups);
            assert_eq!(
                (codes.len(), groups.scales.len()),
                (1024, 1024 / groups.len)
            );
            assert_eq!(
                !groups.offsets.is_empty(),
                has_offsets(format),
                "{format:?}"
            );
            assert_eq!(unpacked(&groups.clone().widened()), codes);
            for (i, (code, expected)) in codes.iter().zip(expected).enumerate() {
                let group = i / groups.len;
                let offset = groups.offsets.get(group).copied().unwrap_or_default();
                let value = f64::from(groups.scales[group]) * (code - f64::from(offset));
                let error = (value - f64::from(expected)).abs();
                assert!(error <= 2e-6, "{format:?} {i}: {value}, not {expected}");
            }
        }
        assert_eq!(known, 10);
    }
}
