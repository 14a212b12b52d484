//! llama.cpp's answers for a model, and the differences of a run from them.
//!
//! A golden is a prompt with its tokens, and the greedy steps after it with their largest logits. All steps are
//! compared with llama.cpp's tokens as input. If the two best logits differ by less than the rounding noise, either
//! token may win.

use rustorch_tokenizer::EncodeOptions;
use serde::Deserialize;

use crate::quantize::FileType;
use crate::{LlmError, Session};

/// llama.cpp's results for a prompt.
#[derive(Clone, Debug, Deserialize)]
pub struct Golden {
    /// The prompt.
    pub prompt: String,
    /// Its tokens.
    pub ids: Vec<u32>,
    /// The greedy steps after it.
    pub steps: Vec<GoldenStep>,
}

/// A step of a [`Golden`].
#[derive(Clone, Debug, Deserialize)]
pub struct GoldenStep {
    /// The chosen token.
    pub id: u32,
    /// The largest logits and their tokens, in descending order.
    pub top: Vec<(u32, f32)>,
}

/// Limits of the differences from llama.cpp's logits.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Bounds {
    /// Two logits nearer than this may swap their order.
    pub near: f32,
    /// The largest difference.
    pub worst: f32,
    /// The mean difference.
    pub mean: f32,
}

/// Agreement of a run with llama.cpp.
#[derive(Clone, Debug, Default)]
pub struct Agreement {
    /// Steps whose token must equal llama.cpp's, and does.
    pub equal: usize,
    /// Differences from llama.cpp that exceed the bounds.
    pub mistakes: Vec<String>,
    /// The mean difference of logits.
    pub mean: f32,
    /// The largest difference of logits.
    pub worst: f32,
}

impl Golden {
    /// Goldens in their file format: one JSON object per line.
    ///
    /// # Errors
    /// Fails if a line is not a golden.
    pub fn parse(text: &str) -> Result<Vec<Self>, LlmError> {
        let parse = |(i, line)| {
            serde_json::from_str(line)
                .map_err(|e| LlmError::Input(format!("goldens, line {}: {e}", i + 1)))
        };
        text.lines().enumerate().map(parse).collect()
    }
}

impl GoldenStep {
    /// Difference of the largest logit and the next.
    pub fn margin(&self) -> f32 {
        match self.top[..] {
            [(_, first), (_, second), ..] => first - second,
            _ => f32::INFINITY,
        }
    }
}

impl Bounds {
    /// Weights in halves, activations in single precision.
    const F16: Self = Self {
        near: 0.05,
        worst: 0.03,
        mean: 0.003,
    };

    /// llama.cpp rounds activations to 8 bits, with a scale for 32 of them.
    const Q8_0: Self = Self {
        near: 0.05,
        worst: 0.15,
        mean: 0.03,
    };

    /// The mean is the CPU's (0.025). The farthest of 480 logits is at 0.17 on PoCL and at 0.11 on an NVIDIA
    /// GPU: which roundings of activations tip depends on the order of sums.
    const Q8_0_ON_GPUS: Self = Self {
        worst: 0.2,
        ..Self::Q8_0
    };

    /// With K formats llama.cpp rounds activations to 8 bits with one scale for 256. A sum in another order tips some
    /// of them to the next step, which tips more in the next layer. So the noise is as large between two settings of
    /// llama.cpp itself. llama.cpp's logits for the bundled model's prompts differ between a prompt at once and token
    /// by token. The largest differences are 0.27 (Q4_K_M), 0.32 (Q5_K_M) and 0.25 (Q6_K). With and without its
    /// repacked kernels they differ by up to 0.34 (Q4_K_M), on average by 0.046 to 0.068.
    const K_FORMATS: Self = Self {
        near: 0.35,
        worst: 0.4,
        mean: 0.075,
    };

    /// The bounds for a file type, on the CPU backend or on another one.
    pub fn of(file_type: FileType, on_cpu: bool) -> Self {
        match file_type {
            FileType::F32 | FileType::F16 | FileType::BF16 => Self::F16,
            FileType::Q8_0 if on_cpu => Self::Q8_0,
            FileType::Q8_0 => Self::Q8_0_ON_GPUS,
            _ => Self::K_FORMATS,
        }
    }
}

