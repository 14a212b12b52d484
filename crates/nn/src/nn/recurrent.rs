//! Recurrent networks: RNN, LSTM, GRU, and their cells.
//!
//! The products of a layer with its whole input are one product. All time steps of an LSTM layer
//! are one operation; those of the others are unrolled.

use indexmap::IndexMap;
use rustorch_macros::track_calls;
use rustorch_tensor::amp::autocast_dtype;
use rustorch_tensor::{RusTorchResult, Tensor};

use super::linear::{bound_of, uniform};
use super::utils::rnn::PackedSequence;
use super::{Leaf, LeafMut, Module, Training, Visit, cloned};
use crate::error::{require, unexpected};

/// The nonlinearity of [`RNN`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RNNNonlinearity {
    /// The hyperbolic tangent.
    #[default]
    Tanh,
    /// `max(x, 0)`.
    Relu,
}

impl rustorch_tensor::Converted for RNNNonlinearity {}

/// Rule by which a state follows from the one before.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Cell {
    Rnn(RNNNonlinearity),
    Lstm,
    Gru,
}

impl Cell {
    /// Number of products of the hidden size.
    fn gates(self) -> usize {
        match self {
            Self::Rnn(_) => 1,
            Self::Lstm => 4,
            Self::Gru => 3,
        }
    }

    /// The next hidden and cell state (which LSTM alone changes): of the products of the input `x`
    /// `[…, gates · hidden]`, and of the states before with their weights.
    fn step(
        self,
        x: &Tensor,
        [h, c]: [&Tensor; 2],
        weight: &Tensor,
        [bias, projection]: [Option<&Tensor>; 2],
    ) -> RusTorchResult<[Tensor; 2]> {
        let y = h.linear(weight, bias)?;
        let parts = |x: &Tensor| x.chunk(self.gates(), -1);
        match self {
            Self::Rnn(RNNNonlinearity::Tanh) => Ok([x.add(&y)?.tanh()?, c.clone()]),
            Self::Rnn(RNNNonlinearity::Relu) => Ok([x.add(&y)?.relu()?, c.clone()]),
            Self::Lstm => {
                let gates = parts(&x.add(&y)?)?;
                let (input, forget) = (gates[0].sigmoid()?, gates[1].sigmoid()?);
                let (new, output) = (gates[2].tanh()?, gates[3].sigmoid()?);
                let c = forget.mul(c)?.add(&input.mul(&new)?)?;
                let h = output.mul(&c.tanh()?)?;
                let h = projection.map_or(Ok(h.clone()), |weight| h.linear(weight, None))?;
                Ok([h, c])
            }
            Self::Gru => {
                let (x, y) = (parts(x)?, parts(&y)?);
                let reset = x[0].add(&y[0])?.sigmoid()?;
                let update = x[1].add(&y[1])?.sigmoid()?;
                let new = x[2].add(&reset.mul(&y[2])?)?.tanh()?;
                Ok([new.add(&h.sub(&new)?.mul(&update)?)?, c.clone()])
            }
        }
    }
}

/// The common options of recurrent networks of several layers.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RNNOptions {
    /// Number of layers; each gets the output of the one before.
    pub num_layers: usize,
    /// Adds biases to the products.
    pub bias: bool,
    /// Puts the batch dimension first, and time second.
    pub batch_first: bool,
    /// Dropout probability between layers, in training.
    pub dropout: f64,
    /// Adds a second direction, from the end to the beginning (bidirectional).
    pub bidirectional: bool,
    /// The nonlinearity of [`RNN`].
    pub nonlinearity: RNNNonlinearity,
    /// The size that hidden states of [`LSTM`] are projected to; 0 for no projection.
    pub proj_size: usize,
}

impl Default for RNNOptions {
    fn default() -> Self {
        Self {
            num_layers: 1,
            bias: true,
            batch_first: false,
            dropout: 0.0,
            bidirectional: false,
            nonlinearity: RNNNonlinearity::Tanh,
            proj_size: 0,
        }
    }
}

impl RNNOptions {
    super::layers::setters!(
        num_layers: usize; bias: bool; batch_first: bool; dropout: f64; bidirectional: bool;
        nonlinearity: RNNNonlinearity; proj_size: usize;
    );
}

/// Layers of a network, with weights by PyTorch's names: `weight_ih_l0`, `bias_hh_l1_reverse`.
struct Layers {
    weights: IndexMap<String, Tensor>,
    training: Training,
    cell: Cell,
    hidden_size: usize,
    options: RNNOptions,
}

