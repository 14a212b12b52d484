//! Memory that a model needs, and memory that devices have.

use rustorch_ir::DType;
use rustorch_runtime::{DeviceInfo, DeviceType, Hardware, Runtime};

use crate::kv_cache::check_cache;
use crate::spec::{FfnSpec, LayerSpec, Mixer, ModelSpec, StateSpec, is_before_layers, layer_of};
use crate::{LlmError, Model, SessionOptions};

/// The share of a device's free memory that weights and caches may take.
pub(crate) const USABLE: f64 = 0.9;

/// A device that may take layers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BackendDevice {
    /// The device.
    pub device: DeviceType,
    /// Bytes of its free memory, if known.
    pub free: Option<u64>,
    /// Whether it uses weights in the host's memory, in place.
    pub shares_host_memory: bool,
}

/// Bytes that a session of a model needs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemoryNeeds {
    /// Bytes of the weights, including adapters.
    pub weights: u64,
    /// The KV cache of the whole context.
    pub cache: u64,
    /// The part of it for layers whose window and batch take fewer rows than the context. A larger context leaves it
    /// as it is. Layers with a window that reaches the whole context grow with it, and are not counted.
    pub windows: u64,
    /// Intermediate results of a batch, on every device in use.
    pub working: u64,
    /// Weights and KV cache of each layer. The first layer includes the embedding table, the last one
    /// the output head. A table that is both is in both.
    pub layers: Vec<u64>,
    /// Context size, in tokens.
    pub context: usize,
    /// The states that the cache consists of.
    states: States,
}

/// States of a session's layers.
#[derive(Clone, PartialEq, Eq, Debug)]
struct States {
    layers: Vec<StateSpec>,
    /// Bytes of each layer's recurrent states, whatever the context.
    recurrent: Vec<u64>,
    /// Tokens of a batch.
    batch: usize,
    /// The element type of keys and values.
    dtype: DType,
}

impl States {
    fn new(spec: &ModelSpec, batch: usize, dtype: DType) -> Self {
        Self {
            layers: spec.layers.iter().map(LayerSpec::state).collect(),
            recurrent: (spec.layers.iter())
                .map(|layer| layer.recurrent_bytes() as u64)
                .collect(),
            batch,
            dtype,
        }
    }

    /// Bytes of each layer's state for `context` tokens; `None` if it is too large, or if the type is unsupported.
    fn bytes(&self, context: usize) -> Option<Vec<u64>> {
        let states = self.layers.iter().zip(&self.recurrent);
        let bytes = states.map(|(state, recurrent)| {
            let bytes = state.bytes(context, self.batch, self.dtype)? as u64;
            bytes.checked_add(*recurrent)
        });
        bytes.collect()
    }

    /// Bytes of the layers with fewer rows than `context`, for which all layers have `caches`.
    fn windows(&self, context: usize, caches: &[u64]) -> u64 {
        let rows = context as u64;
        let is_shorter = |state: &StateSpec, bytes: u64| {
            let row = state.token_bytes(self.dtype).unwrap_or(0) as u64;
            bytes < row.saturating_mul(rows)
        };
        let caches = caches.iter().zip(&self.recurrent);
        let caches = caches.map(|(bytes, recurrent)| bytes.saturating_sub(*recurrent));
        let states = self.layers.iter().zip(caches);
        let shorter = states.filter(|(state, bytes)| is_shorter(state, *bytes));
        shorter.map(|(_, bytes)| bytes).sum()
    }
}

/// Bytes of all layers' states; `None` if they are too many.
fn sum(caches: &[u64]) -> Option<u64> {
    let mut caches = caches.iter();
    caches.try_fold(0_u64, |sum, bytes| sum.checked_add(*bytes))
}

