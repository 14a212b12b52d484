//! Printing in PyTorch's format.

use std::fmt::{self, Write};
use std::ops::Range;

use num_complex::Complex64;
use rustorch_ir::DType;
use rustorch_ir::ops::Embedding;

use crate::error::RusTorchResult;
use crate::lazy::history::{ByKey, History};
use crate::lazy::value::{Pending, State};
use crate::{Tensor, call};

/// The name that errors say.
const NAME: &str = "display";
/// Digits after the point.
const PRECISION: usize = 4;
/// Tensors of more elements are abridged,
const THRESHOLD: usize = 1000;
/// to this number at each end of a dimension.
const EDGE: usize = 3;
/// Lines are broken here.
const LINE_WIDTH: usize = 80;
/// The indentation of every line but the first: the length of `tensor(`.
const INDENT: usize = 7;

/// Prints the values, computing them first. A tensor that cannot be computed prints its error.
impl fmt::Display for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let _call = call::enter_unseen(NAME);
        match Printed::new(self) {
            Ok(printed) => f.write_str(&printed.text()),
            Err(e) => write!(
                f,
                "tensor(<{e}>, size={:?}, dtype={})",
                self.shape(),
                self.dtype()
            ),
        }
    }
}

/// The same as [`fmt::Display`].
impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The printed part of a tensor.
struct Printed<'a> {
    tensor: &'a Tensor,
    /// The sizes after abridging.
    dims: Vec<usize>,
    /// Each element that is shown.
    elements: Vec<String>,
}

impl<'a> Printed<'a> {
    fn new(tensor: &'a Tensor) -> RusTorchResult<Self> {
        let shown = shown(tensor)?;
        let elements = match shown.dtype() {
            DType::Bool => {
                let name = |b| if b { "True" } else { "False" }.to_owned();
                let names: Vec<String> = shown.to_vec()?.into_iter().map(name).collect();
                aligned(&names, names.iter())
            }
            DType::I64 => {
                let values: Vec<i64> = shown.to_vec()?;
                let texts: Vec<String> = values.iter().map(i64::to_string).collect();
                aligned(&texts, texts.iter())
            }
            DType::U64 => {
                let values: Vec<u64> = shown.to_vec()?;
                let texts: Vec<String> = values.iter().map(u64::to_string).collect();
                aligned(&texts, texts.iter())
            }
            DType::Complex128 => complex(&shown.to_vec()?),
            _ => floats(&shown.to_vec()?),
        };
        Ok(Self {
            tensor,
            dims: shown.shape().to_vec(),
            elements,
        })
    }

    fn text(&self) -> String {
        let mut text = "tensor(".to_owned();
        match self.tensor.numel() {
            0 => text.push_str("[]"),
            _ => self.nested(&mut text, 0, &self.elements),
        }
        if self.tensor.numel() == 0 && self.tensor.rank() != 1 {
            let sizes: Vec<String> = self.tensor.shape().iter().map(usize::to_string).collect();
            text.extend([", size=(", &sizes.join(", "), ")"]);
        }
        let is_default = matches!(
            self.tensor.dtype(),
            DType::F32 | DType::I64 | DType::Bool | DType::Complex64
        );
        if !is_default {
            text.extend([", dtype=", self.tensor.dtype().name()]);
        }
        text.push(')');
        text
    }

    /// Appends the elements of dimension `depth` and of the dimensions inside it.
    fn nested(&self, text: &mut String, depth: usize, elements: &[String]) {
        let Some(&size) = self.dims.get(depth) else {
            text.push_str(&elements[0]);
            return;
        };
        let is_abridged = size != self.tensor.shape()[depth];
        let indent = " ".repeat(INDENT + depth + 1);
        text.push('[');
        if depth + 1 == self.dims.len() {
            let mut items: Vec<&str> = elements.iter().map(String::as_str).collect();
            if is_abridged {
                items.insert(EDGE, " ...");
            }
            let per_line = (LINE_WIDTH - indent.len()) / (elements[0].chars().count() + 2);
            let lines: Vec<String> = (items.chunks(per_line.max(1)))
                .map(|line| line.join(", "))
                .collect();
            text.push_str(&lines.join(&format!(",\n{indent}")));
        } else {
            // Higher dimensions are set apart by empty lines.
            let separator = format!(",{}{indent}", "\n".repeat(self.dims.len() - depth - 1));
            for (i, part) in elements.chunks(elements.len() / size).enumerate() {
                if i > 0 {
                    text.push_str(&separator);
                }
                if i == EDGE && is_abridged {
                    text.extend(["...", &separator]);
                }
                self.nested(text, depth + 1, part);
            }
        }
        text.push(']');
    }
}

/// The dtype that elements are read as.
fn printable(dtype: DType) -> DType {
    match dtype {
        DType::Bool | DType::U64 => dtype,
        d if d.is_int() => DType::I64,
        d if d.is_complex() => DType::Complex128,
        _ => DType::F64,
    }
}

/// The elements that are printed, in the dtype that they are read as. Nothing else of a large tensor is converted or
/// read.
fn shown(tensor: &Tensor) -> RusTorchResult<Tensor> {
    let shown = match tensor.shape() {
        _ if tensor.numel() <= THRESHOLD => tensor.clone(),
        [rows @ .., width] if tensor.dtype().is_block() => {
            let shown = rows_of_blocks(tensor, rows, *width)?;
            abridge(&shown, rows.len()..tensor.rank())?
        }
        _ => match of_constants(tensor)? {
            Some(shown) => shown,
            None => abridge(tensor, 0..tensor.rank())?,
        },
    };
    shown.cast(NAME, printable(tensor.dtype()))
}

