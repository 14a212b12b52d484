//! Operations that others define.

use rustorch_ir::ops::{Composite, Custom};
use rustorch_macros::track_calls;

use crate::Tensor;
use crate::error::RusTorchResult;

#[track_calls]
impl Tensor {
    /// The `N` results of a composite operation that is defined elsewhere. It runs on every device,
    /// as what it is made of, or by a kernel of its own where a backend has one.
    ///
    /// ```
    /// use rustorch_ir::ops::Composite;
    /// use rustorch_ir::{Graph, OpError, Results, ValueId};
    /// use rustorch_tensor::{Tensor, tensor};
    ///
    /// /// `x · |x|`.
    /// #[derive(PartialEq, Eq, Hash, Debug)]
    /// struct SignedSquare;
    ///
    /// impl Composite for SignedSquare {
    ///     fn name(&self) -> &'static str {
    ///         "signed_square"
    ///     }
    ///
    ///     fn decompose(&self, g: &mut Graph, inputs: &[ValueId]) -> Result<Results, OpError> {
    ///         let magnitude = g.unary(rustorch_ir::ops::UnaryOp::Abs, inputs[0])?;
    ///         Ok([g.mul(inputs[0], magnitude)?].into_iter().collect())
    ///     }
    /// }
    ///
    /// # fn main() -> rustorch_tensor::RusTorchResult<()> {
    /// let x = tensor![-3.0, 2.0];
    /// let [y] = Tensor::custom(SignedSquare, &[&x])?;
    /// assert_eq!(y.to_vec::<f32>()?, [-9.0, 4.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Operands that the operation refuses; another number of results than `N`.
    pub fn custom<const N: usize>(
        composite: impl Composite,
        inputs: &[&Self],
    ) -> RusTorchResult<[Self; N]> {
        Self::apply_all(composite.name(), Custom::new(composite), inputs)
    }
}
