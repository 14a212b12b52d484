//! Weights in blocks as constants that stay small: codes, with a scale for each group of neighbours in a
//! row. Some formats also have an offset. An operation makes floats of them when Core ML loads the program,
//! or later. It is `constexpr_blockwise_shift_scale`. In older sets it is `constexpr_affine_dequantize` of
//! a matrix that has a group in each row. Sources: coremltools, `converters/mil/mil/ops/defs`,
//! `iOS18/compression.py` and `iOS16/constexpr_ops.py`. Codes of other widths than 4 and 8 bits are places
//! in a palette (`constexpr_lut_to_dense`), whose values are then scaled. coremltools does so with palettes
//! that have scales (`converters/mil/frontend/torch/converter.py`).

use rustorch_quant::{BlockFormat, Parts, QuantError};

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
    /// Number of bits that separate the codes.
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

    /// Makes offsets of minima. If the scale is 0, all weights of a group are the same.
    fn divide_minima(&mut self) {
        let groups = self.codes.chunks_exact_mut(self.len);
        let parts = groups.zip(&mut self.scales).zip(&mut self.offsets);
        for ((codes, scale), offset) in parts {
            if *scale == 0.0 {
                codes.fill(0);
                *scale = 1.0;
            }
            *offset /= *scale;
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

/// Weights of whole blocks.
pub(crate) fn groups(format: BlockFormat, blocks: &[u8]) -> Result<Groups, QuantError> {
    let len = format.group_len();
    let count = blocks.len() / format.block_bytes() * format.block_len();
    let mut groups = Groups {
        codes: vec![0; count],
        is_signed: *format.codes().start() < 0,
        bits: bits(format),
        len,
        scales: vec![0.0; count / len],
        offsets: vec![0.0; count / len],
    };
    let parts = Parts {
        codes: &mut groups.codes,
        scales: &mut groups.scales,
        minima: &mut groups.offsets,
    };
    format.unpack(blocks, parts)?;
    if format.has_minima() {
        groups.divide_minima();
    } else {
        groups.offsets.clear();
    }
    Ok(groups)
}

/// Bits of a format's codes.
fn bits(format: BlockFormat) -> u32 {
    let [least, most] = [format.codes().start(), format.codes().end()].map(|&code| i32::from(code));
    let sign = u32::from(least < 0);
    sign + i32::BITS - most.max(-1 - least).leading_zeros()
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

    /// Codes of `bits` bits, one after the other.
    fn unpacked(bytes: &[u8], bits: usize) -> Vec<u8> {
        let bit = |at: usize| bytes[at / 8] >> (at % 8) & 1;
        let code = |at: usize| (0..bits).map(|i| bit(at + i) << i).sum();
        (0..8 * bytes.len()).step_by(bits).map(code).collect()
    }

    /// Values of the codes: with a byte for each, and in as few bits as possible.
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
            let groups = groups(format, &blocks).unwrap();
            let mut expected = vec![0.0; x.len()];
            format.dequantize(&blocks, &mut expected).unwrap();
            let [codes, few] = values(&groups);
            assert_eq!(
                (codes.len(), groups.scales.len()),
                (1024, 1024 / groups.len)
            );
            assert_eq!(
                !groups.offsets.is_empty(),
                format.has_minima(),
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
            (BlockFormat::Mxfp4, 6),
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
