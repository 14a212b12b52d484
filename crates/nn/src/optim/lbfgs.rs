//! L-BFGS: Nocedal and Wright, Numerical Optimization, algorithms 7.4, 7.5, 3.5 and 3.6.

use std::collections::{HashSet, VecDeque};

use rustorch_files::Tensors;
use rustorch_files::pt::Value;
use rustorch_ir::DType;
use rustorch_macros::track_calls;
use rustorch_tensor::{RusTorchResult, Tensor, eval_all, no_grad};

use super::optimizer::pytorch::{self, Read, initial_lr, list};
use super::optimizer::{Scheduled, VERSION, number, other_version, require_data, require_gradient};
use super::options::{at_least_zero, options};
use super::{IntoParameters, LearningRates, Options};
use crate::call;
use crate::error::require;

options! {
    /// Options of [`LBFGS`].
    LBFGSOptions {
        /// Learning rate.
        lr: f64 = 1.0,
        /// Iterations of a step.
        max_iter: usize = 20,
        /// Evaluations of a step; `None`: a quarter more than iterations.
        max_eval: Option<usize> = None,
        /// The largest gradient at which it ends.
        tolerance_grad: f64 = 1e-7,
        /// The change of parameters or objective at which it ends.
        tolerance_change: f64 = 1e-9,
        /// Number of remembered changes.
        history_size: usize = 100,
        /// Whether a line search finds steps that meet the strong Wolfe conditions.
        strong_wolfe: bool = false,
        /// Whether the objective is maximised.
        maximize: bool = false,
    }
}

/// A change of the parameters, and of the gradient by it.
struct Change {
    gradient: Tensor,
    parameters: Tensor,
    /// 1 by their product.
    rho: f64,
}

/// The results of the last step.
struct Last {
    direction: Tensor,
    step: f64,
    gradient: Tensor,
}

/// A quasi-Newton method with limited history. A step evaluates the objective several times.
pub struct LBFGS {
    names: Vec<String>,
    parameters: Vec<Tensor>,
    /// The parameters', when they were taken.
    data_changes: Vec<u32>,
    /// Options may be changed between steps.
    pub options: LBFGSOptions,
    changes: VecDeque<Change>,
    scale: f64,
    last: Option<Last>,
    scheduled: Scheduled,
}

/// A point on the line of a search: how far it is, the objective there, its gradient, and that along the line.
#[derive(Clone)]
struct Point {
    at: f64,
    loss: f64,
    gradient: Tensor,
    slope: f64,
}

#[track_calls(LBFGS)]
impl LBFGS {
    /// An optimiser of real parameters, all in one group.
    ///
    /// # Errors
    /// Fails for an invalid option. Also fails for a parameter that is not a leaf or has no float
    /// dtype.
    pub fn new(parameters: impl IntoParameters, options: LBFGSOptions) -> RusTorchResult<Self> {
        check(&options)?;
        let named = parameters.into_parameters(0);
        for (name, tensor) in &named {
            let fits = tensor.is_leaf() && tensor.dtype().is_float();
            require("LBFGS", fits, "leaves of floats", name)?;
        }
        let expected = "parameters to train (a lazy module has them after its first call)";
        require("LBFGS", !named.is_empty(), expected, "none")?;
        let (names, parameters): (Vec<String>, Vec<Tensor>) = named.into_iter().unzip();
        eval_all(&parameters.iter().collect::<Vec<_>>())?;
        Ok(Self {
            names,
            data_changes: parameters.iter().map(Tensor::data_changes).collect(),
            parameters,
            options,
            changes: VecDeque::new(),
            scale: 1.0,
            last: None,
            scheduled: Scheduled::default(),
        })
    }

    /// Removes the gradients of all parameters.
    pub fn zero_grad(&self) {
        self.parameters.iter().for_each(Tensor::zero_grad);
    }

