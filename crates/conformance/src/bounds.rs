//! Bounds of a result's error: an analysis of running errors.
//!
//! Each element of the reference has a bound: the largest allowed error of a device's element (N.
//! J. Higham 2002, *Accuracy and Stability of Numerical Algorithms*, 3.3). Bounds of primitives
//! have one rule each; those of composites follow from their primitives.
//!
//! * Operations that move, order or count elements are exact.
//! * An elementwise function may be off by the units in the last place of [`Accuracy`]'s table.
//! * A sum of `n` terms is off by `(2 + √n) u Σ|terms|`, with the unit roundoff `u` of what kernels compute in: the
//!   probable error of any order of summation (N. J. Higham and T. Mary 2019,
//!   <https://doi.org/10.1137/18M1226312>), where `n u` is the worst.
//!   Roundings of a product of `n` factors count in full: four times that of the product.
//! * Factors that kernels of composites round before they multiply them are off independently: their errors add up
//!   as `3 √Σ (error · factor)²`.
//! * The rule for an operand that may be off computes the operation again from the operand's bound.

use std::rc::Rc;

use rustorch_ir::ops::{
    ArgReduce, BinaryOp, Distribution, Fft, FftKind, Pad, PoolKind, Reduce, ReduceOp, Scan, ScanOp,
    Scatter, ScatterMode, UnaryOp,
};
use rustorch_ir::{DType, Graph, Layout, Node, Op, Scalar, Signature, TensorType, ValueId};
use rustorch_reference::{Reference, Results, Values};

use crate::accuracy::{Accuracy, Limit};
use crate::composite::Composite;
use crate::elements::{count, differences, moduli, reals, spread, usable};
use crate::precision::{Precision, is_narrow, rounded};

/// A value of the reference, and how far a device's may be off.
#[derive(Clone, Debug)]
pub(crate) struct Bounded {
    /// The elements, which may have more digits than the dtype.
    pub(crate) values: Rc<Values>,
    /// The most that each element may be off; `None` where nothing may.
    pub(crate) error: Option<Rc<Values>>,
}

/// The outputs of a graph of primitives on these operands, for a device of this accuracy.
pub(crate) fn evaluate(
    reference: &Reference,
    graph: &Graph,
    operands: &[Vec<u8>],
    accuracy: Accuracy,
    composite: Option<Composite>,
) -> Result<Vec<Bounded>, String> {
    let inputs = graph.inputs().iter().zip(operands);
    let mut values: Vec<Bounded> = inputs
        .map(|(ty, bytes)| Bounded {
            values: Rc::new(Values::decode(bytes.clone(), ty.dtype)),
            error: None,
        })
        .collect();
    for node in graph.nodes() {
        let types: Vec<&TensorType> = node.inputs.iter().map(|&v| graph.ty(v)).collect();
        let inputs: Vec<Bounded> = (node.inputs.iter())
            .map(|v| values[v.index()].clone())
            .collect();
        let step = Step {
            reference,
            accuracy,
            composite,
            node,
            types: &types,
            inputs: &inputs,
        };
        values.extend(step.evaluate()?);
    }
    let outputs = graph.outputs().iter();
    Ok(outputs
        .map(|v: &ValueId| values[v.index()].clone())
        .collect())
}

/// A node with its operands.
struct Step<'a> {
    reference: &'a Reference,
    accuracy: Accuracy,
    composite: Option<Composite>,
    node: &'a Node,
    types: &'a [&'a TensorType],
    inputs: &'a [Bounded],
}

/// The squares of the errors of a weight that is made in bf16, in half units in the last place. Its scale and the
/// result are rounded. A minimum is rounded, too, and the scaled code before it is up to twice as large.
fn of_weights(composite: Composite) -> f64 {
    match composite.has_minima {
        true => 4.0 + 1.0 + 1.0,
        false => 1.0 + 1.0,
    }
}

/// A bound for each element.
type Bound = Vec<f64>;