impl MemoryNeeds {
    /// The memory of a session with these options.
    ///
    /// # Errors
    /// Fails for an unsupported cache size or dtype.
    pub fn new(model: &Model, options: &SessionOptions) -> Result<Self, LlmError> {
        let spec = model.spec();
        let context = match options.context {
            0 => spec.context,
            context => context,
        };
        check_cache(spec, options.cache_dtype)?;
        let states = States::new(spec, options.batch, options.cache_dtype);
        let caches = states.bytes(context);
        let cache = caches.as_deref().and_then(sum);
        let (caches, cache) = caches.zip(cache).ok_or_else(|| {
            LlmError::Input(format!(
                "a KV cache of {context} tokens is too large; choose a smaller context with -c"
            ))
        })?;
        let windows = states.windows(context, &caches);
        let own = model.gguf().tensors().iter();
        let tensors = own.chain(model.adapters().tensors());
        Ok(Self {
            weights: tensors.map(|tensor| tensor.bytes() as u64).sum(),
            cache,
            windows,
            working: working(spec, options.batch),
            layers: layers(model, caches),
            context,
            states,
        })
    }

    /// Bytes on a device that computes the whole model.
    pub fn total(&self) -> u64 {
        self.weights
            .saturating_add(self.cache)
            .saturating_add(self.working)
    }

    /// Returns whether the whole model fits in this much free memory.
    pub fn fit(&self, free: u64) -> bool {
        self.total() <= usable(free)
    }

    /// Layers that fit in this much free memory, counted from the last one; all of them if the whole
    /// model fits.
    pub fn layers_within(&self, free: u64) -> usize {
        let all = self.layers.len();
        match self.fit(free) {
            true => all,
            false => fitting(&self.layers, Some(room(free, self.working)))
                .0
                .min(all.saturating_sub(1)),
        }
    }

    /// Tokens of the largest context for which the whole model fits in this much free memory.
    pub fn context_within(&self, free: u64) -> usize {
        let fixed = self.weights.saturating_add(self.working);
        let left = usable(free).checked_sub(fixed);
        let fits = |context: usize| {
            let cache = self.states.bytes(context);
            let cache = cache.as_deref().and_then(sum);
            cache.zip(left).is_some_and(|(cache, left)| cache <= left)
        };
        // A larger context never takes fewer bytes.
        let (mut fitting, mut beyond) = (0, usize::MAX);
        while beyond - fitting > 1 {
            let middle = fitting + (beyond - fitting) / 2;
            match fits(middle) {
                true => fitting = middle,
                false => beyond = middle,
            }
        }
        fitting
    }

    /// Bytes of the largest weights that fit, with this context, in this much free memory.
    pub fn weights_within(&self, free: u64) -> u64 {
        usable(free).saturating_sub(self.cache.saturating_add(self.working))
    }
}

/// The device with its free memory.
pub fn free_memory(runtime: &Runtime, info: &DeviceInfo) -> BackendDevice {
    let pools = runtime.memory().pools();
    let free = |device: DeviceType| {
        let pool = pools.iter().find(|pool| pool.device == device);
        pool.and_then(|pool| pool.free)
    };
    BackendDevice {
        device: info.device,
        free: free(info.device),
        shares_host_memory: info.shares_host_memory,
    }
}

/// Returns whether it is a graphics card that another driver shows too. Its memory is there once.
pub(crate) fn is_same_card(first: &DeviceInfo, second: &DeviceInfo) -> bool {
    let is_gpu = |info: &DeviceInfo| info.hardware == Hardware::Gpu;
    let driver = |info: &DeviceInfo| std::mem::discriminant(&info.device);
    is_gpu(first) && is_gpu(second) && first.name == second.name && driver(first) != driver(second)
}

/// Free memory of the host and, with `gpus`, of each card with its own memory; `None` if a device
/// does not report it.
pub fn free_in_all(runtime: &Runtime, gpus: bool) -> Option<u64> {
    let mut owners: Vec<&DeviceInfo> = Vec::new();
    for info in runtime.devices() {
        let is_counted = match info.device {
            DeviceType::Cpu => true,
            DeviceType::Reference => false,
            _ => gpus && !info.shares_host_memory,
        };
        if is_counted && !owners.iter().any(|first| is_same_card(first, info)) {
            owners.push(info);
        }
    }
    let free = owners.iter().map(|info| free_memory(runtime, info).free);
    free.sum()
}