    /// Makes a step, and returns the loss before it. `evaluate` clears the gradients, computes the
    /// loss and calls [`Tensor::backward`].
    ///
    /// # Errors
    /// The errors of `evaluate`. Also fails for an invalid option.
    pub fn step(
        &mut self,
        mut evaluate: impl FnMut() -> RusTorchResult<Tensor>,
    ) -> RusTorchResult<Tensor> {
        let mut evaluate = || call::user(&mut evaluate);
        check(&self.options)?;
        let LBFGSOptions {
            lr,
            tolerance_grad,
            tolerance_change,
            ..
        } = self.options;
        let first = evaluate()?.detach();
        if self.parameters.is_empty() {
            return Ok(first);
        }
        let (mut loss, mut gradient) = (self.signed(&first)?, self.gradient()?);
        let max_eval = self
            .options
            .max_eval
            .unwrap_or(self.options.max_iter * 5 / 4);
        let mut evaluations = 1;
        let mut is_flat = largest(&gradient)? <= tolerance_grad;
        for iteration in 1..=self.options.max_iter {
            if is_flat {
                break;
            }
            let direction = self.direction(&gradient)?;
            let mut step = match self.last {
                Some(_) => lr,
                None => (1.0 / gradient.abs()?.sum(None, false)?.item()?).min(1.0) * lr,
            };
            let slope = dot(&gradient, &direction)?;
            let before = loss;
            self.last = Some(Last {
                direction: direction.clone(),
                step,
                gradient: gradient.clone(),
            });
            if slope > -tolerance_change {
                break;
            }
            if self.options.strong_wolfe {
                let start = Point {
                    at: 0.0,
                    loss,
                    gradient: gradient.clone(),
                    slope,
                };
                let (found, count) = self.search(
                    &mut evaluate,
                    &direction,
                    start,
                    step,
                    max_eval.saturating_sub(evaluations),
                )?;
                (loss, gradient, step) = (found.loss, found.gradient, found.at);
                evaluations += count;
                self.moved(&direction, step)?;
            } else {
                self.moved(&direction, step)?;
                if iteration < self.options.max_iter {
                    loss = self.signed(&evaluate()?)?;
                    gradient = self.gradient()?;
                    evaluations += 1;
                }
            }
            if let Some(last) = &mut self.last {
                last.step = step;
            }
            is_flat = largest(&gradient)? <= tolerance_grad;
            let is_still = largest(&direction)? * step.abs() <= tolerance_change;
            if evaluations >= max_eval || is_still || (loss - before).abs() < tolerance_change {
                break;
            }
        }
        Ok(first)
    }

    /// The state as named tensors: `state.NAME.direction`, `state.NAME.old_dirs.0` and so on,
    /// `param_groups.0.lr` and so on, and a version.
    ///
    /// # Errors
    /// Fails for sizes too large for memory.
    pub fn state_dict(&self) -> RusTorchResult<Tensors> {
        let mut tensors = Tensors::new();
        let mut numbers = vec![("version", VERSION), ("changes", self.changes.len() as f64)];
        numbers.extend(self.last.iter().map(|last| ("step_size", last.step)));
        numbers.extend(self.last.iter().map(|_| ("scale", self.scale)));
        for (name, number) in numbers {
            tensors.insert(name, Tensor::scalar(number, DType::F64)?);
        }
        for (key, vector) in self.vectors() {
            for (name, part) in self.names.iter().zip(self.parts(vector)?) {
                tensors.insert(format!("state.{name}.{key}"), part);
            }
        }
        let mut options = Vec::new();
        (self.options.clone()).each(&mut |name, value| options.push((name, value.numbers())));
        for (name, numbers) in options {
            let length = numbers.len();
            let tensor = Tensor::from_vec(numbers, length)?;
            tensors.insert(format!("param_groups.0.{name}"), tensor);
        }
        Ok(tensors)
    }

    /// The state of all parameters, by names.
    fn vectors(&self) -> impl Iterator<Item = (String, &Tensor)> {
        let last = self.last.iter().flat_map(|last| {
            let Last {
                direction,
                gradient,
                ..
            } = last;
            [("direction", direction), ("gradient", gradient)]
        });
        let changes = self.changes.iter().enumerate().flat_map(|(i, change)| {
            [
                (format!("old_dirs.{i}"), &change.gradient),
                (format!("old_stps.{i}"), &change.parameters),
            ]
        });
        last.map(|(name, vector)| (name.to_owned(), vector))
            .chain(changes)
    }

