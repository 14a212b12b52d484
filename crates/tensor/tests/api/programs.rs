//! Random programs of values, views, clones and writes: they give the same whatever is computed or printed in between,
//! and what vectors with strides give. `scripts/check-programs.py` holds the same programs to PyTorch.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::Range;
use std::{env, fs};

use rustorch_ir::DType;
use rustorch_runtime::DeviceType;
use rustorch_tensor::{RusTorchResult, Tensor, is_grad_enabled, no_grad, with_device};

use crate::extremes::on_each_device;

/// The number of programs of each kind: a sample, unless this says how many.
const COUNT: &str = "RUSTORCH_PROGRAMS";
/// A file that programs, with what they read, are written to.
const FILE: &str = "RUSTORCH_PROGRAMS_FILE";
const SAMPLE: u64 = 150;
/// The number of programs on each device. Each compiles kernels of its own.
const DEVICE_SAMPLE: u64 = 4;

/// One step of a program. Tensors go by numbers.
#[derive(Clone, Debug)]
enum Step {
    /// A tensor in memory, or a leaf that wants a gradient.
    Data(usize, Vec<usize>, u64),
    Leaf(usize, Vec<usize>, u64),
    /// A constant, which has no memory before it needs some.
    Full(usize, Vec<usize>, f64),
    Unary(usize, &'static str, usize),
    Binary(usize, &'static str, usize, usize),
    Sum(usize, usize, usize),
    Narrow(usize, usize, usize, usize, usize),
    Transpose(usize, usize),
    View(usize, usize, Vec<usize>),
    Reshape(usize, usize, Vec<usize>),
    Expand(usize, usize, Vec<usize>),
    Select(usize, usize, usize, usize),
    /// One of the views that `unbind` gives.
    Part(usize, usize, usize, usize),
    Contiguous(usize, usize),
    Copy(usize, usize),
    Alias(usize, usize),
    Detach(usize, usize),
    WriteUnary(usize, &'static str),
    WriteBinary(usize, &'static str, usize),
    Assign(usize, &'static str, usize),
    WriteNumber(usize, &'static str, f64),
    Fill(usize, f64),
    Drop(usize),
    Read(usize),
    /// Goes backward from the sum of these.
    Backward(Vec<usize>),
}

/// A step, and whether gradients are not recorded in it.
#[derive(Clone, Debug)]
struct Line(Step, bool);

fn sizes(shape: &[usize]) -> String {
    let sizes: Vec<String> = shape.iter().map(usize::to_string).collect();
    format!("[{}]", sizes.join(","))
}

impl Line {
    fn text(&self) -> String {
        use Step::*;
        let step = match &self.0 {
            Data(v, shape, seed) => format!("data {v} {} {seed}", sizes(shape)),
            Leaf(v, shape, seed) => format!("leaf {v} {} {seed}", sizes(shape)),
            Full(v, shape, number) => format!("full {v} {} {number}", sizes(shape)),
            Unary(v, op, a) => format!("unary {v} {op} {a}"),
            Binary(v, op, a, b) => format!("binary {v} {op} {a} {b}"),
            Sum(v, a, dim) => format!("sum {v} {a} {dim}"),
            Narrow(v, a, dim, start, len) => format!("narrow {v} {a} {dim} {start} {len}"),
            Transpose(v, a) => format!("t {v} {a}"),
            View(v, a, shape) => format!("view {v} {a} {}", sizes(shape)),
            Reshape(v, a, shape) => format!("reshape {v} {a} {}", sizes(shape)),
            Expand(v, a, shape) => format!("expand {v} {a} {}", sizes(shape)),
            Select(v, a, dim, at) => format!("select {v} {a} {dim} {at}"),
            Part(v, a, dim, at) => format!("part {v} {a} {dim} {at}"),
            Contiguous(v, a) => format!("contiguous {v} {a}"),
            Copy(v, a) => format!("copy {v} {a}"),
            Alias(v, a) => format!("alias {v} {a}"),
            Detach(v, a) => format!("detach {v} {a}"),
            WriteUnary(a, op) => format!("unary_ {a} {op}"),
            WriteBinary(a, op, b) => format!("binary_ {a} {op} {b}"),
            Assign(a, op, b) => format!("assign {a} {op} {b}"),
            WriteNumber(a, op, number) => format!("number_ {a} {op} {number}"),
            Fill(a, number) => format!("fill_ {a} {number}"),
            Drop(a) => format!("drop {a}"),
            Read(a) => format!("read {a}"),
            Backward(of) => format!("backward {}", sizes(of)),
        };
        format!("{}{step}", if self.1 { "no_grad " } else { "" })
    }
}

/// Numbers that look like random ones (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, count: usize) -> usize {
        (self.next() % count.max(1) as u64) as usize
    }

    fn pick<T: Clone>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())].clone()
    }

    fn number(&mut self) -> f64 {
        self.below(9) as f64 / 4.0 - 1.0
    }
}

/// The element of a tensor of this seed at an index.
fn element(seed: u64, at: usize) -> f64 {
    ((at as u64 * 37 + seed * 101) % 23) as f64 / 8.0 - 1.3
}

const UNARY: [&str; 6] = ["neg", "tanh", "sigmoid", "relu", "abs", "square"];
const BINARY: [&str; 4] = ["add", "sub", "mul", "maximum"];
const WRITES: [&str; 4] = ["add_", "sub_", "mul_", "copy_"];
const ASSIGNS: [&str; 3] = ["+=", "-=", "*="];

/// Does a shape broadcast to another one?
fn fits(from: &[usize], to: &[usize]) -> bool {
    let ends = from.iter().rev().zip(to.iter().rev());
    from.len() <= to.len() && ends.into_iter().all(|(a, b)| a == b || *a == 1)
}

/// Shapes of so many elements.
fn shapes(count: usize) -> Vec<Vec<usize>> {
    let mut found = vec![vec![count], vec![1, count], vec![count, 1]];
    for a in 2..count {
        if count.is_multiple_of(a) {
            found.push(vec![a, count / a]);
        }
    }
    found
}

/// A program of so many steps.
fn program(seed: u64, differentiates: bool) -> Vec<Line> {
    let mut random = Random(seed);
    let mut live: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    let mut lines = Vec::new();
    // The first tensor of those that may share a memory.
    let mut firsts: BTreeMap<usize, usize> = BTreeMap::new();
    let mut next = 0;
    for _ in 0..2 {
        let shape = vec![3, 4];
        lines.push(Line(
            Step::Data(next, shape.clone(), random.next() % 97),
            false,
        ));
        live.insert(next, shape);
        next += 1;
    }
    if differentiates {
        for _ in 0..2 {
            let shape = vec![3, 4];
            lines.push(Line(
                Step::Leaf(next, shape.clone(), random.next() % 97),
                false,
            ));
            live.insert(next, shape);
            next += 1;
        }
    }
    let count = 8 + random.below(23);
    while lines.len() < count {
        let names: Vec<usize> = live.keys().copied().collect();
        // The last ones come more often.
        let near = names
            .len()
            .saturating_sub(1 + random.below(4).min(random.below(names.len())));
        let a = match random.below(2) {
            0 => names[near],
            _ => random.pick(&names),
        };
        let shape = live[&a].clone();
        let rank = shape.len();
        let fitting: Vec<usize> = names
            .iter()
            .copied()
            .filter(|b| fits(&live[b], &shape))
            .collect();
        let b = random.pick(&fitting);
        let v = next;
        let count: usize = shape.iter().product();
        let is_wide = rank > 0 && count > 1;
        let (step, new) = match random.below(31) {
            0 => (Step::Full(v, vec![3, 4], random.number()), Some(vec![3, 4])),
            1..=4 => (Step::Unary(v, random.pick(&UNARY), a), Some(shape)),
            5..=7 => (Step::Binary(v, random.pick(&BINARY), a, b), Some(shape)),
            8 if is_wide => {
                let dim = random.below(rank);
                let mut new = shape;
                new.remove(dim);
                (Step::Sum(v, a, dim), Some(new))
            }
            9 | 10 if is_wide => {
                let dim = random.below(rank);
                let start = random.below(shape[dim]);
                let len = 1 + random.below(shape[dim] - start);
                let mut new = shape;
                new[dim] = len;
                (Step::Narrow(v, a, dim, start, len), Some(new))
            }
            11 | 12 if rank == 2 => {
                let new = vec![shape[1], shape[0]];
                (Step::Transpose(v, a), Some(new))
            }
            13 if is_wide => {
                let new = random.pick(&shapes(count));
                (Step::View(v, a, new.clone()), Some(new))
            }
            14 if is_wide => {
                let new = random.pick(&shapes(count));
                (Step::Reshape(v, a, new.clone()), Some(new))
            }
            15 if rank < 3 => {
                let mut new = shape;
                new.insert(0, 2);
                (Step::Expand(v, a, new.clone()), Some(new))
            }
            kind @ (16 | 30) if is_wide => {
                let dim = random.below(rank);
                let mut new = shape.clone();
                let at = random.below(new.remove(dim));
                let step = match kind {
                    16 => Step::Select(v, a, dim, at),
                    _ => Step::Part(v, a, dim, at),
                };
                (step, Some(new))
            }
            17 => (Step::Contiguous(v, a), Some(shape)),
            18 => (Step::Copy(v, a), Some(shape)),
            19 => (Step::Alias(v, a), Some(shape)),
            20 if !differentiates => (Step::Detach(v, a), Some(shape)),
            21 => (
                Step::WriteUnary(a, random.pick(&["neg_", "tanh_", "sigmoid_", "relu_"])),
                None,
            ),
            22..=24 => (Step::WriteBinary(a, random.pick(&WRITES), b), None),
            // An operator that is refused would spoil the tensor, and operands that overlap are.
            25 if firsts.get(&a).unwrap_or(&a) != firsts.get(&b).unwrap_or(&b) => {
                (Step::Assign(a, random.pick(&ASSIGNS), b), None)
            }
            26 => (
                Step::WriteNumber(a, random.pick(&["add_", "mul_"]), random.number()),
                None,
            ),
            27 => (Step::Fill(a, random.number()), None),
            28 if names.len() > 3 => (Step::Drop(a), None),
            _ => (Step::Read(a), None),
        };
        if matches!(step, Step::Drop(_)) {
            live.remove(&a);
        }
        if let Some(new) = new {
            live.insert(v, new);
            next += 1;
        }
        if !matches!(
            step,
            Step::Full(..) | Step::Unary(..) | Step::Binary(..) | Step::Sum(..) | Step::Copy(..)
        ) {
            let first = *firsts.get(&a).unwrap_or(&a);
            firsts.insert(v, first);
        }
        // PyTorch has views that are made so want gradients that lead nowhere.
        use Step::*;
        let is_write = matches!(
            step,
            WriteUnary(..) | WriteBinary(..) | WriteNumber(..) | Fill(..)
        );
        let is_view = !is_write && !matches!(step, Unary(..) | Binary(..) | Sum(..) | Read(_));
        lines.push(Line(
            step,
            differentiates && !is_view && random.below(8) == 0,
        ));
    }
    if differentiates {
        let mut names: Vec<usize> = live.keys().copied().collect();
        while names.len() > 4 {
            names.remove(random.below(names.len()));
        }
        lines.push(Line(Step::Backward(names), false));
    }
    let names: Vec<usize> = live.keys().copied().collect();
    lines.extend(names.into_iter().map(|a| Line(Step::Read(a), false)));
    lines
}

/// Outcomes of a program: for each step elements, nothing, or that it was refused.
type Outcomes = Vec<Outcome>;

#[derive(Clone, Debug, PartialEq)]
enum Outcome {
    Done,
    Skipped,
    Refused(String),
    Read(Vec<f64>),
}

/// The largest relative difference of elements that count as the same.
fn tolerance(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => 1e-9,
        // Programs square and multiply what was rounded before.
        _ => 1e-3,
    }
}