impl Step<'_> {
    fn evaluate(&self) -> Result<Vec<Bounded>, String> {
        let inputs: Vec<Rc<Values>> = self.inputs.iter().map(|x| x.values.clone()).collect();
        let signature = Signature {
            op: &self.node.op,
            inputs: self.types,
            outputs: &self.node.outputs,
        };
        let mut results = self.reference.evaluate(&signature, &inputs)?;
        let errors = self.errors(&results)?;
        // A cast of what may be off may be rounded to either side: the bound is of what is not rounded.
        if matches!(self.node.op, Op::Cast(_)) && errors[0].is_some() && self.narrows() {
            results[0] = inputs[0].clone();
        }
        let bounded = |(values, error): (Rc<Values>, Option<Bound>)| Bounded {
            error: error.map(|error| Rc::new(Values::Float(usable(error, &values)))),
            values,
        };
        Ok(results.into_iter().zip(errors).map(bounded).collect())
    }

    /// Bound of each result's error.
    fn errors(&self, results: &Results) -> Result<Vec<Option<Bound>>, String> {
        let first = |error| {
            let rest = results.iter().skip(1).map(|_| None);
            Ok([error].into_iter().chain(rest).collect())
        };
        let is_exact = self.inputs.iter().all(|x| x.error.is_none());
        let is_whole = |ty: &TensorType| !ty.dtype.is_float() && !ty.dtype.is_complex();
        if is_exact && self.node.outputs.iter().all(is_whole) {
            return Ok(results.iter().map(|_| None).collect());
        }
        let y = &*results[0];
        match &self.node.op {
            Op::Full(_) => first(self.representation(y)),
            Op::Arange(_) => first(Some(self.of_result(y, 1.0))),
            Op::Host(_) => Ok(results.iter().map(|_| None).collect()),
            Op::Random(op) => first(match op.distribution {
                Distribution::Uniform => None,
                Distribution::Normal => Some(self.normal(y)),
            }),
            Op::AsStrided(_)
            | Op::Reshape(_)
            | Op::Permute(_)
            | Op::Expand(_)
            | Op::Slice(_)
            | Op::Contiguous(_)
            | Op::Concat(_) => first(self.moved(&self.node.op, &[])),
            Op::Pad(op) => {
                let value = Scalar::Int(0);
                let op = Pad {
                    value,
                    ..op.clone()
                };
                first(self.moved(&op.into(), &[]))
            }
            Op::Assign(_) => first(self.moved(&self.node.op, &[]).map(|e| self.stored(e, y))),
            Op::UpdateSlice(_) => first(self.moved(&self.node.op, &[2]).map(|e| self.stored(e, y))),
            Op::IndexSelect(_) | Op::Gather(_) => first(self.moved(&self.node.op, &[1])),
            Op::Cast(_) => first(self.cast(y)),
            Op::Unary(op) => first(self.unary(op.op, y)),
            Op::Binary(op) => first(self.binary(op.op, y)),
            Op::Compare(_) => first(self.compare()),
            Op::Where(_) => first(self.select()),
            Op::Reduce(op) => first(match op.op {
                ReduceOp::Sum => Some(self.sum(&[&[0]], self.reduced(&op.dims), y)),
                ReduceOp::Prod => Some(self.product(self.reduced(&op.dims), y)),
                ReduceOp::Max | ReduceOp::Min => {
                    let largest = Reduce {
                        op: ReduceOp::Max,
                        ..op.clone()
                    };
                    self.moved(&largest.into(), &[])
                }
            }),
            Op::ArgReduce(op) => Ok(self.chosen(results, op)),
            Op::Scan(op) => {
                let n = self.types[0].shape[op.dim];
                let largest = || {
                    Scan {
                        op: ScanOp::Max,
                        ..op.clone()
                    }
                    .into()
                };
                first(match op.op {
                    ScanOp::Sum => Some(self.sum(&[&[0]], n, y)),
                    ScanOp::Prod => Some(self.product(n, y)),
                    ScanOp::Max | ScanOp::Min => self.moved(&largest(), &[]),
                    ScanOp::LogSumExp => Some(self.log_sum_exp(&largest(), n, y)),
                })
            }
            Op::TopK(_) => Ok(self.ordered(results)),
            Op::Scatter(op) => first(match op.mode {
                ScatterMode::Set => self.moved(&self.node.op, &[1]),
                ScatterMode::Max | ScatterMode::Min => {
                    let mode = ScatterMode::Max;
                    self.moved(&Scatter { mode, ..op.clone() }.into(), &[1])
                }
                ScatterMode::Add => {
                    Some(self.sum(&[&[0], &[2]], 1 + self.types[1].shape[op.dim], y))
                }
                ScatterMode::Prod => Some(self.product(1 + self.types[1].shape[op.dim], y)),
            }),
            Op::Matmul(_) => {
                let depth = self.types[0].shape.last().copied().unwrap_or(0);
                first(Some(self.sum(&[&[0, 1]], depth, y)))
            }
            Op::Conv2d(_) => {
                let taps = self.types[1].shape[1..].iter().product::<usize>();
                first(Some(self.sum(&[&[0, 1], &[2]], 1 + taps, y)))
            }
            Op::ConvTranspose2d(op) => {
                let w = &self.types[1].shape;
                let taps = w[0] / op.groups.max(1) * w[2] * w[3];
                first(Some(self.sum(&[&[0, 1], &[2]], 1 + taps, y)))
            }
            Op::Pool2d(op) => match op.kind {
                PoolKind::Average => first(Some(self.sum(&[&[0]], op.kernel.iter().product(), y))),
                PoolKind::Max => Ok(self.ordered(results)),
            },
            Op::Fft(op) => first(Some(self.fft(op, y))),
            Op::Cholesky(_)
            | Op::Ldl(_)
            | Op::LdlSolve(_)
            | Op::Lu(_)
            | Op::LuPivotsToPermutation(_)
            | Op::Qr(_)
            | Op::Svd(_)
            | Op::Eigh(_)
            | Op::Eig(_)
            | Op::Geqrf(_)
            | Op::HouseholderProduct(_)
            | Op::SolveTriangular(_)
            | Op::MatrixExp(_) => Ok(self.factors(results)),
            other => Err(format!(
                "{} has no rule in crates/conformance/src/bounds.rs",
                other.name()
            )),
        }
    }

    /// The dtype of the first result.
    fn dtype(&self) -> DType {
        self.node.outputs[0].dtype
    }

    fn kernels(&self) -> Precision {
        self.accuracy.kernels(self.dtype(), self.composite)
    }

    /// The operation's result on other operands, which stand for the node's: moduli and bounds.
    fn again(&self, op: &Op, values: &[Rc<Values>]) -> Vec<f64> {
        let real = |ty: &TensorType, values: Option<&Rc<Values>>| match values.map(|v| &**v) {
            Some(Values::Int(_) | Values::Blocks(_)) => ty.clone(),
            _ => TensorType::new(ty.shape.clone(), DType::F64),
        };
        let types = self.types.iter().enumerate();
        let types: Vec<TensorType> = types.map(|(i, ty)| real(ty, values.get(i))).collect();
        let outputs = self.node.outputs.iter().enumerate();
        let outputs: Vec<TensorType> = outputs
            .map(|(i, ty)| match i {
                0 => real(ty, None),
                _ => ty.clone(),
            })
            .collect();
        let signature = Signature {
            op,
            inputs: &types.iter().collect::<Vec<_>>(),
            outputs: &outputs,
        };
        let results = self.reference.evaluate(&signature, values);
        match results.as_deref() {
            Ok([first, ..]) => moduli(first),
            // Nothing is refused that was not refused before.
            _ => vec![f64::INFINITY; self.node.outputs[0].shape.elements()],
        }
    }

    /// The bound of an operand's elements.
    fn error_of(&self, i: usize) -> Vec<f64> {
        match &self.inputs[i].error {
            Some(error) => moduli(error),
            None => vec![0.0; self.types[i].shape.elements()],
        }
    }

    /// The bound of `ulps` units in the last place, and of being stored.
    fn of_result(&self, y: &Values, ulps: f64) -> Bound {
        let own = self.kernels();
        let error = moduli(y).iter().map(|&y| ulps * own.ulp(y)).collect();
        self.stored(error, y)
    }

    /// A bound with the loss of being stored, in a dtype of fewer digits than kernels compute
    /// with.
    fn stored(&self, mut error: Bound, y: &Values) -> Bound {
        let dtype = self.dtype();
        let vanishing = self.accuracy.vanishing(dtype);
        let (precision, narrow) = (Precision::of(dtype), is_narrow(dtype));
        let by_the_way = self.by_the_way();
        for (error, y) in error.iter_mut().zip(moduli(y)) {
            if narrow {
                *error += 0.5 * precision.ulp(y + *error) + by_the_way * y;
            }
            // The result itself may be no normal number.
            if y <= vanishing {
                *error += vanishing;
            }
        }
        error
    }

    /// Loss of doubles that become halves by way of singles, as a share of the result.
    fn by_the_way(&self) -> f64 {
        match self.types.iter().any(|ty| ty.dtype == DType::F64) {
            true => Precision::of(DType::F32).unit(),
            false => 0.0,
        }
    }

    /// A constant that the dtype does not have.
    fn representation(&self, y: &Values) -> Option<Bound> {
        let near = rounded(y, self.dtype());
        let error = differences(y, &near);
        error.iter().any(|&e| e > 0.0).then_some(error)
    }

    fn normal(&self, y: &Values) -> Bound {
        let unit = self.accuracy.normal() * self.kernels().ulp(1.0);
        let error = moduli(y).iter().map(|y| unit * y.max(1.0)).collect();
        self.stored(error, y)
    }

    /// The operands' bounds, moved as the elements are; but the operands `kept` as they are.
    fn moved(&self, op: &Op, kept: &[usize]) -> Option<Bound> {
        if self.inputs.iter().all(|x| x.error.is_none()) {
            return None;
        }
        let bounds = (0..self.inputs.len()).map(|i| match kept.contains(&i) {
            true => self.inputs[i].values.clone(),
            false => Rc::new(Values::Float(self.error_of(i))),
        });
        Some(self.again(op, &bounds.collect::<Vec<_>>()))
    }

    /// Returns whether it is a cast that only takes digits.
    fn narrows(&self) -> bool {
        let is_same = |a: DType, b: DType| {
            (a.is_float() && b.is_float()) || (a.is_complex() && b.is_complex())
        };
        is_same(self.types[0].dtype, self.dtype())
    }

    /// A cast rounds once. A kernel of a composite may go on with the digits that it has.
    fn cast(&self, y: &Values) -> Option<Bound> {
        let x = &self.inputs[0];
        let is_exact = x.error.is_none();
        let dtype = self.dtype();
        if !dtype.is_float() && !dtype.is_complex() && !dtype.is_float8() {
            return (!is_exact).then(|| self.shifted(y));
        }
        let lost = match (&*x.values, y) {
            (Values::Int(_) | Values::Blocks(_), _) => None,
            (x, y) => Some(differences(x, y)),
        };
        let rounds = lost.is_some_and(|lost| lost.iter().any(|&e| e > 0.0));
        if is_exact && !(rounds && self.composite.is_some()) {
            return None;
        }
        let (precision, by_the_way) = match is_narrow(dtype) {
            true => (Precision::of(dtype), self.by_the_way()),
            false => (self.kernels(), 0.0),
        };
        let error = self.error_of(0);
        let pairs = error.iter().zip(moduli(y));
        let rounded = |(e, y): (&f64, f64)| e + 0.5 * precision.ulp(y + e) + by_the_way * y;
        Some(pairs.map(rounded).collect())
    }

    /// Change of a function's result by the bounds of its operands.
    fn shifted(&self, y: &Values) -> Bound {
        let mut error = vec![0.0; count(y)];
        for i in 0..self.inputs.len() {
            let mut bound = self.error_of(i);
            if self.scales_exponents() {
                let unit = self.kernels().unit();
                let x = moduli(&self.inputs[i].values);
                bound
                    .iter_mut()
                    .zip(x)
                    .for_each(|(e, x)| *e += 2.0 * unit * x);
            }
            if bound.iter().all(|&e| e == 0.0) {
                continue;
            }
            let moved = [1.0, -1.0].map(|sign| self.result_beside(i, &bound, sign));
            let [up, down] = moved.map(|moved| differences(y, &moved));
            let largest = up.iter().zip(&down).map(|(a, b)| a.max(*b));
            error
                .iter_mut()
                .zip(largest)
                .for_each(|(e, more)| *e += more);
        }
        error
    }

    /// Kernels of composites make powers of e from powers of 2.
    fn scales_exponents(&self) -> bool {
        self.composite.is_some() && matches!(&self.node.op, Op::Unary(u) if u.op == UnaryOp::Exp)
    }

    /// The result with operand `i` moved by its bound.
    fn result_beside(&self, i: usize, bound: &[f64], sign: f64) -> Values {
        let moved = |j: usize| match (i == j, &*self.inputs[j].values) {
            (true, Values::Float(x)) => {
                let pairs = x.iter().zip(bound);
                Rc::new(Values::Float(pairs.map(|(x, e)| x + sign * e).collect()))
            }
            (true, Values::Int(x)) => {
                let pairs = x.iter().zip(bound);
                Rc::new(Values::Int(
                    pairs.map(|(x, e)| x + (sign * e) as i128).collect(),
                ))
            }
            _ => self.inputs[j].values.clone(),
        };
        let values: Vec<Rc<Values>> = (0..self.inputs.len()).map(moved).collect();
        let signature = Signature {
            op: &self.node.op,
            inputs: self.types,
            outputs: &self.node.outputs,
        };
        match self.reference.evaluate(&signature, &values) {
            Ok(results) => (*results[0]).clone(),
            Err(_) => Values::Float(vec![f64::NAN; self.node.outputs[0].shape.elements()]),
        }
    }

    fn unary(&self, op: UnaryOp, y: &Values) -> Option<Bound> {
        let (x, dtype) = (&self.inputs[0], self.types[0].dtype);
        let is_float = dtype.is_float() || dtype.is_complex();
        let limit = is_float.then(|| self.accuracy.unary(op, dtype)).flatten();
        if limit.is_none() && x.error.is_none() {
            return None;
        }
        let shifted = match (&*x.values, y) {
            (Values::Complex(z), y) => {
                let (z, y, e) = (z.iter(), moduli(y), self.error_of(0));
                let each = z.zip(y).zip(e).map(|((z, y), e)| match op {
                    UnaryOp::Exp => y * e,
                    UnaryOp::Reciprocal => e / z.norm_sqr(),
                    _ => e,
                });
                each.collect()
            }
            _ => self.shifted(y),
        };
        Some(self.own(limit, shifted, moduli(y), y))
    }

    /// A bound with a function's own error, in units in the last place of `size` or of the result.
    fn own(&self, limit: Option<Limit>, mut error: Bound, size: Vec<f64>, y: &Values) -> Bound {
        let precision = self.kernels();
        let Some(Limit { ulps, least }) = limit else {
            return error;
        };
        // The definition's own rounding, which does not count where it is the last one.
        let is_double = precision == Precision::of(DType::F64);
        let ulps = ulps + f64::from(u8::from(is_double && self.composite.is_some())) / 2.0;
        for (error, size) in error.iter_mut().zip(size) {
            *error += ulps * precision.ulp(size.max(least));
        }
        self.stored(error, y)
    }

    fn binary(&self, op: BinaryOp, y: &Values) -> Option<Bound> {
        let dtype = self.types[0].dtype;
        let is_float = dtype.is_float() || dtype.is_complex();
        let limit = is_float.then(|| self.accuracy.binary(op, dtype)).flatten();
        let is_exact = self.inputs.iter().all(|x| x.error.is_none());
        if limit.is_none() && is_exact {
            return None;
        }
        let to = &self.node.outputs[0].shape;
        let wide = |i: usize, x: Vec<f64>| spread(&x, &self.types[i].shape, to);
        let [a, b] = [0, 1].map(|i| wide(i, moduli(&self.inputs[i].values)));
        let [ea, eb] = [0, 1].map(|i| wide(i, self.error_of(i)));
        let (size, n) = (moduli(y), a.len());
        let each = |f: &dyn Fn(usize) -> f64| (0..n).map(f).collect::<Vec<f64>>();
        let shifted = match op {
            BinaryOp::Add | BinaryOp::Sub | BinaryOp::Complex => each(&|i| ea[i] + eb[i]),
            BinaryOp::Mul => each(&|i| a[i] * eb[i] + ea[i] * (b[i] + eb[i])),
            BinaryOp::Div => each(&|i| match ea[i] + eb[i] == 0.0 {
                true => 0.0,
                false if eb[i] >= b[i] => f64::INFINITY,
                false => (ea[i] + size[i] * eb[i]) / (b[i] - eb[i]),
            }),
            _ if is_exact => vec![0.0; n],
            _ => self.shifted(y),
        };
        let size = match op {
            BinaryOp::Mul if dtype.is_complex() => each(&|i| a[i] * b[i]),
            _ => size,
        };
        Some(self.own(limit, shifted, size, y))
    }

    /// A comparison of inexact numbers may go the other way if they are near each other.
    fn compare(&self) -> Option<Bound> {
        if self.inputs.iter().all(|x| x.error.is_none()) {
            return None;
        }
        let to = &self.node.outputs[0].shape;
        let wide = |i: usize, x: Vec<f64>| spread(&x, &self.types[i].shape, to);
        let [a, b] = [0, 1].map(|i| wide(i, reals(&self.inputs[i].values)));
        let [ea, eb] = [0, 1].map(|i| wide(i, self.error_of(i)));
        let flips = |i: usize| (a[i] - b[i]).abs() <= ea[i] + eb[i] && ea[i] + eb[i] > 0.0;
        Some(
            (0..a.len())
                .map(|i| f64::from(u8::from(flips(i))))
                .collect(),
        )
    }

    /// A choice that may go the other way is off by the difference of both.
    fn select(&self) -> Option<Bound> {
        let error = self.moved(&self.node.op, &[0])?;
        let to = &self.node.outputs[0].shape;
        let wide = |i: usize, x: Vec<f64>| spread(&x, &self.types[i].shape, to);
        let flips = wide(0, self.error_of(0));
        let [a, b] = [1, 2].map(|i| wide(i, reals(&self.inputs[i].values)));
        let [ea, eb] = [1, 2].map(|i| wide(i, self.error_of(i)));
        let each = (0..error.len()).map(|i| match flips[i] > 0.0 {
            true => (a[i] - b[i]).abs() + ea[i] + eb[i],
            false => error[i],
        });
        Some(each.collect())
    }

    /// Number of elements that a reduction combines.
    fn reduced(&self, dims: &[usize]) -> usize {
        dims.iter().map(|&d| self.types[0].shape[d]).product()
    }

    /// A sum of at most `n` terms, each the product of the operands of one of `groups`.
    fn sum(&self, groups: &[&[usize]], n: usize, y: &Values) -> Bound {
        let sizes: Vec<Rc<Values>> = (self.inputs.iter().enumerate())
            .map(
                |(i, x)| match groups.iter().any(|group| group.contains(&i)) {
                    true => Rc::new(Values::Float(moduli(&x.values))),
                    false => x.values.clone(),
                },
            )
            .collect();
        let mut error = self.again(&self.node.op, &sizes);
        let steps = self.steps(n);
        error.iter_mut().for_each(|e| *e *= steps);
        if let (Op::Matmul(_), Some(composite)) = (&self.node.op, self.composite) {
            let more = self.read_in_fewer_digits(composite);
            error.iter_mut().zip(more).for_each(|(e, more)| *e += more);
        }
        for group in groups {
            let group: Vec<usize> = (group.iter().copied())
                .filter(|&i| i < sizes.len())
                .collect();
            for (at, &i) in group.iter().enumerate() {
                let bound = self.error_of(i);
                if bound.iter().all(|&e| e == 0.0) {
                    continue;
                }
                // The others of the group: those before with their bounds, what is in no product not at all.
                let operand = |j: usize| match group.iter().position(|&k| k == j) {
                    Some(place) if place < at => {
                        let pairs = moduli(&sizes[j]).into_iter().zip(self.error_of(j));
                        Rc::new(Values::Float(pairs.map(|(x, e)| x + e).collect()))
                    }
                    Some(place) if place == at => Rc::new(Values::Float(bound.clone())),
                    Some(_) => sizes[j].clone(),
                    None if groups.iter().any(|group| group.contains(&j)) => {
                        Rc::new(Values::Float(vec![0.0; count(&sizes[j])]))
                    }
                    None => sizes[j].clone(),
                };
                let operands: Vec<Rc<Values>> = (0..sizes.len()).map(operand).collect();
                let more = self.again(&self.node.op, &operands);
                error.iter_mut().zip(more).for_each(|(e, more)| *e += more);
            }
        }
        self.stored(error, y)
    }

    /// The bound of a sum of `n` terms, as a share of the sum of their moduli.
    fn steps(&self, n: usize) -> f64 {
        let precision = self.between_steps();
        let complex = 1 + usize::from(self.dtype().is_complex());
        // In double precision the definition is rounded as often.
        let double = 1 + usize::from(precision == Precision::of(DType::F64));
        (complex * double) as f64 * (2.0 + (n as f64).sqrt()) * precision.unit()
    }

    /// The digits that a sum or a product keeps from one element to the next.
    fn between_steps(&self) -> Precision {
        match &self.node.op {
            // Each element is combined with the memory that it is scattered to.
            Op::Scatter(_) => Precision::of(self.dtype()),
            _ => self.kernels(),
        }
    }

    /// Error of a product whose factors are read in fewer digits.
    fn read_in_fewer_digits(&self, composite: Composite) -> Bound {
        let square = |x: &Vec<f64>| Rc::new(Values::Float(x.iter().map(|x| x * x).collect()));
        let sizes = [0, 1].map(|i| square(&moduli(&self.inputs[i].values)));
        let lost = [0, 1].map(|i| square(&self.lost_by_reading(i, composite)));
        let pairs = [
            [lost[0].clone(), sizes[1].clone()],
            [sizes[0].clone(), lost[1].clone()],
        ];
        let [first, second] = pairs.map(|pair| self.again(&self.node.op, &pair));
        let pairs = first.into_iter().zip(second);
        pairs.map(|(a, b)| 3.0 * (a + b).sqrt()).collect()
    }

    /// The loss of a factor's elements as kernels of composites read them: in the digits of the narrowest operand.
    /// Beside quantised weights they keep 8 bits of their row's largest element. Quantised weights themselves are
    /// exact, or are rounded to bf16 as their column's largest element is. Then the others are rounded to bf16, too.
    fn lost_by_reading(&self, i: usize, composite: Composite) -> Bound {
        let x = moduli(&self.inputs[i].values);
        let mut lost = vec![0.0; x.len()];
        if is_narrow(composite.narrowest) {
            let precision = Precision::of(composite.narrowest);
            let exact = Values::Float(x.clone());
            let rounding = differences(&exact, &rounded(&exact, composite.narrowest));
            let changes = rounding.into_iter().zip(self.error_of(i));
            for ((lost, x), (rounding, error)) in lost.iter_mut().zip(&x).zip(changes) {
                if rounding + error > 0.0 {
                    *lost = 0.5 * precision.ulp(*x);
                }
            }
        }
        if composite.is_quantised && i == 0 {
            let width = self.types[0].shape.last().copied().unwrap_or(1).max(1);
            for (lost, x) in lost.chunks_mut(width).zip(x.chunks(width)) {
                let step = x.iter().fold(0.0, |a: f64, b| a.max(*b)) / 127.0;
                lost.iter_mut().for_each(|lost| *lost += 0.5 * step);
            }
        }
        if composite.is_quantised && self.accuracy.reads_blocks_in_bf16() {
            let half = |x: f64| 0.5 * Precision::of(DType::BF16).ulp(x);
            let roundings: Bound = match i {
                0 => x.iter().map(|&x| half(x)).collect(),
                _ => self.by_column(&x, |largest| {
                    half(largest) * f64::sqrt(of_weights(composite))
                }),
            };
            let pairs = lost.iter_mut().zip(roundings);
            pairs.for_each(|(lost, rounding)| *lost = lost.hypot(rounding));
        }
        lost
    }

    /// For each element, `f` of the largest of its column, the last dimension being that of columns.
    fn by_column(&self, x: &[f64], f: impl Fn(f64) -> f64) -> Bound {
        let columns = self.types[1].shape.last().copied().unwrap_or(1).max(1);
        let mut largest = vec![0.0; columns];
        for row in x.chunks(columns) {
            let pairs = largest.iter_mut().zip(row);
            pairs.for_each(|(largest, x)| *largest = f64::max(*largest, *x));
        }
        let of_columns: Bound = largest.into_iter().map(f).collect();
        of_columns.iter().copied().cycle().take(x.len()).collect()
    }

    /// A product of at most `n` factors.
    fn product(&self, n: usize, y: &Values) -> Bound {
        let size = moduli(y);
        // Every rounding counts in full, where terms of a sum count by their share.
        let steps = 4.0 * self.steps(n);
        // A product on the way may be no normal number.
        let smallest = self.between_steps().smallest();
        let mut error: Bound = size.iter().map(|y| steps * y.max(smallest)).collect();
        if self.inputs.iter().any(|x| x.error.is_some()) {
            let wider = (0..self.inputs.len()).map(|i| match &*self.inputs[i].values {
                Values::Int(_) => self.inputs[i].values.clone(),
                x => {
                    let pairs = moduli(x).into_iter().zip(self.error_of(i));
                    Rc::new(Values::Float(pairs.map(|(x, e)| x + e).collect()))
                }
            });
            let wider = self.again(&self.node.op, &wider.collect::<Vec<_>>());
            let more = wider.iter().zip(&size).map(|(wider, y)| wider - y);
            error.iter_mut().zip(more).for_each(|(e, more)| *e += more);
        }
        self.stored(error, y)
    }

    fn log_sum_exp(&self, largest: &Op, n: usize, y: &Values) -> Bound {
        let x = &self.inputs[0];
        let finite = moduli(&x.values).into_iter();
        let finite = finite
            .map(|x| if x.is_finite() { x } else { 0.0 })
            .collect();
        let size = self.again(largest, &[Rc::new(Values::Float(finite))]);
        let steps = self.steps(n);
        let own = size.iter().map(|size| steps * (4.0 + size));
        let moved = self.moved(largest, &[]);
        let moved = moved.unwrap_or_else(|| vec![0.0; size.len()]);
        self.stored(own.zip(moved).map(|(a, b)| a + b).collect(), y)
    }

    /// The order of elements that may be off is open, and so is the choice among them.
    fn ordered(&self, results: &Results) -> Vec<Option<Bound>> {
        let errors = self.inputs[0].error.as_ref().map(|error| moduli(error));
        let largest = errors.map(|e| e.into_iter().fold(0.0, f64::max));
        let each = |(i, y): (usize, &Rc<Values>)| {
            let error = match i {
                0 => largest?,
                _ => largest.map(|_| f64::INFINITY)?,
            };
            Some(vec![error; count(y)])
        };
        results.iter().enumerate().map(each).collect()
    }

    fn chosen(&self, results: &Results, op: &ArgReduce) -> Vec<Option<Bound>> {
        let errors = self.ordered(results);
        match op.values {
            true => errors,
            false => errors
                .into_iter()
                .map(|e| e.map(|e| vec![f64::INFINITY; e.len()]))
                .collect(),
        }
    }

    /// Each frequency is a sum of all elements of the line, by way of log₂ n sums of two.
    fn fft(&self, op: &Fft, y: &Values) -> Bound {
        let (shape, to) = (&self.types[0].shape, &self.node.outputs[0].shape);
        let line = shape.clone().with_dim(op.dim, 1);
        let total = |x: Vec<f64>| {
            let mut sums = vec![0.0; line.elements()];
            let places = Layout::contiguous(&line).broadcast_to(shape);
            places.positions().zip(x).for_each(|(at, x)| sums[at] += x);
            spread(&sums, &line, to)
        };
        // The operand lacks half of the elements, which are conjugates of the others.
        let (n, twice) = match op.kind {
            FftKind::ComplexToReal { n } => (n, 2.0),
            _ => (shape[op.dim], 1.0),
        };
        let steps = (2.0 + 2.0 * (n.max(1) as f64).log2()) * self.kernels().unit();
        // The reference has an error as well: it is a plain sum in double precision.
        let own = steps + (n as f64).sqrt() * Precision::of(DType::F64).unit();
        let sizes = total(moduli(&self.inputs[0].values));
        let errors = total(self.error_of(0));
        let pairs = sizes.into_iter().zip(errors);
        self.stored(pairs.map(|(x, e)| twice * (own * x + e)).collect(), y)
    }

    /// Factors are computed in double precision, and rounded once; their own error is of the largest
    /// element. Operands that are off move them by as much, times a matrix's condition.
    fn factors(&self, results: &Results) -> Vec<Option<Bound>> {
        let moved = |x: &Bounded| {
            let largest = |x: &Values| moduli(x).into_iter().fold(0.0, f64::max);
            let error = x.error.as_ref().map_or(0.0, |e| largest(e));
            error / largest(&x.values).max(f64::MIN_POSITIVE)
        };
        let moved = self.inputs.iter().map(moved).fold(0.0, f64::max);
        let each = |(y, ty): (&Rc<Values>, &TensorType)| {
            if matches!(**y, Values::Int(_)) {
                return None;
            }
            let precision = Precision::of(ty.dtype);
            let size = moduli(y);
            let largest = size
                .iter()
                .copied()
                .filter(|x| x.is_finite())
                .fold(0.0, f64::max);
            let n = self.types[0]
                .shape
                .iter()
                .rev()
                .take(2)
                .max()
                .copied()
                .unwrap_or(1);
            let own = (n as f64 * 64.0 * Precision::of(DType::F64).unit() + 8.0 * moved) * largest;
            Some(
                size.iter()
                    .map(|&y| own + 0.5 * precision.ulp(y + own))
                    .collect(),
            )
        };
        results.iter().zip(&self.node.outputs).map(each).collect()
    }
}
