//! Losses: distances of predictions from their targets.
//!
//! Halves are computed in single precision, and the result is rounded.

mod classification;
mod ctc;
mod likelihood;
mod margin;
mod regression;

pub use classification::CrossEntropyOptions;
pub use ctc::CtcOptions;
pub use margin::TripletOptions;

use rustorch_ir::broadcast_shapes;

use crate::Tensor;
use crate::api::promote::{Operand, result_dtype};
use crate::args::setting::Converted;
use crate::error::{RusTorchResult, require};

/// The reduction of the losses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Reduction {
    /// No reduction.
    None,
    /// Their mean.
    #[default]
    Mean,
    /// Their sum.
    Sum,
}

impl Converted for Reduction {}

impl Reduction {
    fn of(self, losses: &Tensor) -> RusTorchResult<Tensor> {
        match self {
            Self::None => Ok(losses.clone()),
            Self::Mean => losses.mean(None, false),
            Self::Sum => losses.sum(None, false),
        }
    }

    /// [`Reduction::of`] rounded to the dtype of `like`, if that is a float.
    fn of_like(self, name: &'static str, losses: &Tensor, like: &Tensor) -> RusTorchResult<Tensor> {
        let reduced = self.of(losses)?;
        match like.dtype().is_float() {
            true => reduced.cast(name, like.dtype()),
            false => Ok(reduced),
        }
    }
}

impl Tensor {
    /// Fails unless both have one shape.
    fn require_shape_of(&self, name: &'static str, other: &Self) -> RusTorchResult<()> {
        let got = format_args!("{} and {}", self.ty(), other.ty());
        require(
            name,
            self.shape() == other.shape(),
            "tensors of one shape",
            got,
        )
    }

    /// The common type of two tensors, which broadcast: of halves, to compute in, singles.
    fn pair(&self, name: &'static str, other: &Self) -> RusTorchResult<[Self; 2]> {
        broadcast_shapes(name, self.shape(), other.shape())?;
        Ok([self.widened(name)?, other.widened(name)?])
    }
}

/// The one of `all` whose dtype they promote to together, if one has it; else the first.
fn promoted<'a>(name: &'static str, all: &[&'a Tensor]) -> RusTorchResult<&'a Tensor> {
    let operands: Vec<Operand> = all.iter().map(|&x| x.into()).collect();
    let dtype = result_dtype(name, &operands)?;
    let found = all.iter().find(|x| x.dtype() == dtype);
    Ok(found.unwrap_or(&all[0]))
}
