//! Inputs and outputs of a program, in memory.

use std::borrow::Cow;
use std::collections::BTreeMap;

use half::f16;
use rustorch_ir::{DType, Graph, Layout, Op, OpError, TensorType, ValueId};
use rustorch_runtime::HostBuffer;

use crate::emit::{Feature, places};
use crate::proto::model::ArrayDataType;

/// A graph whose inputs are tensors without gaps, and the values of another graph that they stand
/// for.
pub(crate) struct Dense {
    pub(crate) graph: Graph,
    pub(crate) sources: Vec<Source>,
    /// The node of the other graph that each of its nodes is.
    pub(crate) origins: Vec<usize>,
}

/// An input of the other graph, or a view of it.
pub(crate) struct Source {
    pub(crate) input: usize,
    pub(crate) view: Option<Layout>,
}

impl Dense {
    /// Makes inputs of the views that `as_strided` shows of inputs.
    pub(crate) fn of(graph: &Graph) -> Result<Self, OpError> {
        let view = |at: usize| match &graph.nodes()[at].op {
            Op::AsStrided(op) if graph.node(graph.nodes()[at].inputs[0]).is_none() => {
                Some(op.layout.clone())
            }
            _ => None,
        };
        let mut out = Graph::new();
        let (mut sources, mut origins) = (Vec::new(), Vec::new());
        let mut values: Vec<Option<ValueId>> = vec![None; graph.len()];
        let mut add = |value: ValueId, ty: &TensorType, source: Source| {
            values[value.index()] = Some(out.input(ty.clone())?);
            sources.push(source);
            Ok::<(), OpError>(())
        };
        for (input, ty) in graph.inputs().iter().enumerate() {
            let value = ValueId(input as u32);
            let is_read = graph.outputs().contains(&value)
                || (graph.nodes().iter().enumerate())
                    .any(|(at, node)| node.inputs.contains(&value) && view(at).is_none());
            if is_read {
                add(value, ty, Source { input, view: None })?;
            }
        }
        for (at, node) in graph.nodes().iter().enumerate() {
            if let Some(layout) = view(at) {
                let input = node.inputs[0].index();
                let view = Some(layout);
                add(node.result(0), node.output(), Source { input, view })?;
            }
        }
        for (at, node) in graph.nodes().iter().enumerate() {
            if view(at).is_some() {
                continue;
            }
            let operands: Vec<ValueId> = (node.inputs.iter())
                .filter_map(|v| values[v.index()])
                .collect();
            let first = out.push(node.op.clone(), &operands)?;
            origins.push(at);
            for (old, new) in node.results().zip(out.results(first)) {
                values[old.index()] = Some(new);
            }
        }
        for value in graph.outputs() {
            values[value.index()]
                .into_iter()
                .for_each(|v| out.output(v));
        }
        Ok(Self {
            graph: out,
            sources,
            origins,
        })
    }

    /// The inputs that are constants, by their index, where those of the other graph are these.
    pub(crate) fn constants<'a>(
        &self,
        known: &'a [Option<HostBuffer>],
    ) -> BTreeMap<usize, Cow<'a, [u8]>> {
        let bytes = |(index, source): (usize, &Source)| {
            let memory = known.get(source.input)?.as_ref()?;
            // SAFETY: nobody writes to a constant, which is there as long as it is held.
            let stored = unsafe { std::slice::from_raw_parts(memory.as_ptr(), memory.bytes()) };
            let ty = &self.graph.inputs()[index];
            let bytes = match (&source.view, ty.dtype.size()) {
                (None, _) => Cow::Borrowed(stored.get(..ty.bytes())?),
                (Some(layout), Some(size)) => Cow::Owned(viewed(stored, layout, size)),
                (Some(_), None) => return None,
            };
            Some((index, bytes))
        };
        self.sources.iter().enumerate().filter_map(bytes).collect()
    }
}

/// Are elements in memory of the array's type?
pub(crate) fn is_in_place(feature: &Feature) -> bool {
    matches!(
        (feature.ty.dtype, feature.elements),
        (DType::F32, ArrayDataType::Float32)
            | (DType::F16, ArrayDataType::Float16)
            | (DType::I32, ArrayDataType::Int32)
    )
}

/// Bytes of the feature's array.
pub(crate) fn array_bytes(feature: &Feature) -> usize {
    let size = match feature.elements {
        ArrayDataType::Float16 => 2,
        _ => 4,
    };
    feature.shape.elements() * size
}

/// The elements that a view shows, in order.
pub(crate) fn viewed(bytes: &[u8], layout: &Layout, size: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(layout.elements() * size);
    for at in places(layout) {
        out.extend_from_slice(&bytes[at * size..][..size]);
    }
    out
}

/// The elements of an array that lie by its strides, in order; `None` if some are not among the
/// bytes.
#[cfg(any(test, target_os = "macos", target_os = "ios"))]
pub(crate) fn gathered(
    bytes: &[u8],
    shape: &[usize],
    strides: &[usize],
    size: usize,
) -> Option<Vec<u8>> {
    Some(viewed(
        bytes,
        &strided(bytes.len(), shape, strides, size)?,
        size,
    ))
}

/// Puts elements to their places by the strides of an array; `from` has their bytes. Checks that these places are among
/// the bytes.
#[cfg(any(test, target_os = "macos", target_os = "ios"))]
pub(crate) fn scatter(
    from: &[u8],
    bytes: &mut [u8],
    shape: &[usize],
    strides: &[usize],
    size: usize,
) -> bool {
    let layout = strided(bytes.len(), shape, strides, size);
    let Some(layout) = layout.filter(|layout| layout.elements() * size == from.len()) else {
        return false;
    };
    for (element, at) in from.chunks_exact(size).zip(places(&layout)) {
        bytes[at * size..][..size].copy_from_slice(element);
    }
    true
}

