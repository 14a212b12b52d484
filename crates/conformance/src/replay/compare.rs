//! Closeness of a result to the expected one: PyTorch's `assert_close`, with NaN equal to NaN.

use half::{bf16, f16};
use num_complex::Complex64;
use rustorch_dispatch::{Output, Value};
use rustorch_ir::{DType, F8E4M3, F8E5M2};
use rustorch_tensor::Tensor;
use serde::Deserialize;

/// Ways to compare a result.
#[derive(Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum How {
    /// Shape, dtype and every element are compared.
    Close,
    /// Shape and dtype: elements are random, or memory as it was found.
    ShapeOnly,
    /// The elements match in any order.
    Set,
    /// The last result is indices into a dimension of the first argument: other indices of equal
    /// elements pass.
    Ties,
    /// The product of the factors is compared, since they are unique only up to signs or phases.
    Reconstruct,
}

/// Expected result of a call.
pub(crate) enum Expected {
    Tensor {
        dtype: DType,
        shape: Vec<usize>,
        elements: Elements,
        /// The same in double precision, of halves.
        truth: Option<Elements>,
        rtol: f64,
        atol: f64,
    },
    List(Vec<Expected>),
    Value(Value),
}

/// Elements in row-major order.
pub(crate) enum Elements {
    Int(Vec<i128>),
    Float(Vec<f64>),
    Complex(Vec<Complex64>),
}

impl Elements {
    /// Elements as memory holds them; `None` of a block format.
    pub(crate) fn decode(dtype: DType, bytes: &[u8]) -> Option<Self> {
        /// Reads each element from its bytes.
        fn each<const N: usize, T>(bytes: &[u8], of: impl Fn([u8; N]) -> T) -> Vec<T> {
            bytes.as_chunks().0.iter().map(|&b| of(b)).collect()
        }
        let pair = |parts: Vec<f64>| -> Vec<Complex64> {
            let (pairs, _) = parts.as_chunks::<2>();
            pairs
                .iter()
                .map(|&[re, im]| Complex64::new(re, im))
                .collect()
        };
        let doubles = || each(bytes, f64::from_ne_bytes);
        let singles = || each(bytes, |b| f32::from_ne_bytes(b).into());
        Some(match dtype {
            DType::F64 => Self::Float(doubles()),
            DType::F32 => Self::Float(singles()),
            DType::F16 => Self::Float(each(bytes, |b| f16::from_ne_bytes(b).into())),
            DType::BF16 => Self::Float(each(bytes, |b| bf16::from_ne_bytes(b).into())),
            DType::F8E4M3 => Self::Float(each(bytes, |[b]| F8E4M3::from_bits(b).to_f32().into())),
            DType::F8E5M2 => Self::Float(each(bytes, |[b]| F8E5M2::from_bits(b).to_f32().into())),
            DType::I64 => Self::Int(each(bytes, |b| i64::from_ne_bytes(b).into())),
            DType::I32 => Self::Int(each(bytes, |b| i32::from_ne_bytes(b).into())),
            DType::I16 => Self::Int(each(bytes, |b| i16::from_ne_bytes(b).into())),
            DType::I8 => Self::Int(each(bytes, |b| i8::from_ne_bytes(b).into())),
            DType::U16 => Self::Int(each(bytes, |b| u16::from_ne_bytes(b).into())),
            DType::U32 => Self::Int(each(bytes, |b| u32::from_ne_bytes(b).into())),
            DType::U64 => Self::Int(each(bytes, |b| u64::from_ne_bytes(b).into())),
            DType::U8 | DType::Bool => Self::Int(each(bytes, |[b]| b.into())),
            DType::Complex64 => Self::Complex(pair(singles())),
            DType::Complex128 => Self::Complex(pair(doubles())),
            DType::Block(_) => return None,
        })
    }

    /// The elements of a result.
    pub(crate) fn of(tensor: &Tensor) -> Result<Self, String> {
        let text = |e: &dyn ToString| e.to_string();
        let storage = tensor.storage().map_err(|e| text(&e))?;
        let mut bytes = vec![0; storage.bytes()];
        let read = rustorch_tensor::runtime().read(&storage, 0, &mut bytes);
        read.map_err(|e| text(&e))?;
        let elements = Self::decode(tensor.dtype(), &bytes);
        elements.ok_or_else(|| format!("a result of {}", tensor.dtype()))
    }

    /// The elements as complex numbers.
    pub(crate) fn as_complex(&self) -> Vec<Complex64> {
        match self {
            Self::Int(x) => x.iter().map(|&x| Complex64::new(x as f64, 0.0)).collect(),
            Self::Float(x) => x.iter().map(|&x| Complex64::new(x, 0.0)).collect(),
            Self::Complex(x) => x.clone(),
        }
    }

