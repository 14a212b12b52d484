//! Keys and values of the tokens so far.

use rustorch_ir::{BlockFormat, DType};
use rustorch_runtime::{DeviceType, HostBuffer, Storage};
use rustorch_tensor::Tensor;

use crate::LlmError;
use crate::config::Config;

/// One layer's keys `[kv heads, context, key width]` and values `[…, value width]`: state
/// that forward passes write to in place. They are with the layer, on the device that computes
/// it.
pub struct LayerCache {
    /// The layer's device; `None` to leave the choice to the runtime.
    pub(crate) device: Option<DeviceType>,
    pub(crate) keys: Tensor,
    pub(crate) values: Tensor,
}

/// Can keys and values be kept in `dtype`?
///
/// # Errors
/// There is no such cache; heads are not whole blocks.
pub(crate) fn check_cache(c: &Config, dtype: DType) -> Result<(), LlmError> {
    let widths = [c.key_width, c.value_width];
    match dtype {
        DType::F16 | DType::BF16 | DType::F32 => Ok(()),
        DType::Block(format @ BlockFormat::Q8_0) => {
            let len = format.block_len();
            match widths.iter().find(|width| !width.is_multiple_of(len)) {
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

/// Bytes of the keys and values of `context` tokens in a layer, in `dtype`; `None` if no cache
/// is that large, or of that type.
pub fn cache_bytes(c: &Config, context: usize, dtype: DType) -> Option<usize> {
    let rows = [c.kv_heads, context];
    let bytes = |width: usize| dtype.bytes_of(&[rows[0], rows[1], width]);
    bytes(c.key_width)?.checked_add(bytes(c.value_width)?)
}

/// A new, empty cache of `context` tokens for every layer, in `dtype`; `devices` are those of
/// the layers, if they were chosen.
///
/// # Errors
/// There is not enough memory.
pub(crate) fn new_cache(
    c: &Config,
    context: usize,
    dtype: DType,
    devices: &[DeviceType],
) -> Result<Vec<LayerCache>, LlmError> {
    let state = |width: usize| -> Result<Tensor, LlmError> {
        let shape = [c.kv_heads, context, width];
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
    (0..c.layers)
        .map(|layer| {
            Ok(LayerCache {
                device: devices.get(layer).copied(),
                keys: state(c.key_width)?,
                values: state(c.value_width)?,
            })
        })
        .collect()
}
