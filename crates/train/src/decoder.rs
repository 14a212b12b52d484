//! The model that is trained: the decoder of any description, whose parameters have the names of GGUF's tensors.

use std::collections::BTreeMap;

use rustorch::nn::{CrossEntropyLoss, Leaf, LeafMut, Module, Visit, parameter};
use rustorch_files::Tensors;
use rustorch_gguf::Metadata;
use rustorch_ir::DType;
use rustorch_llm::spec::{Mixer, ModelSpec, RecurrentSpec, Role, TensorSpec};
use rustorch_llm::{LowRank, Model, Network};
use rustorch_tensor::amp::autocast;
use rustorch_tensor::{RusTorchResult, Tensor};

use crate::{Precision, TrainError};

/// Standard deviation of first weights, as of GPT-2's.
const DEVIATION: f64 = 0.02;

/// The endings of adapters' matrices.
const LORA: [&str; 2] = [".lora_a", ".lora_b"];

/// A decoder-only transformer.
pub struct Decoder {
    /// Parameters by name, those of adapters among them.
    parameters: BTreeMap<String, Tensor>,
    /// Numbers that are not trained, by name.
    fixed: BTreeMap<String, Tensor>,
    /// Multiplier of the adapters' additions.
    scale: f64,
    network: Network,
}

impl Visit for Decoder {
    fn visit(&self, _: &str, visitor: &mut dyn FnMut(&str, Leaf)) {
        for (name, tensor) in &self.parameters {
            visitor(name, Leaf::Parameter(tensor));
        }
    }

    fn visit_mut(&mut self, _: &str, visitor: &mut dyn FnMut(&str, LeafMut)) {
        for (name, tensor) in &mut self.parameters {
            visitor(name, LeafMut::Parameter(tensor));
        }
    }
}

impl Module for Decoder {}

impl Decoder {
    /// A new model of these keys, as a file has them. Its initial weights depend only on `seed`: normal numbers,
    /// smaller ones where layers add to their input, and ones in norms. The embedding table also serves as the head.
    ///
    /// # Errors
    /// Fails if keys are missing or contradictory, or if memory cannot hold the weights.
    pub fn new(metadata: &Metadata, seed: u64) -> Result<Self, TrainError> {
        let spec = ModelSpec::of_keys(metadata)?;
        let residual = DEVIATION / (2.0 * spec.layers.len() as f64).sqrt();
        let mut tensors = spec.tensors(&[])?;
        tensors.sort_by_key(order);
        let mut stream = seed.wrapping_shl(20);
        let mut weights = Vec::with_capacity(tensors.len());
        for tensor in tensors {
            let shape = &tensor.shape[..];
            let first = match tensor.role() {
                None if is_addend(&tensor) => Tensor::zeros(shape, DType::F32)?,
                None => Tensor::ones(shape, DType::F32)?,
                Some(role) => {
                    let adds = matches!(role, Role::AttentionOutput | Role::Down);
                    stream = stream.wrapping_add(1);
                    let drawn = Tensor::randn_seeded(shape, DType::F32, stream)?;
                    drawn.mul(if adds { residual } else { DEVIATION })?
                }
            };
            weights.push((tensor, first));
        }
        Self::build(spec, weights)
    }

    /// A decoder with the weights of a model, in `f32`.
    ///
    /// # Errors
    /// Fails if a weight has an unsupported type.
    pub fn load(model: &Model) -> Result<Self, TrainError> {
        let file = rustorch_llm::Weights::new(model.gguf().clone());
        let mut weights = Vec::new();
        for tensor in model.tensors() {
            if let Some(weight) = file.opt_f32(&tensor.name, &tensor.shape)? {
                weights.push((tensor.clone(), weight));
            }
        }
        Self::build(model.spec().clone(), weights)
    }

    fn build(spec: ModelSpec, weights: Vec<(TensorSpec, Tensor)>) -> Result<Self, TrainError> {
        let (mut parameters, mut fixed) = (BTreeMap::new(), BTreeMap::new());
        for (tensor, weight) in weights {
            match tensor.is_fixed() {
                true => fixed.insert(tensor.name, weight.detach()),
                false => parameters.insert(tensor.name, parameter(weight)?),
            };
        }
        let network = network(spec, &parameters, &fixed, 0.0)?;
        Ok(Self {
            parameters,
            fixed,
            scale: 0.0,
            network,
        })
    }

    /// Puts adapters ([LoRA](https://arxiv.org/abs/2106.09685)) beside the products of all layers, and freezes
    /// everything else. Their sum is scaled by `alpha / rank`. They add nothing at first: `a` is drawn uniformly from
    /// `±1 / √inputs`, `b` is zeros.
    ///
    /// # Errors
    /// Fails for sizes too large for memory.
    pub fn adapt(&mut self, rank: usize, alpha: f64, seed: u64) -> Result<(), TrainError> {
        self.requires_grad_(false)?;
        self.scale = alpha / rank as f64;
        let mut stream = seed.wrapping_shl(20);
        let tensors = self.network.tensors().iter();
        let mut tensors: Vec<_> = tensors.filter(|tensor| tensor.is_adaptable()).collect();
        tensors.sort_by_key(|tensor| order(tensor));
        for TensorSpec { name, shape } in tensors {
            let (outputs, inputs) = (shape[0], shape[1]);
            let bound = 1.0 / (inputs as f64).sqrt();
            stream = stream.wrapping_add(1);
            let drawn = Tensor::rand_seeded([rank, inputs], DType::F32, stream)?;
            let a = drawn.mul(2.0 * bound)?.sub(bound)?;
            let b = Tensor::zeros([outputs, rank], DType::F32)?;
            for (end, matrix) in LORA.into_iter().zip([a, b]) {
                (self.parameters).insert(format!("{name}{end}"), parameter(matrix)?);
            }
        }
        let spec = self.spec().clone();
        self.network = network(spec, &self.parameters, &self.fixed, self.scale)?;
        Ok(())
    }