impl Outcome {
    fn is_as(&self, other: &Self, dtype: DType) -> bool {
        let close = |a: &f64, b: &f64| {
            a == b
                || a.is_nan() && b.is_nan()
                || (a - b).abs() <= tolerance(dtype) * a.abs().max(b.abs()).max(1.0)
        };
        match (self, other) {
            (Self::Read(a), Self::Read(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| close(a, b))
            }
            (Self::Refused(_), Self::Refused(_)) => true,
            _ => self == other,
        }
    }
}

/// Runs a program in floats of `dtype`. `between` is called with all tensors before each step.
fn run(
    lines: &[Line],
    dtype: DType,
    mut between: impl FnMut(&BTreeMap<usize, Tensor>),
) -> Outcomes {
    let mut tensors: BTreeMap<usize, Tensor> = BTreeMap::new();
    let mut leaves: Vec<Tensor> = Vec::new();
    let mut outcomes = Vec::new();
    for Line(step, is_quiet) in lines {
        between(&tensors);
        let mut one = || step_of(step, dtype, &mut tensors, &mut leaves);
        let outcome = if *is_quiet { no_grad(one) } else { one() };
        outcomes.push(match outcome {
            Ok(Some(outcome)) => outcome,
            Ok(None) => Outcome::Skipped,
            Err(error) => Outcome::Refused(error.to_string()),
        });
    }
    outcomes
}

