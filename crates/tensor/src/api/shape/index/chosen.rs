//! `x[…]`: views first, then selections by index tensors.

use rustorch_ir::ops::{Gather, ScatterMode, Where};
use rustorch_ir::{DType, OpError, Shape, broadcast_shapes};
use rustorch_macros::track_calls;

use super::list::{Index, Indices};
use crate::Tensor;
use crate::api::promote::{AsValue, Operand};
use crate::api::updates::Shared;
use crate::error::{RusTorchResult, require};

/// One step on the way to the part of a tensor that has no more than index tensors before it.
enum Step {
    Select {
        dim: isize,
        index: isize,
    },
    SelectAt {
        dim: usize,
        index: Tensor,
    },
    Slice {
        dim: isize,
        start: isize,
        end: isize,
        step: usize,
    },
    NewAxis {
        dim: isize,
    },
}

impl Step {
    fn part(&self, name: &'static str, x: &Tensor) -> RusTorchResult<Tensor> {
        match self {
            Self::Select { dim, index } => x.select(*dim, *index),
            Self::SelectAt { dim, index } => {
                let index = index.wrapped(name, x.shape()[*dim])?.reshape([1])?;
                let picked = x.picked(name, *dim, &index)?.squeeze(*dim as isize)?;
                Ok(picked.in_place_of_view(x))
            }
            &Self::Slice {
                dim,
                start,
                end,
                step,
            } => x.slice(dim, start, end, step),
            Self::NewAxis { dim } => x.unsqueeze(*dim),
        }
    }

    /// `x` with another part.
    fn put(&self, x: &Tensor, part: &Tensor) -> RusTorchResult<Tensor> {
        match self {
            Self::Select { dim, index } => x.select_scatter(part, *dim, *index),
            Self::SelectAt { dim, index } => {
                let index = index.wrapped("index_put", x.shape()[*dim])?;
                x.index_copy(*dim as isize, &index, &part.unsqueeze(*dim as isize)?)
            }
            &Self::Slice {
                dim,
                start,
                end,
                step,
            } => x.slice_scatter(part, dim, start, end, step),
            Self::NewAxis { dim } => part.squeeze(*dim),
        }
    }
}

/// An index tensor, or mask, of dimensions beginning with `dim`.
struct Choice {
    dim: usize,
    index: Tensor,
}

impl Choice {
    fn is_mask(&self) -> bool {
        self.index.dtype() == DType::Bool
    }

    /// Number of dimensions that it chooses from.
    fn dims(&self) -> usize {
        if self.is_mask() { self.index.rank() } else { 1 }
    }

    /// The indices, counted through its dimensions in row-major order. A mask is read.
    fn places(&self, name: &'static str, size: usize) -> RusTorchResult<Tensor> {
        if !self.is_mask() {
            return self.index.wrapped(name, size);
        }
        let places = self.index.set_places(name)?;
        let count = places.len();
        Tensor::from_vec(places, [count])
    }
}

/// The place of `x[…]`: steps to a part of `x`, and the choice within it.
struct Located {
    /// Each step with the tensor that it is made in.
    steps: Vec<(Step, Tensor)>,
    part: Tensor,
    choices: Vec<Choice>,
}

impl Located {
    fn new(name: &'static str, x: &Tensor, indices: Vec<Index>) -> RusTorchResult<Self> {
        let used: usize = indices.iter().map(dims_of).sum();
        let expected = format_args!("at most {} indices", x.rank());
        require(name, used <= x.rank(), expected, used)?;
        let ellipses = indices
            .iter()
            .filter(|i| matches!(i, Index::Ellipsis))
            .count();
        require(name, ellipses <= 1, "at most one ellipsis", ellipses)?;
        let (steps, choices) = (Vec::new(), Vec::new());
        let part = x.clone().viewing(x);
        let mut located = Self {
            steps,
            part,
            choices,
        };
        // The dimension in the part, and in `x`.
        let (mut dim, mut own) = (0, 0);
        for index in indices {
            if let Index::At(at) = index {
                x.one_index(name, own, at)?;
            }
            own += dims_of(&index);
            match index {
                Index::Ellipsis => (dim, own) = (dim + x.rank() - used, own + x.rank() - used),
                index => dim = located.follow(name, dim, index)?,
            }
        }
        Ok(located)
    }

