//! The KV cache.

use std::mem;
use std::ops::Range;

use rustorch_ir::{BlockFormat, DType};
use rustorch_runtime::{HostBuffer, Routing, Runtime, Storage};
use rustorch_tensor::{RusTorchError, Tensor, with_device, with_runtime};

use crate::LlmError;
use crate::spec::{ModelSpec, StateSpec};

/// Tokens of the largest batch of drafted tokens. A session may feed so many at once. It may drop so many without
/// computing a window again.
pub(crate) const DRAFTS: usize = 16;

/// One layer's keys `[kv heads, rows, key width]` and values `[…, value width]`, which forward
/// passes write in place. They are on the device that computes the layer. A layer without state has
/// no heads.
#[derive(Clone)]
pub struct LayerCache {
    pub(crate) keys: Tensor,
    pub(crate) values: Tensor,
    /// The place of its window among those of the cache. Without one, a token's row is its position.
    pub(crate) window: Option<usize>,
    /// Recurrent states `[2, …]`: a pass reads one of the two, and writes the other.
    pub(crate) recurrent: Vec<Tensor>,
}

impl LayerCache {
    /// Keys and values, if it has some, and recurrent states.
    pub(crate) fn tensors(&self) -> impl Iterator<Item = &Tensor> {
        let attended = [&self.keys, &self.values].into_iter();
        attended.filter(|_| self.has_state()).chain(&self.recurrent)
    }

    /// Does the layer have keys and values?
    pub(crate) fn has_state(&self) -> bool {
        self.keys.shape()[0] > 0
    }
}

/// The rows that layers with windows of one size have.
struct Held {
    /// Tokens that a token sees.
    window: usize,
    /// Rows for them and for those of a pass; at most the context.
    rows: usize,
    /// Position of the first row's token.
    base: usize,
    /// Position of the first token with keys and values.
    first: usize,
}

/// The two recurrent states that each layer has. So a pass may fail, or its tokens be dropped, while the state before
/// it stays.
struct Slots {
    /// The number of tokens that each one has seen; `None` if it is not known.
    after: [Option<usize>; 2],
    /// The one that a pass reads and the one that it writes, `i32` `[2]`.
    chosen: Storage,
}

/// Tokens that stay in a window when room is made.
fn kept(window: usize) -> usize {
    window.saturating_add(DRAFTS)
}

/// Rows of a layer with a window, for a context that is fed in batches.
fn rows(window: usize, context: usize, batch: usize) -> usize {
    kept(window).saturating_add(batch.max(DRAFTS)).min(context)
}

/// Keys and values of a session.
///
/// A layer with a window has rows for the window and a batch. When they are full, the newest ones move to the begin.
/// Keys are rotated by their position, so that it does not matter where they are.
pub(crate) struct Cache {
    layers: Vec<LayerCache>,
    context: usize,
    windows: Vec<Held>,
    /// Is all there that the windows tell of? It is not while rows move or are computed again, nor if that has failed.
    is_whole: bool,
    /// The windows' bases, `i32`; none where all layers have rows for the whole context.
    bases: Option<Storage>,
    /// `None` for a model without recurrent states.
    slots: Option<Slots>,
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
    /// Last tokens that a token sees; `None` for all.
    fn window(self) -> Option<usize> {
        match self {
            Self::KeyValue { window, .. } => window,
            Self::None => None,
        }
    }

    /// Rows for a context of this many tokens, which are fed in batches.
    fn rows(self, context: usize, batch: usize) -> usize {
        self.window()
            .map_or(context, |window| rows(window, context, batch))
    }

    /// Shapes of keys and values of this number of rows.
    fn shape(self, rows: usize) -> [[usize; 3]; 2] {
        match self {
            Self::KeyValue {
                kv_heads,
                key_width,
                value_width,
                ..
            } => [[kv_heads, rows, key_width], [kv_heads, rows, value_width]],
            Self::None => [[0, rows, 0]; 2],
        }
    }

    /// Tokens of `past` ones that the next token sees.
    pub fn seen(self, past: usize) -> usize {
        self.window().map_or(past, |window| window.min(past))
    }

    /// Bytes of a token's keys and values in `dtype`; `None` for an unsupported type.
    pub fn token_bytes(self, dtype: DType) -> Option<usize> {
        self.bytes(1, 1, dtype)
    }