/// Layout of the elements in an array of `bytes` bytes; `None` if some lie elsewhere.
#[cfg(any(test, target_os = "macos", target_os = "ios"))]
fn strided(bytes: usize, shape: &[usize], strides: &[usize], size: usize) -> Option<Layout> {
    let step = |(&n, &stride): (&usize, &usize)| n.checked_sub(1)?.checked_mul(stride);
    let last =
        (shape.iter().zip(strides)).try_fold(0_usize, |last, d| last.checked_add(step(d)?))?;
    let end = last.checked_add(1)?.checked_mul(size)?;
    let layout = Layout {
        shape: shape.into(),
        strides: strides.into(),
        offset: 0,
    };
    let is_inside = shape.len() == strides.len() && end <= bytes;
    is_inside.then_some(layout)
}

/// Why elements cannot go into a program.
pub(crate) enum Unfit {
    /// An index that is out of range.
    Index(String),
    /// An integer of more than 32 bits.
    Wide(i64),
}

/// Do indices among the elements, as memory holds them, all lie inside?
pub(crate) fn check_indices(feature: &Feature, bytes: &[u8]) -> Result<(), Unfit> {
    if feature.bounds.is_empty() {
        return Ok(());
    }
    let x: Vec<i64> = integers(feature.ty.dtype, bytes).collect();
    match feature.outside(&x) {
        Some((index, below)) => Err(Unfit::Index(format!(
            "index {index} of input {} is outside of 0..{below}",
            feature.index
        ))),
        None => Ok(()),
    }
}

fn integers(dtype: DType, bytes: &[u8]) -> impl Iterator<Item = i64> {
    let size = dtype.size().unwrap_or(1);
    bytes.chunks_exact(size).map(move |x| match x {
        [x] => i64::from(*x != 0),
        [a, b, c, d] => i32::from_ne_bytes([*a, *b, *c, *d]).into(),
        x => x.first_chunk().map_or(0, |x| i64::from_ne_bytes(*x)),
    })
}

/// Elements as the feature's array has them; `None` if there is no memory.
pub(crate) fn to_array(feature: &Feature, bytes: &[u8]) -> Result<Option<HostBuffer>, Unfit> {
    let converted: Vec<u8> = match feature.ty.dtype {
        DType::F16 if feature.elements == ArrayDataType::Float32 => {
            let x = bytes.as_chunks().0.iter();
            x.flat_map(|&x| f16::from_ne_bytes(x).to_f32().to_ne_bytes())
                .collect()
        }
        DType::I64 | DType::Bool => {
            let mut out = Vec::with_capacity(array_bytes(feature));
            for x in integers(feature.ty.dtype, bytes) {
                let x = i32::try_from(x).map_err(|_| Unfit::Wide(x))?;
                out.extend(x.to_ne_bytes());
            }
            out
        }
        _ => bytes.to_vec(),
    };
    Ok(HostBuffer::copy_of(&converted))
}

/// Elements of the feature's array as memory holds them.
pub(crate) fn from_array(feature: &Feature, bytes: &[u8]) -> Vec<u8> {
    let ints = || bytes.as_chunks().0.iter().map(|&x| i32::from_ne_bytes(x));
    match feature.ty.dtype {
        DType::F16 if feature.elements == ArrayDataType::Float32 => {
            let x = bytes.as_chunks().0.iter();
            let halves = x.map(|&x| f16::from_f32(f32::from_ne_bytes(x)));
            halves.flat_map(f16::to_ne_bytes).collect()
        }
        DType::I64 => ints().flat_map(|x| i64::from(x).to_ne_bytes()).collect(),
        DType::Bool => ints().map(|x| u8::from(x != 0)).collect(),
        _ => bytes.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_gathered_from_arrays_with_gaps() {
        let bytes: Vec<u8> = (0..32).collect();
        let gathered = |shape: &[usize], strides: &[usize]| gathered(&bytes, shape, strides, 2);
        let expected = vec![0, 1, 2, 3, 16, 17, 18, 19];
        assert_eq!(gathered(&[2, 2], &[8, 1]), Some(expected.clone()));
        let mut there = bytes.clone();
        there.fill(0);
        assert!(scatter(&expected, &mut there, &[2, 2], &[8, 1], 2));
        let places = there.iter().enumerate().filter(|(_, x)| **x > 0);
        assert!(places.map(|(at, &x)| (at, x)).eq([
            (1, 1),
            (2, 2),
            (3, 3),
            (16, 16),
            (17, 17),
            (18, 18),
            (19, 19)
        ]));
        assert!(!scatter(&expected, &mut there, &[2, 2], &[15, 1], 2));
        assert!(!scatter(&expected[..6], &mut there, &[2, 2], &[8, 1], 2));
        assert_eq!(gathered(&[2, 1], &[15, 9]), Some(vec![0, 1, 30, 31]));
        for (shape, strides) in [
            (&[2, 2][..], &[15, 1][..]),
            (&[2, 0], &[1, 1]),
            (&[2], &[1, 1]),
            (&[2], &[usize::MAX]),
        ] {
            assert_eq!(gathered(shape, strides), None, "{shape:?} {strides:?}");
        }
    }
}
