//! The common interface of optimisers: parameters in groups, their state, one evaluation for each
//! step.

pub(super) mod pytorch;
mod recorded;

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};

use indexmap::IndexMap;
use rustorch_files::Tensors;
use rustorch_ir::DType;
use rustorch_macros::track_calls;
use rustorch_tensor::warnings::warn_once;
use rustorch_tensor::{RusTorchResult, Tensor, eval_all, no_grad};

use super::options::Options;
use crate::error::{require, unexpected};
use crate::nn::ParameterId;
pub(crate) use recorded::RecordedUpdate;

/// The update rule of an optimiser; the type holds its options.
pub trait Rule: Options + Default + Send + Sync {
    /// The optimiser's name, for errors.
    const NAME: &'static str;

    /// Whether it takes complex parameters, as pairs of real numbers.
    const TAKES_COMPLEX: bool = true;

    /// Checks the values of the options.
    ///
    /// # Errors
    /// Fails for the first invalid option.
    fn check(&self) -> RusTorchResult<()>;

    /// Checks that the optimiser supports the parameter.
    ///
    /// # Errors
    /// Never fails by default.
    fn check_parameter(&self, _name: &str, _parameter: &Tensor) -> RusTorchResult<()> {
        Ok(())
    }

    /// The next value of a parameter, from its gradient of the same shape, in `step`, which counts from 1. The next
    /// step can read the state that a step writes.
    ///
    /// # Errors
    /// Fails for tensors whose shapes do not fit.
    fn update(
        &self,
        step: f64,
        parameter: &Tensor,
        gradient: &Tensor,
        state: &mut State,
    ) -> RusTorchResult<Tensor>;
}

/// An optimiser's state for a parameter, under PyTorch's names.
#[derive(Default)]
pub struct State {
    /// A tensor in memory.
    stored: IndexMap<&'static str, Tensor>,
    /// A new value of this step.
    next: IndexMap<&'static str, Tensor>,
    /// A new entry that begins as zeros like these.
    zeros: IndexMap<&'static str, Tensor>,
}

#[track_calls(State)]
impl State {
    /// The same memory, with nothing set.
    fn begun(&self) -> Self {
        Self {
            stored: self.stored.clone(),
            ..Self::default()
        }
    }

    /// The value of the last step, if it exists.
    pub fn get(&self, name: &str) -> Option<&Tensor> {
        self.stored.get(name)
    }

    /// The value of the last step, or the result of `first`.
    ///
    /// # Errors
    /// The errors of `first`.
    pub fn get_or(
        &self,
        name: &str,
        first: impl FnOnce() -> RusTorchResult<Tensor>,
    ) -> RusTorchResult<Tensor> {
        self.get(name)
            .map_or_else(first, |tensor| Ok(tensor.clone()))
    }

    /// The value of the last step, or zeros like `tensor`.
    ///
    /// # Errors
    /// Fails for a block format.
    pub fn get_or_zeros(&mut self, name: &'static str, tensor: &Tensor) -> RusTorchResult<Tensor> {
        if self.get(name).is_none() {
            self.zeros.insert(name, tensor.clone());
        }
        self.get_or(name, || tensor.zeros_like())
    }

    /// Sets the value for the next step.
    pub fn set(&mut self, name: &'static str, tensor: &Tensor) {
        self.next.insert(name, tensor.clone());
    }

    /// Memory of new values: the old memory, or new one.
    fn memory(&self, name: &str, next: &Tensor) -> RusTorchResult<Tensor> {
        match self.stored.get(name) {
            Some(memory) => Ok(memory.clone()),
            None => {
                let memory = next.zeros_like()?;
                memory.eval()?;
                Ok(memory)
            }
        }
    }

    /// Records the writes of new values to memory.
    fn record(&mut self) -> RusTorchResult<()> {
        for (name, tensor) in std::mem::take(&mut self.next) {
            let mut memory = self.memory(name, &tensor)?;
            memory.copy_(&tensor)?;
            self.stored.insert(name, memory);
        }
        Ok(())
    }
}

/// A parameter with its name and state.
struct Parameter {
    name: String,
    tensor: Tensor,
    /// The tensor's, when it was taken.
    data_changes: u32,
    step: f64,
    state: State,
}

