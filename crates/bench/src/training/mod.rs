//! Training steps as programs: samples per second, and times of a step's launches.

mod gpt2;
mod launches;
mod resnet;

use std::time::Instant;

use rustorch::nn::Module;
use rustorch::optim::{AdamW, AdamWOptions};
use rustorch::train::TrainStep;
use rustorch_ir::DType;
use rustorch_tensor::amp::autocast;
use rustorch_tensor::{RusTorchResult, Tensor, manual_seed, runtime};
use serde::Serialize;

pub use gpt2::Gpt2;
pub use launches::Launch;
use launches::Launches;
use resnet::ResNet;

/// Steps before those that are measured: the first two have their own programs, and devices record
/// theirs next.
const WARM_UP: usize = 5;
/// Number of steps whose losses are reported.
const TOLD: usize = 3;
/// Number of steps whose launches are timed. A device that replays programs makes as many launch by launch
/// first.
const WATCHED: usize = 2;

/// Numbers of a head of attention.
const HEAD: usize = 64;

/// Network that is trained, on random samples.
#[derive(Clone, Copy, Debug)]
enum Network {
    /// Layers, width, vocabulary size.
    Gpt2 {
        layers: usize,
        width: usize,
        vocabulary: usize,
    },
    /// Blocks of each stage, and whether they are bottlenecks.
    ResNet {
        blocks: [usize; 4],
        is_deep: bool,
        classes: usize,
    },
}

/// A recipe of a training to measure.
#[derive(Clone, Copy, Debug)]
pub struct Recipe {
    /// Name of the recipe.
    pub name: &'static str,
    network: Network,
    /// Batch size.
    pub batch: usize,
    /// Tokens of a sample, or the side of a square picture.
    pub length: usize,
    /// Precision of products: `f32`, or `bf16` and `f16` by autocast.
    pub precision: DType,
    /// Memory limit of a step, in bytes: see [`TrainStep::memory_budget`].
    pub memory: Option<usize>,
    /// See [`TrainStep::offload_activations`].
    pub offloads: bool,
}

const fn gpt2(name: &'static str, layers: usize, width: usize) -> Recipe {
    Recipe {
        name,
        network: Network::Gpt2 {
            layers,
            width,
            // GPT-2's 50257, and as many as make a multiple of 128.
            vocabulary: 50304,
        },
        batch: 8,
        length: 1024,
        precision: DType::BF16,
        memory: None,
        offloads: false,
    }
}

/// All recipes.
pub const RECIPES: [Recipe; 5] = [
    gpt2("gpt2-124m", 12, 768),
    gpt2("gpt2-1.5b", 48, 1600),
    Recipe {
        name: "gpt2-20m",
        network: Network::Gpt2 {
            layers: 6,
            width: 384,
            vocabulary: 24576,
        },
        batch: 4,
        length: 256,
        precision: DType::F32,
        memory: None,
        offloads: false,
    },
    Recipe {
        name: "resnet-50",
        network: Network::ResNet {
            blocks: [3, 4, 6, 3],
            is_deep: true,
            classes: 1000,
        },
        batch: 256,
        length: 224,
        precision: DType::BF16,
        memory: None,
        offloads: false,
    },
    Recipe {
        name: "resnet-18",
        network: Network::ResNet {
            blocks: [2; 4],
            is_deep: false,
            classes: 1000,
        },
        batch: 8,
        length: 64,
        precision: DType::F32,
        memory: None,
        offloads: false,
    },
];

/// Measurements of a training run.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Trained {
    /// The recipe.
    pub name: &'static str,
    /// Batch size.
    pub batch: usize,
    /// Tokens of a sample, or the side of a square picture.
    pub length: usize,
    /// Precision of products.
    pub precision: String,
    /// Number of parameters.
    pub parameters: usize,
    /// The time of the first steps, with planning and compiling.
    pub first_seconds: f64,
    /// The time of each step after these.
    pub seconds: f64,
    /// Unit of the speed: `tokens` or `images`.
    pub unit: &'static str,
    /// Number of units per second.
    pub per_second: f64,
    /// Peak bytes of a step: parameters, states, and working memory.
    pub peak_bytes: u64,
    /// Bytes of offloaded values.
    pub offloaded_bytes: u64,
    /// Losses of the first steps.
    pub losses: Vec<f64>,
    /// Launches of a step, the longest first; empty if they were not timed.
    pub launches: Vec<Launch>,
}

