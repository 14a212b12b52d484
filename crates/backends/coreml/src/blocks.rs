//! Weights in blocks as constants that stay small: codes, with a scale and for some formats an offset
//! for each group of neighbours in a row. An operation makes floats of them where Core ML loads the
//! program, or later: `constexpr_blockwise_shift_scale`, and in older sets `constexpr_affine_dequantize`
//! of a matrix that has a group in each row (coremltools, `converters/mil/mil/ops/defs`:
//! `iOS18/compression.py` and `iOS16/constexpr_ops.py`). Codes of other widths than 4 and 8 bits are places
//! in a palette (`constexpr_lut_to_dense`), whose values are scaled then, as coremltools does with palettes
//! that have scales (`converters/mil/frontend/torch/converter.py`).

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
/// The first that knows groups as such, also with codes of less than a byte.
pub(crate) const GROUPS_SINCE: Opset = Opset::CoreML8;

/// Weights, each of them `scale · (code − offset)`.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Groups {
    /// A byte for each, in two's complement where they are signed.
    pub(crate) codes: Vec<u8>,
    /// Have half of the codes that there can be a sign?
    pub(crate) is_signed: bool,
    /// Bits that tell a code from all others.
    bits: u32,
    /// Weights that share a scale and an offset.
    pub(crate) len: usize,
    pub(crate) scales: Vec<f32>,
    /// None where they are all 0.
    pub(crate) offsets: Vec<f32>,
}

/// Codes in as few bits as there are types for.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Codes {
    /// The codes themselves, of this type.
    Numbers(DataType, Vec<u8>),
    /// Places in a list of numbers.
    Palette {
        data_type: DataType,
        indices: Vec<u8>,
        values: Vec<f64>,
    },
}

impl Groups {
    /// Type of the codes with a byte for each.
    pub(crate) fn byte_type(&self) -> DataType {
        match self.is_signed {
            true => DataType::Int8,
            false => DataType::Uint8,
        }
    }

