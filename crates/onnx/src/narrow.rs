//! ONNX's integers of 2 and 4 bits, and its floats of 4 and 8 bits without a dtype here. Wider dtypes
//! hold their values, and operations round to the narrow ones.

use rustorch_dispatch::{Called, missing};
use rustorch_ir::DType;
use rustorch_tensor::Tensor;

use crate::proto::{Attribute, Graph, Type};

/// A narrow type.
#[derive(Clone, Copy)]
pub(crate) struct Narrow {
    /// The dtype that holds its values.
    pub(crate) held: DType,
    /// Bits of a number.
    bits: u32,
    kind: Kind,
}

#[derive(Clone, Copy)]
enum Kind {
    Int {
        has_sign: bool,
    },
    Float {
        /// Bits of the fraction.
        fraction: i32,
        /// The exponent of the least number that is not subnormal.
        least: i32,
        largest: f64,
        /// Is the pattern of −0 NaN, the only one?
        has_nan: bool,
    },
    /// Powers of 2, by their exponent and 127; all ones are NaN.
    Power,
}

impl Narrow {
    /// The type of ONNX's number.
    pub(crate) fn of(number: i64) -> Option<Self> {
        let int = |bits, has_sign| Self {
            held: if has_sign { DType::I8 } else { DType::U8 },
            bits,
            kind: Kind::Int { has_sign },
        };
        let float = |bits, fraction, least, largest, has_nan| Self {
            held: DType::F32,
            bits,
            kind: Kind::Float {
                fraction,
                least,
                largest,
                has_nan,
            },
        };
        Some(match number {
            18 => float(8, 3, -7, 240.0, true),
            20 => float(8, 2, -15, 57_344.0, true),
            21 => int(4, false),
            22 => int(4, true),
            23 => float(4, 1, 0, 6.0, false),
            24 => Self {
                held: DType::F32,
                bits: 8,
                kind: Kind::Power,
            },
            25 => int(2, false),
            26 => int(2, true),
            _ => return None,
        })
    }

    /// The bytes that so many packed numbers take.
    pub(crate) fn bytes_of(self, count: usize) -> Option<usize> {
        Some(count.checked_mul(self.bits as usize)?.div_ceil(8))
    }

    /// The number that `code` is.
    fn value(self, code: u8) -> f64 {
        let sign = 1 << (self.bits - 1);
        match self.kind {
            Kind::Int { has_sign } if has_sign && code & sign != 0 => {
                f64::from(code) - f64::from(1u32 << self.bits)
            }
            Kind::Int { .. } => code.into(),
            Kind::Power if code == 0xFF => f64::NAN,
            Kind::Power => f64::from(i32::from(code) - 127).exp2(),
            Kind::Float { has_nan: true, .. } if code == sign => f64::NAN,
            Kind::Float {
                fraction, least, ..
            } => {
                let magnitude = i32::from(code & (sign - 1));
                let (exponent, rest) = (magnitude >> fraction, magnitude & ((1 << fraction) - 1));
                let whole = if exponent > 0 { 1 << fraction } else { 0 };
                let step = f64::from(least + (exponent - 1).max(0) - fraction).exp2();
                let x = f64::from(whole + rest) * step;
                if code & sign == 0 { x } else { -x }
            }
        }
    }

    /// Packed numbers, the first in the lowest bits, as the bytes of the wider dtype.
    pub(crate) fn widen(self, packed: &[u8], count: usize) -> Vec<u8> {
        let each = (8 / self.bits) as usize;
        let code = |i: usize| {
            let shift = self.bits * (i % each) as u32;
            packed[i / each] >> shift & ((1u32 << self.bits) - 1) as u8
        };
        let values = (0..count.min(packed.len() * each)).map(|i| self.value(code(i)));
        match self.held {
            DType::F32 => values.flat_map(|x| (x as f32).to_ne_bytes()).collect(),
            _ => values.map(|x| x as i64 as u8).collect(),
        }
    }

    /// Rounds numbers to the type: integers wrap, floats go to the nearest. A too large float becomes
    /// the largest one or, unless it `saturates`, NaN.
    pub(crate) fn round(self, x: &Tensor, saturates: bool) -> Called<Tensor> {
        match self.kind {
            Kind::Int { has_sign } => {
                let count = 1i64 << self.bits;
                let shift = if has_sign { count / 2 } else { 0 };
                let whole = x.to_dtype(DType::I64)?.add(shift)?;
                let wrapped = whole.remainder(count)?.sub(shift)?;
                Ok(wrapped.to_dtype(self.held)?)
            }
            Kind::Float {
                fraction,
                least,
                largest,
                has_nan,
            } => {
                let x = x.to_dtype(DType::F32)?;
                let magnitude = x.abs()?.clamp_max(4.0 * largest)?;
                let exponent = magnitude.frexp()?.1.sub(1)?.clamp_min(least)?;
                let step = x.ones_like()?.ldexp(&exponent.sub(fraction)?)?;
                let near = magnitude.div(&step)?.round()?.mul(&step)?;
                let most = if saturates { largest } else { f64::NAN };
                let near = Tensor::where_(&near.gt(largest)?, most, &near)?;
                let near = match has_nan {
                    // There is no −0.
                    true => near.copysign(&x)?.add(0.0)?,
                    false => Tensor::where_(&x.isnan()?, 0.0, &near)?.copysign(&x)?,
                };
                Ok(near)
            }
            Kind::Power => {
                let (part, exponent) = x.to_dtype(DType::F32)?.frexp()?;
                let exponent = exponent.sub(&part.eq(0.5)?.to_dtype(exponent.dtype())?)?;
                let exponent = Tensor::where_(&x.eq(0.0)?, -127, &exponent.clamp(-127, 127)?)?;
                Ok(part.ones_like()?.ldexp(&exponent)?)
            }
        }
    }

