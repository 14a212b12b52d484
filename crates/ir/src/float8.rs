//! 8-bit floats ([OCP's OFP8](https://www.opencompute.org/documents/ocp-8-bit-floating-point-specification-ofp8-revision-1-0-2023-12-01-pdf-1)),
//! converted as PyTorch converts them.

use std::fmt;

use bytemuck::{Pod, Zeroable};

/// Meaning of such a float's bits, below its sign.
struct Format {
    /// Bits of the fraction.
    mantissa: u32,
    /// Bias of exponents.
    bias: u32,
    /// The largest finite number.
    largest: u8,
    /// Bits that larger numbers become.
    overflow: u8,
}

/// Bits of the fraction of single precision, and the bias of its exponents.
const MANTISSA: u32 = f32::MANTISSA_DIGITS - 1;
const BIAS: u32 = 127;

impl Format {
    /// The number that `bits` are.
    const fn widen(&self, bits: u8) -> f32 {
        let sign = (bits as u32 & 0x80) << 24;
        let magnitude = bits as u32 & 0x7F;
        let shift = MANTISSA - self.mantissa;
        let exponent = magnitude >> self.mantissa;
        let wide = if magnitude > self.largest as u32 {
            let fraction = magnitude & ((1 << self.mantissa) - 1);
            let quiet = if fraction == 0 { 0 } else { f32::NAN.to_bits() };
            f32::INFINITY.to_bits() | quiet | fraction << shift
        } else if exponent == 0 {
            let unit = f32::from_bits((BIAS + 1 - self.bias - self.mantissa) << MANTISSA);
            (magnitude as f32 * unit).to_bits()
        } else {
            (magnitude << shift) + ((BIAS - self.bias) << MANTISSA)
        };
        f32::from_bits(sign | wide)
    }

    /// The bits of the number nearest to `x`, of two that are as near the even one.
    #[inline(always)]
    fn round(&self, x: f32) -> u8 {
        let sign = (x.to_bits() >> 24) as u8 & 0x80;
        let magnitude = x.to_bits() & 0x7FFF_FFFF;
        let rounded = if x.is_nan() {
            0x7F
        } else if magnitude < (BIAS + 1 - self.bias) << MANTISSA {
            // A number whose last bit is the unit of subnormal numbers: the sum is rounded to it.
            let exponent = BIAS + 1 - self.bias + MANTISSA - self.mantissa;
            let large = f32::from_bits(exponent << MANTISSA);
            ((x.abs() + large).to_bits() - large.to_bits()) as u8
        } else {
            let shift = MANTISSA - self.mantissa;
            let even = magnitude >> shift & 1;
            let nearest = (magnitude + (1 << (shift - 1)) - 1 + even) >> shift;
            let nearest = nearest - ((BIAS - self.bias) << self.mantissa);
            match nearest > self.largest.into() {
                true => self.overflow,
                false => nearest as u8,
            }
        };
        sign | rounded
    }
}

macro_rules! floats {
    ($($(#[$doc:meta])+ $name:ident: $format:expr;)+) => {$(
        $(#[$doc])+
        #[derive(Clone, Copy, Default, Pod, Zeroable)]
        #[repr(transparent)]
        pub struct $name(u8);

        impl $name {
            const FORMAT: Format = $format;

            const WIDE: [f32; 256] = {
                let mut wide = [0.0; 256];
                let mut bits = 0;
                while bits < 256 {
                    wide[bits] = Self::FORMAT.widen(bits as u8);
                    bits += 1;
                }
                wide
            };

            /// The number that has these bits.
            pub const fn from_bits(bits: u8) -> Self {
                Self(bits)
            }

            /// The bits: the sign, then the exponent, then the fraction.
            pub const fn to_bits(self) -> u8 {
                self.0
            }

            /// The nearest number; ties go to the even one. NaN stays NaN.
            #[inline(always)]
            pub fn from_f32(x: f32) -> Self {
                Self(Self::FORMAT.round(x))
            }

            /// The same number in single precision.
            #[inline(always)]
            pub const fn to_f32(self) -> f32 {
                Self::WIDE[self.0 as usize]
            }
        }

        impl From<$name> for f32 {
            fn from(x: $name) -> Self {
                x.to_f32()
            }
        }

        /// Compares as numbers: NaN is not equal to itself, and 0 is equal to −0.
        impl PartialEq for $name {
            fn eq(&self, other: &Self) -> bool {
                self.to_f32() == other.to_f32()
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.to_f32(), f)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.to_f32(), f)
            }
        }
    )+};
}

floats! {
    /// A float of 4 bits of exponent and 3 of fraction: PyTorch's `float8_e4m3fn`. It ranges from
    /// 2⁻⁹ to 448. Larger numbers and infinities become 448. All ones are NaN.
    F8E4M3: Format { mantissa: 3, bias: 7, largest: 0x7E, overflow: 0x7E };

    /// A float of 5 bits of exponent and 2 of fraction: PyTorch's `float8_e5m2`. It ranges from
    /// 2⁻¹⁶ to 57344, and has infinity, which larger numbers become.
    F8E5M2: Format { mantissa: 2, bias: 15, largest: 0x7B, overflow: 0x7C };
}

#[cfg(test)]
mod tests {
    use half::f16;

    use super::*;

