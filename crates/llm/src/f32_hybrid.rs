//! Models under the rules of the f32 hybrid: activations, keys and values in `f32` on all devices.
//! Also a measurement of the savings.

use std::fmt;
use std::time::{Duration, Instant};

use rustorch_gguf::GgmlType;
use rustorch_ir::DType;
use rustorch_runtime::{DeviceType, Routing, Runtime};
use rustorch_tensor::Activity;

use crate::{LlmError, Model, Session, SessionOptions};

impl SessionOptions {
    /// Settings that compute `model` in `f32`, with each operation where the f32 hybrid's rules
    /// send it. Weights are read in place, in their type.
    ///
    /// # Errors
    /// Fails for weights in `f64`, which are never rounded without being asked.
    pub fn f32_hybrid(model: &Model) -> Result<Self, LlmError> {
        let mut weights = model.gguf().tensors().iter();
        match weights.find(|tensor| tensor.ty == GgmlType::F64) {
            Some(tensor) => Err(LlmError::Weight {
                name: tensor.name.clone(),
                problem: "it is f64, and the f32 hybrid converts nothing unasked: make an f32 \
                          file of it (rustorch-cli quantize IN OUT F32), or choose another backend"
                    .to_owned(),
            }),
            None => Ok(Self {
                cache_dtype: DType::F32,
                routing: Routing::F32_HYBRID,
                ..Self::default()
            }),
        }
    }
}

/// Dtypes of values in the runs that [`F32Comparison::measure`] compares.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum F32Variant {
    /// All values in `f32`.
    F32,
    /// Keys and values in `f16`, as in other backends; everything else in `f32`.
    HalfCache,
    /// Values between devices are converted to `f16` and back, as if the devices had no common dtype.
    Converting,
}

impl F32Variant {
    /// All variants.
    pub const ALL: [Self; 3] = [Self::F32, Self::HalfCache, Self::Converting];

    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "hybrid-f32",
            Self::HalfCache => "f16 cache",
            Self::Converting => "converting",
        }
    }

    fn options(self, hybrid: &SessionOptions) -> SessionOptions {
        let hybrid = hybrid.clone();
        match self {
            Self::F32 => hybrid,
            Self::HalfCache => SessionOptions {
                cache_dtype: DType::F16,
                ..hybrid
            },
            Self::Converting => SessionOptions {
                converting: Some(DType::F16),
                ..hybrid
            },
        }
    }
}

/// Size of the measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct F32Workload {
    /// Tokens of the prompt, which go through the model together.
    pub prompt: usize,
    /// Tokens that are generated after it, one by one.
    pub generate: usize,
    /// Number of repetitions of both.
    pub repetitions: usize,
}

impl Default for F32Workload {
    fn default() -> Self {
        Self {
            prompt: 128,
            generate: 16,
            repetitions: 5,
        }
    }
}

/// Time and counters of a pass through the model.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct F32Pass {
    /// The median over all such passes.
    pub time: Duration,
    /// Conversions and copies of the last pass.
    pub activity: Activity,
}

/// Measurements of one variant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct F32Measured {
    /// The variant.
    pub variant: F32Variant,
    /// The prompt, in one pass.
    pub prompt: F32Pass,
    /// A generated token.
    pub token: F32Pass,
    /// Bytes of both programs' working memory: intermediate values, and values passed between
    /// devices.
    pub working_bytes: usize,
    /// Bytes of keys and values.
    pub cache_bytes: usize,
}

/// The f32 hybrid compared with runs that convert: measured in turns, in one process, on the same
/// devices.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct F32Comparison {
    /// The workload.
    pub workload: F32Workload,
    /// The devices that computed.
    pub devices: Vec<DeviceType>,
    /// Measurements, one for each [`F32Variant`].
    pub measured: Vec<F32Measured>,
}

/// A variant that is being measured.
struct Runner<'m> {
    variant: F32Variant,
    session: Session<'m>,
    prompts: Vec<Duration>,
    tokens: Vec<Duration>,
    last: [Activity; 2],
}

impl Runner<'_> {
    /// Feeds the prompt to an empty session, or one token.
    fn pass(&mut self, runtime: &Runtime, ids: &[u32], is_prompt: bool) -> Result<(), LlmError> {
        let (times, last) = match is_prompt {
            true => (&mut self.prompts, &mut self.last[0]),
            false => (&mut self.tokens, &mut self.last[1]),
        };
        if is_prompt {
            self.session.truncate(0);
        }
        let (before, start) = (Activity::of(runtime), Instant::now());
        self.session.feed(ids, &mut Vec::new())?;
        times.push(start.elapsed());
        *last = Activity::of(runtime).since(before);
        Ok(())
    }

    /// Forgets the times so far.
    fn clear(&mut self) {
        self.prompts.clear();
        self.tokens.clear();
    }

    fn measured(self) -> F32Measured {
        let pass = |times: Vec<Duration>, activity| F32Pass {
            time: median(times),
            activity,
        };
        F32Measured {
            variant: self.variant,
            prompt: pass(self.prompts, self.last[0]),
            token: pass(self.tokens, self.last[1]),
            working_bytes: self.session.working_bytes(),
            cache_bytes: self.session.cache_bytes(),
        }
    }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

