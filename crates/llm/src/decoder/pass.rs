//! Values that the layers of one forward pass share.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use rustorch_ir::DType;
use rustorch_runtime::DeviceType;
use rustorch_tensor::distributed::{CommunicationGroup, ReduceOp};
use rustorch_tensor::{RusTorchResult, Tensor, with_device};

use crate::kv_cache::{Cache, LayerCache};
use crate::placement::Placement;
use crate::spec::{AttentionSpec, RecurrentKind, RecurrentSpec, Temperature, Window};

/// The kind of a mask, and where it is computed.
#[derive(Clone, Copy, PartialEq)]
struct MaskKey {
    /// Keys that a query sees.
    window: Option<Window>,
    /// Heads, and the power of two of the largest slope.
    alibi: Option<(usize, f64)>,
    /// Are tokens behind the end of a sequence hidden? Causality hides them from the tokens before.
    hides_padding: bool,
    keys: usize,
    device: Option<DeviceType>,
}

/// Whole sequences of one pass, all of one length. Their tokens are one after the other.
pub(crate) struct Sequences<'a> {
    pub(crate) count: usize,
    /// The addend to scores, `f32` `[b, 1, 1, t]`: −∞ behind the end of a shorter sequence.
    pub(crate) padding: Option<&'a Tensor>,
    /// The types of all tokens, `i64` `[b · t]`; 0 without them.
    pub(crate) types: Option<&'a Tensor>,
}

impl Sequences<'_> {
    /// This number of sequences, none of them shorter, of tokens of one type.
    pub(crate) fn new(count: usize) -> Self {
        Self {
            count,
            padding: None,
            types: None,
        }
    }
}

/// The sequence, with a cache, of one token of a pass.
pub(crate) struct Row<'a> {
    /// The pass over this token alone, for all that depends on the cache.
    pub(crate) pass: Pass<'a>,
    layers: &'a [LayerCache],
}

impl<'a> Row<'a> {
    /// The token at `position`, `i32` `[1]`, of the sequence with this cache. The operands stand for its
    /// [`Cache::bases`] and [`Cache::slots`].
    pub(crate) fn new(
        position: &'a Tensor,
        cache: &'a Cache,
        given: [Option<&'a Tensor>; 2],
        placement: &'a Placement,
    ) -> RusTorchResult<Self> {
        Ok(Self {
            pass: Pass::with_cache(position, cache, given, placement)?,
            layers: cache.layers(),
        })
    }

    /// The cache of the layer that is being computed.
    pub(crate) fn cache(&self) -> Option<&'a LayerCache> {
        self.layers.get(self.pass.layer.get())
    }
}

/// Values that all layers of one forward pass share, and the devices that they are computed on.
///
/// A layer has a home, where its state is. Products are computed where their weights are, all else where its first
/// operand is.
pub(crate) struct Pass<'a> {
    placement: &'a Placement,
    /// Sequences without a cache; `None` for one sequence with a cache.
    sequences: Option<Sequences<'a>>,
    /// The sequence of each token, if they belong to several that have caches.
    rows: Vec<Row<'a>>,
    /// The device of the layer that is being computed.
    home: Cell<Option<DeviceType>>,
    /// Positions of the tokens, `i32` `[t]`.
    pub(crate) positions: &'a Tensor,
    /// The position of the first one, `i32` `[1]`.
    pub(crate) past: Tensor,
    /// Tokens of the cache's context.
    context: Option<usize>,
    /// Positions of windows' first rows, `i32`; `None` where a row of a cache is a position.
    bases: Option<&'a Tensor>,
    /// The recurrent states that are read and written, `i32` `[1]` each.
    slots: Option<[Tensor; 2]>,
    /// Rows of windows that the first token is written to, with where they are computed.
    window_rows: RefCell<Vec<(RowKey, Tensor)>>,
    masks: RefCell<Vec<(MaskKey, Tensor)>>,
    /// The place of the layer that is being computed.
    layer: Cell<usize>,
    /// Recurrent states that were written.
    kept: RefCell<Vec<Tensor>>,
    /// Keys and values that later layers read, by the place of their layer.
    lent: RefCell<BTreeMap<usize, Attended>>,
    /// Values of the first recurrent layer.
    first_values: RefCell<Option<Tensor>>,
    /// The addend to scores of the keys that a layer has chosen, for later layers.
    chosen: RefCell<Option<Tensor>>,
}