/// Does a step; `None` where a tensor is not there.
fn step_of(
    step: &Step,
    dtype: DType,
    tensors: &mut BTreeMap<usize, Tensor>,
    leaves: &mut Vec<Tensor>,
) -> RusTorchResult<Option<Outcome>> {
    use Step::*;
    let data = |shape: &[usize], seed: u64| {
        let count: usize = shape.iter().product();
        let elements: Vec<f64> = (0..count).map(|at| element(seed, at)).collect();
        Tensor::from_vec(elements, shape)?
            .to_dtype(dtype)?
            .eval()
            .cloned()
    };
    let elements = |x: &Tensor| x.to_dtype(DType::F64)?.to_vec::<f64>();
    macro_rules! get {
        ($a:expr) => {
            match tensors.get($a) {
                Some(tensor) => tensor,
                None => return Ok(None),
            }
        };
    }
    macro_rules! get_mut {
        ($a:expr) => {
            match tensors.get_mut($a) {
                Some(tensor) => tensor,
                None => return Ok(None),
            }
        };
    }
    let (name, new) = match step {
        Data(v, shape, seed) => (v, data(shape, *seed)?),
        Leaf(v, shape, seed) => {
            let leaf = data(shape, *seed)?.requires_grad_(true)?;
            leaves.push(leaf.clone());
            (v, leaf)
        }
        Full(v, shape, number) => (v, Tensor::full(&shape[..], *number, dtype)?),
        Unary(v, op, a) => {
            let a = get!(a);
            let new = match *op {
                "neg" => a.neg()?,
                "tanh" => a.tanh()?,
                "sigmoid" => a.sigmoid()?,
                "relu" => a.relu()?,
                "abs" => a.abs()?,
                _ => a.square()?,
            };
            (v, new)
        }
        Binary(v, op, a, b) => {
            let (a, b) = (get!(a), get!(b));
            let new = match *op {
                "add" => a.add(b)?,
                "sub" => a.sub(b)?,
                "mul" => a.mul(b)?,
                _ => a.maximum(b)?,
            };
            (v, new)
        }
        Sum(v, a, dim) => (v, get!(a).sum(*dim, false)?),
        Narrow(v, a, dim, start, len) => (v, get!(a).narrow(*dim, *start, *len)?),
        Transpose(v, a) => (v, get!(a).t()?),
        View(v, a, shape) => (v, get!(a).view(&shape[..])?),
        Reshape(v, a, shape) => (v, get!(a).reshape(&shape[..])?),
        Expand(v, a, shape) => (v, get!(a).expand(&shape[..])?),
        Select(v, a, dim, at) => (v, get!(a).select(*dim, *at)?),
        Part(v, a, dim, at) => (v, get!(a).unbind(*dim)?.swap_remove(*at)),
        Contiguous(v, a) => (v, get!(a).contiguous()?),
        Copy(v, a) => (v, get!(a).copy()?),
        Alias(v, a) => (v, get!(a).clone()),
        Detach(v, a) => (v, get!(a).detach()),
        WriteUnary(a, op) => {
            let a = get_mut!(a);
            match *op {
                "neg_" => a.neg_()?,
                "tanh_" => a.tanh_()?,
                "sigmoid_" => a.sigmoid_()?,
                _ => a.relu_()?,
            };
            return Ok(Some(Outcome::Done));
        }
        WriteBinary(a, op, b) => {
            // A handle of its own, so that both may be the same tensor.
            let b = get!(b).clone();
            let a = get_mut!(a);
            match *op {
                "add_" => a.add_(&b)?,
                "sub_" => a.sub_(&b)?,
                "mul_" => a.mul_(&b)?,
                _ => a.copy_(&b)?,
            };
            return Ok(Some(Outcome::Done));
        }
        Assign(a, op, b) => {
            let b = get!(b).clone();
            let a = get_mut!(a);
            // An operator reports no error itself.
            let is_tracked = is_grad_enabled() && (a.requires_grad() || b.requires_grad());
            let is_taken = a.is_contiguous() && !is_tracked;
            match (*op, is_taken) {
                ("+=", true) => *a += &b,
                ("-=", true) => *a -= &b,
                (_, true) => *a *= &b,
                ("+=", false) => drop(a.add_(&b)?),
                ("-=", false) => drop(a.sub_(&b)?),
                (_, false) => drop(a.mul_(&b)?),
            }
            return Ok(Some(Outcome::Done));
        }
        WriteNumber(a, op, number) => {
            let a = get_mut!(a);
            match *op {
                "add_" => a.add_(*number)?,
                _ => a.mul_(*number)?,
            };
            return Ok(Some(Outcome::Done));
        }
        Fill(a, number) => {
            get_mut!(a).fill_(*number)?;
            return Ok(Some(Outcome::Done));
        }
        Drop(a) => {
            return Ok(tensors.remove(a).map(|_| Outcome::Done));
        }
        Read(a) => return Ok(Some(Outcome::Read(elements(get!(a))?))),
        Backward(of) => {
            let mut total = Tensor::zeros((), dtype)?;
            for (i, a) in of.iter().enumerate() {
                let a = get!(a);
                total = (&total + (a * (i + 1) as f64)?.sum_all()?)?;
            }
            if !total.requires_grad() {
                return Ok(None);
            }
            total.backward()?;
            let mut all = Vec::new();
            for leaf in leaves.iter() {
                match leaf.grad() {
                    Some(gradient) => all.extend(elements(&gradient)?),
                    None => all.push(f64::NAN),
                }
            }
            return Ok(Some(Outcome::Read(all)));
        }
    };
    tensors.insert(*name, new);
    Ok(Some(Outcome::Done))
}

