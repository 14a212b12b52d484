//! A case's operands as bytes.

use num_complex::Complex64;
use rustorch_ir::case::{Arrange, Case, CaseOperand, Fill};
use rustorch_ir::ops::philox;
use rustorch_ir::{DType, Layout, Shape, TensorType};
use rustorch_reference::Values;

/// Place of an operand in memory.
pub(crate) struct Placed {
    /// Type of the stored elements: the operand itself, or the base of the view.
    pub(crate) stored: TensorType,
    /// The view of `stored` that the operand is, where it is not all of it in order.
    pub(crate) view: Option<Layout>,
}

/// Places of a case's operands.
pub(crate) fn place(case: &Case) -> Vec<Placed> {
    let states = states(case);
    let is_state = |i| states.contains(&i);
    (case.inputs.iter().enumerate())
        .map(|(i, operand)| {
            let dtype = operand.ty.dtype;
            let arranged = match is_state(i) {
                true => None,
                false => arranged(&operand.ty.shape, operand.arrange),
            };
            match arranged {
                Some((elements, layout)) => Placed {
                    stored: TensorType::new([elements], dtype),
                    view: Some(layout),
                },
                None => Placed {
                    stored: operand.ty.clone(),
                    view: None,
                },
            }
        })
        .collect()
}

/// The operands of a case that the operation writes over.
fn states(case: &Case) -> Vec<usize> {
    let def = case.op.def();
    let types: Vec<&TensorType> = case.inputs.iter().map(|operand| &operand.ty).collect();
    let results = def.infer(&types).map_or(0, |results| results.len());
    (0..results)
        .filter_map(|result| def.overwrites(result))
        .collect()
}

/// Stored values of a case's operands, the same in every run.
pub(crate) fn prepare(case: &Case) -> Vec<Vec<u8>> {
    let places = place(case).into_iter().zip(&case.inputs).enumerate();
    places
        .map(|(i, (place, operand))| bytes(&place.stored, operand.fill, i as u64))
        .collect()
}

/// Number of elements stored, and where in them a tensor of `shape` lies; `None` if it is
/// all there is.
fn arranged(shape: &Shape, arrange: Arrange) -> Option<(usize, Layout)> {
    let last = shape.len().checked_sub(1)?;
    let size = shape[last];
    let stored = |s: &Shape| (s.elements(), Layout::contiguous(s));
    match arrange {
        Arrange::Contiguous => None,
        Arrange::Transposed => {
            let reversed: Shape = shape.iter().rev().copied().collect();
            let order: Vec<usize> = (0..=last).rev().collect();
            let (elements, layout) = stored(&reversed);
            Some((elements, layout.permute(&order)))
        }
        Arrange::Strided => {
            let (elements, layout) = stored(&shape.clone().with_dim(last, 2 * size));
            Some((elements, layout.slice(last, 1, size, 2)))
        }
        Arrange::Rows => {
            let (elements, layout) = stored(&shape.clone().with_dim(last, size + 3));
            Some((elements, layout.slice(last, 1, size, 1)))
        }
        Arrange::Broadcast => {
            let one = |(d, &size): (usize, &usize)| if d % 2 == 0 { 1 } else { size };
            let (elements, layout) = stored(&shape.iter().enumerate().map(one).collect());
            Some((elements, layout.broadcast_to(shape)))
        }
    }
}

/// The bytes of a tensor filled with the numbers of stream `stream`.
fn bytes(ty: &TensorType, fill: Fill, stream: u64) -> Vec<u8> {
    let count = ty.shape.elements();
    let draw = |i: usize| match fill {
        Fill::Dominant => dominant(ty, i, stream),
        fill => number(fill, ty.dtype, i, stream),
    };
    match ty.dtype {
        DType::Block(format) => {
            let row: Vec<f32> = (0..count).map(|i| draw(i) as f32).collect();
            let mut bytes = vec![0; ty.bytes()];
            let whole = format.quantize(&row, &mut bytes);
            whole.expect("cases of block formats have rows of whole blocks");
            bytes
        }
        DType::Bool => {
            let bits = (0..count).map(|i| i128::from(draw(i) != 0.0));
            Values::Int(bits.collect()).encode(ty.dtype)
        }
        d if d.is_float() || d.is_float8() => {
            Values::Float((0..count).map(draw).collect()).encode(d)
        }
        d if d.is_complex() => {
            let z = (0..count).map(|i| Complex64::new(draw(2 * i), draw(2 * i + 1)));
            Values::Complex(z.collect()).encode(d)
        }
        d => Values::Int((0..count).map(|i| draw(i) as i128).collect()).encode(d),
    }
}

/// The `i`-th number of matrices whose diagonals outweigh the rest. A complex element is two.
fn dominant(ty: &TensorType, i: usize, stream: u64) -> f64 {
    let (parts, [.., rows, columns]) = (1 + usize::from(ty.dtype.is_complex()), &ty.shape[..])
    else {
        return f64::NAN;
    };
    let (element, part) = (i / parts, i % parts);
    let (row, column) = (element / columns % rows, element % columns);
    match row == column {
        true if part == 0 => 2.0 + row as f64,
        true => 0.0,
        false => number(Fill::Uniform(-0.25, 0.25), ty.dtype, i, stream),
    }
}

/// The `i`-th number of a stream.
fn number(fill: Fill, dtype: DType, i: usize, stream: u64) -> f64 {
    let word = philox(i as u64 / 4, stream)[i % 4];
    let unit = f64::from(word) / 32f64.exp2();
    match fill {
        Fill::Uniform(low, high) => low + unit * (high - low),
        Fill::Dominant => unreachable!("depends on the shape"),
        Fill::Ints(low, high) => low as f64 + (unit * (high - low) as f64).floor(),
        Fill::Mask if i.is_multiple_of(5) || unit < 0.5 => 0.0,
        Fill::Mask => f64::NEG_INFINITY,
        Fill::Special => {
            // Large and tiny numbers of the dtype that devices without subnormal numbers
            // can work with.
            let (large, tiny) = match dtype {
                DType::F16 => (6e4, 1e-4),
                _ => (1e30, 1e-30),
            };
            let (inf, nan) = (f64::INFINITY, f64::NAN);
            [
                0.0, -0.0, 1.0, -1.0, inf, -inf, nan, large, tiny, -large, -tiny,
            ][i % 11]
        }
    }
}

/// An operand's type, and how it lies in memory where that is unusual.
pub(crate) fn describe(operand: &CaseOperand) -> String {
    match operand.arrange {
        Arrange::Contiguous => operand.ty.to_string(),
        other => format!("{} {}", format!("{other:?}").to_lowercase(), operand.ty),
    }
}
