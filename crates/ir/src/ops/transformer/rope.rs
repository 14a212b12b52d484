use smallvec::smallvec;

use crate::autodiff::{Cotangents, Differentiated};
use crate::case::{ARRANGEMENTS, Case, CaseOperand, Fill};
use crate::ops::*;
use crate::ops::{BinaryOp, Concat};
use crate::{Graph, Named, OpDef, OpType, Param, ResultTypes, Results, ValueId};

/// Rotary position embedding: pairs of features rotated by an angle that grows with the token's
/// position ([RoFormer](https://arxiv.org/abs/2104.09864)).
///
/// Operands: `x` `[…, t, d]`, floating point; `positions` `[t]`, `i32`; optionally `factors`
/// `[dims / 2]`, `f32`, by which each frequency is divided (Llama 3's long-context scaling, see
/// [`RopeScaling::llama3_factors`]). Only the first `dims` features are rotated.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Rope {
    /// Number of rotated features; even.
    pub dims: usize,
    /// Layout of the pairs of features.
    pub layout: RopeLayout,
    /// Base of the frequencies `base^(-2i / dims)`.
    pub base: Param,
    /// Treatment of positions beyond the training context.
    pub scaling: RopeScaling,
}

/// Features of the pair `i`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RopeLayout {
    /// `2i` and `2i + 1` (Llama's GGUF files; ggml's `NORMAL`).
    Interleaved,
    /// `i` and `i + dims / 2` (Qwen, Hugging Face's layout; ggml's `NEOX`).
    Halves,
}

/// Scaling of the angles.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RopeScaling {
    /// Angles multiplied by `factor` (1 for none; 1/4 for a context four times as long).
    Linear {
        /// The multiplier.
        factor: Param,
    },
    /// [YaRN](https://arxiv.org/abs/2309.00071): high frequencies kept, low ones scaled.
    Yarn {
        /// The multiplier of the low frequencies.
        factor: Param,
        /// Weight of the unscaled angles where frequencies are high (1 in YaRN).
        extrapolation: Param,
        /// Multiplier of the result's magnitude, before YaRN's own correction.
        attention: Param,
        /// Turns over the original context above which a frequency is kept.
        beta_fast: Param,
        /// Turns below which a frequency is fully scaled.
        beta_slow: Param,
        /// Tokens of the context the model was trained with.
        original_context: usize,
    },
}

impl RopeScaling {
    /// No scaling.
    pub const NONE: Self = Self::Linear { factor: Param(1.0) };

    /// Llama 3.1's divisors of the `dims / 2` frequencies (`rope_type: llama3` in its
    /// configuration): short waves kept, long ones divided by `factor`, a smooth ramp between.
    pub fn llama3_factors(
        dims: usize,
        base: f64,
        factor: f64,
        low_freq_factor: f64,
        high_freq_factor: f64,
        original_context: usize,
    ) -> Vec<f32> {
        let context = original_context as f64;
        (0..dims / 2)
            .map(|i| {
                let wavelength = std::f64::consts::TAU * base.powf(2.0 * i as f64 / dims as f64);
                let turns = context / wavelength;
                let smooth = (turns - low_freq_factor) / (high_freq_factor - low_freq_factor);
                let smooth = smooth.clamp(0.0, 1.0);
                (1.0 / ((1.0 - smooth) / factor + smooth)) as f32
            })
            .collect()
    }
}

impl Rope {
    /// The embedding in numbers, for fused kernels: one frequency for each of the `dims / 2` pairs,
    /// and the multiplier of sine and cosine. The frequency is the angle per position, before
    /// division by `factors`. It combines the scaled and the unscaled part.
    ///
    /// With `factors`, frequency `i` is divided by `factors[i]`.
    pub fn frequencies(&self, factors: Option<&[f32]>) -> (Vec<f64>, f64) {
        let pairs = 0..self.dims / 2;
        let frequencies = pairs.map(|pair| self.frequency(pair, factors)).collect();
        (frequencies, self.magnitude())
    }

    /// The frequency of one pair, see [`Rope::frequencies`].
    pub fn frequency(&self, pair: usize, factors: Option<&[f32]>) -> f64 {
        let exponent = -2.0 * pair as f64 / self.dims as f64;
        let f = self.base.0.powf(exponent);
        let f = factors.map_or(f, |x| f / f64::from(x[pair]));
        let kept = self.kept(pair as f64);
        f * (self.factor() * (1.0 - kept) + kept)
    }

    fn factor(&self) -> f64 {
        match self.scaling {
            RopeScaling::Linear { factor } | RopeScaling::Yarn { factor, .. } => factor.0,
        }
    }

    /// YaRN's weight of the unscaled angle for pair `i`; 0 for linear scaling.
    fn kept(&self, i: f64) -> f64 {
        match self.ramp() {
            Some((low, high, extrapolation)) => {
                let y = (i - low) / (high - low).max(0.001);
                (1.0 - y.clamp(0.0, 1.0)) * extrapolation
            }
            None => 0.0,
        }
    }