/// Vectors with strides: what the programs mean, for those without gradients.
struct Model {
    memories: Vec<Vec<f64>>,
    tensors: BTreeMap<usize, Strided>,
}

#[derive(Clone)]
struct Strided {
    /// Another one of each view.
    id: usize,
    memory: usize,
    shape: Vec<usize>,
    strides: Vec<usize>,
    offset: usize,
}

impl Strided {
    /// Places of its elements, in row-major order.
    fn places(&self) -> Vec<usize> {
        let dims = self.shape.iter().zip(&self.strides);
        dims.fold(vec![self.offset], |places, (&size, &stride)| {
            let all = places
                .iter()
                .flat_map(|place| (0..size).map(move |i| place + i * stride));
            all.collect()
        })
    }

    fn overlaps(&self) -> bool {
        let mut places = self.places();
        let count = places.len();
        places.sort_unstable();
        places.dedup();
        places.len() < count
    }

    /// The range of memory that its elements fill, if there is no gap and none lies upon another.
    fn filled(&self) -> Option<Range<usize>> {
        let mut places = self.places();
        places.sort_unstable();
        let range = places[0]..places[0] + places.len();
        range.clone().eq(places).then_some(range)
    }

    /// PyTorch's `assert_no_partial_overlap`.
    fn overlaps_partly(&self, other: &Self) -> bool {
        let (Some(own), Some(others)) = (self.filled(), other.filled()) else {
            return false;
        };
        let is_alike = own == others && self.strides == other.strides;
        let meet = own.start < others.end && others.start < own.end;
        self.memory == other.memory && self.id != other.id && meet && !is_alike
    }