/// Keys and values `[…, kv heads, s, width]` of a layer.
#[derive(Clone)]
pub(crate) struct Attended {
    pub(crate) keys: Tensor,
    pub(crate) values: Tensor,
    /// The row of the first query's own key, if they are in a cache.
    pub(crate) row: Option<Tensor>,
    /// The place of the layer's window among those of the cache.
    pub(crate) window: Option<usize>,
}

/// A window, by its place, and a device.
type RowKey = (usize, Option<DeviceType>);

impl<'a> Pass<'a> {
    fn new(positions: &'a Tensor, placement: &'a Placement) -> RusTorchResult<Self> {
        Ok(Self {
            placement,
            sequences: None,
            rows: Vec::new(),
            home: Cell::new(placement.layer(0)),
            positions,
            past: positions.narrow(0, 0, 1)?,
            context: None,
            bases: None,
            window_rows: RefCell::default(),
            slots: None,
            masks: RefCell::default(),
            layer: Cell::new(0),
            kept: RefCell::default(),
            lent: RefCell::default(),
            first_values: RefCell::default(),
            chosen: RefCell::default(),
        })
    }

    /// A pass over tokens of one sequence with a cache. The operands stand for its [`Cache::bases`] and
    /// [`Cache::slots`].
    pub(crate) fn with_cache(
        positions: &'a Tensor,
        cache: &Cache,
        [bases, slots]: [Option<&'a Tensor>; 2],
        placement: &'a Placement,
    ) -> RusTorchResult<Self> {
        let pair = |slots: &Tensor| -> RusTorchResult<_> {
            Ok([slots.narrow(0, 0, 1)?, slots.narrow(0, 1, 1)?])
        };
        Ok(Self {
            context: Some(cache.context()),
            bases,
            slots: slots.map(pair).transpose()?,
            ..Self::new(positions, placement)?
        })
    }

    /// A pass over one token of each of several sequences with caches of `context` tokens.
    pub(crate) fn of_rows(
        rows: Vec<Row<'a>>,
        positions: &'a Tensor,
        context: usize,
        placement: &'a Placement,
    ) -> RusTorchResult<Self> {
        Ok(Self {
            rows,
            context: Some(context),
            ..Self::new(positions, placement)?
        })
    }

    /// The sequence of each token, if they belong to several that have caches.
    pub(crate) fn rows(&self) -> &[Row<'a>] {
        &self.rows
    }

    /// A pass over whole sequences, without a cache.
    pub(crate) fn of_sequences(
        sequences: Sequences<'a>,
        positions: &'a Tensor,
        placement: &'a Placement,
    ) -> RusTorchResult<Self> {
        Ok(Self {
            sequences: Some(sequences),
            ..Self::new(positions, placement)?
        })
    }

    /// The sum over ranks of a product. The position of the first token is the number of the pass. Ranks compare it.
    pub(crate) fn sum(&self, x: &Tensor, ranks: &CommunicationGroup) -> RusTorchResult<Tensor> {
        let pass = self.past.to_dtype(DType::I64)?;
        ranks.in_pass(&pass)?.all_reduce(x, ReduceOp::Sum)
    }

    /// Tokens of a sequence.
    pub(crate) fn length(&self) -> RusTorchResult<usize> {
        self.positions.size(0)
    }

    /// Tokens that fit in the context.
    pub(crate) fn context(&self) -> RusTorchResult<usize> {
        self.context.map_or_else(|| self.length(), Ok)
    }

    /// The row of a layer's cache that the first token is written to, `i32` `[1]`.
    pub(crate) fn row(&self, cache: &LayerCache) -> RusTorchResult<Tensor> {
        let (Some(window), Some(bases)) = (cache.window, self.bases) else {
            return Ok(self.past.clone());
        };
        let key = (window, self.home.get());
        if let Some((_, row)) = self
            .window_rows
            .borrow()
            .iter()
            .find(|(known, _)| *known == key)
        {
            return Ok(row.clone());
        }
        let row = || self.past.sub(&bases.narrow(0, window, 1)?);
        let row = match key.1 {
            Some(device) => with_device(device, row)??,
            None => row()?,
        };
        self.window_rows.borrow_mut().push((key, row.clone()));
        Ok(row)
    }

    /// Rows of heads `[t, heads · width]` as `[t, heads, width]`, with the sequences first, if there are several.
    pub(crate) fn by_sequence(&self, x: &Tensor, heads: [usize; 2]) -> RusTorchResult<Tensor> {
        let ([heads, width], length) = (heads, self.length()?);
        match &self.sequences {
            None => x.reshape([length, heads, width]),
            Some(all) => x.reshape([all.count, length, heads, width]),
        }
    }

    /// Number of sequences.
    fn count(&self) -> usize {
        let whole = self.sequences.as_ref().map(|all| all.count);
        whole.unwrap_or(self.rows.len().max(1))
    }

    /// Rows `[b · t, features]` as `[b, t, features]`.
    pub(crate) fn in_sequences(&self, x: &Tensor) -> RusTorchResult<Tensor> {
        let (count, features) = (self.count(), x.size(-1)?);
        x.reshape([count, x.size(0)? / count, features])
    }

    /// A layer's recurrent state `[b, …]` before the pass, by its place in the layer: those of sessions, or zeros of
    /// this shape.
    pub(crate) fn recurrent(
        &self,
        cache: Option<&LayerCache>,
        place: usize,
        shape: &[usize],
    ) -> RusTorchResult<Tensor> {
        if !self.rows.is_empty() {
            let rows = self.rows.iter();
            let states = rows.map(|row| row.pass.recurrent(row.cache(), place, shape));
            let states = states.collect::<RusTorchResult<Vec<Tensor>>>()?;
            return Tensor::cat(&states.iter().collect::<Vec<_>>(), 0);
        }
        let state = cache.and_then(|cache| cache.recurrent.get(place));
        match (state, &self.slots) {
            (Some(state), Some([read, _])) => state.index_select(0, read),
            _ => {
                let shape: Vec<usize> = [self.count()].iter().chain(shape).copied().collect();
                Tensor::zeros(shape, DType::F32)
            }
        }
    }

    /// Keeps a layer's recurrent state `[b, …]` for the next pass of each session, if there are some.
    pub(crate) fn keep_recurrent(
        &self,
        cache: Option<&LayerCache>,
        place: usize,
        next: &Tensor,
    ) -> RusTorchResult<()> {
        for (index, row) in self.rows.iter().enumerate() {
            let next = next.narrow(0, index, 1)?;
            row.pass.keep_recurrent(row.cache(), place, &next)?;
        }
        let state = cache.and_then(|cache| cache.recurrent.get(place));
        if let (Some(state), Some([_, write])) = (state, &self.slots) {
            let kept = state.update_slice_(next, 0, write)?;
            self.kept.borrow_mut().push(kept);
        }
        Ok(())
    }

    /// The results `[b, t, h, dv]` of a recurrence, whose state is the last one of the mixer. RWKV 6 reads the state
    /// before each token.
    pub(crate) fn recurrence(
        &self,
        spec: &RecurrentSpec,
        operands: [&Tensor; 4],
        correction: Option<[&Tensor; 2]>,
        cache: Option<&LayerCache>,
    ) -> RusTorchResult<Tensor> {
        let reads_before = matches!(spec.kind, RecurrentKind::Rwkv6(own) if own.has_bonus);
        let shape = [spec.heads, spec.value_width, spec.key_width];
        let place = spec.states().len() - 1;
        let first = self.recurrent(cache, place, &shape)?;
        let [y, last] = first.linear_recurrence(operands, correction, reads_before)?;
        self.keep_recurrent(cache, place, &last)?;
        Ok(y)
    }

    /// The recurrent states with those that the layers have written. The computation of these writes them.
    pub(crate) fn kept(&self) -> Vec<Tensor> {
        let rows = self.rows.iter().flat_map(|row| row.pass.kept());
        self.kept.take().into_iter().chain(rows).collect()
    }

    /// Rows `[t, …]` for the positions of a sequence, repeated for each sequence.
    pub(crate) fn of_each_sequence(&self, rows: &Tensor) -> RusTorchResult<Tensor> {
        match &self.sequences {
            None => Ok(rows.clone()),
            Some(all) => rows.repeat([all.count, 1]),
        }
    }

    /// The types of all tokens, if they are not all 0.
    pub(crate) fn types(&self) -> Option<&Tensor> {
        self.sequences.as_ref()?.types
    }

    /// Goes on to layer `index`.
    pub(crate) fn enter(&self, index: usize) {
        self.home.set(self.placement.layer(index));
        self.layer.set(index);
        self.rows.iter().for_each(|row| row.pass.enter(index));
    }

    /// Keeps the keys and values of the layer that is being computed, for later layers.
    pub(crate) fn lend(&self, attended: &Attended) {
        let mut lent = self.lent.borrow_mut();
        lent.insert(self.layer.get(), attended.clone());
    }

    /// The keys and values that the layer at this place has lent. Loading has checked that it lends them.
    pub(crate) fn lent(&self, layer: usize) -> Attended {
        self.lent.borrow()[&layer].clone()
    }

    /// The values of the first recurrent layer, which are these if no layer has come before.
    pub(crate) fn first_values(&self, own: &Tensor) -> RusTorchResult<Tensor> {
        let first = (self.first_values.borrow_mut())
            .get_or_insert_with(|| own.clone())
            .clone();
        self.at_home(&first)
    }

    /// Keeps the addend to scores of the keys that a layer has chosen; `None` if they are all.
    pub(crate) fn choose(&self, mask: Option<&Tensor>) {
        *self.chosen.borrow_mut() = mask.cloned();
    }

    /// The addend to scores of the latest layer that has chosen keys.
    pub(crate) fn chosen(&self) -> RusTorchResult<Option<Tensor>> {
        let chosen = self.chosen.borrow();
        chosen.as_ref().map(|mask| self.at_home(mask)).transpose()
    }

    /// The device of the tensor `name`, if it is not for the runtime to choose.
    pub(crate) fn device_of(&self, name: &str) -> Option<DeviceType> {
        self.placement.elsewhere(name).or(self.home.get())
    }

    /// `x` on the device of the tensor `name`.
    pub(crate) fn moved(&self, x: &Tensor, name: &str) -> RusTorchResult<Tensor> {
        on(x, self.device_of(name))
    }

    /// `x` on the layer's device.
    pub(crate) fn at_home(&self, x: &Tensor) -> RusTorchResult<Tensor> {
        on(x, self.home.get())
    }

    /// The addend to scores of `keys` keys: `f32` `[t, keys]`, with ALiBi `[heads, t, keys]`. With shorter sequences
    /// that are not causal, it has a dimension of sequences before these. `None` where causality is all. `window` is
    /// the place of the layer's window among those of the cache.
    pub(crate) fn mask(
        &self,
        spec: &AttentionSpec,
        keys: usize,
        window: Option<usize>,
    ) -> RusTorchResult<Option<Tensor>> {
        let padding = self.sequences.as_ref().and_then(|all| all.padding);
        let padding = padding.filter(|_| !spec.causal);
        let key = MaskKey {
            // Attention itself has windows on one side.
            window: (spec.window).filter(|window| !matches!(window, Window::Sliding(_))),
            alibi: spec.alibi.map(|power| (spec.heads, power)),
            hides_padding: padding.is_some(),
            keys,
            device: self.home.get(),
        };
        if key.window.is_none() && key.alibi.is_none() {
            return padding.map(|padding| self.at_home(padding)).transpose();
        }
        if let Some((_, mask)) = self.masks.borrow().iter().find(|(known, _)| *known == key) {
            return Ok(Some(mask.clone()));
        }
        let mask = match key.device {
            Some(device) => with_device(device, || self.new_mask(&key, window))??,
            None => self.new_mask(&key, window)?,
        };
        let mask = match padding {
            Some(padding) => mask.add(&self.at_home(padding)?)?,
            None => mask,
        };
        self.masks.borrow_mut().push((key, mask.clone()));
        Ok(Some(mask))
    }

    fn new_mask(&self, key: &MaskKey, window: Option<usize>) -> RusTorchResult<Tensor> {
        let mut keys = Tensor::arange_with(0, key.keys as i64, 1, DType::I32)?;
        if let Some((window, bases)) = window.zip(self.bases) {
            keys = keys.add(&bases.narrow(0, window, 1)?)?;
        }
        let queries = self.positions.unsqueeze(1)?;
        let seen = match key.window {
            None | Some(Window::Sliding(_)) => None,
            Some(Window::Chunked(n)) => {
                let begin = queries.sub(&queries.remainder(n as i64)?)?;
                Some(keys.ge(&begin)?)
            }
            Some(Window::Symmetric(n)) => {
                let distance = keys.sub(&queries)?.abs()?;
                Some(distance.le((n / 2) as i64)?)
            }
        };
        let bias = match key.alibi {
            None => None,
            Some((heads, power)) => {
                let slopes = Tensor::from_vec(slopes(heads, power), [heads, 1, 1])?;
                let distance = keys.sub(&queries)?.abs()?.neg()?;
                Some(distance.to_dtype(DType::F32)?.mul(&slopes)?)
            }
        };
        match (seen, bias) {
            (Some(sees), Some(bias)) => Tensor::where_(&sees, &bias, f64::NEG_INFINITY),
            (Some(sees), None) => {
                Tensor::where_(&sees, 0.0, f64::NEG_INFINITY)?.to_dtype(DType::F32)
            }
            (None, Some(bias)) => Ok(bias),
            (None, None) => Tensor::zeros([1, key.keys], DType::F32),
        }
    }

    /// The multiplier of the queries, `f32` `[t, 1]`.
    pub(crate) fn temperature(&self, spec: &Temperature) -> RusTorchResult<Tensor> {
        let at = self.positions.to_dtype(DType::F32)?.add(spec.offset)?;
        let steps = at.div(spec.floor as f64)?.floor()?.add(1.0)?;
        steps.log()?.mul(spec.scale)?.add(1.0)?.unsqueeze(1)
    }
}

fn on(x: &Tensor, device: Option<DeviceType>) -> RusTorchResult<Tensor> {
    match device {
        Some(device) => x.to_device(device),
        None => Ok(x.clone()),
    }
}

/// Slopes of ALiBi's bias ([Press et al.](https://arxiv.org/abs/2108.12409), section 3). They are a geometric
/// sequence for a power of two of heads. The other heads have every second slope of the next power.
fn slopes(heads: usize, power: f64) -> Vec<f32> {
    let whole = 1 << heads.max(1).ilog2();
    let base = |power: f64| (-power / f64::from(whole)).exp2();
    (0..heads as i32)
        .map(|head| match head < whole {
            true => base(power).powi(head + 1) as f32,
            false => base(power / 2.0).powi(2 * (head - whole) + 1) as f32,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::slopes;

    #[test]
    fn slopes_are_those_of_the_paper() {
        assert_eq!(slopes(4, 8.0), [0.25, 0.0625, 0.015625, 0.00390625]);
        let twelve = slopes(12, 8.0);
        assert_eq!(twelve[0], 0.5);
        assert_eq!(twelve[8], 0.5_f32.sqrt());
    }
}