impl Module for Layers {}

impl Clone for Layers {
    #[track_caller]
    fn clone(&self) -> Self {
        cloned(|| Self {
            weights: self.weights.clone(),
            ..*self
        })
    }
}

/// The names are the network's own.
impl Visit for Layers {
    fn visit(&self, name: &str, visitor: &mut dyn FnMut(&str, Leaf)) {
        self.weights.visit(name, visitor);
        self.training.visit(name, visitor);
    }

    fn visit_mut(&mut self, name: &str, visitor: &mut dyn FnMut(&str, LeafMut)) {
        self.weights.visit_mut(name, visitor);
        self.training.visit_mut(name, visitor);
    }
}

impl Layers {
    fn new(
        name: &'static str,
        cell: Cell,
        [input_size, hidden_size]: [usize; 2],
        options: RNNOptions,
    ) -> RusTorchResult<Self> {
        let RNNOptions {
            num_layers,
            bias,
            dropout,
            bidirectional,
            proj_size,
            ..
        } = options;
        require(name, num_layers > 0, "at least one layer", num_layers)?;
        let expected = "a hidden_size above 0";
        require(name, hidden_size > 0, expected, hidden_size)?;
        require(
            name,
            (0.0..=1.0).contains(&dropout),
            "a probability of 0 to 1",
            dropout,
        )?;
        let projects = proj_size == 0 || cell == Cell::Lstm && proj_size < hidden_size;
        require(
            name,
            projects,
            "a proj_size below hidden_size, of LSTM alone",
            proj_size,
        )?;
        let (gates, bound) = (cell.gates() * hidden_size, bound_of(hidden_size));
        let hidden = if proj_size > 0 {
            proj_size
        } else {
            hidden_size
        };
        let mut weights = IndexMap::new();
        for layer in 0..num_layers {
            let directions = 1 + usize::from(bidirectional);
            let size = if layer == 0 {
                input_size
            } else {
                hidden * directions
            };
            for direction in 0..directions {
                let mut add = |what: &str, shape: &[usize]| -> RusTorchResult<()> {
                    weights.insert(weight_name(what, layer, direction), uniform(shape, bound)?);
                    Ok(())
                };
                add("weight_ih", &[gates, size])?;
                add("weight_hh", &[gates, hidden])?;
                if bias {
                    add("bias_ih", &[gates])?;
                    add("bias_hh", &[gates])?;
                }
                if proj_size > 0 {
                    add("weight_hr", &[proj_size, hidden_size])?;
                }
            }
        }
        Ok(Self {
            weights,
            training: Training::default(),
            cell,
            hidden_size,
            options,
        })
    }

    /// The output of each time step, and the last hidden states and cell states of all layers and directions.
    fn forward(
        &self,
        name: &'static str,
        x: &Tensor,
        first: [Option<&Tensor>; 2],
    ) -> RusTorchResult<[Tensor; 3]> {
        let expected = "a tensor [time, batch, features] or [time, features]";
        require(
            name,
            matches!(x.rank(), 2 | 3),
            expected,
            format_args!("{:?}", x.shape()),
        )?;
        let has_batch = x.rank() == 3;
        let time = usize::from(has_batch && self.options.batch_first);
        let x = if has_batch {
            x.clone()
        } else {
            x.unsqueeze(1)?
        };
        let x = if time == 0 { x } else { x.transpose(0, 1)? };
        let (times, n) = (x.size(0)?, x.size(1)?);
        require(name, times > 0, "at least one time", times)?;
        let first = match has_batch {
            true => first.map(|state| state.cloned()),
            false => {
                let [h, c] = first.map(|state| state.map(|state| state.unsqueeze(1)).transpose());
                [h?, c?]
            }
        };
        let [y, h, c] = self.sequences(name, &x, &Times::Full { times, n }, first)?;
        let output = if time == 0 { y } else { y.transpose(0, 1)? };
        match has_batch {
            true => Ok([output, h, c]),
            false => Ok([output.squeeze(1)?, h.squeeze(1)?, c.squeeze(1)?]),
        }
    }

    /// The same of sequences of several lengths.
    fn forward_packed(
        &self,
        name: &'static str,
        x: &PackedSequence,
        first: [Option<&Tensor>; 2],
    ) -> RusTorchResult<(PackedSequence, [Tensor; 2])> {
        let expected = "packed sequences [elements, features]";
        let shape = x.data().shape();
        require(name, shape.len() == 2, expected, format_args!("{shape:?}"))?;
        let [h, c] = first.map(|state| state.map(|state| x.sorted(state, 1)).transpose());
        let [y, h, c] =
            self.sequences(name, x.data(), &Times::Packed(x.batch_sizes()), [h?, c?])?;
        Ok((x.with_data(y), [x.unsorted(&h, 1)?, x.unsorted(&c, 1)?]))
    }