    /// Numbers that stand for `scaled` and a zero point.
    pub(crate) fn quantized(self, scaled: &Tensor, zero: Option<&Tensor>) -> Called<Tensor> {
        let Kind::Int { has_sign } = self.kind else {
            return self.round(scaled, true);
        };
        let count = f64::from(1u32 << self.bits);
        let low = if has_sign { -count / 2.0 } else { 0.0 };
        let whole = scaled.round()?;
        let moved = match zero {
            Some(zero) => whole.add(zero)?,
            None => whole,
        };
        Ok(moved.clamp(low, low + count - 1.0)?.to_dtype(self.held)?)
    }
}

/// Whether a cast's mode of rounding is there: of powers of 2, upwards.
pub(crate) fn check_mode(mode: &str) -> Called<()> {
    match mode {
        "up" => Ok(()),
        other => missing(format!("round_mode='{other}'")),
    }
}

/// Notes such types of inputs and initializers as attributes of the nodes that cast or quantise to them. Values have
/// other types, which hold theirs, so that the graph alone knows them.
pub(crate) fn note_types(graph: &mut Graph) {
    let tensor = |ty: &Type| Some(ty.tensor.as_ref()?.elements);
    let inputs = graph.inputs.iter();
    let inputs =
        inputs.filter_map(|info| Some((info.name.clone(), info.ty.as_ref().and_then(tensor)?)));
    let initializers = graph.initializers.iter();
    let initializers = initializers.map(|data| (data.name.clone(), data.data_type));
    let types: Vec<(String, i32)> = inputs.chain(initializers).collect();
    for node in &mut graph.nodes {
        let (place, name) = match node.op.as_str() {
            "CastLike" => (1, "to"),
            "QuantizeLinear" => (2, "output_dtype"),
            _ => continue,
        };
        let Some(input) = node.inputs.get(place) else {
            continue;
        };
        let number = types.iter().find(|(known, _)| known == input);
        let Some(&(_, number)) =
            number.filter(|(_, number)| Narrow::of(i64::from(*number)).is_some())
        else {
            continue;
        };
        if node.op == "CastLike" {
            node.op = "Cast".to_owned();
            node.inputs.truncate(1);
        }
        node.attributes.push(Attribute {
            name: name.to_owned(),
            int: number.into(),
            kind: 2,
            ..Attribute::default()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounded(number: i64, x: &[f32], saturates: bool) -> Vec<f32> {
        let narrow = Narrow::of(number).unwrap();
        let x = Tensor::from_slice(x, [x.len()]).unwrap();
        let Ok(rounded) = narrow.round(&x, saturates) else {
            panic!("type {number} does not round");
        };
        rounded.to_dtype(DType::F32).unwrap().to_vec().unwrap()
    }

    fn values(number: i64) -> Vec<f32> {
        let narrow = Narrow::of(number).unwrap();
        let codes = 0..=((1u32 << narrow.bits) - 1) as u8;
        codes.map(|code| narrow.value(code) as f32).collect()
    }

    #[test]
    fn what_such_types_have_stays_and_others_become_the_nearest() {
        for number in [18, 20, 21, 22, 23, 24, 25, 26] {
            let all: Vec<f32> = values(number).into_iter().filter(|x| !x.is_nan()).collect();
            assert_eq!(rounded(number, &all, true), all, "{number}");
        }
        assert_eq!(values(23)[..8], [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]);
        assert_eq!(values(18)[0x7F], 240.0);
        assert!(values(18)[0x80].is_nan() && values(24)[255].is_nan());
        let x = [0.47, -3.5, 9.0, 0.25, f32::NEG_INFINITY];
        assert_eq!(rounded(23, &x, true), [0.5, -4.0, 6.0, 0.0, -6.0]);
        let x = [0.478_925_47, 1e6, -1e-7, f32::INFINITY];
        assert_eq!(rounded(20, &x, true), [0.5, 57_344.0, 0.0, 57_344.0]);
        let rounded_18 = rounded(18, &x, false);
        assert_eq!([rounded_18[0], rounded_18[2]], [0.46875, 0.0]);
        assert!(rounded_18[1].is_nan() && rounded_18[3].is_nan());
        assert_eq!(rounded(22, &[-9.0, 7.9, 8.0], true), [7.0, 7.0, -8.0]);
        assert_eq!(rounded(24, &[0.124, 1.1, 2.0], true), [0.125, 2.0, 2.0]);
    }

    #[test]
    fn packed_numbers_are_read_from_the_lowest_bits_on() {
        let held = |number, packed: &[u8], count| Narrow::of(number).unwrap().widen(packed, count);
        assert_eq!(held(21, &[0x21, 0x0F], 3), [1, 2, 15]);
        assert_eq!(held(22, &[0x98], 2), [0xF8, 0xF9]);
        assert_eq!(held(25, &[0b1110_0100], 4), [0, 1, 2, 3]);
        assert_eq!(held(23, &[0x0A], 1), (-1f32).to_ne_bytes());
    }
}
