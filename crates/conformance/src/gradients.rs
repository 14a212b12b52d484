//! Gradients by central differences.
//!
//! Each case in double precision has a random linear function of the results. Its gradient is compared
//! with the slope that differences give along a random direction. The gradient of that slope is
//! compared likewise, for the second derivative.

use std::ops::RangeInclusive;
use std::sync::Arc;

use num_complex::Complex64;
use rustorch_ir::autodiff::{backward, is_not_differentiable};
use rustorch_ir::case::{Case, CaseOperand, Fill};
use rustorch_ir::ops::{AsStrided, BinaryOp, philox};
use rustorch_ir::{DType, Graph, Op, OpError, OpKind, TensorType, ValueId};
use rustorch_reference::{Reference, Values};
use rustorch_runtime::{Backend, Executable, Routing, RunError, Runtime, Storage};

use crate::suite::{Entry, Expect};
use crate::{Check, Extent, Outcome, Report, Suite, describe, operand, read, storage};

/// Half of the step of a difference.
const STEP: f64 = 1e-6;
/// Widths of ranges of numbers that a step neither leaves as they are nor leads out of.
const STEPPED: RangeInclusive<f64> = 1e-3..=1e6;

/// Tolerance of a slope, relative to the sum of the moduli of its parts, and of 1.
const TOLERANCE: f64 = 1e-5;

/// Gradients of a sample of operations on a device. The reference computes those without a kernel.
///
/// # Panics
/// Panics if a gradient differs, or if there is none.
pub fn check_gradients(device: Arc<dyn Backend>) {
    let kinds = Extent::of_tests().choose(OpKind::ALL.iter().copied(), 12);
    let suite = Suite::of_tests(|kind| kinds.contains(&kind), &*device);
    let report = suite.run_gradients(device);
    println!("{} slopes on {}", report.passed(), report.device);
    let failed: Vec<_> = report.failed().collect();
    assert!(report.passed() > 0 && failed.is_empty(), "{failed:#?}");
}

impl Suite {
    /// Compares gradients of the cases in double precision with central differences. They are computed on
    /// `backend`, or on the reference if `backend` has no kernel.
    pub fn run_gradients(&self, backend: Arc<dyn Backend>) -> Report {
        let device = backend.info().device;
        let reference: Arc<dyn Backend> = Arc::new(Reference::new());
        let runtime = Runtime::new([backend, reference]);
        let mut checks = Vec::new();
        for Entry { kind, case, expect } in &self.entries {
            if *expect != Expect::Result || !has_slopes(case) {
                continue;
            }
            let case = between(case);
            for (operand, twin) in variables(&case) {
                let outcome = match Slopes::new(&runtime, &case, operand, twin) {
                    Err(e) if is_not_differentiable(&e) => continue,
                    Err(e) => Outcome::Failed(e.to_string()),
                    Ok(None) => continue,
                    Ok(Some(slopes)) => match slopes.check(&runtime) {
                        Ok(()) => Outcome::Passed,
                        Err(difference) => Outcome::Failed(difference),
                    },
                };
                let twice = twin.map_or_else(String::new, |twin| format!(" and {twin} in one"));
                checks.push(Check {
                    kind: *kind,
                    case: format!("{} by operand {operand}{twice}", describe(&case)),
                    outcome,
                    closeness: None,
                    faults: Vec::new(),
                });
            }
        }
        Report {
            device,
            checks,
            is_sample: self.is_sample,
        }
    }
}

fn is_double(dtype: DType) -> bool {
    matches!(dtype, DType::F64 | DType::Complex128)
}