impl ModelSpec {
    /// Bytes of each layer's state for `context` tokens in `dtype`, which are fed in batches of `batch`. `None` if it
    /// is too large, or if the type is unsupported.
    pub fn cache_bytes(&self, context: usize, batch: usize, dtype: DType) -> Option<Vec<u64>> {
        States::new(self, batch, dtype).bytes(context)
    }
}

/// Bytes of intermediate results of a batch.
pub(crate) fn working(spec: &ModelSpec, batch: usize) -> u64 {
    let layers = spec.layers.iter();
    let widest = layers.map(|layer| 3 * (ffn_features(&layer.ffn) + query_features(&layer.mixer)));
    let features = 4 * spec.width + widest.max().unwrap_or(0);
    let row = size_of::<f32>() * features;
    batch
        .saturating_mul(row)
        .saturating_add(size_of::<f32>() * spec.vocab) as u64
}

/// Features of a token between the products of a feed-forward part.
fn ffn_features(ffn: &FfnSpec) -> usize {
    let dense = ffn.dense.as_ref().map_or(0, |dense| dense.width);
    let experts = ffn.experts.as_ref();
    dense.saturating_add(experts.map_or(0, |experts| experts.used * experts.width))
}

/// Features of a token's queries.
fn query_features(mixer: &Mixer) -> usize {
    let attention = mixer.attention();
    let recurrent = mixer.recurrent();
    let queries = attention.map_or(0, |attention| attention.heads * attention.key_width);
    // Each head has its own copy of keys and reads.
    let operands = recurrent.map_or(0, |recurrent| {
        recurrent.channels() + recurrent.heads * recurrent.key_width
    });
    queries.saturating_add(operands)
}

/// The layers that a tensor is with. The first one has what serves before all layers. The last one has the head. The table `shared` is the head, too.
pub(crate) fn layers_with(
    name: &str,
    shared: Option<&str>,
    last: usize,
) -> impl Iterator<Item = usize> {
    let weight = name.split(".lora_").next().unwrap_or(name);
    let (first, second) = match layer_of(weight) {
        Some(layer) => (layer, None),
        None if shared == Some(weight) => (0, Some(last)),
        None if is_before_layers(weight) => (0, None),
        None => (last, None),
    };
    let second = second.filter(|second| *second != first);
    [first].into_iter().chain(second)
}

/// Bytes of each layer with its state, `layers`, see [`MemoryNeeds::layers`].
fn layers(model: &Model, mut layers: Vec<u64>) -> Vec<u64> {
    let last = layers.len().saturating_sub(1);
    let shared = model.decoder().shared_table();
    let own = model.gguf().tensors().iter();
    for tensor in own.chain(model.adapters().tensors()) {
        for layer in layers_with(&tensor.name, shared, last) {
            if let Some(bytes) = layers.get_mut(layer) {
                *bytes = bytes.saturating_add(tensor.bytes() as u64);
            }
        }
    }
    layers
}

/// Bytes of free memory that a model may take.
fn usable(free: u64) -> u64 {
    (free as f64 * USABLE) as u64
}

/// Bytes of free memory that layers may take.
pub(crate) fn room(free: u64, working: u64) -> u64 {
    usable(free).saturating_sub(working)
}