    /// The weights plus the adapters' additions.
    pub(crate) fn merged(&self) -> RusTorchResult<Vec<(TensorSpec, Tensor)>> {
        let additions = additions(&self.parameters, self.scale);
        let merged = |tensor: &TensorSpec| {
            let weight = self.parameters.get(&tensor.name);
            let weight = weight.or(self.fixed.get(&tensor.name))?.detach();
            let sum = additions.get(&tensor.name).map(|addition| {
                let sum = addition.matrix()?;
                weight.add(&sum)
            });
            Some(sum.unwrap_or(Ok(weight)).map(|sum| (tensor.clone(), sum)))
        };
        self.network.tensors().iter().filter_map(merged).collect()
    }

    /// The adapters' matrices, by the names that GGUF's adapters have.
    pub(crate) fn adapters(&self) -> Tensors {
        let is_adapter = |name: &str| LORA.iter().any(|end| name.ends_with(end));
        let named = self.state_dict().into_iter();
        named.filter(|(name, _)| is_adapter(name)).collect()
    }

    /// The parameters that are trained.
    pub(crate) fn trained(&self) -> Vec<(String, Tensor)> {
        let mut named = self.named_parameters();
        named.retain(|(_, tensor)| tensor.requires_grad());
        named
    }

    /// Operations of a step of sequences of `length` tokens for each token, a multiplication and an addition being two.
    /// They are those of the forward pass and of its two gradients. Weights that stay have one.
    pub(crate) fn operations_per_token(&self, length: usize) -> f64 {
        let has_head = self.parameters.contains_key("output.weight");
        let products = self.parameters.iter().map(|(name, weight)| {
            let passes = if weight.requires_grad() { 3.0 } else { 2.0 };
            let is_head = !has_head && name == "token_embd.weight";
            let is_table = Role::of(name).is_some_and(Role::is_table) && !is_head;
            match weight.rank() {
                2 | 3 if !is_table => {
                    passes * weight.numel() as f64 * self.spec().part_read(name, weight.rank())
                }
                _ => 0.0,
            }
        });
        // A token attends to half of the sequence before it, by its keys and its values.
        let layers = || self.spec().layers.iter().map(|layer| &layer.mixer);
        let widths = layers().filter_map(Mixer::attention);
        let widths = widths.map(|a| a.heads * (a.key_width + a.value_width));
        let attention = (widths.sum::<usize>() * length) as f64 / 2.0;
        let recurrent = layers().filter_map(Mixer::recurrent);
        let recurrent = recurrent.map(RecurrentSpec::multiplications);
        let recurrent = recurrent.sum::<usize>() as f64;
        2.0 * (products.sum::<f64>() + 3.0 * (attention + recurrent))
    }

    /// The model's description.
    pub fn spec(&self) -> &ModelSpec {
        self.network.spec()
    }

    /// Logits `[b, t, vocab]` of tokens `[b, t]`, integers.
    ///
    /// # Errors
    /// Fails for tokens of an unsupported shape.
    pub fn forward(&self, tokens: &Tensor) -> RusTorchResult<Tensor> {
        let logits = self.network.forward(tokens)?;
        logits.reshape([tokens.size(0)?, tokens.size(1)?, self.spec().vocab])
    }

    /// The mean loss, in nats, of the tokens that follow. `targets` is `i64` `[b, t]`; negative
    /// ones do not count.
    ///
    /// # Errors
    /// Fails for tensors of other shapes.
    pub fn loss(
        &self,
        tokens: &Tensor,
        targets: &Tensor,
        precision: Precision,
    ) -> RusTorchResult<Tensor> {
        autocast(precision.half(), || {
            let logits = self.network.forward(tokens)?;
            CrossEntropyLoss::default().forward(&logits, &targets.flatten(0, -1)?)
        })
    }
}

/// Place of a tensor in the order in which numbers are drawn: layers, each from queries to the last product, then the
/// tables.
fn order(tensor: &TensorSpec) -> (usize, Option<Role>) {
    (tensor.layer().unwrap_or(usize::MAX), tensor.role())
}

/// Returns whether it is added, so that zeros change nothing.
fn is_addend(tensor: &TensorSpec) -> bool {
    tensor.name.ends_with(".bias") || tensor.name.contains("exp_probs_b")
}

/// The additions of adapters by the names of weights.
fn additions(parameters: &BTreeMap<String, Tensor>, scale: f64) -> BTreeMap<String, LowRank> {
    let [a_end, b_end] = LORA;
    let of = |(name, a): (&String, &Tensor)| {
        let weight = name.strip_suffix(a_end)?;
        let b = parameters.get(&format!("{weight}{b_end}"))?;
        Some((weight.to_owned(), LowRank::new(a.clone(), b.clone(), scale)))
    };
    parameters.iter().filter_map(of).collect()
}

/// The network of these weights and adapters.
fn network(
    spec: ModelSpec,
    parameters: &BTreeMap<String, Tensor>,
    fixed: &BTreeMap<String, Tensor>,
    scale: f64,
) -> Result<Network, TrainError> {
    let is_weight = |(name, _): &(&String, &Tensor)| !LORA.iter().any(|end| name.ends_with(end));
    let weights = parameters.iter().chain(fixed).filter(is_weight);
    let weights = weights.map(|(name, tensor)| (name.clone(), tensor.clone()));
    let additions = additions(parameters, scale);
    Ok(Network::new(spec, &weights.collect(), additions)?)
}