/// Can differences be taken? Not of infinities, of numbers beside which a step is nothing or everything, or of the mean
/// of nothing. Not of products that round their operands. Not where a complex matrix is one real number, beside which the
/// signs of QR's factors are others. Operations that rules of fusion build are left out: their parts are checked.
fn has_slopes(case: &Case) -> bool {
    let is_smooth = |x: &CaseOperand| match (&case.op, x.fill) {
        (_, Fill::Special) => false,
        (_, Fill::Uniform(low, high)) if !STEPPED.contains(&(high - low)) => false,
        (Op::Softmax(softmax), Fill::Mask) => !softmax.log,
        (Op::CrossEntropyMean(_), _) => !x.ty.shape.contains(&0),
        (Op::Qr(_), _) => !(x.ty.dtype.is_complex() && x.ty.shape.ends_with(&[1, 1])),
        _ => !x.ty.dtype.is_block(),
    };
    case.op.def().replaces().is_empty() && case.inputs.iter().all(is_smooth)
}

/// Is the operand a whole number by its meaning, though it is a float?
fn is_whole(op: &Op, operand: usize) -> bool {
    let Op::Binary(binary) = op else {
        return false;
    };
    let of_degree = binary
        .op
        .defined()
        .is_some_and(|(_, name)| name.contains("polynomial"));
    operand == 1 && (of_degree || binary.op == BinaryOp::Ldexp)
}

/// The case with numbers between those that are whole, where operations have their steps.
fn between(case: &Case) -> Case {
    let mut case = case.clone();
    for (i, operand) in case.inputs.iter_mut().enumerate() {
        let (is_whole, is_double) = (is_whole(&case.op, i), is_double(operand.ty.dtype));
        if let (Fill::Ints(low, high), true, false) = (operand.fill, is_double, is_whole) {
            operand.fill = Fill::Uniform(low as f64 + 0.1, high as f64 + 0.1);
        }
    }
    case
}

/// The operands that gradients are asked for; and for some operations two that are the same.
fn variables(case: &Case) -> Vec<(usize, Option<usize>)> {
    let operands = case.inputs.iter().enumerate();
    let doubles = operands.filter(|(i, x)| is_double(x.ty.dtype) && !is_whole(&case.op, *i));
    let mut variables: Vec<(usize, Option<usize>)> = doubles.map(|(i, _)| (i, None)).collect();
    let may_be_one = match &case.op {
        // From a number towards itself is not a step, whose gradient PyTorch says is 0.
        Op::Binary(binary) => binary.op != BinaryOp::NextAfter,
        Op::Matmul(_) | Op::Concat(_) | Op::Linear(_) => true,
        _ => false,
    };
    if let ([(a, _), (b, _), ..], true) = (&variables[..], may_be_one) {
        let pair = (*a, Some(*b));
        let alike = case.inputs[*a] == case.inputs[*b] && !is_whole(&case.op, *b);
        variables.extend(alike.then_some(pair));
    }
    variables
}

/// A case as a function of one operand, with its gradient, and the gradient of that.
struct Slopes {
    executable: Executable,
    /// Stored values of the operands, then the gradients of the results, then the direction.
    inputs: Vec<Vec<u8>>,
    types: Vec<TensorType>,
    operand: usize,
    /// Is the operand a Hermitian matrix with one triangle read?
    is_hermitian: bool,
    /// The results that have a gradient, by their numbers among the inputs that those are.
    results: Vec<usize>,
    has_second: bool,
    outputs: Vec<TensorType>,
}

