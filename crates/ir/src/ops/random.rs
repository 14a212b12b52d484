use smallvec::smallvec;

use super::*;
use crate::autodiff::{Cotangents, Differentiated, not_differentiable};
use crate::case::{Arrange, Case, CaseOperand, Fill};
use crate::{Graph, Named, OpDef, OpType, ResultTypes, Shape};

/// Random numbers that depend only on a key and the element's index, so every device draws the same
/// numbers.
///
/// The operand is the key, `i64[2]`: a seed and an offset. The offset counts the blocks of four
/// real numbers of the seed's stream before the first element. The key is data, so a computation
/// that draws new numbers in every run is one graph.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Random {
    /// Distribution of the numbers.
    pub distribution: Distribution,
    /// Shape of the result.
    pub shape: Shape,
    /// Type of the result: floating point, or complex for `Normal`.
    pub dtype: DType,
}

/// Distributions.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Distribution {
    /// Uniform in `[0, 1)`, on a grid that the dtype holds exactly.
    Uniform,
    /// Normal with mean 0 and variance 1; complex numbers have variance ½ in each part.
    Normal,
}

/// One block of Philox4x32-10: four random words for a 64-bit counter and key
/// ([Salmon et al. 2011](https://doi.org/10.1145/2063384.2063405)).
#[inline(always)]
pub fn philox(counter: u64, key: u64) -> [u32; 4] {
    let mut x = [counter as u32, (counter >> 32) as u32, 0, 0];
    let mut key = [key as u32, (key >> 32) as u32];
    for _ in 0..10 {
        let a = u64::from(x[0]) * 0xD251_1F53;
        let b = u64::from(x[2]) * 0xCD9E_8D57;
        x = [
            (b >> 32) as u32 ^ x[1] ^ key[0],
            b as u32,
            (a >> 32) as u32 ^ x[3] ^ key[1],
            a as u32,
        ];
        key[0] = key[0].wrapping_add(0x9E37_79B9);
        key[1] = key[1].wrapping_add(0xBB67_AE85);
    }
    x
}

impl Random {
    /// Random bits of a uniform number: those of its dtype's significand, so that 1 is never reached, and at most a
    /// word's 32.
    pub fn bits(&self) -> u32 {
        match self.dtype {
            DType::F16 => 11,
            DType::BF16 => 8,
            DType::F32 => 24,
            _ => 32,
        }
    }

    /// The `index`-th real number for a key of seed and offset: the definition that every kernel
    /// follows. Complex element `i` is the numbers `2i` and `2i + 1`, each divided by √2.
    pub fn draw(&self, [seed, offset]: [i64; 2], index: u64) -> f64 {
        let words = philox((offset as u64).wrapping_add(index / 4), seed as u64);
        let lane = (index % 4) as usize;
        match self.distribution {
            Distribution::Uniform => {
                let bits = self.bits();
                f64::from(words[lane] >> (32 - bits)) / f64::from(bits).exp2()
            }
            Distribution::Normal => {
                // Box and Muller: two words make two normals.
                let (first, second) = (words[lane & 2], words[lane | 1]);
                let scale = 32f64.exp2();
                let radius = (-2.0 * ((f64::from(first) + 1.0) / scale).ln()).sqrt();
                let angle = std::f64::consts::TAU * f64::from(second) / scale;
                radius
                    * if lane.is_multiple_of(2) {
                        angle.cos()
                    } else {
                        angle.sin()
                    }
            }
        }
    }
}

impl OpDef for Random {
    fn op_type(&self) -> Option<OpType> {
        Some(OpType::Distribution)
    }

    fn draws(&self) -> bool {
        true
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<ResultTypes, OpError> {
        let [key] = operands(Self::NAME, inputs)?;
        let is_key = key.dtype == DType::I64 && *key.shape == [2];
        require(Self::NAME, is_key, "a key i64[2] of seed and offset", key)?;
        let legal = self.dtype.is_float()
            || (self.distribution == Distribution::Normal && self.dtype.is_complex());
        let expected = "a floating-point dtype, or a complex one for normal numbers";
        require(Self::NAME, legal, expected, self.dtype)?;
        Ok(smallvec![TensorType::new(self.shape.clone(), self.dtype)])
    }

    fn vjp(&self, _: &mut Graph, _: &Differentiated) -> Result<Cotangents, OpError> {
        Err(not_differentiable(
            Self::NAME,
            "random numbers, of which the key has no gradient",
        ))
    }
}

impl Named for Random {
    const NAME: &'static str = "random";

    fn cases() -> Vec<Case> {
        let mut cases = Vec::new();
        for distribution in [Distribution::Uniform, Distribution::Normal] {
            let complex = match distribution {
                Distribution::Uniform => [].iter(),
                Distribution::Normal => DType::COMPLEX.iter(),
            };
            for &dtype in DType::FLOATS.iter().chain(complex) {
                let mut push = |shape: &[usize], arrange| {
                    let random = Self {
                        distribution,
                        shape: shape.into(),
                        dtype,
                    };
                    // The key has more than 32 bits.
                    let words = Fill::Ints(-1 << 40, 1 << 40);
                    let key = CaseOperand::new([2], DType::I64).fill(words);
                    cases.push(Case::new(random, [key.arrange(arrange)]));
                };
                for shape in [[].as_slice(), &[0], &[3, 37]] {
                    push(shape, Arrange::Contiguous);
                }
                push(&[67], Arrange::Strided);
            }
        }
        cases
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Known answers of Random123 (`kat_vectors`, philox4x32 10), words 2 and 3 of the
    /// counter being zero.
    #[test]
    fn philox_known_answer() {
        assert_eq!(
            philox(0, 0),
            [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]
        );
    }

    #[test]
    fn an_offset_leaves_out_blocks() {
        let random = Random {
            distribution: Distribution::Normal,
            shape: [].into(),
            dtype: DType::F32,
        };
        let draw = |offset, index| random.draw([-7, offset], index);
        assert_eq!(draw(3, 5), draw(0, 17));
        assert_eq!(draw(-1, 4), draw(0, 0));
        assert_ne!(draw(0, 0), random.draw([7, 0], 0));
    }

    #[test]
    fn moments() {
        let draw = |distribution| {
            let random = Random {
                distribution,
                shape: [].into(),
                dtype: DType::F32,
            };
            let n = 1 << 16;
            let x: Vec<f64> = (0..n).map(|i| random.draw([7, 0], i)).collect();
            let mean = x.iter().sum::<f64>() / n as f64;
            let var = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n as f64;
            (mean, var)
        };
        let (mean, var) = draw(Distribution::Uniform);
        assert!((mean - 0.5).abs() < 0.005 && (var - 1.0 / 12.0).abs() < 0.002);
        let (mean, var) = draw(Distribution::Normal);
        assert!(mean.abs() < 0.02 && (var - 1.0).abs() < 0.02);
    }
}