    /// Fails unless there are as many features as the first layer has weights for.
    fn require_features(&self, name: &'static str, x: &Tensor) -> RusTorchResult<()> {
        let weight = self.weights.get(&weight_name("weight_ih", 0, 0));
        let own = weight.and_then(|weight| weight.shape().last());
        let (shape, own) = (x.shape(), own.copied().unwrap_or(0));
        let expected = format_args!("{own} features");
        let got = format_args!("{shape:?}");
        require(name, shape.last() == Some(&own), expected, got)
    }

    /// All layers over the elements of sequences, and the last states of all layers and directions.
    fn sequences(
        &self,
        name: &'static str,
        x: &Tensor,
        times: &Times,
        first: [Option<Tensor>; 2],
    ) -> RusTorchResult<[Tensor; 3]> {
        self.require_features(name, x)?;
        let hidden = match self.options.proj_size {
            0 => self.hidden_size,
            size => size,
        };
        let directions = 1 + usize::from(self.options.bidirectional);
        let states = self.options.num_layers * directions;
        let state = |given: Option<Tensor>, size: usize| {
            let shape = [states, times.rows(0), size];
            let Some(given) = given else {
                return Tensor::zeros(shape, x.dtype());
            };
            let expected = format_args!("states {shape:?}");
            require(
                name,
                *given.shape() == shape,
                expected,
                format_args!("{:?}", given.shape()),
            )?;
            Ok(given)
        };
        let [first_h, first_c] = first;
        let (first_h, first_c) = (state(first_h, hidden)?, state(first_c, self.hidden_size)?);
        let mut y = x.clone();
        let (mut last_h, mut last_c) = (Vec::new(), Vec::new());
        for layer in 0..self.options.num_layers {
            if layer > 0 {
                y = y.dropout(self.options.dropout, self.training.is_on())?;
            }
            let mut made = Vec::new();
            for direction in 0..directions {
                let at = layer * directions + direction;
                let states = [first_h.select(0, at)?, first_c.select(0, at)?];
                let [part, h, c] = self.direction(&y, times, [layer, direction], states)?;
                made.push(part);
                last_h.push(h);
                last_c.push(c);
            }
            y = match &made[..] {
                [one] => one.clone(),
                several => Tensor::cat(several, -1)?,
            };
        }
        Ok([y, Tensor::stack(&last_h, 0)?, Tensor::stack(&last_c, 0)?])
    }

    /// One layer in one direction: its result for each time, and the last states.
    fn direction(
        &self,
        x: &Tensor,
        times: &Times,
        [layer, direction]: [usize; 2],
        first: [Tensor; 2],
    ) -> RusTorchResult<[Tensor; 3]> {
        let weight = |what| self.weights.get(&weight_name(what, layer, direction));
        let (Some(of_input), Some(of_state)) = (weight("weight_ih"), weight("weight_hh")) else {
            return Err(unexpected("forward", "weights of each layer", "none"));
        };
        let is_lstm = self.cell == Cell::Lstm && self.options.proj_size == 0;
        // A single time is not worth packing the weight.
        if is_lstm
            && times.len() > 1
            && are_of_one_dtype(&[x, of_input, of_state, &first[0], &first[1]])
        {
            let bias = match (weight("bias_ih"), weight("bias_hh")) {
                (Some(a), Some(b)) => Some(a.add(b)?),
                (a, b) => a.or(b).cloned(),
            };
            let products = x.linear(of_input, bias.as_ref())?;
            return times.lstm(&products, of_state, &first, direction == 1);
        }
        let products = x.linear(of_input, weight("bias_ih"))?;
        let own = [weight("bias_hh"), weight("weight_hr")];
        let mut order: Vec<usize> = (0..times.len()).collect();
        if direction == 1 {
            order.reverse();
        }
        let mut rows = order.first().map_or(0, |&at| times.rows(at));
        let mut states = part_of(&first, 0, rows)?;
        // The states of sequences that have ended, the shortest first.
        let mut ended = Vec::new();
        let mut steps = Vec::with_capacity(order.len());
        for at in order {
            let wanted = times.rows(at);
            if wanted < rows {
                ended.push(part_of(&states, wanted, rows - wanted)?);
                states = part_of(&states, 0, wanted)?;
            } else if wanted > rows {
                states = joined(&[states, part_of(&first, rows, wanted - rows)?])?;
            }
            rows = wanted;
            let [h, c] = &states;
            states = (self.cell).step(&times.select(&products, at)?, [h, c], of_state, own)?;
            steps.push(states[0].clone());
        }
        if direction == 1 {
            steps.reverse();
        }
        if !ended.is_empty() {
            ended.push(states);
            ended.reverse();
            states = joined(&ended)?;
        }
        let [h, c] = states;
        Ok([times.join(&steps)?, h, c])
    }
}

