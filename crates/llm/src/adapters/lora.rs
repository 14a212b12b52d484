//! Low-rank adapters ([LoRA](https://arxiv.org/abs/2106.09685)): beside a weight `W` a product of two
//! narrow matrices, `x Wᵀ + s (x Aᵀ) Bᵀ`.

use std::collections::BTreeMap;

use rustorch_gguf::{Gguf, TensorInfo};
use rustorch_ir::DType;
use rustorch_tensor::{RusTorchResult, Tensor};
use sha2::{Digest, Sha256};

use super::{AdapterFile, hash_number};
use crate::LlmError;
use crate::file_tensor::file_tensor;
use crate::keys::Keys;
use crate::spec::Role;

/// An adapter's addition to a weight: `scale · (x · aᵀ) · bᵀ`.
#[derive(Clone)]
pub struct LowRank {
    /// `[rank, inputs]`; of an embedding table `[vocab, rank]`; of experts `[experts, rank, inputs]`.
    a: Tensor,
    /// `[outputs, rank]`; of experts `[experts, outputs, rank]`.
    b: Tensor,
    scale: f64,
}

impl LowRank {
    /// The addition of `a` `[rank, inputs]` and `b` `[outputs, rank]`; of experts each has the number of experts before
    /// these.
    pub fn new(a: Tensor, b: Tensor, scale: f64) -> Self {
        Self { a, b, scale }
    }

    /// The sum that is added to the weight's own, `[outputs, inputs]`; of experts `[experts, outputs, inputs]`.
    ///
    /// # Errors
    /// Fails if the operands' shapes do not fit.
    pub fn matrix(&self) -> RusTorchResult<Tensor> {
        self.b.detach().matmul(&self.a.detach())?.mul(self.scale)
    }

    /// To the product with the rows `x` `[t, inputs]`: `[t, outputs]`.
    pub(crate) fn product(&self, x: &Tensor) -> RusTorchResult<Tensor> {
        self.widened(&x.linear(&self.a, None)?)
    }

    /// To the products of the experts `ids` `[t, used]` with `x` `[t, 1 or used, inputs]`: `[t, used, outputs]`.
    pub(crate) fn expert_product(&self, x: &Tensor, ids: &Tensor) -> RusTorchResult<Tensor> {
        let narrow = x.expert_linear(&self.a, ids)?;
        narrow.mul(self.scale)?.expert_linear(&self.b, ids)
    }

    /// To the rows of a table, of `f32`, that `tokens` `[t]` name: `[t, width]`.
    pub(crate) fn rows(&self, tokens: &Tensor) -> RusTorchResult<Tensor> {
        self.widened(&self.a.embedding_as(tokens, DType::F32)?)
    }

    fn widened(&self, narrow: &Tensor) -> RusTorchResult<Tensor> {
        narrow.mul(self.scale)?.linear(&self.b, None)
    }
}

/// An adapter that fits a model.
#[derive(Clone)]
pub(super) struct Lora {
    file: AdapterFile,
    alpha: f32,
    /// Additions by the names of weights.
    additions: BTreeMap<String, LowRank>,
}

/// One of the two matrices of an adapter.
#[derive(Clone, Copy)]
enum Side {
    A,
    B,
}

impl Side {
    const ALL: [Self; 2] = [Self::A, Self::B];

    fn suffix(self) -> &'static str {
        match self {
            Self::A => ".lora_a",
            Self::B => ".lora_b",
        }
    }

    /// The weight that a tensor of this name belongs to, and its side.
    fn split(name: &str) -> Option<(&str, Self)> {
        let mut sides = Self::ALL.into_iter();
        sides.find_map(|side| Some((name.strip_suffix(side.suffix())?, side)))
    }
}

/// The tensors of a weight, as far as they were found.
type Pair<'f> = [Option<&'f TensorInfo>; 2];