    /// Takes an index of `dim` into account; returns the dimension that the next one is of.
    fn follow(&mut self, name: &'static str, dim: usize, index: Index) -> RusTorchResult<usize> {
        let at = dim as isize;
        let step = match index {
            Index::Ellipsis => return Ok(dim),
            Index::NewAxis => Step::NewAxis { dim: at },
            Index::At(index) => Step::Select { dim: at, index },
            Index::Slice { start, end, step } => Step::Slice {
                dim: at,
                start: start.unwrap_or(0),
                end: end.unwrap_or(isize::MAX),
                step: positive(name, step)?,
            },
            Index::Bool(value) => return self.new_choice(name, dim, &[i64::from(!value)], value),
            Index::Tensor(index) => return self.choose(name, dim, index),
        };
        let next = dim + usize::from(matches!(step, Step::Slice { .. } | Step::NewAxis { .. }));
        self.go(name, step)?;
        Ok(next)
    }

    fn go(&mut self, name: &'static str, step: Step) -> RusTorchResult<()> {
        // A slice of everything is not a step.
        if !matches!(
            step,
            Step::Slice {
                start: 0,
                end: isize::MAX,
                step: 1,
                ..
            }
        ) {
            let part = step.part(name, &self.part)?;
            let whole = std::mem::replace(&mut self.part, part);
            self.steps.push((step, whole));
        }
        Ok(())
    }

    /// A new dimension of size 1 with index 0 chosen, if `kept`.
    fn new_choice(
        &mut self,
        name: &'static str,
        dim: usize,
        zero: &[i64],
        kept: bool,
    ) -> RusTorchResult<usize> {
        self.go(name, Step::NewAxis { dim: dim as isize })?;
        let index = Tensor::from_slice(&zero[..usize::from(kept)], [usize::from(kept)])?;
        self.choices.push(Choice { dim, index });
        Ok(dim + 1)
    }

    fn choose(&mut self, name: &'static str, dim: usize, index: Tensor) -> RusTorchResult<usize> {
        let is_mask = matches!(index.dtype(), DType::Bool | DType::U8);
        let is_index = matches!(index.dtype(), DType::I64 | DType::I32);
        let expected = "an index of i64 or i32, or a mask of bool";
        require(name, is_mask || is_index, expected, index.ty())?;
        if is_mask && index.rank() == 0 {
            let is_set = index.cast(name, DType::Bool)?.to_scalar::<bool>()?;
            return self.new_choice(name, dim, &[0], is_set);
        }
        if index.rank() == 0 {
            self.go(name, Step::SelectAt { dim, index })?;
            return Ok(dim);
        }
        let index = match is_mask {
            true => index.cast(name, DType::Bool)?,
            false => index,
        };
        if is_mask {
            let masked = &self.part.shape()[dim..dim + index.rank()];
            let expected = format_args!("a mask {masked:?}, as the dimensions from {dim} on are");
            require(name, index.shape() == masked, expected, index.ty())?;
        }
        let choice = Choice { dim, index };
        let next = dim + choice.dims();
        self.choices.push(choice);
        Ok(next)
    }
}

/// Number of dimensions that an index uses up.
fn dims_of(index: &Index) -> usize {
    match index {
        Index::At(_) | Index::Slice { .. } => 1,
        Index::Ellipsis | Index::NewAxis | Index::Bool(_) => 0,
        Index::Tensor(t) if matches!(t.dtype(), DType::Bool | DType::U8) => t.rank(),
        Index::Tensor(_) => 1,
    }
}

fn positive(name: &'static str, step: isize) -> RusTorchResult<usize> {
    let expected = "a step of at least 1 (flip reverses)";
    let refused = || OpError::new(name, expected, step);
    Ok(usize::try_from(step)
        .ok()
        .filter(|&step| step > 0)
        .ok_or_else(refused)?)
}

/// The chosen part, with the chosen dimensions merged.
struct Chosen {
    /// The order of the part's dimensions in which those are neighbours.
    order: Vec<isize>,
    /// The part in this order.
    ordered: Tensor,
    /// `ordered` with the chosen dimensions merged into one.
    flat: Tensor,
    /// The index of the dimension.
    dim: usize,
    /// The places along it, `i64`.
    places: Tensor,
}

impl Chosen {
    /// Dimensions of several indices come where those are neighbours, else first.
    fn new(name: &'static str, part: &Tensor, choices: &[Choice]) -> RusTorchResult<Self> {
        let chosen: Vec<usize> = (choices.iter())
            .flat_map(|choice| choice.dim..choice.dim + choice.dims())
            .collect();
        let is_adjacent = chosen.windows(2).all(|pair| pair[1] == pair[0] + 1);
        let dim = if is_adjacent { chosen[0] } else { 0 };
        let rest: Vec<usize> = (0..part.rank()).filter(|d| !chosen.contains(d)).collect();
        let order: Vec<isize> = (rest[..dim].iter())
            .chain(&chosen)
            .chain(&rest[dim..])
            .map(|&d| d as isize)
            .collect();
        let ordered = part.permute(&order)?;
        let sizes = ordered.shape();
        let end = dim + chosen.len();
        let joined = sizes[dim..end].iter().product();
        let flat = ordered.reshape(&[&sizes[..dim], &[joined], &sizes[end..]].concat()[..])?;
        let places = linear(name, part, choices)?;
        Ok(Self {
            order,
            ordered,
            flat,
            dim,
            places,
        })
    }