    fn is_contiguous(&self) -> bool {
        let places = self.places();
        places
            .iter()
            .enumerate()
            .all(|(i, place)| *place == self.offset + i)
    }

    /// The same elements in another shape, if strides can show that.
    fn viewed(&self, shape: &[usize]) -> Option<Self> {
        let places = self.places();
        let mut strides = Vec::new();
        let mut step: usize = shape.iter().product();
        for size in shape {
            step /= size;
            let stride = if *size > 1 {
                places[step].checked_sub(places[0])?
            } else {
                0
            };
            strides.push(stride);
        }
        let view = Self {
            shape: shape.to_vec(),
            strides,
            ..self.clone()
        };
        (view.places() == places).then_some(view)
    }
}

impl Model {
    fn run(lines: &[Line]) -> Outcomes {
        let mut model = Self {
            memories: Vec::new(),
            tensors: BTreeMap::new(),
        };
        lines
            .iter()
            .map(|Line(step, _)| model.step(step).unwrap_or(Outcome::Skipped))
            .collect()
    }

    fn elements(&self, x: &Strided) -> Vec<f64> {
        x.places()
            .into_iter()
            .map(|place| self.memories[x.memory][place])
            .collect()
    }

    fn make(&mut self, shape: &[usize], elements: Vec<f64>) -> Strided {
        let mut strides = vec![1; shape.len()];
        for i in (1..shape.len()).rev() {
            strides[i - 1] = strides[i] * shape[i];
        }
        self.memories.push(elements);
        let memory = self.memories.len() - 1;
        Strided {
            id: 0,
            memory,
            shape: shape.to_vec(),
            strides,
            offset: 0,
        }
    }

