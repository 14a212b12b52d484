//! The KV cache.

use rustorch_ir::{BlockFormat, DType};
use rustorch_runtime::{HostBuffer, Storage};
use rustorch_tensor::Tensor;

use crate::LlmError;
use crate::spec::{ModelSpec, StateSpec};

/// One layer's keys `[kv heads, context, key width]` and values `[…, value width]`, which forward
/// passes write in place. They are on the device that computes the layer. A layer without state has
/// no heads.
pub struct LayerCache {
    pub(crate) keys: Tensor,
    pub(crate) values: Tensor,
}

/// Can keys and values be kept in `dtype`?
///
/// # Errors
/// Fails for an unsupported cache type, or if heads do not consist of whole blocks.
pub(crate) fn check_cache(spec: &ModelSpec, dtype: DType) -> Result<(), LlmError> {
    let widths = spec.layers.iter().flat_map(|layer| layer.state().shape(1));
    let mut widths = widths
        .filter(|[heads, ..]| *heads > 0)
        .map(|[.., width]| width);
    match dtype {
        DType::F16 | DType::BF16 | DType::F32 => Ok(()),
        DType::Block(format @ BlockFormat::Q8_0) => {
            let len = format.block_len();
            match widths.find(|width| !width.is_multiple_of(len)) {
                None => Ok(()),
                Some(width) => Err(LlmError::Input(format!(
                    "a cache of {dtype}: heads of {width} are not whole blocks of {len}"
                ))),
            }
        }
        _ => Err(LlmError::Input(format!(
            "a cache of {dtype}: expected f16, bf16, f32 or Q8_0"
        ))),
    }
}

impl StateSpec {
    /// Shapes of keys and values in a context of this many tokens.
    pub(crate) fn shape(self, context: usize) -> [[usize; 3]; 2] {
        match self {
            Self::KeyValue {
                kv_heads,
                key_width,
                value_width,
            } => [
                [kv_heads, context, key_width],
                [kv_heads, context, value_width],
            ],
            Self::None => [[0, context, 0]; 2],
        }
    }

    /// Bytes of the state for `context` tokens in `dtype`; `None` if it is too large, or if the
    /// type is unsupported.
    pub fn bytes(self, context: usize, dtype: DType) -> Option<usize> {
        let [keys, values] = self.shape(context).map(|shape| dtype.bytes_of(&shape));
        keys?.checked_add(values?)
    }
}

/// A new, empty cache of `context` tokens for every layer, in `dtype`.
///
/// # Errors
/// Fails if there is not enough memory.
pub(crate) fn new_cache(
    spec: &ModelSpec,
    context: usize,
    dtype: DType,
) -> Result<Vec<LayerCache>, LlmError> {
    let state = |shape: [usize; 3]| -> Result<Tensor, LlmError> {
        let bytes = dtype.bytes_of(&shape);
        let buffer = bytes.and_then(HostBuffer::zeroed).ok_or_else(|| {
            LlmError::Input(format!(
                "no memory for a cache of {context} tokens: choose a smaller context with -c"
            ))
        })?;
        Ok(Tensor::from_storage(
            Storage::from_host(buffer),
            shape,
            dtype,
        )?)
    };
    (spec.layers.iter())
        .map(|layer| {
            let [keys, values] = layer.state().shape(context);
            Ok(LayerCache {
                keys: state(keys)?,
                values: state(values)?,
            })
        })
        .collect()
}
