//! Products and powers of vectors.

use rustorch_ir::DType;
use rustorch_macros::track_calls;

use crate::Tensor;
use crate::args::dims::Integer;
use crate::error::{RusTorchResult, require};

#[track_calls]
impl Tensor {
    /// The cross products of vectors of 3 elements along `dim`; the other dimensions broadcast.
    /// Takes numbers of one dtype.
    ///
    /// # Errors
    /// Fails for sizes other than 3 along `dim`, ranks that differ, or shapes that do not
    /// broadcast.
    pub fn cross(&self, other: &Self, dim: impl Integer) -> RusTorchResult<Self> {
        const NAME: &str = "cross";
        let got = format_args!("{} and {}", self.ty(), other.ty());
        require(
            NAME,
            self.rank() == other.rank(),
            "operands of one rank",
            got,
        )?;
        let dim = self.dim(NAME, dim)?;
        let three = self.shape()[dim] == 3 && other.shape()[dim] == 3;
        require(
            NAME,
            three,
            format!("3 elements along dimension {dim}"),
            got,
        )?;
        let dim = dim as isize;
        // Of x, y, z: y, z, x and z, x, y.
        let [a1, b1] = [self.roll([-1], dim)?, other.roll([-1], dim)?];
        let [a2, b2] = [self.roll([-2], dim)?, other.roll([-2], dim)?];
        a1.mul(&b2)?.sub(&a2.mul(&b1)?)
    }

    /// Powers 0 to `columns − 1` of each element along a new last dimension, the highest first
    /// unless `increasing` (Vandermonde matrix). The default number of columns is the size of the
    /// last dimension. A number counts as a vector of one element.
    ///
    /// # Errors
    /// Fails for a block format.
    pub fn vander(
        &self,
        columns: impl Into<Option<usize>>,
        increasing: bool,
    ) -> RusTorchResult<Self> {
        const NAME: &str = "vander";
        let x = self.atleast_1d()?;
        let columns = columns.into().unwrap_or(x.shape()[x.rank() - 1]);
        // Booleans and small integers multiply as i64.
        let x = match self.dtype() {
            dtype if dtype.is_int() || dtype == DType::Bool => x.cast(NAME, DType::I64)?,
            _ => x,
        };
        let Some(more) = columns.checked_sub(1) else {
            return Self::zeros([x.shape(), &[0]].concat(), x.dtype());
        };
        let factors = x.unsqueeze(-1)?;
        let first = factors.ones_like()?;
        let factors = factors.expand([x.shape(), &[more]].concat())?;
        let powers = Self::cat(&[&first, &factors], -1)?.cumprod(-1)?;
        match increasing {
            true => Ok(powers),
            false => powers.flip([-1]),
        }
    }
}