    /// The number that the specification gives for some bits; `None` for bits of no finite number.
    fn value(bits: u8, fraction_bits: i32, bias: i32, largest: u8) -> Option<f64> {
        let magnitude = bits & 0x7F;
        if magnitude > largest {
            return None;
        }
        let scale = 1 << fraction_bits;
        let (exponent, fraction) = (
            i32::from(magnitude) / scale,
            f64::from(i32::from(magnitude) % scale) / f64::from(scale),
        );
        let x = match exponent {
            0 => fraction * f64::from(1 - bias).exp2(),
            _ => (1.0 + fraction) * f64::from(exponent - bias).exp2(),
        };
        Some(if bits & 0x80 == 0 { x } else { -x })
    }

    /// The nearest of all numbers, by comparing with each; `overflow` beyond the largest one by
    /// half of the last step or more.
    fn nearest(x: f64, values: &[f64], overflow: u8) -> u8 {
        let last = values.len() - 1;
        let limit = values[last] + (values[last] - values[last - 1]) / 2.0;
        if x >= limit {
            return overflow;
        }
        let distance = |i: usize| (values[i] - x).abs();
        let best = (0..values.len()).min_by(|&a, &b| {
            let even = (a % 2).cmp(&(b % 2));
            distance(a).total_cmp(&distance(b)).then(even)
        });
        best.unwrap_or(0) as u8
    }

    /// Numbers of single precision of all exponents: all halves, and others at random.
    fn numbers() -> impl Iterator<Item = f32> {
        let halves = (0..=u16::MAX).map(|bits| f16::from_bits(bits).to_f32());
        let random = (0..100_000).scan(0x9E37_79B9_u32, |state, _| {
            *state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            // Half of them in the range of the types.
            let bits = *state ^ *state >> 15;
            let exponent = 0x3400_0000 + (bits >> 26 & 7) * 0x0200_0000;
            let near = (bits & 0x81FF_FFFF) | exponent;
            Some(f32::from_bits(if *state & 4096 == 0 { bits } else { near }))
        });
        halves.chain(random)
    }

    fn check(
        [fraction_bits, bias]: [i32; 2],
        [largest, overflow]: [u8; 2],
        widen: impl Fn(u8) -> f32,
        round: impl Fn(f32) -> u8,
    ) {
        let value = |bits| value(bits, fraction_bits, bias, largest);
        for bits in 0..=u8::MAX {
            let wide = widen(bits);
            match value(bits) {
                Some(x) => assert_eq!(f64::from(wide).to_bits(), x.to_bits(), "{bits:#x}"),
                // Only of the type that has infinities is this one.
                None if bits & 0x7F == 0x7C => assert!(wide.is_infinite(), "{bits:#x}"),
                None => assert!(wide.is_nan(), "{bits:#x}"),
            }
            assert_eq!(wide.is_sign_negative(), bits & 0x80 != 0, "{bits:#x}");
            let again = round(wide);
            assert!(again == bits || wide.is_nan() && again & 0x7F == 0x7F);
        }
        let values: Vec<f64> = (0..=largest).filter_map(value).collect();
        for x in numbers() {
            let expected = match x.is_nan() {
                true => 0x7F,
                false => nearest(x.abs().into(), &values, overflow),
            };
            let sign = u8::from(x.is_sign_negative()) << 7;
            assert_eq!(round(x), sign | expected, "{x:e}");
        }
    }

    #[test]
    fn e4m3_is_what_the_specification_says() {
        check(
            [3, 7],
            [0x7E, 0x7E],
            |bits| F8E4M3::from_bits(bits).to_f32(),
            |x| F8E4M3::from_f32(x).to_bits(),
        );
    }

    #[test]
    fn e5m2_is_what_the_specification_says() {
        check(
            [2, 15],
            [0x7B, 0x7C],
            |bits| F8E5M2::from_bits(bits).to_f32(),
            |x| F8E5M2::from_f32(x).to_bits(),
        );
    }

    /// Answers of PyTorch 2.15 where it has had others.
    #[test]
    fn what_does_not_fit_becomes_what_it_does_in_pytorch() {
        let e4m3 = |x: f32| F8E4M3::from_f32(x).to_bits();
        let e5m2 = |x: f32| F8E5M2::from_f32(x).to_bits();
        for (x, a, b) in [
            (464.0, 0x7E, 0x5F),
            (480.0, 0x7E, 0x60),
            (1e30, 0x7E, 0x7C),
            (f32::NEG_INFINITY, 0xFE, 0xFC),
            (f32::NAN, 0x7F, 0x7F),
            (-f32::NAN, 0xFF, 0xFF),
            (61439.0, 0x7E, 0x7B),
            (61440.0, 0x7E, 0x7C),
            (-0.0, 0x80, 0x80),
        ] {
            assert_eq!((e4m3(x), e5m2(x)), (a, b), "{x}");
        }
        // The bits of NaN in single precision, too.
        assert_eq!(F8E4M3::from_bits(0xFF).to_f32().to_bits(), 0xFFF0_0000);
        for (bits, wide) in [
            (0x7D, 0x7FE0_0000),
            (0x7E, 0x7FC0_0000),
            (0x7F, 0x7FE0_0000),
        ] {
            assert_eq!(F8E5M2::from_bits(bits).to_f32().to_bits(), wide);
        }
    }
}
