//! Search in sorted sequences.

use rustorch_ir::ops::{Compare, CompareOp, Gather};
use rustorch_ir::{DType, OpError};
use rustorch_macros::track_calls;

use crate::Tensor;
use crate::api::promote::AsOperand;
use crate::api::promote::{Operand, result_dtype};
use crate::error::{RusTorchResult, require};

/// Elements that are compared one by one; more are sorted.
const FEW: usize = 16;

#[track_calls]
impl Tensor {
    /// The index at which each of `values` can be inserted so that this sorted sequence stays
    /// sorted: before equal elements, or after them (`right`). The result is `i64`, of the shape of
    /// `values`. The sequence is a vector, or the last dimension of a tensor whose other sizes
    /// equal those of `values`. An unsorted sequence needs a `sorter` of its shape, such as the
    /// result of `argsort`. NaN sorts after all numbers.
    ///
    /// It is a binary search.
    ///
    /// # Errors
    /// Fails for unsupported shapes, or dtypes that do not promote or have no order. Also fails for
    /// a sorter that is not `i64`. Evaluation fails for a sorter's index out of range.
    pub fn searchsorted(
        &self,
        values: impl AsOperand,
        right: bool,
        sorter: Option<&Self>,
    ) -> RusTorchResult<Self> {
        const NAME: &str = "searchsorted";
        let sorted = match sorter {
            None => self.clone(),
            Some(order) => {
                let fits = order.shape() == self.shape() && order.dtype() == DType::I64;
                let expected = format_args!("a sorter i64{}", self.ty().shape);
                require(NAME, fits, expected, order.ty())?;
                self.gather(-1, order)?
            }
        };
        sorted.places_of(NAME, values.as_operand()?, right)
    }

    /// [`Tensor::searchsorted`] of this tensor's elements in a vector of sorted boundaries: the
    /// bucket of each element.
    ///
    /// # Errors
    /// The same errors as [`Tensor::searchsorted`]. Also fails for boundaries that are not a
    /// vector.
    pub fn bucketize(&self, boundaries: &Self, right: bool) -> RusTorchResult<Self> {
        const NAME: &str = "bucketize";
        let is_vector = boundaries.rank() == 1;
        require(NAME, is_vector, "boundaries of rank 1", boundaries.ty())?;
        boundaries.places_of(NAME, self.into(), right)
    }

    /// [`Tensor::searchsorted`] in what is sorted itself.
    pub(crate) fn places_of(
        &self,
        name: &'static str,
        values: Operand,
        right: bool,
    ) -> RusTorchResult<Self> {
        let Some((&size, lead)) = self.shape().split_last() else {
            return Err(OpError::new(name, "a sequence of rank 1 or more", self.ty()).into());
        };
        let dtype = result_dtype(name, &[self.into(), values])?;
        let (sequence, values) = (self.cast(name, dtype)?, values.to_tensor(name, dtype)?);
        let fits = lead.is_empty() || values.shape().split_last().is_some_and(|(_, v)| v == lead);
        let got = format_args!("{} and {}", self.ty(), values.ty());
        require(name, fits, "a vector, or sizes equal but for the last", got)?;
        let (flat, last) = match lead.is_empty() {
            true => (values.ravel()?, 0),
            false => (values.clone(), lead.len()),
        };
        let op = if right { CompareOp::Gt } else { CompareOp::Ge };
        let mut place = Self::zeros(flat.shape(), DType::I64)?;
        let mut step = (size + 1).next_power_of_two() / 2;
        while step > 0 && size > 0 {
            // Forward by as many elements as are all still before the value: those that it does
            // not come before. NaN comes behind all.
            let probe = place.add(step as i64)?;
            let index = probe.sub(1)?.minimum(size as i64 - 1)?;
            let other = Self::apply(name, Gather { dim: last }, &[&sequence, &index])?;
            let is_reached = Self::apply(name, Compare { op }, &[&other, &flat])?;
            let is_reached = is_reached.logical_or(&other.ne(&other)?)?;
            let moves = is_reached
                .logical_not()?
                .logical_and(&probe.le(size as i64)?)?;
            place = Self::where_(&moves, &probe, &place)?;
            step /= 2;
        }
        place.reshape(values.shape())
    }

    /// Tests whether each element is one of `others`, or none of them (`invert`). The result is `bool`; NaN
    /// equals nothing.
    ///
    /// # Errors
    /// Fails for dtypes that do not promote. Also fails for many others of a complex dtype, which
    /// has no order.
    pub fn isin(&self, others: impl AsOperand, invert: bool) -> RusTorchResult<Self> {
        const NAME: &str = "isin";
        let others = others.as_operand()?;
        let dtype = match result_dtype(NAME, &[self.into(), others])? {
            // An order of booleans is one of numbers.
            DType::Bool => DType::U8,
            other => other,
        };
        let (x, others) = (
            self.cast(NAME, dtype)?,
            others.to_tensor(NAME, dtype)?.ravel()?,
        );
        let found = match others.numel() {
            0 => Self::zeros(x.shape(), DType::Bool)?,
            1..=FEW => x.unsqueeze(-1)?.eq(&others)?.any(-1, false)?,
            count => {
                let (sorted, _) = others.sort(0, false)?;
                let place = sorted.places_of(NAME, (&x).into(), false)?;
                let place = place.minimum(count as i64 - 1)?.ravel()?;
                sorted.picked(NAME, 0, &place)?.reshape(x.shape())?.eq(&x)?
            }
        };
        match invert {
            true => found.logical_not(),
            false => Ok(found),
        }
    }
}