/// Parameters with the same options.
pub struct ParamGroup<R> {
    /// Learning rate and all other options; they may change between steps.
    pub options: R,
    parameters: Vec<Parameter>,
    scheduled: Scheduled,
}

impl<R> ParamGroup<R> {
    /// The parameters with their names.
    pub fn named_parameters(&self) -> impl Iterator<Item = (&str, &Tensor)> {
        (self.parameters.iter()).map(|parameter| (parameter.name.as_str(), &parameter.tensor))
    }
}

/// Parameters for an optimiser: with names, as
/// [`named_parameters`](crate::nn::Module::named_parameters) gives them, or without, which are called by their numbers.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a list of parameters",
    label = "expected parameters",
    note = "parameters are what `net.named_parameters()` or `net.parameters()` gives"
)]
pub trait IntoParameters {
    /// The parameters with names; `first` is the number of parameters before.
    fn into_parameters(self, first: usize) -> Vec<(String, Tensor)>;
}

impl IntoParameters for Vec<(String, Tensor)> {
    fn into_parameters(self, _: usize) -> Vec<(String, Tensor)> {
        self
    }
}

impl IntoParameters for Vec<Tensor> {
    fn into_parameters(self, first: usize) -> Vec<(String, Tensor)> {
        let numbered = self.into_iter().enumerate();
        numbered
            .map(|(i, tensor)| ((first + i).to_string(), tensor))
            .collect()
    }
}

impl<const N: usize> IntoParameters for [Tensor; N] {
    fn into_parameters(self, first: usize) -> Vec<(String, Tensor)> {
        Vec::from(self).into_parameters(first)
    }
}

/// An optimiser: it updates parameters in their memory by their gradients.
///
/// A step is recorded for all parameters and computed at once. Learning rates, numbers of steps and
/// similar values are data: all steps but the first have the same graph.
pub struct Optimizer<R: Rule> {
    id: OptimizerId,
    groups: Vec<ParamGroup<R>>,
}

/// The identity of an optimiser, which it keeps where it moves.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct OptimizerId(u64);

impl OptimizerId {
    fn new() -> Self {
        static MADE: AtomicU64 = AtomicU64::new(0);
        Self(MADE.fetch_add(1, Ordering::Relaxed))
    }
}

/// Version of optimisers' `state_dict`.
pub(super) const VERSION: f64 = 1.0;

/// The problem of a state of another version.
pub(super) fn other_version(version: f64) -> String {
    format!("version {version}, where this is for version {VERSION} (a newer rustorch reads it)")
}

#[track_calls(Optimizer)]
impl<R: Rule> Optimizer<R> {
    /// Sets the options of one group.
    ///
    /// # Errors
    /// Fails for an empty list of parameters. Also the errors of [`Optimizer::add_param_group`].
    pub fn new(parameters: impl IntoParameters, options: R) -> RusTorchResult<Self> {
        let mut optimizer = Self {
            id: OptimizerId::new(),
            groups: Vec::new(),
        };
        optimizer.add_param_group(parameters, options)?;
        let has_some = optimizer.parameters().next().is_some();
        let expected = "parameters to train (a lazy module has them after its first call)";
        require(R::NAME, has_some, expected, "none")?;
        Ok(optimizer)
    }

    pub(crate) fn id(&self) -> OptimizerId {
        self.id
    }