    /// In an order of their own.
    fn sorted(&self) -> Self {
        let mut x = self.as_complex();
        x.sort_by(|a, b| a.re.total_cmp(&b.re).then(a.im.total_cmp(&b.im)));
        Self::Complex(x)
    }
}

impl Expected {
    /// Fails with a description of the first difference.
    pub(crate) fn compare(&self, got: &Output, how: How) -> Result<(), String> {
        match (self, got) {
            (Self::Tensor { .. }, Output::Tensor(tensor)) => self.compare_tensor(tensor, how),
            (Self::List(expected), Output::List(got)) => {
                if expected.len() != got.len() {
                    let (got, expected) = (got.len(), expected.len());
                    return Err(format!("{got} results, should be {expected}"));
                }
                let mut pairs = expected.iter().zip(got).enumerate();
                pairs.try_for_each(|(i, (expected, got))| {
                    let placed = |e| format!("result {i}: {e}");
                    expected.compare(got, how).map_err(placed)
                })
            }
            (Self::Value(expected), Output::Value(got)) if expected.is(got) => Ok(()),
            (Self::Value(Value::Float(expected)), Output::Value(Value::Float(got))) => {
                let near = (expected - got).abs() <= 1e-7 + 1e-7 * expected.abs();
                near.then_some(())
                    .ok_or_else(|| format!("{got}, should be {expected}"))
            }
            (expected, got) => Err(format!("{}, should be {}", kind(got), expected.kind())),
        }
    }

    /// [`How::Ties`]: `input`, of which dimension `dim` was sorted, tells whether indices are as
    /// good as those expected.
    pub(crate) fn compare_ties(
        &self,
        got: &Output,
        input: &Tensor,
        dim: isize,
    ) -> Result<(), String> {
        let (expected, indices) = match (self, got) {
            (Self::List(expected), Output::List(got)) if expected.len() == got.len() => {
                let Some((last, values)) = expected.split_last() else {
                    return Err("no results".into());
                };
                for (value, got) in values.iter().zip(got) {
                    value.compare(got, How::Close)?;
                }
                (last, &got[got.len() - 1])
            }
            _ => (self, got),
        };
        expected.compare(indices, How::ShapeOnly)?;
        let (
            Self::Tensor {
                elements, shape, ..
            },
            Output::Tensor(got),
        ) = (expected, indices)
        else {
            return Err("the last result is not a tensor".into());
        };
        let (Elements::Int(expected), Elements::Int(got)) = (elements, Elements::of(got)?) else {
            return Err("the last result is not indices".into());
        };
        let line = Lines::of(input.shape(), shape, dim);
        line.compare(&Elements::of(input)?.as_complex(), expected, &got)
    }

    fn kind(&self) -> String {
        match self {
            Self::Tensor { dtype, shape, .. } => format!("a tensor {dtype}{shape:?}"),
            Self::List(parts) => format!("{} results", parts.len()),
            Self::Value(value) => value.to_string(),
        }
    }

    fn compare_tensor(&self, got: &Tensor, how: How) -> Result<(), String> {
        let Self::Tensor {
            dtype,
            shape,
            elements,
            truth,
            rtol,
            atol,
        } = self
        else {
            return Ok(());
        };
        let same = got.dtype() == *dtype && got.shape() == &shape[..];
        if !same {
            let got = format!("{}{:?}", got.dtype(), got.shape());
            return Err(format!("{got}, should be {dtype}{shape:?}"));
        }
        let found = Elements::of(got)?;
        match how {
            // Their factors are compared together.
            How::ShapeOnly | How::Reconstruct => Ok(()),
            // Indices are compared by themselves.
            How::Close | How::Ties => {
                close(elements, &found, *rtol, *atol).or_else(|e| match truth {
                    Some(truth) => {
                        nearer(truth, elements, &found).map_err(|far| format!("{e}; {far}"))
                    }
                    None => Err(e),
                })
            }
            How::Set => close(&elements.sorted(), &found.sorted(), *rtol, *atol),
        }
    }
}

/// The lines along a dimension that indices lead into.
struct Lines {
    /// Elements, and indices, of a line.
    size: usize,
    count: usize,
    /// Distance of a line's elements.
    inner: usize,
}