    /// The shape of the chosen elements.
    fn shape(&self) -> Shape {
        let sizes = self.flat.shape();
        let (before, behind) = (&sizes[..self.dim], &sizes[self.dim + 1..]);
        [before, self.places.shape(), behind].concat().into()
    }

    fn get(&self, name: &'static str) -> RusTorchResult<Tensor> {
        let picked = self.flat.picked(name, self.dim, &self.places.ravel()?)?;
        picked.reshape(&self.shape())
    }

    /// The part with other elements there.
    fn put(&self, name: &'static str, value: &Tensor, mode: ScatterMode) -> RusTorchResult<Tensor> {
        let count = self.places.numel();
        let lines = self.flat.ty().shape.clone().with_dim(self.dim, count);
        let value = value.expand(&self.shape())?.reshape(&lines)?;
        let index = self.places.spread_along(self.dim, &lines)?;
        let flat = self.flat.placed(name, self.dim, mode, &index, &value)?;
        let mut back = vec![0; self.order.len()];
        for (to, &from) in self.order.iter().enumerate() {
            back[from as usize] = to as isize;
        }
        flat.reshape(self.ordered.shape())?.permute(back)
    }
}

/// The places of all choices together, counted through their dimensions in row-major order, in their broadcast
/// shape.
fn linear(name: &'static str, part: &Tensor, choices: &[Choice]) -> RusTorchResult<Tensor> {
    let size = |choice: &Choice| -> usize {
        part.shape()[choice.dim..choice.dim + choice.dims()]
            .iter()
            .product()
    };
    if let [only] = choices {
        return only.places(name, size(only));
    }
    let mut all = (choices.iter())
        .map(|choice| choice.places(name, size(choice)))
        .collect::<RusTorchResult<Vec<Tensor>>>()?;
    let mut shape = Shape::default();
    for places in &all {
        shape = broadcast_shapes(name, &shape, places.shape())?;
    }
    for (places, choice) in all
        .iter_mut()
        .zip(choices)
        .filter(|(_, choice)| !choice.is_mask())
    {
        *places = checked(name, places, part, choice.dim)?;
    }
    let mut stride = 1;
    let mut sum = Tensor::zeros([], DType::I64)?;
    for (places, choice) in all.iter().zip(choices).rev() {
        sum = sum.add(&places.mul(stride as i64)?)?;
        stride *= size(choice);
    }
    sum.expand(&shape)
}

/// The same indices, looked up: one that is outside of dimension `dim` says so.
fn checked(
    name: &'static str,
    places: &Tensor,
    part: &Tensor,
    dim: usize,
) -> RusTorchResult<Tensor> {
    let size = part.shape()[dim];
    let line = |n: usize| Shape::from(vec![1; part.rank()]).with_dim(dim, n);
    let known = Tensor::arange_with(0, size as i64, 1, DType::I64)?.reshape(&line(size))?;
    let index = places.reshape(&line(places.numel()))?;
    Tensor::apply(name, Gather { dim }, &[&known, &index])?.reshape(places.shape())
}

#[track_calls]
impl Tensor {
    /// `x[i, j, …]` by PyTorch's rules. An index is a number, a range of them, [`Ellipsis`] or
    /// [`NewAxis`](crate::NewAxis) (also `None`), a `bool` mask, or a tensor of `i64` or `i32`:
    ///
    /// ```
    /// # use rustorch_tensor::{RusTorchResult, Ellipsis, Tensor, tensor};
    /// # fn main() -> RusTorchResult<()> {
    /// let x = tensor![[1, 2, 3], [4, 5, 6]];
    /// assert_eq!(x.index((.., 1..))?.to_vec::<i64>()?, [2, 3, 5, 6]);
    /// assert_eq!(x.index((Ellipsis, -1))?.to_vec::<i64>()?, [3, 6]);
    /// assert_eq!(x.index((1, &tensor![2, 0]))?.to_vec::<i64>()?, [6, 4]);
    /// assert_eq!(x.index(&x.gt(4)?)?.to_vec::<i64>()?, [5, 6]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Numbers, ranges and new axes make views. Index tensors broadcast to one shape. Adjacent indexed
    /// dimensions stay in place; otherwise they move first, as in NumPy. A tensor of rank 0 counts as
    /// a number. Index tensors give a copy, although PyTorch may return a view. Writing to it is an
    /// error while this tensor has a handle. The shape depends on the masks, so they are computed and
    /// read at once.
    ///
    /// # Errors
    /// Fails for too many indices, a number outside its dimension, or a step below 1. Also fails
    /// for a mask whose shape differs from its dimensions. Also fails for index tensors of an
    /// unsupported dtype, or that do not broadcast. Evaluation fails for an index outside its
    /// dimension.
    ///
    /// [`Ellipsis`]: crate::Ellipsis
    pub fn index(&self, indices: impl Indices) -> RusTorchResult<Self> {
        const NAME: &str = "index";
        let Located { part, choices, .. } = Located::new(NAME, self, indices.list())?;
        match choices.is_empty() {
            true => Ok(part),
            false => Chosen::new(NAME, &part, &choices)?.get(NAME),
        }
    }