    /// Bytes of the state for `context` tokens in `dtype`, which are fed in batches of `batch`. `None` if it is too
    /// large, or if the type is unsupported.
    pub fn bytes(self, context: usize, batch: usize, dtype: DType) -> Option<usize> {
        let shapes = self.shape(self.rows(context, batch));
        let [keys, values] = shapes.map(|shape| dtype.bytes_of(&shape));
        keys?.checked_add(values?)
    }
}

/// New, empty keys and values of `context` tokens in `dtype`, which are fed in batches of `batch`.
///
/// # Errors
/// Fails if there is not enough memory.
pub(crate) fn new_layers(
    spec: &ModelSpec,
    context: usize,
    batch: usize,
    dtype: DType,
) -> Result<Vec<LayerCache>, LlmError> {
    let windows = windows(spec);
    let state = |shape: [usize; 3]| -> Result<Tensor, LlmError> {
        let bytes = dtype.bytes_of(&shape);
        let buffer = bytes.and_then(HostBuffer::zeroed);
        let storage = Storage::from_host(buffer.ok_or_else(|| no_memory(context))?);
        Ok(Tensor::from_storage(storage, shape, dtype)?)
    };
    let recurrent = |shape: Vec<usize>| -> Result<Tensor, LlmError> {
        let shape: Vec<usize> = [2].into_iter().chain(shape).collect();
        let bytes = DType::F32.bytes_of(&shape);
        let buffer = bytes.and_then(HostBuffer::zeroed);
        let storage = Storage::from_host(buffer.ok_or_else(|| no_memory(context))?);
        Ok(Tensor::from_storage(storage, shape, DType::F32)?)
    };
    (spec.layers.iter())
        .map(|spec| {
            let layer = spec.state();
            let [keys, values] = layer.shape(layer.rows(context, batch));
            let window = layer.window();
            Ok(LayerCache {
                keys: state(keys)?,
                values: state(values)?,
                window: window.and_then(|own| windows.iter().position(|known| *known == own)),
                recurrent: (spec.recurrent_states().into_iter())
                    .map(recurrent)
                    .collect::<Result<_, _>>()?,
            })
        })
        .collect()
}

/// The sizes of a model's windows.
fn windows(spec: &ModelSpec) -> Vec<usize> {
    let mut windows: Vec<usize> = Vec::new();
    for window in spec
        .layers
        .iter()
        .filter_map(|layer| layer.state().window())
    {
        if !windows.contains(&window) {
            windows.push(window);
        }
    }
    windows
}

fn no_memory(context: usize) -> LlmError {
    LlmError::Input(format!(
        "no memory for a cache of {context} tokens: choose a smaller context with -c"
    ))
}

impl Cache {
    /// A new, empty cache of `context` tokens in `dtype`, which are fed in batches of `batch`.
    ///
    /// # Errors
    /// Fails if there is not enough memory.
    pub(crate) fn new(
        spec: &ModelSpec,
        context: usize,
        batch: usize,
        dtype: DType,
    ) -> Result<Self, LlmError> {
        let windows = windows(spec).into_iter().map(|window| Held {
            window,
            rows: rows(window, context, batch),
            base: 0,
            first: 0,
        });
        let windows: Vec<Held> = windows.collect();
        let bases = match windows.iter().any(|held| held.rows < context) {
            true => {
                let bases = HostBuffer::zeroed(size_of::<i32>() * windows.len());
                Some(Storage::from_host(bases.ok_or_else(|| no_memory(context))?))
            }
            false => None,
        };
        let layers = new_layers(spec, context, batch, dtype)?;
        let slots = match layers.iter().any(|layer| !layer.recurrent.is_empty()) {
            true => {
                let chosen = HostBuffer::zeroed(size_of::<[i32; 2]>());
                Some(Slots {
                    after: [Some(0), None],
                    chosen: Storage::from_host(chosen.ok_or_else(|| no_memory(context))?),
                })
            }
            false => None,
        };
        Ok(Self {
            layers,
            context,
            windows,
            is_whole: true,
            bases,
            slots,
        })
    }

    /// The layers' keys and values.
    pub(crate) fn layers(&self) -> &[LayerCache] {
        &self.layers
    }

    /// The storages of all tensors, layer by layer, even if they were lost with a device.
    pub(crate) fn storages(&self) -> Vec<Storage> {
        let tensors = self.layers.iter().flat_map(LayerCache::tensors);
        tensors.filter_map(Tensor::storage_in_memory).collect()
    }

    /// Tokens that fit.
    pub(crate) fn context(&self) -> usize {
        self.context
    }