    /// Adds a group with its own options. A parameter that is listed twice counts once.
    ///
    /// # Errors
    /// Fails for an invalid option. Also fails for a parameter that is not a leaf, has no float dtype,
    /// or is in a group already. Also fails for two parameters of one name.
    pub fn add_param_group(
        &mut self,
        parameters: impl IntoParameters,
        options: R,
    ) -> RusTorchResult<()> {
        options.check()?;
        let mut known: HashSet<ParameterId> = self
            .parameters()
            .map(|p| ParameterId::of(&p.tensor))
            .collect();
        let mut names: HashSet<String> = self.parameters().map(|p| p.name.clone()).collect();
        let parameters = parameters.into_parameters(known.len());
        let tensors: Vec<&Tensor> = parameters.iter().map(|(_, tensor)| tensor).collect();
        eval_all(&tensors)?;
        let (others, mut own) = (known.clone(), Vec::new());
        for (name, tensor) in parameters {
            let got = |what: &str| format!("{name}, which {what}");
            let check = |fits, expected: &str, what| require(R::NAME, fits, expected, got(what));
            check(
                tensor.is_leaf(),
                "leaves to train",
                "was computed from others",
            )?;
            let is_complex = tensor.dtype().is_complex() && R::TAKES_COMPLEX;
            let expected = match R::TAKES_COMPLEX {
                true => "parameters of floats or complex numbers",
                false => "parameters of floats",
            };
            check(tensor.dtype().is_float() || is_complex, expected, "is not")?;
            options.check_parameter(&name, &tensor)?;
            // A tensor of rank 0 may be a number without memory of its own yet.
            tensor.storage()?;
            let id = ParameterId::of(&tensor);
            check(
                !others.contains(&id),
                "each parameter in one group",
                "is in another, too",
            )?;
            if known.insert(id) {
                check(
                    !names.contains(&name),
                    "a name for each parameter",
                    "names two",
                )?;
                names.insert(name.clone());
                own.push(Parameter {
                    name,
                    data_changes: tensor.data_changes(),
                    tensor,
                    step: 0.0,
                    state: State::default(),
                });
            } else {
                let text = "a parameter is in the list twice, and is trained once";
                warn_once(R::NAME, text);
            }
        }
        self.groups.push(ParamGroup {
            options,
            parameters: own,
            scheduled: Scheduled::default(),
        });
        Ok(())
    }

    fn parameters(&self) -> impl Iterator<Item = &Parameter> {
        self.groups.iter().flat_map(|group| &group.parameters)
    }

    /// The groups.
    pub fn param_groups(&self) -> &[ParamGroup<R>] {
        &self.groups
    }

    /// The groups with mutable options.
    pub fn param_groups_mut(&mut self) -> &mut [ParamGroup<R>] {
        &mut self.groups
    }

    /// Updates the parameters by their [gradients](Tensor::grad); parameters without one do not change.
    ///
    /// # Errors
    /// The same errors as [`Optimizer::step_with`].
    pub fn step(&mut self) -> RusTorchResult<()> {
        self.step_with(|_, parameter| parameter.grad())
    }

    /// Removes the gradients of all parameters.
    pub fn zero_grad(&self) {
        self.parameters()
            .for_each(|parameter| parameter.tensor.zero_grad());
    }

    /// Updates the parameters by the gradients that `gradient` returns; parameters without one do not change.
    ///
    /// # Errors
    /// Fails for an invalid option, or for a gradient of another shape or dtype. Also fails if the
    /// gradient cannot be computed.
    pub fn step_with(
        &mut self,
        gradient: impl Fn(&str, &Tensor) -> Option<Tensor>,
    ) -> RusTorchResult<()> {
        no_grad(|| {
            self.groups
                .iter()
                .try_for_each(|group| group.options.check())?;
            let before = self.parameters().map(Parameter::handles);
            let before: Vec<_> = before.collect();
            let stepped = self.record(gradient).and_then(|()| {
                let written = self.parameters().flat_map(|parameter| {
                    let state = parameter.state.stored.values();
                    state.chain([&parameter.tensor])
                });
                eval_all(&written.collect::<Vec<_>>())
            });
            if stepped.is_err() {
                // A step that was not made is forgotten: a later one begins with what is in memory.
                let parameters = self
                    .groups
                    .iter_mut()
                    .flat_map(|group| &mut group.parameters);
                for (parameter, (tensor, stored, step)) in parameters.zip(before) {
                    (parameter.tensor, parameter.step) = (tensor, step);
                    parameter.state = State {
                        stored,
                        ..State::default()
                    };
                }
            }
            stepped
        })
    }

    /// Records the updates of a step.
    fn record(&mut self, gradient: impl Fn(&str, &Tensor) -> Option<Tensor>) -> RusTorchResult<()> {
        for group in &mut self.groups {
            for parameter in &mut group.parameters {
                if let Some(gradient) = gradient(&parameter.name, &parameter.tensor) {
                    parameter.record(&group.options, &gradient.detach())?;
                }
            }
        }
        Ok(())
    }