impl Slopes {
    /// `None` if no result has a gradient.
    fn new(
        runtime: &Runtime,
        case: &Case,
        operand: usize,
        twin: Option<usize>,
    ) -> Result<Option<Self>, OpError> {
        let types: Vec<&TensorType> = case.inputs.iter().map(|x| &x.ty).collect();
        let found = case.op.infer(&types)?;
        // The phases of a complex matrix's vectors are arbitrary, so these results have no gradient.
        let is_free = |ty: &TensorType| {
            let vectors = [OpKind::Svd, OpKind::Eigh, OpKind::Eig].contains(&case.op.kind());
            vectors && types[0].dtype.is_complex() && ty.rank() == types[0].rank()
        };
        let counts = |ty: &TensorType| is_double(ty.dtype) && !is_free(ty);
        let places = operand::place(case);
        let mut g = Graph::new();
        let stored = places.iter().map(|x| g.input(x.stored.clone()));
        let stored: Vec<ValueId> = stored.collect::<Result<_, _>>()?;
        let given = found.iter().filter(|ty| counts(ty));
        let given: Vec<ValueId> = given
            .map(|ty| g.input(ty.clone()))
            .collect::<Result<_, _>>()?;
        let direction = g.input(places[operand].stored.clone())?;
        let mut inputs = Vec::new();
        for (&value, place) in stored.iter().zip(&places) {
            inputs.push(match place.view.clone() {
                Some(layout) => g.push(AsStrided { layout }, &[value])?,
                None => value,
            });
        }
        if let Some(twin) = twin {
            inputs[twin] = inputs[operand];
        }
        let first = g.push(case.op.clone(), &inputs)?;
        let results = g.results(first);
        let results: Vec<ValueId> = results
            .into_iter()
            .filter(|&value| counts(g.ty(value)))
            .collect();
        if results.is_empty() {
            return Ok(None);
        }
        let ends: Vec<_> = results.iter().copied().zip(given.iter().copied()).collect();
        let x = [stored[operand]];
        let nodes = 0..g.nodes().len();
        let zeros = |g: &mut Graph, found: Option<ValueId>| match found {
            Some(found) => Ok(found),
            None => g.zeros_like(x[0]),
        };
        let found = backward(&mut g, nodes, &ends, &x)?[0];
        let gradient = zeros(&mut g, found)?;
        // The second derivative goes into a copy, since there may be none.
        let mut second = g.clone();
        let nodes = 0..g.nodes().len();
        let curvature = backward(&mut second, nodes, &[(gradient, direction)], &x);
        let mut outputs = results.clone();
        outputs.push(gradient);
        let has_second = !curvature.as_ref().is_err_and(is_not_differentiable);
        if has_second {
            let found = curvature?[0];
            g = second;
            outputs.push(zeros(&mut g, found)?);
        }
        outputs.iter().for_each(|&value| g.output(value));
        let types: Vec<TensorType> = g.inputs().to_vec();
        let outputs: Vec<TensorType> = outputs.iter().map(|&v| g.ty(v).clone()).collect();
        let mut inputs = operand::prepare(case);
        if let Some(twin) = twin {
            inputs[twin] = inputs[operand].clone();
        }
        let count = inputs.len();
        for (i, ty) in types.iter().enumerate().skip(count) {
            inputs.push(random(ty, 100 + i as u64).encode(ty.dtype));
        }
        let mut slopes = Self {
            executable: runtime.prepare(g, Routing::default()),
            inputs,
            types,
            operand,
            is_hermitian: [OpKind::Cholesky, OpKind::Eigh].contains(&case.op.kind()),
            results: (count..count + given.len()).collect(),
            has_second,
            outputs,
        };
        let last = slopes.inputs.len() - 1;
        slopes.inputs[last] = slopes.direction(7).encode(slopes.types[last].dtype);
        Ok(Some(slopes))
    }

    /// A way to go with the operand.
    fn direction(&self, stream: u64) -> Values {
        let ty = &self.types[self.operand];
        let mut way = random(ty, stream);
        if self.is_hermitian {
            symmetrize(&mut way, ty.shape[ty.rank() - 1]);
        }
        way
    }

    /// The outputs at `steps` steps along a direction.
    fn at(&self, runtime: &Runtime, way: &Values, steps: f64) -> Result<Vec<Values>, RunError> {
        let dtype = self.types[self.operand].dtype;
        let mut inputs: Vec<Storage> = self.inputs.iter().map(|bytes| storage(bytes)).collect();
        let start = Values::decode(self.inputs[self.operand].clone(), dtype);
        inputs[self.operand] = storage(&moved(&start, way, steps).encode(dtype));
        let outputs = self.executable.run(&inputs)?;
        let decoded = |(output, ty): (&Storage, &TensorType)| {
            Ok(Values::decode(read(runtime, output)?, ty.dtype))
        };
        outputs.iter().zip(&self.outputs).map(decoded).collect()
    }