    /// The part of a vector that belongs to each parameter.
    fn parts(&self, vector: &Tensor) -> RusTorchResult<Vec<Tensor>> {
        let mut start = 0;
        let part = |parameter: &Tensor| {
            let part = vector.narrow(0, start, parameter.numel())?;
            start += parameter.numel();
            part.reshape(parameter.shape())
        };
        self.parameters.iter().map(part).collect()
    }

    /// Loads the state from PyTorch's `optimizer.state_dict()`, see
    /// [`Optimizer::load_pytorch_state_dict`](super::Optimizer::load_pytorch_state_dict).
    ///
    /// # Errors
    /// Fails if the state does not match. One error lists all differences.
    pub fn load_pytorch_state_dict(&mut self, state: &Value) -> RusTorchResult<()> {
        const NAME: &str = "load_pytorch_state_dict";
        let mut read = Read::default();
        read.number("version".to_owned(), VERSION)?;
        let groups = list(state.opt("param_groups")).unwrap_or_default();
        match groups {
            [group] => {
                read.group(0, group, &self.options, self.parameters.len())?;
            }
            _ => read.problem(format!("{} param_groups, not 1", groups.len())),
        }
        // The first parameter has the state of all.
        match state.opt("state") {
            Some(Value::Dict(entries)) => {
                let of_all = entries.first().map(|(_, of_all)| of_all);
                self.read_of_all(&mut read, of_all.unwrap_or(&Value::None))?;
            }
            _ => read.problem("no state".to_owned()),
        }
        self.load_state_dict(&read.tensors(NAME, "LBFGS")?)?;
        self.scheduled.initial_lr = groups.first().and_then(initial_lr);
        Ok(())
    }

    /// Reads the last step and the changes, if PyTorch has made a step.
    fn read_of_all(&self, read: &mut Read, of_all: &Value) -> RusTorchResult<()> {
        let keys = ["old_dirs", "old_stps"];
        let changes = keys.map(|key| list(of_all.opt(key)).unwrap_or_default());
        let count = changes.iter().map(|vectors| vectors.len()).max();
        let (count, has_last) = (count.unwrap_or(0), of_all.opt("d").is_some());
        read.number("changes".to_owned(), count as f64)?;
        if !has_last {
            return Ok(());
        }
        for (name, key) in [("step_size", "t"), ("scale", "H_diag")] {
            match of_all.opt(key).and_then(pytorch::number) {
                Some(number) => read.number(name.to_owned(), number)?,
                None => read.problem(format!("{key}, which is not a number")),
            }
        }
        self.read_vector(read, "direction", of_all.opt("d"))?;
        self.read_vector(read, "gradient", of_all.opt("prev_flat_grad"))?;
        for (key, vectors) in keys.into_iter().zip(changes) {
            for i in 0..count {
                self.read_vector(read, &format!("{key}.{i}"), vectors.get(i))?;
            }
        }
        Ok(())
    }

    /// Reads a vector of all parameters' elements.
    fn read_vector(&self, read: &mut Read, key: &str, value: Option<&Value>) -> RusTorchResult<()> {
        let count = self.parameters.iter().map(Tensor::numel).sum::<usize>();
        match value {
            Some(Value::Tensor(vector)) if vector.shape() == [count] => {
                for (name, part) in self.names.iter().zip(self.parts(vector)?) {
                    read.insert(format!("state.{name}.{key}"), part);
                }
            }
            _ => read.problem(format!("{key}, which is not a tensor of {count} elements")),
        }
        Ok(())
    }