    /// The elements of `x`, broadcast to a shape.
    fn broadcast(&self, x: &Strided, shape: &[usize]) -> Vec<f64> {
        self.elements(&expanded(x, shape))
    }

    fn write(&mut self, a: &Strided, elements: &[f64]) -> Outcome {
        if a.overlaps() {
            return Outcome::Refused(String::new());
        }
        for (place, element) in a.places().into_iter().zip(elements) {
            self.memories[a.memory][place] = *element;
        }
        Outcome::Done
    }

    /// `None` where a tensor is not there.
    fn step(&mut self, step: &Step) -> Option<Outcome> {
        use Step::*;
        let get = |a: &usize| self.tensors.get(a).cloned();
        let (name, new) = match step {
            Data(v, shape, seed) | Leaf(v, shape, seed) => {
                let count: usize = shape.iter().product();
                (
                    v,
                    self.make(shape, (0..count).map(|at| element(*seed, at)).collect()),
                )
            }
            Full(v, shape, number) => {
                let count = shape.iter().product();
                (v, self.make(shape, vec![*number; count]))
            }
            Unary(v, op, a) => {
                let a = get(a)?;
                let elements = self
                    .elements(&a)
                    .into_iter()
                    .map(|x| unary(op, x))
                    .collect();
                (v, self.make(&a.shape, elements))
            }
            Binary(v, op, a, b) => {
                let (a, b) = (get(a)?, get(b)?);
                let elements = self.binary(op, &a, &b);
                (v, self.make(&a.shape, elements))
            }
            Sum(v, a, dim) => {
                let a = get(a)?;
                let (mut rest, mut strides) = (a.shape.clone(), a.strides.clone());
                let (count, stride) = (rest.remove(*dim), strides.remove(*dim));
                let part = |i| Strided {
                    shape: rest.clone(),
                    strides: strides.clone(),
                    offset: a.offset + i * stride,
                    ..a
                };
                let parts: Vec<Vec<f64>> = (0..count).map(|i| self.elements(&part(i))).collect();
                let sum = |at: usize| parts.iter().map(|part| part[at]).sum();
                let elements = (0..parts[0].len()).map(sum).collect();
                (v, self.make(&rest, elements))
            }
            Narrow(v, a, dim, start, len) => {
                let mut a = get(a)?;
                a.shape[*dim] = *len;
                a.offset += start * a.strides[*dim];
                (v, a)
            }
            Transpose(v, a) => {
                let mut a = get(a)?;
                a.shape.reverse();
                a.strides.reverse();
                (v, a)
            }
            View(v, a, shape) => match get(a)?.viewed(shape) {
                Some(view) => (v, view),
                None => return Some(Outcome::Refused(String::new())),
            },
            Reshape(v, a, shape) => {
                let a = get(a)?;
                match a.viewed(shape) {
                    Some(view) => (v, view),
                    None => {
                        let elements = self.elements(&a);
                        (v, self.make(shape, elements))
                    }
                }
            }
            Expand(v, a, shape) => (v, expanded(&get(a)?, shape)),
            Select(v, a, dim, at) | Part(v, a, dim, at) => {
                let mut a = get(a)?;
                a.shape.remove(*dim);
                a.offset += at * a.strides.remove(*dim);
                (v, a)
            }
            Contiguous(v, a) if get(a)?.is_contiguous() => (v, get(a)?),
            Contiguous(v, a) | Copy(v, a) => {
                let a = get(a)?;
                let elements = self.elements(&a);
                (v, self.make(&a.shape, elements))
            }
            Alias(v, a) | Detach(v, a) => (v, get(a)?),
            WriteUnary(a, op) => {
                let a = get(a)?;
                let op = op.trim_end_matches('_');
                let elements: Vec<f64> = self
                    .elements(&a)
                    .into_iter()
                    .map(|x| unary(op, x))
                    .collect();
                return Some(self.write(&a, &elements));
            }
            WriteBinary(a, op, b) | Assign(a, op, b) => {
                let (a, b) = (get(a)?, get(b)?);
                let op = match *op {
                    "copy_" => "copy",
                    "add_" | "+=" => "add",
                    "sub_" | "-=" => "sub",
                    _ => "mul",
                };
                let elements = self.binary(op, &a, &b);
                if op == "copy" && a.id == b.id {
                    return Some(Outcome::Done);
                }
                if a.overlaps_partly(&b) {
                    return Some(Outcome::Refused(String::new()));
                }
                return Some(self.write(&a, &elements));
            }
            WriteNumber(a, op, number) => {
                let a = get(a)?;
                let one = |x| {
                    if *op == "add_" {
                        x + number
                    } else {
                        x * number
                    }
                };
                let elements: Vec<f64> = self.elements(&a).into_iter().map(one).collect();
                return Some(self.write(&a, &elements));
            }
            Fill(a, number) => {
                let a = get(a)?;
                for place in a.places() {
                    self.memories[a.memory][place] = *number;
                }
                return Some(Outcome::Done);
            }
            Drop(a) => return self.tensors.remove(a).map(|_| Outcome::Done),
            Read(a) => return Some(Outcome::Read(self.elements(&get(a)?))),
            Backward(_) => return None,
        };
        let is_same = match step {
            Alias(..) | Detach(..) => true,
            Contiguous(_, a) => self.tensors[a].memory == new.memory,
            _ => false,
        };
        let id = if is_same { new.id } else { *name };
        self.tensors.insert(*name, Strided { id, ..new });
        Some(Outcome::Done)
    }