impl Lines {
    fn of(input: &[usize], indices: &[usize], dim: isize) -> Self {
        let at = dim.rem_euclid(input.len().max(1) as isize) as usize;
        Self {
            size: input.get(at).copied().unwrap_or(1),
            // A dimension of one index may be left out.
            count: match indices.len() == input.len() {
                true => indices.get(at).copied().unwrap_or(1),
                false => 1,
            },
            inner: input.iter().skip(at + 1).product(),
        }
    }

    /// Do both lead to equal elements, and no index twice to the same one?
    fn compare(&self, input: &[Complex64], expected: &[i128], got: &[i128]) -> Result<(), String> {
        let place = |at: usize, index: i128| {
            let index = usize::try_from(index).ok().filter(|&i| i < self.size)?;
            let line = at / self.inner / self.count;
            Some((line * self.size + index) * self.inner + at % self.inner)
        };
        let mut seen = vec![false; input.len()];
        for (i, (&expected, &got)) in expected.iter().zip(got).enumerate() {
            let (Some(to), Some(should)) = (place(i, got), place(i, expected)) else {
                return Err(format!("index {i} is {got}, should be {expected}"));
            };
            if !is_same(input[to], input[should]) || std::mem::replace(&mut seen[to], true) {
                return Err(format!("index {i} is {got}, should be as {expected}"));
            }
        }
        Ok(())
    }
}

fn is_nan(z: Complex64) -> bool {
    z.re.is_nan() || z.im.is_nan()
}

fn is_same(a: Complex64, b: Complex64) -> bool {
    a == b || (is_nan(a) && is_nan(b))
}

fn kind(output: &Output) -> String {
    match output {
        Output::Tensor(tensor) => format!("a tensor {}{:?}", tensor.dtype(), tensor.shape()),
        Output::List(parts) => format!("{} results", parts.len()),
        Output::Value(value) => value.to_string(),
    }
}

/// `|got - expected| <= atol + rtol · |expected|` everywhere.
fn close(expected: &Elements, got: &Elements, rtol: f64, atol: f64) -> Result<(), String> {
    if let (Elements::Int(expected), Elements::Int(got)) = (expected, got)
        && (rtol, atol) == (0.0, 0.0)
    {
        return first_unlike(expected, got, |a, b| a == b);
    }
    let near = |&e: &Complex64, &g: &Complex64| {
        let distance = (e - g).norm();
        let bound = atol + rtol * e.norm();
        is_same(e, g) || (distance <= bound && bound.is_finite())
    };
    first_unlike(&expected.as_complex(), &got.as_complex(), near)
}

/// Fails unless a result is nearer to the truth than the expected one: its largest error and the root of
/// their mean square are no larger.
fn nearer(truth: &Elements, expected: &Elements, got: &Elements) -> Result<(), String> {
    let [got, expected] = [got, expected].map(|x| Errors::of(x, truth));
    let is_nearer = got.largest <= expected.largest && got.root <= expected.root;
    is_nearer.then_some(()).ok_or_else(|| {
        format!(
            "it is {:.3e} from double precision, {:.3e} at most, and PyTorch {:.3e} and {:.3e}",
            got.root, got.largest, expected.root, expected.largest
        )
    })
}

/// Errors of elements beside the truth.
struct Errors {
    largest: f64,
    /// The root of the mean square.
    root: f64,
}

impl Errors {
    fn of(x: &Elements, truth: &Elements) -> Self {
        let (x, truth) = (x.as_complex(), truth.as_complex());
        let pairs = x.iter().zip(&truth);
        let errors: Vec<f64> = pairs.map(|(x, t)| error(x, t)).collect();
        let squares: f64 = errors.iter().map(|e| e * e).sum();
        Self {
            largest: errors.iter().copied().fold(0.0, f64::max),
            root: (squares / errors.len().max(1) as f64).sqrt(),
        }
    }
}

/// The distance of two numbers: 0 of the same infinity and of NaN, infinite of a number and NaN.
fn error(x: &Complex64, truth: &Complex64) -> f64 {
    match (x - truth).norm() {
        _ if is_same(*truth, *x) => 0.0,
        distance if distance.is_nan() => f64::INFINITY,
        distance => distance,
    }
}

fn first_unlike<T: Show>(
    expected: &[T],
    got: &[T],
    near: impl Fn(&T, &T) -> bool,
) -> Result<(), String> {
    let mut unlike = (expected.iter().zip(got).enumerate()).filter(|(_, (e, g))| !near(e, g));
    let Some((i, (expected, got))) = unlike.next() else {
        return Ok(());
    };
    let others = match unlike.count() {
        0 => String::new(),
        n => format!(", and {n} others"),
    };
    let (got, expected) = (got.show(), expected.show());
    Err(format!(
        "element {i} is {got}, should be {expected}{others}"
    ))
}