    /// A copy in which `x[i, j, …] = value`, or `+= value` (`accumulate`), with indices as those of
    /// [`Tensor::index`]. The value, a number or a tensor, is broadcast and converted to this
    /// dtype. If an element is indexed several times, the last value counts, or all are added.
    ///
    /// # Errors
    /// The same errors as [`Tensor::index`]. Also fails for a value that does not broadcast to the
    /// indexed elements.
    pub fn index_put(
        &self,
        indices: impl Indices,
        value: impl AsValue,
        accumulate: bool,
    ) -> RusTorchResult<Self> {
        const NAME: &str = "index_put";
        let Located {
            steps,
            part,
            choices,
        } = Located::new(NAME, self, indices.list())?;
        let value = value.as_value()?.as_element(NAME, self.dtype())?;
        let new = match &choices[..] {
            [] => whole_part(&part, &value, accumulate)?,
            [mask] if mask.is_mask() && value.numel() == 1 && !accumulate => {
                filled(NAME, &part, mask, &value)?
            }
            choices => {
                let mode = match accumulate {
                    true => ScatterMode::Add,
                    false => ScatterMode::Set,
                };
                Chosen::new(NAME, &part, choices)?.put(NAME, &fitting(&value)?, mode)?
            }
        };
        (steps.iter().rev()).try_fold(new, |part, (step, whole)| step.put(whole, &part))
    }

    /// [`Tensor::index_put`] into this tensor's memory, as [`Tensor::copy_`] does it: `x[…] =
    /// value`.
    ///
    /// # Errors
    /// The same errors as [`Tensor::index_put`] and [`Tensor::copy_`].
    pub fn index_put_(
        &mut self,
        indices: impl Indices,
        value: impl AsValue,
        accumulate: bool,
    ) -> RusTorchResult<&mut Self> {
        let (indices, value) = (indices.list(), value.as_value()?);
        if let Operand::Tensor(source) = value {
            self.require_apart_from(&indices, source)?;
        }
        let new = self.index_put(indices, value, accumulate)?;
        self.copy_(&new)
    }

    /// [`Tensor::require_apart`] of a value at these indices.
    fn require_apart_from(&self, indices: &[Index], source: &Self) -> RusTorchResult<()> {
        if !self.value().shares_memory(source.value()) {
            return Ok(());
        }
        let Located { part, choices, .. } = Located::new("index_put_", self, indices.to_vec())?;
        let shared = match choices.is_empty() {
            // A value that is broadcast is not dense.
            true if part.shape() != source.shape() => return Ok(()),
            true => Shared::Alike,
            false => Shared::Nothing,
        };
        part.require_apart("index_put_", shared, &[Some(source)])
    }
}

/// A value without dimensions of size 1 in front, which PyTorch leaves out as well.
fn fitting(value: &Tensor) -> RusTorchResult<Tensor> {
    let ones = value.shape().iter().take_while(|&&size| size == 1).count();
    value.reshape(&value.shape()[ones..])
}

/// All of a part written over, or added to.
fn whole_part(part: &Tensor, value: &Tensor, accumulate: bool) -> RusTorchResult<Tensor> {
    let value = fitting(value)?.expand(part.shape())?;
    match accumulate {
        true => part.add(&value),
        false => Ok(value),
    }
}

/// One value where a mask is true.
fn filled(
    name: &'static str,
    part: &Tensor,
    mask: &Choice,
    value: &Tensor,
) -> RusTorchResult<Tensor> {
    let behind = part.rank() - mask.dim - mask.dims();
    let shape = [mask.index.shape(), &vec![1; behind]].concat();
    let operands = [
        &mask.index.reshape(&shape[..])?,
        &value.reshape([0usize; 0])?,
        part,
    ];
    Tensor::apply(name, Where, &operands)
}
