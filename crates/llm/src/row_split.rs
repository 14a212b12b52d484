//! Weights divided among ranks (Megatron's [tensor parallelism](https://arxiv.org/abs/1909.08053)).
//!
//! A rank has some of the heads and some of the features between products. The first products of attention and of a
//! feed-forward part give its heads and features alone. Their last products give an addend of the whole, so that each
//! part ends with a sum over the ranks. The role of a tensor says how it is divided.

use rustorch_gguf::Gguf;
use rustorch_ir::DType;
use rustorch_runtime::{HostBuffer, Storage};
use rustorch_tensor::Tensor;
use rustorch_tensor::distributed::CommunicationGroup;

use crate::LlmError;
use crate::file_tensor::file_tensor;
use crate::spec::{
    Activation, AttentionSpec, DenseSpec, Gate, LayerSpec, Mixer, ModelSpec, NormedOver, Role,
    layer_of,
};
use crate::weights::{Source, wrong_shape};

/// The division of a model's weights among the ranks of a group.
#[derive(Clone, Debug)]
pub struct RowSplit {
    group: CommunicationGroup,
}

impl RowSplit {
    /// The division among these ranks. All load the same model, and make the same passes.
    pub fn new(group: &CommunicationGroup) -> Self {
        Self {
            group: group.clone(),
        }
    }

    /// The ranks.
    pub fn group(&self) -> &CommunicationGroup {
        &self.group
    }

    /// The description of a rank's part.
    ///
    /// # Errors
    /// The ranks cannot divide the heads or features, or a part that has no division.
    pub(crate) fn part(&self, spec: &ModelSpec) -> Result<ModelSpec, LlmError> {
        let mut part = spec.clone();
        let ranks = self.group.size();
        if !spec.makes_texts() {
            return Err(LlmError::not_causal("a row split of", spec));
        }
        for (at, layer) in part.layers.iter_mut().enumerate() {
            divide(layer, ranks).map_err(|problem| {
                LlmError::Input(format!(
                    "--split-mode row: {ranks} ranks cannot divide layer {at}: {problem}"
                ))
            })?;
        }
        Ok(part)
    }
}

/// Leaves a rank's part of a layer.
fn divide(layer: &mut LayerSpec, ranks: usize) -> Result<(), String> {
    match &mut layer.mixer {
        Mixer::Attention(attention) => divide_attention(attention, ranks)?,
        Mixer::Recurrent(_) | Mixer::Sum(..) => {
            return Err("recurrences have no division yet".to_owned());
        }
        Mixer::Linear => return Err("it has no attention".to_owned()),
        Mixer::None => {}
    }
    if layer.ffn.experts.is_some() || layer.input_experts.is_some() {
        return Err("experts have no division yet".to_owned());
    }
    match &mut layer.ffn.dense {
        Some(dense) => divide_dense(dense, ranks),
        None => Ok(()),
    }
}

fn divide_attention(attention: &mut AttentionSpec, ranks: usize) -> Result<(), String> {
    let norms = [&attention.query_norm, &attention.key_norm];
    let is_of_one = |over| matches!(over, NormedOver::Head);
    if norms
        .into_iter()
        .flatten()
        .any(|norm| !is_of_one(norm.over))
    {
        return Err("a norm of queries or keys is over several heads".to_owned());
    }
    if attention.latent.is_some() {
        return Err("latent attention has no division yet".to_owned());
    }
    if attention.inner_norm.is_some() {
        return Err("a norm is over the results of all heads".to_owned());
    }
    if attention.alibi.is_some() || attention.distances.is_some() {
        return Err("biases of positions differ between its heads".to_owned());
    }
    let heads = [&mut attention.heads, &mut attention.kv_heads];
    let names = ["heads", "key-value heads"];
    for (count, name) in heads.into_iter().zip(names) {
        *count = quotient(*count, ranks, name)?;
    }
    Ok(())
}

fn divide_dense(dense: &mut DenseSpec, ranks: usize) -> Result<(), String> {
    if dense.inner_norm.is_some() {
        return Err("a norm is over all features of the feed-forward part".to_owned());
    }
    if matches!(dense.activation, Activation::GeluSparse { .. }) {
        return Err("an activation is over all features of the feed-forward part".to_owned());
    }
    dense.width = quotient(dense.width, ranks, "features of the feed-forward part")?;
    Ok(())
}

fn quotient(count: usize, ranks: usize, name: &str) -> Result<usize, String> {
    match count.is_multiple_of(ranks) {
        true => Ok(count / ranks),
        false => Err(format!(
            "it has {count} {name}; take a number of ranks that divides them"
        )),
    }
}

/// The part of a tensor that a rank has.
enum Cut {
    Whole,
    /// Its share of each of some blocks of rows, of these lengths.
    Rows(Vec<usize>),
    Columns,
}

/// A rank's part of the tensors of a file.
pub(crate) struct Parts<'a> {
    pub(crate) gguf: &'a Gguf,
    /// The description of the whole model.
    pub(crate) whole: &'a ModelSpec,
    pub(crate) split: &'a RowSplit,
}