/// Printing of an element.
trait Show {
    fn show(&self) -> String;
}

impl Show for i128 {
    fn show(&self) -> String {
        self.to_string()
    }
}

impl Show for Complex64 {
    /// Real numbers without an imaginary part.
    fn show(&self) -> String {
        match self.im {
            0.0 => self.re.to_string(),
            _ => self.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use rustorch_tensor::tensor;

    use super::*;

    const NAN: f64 = f64::NAN;

    fn floats(values: &[f64]) -> Expected {
        Expected::Tensor {
            dtype: DType::F64,
            shape: vec![values.len()],
            elements: Elements::Float(values.to_vec()),
            truth: None,
            rtol: 1e-3,
            atol: 1e-6,
        }
    }

    fn compare(expected: &[f64], got: &[f64], how: How) -> bool {
        let got = Tensor::from_slice(got, [got.len()]).unwrap().into();
        floats(expected).compare(&got, how).is_ok()
    }

    #[test]
    fn elements_are_near() {
        let infinity = f64::INFINITY;
        for (expected, got, near) in [
            (1.0, 1.0009, true),
            (1.0, 1.0011, false),
            (0.0, 1e-6, true),
            (0.0, 2e-6, false),
            (NAN, NAN, true),
            (NAN, 1.0, false),
            (1.0, NAN, false),
            (infinity, infinity, true),
            (infinity, 1e300, false),
            (1e300, infinity, false),
            (infinity, -infinity, false),
        ] {
            assert_eq!(
                compare(&[expected], &[got], How::Close),
                near,
                "{got} for {expected}"
            );
        }
        assert!(!compare(&[1.0, 2.0], &[1.0, 3.0], How::Close));
        assert!(!compare(&[1.0, 1.0], &[1.0], How::Close));
        assert!(!compare(&[1.0, 2.0], &[2.0, 1.0], How::Close));
        assert!(compare(&[1.0, 2.0], &[2.0, 1.0], How::Set));
        assert!(compare(&[1.0], &[2.0], How::ShapeOnly));
        assert!(
            floats(&[1.0])
                .compare(&tensor![1.0].into(), How::Close)
                .is_err(),
            "f32"
        );
        assert!(
            floats(&[1.0]).compare(&1.0.into(), How::Close).is_err(),
            "a number"
        );
    }

    #[test]
    fn what_is_nearer_to_the_truth_will_do() {
        let infinity = f64::INFINITY;
        let near = |expected: &[f64], truth: &[f64], got: &[f64]| {
            let expected = Expected::Tensor {
                dtype: DType::F64,
                shape: vec![got.len()],
                elements: Elements::Float(expected.to_vec()),
                truth: Some(Elements::Float(truth.to_vec())),
                rtol: 1e-3,
                atol: 1e-6,
            };
            let got = Tensor::from_slice(got, [got.len()]).unwrap().into();
            expected.compare(&got, How::Close).is_ok()
        };
        assert!(near(&[1.0, 2.0], &[1.1, 2.2], &[1.1, 2.1]));
        assert!(!near(&[1.0, 2.0], &[1.1, 2.2], &[1.1, 2.5]));
        // Neither the largest error nor their mean square may be larger.
        assert!(!near(&[1.0, 2.0], &[1.1, 2.1], &[1.25, 2.1]));
        assert!(!near(&[1.0, 2.0], &[1.0, 2.1], &[1.09, 2.19]));
        // An infinity that is true is no error; another one is, and so is NaN.
        assert!(near(&[5.0, 1.0], &[infinity, 1.1], &[infinity, 1.1]));
        assert!(!near(&[5.0, 1.0], &[5.1, 1.1], &[infinity, 1.1]));
        assert!(!near(&[5.0, 1.0], &[5.1, 1.1], &[5.1, NAN]));
    }

    #[test]
    fn indices_of_equal_elements_will_do() {
        let input = tensor![2.0, 1.0, 2.0];
        let ties = |indices: Tensor| {
            let expected = Expected::Tensor {
                dtype: DType::I64,
                shape: vec![3],
                elements: Elements::Int(vec![1, 0, 2]),
                truth: None,
                rtol: 0.0,
                atol: 0.0,
            };
            expected.compare_ties(&indices.into(), &input, -1).is_ok()
        };
        assert!(ties(tensor![1i64, 0, 2]) && ties(tensor![1i64, 2, 0]));
        assert!(!ties(tensor![0i64, 1, 2]) && !ties(tensor![1i64, 2, 2]));
        assert!(!ties(tensor![1i64, 0, 3]) && !ties(tensor![1i64, 0, -1]));
    }
}