    /// Loads the state from [`LBFGS::state_dict`], by the names of parameters. If it does not
    /// match, nothing changes.
    ///
    /// # Errors
    /// Fails if the state does not match: a newer version, other options, parameters or shapes. One
    /// error lists all differences.
    pub fn load_state_dict(&mut self, state: &Tensors) -> RusTorchResult<()> {
        let mut problems = Vec::new();
        let mut known = HashSet::new();
        let mut take = |name: String, problems: &mut Vec<String>| {
            let found = state.opt(&name).cloned();
            if found.is_none() {
                problems.push(format!("no {name}"));
            }
            known.insert(name);
            found
        };
        let version = take("version".to_owned(), &mut problems);
        let version = version.map(|version| number(&version, "version"));
        if let Some(version) = version.transpose()?.filter(|version| *version != VERSION) {
            problems.push(other_version(version));
        }
        let (mut options, mut names) = (self.options, Vec::new());
        options.each(&mut |name, _| names.push(name));
        for name in names {
            let Some(tensor) = take(format!("param_groups.0.{name}"), &mut problems) else {
                continue;
            };
            let numbers = tensor.to_dtype(DType::F64)?.flatten(0, -1)?;
            if !options.set_option(name, &numbers.to_vec::<f64>()?) {
                problems.push(format!("another {name}"));
            }
        }
        let has_last = state.opt("step_size").is_some();
        let mut numbers = [0.0; 3];
        let wanted = ["changes", "step_size", "scale"];
        let count = if has_last { 3 } else { 1 };
        for (value, name) in numbers.iter_mut().zip(wanted).take(count) {
            if let Some(found) = take(name.to_owned(), &mut problems) {
                *value = number(&found, name)?;
            }
        }
        let [changes, step, scale] = numbers;
        // A number that is none, or beyond what there is, counts as what there is.
        let changes = (changes as usize).min(state.len());
        let mut vector = |key: &str, problems: &mut Vec<String>| {
            let mut parts = Vec::new();
            for (name, parameter) in self.names.iter().zip(&self.parameters) {
                let name = format!("state.{name}.{key}");
                let Some(part) = take(name.clone(), problems) else {
                    continue;
                };
                if part.shape() != parameter.shape() {
                    let (shape, own) = (part.shape(), parameter.shape());
                    problems.push(format!("{name} {shape:?} for a parameter {own:?}"));
                    continue;
                }
                let part = part.detach().to_dtype(parameter.dtype())?;
                parts.push(part.flatten(0, -1)?);
            }
            match parts.is_empty() {
                true => Tensor::zeros(0, DType::F32),
                false => Tensor::cat(&parts, 0)?.contiguous(),
            }
        };
        let mut last = None;
        if has_last {
            let direction = vector("direction", &mut problems)?;
            let gradient = vector("gradient", &mut problems)?;
            last = Some(Last {
                direction,
                step,
                gradient,
            });
        }
        let mut remembered = VecDeque::new();
        for i in 0..changes {
            let gradient = vector(&format!("old_dirs.{i}"), &mut problems)?;
            let parameters = vector(&format!("old_stps.{i}"), &mut problems)?;
            remembered.push_back((gradient, parameters));
        }
        let unknown = state.iter().filter(|(name, _)| !known.contains(*name));
        problems.extend(unknown.map(|(name, _)| format!("an unknown {name}")));
        problems.extend(check(&options).err().map(|e| e.to_string()));
        let expected = "the state of LBFGS with these parameters";
        let fits = problems.is_empty();
        require("load_state_dict", fits, expected, problems.join("; "))?;
        let change = |(gradient, parameters): (Tensor, Tensor)| {
            let rho = 1.0 / dot(&gradient, &parameters)?;
            Ok(Change {
                gradient,
                parameters,
                rho,
            })
        };
        self.changes = (remembered.into_iter().map(change)).collect::<RusTorchResult<_>>()?;
        (self.options, self.last) = (options, last);
        self.scale = if has_last { scale } else { 1.0 };
        Ok(())
    }

    /// The objective, which becomes smaller.
    fn signed(&self, loss: &Tensor) -> RusTorchResult<f64> {
        let loss = loss.detach().item()?;
        Ok(if self.options.maximize { -loss } else { loss })
    }