    fn check(&self, runtime: &Runtime) -> Result<(), String> {
        let count = self.results.len();
        let told = |e: RunError| e.to_string();
        let last = self.inputs.len() - 1;
        let way = Values::decode(self.inputs[last].clone(), self.types[last].dtype);
        let here = self.at(runtime, &way, 0.0).map_err(told)?;
        let loss = |outputs: &[Values]| {
            let results = self.results.iter().zip(outputs).map(|(&given, result)| {
                let dtype = self.types[given].dtype;
                inner(&Values::decode(self.inputs[given].clone(), dtype), result)
            });
            results.sum::<Complex64>()
        };
        let slope = |way: &Values, f: &dyn Fn(&[Values]) -> f64| {
            let [ahead, behind] = [STEP, -STEP].map(|step| self.at(runtime, way, step));
            Ok((f(&ahead?) - f(&behind?)) / (2.0 * STEP))
        };
        let by_difference = slope(&way, &|outputs| loss(outputs).re).map_err(told)?;
        compare("the gradient", inner(&here[count], &way), by_difference)?;
        if self.has_second {
            let other = self.direction(8);
            let along = |outputs: &[Values]| inner(&outputs[count], &way).re;
            let by_difference = slope(&other, &along).map_err(told)?;
            compare(
                "its gradient",
                inner(&here[count + 1], &other),
                by_difference,
            )?;
        }
        Ok(())
    }
}

/// Numbers from −1 to 1.
fn random(ty: &TensorType, stream: u64) -> Values {
    let number = |i: usize| f64::from(philox(i as u64, stream)[0]) / 31f64.exp2() - 1.0;
    let elements = 0..ty.shape.elements();
    match ty.dtype.is_complex() {
        true => {
            let z = |i| Complex64::new(number(2 * i), number(2 * i + 1));
            Values::Complex(elements.map(z).collect())
        }
        false => Values::Float(elements.map(number).collect()),
    }
}

/// Makes matrices of `rows` rows Hermitian.
fn symmetrize(x: &mut Values, rows: usize) {
    let mirror = |i: usize| i / (rows * rows) * rows * rows + i % rows * rows + i / rows % rows;
    match x {
        Values::Float(x) => {
            let old = x.clone();
            (0..x.len()).for_each(|i| x[i] = old[i] + old[mirror(i)]);
        }
        Values::Complex(x) => {
            let old = x.clone();
            (0..x.len()).for_each(|i| x[i] = old[i] + old[mirror(i)].conj());
        }
        Values::Int(_) | Values::Blocks(_) => {}
    }
}

fn moved(x: &Values, way: &Values, steps: f64) -> Values {
    match (x, way) {
        (Values::Float(x), Values::Float(way)) => {
            Values::Float(x.iter().zip(way).map(|(x, w)| x + steps * w).collect())
        }
        (Values::Complex(x), Values::Complex(way)) => {
            Values::Complex(x.iter().zip(way).map(|(x, w)| x + w * steps).collect())
        }
        _ => x.clone(),
    }
}

/// The real part of `Σ a̅ b`, and as imaginary part the sum of its terms' moduli.
fn inner(a: &Values, b: &Values) -> Complex64 {
    let sum = |terms: &mut dyn Iterator<Item = f64>| {
        terms.fold(Complex64::default(), |sum, term| {
            sum + Complex64::new(term, term.abs())
        })
    };
    match (a, b) {
        (Values::Float(a), Values::Float(b)) => sum(&mut a.iter().zip(b).map(|(a, b)| a * b)),
        (Values::Complex(a), Values::Complex(b)) => {
            sum(&mut a.iter().zip(b).map(|(a, b)| (a.conj() * b).re))
        }
        _ => Complex64::new(f64::NAN, 0.0),
    }
}

fn compare(what: &str, slope: Complex64, by_difference: f64) -> Result<(), String> {
    let off = (slope.re - by_difference).abs();
    // Also of numbers that are none.
    match off <= TOLERANCE * (1.0 + slope.im) {
        true => Ok(()),
        false => Err(format!(
            "{what}: {} and, by differences, {by_difference}",
            slope.re
        )),
    }
}