/// The rows that are printed of a tensor of blocks, which has no slices.
fn rows_of_blocks(tensor: &Tensor, rows: &[usize], width: usize) -> RusTorchResult<Tensor> {
    let count: usize = rows.iter().product();
    let all = Tensor::arange_with(0, count as i64, 1, DType::I64)?.reshape(rows)?;
    let table = tensor.reshape([count, width])?;
    let dtype = DType::F32;
    Tensor::apply(
        NAME,
        Embedding { dtype },
        &[&table, &abridge(&all, 0..rows.len())?],
    )
}

/// Only the ends of a large tensor that is still to be computed by elementwise operations of constants: they are
/// repeated on the ends of these. `None` for others.
fn of_constants(tensor: &Tensor) -> RusTorchResult<Option<Tensor>> {
    let history = History::of([tensor.value()].into_iter());
    let mut ends: ByKey<Tensor> = ByKey::default();
    for (value, state) in &history.leaves {
        match state {
            State::Scalar(_) => ends.insert(value.key(), Tensor::of(value.clone(), None)),
            _ => return Ok(None),
        };
    }
    for (results, pending) in &history.nodes {
        let shown = match pending.op.kind() {
            kind if kind.is_elementwise() => {
                let inputs = pending.inputs.iter().filter_map(|x| ends.get(&x.key()));
                Tensor::again(pending, &inputs.collect::<Vec<_>>())?
            }
            _ if shows_constant(pending) => {
                let whole = Tensor::of(results[0].clone(), None);
                abridge(&whole, 0..whole.rank())?
            }
            _ => return Ok(None),
        };
        ends.insert(results[0].key(), shown);
    }
    Ok(ends.remove(&tensor.value().key()))
}

/// Returns whether it is a constant, or a view of one.
fn shows_constant(pending: &Pending) -> bool {
    if pending.is_look() {
        let viewed = pending.inputs[0].pending();
        return viewed.is_some_and(|viewed| shows_constant(&viewed));
    }
    pending.inputs.is_empty() && pending.op.def().op_type().is_none()
}

/// Only the ends of some dimensions of a large tensor.
fn abridge(tensor: &Tensor, dims: Range<usize>) -> RusTorchResult<Tensor> {
    let mut shown = tensor.clone();
    for dim in dims {
        let (size, dim) = (tensor.shape()[dim], dim as isize);
        if size > 2 * EDGE {
            let first = shown.narrow(dim, 0, EDGE)?;
            let last = shown.narrow(dim, size - EDGE, EDGE)?;
            shown = Tensor::cat(&[&first, &last], dim)?;
        }
    }
    Ok(shown)
}

/// The texts, filled up on the left to the width of the longest of `guides`.
fn aligned<'a>(texts: &[String], guides: impl Iterator<Item = &'a String>) -> Vec<String> {
    let width = guides.map(String::len).max().unwrap_or(0);
    texts.iter().map(|t| format!("{t:>width$}")).collect()
}

/// Zeros, NaN and infinities have no say in style and width, as in PyTorch.
fn counts(x: f64) -> bool {
    x.is_finite() && x != 0.0
}

fn floats(values: &[f64]) -> Vec<String> {
    let style = Style::of(values);
    let texts: Vec<String> = values.iter().map(|&x| style.text(x)).collect();
    let guides = (values.iter().zip(&texts)).filter(|&(&x, _)| counts(x));
    aligned(&texts, guides.map(|(_, text)| text))
}

fn complex(values: &[Complex64]) -> Vec<String> {
    let part = |of: fn(&Complex64) -> f64| floats(&values.iter().map(of).collect::<Vec<f64>>());
    let (re, im) = (part(|z| z.re), part(|z| z.im));
    (re.iter().zip(&im))
        .map(|(re, im)| match im.trim_start() {
            im if im.starts_with('-') => format!("{re}{im}j"),
            im => format!("{re}+{im}j"),
        })
        .collect()
}

/// Style of all floats of a tensor.
#[derive(Clone, Copy)]
enum Style {
    /// `2.`
    Whole,
    /// `2.5000`
    Fixed,
    /// `2.5000e+10`
    Scientific,
}

impl Style {
    fn of(values: &[f64]) -> Self {
        let lengths = || values.iter().filter(|&&x| counts(x)).map(|x| x.abs());
        let largest = lengths().fold(0.0, f64::max);
        let smallest = lengths().fold(f64::INFINITY, f64::min);
        let is_whole = lengths().all(|x| x.fract() == 0.0);
        let is_wide = largest / smallest > 1000.0 || largest > 1e8;
        match is_whole {
            _ if is_wide => Self::Scientific,
            true => Self::Whole,
            false if smallest < 1e-4 => Self::Scientific,
            false => Self::Fixed,
        }
    }

    fn text(self, x: f64) -> String {
        match self {
            _ if x.is_nan() => "nan".to_owned(),
            _ if x.is_infinite() => if x > 0.0 { "inf" } else { "-inf" }.to_owned(),
            Self::Whole => format!("{x:.0}."),
            Self::Fixed => format!("{x:.PRECISION$}"),
            Self::Scientific => {
                let text = format!("{x:.PRECISION$e}");
                // At least two digits and a sign, as C prints exponents.
                let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
                let exponent: i32 = exponent.parse().unwrap_or(0);
                let mut out = digits.to_owned();
                let _ = write!(
                    out,
                    "e{}{:02}",
                    if exponent < 0 { '-' } else { '+' },
                    exponent.abs()
                );
                out
            }
        }
    }
}
