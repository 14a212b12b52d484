//! Values of a program.

use half::f16;
use rustorch_coreml::proto::mil::DataType;

/// A tensor.
#[derive(Clone, PartialEq, Debug)]
pub struct Tensor {
    /// Type of its elements.
    pub data_type: DataType,
    /// Sizes of its dimensions.
    pub shape: Vec<usize>,
    /// Its elements in row-major order.
    pub data: Data,
}

/// Elements, each kind in its widest type.
#[derive(Clone, PartialEq, Debug)]
pub enum Data {
    /// Elements of `Float16` and `Float32`, rounded to those.
    Float(Vec<f64>),
    /// Elements of integers, and 0 or 1 for `Bool`.
    Int(Vec<i64>),
    /// A text.
    Text(String),
}

impl Tensor {
    /// A tensor of floats, rounded to the type.
    pub fn floats(data_type: DataType, shape: &[usize], x: Vec<f64>) -> Self {
        let round: fn(f64) -> f64 = match data_type {
            DataType::Float16 => |x| f16::from_f64(x).to_f64(),
            _ => |x| f64::from(x as f32),
        };
        Self {
            data_type,
            shape: shape.to_vec(),
            data: Data::Float(x.into_iter().map(round).collect()),
        }
    }

    /// A tensor of integers or booleans.
    pub fn ints(data_type: DataType, shape: &[usize], x: Vec<i64>) -> Self {
        Self {
            data_type,
            shape: shape.to_vec(),
            data: Data::Int(x),
        }
    }

    /// Number of elements.
    pub(crate) fn count(&self) -> usize {
        self.shape.iter().product()
    }

    /// The elements of a tensor of floats.
    pub(crate) fn as_floats(&self) -> Result<&[f64], String> {
        match &self.data {
            Data::Float(x) => Ok(x),
            _ => Err(format!("floats expected, not {:?}", self.data_type)),
        }
    }

    /// The elements of a tensor of integers or booleans.
    pub(crate) fn as_ints(&self) -> Result<&[i64], String> {
        match &self.data {
            Data::Int(x) => Ok(x),
            _ => Err(format!("integers expected, not {:?}", self.data_type)),
        }
    }

    /// A tensor of `shape` whose element at each place is the one at `from(place)`; `from` is given
    /// the indices of the place and gives those of this tensor.
    pub(crate) fn gathered(
        &self,
        shape: &[usize],
        mut from: impl FnMut(&[usize]) -> Result<Vec<usize>, String>,
    ) -> Result<Self, String> {
        let mut places = Vec::new();
        for_each_index(shape, |index| {
            places.push(position(&self.shape, &from(index)?)?);
            Ok(())
        })?;
        let data = match &self.data {
            Data::Float(x) => Data::Float(places.iter().map(|&i| x[i]).collect()),
            Data::Int(x) => Data::Int(places.iter().map(|&i| x[i]).collect()),
            Data::Text(_) => return Err("a text has no elements".to_owned()),
        };
        Ok(Self {
            data_type: self.data_type,
            shape: shape.to_vec(),
            data,
        })
    }

    /// The tensor broadcast to `shape`, aligned at the last dimension.
    pub(crate) fn broadcast(&self, shape: &[usize]) -> Result<Self, String> {
        if self.shape == shape {
            return Ok(self.clone());
        }
        let lead = shape.len().checked_sub(self.shape.len());
        let lead = lead.ok_or_else(|| format!("{:?} as {shape:?}", self.shape))?;
        let sizes = self.shape.clone();
        self.gathered(shape, |index| {
            let own = sizes.iter().zip(&index[lead..]);
            Ok(own
                .map(|(&size, &i)| if size == 1 { 0 } else { i })
                .collect())
        })
    }
}

/// The place of an element in row-major order.
pub(crate) fn position(shape: &[usize], index: &[usize]) -> Result<usize, String> {
    let outside = || format!("{index:?} is outside {shape:?}");
    if shape.len() != index.len() {
        return Err(outside());
    }
    let mut at = 0;
    for (&size, &i) in shape.iter().zip(index) {
        if i >= size {
            return Err(outside());
        }
        at = at * size + i;
    }
    Ok(at)
}

/// Calls `body` with the indices of each element in row-major order.
pub(crate) fn for_each_index(
    shape: &[usize],
    mut body: impl FnMut(&[usize]) -> Result<(), String>,
) -> Result<(), String> {
    let mut index = vec![0; shape.len()];
    for _ in 0..shape.iter().product() {
        body(&index)?;
        for d in (0..shape.len()).rev() {
            index[d] += 1;
            if index[d] < shape[d] {
                break;
            }
            index[d] = 0;
        }
    }
    Ok(())
}

/// The shape that two broadcast to.
pub(crate) fn common(a: &[usize], b: &[usize]) -> Result<Vec<usize>, String> {
    let rank = a.len().max(b.len());
    let padded = |s: &[usize]| [vec![1; rank - s.len()], s.to_vec()].concat();
    let sizes = padded(a).into_iter().zip(padded(b));
    sizes
        .map(|(x, y)| match (x, y) {
            (1, n) | (n, 1) => Ok(n),
            (n, m) if n == m => Ok(n),
            _ => Err(format!("{a:?} and {b:?} do not broadcast")),
        })
        .collect()
}