impl Lora {
    /// The adapter in a file, for the model of these keys.
    ///
    /// # Errors
    /// Fails if the file is not an adapter, or is for another model.
    pub(super) fn load(file: &AdapterFile, keys: &Keys) -> Result<Self, LlmError> {
        file.check_scale()?;
        let alpha = check_header(file, keys.prefix)?;
        let mut additions = BTreeMap::new();
        for (weight, pair) in pairs(file)? {
            let of = Addition { file, weight };
            let addition = of.load(pair, alpha, keys.gguf)?;
            additions.insert(weight.to_owned(), addition);
        }
        if additions.is_empty() {
            return Err(file.wrong("no tensors NAME.lora_a and NAME.lora_b: it changes nothing"));
        }
        Ok(Self {
            file: file.clone(),
            alpha,
            additions,
        })
    }

    /// Does it change nothing?
    pub(super) fn is_nothing(&self) -> bool {
        self.file.scale == 0.0
    }

    pub(super) fn get(&self, weight: &str) -> Option<&LowRank> {
        self.additions.get(weight)
    }

    pub(super) fn check_all_used(&self, used: impl Fn(&str) -> bool) -> Result<(), LlmError> {
        match self.additions.keys().find(|weight| !used(weight)) {
            Some(weight) => {
                let problem =
                    format!("tensor {weight}.lora_a: the model multiplies with no {weight}");
                Err(self.file.wrong(problem))
            }
            None => Ok(()),
        }
    }

    /// The tensors that are used.
    pub(super) fn tensors(&self) -> impl Iterator<Item = &TensorInfo> {
        let all = self.file.gguf.tensors().iter();
        all.filter(|tensor| Side::split(&tensor.name).is_some())
    }

    pub(super) fn hash(&self, hash: &mut Sha256) {
        hash_number(hash, self.file.scale);
        hash_number(hash, self.alpha);
        for tensor in self.tensors() {
            let TensorInfo { name, dims, ty, .. } = tensor;
            hash.update(format!("{name} {dims:?} {}\n", ty.name()));
            hash.update(self.file.gguf.data(tensor));
        }
    }
}

/// Checks a file's header, for a model of this architecture. Returns `alpha`, which is 0 if scales are
/// not divided by the rank.
fn check_header(file: &AdapterFile, architecture: &str) -> Result<f32, LlmError> {
    let metadata = &file.gguf.metadata;
    let text = |key: &str| metadata.opt_str(key).map_err(|e| file.wrong(e));
    if text("general.type")? != Some("adapter") {
        return Err(file.wrong(
            "not an adapter (its general.type is another): models are opened with -m, control \
             vectors with --control-vector",
        ));
    }
    match text("adapter.type")? {
        Some("lora") => {}
        other => {
            let kind = other.unwrap_or("none");
            return Err(file.wrong(format!(
                "adapter.type is {kind:?}, of which lora is supported"
            )));
        }
    }
    match text("general.architecture")? {
        Some(own) if own == architecture => {}
        own => {
            let own = own.unwrap_or("no architecture").escape_debug();
            let problem = format!("an adapter for {own}, but the model is {architecture}");
            return Err(file.wrong(problem));
        }
    }
    if metadata.get("adapter.alora.invocation_tokens").is_some() {
        return Err(file.wrong(
            "an activated LoRA, which waits for its invocation tokens: only adapters that always \
             work are supported",
        ));
    }
    let alpha = metadata
        .opt_f32("adapter.lora.alpha")
        .map_err(|e| file.wrong(e))?;
    match alpha.unwrap_or(0.0) {
        alpha if alpha.is_finite() => Ok(alpha),
        alpha => Err(file.wrong(format!("adapter.lora.alpha is {alpha}"))),
    }
}