    /// The positions of the windows' first rows, with their number.
    pub(crate) fn bases(&self) -> Option<(&Storage, usize)> {
        let bases = self.bases.as_ref();
        bases.map(|bases| (bases, self.windows.len()))
    }

    /// The numbers of the recurrent states that a pass reads and writes.
    pub(crate) fn slots(&self) -> Option<&Storage> {
        self.slots.as_ref().map(|slots| &slots.chosen)
    }

    /// Does it hold all that the token after `past` ones sees?
    pub(crate) fn reaches(&self, past: usize) -> bool {
        let is_known = self.slots.is_none() || self.slot(past).is_some();
        is_known && self.windows_reach(past)
    }

    fn windows_reach(&self, past: usize) -> bool {
        let mut windows = self.windows.iter();
        self.is_whole && windows.all(|held| held.first <= past.saturating_sub(held.window))
    }

    /// The number of tokens, of `past` ones, that need not be computed again. The cache holds all that the token after
    /// them sees, if it is not 0.
    pub(crate) fn resume(&self, past: usize) -> usize {
        let from = match &self.slots {
            None => Some(past),
            Some(slots) => {
                let known = slots.after.into_iter().flatten();
                known.filter(|after| *after <= past).max()
            }
        };
        from.filter(|from| self.windows_reach(*from)).unwrap_or(0)
    }

    /// The recurrent state that has seen exactly `past` tokens.
    pub(crate) fn slot(&self, past: usize) -> Option<usize> {
        let slots = self.slots.as_ref()?;
        slots.after.iter().position(|after| *after == Some(past))
    }

    /// Chooses the recurrent states for a pass over the token after `past` ones, of which one has seen just these.
    ///
    /// # Errors
    /// The same errors as [`Runtime::write`].
    pub(crate) fn choose_slots(&mut self, past: usize, runtime: &Runtime) -> Result<(), LlmError> {
        let read = self.slot(past).unwrap_or(0);
        if let Some(slots) = &mut self.slots {
            // It is not known while the pass writes it.
            slots.after[1 - read] = None;
            let chosen = [read as i32, 1 - read as i32].map(i32::to_ne_bytes);
            let written = runtime.write(&slots.chosen, chosen.as_flattened());
            written.map_err(RusTorchError::from)?;
        }
        Ok(())
    }

    /// Says that the pass over the tokens from `past` to `end` has written its recurrent states.
    pub(crate) fn advance(&mut self, past: usize, end: usize) {
        let read = self.slot(past);
        if let Some((slots, read)) = self.slots.as_mut().zip(read) {
            slots.after[1 - read] = Some(end);
        }
    }

    /// Makes the recurrent states those before the first token.
    fn clear_recurrent(&self, runtime: &Runtime) -> Result<(), LlmError> {
        for state in self.layers.iter().flat_map(|layer| &layer.recurrent) {
            let bytes = state.dtype().bytes_of(state.shape()).unwrap_or(0);
            let written = runtime.write(&state.storage()?, &vec![0; bytes]);
            written.map_err(RusTorchError::from)?;
        }
        Ok(())
    }

    /// May a pass over the token before `end` be queued before the host knows the token? A recurrent state would be lost
    /// with another token.
    pub(crate) fn may_run_ahead(&self, end: usize) -> bool {
        self.slots.is_none() && self.has_room(end)
    }

    /// Are there rows for the tokens up to this one?
    pub(crate) fn has_room(&self, end: usize) -> bool {
        let mut windows = self.windows.iter();
        windows.all(|held| end <= held.base + held.rows)
    }

    /// Puts others in the place of the layers' keys and values. They hold what the token after `past` ones sees, from
    /// [`Self::first_row`] on. A call of [`Self::complete`] says that they do.
    ///
    /// # Errors
    /// The same errors as [`Runtime::write`].
    pub(crate) fn replace(
        &mut self,
        layers: Vec<LayerCache>,
        past: usize,
        runtime: &Runtime,
    ) -> Result<(), LlmError> {
        self.layers = layers;
        self.begin_at(past, runtime)
    }

    /// The same with the keys and values that are there.
    ///
    /// # Errors
    /// The same errors as [`Runtime::write`].
    pub(crate) fn begin_at(&mut self, past: usize, runtime: &Runtime) -> Result<(), LlmError> {
        self.is_whole = false;
        if let Some(slots) = &mut self.slots {
            slots.after = [Some(past), None];
        }
        if past == 0 {
            self.clear_recurrent(runtime)?;
        }
        for held in &mut self.windows {
            held.first = past.saturating_sub(held.window);
            held.base = match held.rows < self.context {
                true => held.first,
                false => 0,
            };
        }
        self.write_bases(runtime)
    }