impl Recipe {
    /// The recipe with a name.
    pub fn named(name: &str) -> Option<&'static Self> {
        RECIPES.iter().find(|recipe| recipe.name == name)
    }

    /// Makes `steps` steps and measures them, on the current thread's runtime: AdamW, and gradients whose norm is
    /// clipped.
    ///
    /// # Errors
    /// Fails if the device lacks the operation or has too little memory.
    pub fn measure(&self, steps: usize, watches: bool) -> RusTorchResult<Trained> {
        manual_seed(0);
        let (batch, length) = (self.batch, self.length);
        match self.network {
            Network::Gpt2 {
                layers,
                width,
                vocabulary,
            } => {
                let tokens =
                    Tensor::randint(0, vocabulary as i64, [batch, length + 1], DType::I64)?;
                let model = Gpt2::new(layers, width, width / HEAD, vocabulary, length)?;
                let loss = |model: &Gpt2, batch: &[Tensor]| model.loss(&batch[0]);
                self.train(model, loss, &[tokens], steps, watches)
            }
            Network::ResNet {
                blocks,
                is_deep,
                classes,
            } => {
                let images = Tensor::randn([batch, 3, length, length], DType::F32)?;
                let labels = Tensor::randint(0, classes as i64, [batch], DType::I64)?;
                let model = ResNet::new(blocks, is_deep, classes)?;
                let loss = |model: &ResNet, batch: &[Tensor]| model.loss(&batch[0], &batch[1]);
                self.train(model, loss, &[images, labels], steps, watches)
            }
        }
    }

    fn train<M: Module>(
        &self,
        model: M,
        loss: impl Fn(&M, &[Tensor]) -> RusTorchResult<Tensor> + Send + Sync + 'static,
        samples: &[Tensor],
        steps: usize,
        watches: bool,
    ) -> RusTorchResult<Trained> {
        let precision = self.precision;
        let parameters = model.parameters().iter().map(Tensor::numel).sum();
        let options = AdamWOptions::default().lr(3e-4).betas((0.9, 0.95));
        let adam = AdamW::new(model.named_parameters(), options.weight_decay(0.1))?;
        let mut train = TrainStep::new(model, adam, move |model: &M, batch| match precision {
            DType::F32 => loss(model, batch),
            half => autocast(half, || loss(model, batch)),
        })
        .clip_grad_norm(1.0, 2.0)?
        .with_checked_values();
        if let Some(bytes) = self.memory {
            train = train.memory_budget(bytes);
        }
        if self.offloads {
            train = train.offload_activations();
        }
        let samples: Vec<&Tensor> = samples.iter().collect();

        let start = Instant::now();
        let mut losses = Vec::with_capacity(TOLD);
        for step in 0..WARM_UP {
            let loss = train.step(&samples)?.item()?;
            if step < TOLD {
                losses.push(loss);
            }
        }
        let first_seconds = start.elapsed().as_secs_f64();
        let steps = steps.max(1);
        let start = Instant::now();
        for _ in 1..steps {
            train.step(&samples)?;
        }
        train.step(&samples)?.item()?;
        let seconds = start.elapsed().as_secs_f64() / steps as f64;

        let memory = train.memory(&samples)?;
        let mut launches = Vec::new();
        if watches {
            let watched = Launches::watch(&runtime());
            for _ in 0..WATCHED {
                train.step(&samples)?.item()?;
            }
            launches = watched.of_each(WATCHED);
        }
        let (unit, each) = match self.network {
            Network::Gpt2 { .. } => ("tokens", self.length),
            Network::ResNet { .. } => ("images", 1),
        };
        Ok(Trained {
            name: self.name,
            batch: self.batch,
            length: self.length,
            precision: precision.to_string(),
            parameters,
            first_seconds,
            seconds,
            unit,
            per_second: (self.batch * each) as f64 / seconds,
            peak_bytes: memory.peak() as u64,
            offloaded_bytes: memory.offloaded() as u64,
            losses,
            launches,
        })
    }
}