    /// YaRN's ramp: first and last pair of the transition, weight of extrapolation.
    fn ramp(&self) -> Option<(f64, f64, f64)> {
        let RopeScaling::Yarn {
            extrapolation,
            beta_fast,
            beta_slow,
            original_context,
            ..
        } = self.scaling
        else {
            return None;
        };
        let dims = self.dims as f64;
        let pair_with = |turns: Param| {
            let ratio = original_context as f64 / (turns.0 * std::f64::consts::TAU);
            dims * ratio.ln() / (2.0 * self.base.0.ln())
        };
        let low = pair_with(beta_fast).floor().max(0.0);
        let high = pair_with(beta_slow).ceil().min(dims - 1.0);
        Some((low, high, extrapolation.0))
    }

    /// Multiplier of sine and cosine.
    pub fn magnitude(&self) -> f64 {
        match self.scaling {
            RopeScaling::Linear { .. } => 1.0,
            RopeScaling::Yarn {
                factor,
                extrapolation,
                attention,
                ..
            } => {
                let correction = match extrapolation.0 {
                    0.0 => 1.0,
                    _ => 1.0 + 0.1 * (1.0 / factor.0).ln(),
                };
                attention.0 * correction
            }
        }
    }
}

impl OpDef for Rope {
    fn op_type(&self) -> Option<OpType> {
        Some(OpType::LinearAlgebra)
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<ResultTypes, OpError> {
        let (x, positions, factors) = match *inputs {
            [x, positions] => (x, positions, None),
            [x, positions, factors] => (x, positions, Some(factors)),
            _ => return Err(OpError::new(Self::NAME, "2 or 3 operands", inputs.len())),
        };
        require_float(Self::NAME, x)?;
        require(Self::NAME, x.rank() >= 2, "x [.., t, d]", x)?;
        let (t, d) = (x.shape[x.rank() - 2], x.shape[x.rank() - 1]);
        let even = self.dims.is_multiple_of(2) && self.dims <= d;
        require(
            Self::NAME,
            even,
            format!("an even dims of at most {d}"),
            self.dims,
        )?;
        let fits = *positions == TensorType::new([t], DType::I32);
        require(
            Self::NAME,
            fits,
            format_args!("positions i32[{t}]"),
            positions,
        )?;
        if let Some(factors) = factors {
            let fits = *factors == TensorType::new([self.dims / 2], DType::F32);
            require(
                Self::NAME,
                fits,
                format!("factors f32[{}]", self.dims / 2),
                factors,
            )?;
        }
        Ok(smallvec![x.clone()])
    }

    fn is_composite(&self) -> bool {
        true
    }

    fn decompose(&self, g: &mut Graph, inputs: &[ValueId]) -> Result<Results, OpError> {
        let out = g.ty(inputs[0]).clone();
        let (rank, pairs) = (out.rank(), self.dims / 2);
        let compute = compute_dtype(out.dtype);
        let x = g.cast(inputs[0], compute)?;

        // Angles in double precision: positions reach 10^5, where a float has no digits left.
        let i = g.arange(pairs, DType::F64)?;
        let exponent = g.mul_scalar(i, -2.0 * self.base.0.ln() / self.dims as f64)?;
        let mut frequency = g.unary(UnaryOp::Exp, exponent)?;
        if let Some(&factors) = inputs.get(2) {
            let factors = g.cast(factors, DType::F64)?;
            frequency = g.div(frequency, factors)?;
        }
        let weight = match self.ramp() {
            None => g.constant(self.factor(), DType::F64)?,
            Some((low, high, extrapolation)) => {
                let y = g.add_scalar(i, -low)?;
                let y = g.mul_scalar(y, 1.0 / (high - low).max(0.001))?;
                let (zero, one) = (g.constant(0.0, DType::F64)?, g.constant(1.0, DType::F64)?);
                let y = g.binary(BinaryOp::Maximum, y, zero)?;
                let y = g.binary(BinaryOp::Minimum, y, one)?;
                let kept = g.sub(one, y)?;
                let kept = g.mul_scalar(kept, extrapolation * (1.0 - self.factor()))?;
                g.add_scalar(kept, self.factor())?
            }
        };
        let frequency = g.mul(frequency, weight)?;
        let positions = g.cast(inputs[1], DType::F64)?;
        let t = g.ty(positions).shape[0];
        let positions = g.reshape(positions, [t, 1])?;
        let angle = g.mul(positions, frequency)?;
        let turn = |g: &mut Graph, op| {
            let wave = g.unary(op, angle)?;
            let wave = g.mul_scalar(wave, self.magnitude())?;
            g.cast(wave, compute)
        };
        let (cos, sin) = (turn(g, UnaryOp::Cos)?, turn(g, UnaryOp::Sin)?);

        // Pairs as a dimension of their own, either the last or the one before it.
        let turned = g.slice(x, rank - 1, 0, self.dims)?;
        let lead = &out.shape[..rank - 1];
        let (split, pair) = match self.layout {
            RopeLayout::Interleaved => ([pairs, 2], rank),
            RopeLayout::Halves => ([2, pairs], rank - 1),
        };
        let turned = g.reshape(turned, [lead, &split].concat())?;
        let flat: Vec<usize> = [lead, &[pairs]].concat();
        let a = g.slice(turned, pair, 0, 1)?;
        let a = g.reshape(a, flat.clone())?;
        let b = g.slice(turned, pair, 1, 2)?;
        let b = g.reshape(b, flat.clone())?;
        let (a_cos, b_sin) = (g.mul(a, cos)?, g.mul(b, sin)?);
        let (a_sin, b_cos) = (g.mul(a, sin)?, g.mul(b, cos)?);
        let mut single = flat;
        single.insert(pair, 1);
        let first = g.sub(a_cos, b_sin)?;
        let first = g.reshape(first, single.clone())?;
        let second = g.add(a_sin, b_cos)?;
        let second = g.reshape(second, single)?;
        let turned = g.push(Concat { dim: pair }, &[first, second])?;
        let turned = g.reshape(turned, [lead, &[self.dims]].concat())?;
        let rest = g.slice(x, rank - 1, self.dims, out.shape[rank - 1])?;
        let y = g.push(Concat { dim: rank - 1 }, &[turned, rest])?;
        Ok(smallvec![g.cast(y, out.dtype)?])
    }

    fn vjp(&self, g: &mut Graph, node: &Differentiated) -> Result<Cotangents, OpError> {
        if node.needed.get(2) == Some(&true) {
            return node.through_parts(g, |g, inputs| self.decompose(g, inputs));
        }
        // The transpose of a rotation turns back.
        let ct = node.cotangent(g, 0)?;
        let back = g.unary(UnaryOp::Neg, node.inputs[1])?;
        let operands = [&[ct, back], &node.inputs[2..]].concat();
        node.each(g, |g, _| g.push(self.clone(), &operands))
    }
}

impl Named for Rope {
    const NAME: &'static str = "rope";