/// Layout of sequences' elements in a tensor.
enum Times<'a> {
    /// `[times, n, features]`.
    Full { times: usize, n: usize },
    /// `[elements, features]`, with the number of sequences at each time step.
    Packed(&'a [usize]),
}

impl Times<'_> {
    fn len(&self) -> usize {
        match self {
            Self::Full { times, .. } => *times,
            Self::Packed(sizes) => sizes.len(),
        }
    }

    /// Number of sequences that have a time.
    fn rows(&self, at: usize) -> usize {
        match self {
            Self::Full { n, .. } => *n,
            Self::Packed(sizes) => sizes[at],
        }
    }

    /// The elements of a time.
    fn select(&self, x: &Tensor, at: usize) -> RusTorchResult<Tensor> {
        match self {
            Self::Full { .. } => x.select(0, at),
            Self::Packed(sizes) => {
                let before: usize = sizes[..at].iter().sum();
                x.narrow(0, before, sizes[at])
            }
        }
    }

    /// All steps of long short-term memory, by the products of the input: the hidden states, and the last `h` and `c`.
    fn lstm(
        &self,
        products: &Tensor,
        weight: &Tensor,
        [h, c]: &[Tensor; 2],
        reverse: bool,
    ) -> RusTorchResult<[Tensor; 3]> {
        match *self {
            Self::Packed(sizes) => products.lstm(weight, [h, c], sizes, reverse),
            Self::Full { times, n } => {
                let products = products.flatten(0, 1)?;
                let [y, h, c] = products.lstm(weight, [h, c], &vec![n; times], reverse)?;
                Ok([y.unflatten(0, [times, n])?, h, c])
            }
        }
    }

    /// The tensor of the elements of each time.
    fn join(&self, steps: &[Tensor]) -> RusTorchResult<Tensor> {
        match self {
            Self::Full { .. } => Tensor::stack(steps, 0),
            Self::Packed(_) => Tensor::cat(steps, 0),
        }
    }
}

/// Are tensors of one dtype, which products keep?
fn are_of_one_dtype(tensors: &[&Tensor]) -> bool {
    autocast_dtype().is_none()
        && tensors
            .windows(2)
            .all(|pair| pair[0].dtype() == pair[1].dtype())
}

/// A range of rows of the states.
fn part_of(states: &[Tensor; 2], begin: usize, rows: usize) -> RusTorchResult<[Tensor; 2]> {
    let [h, c] = states;
    match begin == 0 && rows == h.size(0)? {
        true => Ok(states.clone()),
        false => Ok([h.narrow(0, begin, rows)?, c.narrow(0, begin, rows)?]),
    }
}

/// Rows of states, one after the other.
fn joined(states: &[[Tensor; 2]]) -> RusTorchResult<[Tensor; 2]> {
    let all = |i: usize| Tensor::cat(&states.iter().map(|state| &state[i]).collect::<Vec<_>>(), 0);
    Ok([all(0)?, all(1)?])
}

fn weight_name(what: &str, layer: usize, direction: usize) -> String {
    let reverse = if direction == 0 { "" } else { "_reverse" };
    format!("{what}_l{layer}{reverse}")
}