    fn binary(&self, op: &str, a: &Strided, b: &Strided) -> Vec<f64> {
        let (x, y) = (self.elements(a), self.broadcast(b, &a.shape));
        let one = |(x, y): (f64, f64)| match op {
            "add" => x + y,
            "sub" => x - y,
            "mul" => x * y,
            "copy" => y,
            _ if x.is_nan() || y.is_nan() => f64::NAN,
            _ => x.max(y),
        };
        x.into_iter().zip(y).map(one).collect()
    }
}

fn expanded(x: &Strided, shape: &[usize]) -> Strided {
    let lead = shape.len() - x.shape.len();
    let stride = |dim: usize| match dim.checked_sub(lead) {
        Some(own) if x.shape[own] == shape[dim] => x.strides[own],
        _ => 0,
    };
    let strides = (0..shape.len()).map(stride).collect();
    Strided {
        shape: shape.to_vec(),
        strides,
        ..x.clone()
    }
}

fn unary(op: &str, x: f64) -> f64 {
    match op {
        "neg" => -x,
        "tanh" => x.tanh(),
        "sigmoid" => 1.0 / (1.0 + (-x).exp()),
        "relu" if x.is_nan() => x,
        "relu" => x.max(0.0),
        "abs" => x.abs(),
        _ => x * x,
    }
}

fn count(sample: u64) -> u64 {
    let given = env::var(COUNT).ok();
    given.map_or(sample, |count| count.parse().expect("a number of programs"))
}