    /// The codes in as few bits as CoreML8 has types for: numbers have 4 or 8, places in palettes also
    /// 2, 3 and 6.
    pub(crate) fn packed_codes(&self) -> Codes {
        let numbers = |data_type| Codes::Numbers(data_type, packed(&self.codes, data_type));
        let data_type = match (self.bits, self.is_signed) {
            (8, _) => return numbers(self.byte_type()),
            (4, true) => return numbers(DataType::Int4),
            (4, false) => return numbers(DataType::Uint4),
            (..=2, _) => DataType::Uint2,
            (3, _) => DataType::Uint3,
            _ => DataType::Uint6,
        };
        let least = if self.is_signed {
            1_u8 << (self.bits - 1)
        } else {
            0
        };
        let indices: Vec<u8> = (self.codes.iter())
            .map(|code| code.wrapping_add(least))
            .collect();
        let count = 1 << data_type.bits().unwrap_or_default();
        Codes::Palette {
            data_type,
            indices: packed(&indices, data_type),
            values: (0..count)
                .map(|i| f64::from(i) - f64::from(least))
                .collect(),
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
    Some(match format {
        BlockFormat::Q8_0 => symmetric(blocks, 8, 32, |b: &BlockQ8_0| {
            (b.qs.to_vec(), vec![b.d.to_f32()])
        }),
        BlockFormat::Q4_0 => symmetric(blocks, 4, 32, |b: &BlockQ4_0| {
            (centred(&b.codes(), 8), vec![b.d.to_f32()])
        }),
        BlockFormat::Q5_0 => symmetric(blocks, 5, 32, |b: &BlockQ5_0| {
            (centred(&b.codes(), 16), vec![b.d.to_f32()])
        }),
        BlockFormat::Q3K => symmetric(blocks, 3, 16, |b: &BlockQ3K| {
            (
                centred(&b.codes(), 4),
                scaled(b.d.to_f32(), b.group_scales()),
            )
        }),
        BlockFormat::Q6K => symmetric(blocks, 6, 16, |b: &BlockQ6K| {
            (centred(&b.codes(), 32), scaled(b.d.to_f32(), b.scales))
        }),
        BlockFormat::Q4_1 => affine(blocks, 4, 32, |b: &BlockQ4_1| {
            (b.codes().to_vec(), vec![(b.d.to_f32(), -b.m.to_f32())])
        }),
        BlockFormat::Q5_1 => affine(blocks, 5, 32, |b: &BlockQ5_1| {
            (b.codes().to_vec(), vec![(b.d.to_f32(), -b.m.to_f32())])
        }),
        BlockFormat::Q2K => affine(blocks, 2, 16, |b: &BlockQ2K| {
            let (d, dmin) = (b.d.to_f32(), b.dmin.to_f32());
            let group = |x: &u8| (d * f32::from(x & 0xF), dmin * f32::from(x >> 4));
            (b.codes().to_vec(), b.scales.iter().map(group).collect())
        }),
        BlockFormat::Q4K => affine(blocks, 4, 32, |b: &BlockQ4K| {
            let groups = packed_groups(b.d.to_f32(), b.dmin.to_f32(), &b.scales);
            (b.codes().to_vec(), groups)
        }),
        BlockFormat::Q5K => affine(blocks, 5, 32, |b: &BlockQ5K| {
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
    bits: u32,
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
        codes,
        is_signed: true,
        bits,
        len,
        scales,
        offsets: Vec::new(),
    }
}

/// Formats whose weights are `scale · code − min`: codes of a block, and scale and minimum of each
/// of its groups. Where the scale is 0 all weights of a group are the same.
fn affine<B: Pod>(
    blocks: &[u8],
    bits: u32,
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
        codes,
        is_signed: false,
        bits,
        len,
        scales,
        offsets,
    }
}

/// Codes as `weight.bin` has them: those of less than a byte follow each other from the lowest bit on.
fn packed(codes: &[u8], data_type: DataType) -> Vec<u8> {
    let bits = data_type.bits().unwrap_or(8);
    let mask = u8::MAX >> (8 - bits);
    let mut out = Vec::with_capacity((codes.len() * bits).div_ceil(8));
    let (mut rest, mut held) = (0_u16, 0);
    for code in codes {
        rest |= u16::from(code & mask) << held;
        held += bits;
        if held >= 8 {
            out.push(rest as u8);
            rest >>= 8;
            held -= 8;
        }
    }
    if held > 0 {
        out.push(rest as u8);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Codes of so many bits, one after the other.
    fn unpacked(bytes: &[u8], bits: usize) -> Vec<u8> {
        let bit = |at: usize| bytes[at / 8] >> (at % 8) & 1;
        let code = |at: usize| (0..bits).map(|i| bit(at + i) << i).sum();
        (0..8 * bytes.len()).step_by(bits).map(code).collect()
    }

    /// What the codes are, with a byte for each and in as few bits as may be.
    fn values(groups: &Groups) -> [Vec<f64>; 2] {
        let signed = |code: u8, bits: usize| {
            let unused = 8 - bits;
            match groups.is_signed {
                true => f64::from((code << unused) as i8 >> unused),
                false => f64::from(code),
            }
        };
        let few = match groups.packed_codes() {
            Codes::Numbers(data_type, codes) => {
                let bits = data_type.bits().unwrap();
                let codes = unpacked(&codes, bits).into_iter();
                codes.map(|code| signed(code, bits)).collect()
            }
            Codes::Palette {
                data_type,
                indices,
                values,
            } => {
                let places = unpacked(&indices, data_type.bits().unwrap()).into_iter();
                places.map(|place| values[usize::from(place)]).collect()
            }
        };
        [
            groups.codes.iter().map(|&code| signed(code, 8)).collect(),
            few,
        ]
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
            let [codes, few] = values(&groups);
            assert_eq!(
                (codes.len(), groups.scales.len()),
                (1024, 1024 / groups.len)
            );
            assert_eq!(
                !groups.offsets.is_empty(),
                has_offsets(format),
                "{format:?}"
            );
            assert_eq!(few, codes, "{format:?}");
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

    /// Bits of a code, without scales and offsets.
    #[test]
    fn codes_take_as_few_bits_as_there_are_types_for() {
        for (format, expected) in [
            (BlockFormat::Q2K, 2),
            (BlockFormat::Q3K, 3),
            (BlockFormat::Q4_0, 4),
            (BlockFormat::Q4K, 4),
            (BlockFormat::Q5_0, 6),
            (BlockFormat::Q5K, 6),
            (BlockFormat::Q6K, 6),
            (BlockFormat::Q8_0, 8),
        ] {
            let blocks = vec![0; format.row_bytes(256).unwrap()];
            let bytes = match groups(format, &blocks).unwrap().packed_codes() {
                Codes::Numbers(_, codes) => codes,
                Codes::Palette { indices, .. } => indices,
            };
            assert_eq!(bytes.len(), 256 * expected / 8, "{format:?}");
        }
    }
}
