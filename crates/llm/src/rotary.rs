//! The rotary embedding of a model, from its file and options.

use std::str::FromStr;

use rustorch_ir::ops::RopeScaling;

use crate::LlmError;
use crate::keys::{Keys, MAX_SIZE};

/// Scaling of angles for contexts longer than in training.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RopeKind {
    /// No scaling.
    None,
    /// All angles are scaled alike ([position interpolation](https://arxiv.org/abs/2306.15595)).
    Linear,
    /// High frequencies stay, low ones are scaled ([YaRN](https://arxiv.org/abs/2309.00071)).
    Yarn,
}

impl FromStr for RopeKind {
    type Err = LlmError;

    fn from_str(name: &str) -> Result<Self, LlmError> {
        match name {
            "none" => Ok(Self::None),
            "linear" => Ok(Self::Linear),
            "yarn" => Ok(Self::Yarn),
            other => Err(LlmError::Unsupported {
                what: format!("rope scaling {other:?}"),
                supported: "none, linear, yarn and rope_freqs.weight (llama3) are".to_owned(),
            }),
        }
    }
}

/// Options that replace a file's rotary embedding; by default nothing.
///
/// They combine as in llama.cpp. The kind decides whether angles are scaled, and the default
/// extrapolation. The other options count for every kind.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct RopeOptions {
    /// The kind of scaling (`rope.scaling.type`).
    pub kind: Option<RopeKind>,
    /// Base of the frequencies (`rope.freq_base`); more than 0.
    pub freq_base: Option<f32>,
    /// The factor of angles (`1 / rope.scaling.factor`); more than 0.
    pub freq_scale: Option<f32>,
    /// Tokens of the context that YaRN starts from (`rope.scaling.original_context_length`).
    pub yarn_orig_ctx: Option<usize>,
    /// Weight of the unscaled angles at high frequencies (`rope.scaling.yarn_ext_factor`), at
    /// least 0. By default 1 with YaRN, else 0.
    pub yarn_ext_factor: Option<f32>,
    /// Multiplier of sine and cosine (`rope.scaling.yarn_attn_factor`), at least 0. It counts only
    /// if the weight above is 0; otherwise YaRN's own correction applies.
    pub yarn_attn_factor: Option<f32>,
    /// Turns over the original context below which a frequency is fully scaled
    /// (`rope.scaling.yarn_beta_slow`), at least 0.
    pub yarn_beta_slow: Option<f32>,
    /// Turns above which a frequency is kept (`rope.scaling.yarn_beta_fast`), at least 0.
    pub yarn_beta_fast: Option<f32>,
}

/// The result of a file and options.
pub(crate) struct Rotary {
    pub(crate) base: f64,
    pub(crate) scaling: RopeScaling,
    /// Tokens of the context that it is for.
    pub(crate) context: usize,
}

impl RopeOptions {
    /// # Errors
    /// Fails if a number is out of range.
    fn check(&self) -> Result<(), LlmError> {
        let positive = [
            ("base of the frequencies", self.freq_base),
            ("scale of the frequencies", self.freq_scale),
        ];
        let other = [
            ("extrapolation factor", self.yarn_ext_factor),
            ("attention factor", self.yarn_attn_factor),
            ("slow beta", self.yarn_beta_slow),
            ("fast beta", self.yarn_beta_fast),
        ];
        let wrong = |(name, value): &(&str, Option<f32>), least: &str| {
            let value = value.unwrap_or_default();
            LlmError::Input(format!(
                "rotary embedding: expected a {name} {least}, got {value}"
            ))
        };
        let is_bad = |value: f32, from_zero: bool| {
            !value.is_finite() || value < 0.0 || (value == 0.0 && !from_zero)
        };
        if let Some(bad) = positive
            .iter()
            .find(|(_, v)| v.is_some_and(|v| is_bad(v, false)))
        {
            return Err(wrong(bad, "of more than 0"));
        }
        match other
            .iter()
            .find(|(_, v)| v.is_some_and(|v| is_bad(v, true)))
        {
            Some(bad) => Err(wrong(bad, "of at least 0")),
            None => Ok(()),
        }
    }
}