    /// The gradients in one vector.
    fn gradient(&self) -> RusTorchResult<Tensor> {
        let one = |((name, parameter), known): ((&String, &Tensor), &u32)| match parameter.grad() {
            Some(gradient) => {
                require_data("LBFGS", name, parameter, *known)?;
                require_gradient("LBFGS", name, parameter, &gradient)?;
                gradient.detach().flatten(0, -1)
            }
            None => parameter.detach().zeros_like()?.flatten(0, -1),
        };
        let named = self.names.iter().zip(&self.parameters);
        let named = named.zip(&self.data_changes);
        let parts = named.map(one).collect::<RusTorchResult<Vec<_>>>()?;
        let gradient = Tensor::cat(&parts, 0)?;
        let gradient = if self.options.maximize {
            gradient.neg()?
        } else {
            gradient
        };
        gradient.eval()?;
        Ok(gradient)
    }

    /// The search direction: the gradient by the inverse Hessian, as estimated from the changes.
    fn direction(&mut self, gradient: &Tensor) -> RusTorchResult<Tensor> {
        let Some(last) = &self.last else {
            return gradient.neg();
        };
        let change = gradient.sub(&last.gradient)?;
        let moved = last.direction.mul(last.step)?;
        // In memory, as they are where a state was loaded, so that their product is the same.
        eval_all(&[&change, &moved])?;
        let product = dot(&change, &moved)?;
        if product > 1e-10 {
            if self.changes.len() == self.options.history_size {
                self.changes.pop_front();
            }
            self.scale = product / dot(&change, &change)?;
            let (gradient, parameters) = (change, moved);
            self.changes.push_back(Change {
                gradient,
                parameters,
                rho: 1.0 / product,
            });
        }
        let mut direction = gradient.neg()?;
        let mut parts = Vec::new();
        for change in self.changes.iter().rev() {
            let part = dot(&change.parameters, &direction)? * change.rho;
            direction = direction.sub(&change.gradient.mul(part)?)?;
            parts.push(part);
        }
        direction = direction.mul(self.scale)?;
        for (change, part) in self.changes.iter().zip(parts.iter().rev()) {
            let other = dot(&change.gradient, &direction)? * change.rho;
            direction = direction.add(&change.parameters.mul(part - other)?)?;
        }
        direction.eval()?;
        Ok(direction)
    }

    /// Moves the parameters so far in a direction.
    fn moved(&mut self, direction: &Tensor, step: f64) -> RusTorchResult<()> {
        no_grad(|| {
            let mut start = 0;
            for parameter in &mut self.parameters {
                let part = direction.narrow(0, start, parameter.numel())?;
                start += parameter.numel();
                let moved = part.mul(step)?.reshape(parameter.shape())?;
                let next = parameter.detach().add(&moved)?;
                parameter.copy_(&next)?;
            }
            eval_all(&self.parameters.iter().collect::<Vec<_>>())
        })
    }

    /// The objective so far in a direction; the parameters stay where they are.
    fn probe(
        &mut self,
        evaluate: &mut impl FnMut() -> RusTorchResult<Tensor>,
        direction: &Tensor,
        at: f64,
    ) -> RusTorchResult<Point> {
        let kept: Vec<Tensor> = (self.parameters.iter())
            .map(crate::nn::copied)
            .collect::<RusTorchResult<_>>()?;
        self.moved(direction, at)?;
        let loss = self.signed(&evaluate()?)?;
        let gradient = self.gradient()?;
        no_grad(|| {
            for (parameter, kept) in self.parameters.iter_mut().zip(&kept) {
                parameter.copy_(&kept.detach())?;
            }
            eval_all(&self.parameters.iter().collect::<Vec<_>>())
        })?;
        let slope = dot(&gradient, direction)?;
        Ok(Point {
            at,
            loss,
            gradient,
            slope,
        })
    }

