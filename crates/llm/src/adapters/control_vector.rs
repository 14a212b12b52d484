//! Control vectors ([Zou et al.](https://arxiv.org/abs/2310.01405)), which are added to the
//! residual stream after layers.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use rustorch_gguf::{GgmlType, TensorInfo};
use rustorch_tensor::Tensor;
use sha2::{Digest, Sha256};

use super::{AdapterFile, hash_number};
use crate::LlmError;
use crate::keys::Keys;

/// The first and last layer of control vectors; 0 for the model's own. Layer 0 has none, as in
/// llama.cpp.
pub type ControlLayers = (usize, usize);

/// By layers, the vectors `[width]` that are added behind them.
#[derive(Clone, Default)]
pub(super) struct Directions(BTreeMap<usize, Direction>);

#[derive(Clone)]
struct Direction {
    values: Vec<f32>,
    tensor: Tensor,
}

impl Directions {
    /// The sum of the files' vectors, for the model of these keys.
    ///
    /// # Errors
    /// Fails if a file is not a control vector, or is for another model. Also fails if the layers do
    /// not exist.
    pub(super) fn load(
        keys: &Keys,
        files: &[AdapterFile],
        layers: Option<ControlLayers>,
    ) -> Result<Self, LlmError> {
        if files.is_empty() {
            return Ok(Self::default());
        }
        let (width, count) = (keys.size("embedding_length"), keys.size("block_count"));
        let range = range(layers.unwrap_or_default(), count)?;
        let mut sums: BTreeMap<usize, Vec<f32>> = BTreeMap::new();
        for file in files {
            file.check_scale()?;
            check(file)?;
            for tensor in file.gguf.tensors() {
                let layer = layer(file, tensor, width, count)?;
                if range.contains(&layer) && file.scale != 0.0 {
                    let sum = sums.entry(layer).or_insert_with(|| vec![0.0; width]);
                    add(sum, file.gguf.data(tensor), file.scale);
                }
            }
        }
        let directions = sums.into_iter().map(|(layer, values)| {
            let tensor = Tensor::from_slice(&values, [width])?;
            Ok((layer, Direction { values, tensor }))
        });
        Ok(Self(directions.collect::<Result<_, LlmError>>()?))
    }

    /// The vector added to a layer's output.
    pub(super) fn get(&self, layer: usize) -> Option<&Tensor> {
        self.0.get(&layer).map(|direction| &direction.tensor)
    }

    pub(super) fn hash(&self, hash: &mut Sha256) {
        for (layer, Direction { values, .. }) in &self.0 {
            hash.update(format!("direction {layer}\n"));
            values.iter().for_each(|value| hash_number(hash, *value));
        }
    }
}

/// The layers of a model of `count` that are asked for.
fn range((first, last): ControlLayers, count: usize) -> Result<RangeInclusive<usize>, LlmError> {
    let range = first.max(1)..=match last {
        0 => count,
        last => last,
    };
    match range.is_empty() || *range.start() >= count {
        true => Err(LlmError::Input(format!(
            "control vectors from layer {first} to {last}: the model has 1 to {}",
            count - 1
        ))),
        false => Ok(range),
    }
}

/// Fails unless a file has directions.
fn check(file: &AdapterFile) -> Result<(), LlmError> {
    match &file.gguf.tensors() {
        [] => Err(file.wrong("no tensor direction.N: not a control vector")),
        tensors => match tensors.iter().find(|t| number(&t.name).is_none()) {
            Some(other) => Err(file.wrong(format!(
                "tensor {}: a control vector has tensors direction.N alone; models are opened with \
                 -m, adapters with --lora",
                other.name.escape_debug()
            ))),
            None => Ok(()),
        },
    }
}

fn number(name: &str) -> Option<usize> {
    name.strip_prefix("direction.")?.parse().ok()
}

/// The layer of a tensor that fits a model of this width and number of layers.
fn layer(
    file: &AdapterFile,
    tensor: &TensorInfo,
    width: usize,
    count: usize,
) -> Result<usize, LlmError> {
    let wrong = |problem: String| file.wrong(format!("tensor {}: {problem}", tensor.name));
    let layer = number(&tensor.name).unwrap_or(0);
    if layer == 0 || layer >= count {
        let last = count - 1;
        return Err(wrong(format!(
            "the model has {count} layers, and vectors are for 1 to {last}: it belongs to another model"
        )));
    }
    if tensor.ty != GgmlType::F32 {
        return Err(wrong(format!("expected F32, got {}", tensor.ty.name())));
    }
    match tensor.shape()[..] {
        [own] if own == width => Ok(layer),
        ref own => Err(wrong(format!(
            "it is {own:?}, and the model's width [{width}]: it belongs to another model"
        ))),
    }
}

/// Adds numbers, as they are in a file, times `scale`.
fn add(sum: &mut [f32], data: &[u8], scale: f32) {
    let (numbers, _) = data.as_chunks();
    for (sum, number) in sum.iter_mut().zip(numbers) {
        *sum += f32::from_le_bytes(*number) * scale;
    }
}
