//! Max-unpooling: the largest elements at their indices, zeros elsewhere.

use rustorch_ir::autodiff::{Cotangents, Differentiated};
use rustorch_ir::ops::{Composite, Custom, Gather, Scatter, ScatterMode};
use rustorch_ir::{DType, Graph, OpError, OpType, Results, ValueId};

use super::MaxPoolOptions;
use crate::Tensor;
use crate::error::{RusTorchResult, require};

/// One method for each line: its name, number of dimensions, shape.
macro_rules! max_unpools {
    ($($name:ident = $n:literal, $shape:literal;)*) => {
        #[rustorch_macros::track_calls]
        impl Tensor {
            $(#[doc = concat!("Zeros of `output_size`, with the elements of `self` `", $shape, "` at the `indices`,")]
            /// `i64` of its shape, that a maximum over windows gave. By default (`None`) it is the
            /// smallest size that fits the windows' kernel, stride and padding. The batch dimension
            /// of `self` is optional. Takes numbers. The gradient of an element comes from its
            /// index, even if another element overwrote it, as in PyTorch.
            ///
            /// # Errors
            /// Fails for an unsupported shape or dtype, a stride of 0, or a size that does not fit
            /// the stride. Evaluation fails for an index outside the result.
            pub fn $name(
                &self,
                indices: &Self,
                kernel: [usize; $n],
                options: &MaxPoolOptions<$n>,
                output_size: Option<[usize; $n]>,
            ) -> RusTorchResult<Self> {
                self.unpooled(stringify!($name), indices, kernel, options, output_size)
            })*
        }
    };
}

max_unpools! {
    max_unpool1d = 1, "[n, c, l]";
    max_unpool2d = 2, "[n, c, h, w]";
    max_unpool3d = 3, "[n, c, d, h, w]";
}

impl Tensor {
    fn unpooled<const N: usize>(
        &self,
        name: &'static str,
        indices: &Self,
        kernel: [usize; N],
        options: &MaxPoolOptions<N>,
        output_size: Option<[usize; N]>,
    ) -> RusTorchResult<Self> {
        let (x, has_batch) = self.with_batch(name, N)?;
        let is_index = indices.dtype() == DType::I64 && indices.shape() == self.shape();
        let expected = format_args!("i64 indices {:?}", self.shape());
        require(name, is_index, expected, indices.ty())?;
        let stride = options.stride.unwrap_or(kernel);
        let sizes = &x.shape()[2..];
        let mut whole = [0; N];
        for i in 0..N {
            let least = (|| {
                let spread = sizes[i].checked_sub(1)?.checked_mul(stride[i])?;
                let size = spread.checked_add(kernel[i])?;
                size.checked_sub(options.padding[i].checked_mul(2)?)
            })();
            // A size that gives the same number of windows.
            let fits = |size: usize| least.is_some_and(|least| size.abs_diff(least) < stride[i]);
            let size = output_size.map(|sizes| sizes[i]).or(least);
            let Some(size) = size.filter(|&size| stride[i] > 0 && fits(size)) else {
                let expected = "a stride above 0, and a size that such windows come from";
                let got = format_args!("{}, stride {stride:?}, size {output_size:?}", self.ty());
                return Err(OpError::new(name, expected, got).into());
            };
            whole[i] = size;
        }
        let lead = &x.shape()[..2];
        let flat = |x: &Self| x.reshape([lead[0], lead[1], sizes.iter().product()]);
        let zeros = Self::zeros([lead[0], lead[1], whole.iter().product()], self.dtype())?;
        let indices = indices.with_batch(name, N)?.0;
        let operands = [&zeros, &flat(&indices)?, &flat(&x)?];
        let y = Self::apply(name, Custom::new(Placed), &operands)?;
        y.reshape(&[lead, &whole].concat()[..])?
            .without_batch(has_batch)
    }
}

/// Elements at places along dimension 2.
#[derive(PartialEq, Eq, Hash, Debug)]
struct Placed;

impl Composite for Placed {
    fn name(&self) -> &'static str {
        "max_unpool"
    }

    fn decompose(&self, g: &mut Graph, inputs: &[ValueId]) -> Result<Results, OpError> {
        let (dim, mode) = (2, ScatterMode::Set);
        let placed = g.push(Scatter { dim, mode }, inputs)?;
        Ok([placed].into_iter().collect())
    }

    fn vjp(&self, g: &mut Graph, node: &Differentiated) -> Result<Cotangents, OpError> {
        let ct = node.cotangent(g, 0)?;
        node.each(g, |g, i| match i {
            0 => g.zeros_like(ct),
            _ => g.push(Gather { dim: 2 }, &[ct, node.inputs[1]]),
        })
    }

    fn op_type(&self) -> Option<OpType> {
        None
    }
}