    /// A step that meets the strong Wolfe conditions, by at most `limit` evaluations; and how many there were.
    fn search(
        &mut self,
        evaluate: &mut impl FnMut() -> RusTorchResult<Tensor>,
        direction: &Tensor,
        start: Point,
        step: f64,
        limit: usize,
    ) -> RusTorchResult<(Point, usize)> {
        const DECREASE: f64 = 1e-4;
        const CURVATURE: f64 = 0.9;
        let size = largest(direction)?;
        let is_high = |point: &Point| point.loss > start.loss + DECREASE * point.at * start.slope;
        let is_found = |point: &Point| point.slope.abs() <= -CURVATURE * start.slope;
        let mut new = self.probe(evaluate, direction, step)?;
        let (mut before, mut evaluations, mut rounds) = (start.clone(), 1, 0);
        // First an interval that has such a step.
        let [mut low, mut high] = loop {
            if rounds == limit {
                break [start.clone(), new];
            }
            if is_high(&new) || rounds > 1 && new.loss >= before.loss {
                break [before, new];
            }
            if is_found(&new) {
                return Ok((new, evaluations));
            }
            if new.slope >= 0.0 {
                break [before, new];
            }
            let bounds = [new.at + 0.01 * (new.at - before.at), new.at * 10.0];
            let at = minimum_of_cubic(&before, &new, Some(bounds));
            before = new;
            new = self.probe(evaluate, direction, at)?;
            evaluations += 1;
            rounds += 1;
        };
        // Then that step in it.
        if low.loss > high.loss {
            std::mem::swap(&mut low, &mut high);
        }
        let mut is_slow = false;
        while rounds < limit && (high.at - low.at).abs() * size >= self.options.tolerance_change {
            let mut at = minimum_of_cubic(&low, &high, None);
            let (least, most) = (low.at.min(high.at), low.at.max(high.at));
            let margin = 0.1 * (most - least);
            // Near an end twice, or at it, is not progress.
            if (most - at).min(at - least) < margin {
                if is_slow || at >= most || at <= least {
                    let is_near_most = (at - most).abs() < (at - least).abs();
                    at = if is_near_most {
                        most - margin
                    } else {
                        least + margin
                    };
                    is_slow = false;
                } else {
                    is_slow = true;
                }
            } else {
                is_slow = false;
            }
            let new = self.probe(evaluate, direction, at)?;
            evaluations += 1;
            rounds += 1;
            if is_high(&new) || new.loss >= low.loss {
                high = new;
                if low.loss > high.loss {
                    std::mem::swap(&mut low, &mut high);
                }
                continue;
            }
            let done = is_found(&new);
            if !done && new.slope * (high.at - low.at) >= 0.0 {
                high = low;
            }
            low = new;
            if done {
                break;
            }
        }
        Ok((low, evaluations))
    }
}

/// The minimum of the cubic through two points with these slopes, within bounds or between them.
fn minimum_of_cubic(a: &Point, b: &Point, bounds: Option<[f64; 2]>) -> f64 {
    let between = [a.at.min(b.at), a.at.max(b.at)];
    let [least, most] = bounds.unwrap_or(between);
    let d1 = a.slope + b.slope - 3.0 * (a.loss - b.loss) / (a.at - b.at);
    let square = d1 * d1 - a.slope * b.slope;
    // Also where an objective is infinite, and the square is not a number.
    if square.is_nan() || square < 0.0 {
        return (least + most) / 2.0;
    }
    let (a, b, d2) = if a.at <= b.at {
        (a, b, square.sqrt())
    } else {
        (b, a, square.sqrt())
    };
    let at = b.at - (b.at - a.at) * ((b.slope + d2 - d1) / (b.slope - a.slope + 2.0 * d2));
    at.max(least).min(most)
}

/// Have all options a value that makes sense?
fn check(options: &LBFGSOptions) -> RusTorchResult<()> {
    at_least_zero!("LBFGS", options: lr, tolerance_grad, tolerance_change)
}

fn dot(a: &Tensor, b: &Tensor) -> RusTorchResult<f64> {
    a.mul(b)?.sum(None, false)?.item()
}

fn largest(x: &Tensor) -> RusTorchResult<f64> {
    x.abs()?.max(None, false)?.item()
}

impl LearningRates for LBFGS {
    fn groups(&self) -> usize {
        1
    }

    fn option(&self, group: usize, name: &str) -> Option<Vec<f64>> {
        (group == 0).then(|| self.options.option(name))?
    }

    fn set_option(&mut self, group: usize, name: &str, numbers: &[f64]) -> bool {
        group == 0 && self.options.set_option(name, numbers)
    }

    fn has_stepped(&self) -> bool {
        self.last.is_some()
    }

    fn scheduled(&mut self, group: usize) -> Option<&mut Scheduled> {
        (group == 0).then_some(&mut self.scheduled)
    }
}