/// Number of layers that fit, from the last one on, and their bytes.
pub(crate) fn fitting(layers: &[u64], room: Option<u64>) -> (usize, u64) {
    let mut sum = 0_u64;
    let sums = layers.iter().rev().map(|bytes| {
        sum = sum.saturating_add(*bytes);
        sum
    });
    let fits = |bytes: &u64| room.is_none_or(|room| *bytes <= room);
    let fitting: Vec<u64> = sums.take_while(fits).collect();
    (fitting.len(), fitting.last().copied().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Layers with these windows, each with 10 bytes a token and head.
    fn states(kv_heads: usize, windows: &[Option<usize>]) -> States {
        let state = |window: &Option<usize>| StateSpec::KeyValue {
            kv_heads,
            key_width: 2,
            value_width: 3,
            window: *window,
        };
        States {
            layers: windows.iter().map(state).collect(),
            recurrent: vec![0; windows.len()],
            batch: 16,
            dtype: DType::F16,
        }
    }

    /// A model with a context of 100 tokens, and keys and values of these windows.
    fn with_windows(windows: &[Option<usize>]) -> MemoryNeeds {
        let states = states(1, windows);
        let caches = states.bytes(100).unwrap();
        MemoryNeeds {
            weights: 4000,
            cache: sum(&caches).unwrap(),
            windows: states.windows(100, &caches),
            working: 400,
            layers: vec![1250; 4],
            context: 100,
            states,
        }
    }

    /// A model of 4 layers with a context of 100 tokens.
    fn needs() -> MemoryNeeds {
        with_windows(&[None])
    }

    #[test]
    fn a_model_fits_in_what_it_needs() {
        let enough = 6000;
        assert_eq!(needs().total(), 5400);
        assert_eq!(needs().layers_within(enough), 4);
        assert_eq!(needs().context_within(enough), 100);
        assert_eq!(needs().weights_within(enough), 4000);
    }

    #[test]
    fn less_memory_holds_fewer_layers_and_tokens() {
        assert_eq!(needs().layers_within(5999), 3);
        assert_eq!(needs().context_within(5999), 99);
        assert_eq!(needs().layers_within(2000), 1);
        assert_eq!(needs().context_within(2000), 0);
        assert_eq!(needs().layers_within(0), 0);
        assert_eq!(needs().weights_within(0), 0);
    }

    #[test]
    fn windows_take_the_same_memory_for_every_larger_context() {
        // 18 tokens, 16 drafted ones and a batch of 16 are 50 rows.
        let windowed = with_windows(&[None, Some(18)]);
        assert_eq!((windowed.cache, windowed.windows), (1500, 500));
        assert_eq!(windowed.context_within(6556), 100);
        // 50 bytes less are 5 tokens of the layer without a window.
        assert_eq!(windowed.context_within(6500), 95);
        assert_eq!(windowed.context_within(6000), 50);
        // Below 50 tokens both layers grow.
        assert_eq!(windowed.context_within(5445), 25);
        assert_eq!(windowed.context_within(4888), 0);
    }

    #[test]
    fn windows_beyond_the_context_grow_with_it() {
        let windowed = with_windows(&[Some(4096)]);
        assert_eq!((windowed.cache, windowed.windows), (1000, 0));
        assert_eq!(windowed.context_within(6000), 100);
        assert_eq!(windowed.context_within(5445), 50);
        let both = with_windows(&[None, Some(4096)]);
        assert_eq!((both.cache, both.windows), (2000, 0));
        assert_eq!(both.context_within(6000), 50);
        // Rows of exactly the context: 68 tokens, 16 and 16.
        assert_eq!(with_windows(&[Some(68)]).windows, 0);
        assert_eq!(with_windows(&[Some(67)]).windows, 990);
        // 4128 rows are 41 280 bytes; beyond them one layer grows.
        assert_eq!(both.context_within(100_000), 4432);
    }

    #[test]
    fn what_serves_before_all_layers_is_with_the_first() {
        let with = |name| layers_with(name, Some("token_embd.weight"), 3).collect::<Vec<_>>();
        for name in [
            "position_embd.weight",
            "token_types.weight",
            "token_embd_norm.weight",
            "token_embd_norm.bias",
            "per_layer_token_embd.weight",
            "per_layer_model_proj.weight",
            "per_layer_model_proj.weight.lora_a",
            "per_layer_proj_norm.weight",
        ] {
            assert_eq!(with(name), [0], "{name}");
        }
        assert_eq!(with("token_embd.weight"), [0, 3]);
        assert_eq!(with("blk.2.attn_q.weight"), [2]);
        assert_eq!(with("output_norm.weight"), [3]);
    }

    #[test]
    fn huge_contexts_do_not_overflow() {
        let huge = MemoryNeeds {
            cache: u64::MAX,
            layers: vec![u64::MAX / 4; 8],
            states: states(usize::MAX, &[None]),
            ..needs()
        };
        assert_eq!(huge.total(), u64::MAX);
        assert_eq!(huge.layers_within(1 << 40), 0);
        assert_eq!(huge.context_within(1 << 40), 0);
    }
}