/// Text of a program, with what each step gave in two runs.
fn told(lines: &[Line], dtype: DType, got: &[Outcome], expected: &[Outcome]) -> String {
    let mut text = String::new();
    for ((line, got), expected) in lines.iter().zip(got).zip(expected) {
        let mark = if got.is_as(expected, dtype) { ' ' } else { '>' };
        writeln!(text, "{mark} {:30} {got:?} {expected:?}", line.text()).expect("a text");
    }
    text
}

/// Programs that gave something else than they should.
struct Wrong {
    dtype: DType,
    texts: Vec<String>,
}

impl Wrong {
    fn new(dtype: DType) -> Self {
        let texts = Vec::new();
        Self { dtype, texts }
    }

    fn compare(&mut self, seed: u64, lines: &[Line], got: &[Outcome], expected: &[Outcome]) {
        let mut pairs = got.iter().zip(expected);
        if !pairs.all(|(got, expected)| got.is_as(expected, self.dtype)) {
            let text = told(lines, self.dtype, got, expected);
            self.texts.push(format!("program {seed}\n{text}"));
        }
    }

    fn assert_none(&self) {
        let (count, first) = (self.texts.len(), self.texts.first());
        assert!(
            count == 0,
            "{count} of the programs, such as {}",
            first.expect("one")
        );
    }
}

/// Evaluates, prints or reads some tensors at random.
fn meddling(seed: u64) -> impl FnMut(&BTreeMap<usize, Tensor>) {
    let mut random = Random(seed ^ 0x5eed);
    move |tensors| {
        for tensor in tensors.values() {
            match random.below(8) {
                0 => drop(tensor.eval().map(drop)),
                1 => drop(format!("{tensor}")),
                _ => {}
            }
        }
    }
}

#[test]
fn memory_is_shared_whatever_is_computed_when() {
    let (mut file, mut wrong) = (String::new(), Wrong::new(DType::F64));
    for seed in 0..count(SAMPLE) {
        let lines = program(seed, false);
        let expected = Model::run(&lines);
        let plain = run(&lines, DType::F64, |_| {});
        wrong.compare(seed, &lines, &plain, &expected);
        wrong.compare(
            seed,
            &lines,
            &run(&lines, DType::F64, meddling(seed)),
            &expected,
        );
        write_down(&mut file, &lines, &plain);
    }
    keep("memory", &file);
    wrong.assert_none();
}

#[test]
fn gradients_are_the_same_whatever_is_computed_when() {
    let (mut file, mut wrong) = (String::new(), Wrong::new(DType::F64));
    for seed in 0..count(SAMPLE) {
        let lines = program(seed, true);
        let plain = run(&lines, DType::F64, |_| {});
        wrong.compare(
            seed,
            &lines,
            &run(&lines, DType::F64, meddling(seed)),
            &plain,
        );
        write_down(&mut file, &lines, &plain);
    }
    keep("gradients", &file);
    wrong.assert_none();
}

#[test]
fn devices_give_what_the_processor_gives() -> RusTorchResult<()> {
    for seed in 0..count(DEVICE_SAMPLE) {
        let lines = program(seed, seed % 2 == 1);
        let expected = with_device(DeviceType::Cpu, || run(&lines, DType::F32, |_| {}))?;
        on_each_device(|| {
            let mut wrong = Wrong::new(DType::F32);
            let got = run(&lines, DType::F32, meddling(seed));
            wrong.compare(seed, &lines, &got, &expected);
            wrong.assert_none();
            Ok(())
        })?;
    }
    Ok(())
}

fn write_down(file: &mut String, lines: &[Line], outcomes: &[Outcome]) {
    if env::var_os(FILE).is_none() {
        return;
    }
    for (line, outcome) in lines.iter().zip(outcomes) {
        let told = match outcome {
            Outcome::Done => "done".to_owned(),
            Outcome::Skipped => "skipped".to_owned(),
            Outcome::Refused(why) => format!("refused {}", why.replace('\n', " ")),
            Outcome::Read(elements) => format!("read {elements:?}"),
        };
        writeln!(file, "{}\t{told}", line.text()).expect("a text");
    }
    file.push('\n');
}

fn keep(kind: &str, text: &str) {
    if let Some(file) = env::var_os(FILE) {
        let path = std::path::Path::new(&file).with_extension(kind);
        fs::write(path, text).expect("a file");
    }
}