/// The tensors of a file by the weights that they belong to.
fn pairs(file: &AdapterFile) -> Result<BTreeMap<&str, Pair<'_>>, LlmError> {
    let mut pairs: BTreeMap<&str, Pair> = BTreeMap::new();
    for tensor in file.gguf.tensors() {
        match Side::split(&tensor.name) {
            Some((weight, side)) => pairs.entry(weight).or_default()[side as usize] = Some(tensor),
            None if tensor.name.ends_with("_norm.weight") => tracing::warn!(
                "{}: ignoring tensor {}: adapters of norms have no effect, as in llama.cpp",
                file.name,
                tensor.name
            ),
            None => {
                let problem = "neither NAME.lora_a nor NAME.lora_b";
                let name = tensor.name.escape_debug();
                return Err(file.wrong(format!("tensor {name}: {problem}")));
            }
        }
    }
    Ok(pairs)
}

/// A file's additions to a weight of the model.
struct Addition<'f> {
    file: &'f AdapterFile,
    weight: &'f str,
}

impl Addition<'_> {
    fn wrong(&self, side: Side, problem: impl std::fmt::Display) -> LlmError {
        let (weight, suffix) = (self.weight.escape_debug(), side.suffix());
        self.file
            .wrong(format!("tensor {weight}{suffix}: {problem}"))
    }

    fn load(&self, pair: Pair, alpha: f32, model: &Gguf) -> Result<LowRank, LlmError> {
        let missing = |side: Side, other: Side| {
            self.wrong(side, format_args!("there is no {} to it", other.suffix()))
        };
        let (a, b) = match pair {
            [Some(a), Some(b)] => (a, b),
            [Some(_), None] => return Err(missing(Side::A, Side::B)),
            _ => return Err(missing(Side::B, Side::A)),
        };
        let weight = model.tensor(self.weight).ok_or_else(|| {
            let hint = "it belongs to another model";
            self.wrong(
                Side::A,
                format_args!("the model has no {}; {hint}", self.weight.escape_debug()),
            )
        })?;
        let rank = self.check_shapes(&a.shape(), &b.shape(), &weight.shape())?;
        let scale = f64::from(self.file.scale);
        Ok(LowRank {
            a: self.tensor(Side::A, a)?,
            b: self.tensor(Side::B, b)?,
            scale: match alpha {
                0.0 => scale,
                alpha => scale * f64::from(alpha) / rank as f64,
            },
        })
    }

    /// Returns the rank.
    fn check_shapes(&self, a: &[usize], b: &[usize], weight: &[usize]) -> Result<usize, LlmError> {
        // The adapter of a table lies the other way round, as its rows are looked up.
        let is_embedding = Role::of(self.weight) == Some(Role::TokenEmbedding);
        let fits = match (a, b, weight) {
            ([vocab, rank], [width, other], [rows, columns]) if is_embedding => {
                vocab == rows && width == columns && rank == other
            }
            ([rank, inputs], [outputs, other], [rows, columns]) => {
                inputs == columns && outputs == rows && rank == other
            }
            ([count, rank, inputs], [same, outputs, other], [experts, rows, columns]) => {
                inputs == columns
                    && outputs == rows
                    && rank == other
                    && [count, same] == [experts; 2]
            }
            _ => false,
        };
        let expected = match (weight, is_embedding) {
            ([experts, rows, columns], _) => {
                format!("[{experts}, r, {columns}] and [{experts}, {rows}, r]")
            }
            ([rows, columns], true) => format!("[{rows}, r] and [{columns}, r]"),
            ([rows, columns], false) => format!("[r, {columns}] and [{rows}, r]"),
            _ => "a matrix".to_owned(),
        };
        match b {
            [.., rank] if fits => Ok(*rank),
            _ => Err(self.wrong(
                Side::A,
                format_args!(
                    "it is {a:?}, and its .lora_b {b:?}; for {weight:?} of the model, {expected} \
                     is expected: it belongs to another model"
                ),
            )),
        }
    }

    fn tensor(&self, side: Side, info: &TensorInfo) -> Result<Tensor, LlmError> {
        let tensor = file_tensor(&self.file.gguf, info).map_err(|e| self.file.wrong(e))?;
        match tensor.dtype() {
            DType::F32 | DType::F16 | DType::BF16 | DType::Block(_) => Ok(tensor),
            other => Err(self.wrong(side, format_args!("{other} cannot be multiplied with"))),
        }
    }
}