impl Rotary {
    /// The result of `options` and the file's settings, for a model trained with `context` tokens. The formulas
    /// are llama.cpp's (`llama_context`), those of YaRN in section 3 of the paper.
    ///
    /// # Errors
    /// Fails if a key or an option is invalid, or if the file asks for another kind of scaling.
    pub(crate) fn resolve(
        keys: &Keys,
        options: &RopeOptions,
        context: usize,
    ) -> Result<Self, LlmError> {
        options.check()?;
        let kind = options.kind.unwrap_or_else(|| Self::kind(keys));
        let trained = Self::trained_scale(keys);
        let asked = options.freq_scale.map(f64::from);
        let factor = match kind {
            RopeKind::None => 1.0,
            RopeKind::Linear | RopeKind::Yarn => asked.unwrap_or(trained),
        };
        let yarn = |asked: Option<f32>, name: &str| match asked {
            Some(value) => Some(f64::from(value)),
            None => keys.opt_f64(&format!("rope.scaling.{name}")),
        };
        let extrapolation = yarn(options.yarn_ext_factor, "yarn_ext_factor").filter(|f| *f >= 0.0);
        let extrapolation = extrapolation.unwrap_or(f64::from(u8::from(kind == RopeKind::Yarn)));
        let attention = match extrapolation {
            0.0 => yarn(options.yarn_attn_factor, "yarn_attn_factor").unwrap_or(1.0),
            // The operation corrects by this logarithm whatever its sign, the paper only where a
            // context is stretched.
            _ => 1.0 / (1.0 - 0.1 * factor.ln().max(0.0)),
        };
        let attention = attention * keys.positive("rope.scaling.attn_factor", 1.0);
        let original = match options.yarn_orig_ctx {
            Some(tokens) => tokens,
            None => (keys.opt_size("rope.scaling.original_context_length")).unwrap_or(context),
        };
        let turns = |asked: Option<f32>, name: &str, default: f64| match asked {
            Some(value) => f64::from(value),
            None => keys.positive(&format!("rope.scaling.{name}"), default),
        };
        let scaling = RopeScaling::Yarn {
            factor: factor.into(),
            extrapolation: extrapolation.into(),
            attention: attention.into(),
            beta_fast: turns(options.yarn_beta_fast, "yarn_beta_fast", 32.0).into(),
            beta_slow: turns(options.yarn_beta_slow, "yarn_beta_slow", 1.0).into(),
            original_context: original,
        };
        let is_stretched =
            kind == RopeKind::Yarn && asked.is_some_and(|asked| asked as f32 != trained as f32);
        Ok(Self {
            base: match options.freq_base {
                Some(base) => base.into(),
                None => keys.positive("rope.freq_base", 10_000.0),
            },
            scaling: match (extrapolation, attention) {
                (0.0, 1.0) => RopeScaling::Linear {
                    factor: factor.into(),
                },
                _ => scaling,
            },
            context: match is_stretched {
                true => context
                    .max((original as f64 / factor) as usize)
                    .min(MAX_SIZE),
                false => context,
            },
        })
    }

    /// The file's kind of scaling: linear, if it says nothing. LongRoPE has divisors beside it.
    fn kind(keys: &Keys) -> RopeKind {
        const NAME: &str = "rope.scaling.type";
        match keys.opt_text(NAME).unwrap_or("linear") {
            "longrope" => RopeKind::Linear,
            other => other.parse().unwrap_or_else(|problem| {
                keys.note(NAME, problem);
                RopeKind::None
            }),
        }
    }

    /// The file's factor of angles.
    fn trained_scale(keys: &Keys) -> f64 {
        let factor = keys.opt_f64("rope.scaling.factor");
        let factor = match factor {
            Some(factor) => Some(factor),
            None => keys.opt_f64("rope.scale_linear"),
        };
        // llama.cpp treats a factor of 0 as none.
        match factor {
            Some(factor) if factor > 0.0 => 1.0 / factor,
            _ => 1.0,
        }
    }
}