    fn cases() -> Vec<Case> {
        let mut cases = Vec::new();
        let yarn = RopeScaling::Yarn {
            factor: 0.25.into(),
            extrapolation: 1.0.into(),
            attention: 1.0.into(),
            beta_fast: 32.0.into(),
            beta_slow: 1.0.into(),
            original_context: 64,
        };
        let linear = RopeScaling::Linear { factor: 0.5.into() };
        for layout in [RopeLayout::Interleaved, RopeLayout::Halves] {
            for scaling in [RopeScaling::NONE, linear, yarn] {
                for dtype in DType::FLOATS {
                    for arrange in ARRANGEMENTS {
                        for dims in [16, 12] {
                            let base = 10000.0.into();
                            let op = Self {
                                dims,
                                layout,
                                base,
                                scaling,
                            };
                            let x = CaseOperand::new([2, 5, 16], dtype).arrange(arrange);
                            let at =
                                CaseOperand::new([5], DType::I32).fill(Fill::Ints(-5000, 5000));
                            let factors = CaseOperand::new([dims / 2], DType::F32);
                            let factors = factors.fill(Fill::Uniform(1.0, 8.0));
                            cases.push(Case::new(op.clone(), [x.clone(), at.clone()]));
                            cases.push(Case::new(op, [x, at, factors]));
                        }
                    }
                }
            }
        }
        cases
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Op, autodiff};

    #[test]
    fn llama3_keeps_short_waves_and_stretches_long_ones() {
        let f = RopeScaling::llama3_factors(128, 500_000.0, 8.0, 1.0, 4.0, 8192);
        assert_eq!(f.len(), 64);
        assert_eq!(f[0], 1.0);
        assert_eq!(f[63], 8.0);
        assert!(f.is_sorted());
    }

    #[test]
    fn odd_dims_are_refused() {
        let op = Rope {
            dims: 3,
            layout: RopeLayout::Halves,
            base: 1e4.into(),
            scaling: RopeScaling::NONE,
        };
        let (x, p) = (
            TensorType::new([2, 4], DType::F32),
            TensorType::new([2], DType::I32),
        );
        assert!(op.infer(&[&x, &p]).is_err());
    }
    #[test]
    fn the_gradient_is_one_rotation() {
        let op = Rope {
            dims: 4,
            layout: RopeLayout::Halves,
            base: 1e4.into(),
            scaling: RopeScaling::NONE,
        };
        let mut g = Graph::new();
        let types = [DType::F32, DType::F32].map(|dtype| TensorType::new([2, 4], dtype));
        let [x, ct] = types.map(|ty| g.input(ty).unwrap());
        let positions = g.input(TensorType::new([2], DType::I32)).unwrap();
        let y = g.push(op.clone(), &[x, positions]).unwrap();
        let gradients = autodiff::backward(&mut g, 0..1, &[(y, ct)], &[x]).unwrap();
        let node = g.node(gradients[0].unwrap()).unwrap();
        assert_eq!(node.op, Op::from(op));
        assert_eq!(node.inputs[0], ct);
    }
}