/// Networks of several layers: documentation, name, cell.
macro_rules! networks {
    ($($(#[$about:meta])* $Network:ident = |$options:ident| $cell:expr;)*) => {
        $(
            $(#[$about])*
            ///
            /// Parameters are `weight_ih_l0` `[gates · hidden, input]`, `weight_hh_l0` `[gates · hidden, hidden]`,
            /// `bias_ih_l0` and `bias_hh_l0`. Further layers and `…_reverse` have the same.
            #[derive(Clone)]
            pub struct $Network {
                layers: Layers,
            }

            impl Visit for $Network {
                fn visit(&self, name: &str, visitor: &mut dyn FnMut(&str, Leaf)) {
                    self.layers.visit(name, visitor);
                }

                fn visit_mut(&mut self, name: &str, visitor: &mut dyn FnMut(&str, LeafMut)) {
                    self.layers.visit_mut(name, visitor);
                }
            }

            impl Module for $Network {}

            #[track_calls($Network)]
            impl $Network {
                /// Weights and biases are uniform in `±1 / √hidden_size`.
                ///
                /// # Errors
                /// Fails for unsupported options, or for sizes too large for memory.
                pub fn new(
                    input_size: usize,
                    hidden_size: usize,
                    options: RNNOptions,
                ) -> RusTorchResult<Self> {
                    let $options = &options;
                    let (name, sizes) = (stringify!($Network), [input_size, hidden_size]);
                    Ok(Self { layers: Layers::new(name, $cell, sizes, options)? })
                }
            }
        )*
    };
}

networks! {
    /// `hₜ = tanh(W xₜ + b + U hₜ₋₁ + d)`, or with ReLU.
    RNN = |options| Cell::Rnn(options.nonlinearity);
    /// Long short-term memory
    /// ([Hochreiter and Schmidhuber](https://www.bioinf.jku.at/publications/older/2604.pdf)).
    /// Hidden states may be projected (`weight_hr_l0`,
    /// [Sak et al.](https://arxiv.org/abs/1402.1128)).
    LSTM = |_options| Cell::Lstm;
    /// Gated recurrent units ([Cho et al.](https://arxiv.org/abs/1406.1078)).
    GRU = |_options| Cell::Gru;
}

macro_rules! forward_of_one_state {
    ($($Network:ident)*) => {
        $(#[track_calls($Network)]
        impl $Network {
            /// The output of each time step `[time, n, directions · hidden]`, and the last states
            /// `[layers · directions, n, hidden]`. `x` is `[time, n, input]`, or `[n, time, input]` if the
            /// batch is first. The batch dimension is optional. The first state is `h`, or zeros.
            ///
            /// # Errors
            /// Fails for unsupported shapes.
            pub fn forward(&self, x: &Tensor, h: Option<&Tensor>) -> RusTorchResult<(Tensor, Tensor)> {
                let [output, h, _] = self.layers.forward(stringify!($Network), x, [h, None])?;
                Ok((output, h))
            }

            /// The same for packed sequences of several lengths; each ends at its own length.
            ///
            /// # Errors
            /// Fails for unsupported shapes.
            pub fn forward_packed(
                &self,
                x: &PackedSequence,
                h: Option<&Tensor>,
            ) -> RusTorchResult<(PackedSequence, Tensor)> {
                let (output, [h, _]) =
                    self.layers.forward_packed(stringify!($Network), x, [h, None])?;
                Ok((output, h))
            }
        })*
    };
}

forward_of_one_state!(RNN GRU);

#[track_calls(LSTM)]
impl LSTM {
    /// The output of each time step `[time, n, directions · hidden]`, and the last hidden and cell states
    /// `[layers · directions, n, hidden]`. `x` is `[time, n, input]`, or `[n, time, input]` if the batch is
    /// first. The batch dimension is optional. The first states are `states`, or zeros.
    ///
    /// # Errors
    /// Fails for unsupported shapes.
    pub fn forward(
        &self,
        x: &Tensor,
        states: Option<(&Tensor, &Tensor)>,
    ) -> RusTorchResult<(Tensor, (Tensor, Tensor))> {
        let first = states.map_or([None, None], |(h, c)| [Some(h), Some(c)]);
        let [output, h, c] = self.layers.forward("LSTM", x, first)?;
        Ok((output, (h, c)))
    }

    /// The same for packed sequences of several lengths; each ends at its own length.
    ///
    /// # Errors
    /// Fails for unsupported shapes.
    pub fn forward_packed(
        &self,
        x: &PackedSequence,
        states: Option<(&Tensor, &Tensor)>,
    ) -> RusTorchResult<(PackedSequence, (Tensor, Tensor))> {
        let first = states.map_or([None, None], |(h, c)| [Some(h), Some(c)]);
        let (output, [h, c]) = self.layers.forward_packed("LSTM", x, first)?;
        Ok((output, (h, c)))
    }
}

/// The weights of one step.
macro_rules! cells {
    ($($(#[$about:meta])* $Step:ident($($option:ident: $Option:ty),*) = $cell:expr;)*) => {
        $(
            $(#[$about])*
            #[derive(Module)]
            pub struct $Step {
                /// `[gates · hidden, input]`.
                pub weight_ih: Tensor,
                /// `[gates · hidden, hidden]`.
                pub weight_hh: Tensor,
                /// `[gates · hidden]`.
                pub bias_ih: Option<Tensor>,
                /// `[gates · hidden]`.
                pub bias_hh: Option<Tensor>,
                $(
                    /// The function.
                    #[module(skip)]
                    pub $option: $Option,
                )*
            }

            #[track_calls($Step)]
            impl $Step {
                /// A cell with biases. All weights are uniform in `±1 / √hidden_size`.
                ///
                /// # Errors
                /// Fails for sizes too large for memory.
                pub fn new(
                    input_size: usize,
                    hidden_size: usize,
                    $($option: $Option,)*
                ) -> RusTorchResult<Self> {
                    let cell: Cell = $cell;
                    let (gates, bound) = (cell.gates() * hidden_size, bound_of(hidden_size));
                    Ok(Self {
                        weight_ih: uniform([gates, input_size], bound)?,
                        weight_hh: uniform([gates, hidden_size], bound)?,
                        bias_ih: Some(uniform(gates, bound)?),
                        bias_hh: Some(uniform(gates, bound)?),
                        $($option,)*
                    })
                }

                /// Removes the biases.
                #[must_use]
                pub fn without_bias(mut self) -> Self {
                    (self.bias_ih, self.bias_hh) = (None, None);
                    self
                }

                /// The next states of `[n, hidden]`, or `[hidden]`; none are zeros.
                fn step(
                    &self,
                    x: &Tensor,
                    h: Option<&Tensor>,
                    c: Option<&Tensor>,
                ) -> RusTorchResult<[Tensor; 2]> {
                    $(let $option = self.$option;)*
                    let name = stringify!($Step);
                    let fits = matches!(x.rank(), 1 | 2);
                    let expected = "a tensor [n, input] or [input]";
                    require(name, fits, expected, format_args!("{:?}", x.shape()))?;
                    let shape = [&x.shape()[..x.rank() - 1], &[self.weight_hh.size(1)?]].concat();
                    for state in [h, c].into_iter().flatten() {
                        let expected = format_args!("a state {shape:?}");
                        require(name, state.shape() == shape, expected, format_args!("{:?}", state.shape()))?;
                    }
                    let zeros = Tensor::zeros(&shape[..], x.dtype())?;
                    let products = x.linear(&self.weight_ih, self.bias_ih.as_ref())?;
                    let states = [h, c].map(|state| state.unwrap_or(&zeros));
                    let cell: Cell = $cell;
                    cell.step(&products, states, &self.weight_hh, [self.bias_hh.as_ref(), None])
                }
            }
        )*
    };
}

cells! {
    /// One step of [`RNN`].
    RNNCell(nonlinearity: RNNNonlinearity) = Cell::Rnn(nonlinearity);
    /// One step of [`LSTM`].
    LSTMCell() = Cell::Lstm;
    /// One step of [`GRU`].
    GRUCell() = Cell::Gru;
}

#[track_calls(RNNCell)]
impl RNNCell {
    /// The next state from `x` `[n, input]` and `h` `[n, hidden]`. The batch dimension is optional.
    ///
    /// # Errors
    /// Fails for unsupported shapes.
    pub fn forward(&self, x: &Tensor, h: Option<&Tensor>) -> RusTorchResult<Tensor> {
        let [h, _] = self.step(x, h, None)?;
        Ok(h)
    }
}

#[track_calls(GRUCell)]
impl GRUCell {
    /// The next state from `x` `[n, input]` and `h` `[n, hidden]`. The batch dimension is optional.
    ///
    /// # Errors
    /// Fails for unsupported shapes.
    pub fn forward(&self, x: &Tensor, h: Option<&Tensor>) -> RusTorchResult<Tensor> {
        let [h, _] = self.step(x, h, None)?;
        Ok(h)
    }
}

#[track_calls(LSTMCell)]
impl LSTMCell {
    /// The next hidden and cell state from `x` `[n, input]` and states `[n, hidden]`. The batch
    /// dimension is optional.
    ///
    /// # Errors
    /// Fails for unsupported shapes.
    pub fn forward(
        &self,
        x: &Tensor,
        states: Option<(&Tensor, &Tensor)>,
    ) -> RusTorchResult<(Tensor, Tensor)> {
        let (h, c) = states.unzip();
        Ok(self.step(x, h, c)?.into())
    }
}