    /// The state as named tensors: `state.NAME.exp_avg` and so on, `param_groups.0.lr` and so on,
    /// and a version. They are handles on the optimiser's memory.
    ///
    /// # Errors
    /// Fails for sizes too large for memory.
    pub fn state_dict(&self) -> RusTorchResult<Tensors> {
        let mut tensors = Tensors::new();
        tensors.insert("version", Tensor::scalar(VERSION, DType::F64)?);
        for parameter in self.parameters().filter(|parameter| parameter.step > 0.0) {
            let name = |key| format!("state.{}.{key}", parameter.name);
            tensors.insert(name("step"), Tensor::scalar(parameter.step, DType::F64)?);
            for (key, tensor) in &parameter.state.stored {
                tensors.insert(name(key), tensor.clone());
            }
        }
        for (i, group) in self.groups.iter().enumerate() {
            let mut options = Vec::new();
            (group.options.clone()).each(&mut |name, value| options.push((name, value.numbers())));
            for (name, numbers) in options {
                let length = numbers.len();
                let tensor = Tensor::from_vec(numbers, length)?;
                tensors.insert(format!("param_groups.{i}.{name}"), tensor);
            }
        }
        Ok(tensors)
    }

    /// Loads a state from [`Optimizer::state_dict`], by the names of parameters. If it does not
    /// match, nothing changes.
    ///
    /// # Errors
    /// Fails if the state does not match: a newer version, other groups, options, parameters or
    /// shapes. One error lists all differences.
    pub fn load_state_dict(&mut self, state: &Tensors) -> RusTorchResult<()> {
        let loaded = self.check_state_dict(state)?;
        self.install(loaded);
        Ok(())
    }

    /// A state that [`Optimizer::state_dict`] gave, if it fits.
    ///
    /// # Errors
    /// The same errors as [`Optimizer::load_state_dict`].
    pub(crate) fn check_state_dict(&self, state: &Tensors) -> RusTorchResult<Loaded<R>> {
        let mut loaded = Loaded {
            groups: self
                .groups
                .iter()
                .map(|group| group.options.clone())
                .collect(),
            states: IndexMap::new(),
            problems: Vec::new(),
        };
        let shapes: IndexMap<&str, &Tensor> = self
            .parameters()
            .map(|p| (p.name.as_str(), &p.tensor))
            .collect();
        let version = state
            .opt("version")
            .map(|version| number(version, "version"));
        match version.transpose()? {
            Some(VERSION) => {}
            Some(version) => loaded.problems.push(other_version(version)),
            None => loaded
                .problems
                .push("no version (is it the state of an optimiser?)".to_owned()),
        }
        for (name, tensor) in state.iter() {
            if let Some(name) = name.strip_prefix("param_groups.") {
                loaded.option(name, tensor)?;
            } else if let Some(name) = name.strip_prefix("state.") {
                loaded.state(name, tensor, &shapes)?;
            } else if name != "version" {
                loaded.problems.push(format!("an unknown {name}"));
            }
        }
        for (i, options) in loaded.groups.iter().enumerate() {
            let (mut names, mut options) = (Vec::new(), options.clone());
            options.each(&mut |name, _| names.push(format!("param_groups.{i}.{name}")));
            let missing = names.into_iter().filter(|name| state.opt(name).is_none());
            loaded
                .problems
                .extend(missing.map(|name| format!("no {name}")));
            loaded
                .problems
                .extend(options.check().err().map(|e| e.to_string()));
        }
        let expected = format_args!("the state of {} with these parameters", R::NAME);
        require(
            "load_state_dict",
            loaded.problems.is_empty(),
            expected,
            loaded.problems.join("; "),
        )?;
        Ok(loaded)
    }

    /// Takes a state that fits.
    pub(crate) fn install(&mut self, mut loaded: Loaded<R>) {
        for (group, options) in self.groups.iter_mut().zip(loaded.groups) {
            group.options = options;
            for parameter in &mut group.parameters {
                (parameter.step, parameter.state) = loaded
                    .states
                    .swap_remove(&parameter.name)
                    .unwrap_or_default();
            }
        }
    }
}