impl Parts<'_> {
    /// How the tensor `name` of this shape is divided.
    fn cut(&self, name: &str, shape: &[usize]) -> Cut {
        let rows = || Cut::Rows(shape.first().copied().into_iter().collect());
        let Some(layer) = layer_of(name).and_then(|layer| self.whole.layers.get(layer)) else {
            return Cut::Whole;
        };
        let (stem, is_bias) = match name.strip_suffix(".bias") {
            Some(stem) => (stem, true),
            None => (name.strip_suffix(".weight").unwrap_or(name), false),
        };
        let attention = layer.mixer.attention();
        let is_fused = (layer.ffn.dense.as_ref()).is_some_and(|dense| dense.gate == Gate::Fused);
        match (Role::of(&format!("{stem}.weight")), attention) {
            (Some(Role::QueriesKeysValues), Some(a)) => Cut::Rows(vec![
                a.heads * a.key_width,
                a.kv_heads * a.key_width,
                a.kv_heads * a.value_width,
            ]),
            (Some(Role::Up), _) if is_fused => Cut::Rows(vec![shape[0] / 2; 2]),
            (
                Some(
                    Role::Queries
                    | Role::Keys
                    | Role::Values
                    | Role::AttentionGate
                    | Role::Gate
                    | Role::Up,
                ),
                _,
            ) => rows(),
            (Some(Role::AttentionOutput | Role::Down), _) if !is_bias => Cut::Columns,
            _ if stem.ends_with("attn_sinks") || stem.ends_with("ffn.act.scales") => rows(),
            _ => Cut::Whole,
        }
    }

    /// The shape of a rank's part.
    fn part_of(&self, name: &str, shape: &[usize]) -> Vec<usize> {
        let ranks = self.split.group.size();
        let mut part = shape.to_vec();
        match self.cut(name, shape) {
            Cut::Whole => {}
            Cut::Rows(_) => part[0] /= ranks,
            Cut::Columns => part[shape.len() - 1] /= ranks,
        }
        part
    }

    /// The bytes of this rank's part of a tensor of `shape`, whose elements are `data`.
    fn bytes(
        &self,
        name: &str,
        shape: &[usize],
        dtype: DType,
        data: &[u8],
    ) -> Result<Vec<u8>, LlmError> {
        let (rank, ranks) = (self.split.group.rank(), self.split.group.size());
        let row = data.len() / shape[0].max(1);
        let mut part = Vec::with_capacity(data.len() / ranks);
        match self.cut(name, shape) {
            Cut::Whole => part.extend_from_slice(data),
            Cut::Rows(blocks) => {
                let mut start = 0;
                for rows in blocks {
                    let own = rows / ranks;
                    part.extend_from_slice(&data[(start + rank * own) * row..][..own * row]);
                    start += rows;
                }
            }
            Cut::Columns => {
                let columns = shape[shape.len() - 1];
                let block = match dtype {
                    DType::Block(format) => format.block_len(),
                    _ => 1,
                };
                if !columns.is_multiple_of(ranks * block) {
                    let problem = format!(
                        "--split-mode row: {ranks} ranks cannot divide its {columns} columns, which are in blocks of \
                         {block}; take fewer ranks"
                    );
                    return Err(LlmError::Input(format!("{name}: {problem}")));
                }
                let own = row / ranks;
                let parts = data.chunks_exact(row).map(|row| &row[rank * own..][..own]);
                parts.for_each(|own| part.extend_from_slice(own));
            }
        }
        Ok(part)
    }
}

impl Source for Parts<'_> {
    fn find(&self, name: &str, shape: &[usize]) -> Result<Option<Tensor>, LlmError> {
        let Some(info) = self.gguf.tensor(name) else {
            return Ok(None);
        };
        let (whole, tensor) = (info.shape().to_vec(), file_tensor(self.gguf, info)?);
        if self.part_of(name, &whole) != shape {
            return Err(wrong_shape(name, shape, &self.part_of(name, &whole)));
        }
        if matches!(self.cut(name, &whole), Cut::Whole) {
            return Ok(Some(tensor));
        }
        let dtype = tensor.dtype();
        let bytes = self.bytes(name, &whole, dtype, self.gguf.data(info))?;
        let memory = HostBuffer::copy_of(&bytes);
        let memory = memory.ok_or_else(|| LlmError::Input(format!("{name}: out of memory")))?;
        Ok(Some(Tensor::from_storage(
            Storage::from_host(memory),
            shape,
            dtype,
        )?))
    }

    fn shape(&self, name: &str) -> Option<Vec<usize>> {
        let shape = self.gguf.tensor(name)?.shape().to_vec();
        Some(self.part_of(name, &shape))
    }

    fn names(&self) -> Vec<String> {
        let tensors = self.gguf.tensors().iter();
        tensors.map(|tensor| tensor.name.clone()).collect()
    }
}