impl F32Comparison {
    /// Runs `model` on the devices of `runtime` in all variants. They take turns with every pass,
    /// so that other work of the machine affects all of them. The first repetition does not count.
    /// `routing` is that of an f32 hybrid; it may exclude devices.
    ///
    /// # Errors
    /// The same errors as [`SessionOptions::f32_hybrid`] and [`Session::feed`]. Also fails for a
    /// workload without a prompt or repetitions, or one that does not fit the model's context.
    pub fn measure(
        model: &Model,
        runtime: &Runtime,
        routing: Routing,
        workload: F32Workload,
    ) -> Result<Self, LlmError> {
        if workload.prompt == 0 || workload.repetitions == 0 {
            return Err(LlmError::Input(
                "a comparison needs a prompt of 1 token or more, and 1 repetition or more"
                    .to_owned(),
            ));
        }
        let hybrid = SessionOptions {
            context: workload.prompt + workload.generate,
            batch: workload.prompt,
            routing,
            ..SessionOptions::f32_hybrid(model)?
        };
        let mut runners = Vec::new();
        for variant in F32Variant::ALL {
            runners.push(Runner {
                variant,
                session: Session::new(model, runtime, variant.options(&hybrid))?,
                prompts: Vec::new(),
                tokens: Vec::new(),
                last: Default::default(),
            });
        }
        // The choice of tokens makes no difference to the time.
        let vocab = model.spec().vocab;
        let ids: Vec<u32> = (0..workload.prompt + workload.generate)
            .map(|i| (i * 7 % vocab) as u32)
            .collect();
        let (prompt, generated) = ids.split_at(workload.prompt);
        for repetition in 0..=workload.repetitions {
            for (i, ids) in [prompt].into_iter().chain(generated.chunks(1)).enumerate() {
                for runner in &mut runners {
                    runner.pass(runtime, ids, i == 0)?;
                }
                // No runner is always the first.
                runners.rotate_left(1);
            }
            if repetition == 0 {
                runners.iter_mut().for_each(Runner::clear);
            }
        }
        let mut measured: Vec<_> = runners.into_iter().map(Runner::measured).collect();
        measured.sort_by_key(|m| F32Variant::ALL.iter().position(|v| *v == m.variant));
        let used = runtime.used_devices().into_iter();
        Ok(Self {
            workload,
            devices: used.map(|(device, _)| device).collect(),
            measured,
        })
    }

    /// Measurements of a variant.
    pub fn of(&self, variant: F32Variant) -> Option<&F32Measured> {
        self.measured.iter().find(|m| m.variant == variant)
    }

    /// The share of a variant's time, for prompt and generated tokens together, that the f32 hybrid
    /// saves. It is negative if the f32 hybrid takes longer. `None` if the variant did the same
    /// work. One device alone, for example, converts nothing for another.
    pub fn time_saved(&self, than: F32Variant) -> Option<f64> {
        let seconds = |m: &F32Measured| {
            let tokens = m.token.time * self.workload.generate as u32;
            (m.prompt.time + tokens).as_secs_f64()
        };
        self.saved(than, seconds)
    }

    /// The share of a variant's memory, working memory and cache together, that the f32 hybrid
    /// saves. It is negative if the f32 hybrid needs more. Weights are the same for all variants.
    /// `None` as for [`Self::time_saved`].
    pub fn memory_saved(&self, than: F32Variant) -> Option<f64> {
        self.saved(than, |m| (m.working_bytes + m.cache_bytes) as f64)
    }

    fn saved(&self, than: F32Variant, amount: impl Fn(&F32Measured) -> f64) -> Option<f64> {
        let (mine, other) = (self.of(F32Variant::F32)?, self.of(than)?);
        let did = |m: &F32Measured| [m.prompt.activity, m.token.activity];
        (did(mine) != did(other)).then(|| 1.0 - amount(mine) / amount(other))
    }
}

impl fmt::Display for F32Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let F32Workload {
            prompt,
            generate,
            repetitions,
        } = self.workload;
        let devices: Vec<String> = self.devices.iter().map(DeviceType::to_string).collect();
        writeln!(
            f,
            "prompt of {prompt} tokens, {generate} generated, medians of {repetitions} rounds in \
             turns, on {}",
            devices.join(" and ")
        )?;
        for m in &self.measured {
            writeln!(
                f,
                "{:<10}  prompt {:.2?} ({}), token {:.2?} ({}), works in {} KiB, cache {} KiB",
                m.variant.name(),
                m.prompt.time,
                m.prompt.activity,
                m.token.time,
                m.token.activity,
                m.working_bytes / 1024,
                m.cache_bytes / 1024,
            )?;
        }
        for than in [F32Variant::Converting, F32Variant::HalfCache] {
            write!(f, "against {}: ", than.name())?;
            match (self.time_saved(than), self.memory_saved(than)) {
                (Some(time), Some(memory)) => writeln!(
                    f,
                    "{:.1} % of the time and {:.1} % of the memory saved",
                    100.0 * time,
                    100.0 * memory
                )?,
                _ => writeln!(f, "nothing to convert, for one device computes everything")?,
            }
        }
        Ok(())
    }
}