/// The loaded values, once all of them are known to fit.
pub(crate) struct Loaded<R: Rule> {
    groups: Vec<R>,
    states: IndexMap<String, (f64, State)>,
    problems: Vec<String>,
}

impl<R: Rule> Loaded<R> {
    /// `0.lr`.
    fn option(&mut self, name: &str, tensor: &Tensor) -> RusTorchResult<()> {
        let numbers = tensor
            .to_dtype(DType::F64)?
            .flatten(0, -1)?
            .to_vec::<f64>()?;
        let parts = name
            .split_once('.')
            .and_then(|(i, name)| Some((i.parse().ok()?, name)));
        let is_set = parts.is_some_and(|(i, name): (usize, &str)| {
            self.groups
                .get_mut(i)
                .is_some_and(|options| options.set_option(name, &numbers))
        });
        let problem = match parts {
            Some((i, _)) if i >= self.groups.len() => {
                format!("an unknown group param_groups.{i}")
            }
            _ => format!("an unknown option param_groups.{name}"),
        };
        if !is_set && !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
        Ok(())
    }

    /// `fc.weight.exp_avg`.
    fn state(
        &mut self,
        name: &str,
        tensor: &Tensor,
        parameters: &IndexMap<&str, &Tensor>,
    ) -> RusTorchResult<()> {
        let parts = name.rsplit_once('.');
        let known = parts.and_then(|(name, key)| {
            let key = STATE_KEYS.iter().find(|known| **known == key)?;
            Some((name, *key, *parameters.get(name)?))
        });
        let Some((name, key, parameter)) = known else {
            self.problems.push(format!("an unknown state.{name}"));
            return Ok(());
        };
        let (step, state) = self.states.entry(name.to_owned()).or_default();
        if key == "step" {
            *step = number(tensor, "step")?;
            return Ok(());
        }
        let (shape, own) = (tensor.shape(), parameter.shape());
        let fits = match key {
            "eta" | "mu" | "mu_product" => shape.is_empty(),
            // Each is a variance of rows or columns.
            "row_var" | "col_var" => {
                shape.len() == own.len() && shape.iter().zip(own).all(|(a, b)| a == b || *a == 1)
            }
            _ => shape == own,
        };
        if !fits {
            self.problems.push(format!(
                "state.{name}.{key} {shape:?} for a parameter {own:?}"
            ));
        }
        // Memory of its own, which steps write to.
        let mut memory = tensor.zeros_like()?;
        memory.copy_(&tensor.detach())?;
        memory.eval()?;
        state.stored.insert(key, memory);
        Ok(())
    }
}

/// The state of optimisers, by name.
const STATE_KEYS: [&str; 20] = [
    "step",
    "acc_delta",
    "ax",
    "col_var",
    "eta",
    "exp_avg",
    "exp_avg_sq",
    "exp_inf",
    "grad_avg",
    "max_exp_avg_sq",
    "momentum_buffer",
    "mu",
    "mu_product",
    "prev",
    "row_var",
    "square_avg",
    "step_size",
    "sum",
    "variance",
    "z",
];

/// Fails unless a gradient is one of this parameter.
pub(super) fn require_gradient(
    optimizer: &'static str,
    name: &str,
    parameter: &Tensor,
    gradient: &Tensor,
) -> RusTorchResult<()> {
    let described = |x: &Tensor| format!("{}{:?}", x.dtype(), x.shape());
    let fits = gradient.shape() == parameter.shape() && gradient.dtype() == parameter.dtype();
    let expected = format_args!("a gradient {} of {name}", described(parameter));
    require(optimizer, fits, expected, described(gradient))
}

/// Fails if a parameter has got other memory since `known`: a step would train memory that is no longer
/// used.
pub(super) fn require_data(
    optimizer: &'static str,
    name: &str,
    parameter: &Tensor,
    known: u32,
) -> RusTorchResult<()> {
    let fits = parameter.data_changes() == known;
    let expected = format_args!("{name} as it was when the optimiser was made");
    let got = "one with other data (make the optimiser after to_dtype)";
    require(optimizer, fits, expected, got)
}