    /// Says that the layers hold all that the windows tell of.
    pub(crate) fn complete(&mut self) {
        self.is_whole = true;
    }

    /// The window of a layer.
    fn held(&self, layer: &LayerCache) -> Option<&Held> {
        layer.window.and_then(|index| self.windows.get(index))
    }

    /// The number of tokens, of `past` ones, that a layer needs for the next.
    pub(crate) fn needed(&self, layer: &LayerCache, past: usize) -> usize {
        self.held(layer).map_or(past, |held| held.window.min(past))
    }

    /// The row of the token at this position.
    pub(crate) fn row(&self, layer: &LayerCache, position: usize) -> usize {
        position - self.held(layer).map_or(0, |held| held.base)
    }

    /// The row of the first token that a layer needs, in keys and values that [`Self::replace`] takes.
    pub(crate) fn first_row(&self, layer: &LayerCache, past: usize) -> usize {
        let whole = self.held(layer).filter(|held| held.rows == self.context);
        whole.map_or(0, |held| past.saturating_sub(held.window))
    }

    fn write_bases(&self, runtime: &Runtime) -> Result<(), LlmError> {
        if let Some(storage) = &self.bases {
            let bases = self.windows.iter().map(|held| held.base as i32);
            let bytes: Vec<u8> = bases.flat_map(i32::to_ne_bytes).collect();
            let written = runtime.write(storage, &bytes);
            written.map_err(RusTorchError::from)?;
        }
        Ok(())
    }

    /// Makes room for the tokens up to `end`, of which `past` are there, and chooses recurrent states.
    ///
    /// # Errors
    /// Fails if they are more than a pass may have, or if no device is left.
    pub(crate) fn make_room(
        &mut self,
        runtime: &Runtime,
        routing: Routing,
        past: usize,
        end: usize,
    ) -> Result<(), LlmError> {
        self.choose_slots(past, runtime)?;
        if self.has_room(end) {
            return Ok(());
        }
        let tokens = end - past;
        for held in &self.windows {
            let kept = kept(held.window);
            if end > held.base + held.rows && tokens + kept > held.rows {
                let most = held.rows.saturating_sub(kept);
                return Err(LlmError::Input(format!(
                    "{tokens} tokens in one pass: at most {most} fit beside a window; use a larger -b"
                )));
            }
        }
        // Should this fail, some layers have moved, or passes read other bases.
        let was_whole = mem::take(&mut self.is_whole);
        for (index, held) in self.windows.iter_mut().enumerate() {
            if end <= held.base + held.rows {
                continue;
            }
            let first = past - kept(held.window);
            let rows = first - held.base..past - held.base;
            let own = self.layers.iter().filter(|l| l.window == Some(index));
            with_runtime(runtime, routing, || move_to_begin(own, rows))?;
            (held.base, held.first) = (first, first);
        }
        self.write_bases(runtime)?;
        self.is_whole = was_whole;
        Ok(())
    }
}

/// Moves these rows of layers to the begin.
fn move_to_begin<'c>(
    layers: impl Iterator<Item = &'c LayerCache>,
    rows: Range<usize>,
) -> Result<(), LlmError> {
    let count = rows.len();
    let rows = rows.map(|row| row as i32).collect();
    let (rows, begin) = (
        Tensor::from_vec::<i32>(rows, [count])?,
        Tensor::zeros([1], DType::I32)?,
    );
    for tensor in layers.flat_map(|layer| [&layer.keys, &layer.values]) {
        let [heads, all, _] = [0, 1, 2].map(|dim| tensor.shape()[dim]);
        // Whatever its type, a row is some whole numbers of 16 bits.
        let bytes = tensor.dtype().bytes_of(&tensor.shape()[2..]);
        let shape = [heads, all, bytes.unwrap_or(0) / size_of::<i16>()];
        let words = Tensor::from_storage(tensor.storage()?, shape, DType::I16)?;
        let moved = || {
            let moved = words.index_select(1, &rows)?;
            words.update_slice_(&moved, 1, &begin)?.eval().map(|_| ())
        };
        match tensor.device() {
            Some(device) => with_device(device, moved)??,
            None => moved()?,
        }
    }
    Ok(())
}