impl Agreement {
    /// Runs the goldens in `session`, which must have room for each.
    ///
    /// # Errors
    /// Fails if the model has no vocabulary, or if a computation fails.
    pub fn measure(
        session: &mut Session,
        goldens: &[Golden],
        bounds: &Bounds,
    ) -> Result<Self, LlmError> {
        let options = EncodeOptions {
            add_special: true,
            parse_special: false,
        };
        let mut result = Self::default();
        let (mut sum, mut count) = (0.0, 0_usize);
        for Golden { prompt, ids, steps } in goldens {
            let encoded = session.model().tokenizer()?.encode(prompt, options);
            if encoded != *ids {
                result.mistakes.push(format!(
                    "the tokens of {prompt:?} are {encoded:?}, should be {ids:?}"
                ));
            }
            session.truncate(0);
            let mut logits = Vec::new();
            session.feed(ids, &mut logits)?;
            for (i, step) in steps.iter().enumerate() {
                let chosen = largest(&logits);
                if chosen == step.id {
                    result.equal += usize::from(step.margin() >= bounds.near);
                } else if step.margin() >= bounds.near {
                    result.mistakes.push(format!(
                        "step {i} after {prompt:?} is token {chosen}, should be {}",
                        step.id
                    ));
                }
                for &(id, expected) in &step.top {
                    let given = logits.get(id as usize).copied().unwrap_or(f32::NAN);
                    let difference = (given - expected).abs();
                    sum += difference;
                    count += 1;
                    // A NaN is farthest away.
                    if difference > result.worst || difference.is_nan() {
                        result.worst = difference;
                    }
                }
                session.feed(&[step.id], &mut logits)?;
            }
        }
        result.mean = sum / count.max(1) as f32;
        Ok(result)
    }

    /// The problem, if there is one.
    pub fn problem(&self, bounds: &Bounds) -> Option<String> {
        let within = |value: f32, bound: f32| value <= bound;
        match &self.mistakes[..] {
            [] if !within(self.worst, bounds.worst) => Some(format!(
                "a logit differs by {}, more than {}",
                self.worst, bounds.worst
            )),
            [] if !within(self.mean, bounds.mean) => Some(format!(
                "logits differ by {} in the mean, more than {}",
                self.mean, bounds.mean
            )),
            [] => None,
            [one] => Some(one.clone()),
            [first, rest @ ..] => Some(format!("{first}; and {} more", rest.len())),
        }
    }
}

/// The token of the largest logit.
pub fn largest(logits: &[f32]) -> u32 {
    let best = logits.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
    best.map_or(0, |(id, _)| id as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goldens_are_read() {
        let text = r#"{"prompt":"a","ids":[0,7],"steps":[{"id":3,"top":[[3,2.5],[4,1.0]]}]}"#;
        let goldens = Golden::parse(text).unwrap();
        assert_eq!(goldens[0].ids, [0, 7]);
        assert_eq!(goldens[0].steps[0].margin(), 1.5);
        let error = Golden::parse(&format!("{text}\nx")).unwrap_err();
        assert!(error.to_string().starts_with("goldens, line 2"), "{error}");
    }

    #[test]
    fn problems_are_told() {
        let bounds = Bounds::of(FileType::Q4KM, true);
        let good = Agreement {
            equal: 5,
            mean: 0.07,
            worst: 0.4,
            ..Agreement::default()
        };
        assert_eq!(good.problem(&bounds), None);
        let with = |worst, mean| Agreement {
            worst,
            mean,
            ..Agreement::default()
        };
        for bad in [with(0.41, 0.0), with(0.1, 0.08), with(f32::NAN, f32::NAN)] {
            assert!(bad.problem(&bounds).is_some(), "{bad:?}");
        }
        let mistaken = Agreement {
            mistakes: vec!["a".to_owned(), "b".to_owned()],
            ..good
        };
        assert_eq!(mistaken.problem(&bounds).unwrap(), "a; and 1 more");
    }
}