pub(super) fn number(tensor: &Tensor, what: &'static str) -> RusTorchResult<f64> {
    match tensor.numel() {
        1 => tensor.to_dtype(DType::F64)?.reshape([1])?.item(),
        n => Err(unexpected(
            "load_state_dict",
            format_args!("one number as {what}"),
            n,
        )),
    }
}

impl Parameter {
    /// The updates of a step.
    fn handles(&self) -> (Tensor, IndexMap<&'static str, Tensor>, f64) {
        (self.tensor.clone(), self.state.stored.clone(), self.step)
    }

    /// The values of the parameter and of its state after the step.
    fn next<R: Rule>(&self, options: &R, gradient: &Tensor) -> RusTorchResult<(Tensor, State)> {
        require_data(R::NAME, &self.name, &self.tensor, self.data_changes)?;
        require_gradient(R::NAME, &self.name, &self.tensor, gradient)?;
        self.updated(options, gradient)
    }

    /// The same, by a gradient that is checked. Complex numbers are pairs of real ones to a rule,
    /// as in PyTorch.
    fn updated<R: Rule>(&self, options: &R, gradient: &Tensor) -> RusTorchResult<(Tensor, State)> {
        let (p, step) = (self.tensor.detach(), self.step + 1.0);
        let mut state = self.state.begun();
        if !p.dtype().is_complex() {
            let next = options.update(step, &p, gradient, &mut state)?;
            return Ok((next, state));
        }
        for stored in state.stored.values_mut() {
            if stored.dtype().is_complex() {
                *stored = stored.view_as_real()?;
            }
        }
        let pairs = p.view_as_real()?;
        let next = options.update(step, &pairs, &gradient.view_as_real()?, &mut state)?;
        for tensor in state.next.values_mut().chain(state.zeros.values_mut()) {
            if tensor.shape() == pairs.shape() {
                *tensor = tensor.view_as_complex()?;
            }
        }
        state.stored = self.state.stored.clone();
        Ok((next.view_as_complex()?, state))
    }

    /// Records a step.
    fn record<R: Rule>(&mut self, options: &R, gradient: &Tensor) -> RusTorchResult<()> {
        let (next, state) = self.next(options, gradient)?;
        self.step += 1.0;
        self.tensor.copy_(&next)?;
        self.state = state;
        self.state.record()
    }
}

/// Values that schedules store in a group, under PyTorch's names, so that schedules of one
/// optimiser begin alike.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct Scheduled {
    /// The learning rate before the first schedule; `None` before that.
    pub initial_lr: Option<f64>,
    /// The largest learning rate of a cycle.
    pub max_lr: f64,
    /// The last learning rate of a cycle.
    pub min_lr: f64,
    /// The smallest and largest momentum of cycles.
    pub momentum: [f64; 2],
}

/// The options that schedules change: learning rate and momentum of each group.
pub trait LearningRates {
    /// Number of groups.
    fn groups(&self) -> usize;

    /// The numbers of a group's option: `lr`, `momentum`, `betas`; `None` if it lacks the option.
    fn option(&self, group: usize, name: &str) -> Option<Vec<f64>>;

    /// Sets an option of a group; `false` if it lacks the option.
    fn set_option(&mut self, group: usize, name: &str, numbers: &[f64]) -> bool;

    /// Returns whether it made a step, or loaded the state of one that did.
    fn has_stepped(&self) -> bool;

    /// Values that schedules stored in a group; `None` if there is no such group.
    fn scheduled(&mut self, group: usize) -> Option<&mut Scheduled>;
}

impl<R: Rule> LearningRates for Optimizer<R> {
    fn groups(&self) -> usize {
        self.groups.len()
    }

    fn option(&self, group: usize, name: &str) -> Option<Vec<f64>> {
        self.groups.get(group)?.options.option(name)
    }

    fn set_option(&mut self, group: usize, name: &str, numbers: &[f64]) -> bool {
        let group = self.groups.get_mut(group);
        group.is_some_and(|group| group.options.set_option(name, numbers))
    }

    fn has_stepped(&self) -> bool {
        self.parameters().any(|parameter| parameter.step > 0.0)
    }

    fn scheduled(&mut self, group: usize) -> Option<&mut Scheduled> {
        Some(&mut self.groups.get_mut(group)?.scheduled)
    }
}
