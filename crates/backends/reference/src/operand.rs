//! Operands of kernels.

use std::rc::Rc;

use rustorch_ir::{DType, Layout, Shape, TensorType};

use crate::Values;

/// An operand of a node.
pub(crate) struct Operand<'a> {
    /// Its type.
    pub(crate) ty: &'a TensorType,
    /// Its elements, in row-major order.
    pub(crate) values: Rc<Values>,
}

impl Operand<'_> {
    /// Type of the elements.
    pub(crate) fn dtype(&self) -> DType {
        self.ty.dtype
    }

    /// Sizes of the dimensions.
    pub(crate) fn shape(&self) -> &Shape {
        &self.ty.shape
    }

    /// Places of the elements in `values`.
    pub(crate) fn layout(&self) -> Layout {
        Layout::contiguous(self.shape())
    }

    /// The elements in the order of a view of them.
    pub(crate) fn seen(&self, view: &Layout) -> Rc<Values> {
        let all = view.offset == 0 && view.elements() == self.shape().elements();
        if all && view.is_contiguous() {
            return self.values.clone();
        }
        Rc::new(self.values.take(view.positions()))
    }

    /// The elements broadcast to `shape`.
    pub(crate) fn broadcast(&self, shape: &Shape) -> Rc<Values> {
        self.seen(&self.layout().broadcast_to(shape))
    }

    /// The elements with the dimensions `dims` moved behind the others.
    pub(crate) fn with_last(&self, dims: &[usize]) -> Rc<Values> {
        let others = (0..self.ty.rank()).filter(|d| !dims.contains(d));
        let order: Vec<usize> = others.chain(dims.iter().copied()).collect();
        self.seen(&self.layout().permute(&order))
    }
}

/// Undoes [`Operand::with_last`] for one dimension of a tensor of `shape`.
pub(crate) fn from_last(values: &Values, shape: &Shape, dim: usize) -> Values {
    let last = shape.len() - 1;
    let others = (0..=last).filter(|&d| d != dim);
    let moved: Shape = others.chain([dim]).map(|d| shape[d]).collect();
    let back: Vec<usize> = (0..=last)
        .map(|d| match d {
            d if d < dim => d,
            d if d == dim => last,
            d => d - 1,
        })
        .collect();
    values.take(Layout::contiguous(&moved).permute(&back).positions())
}

/// A node's operands and the types of its results.
pub(crate) struct Call<'a> {
    /// The operands.
    pub(crate) inputs: &'a [Operand<'a>],
    /// Types of the results.
    pub(crate) outputs: &'a [TensorType],
}

impl Call<'_> {
    /// Type of the first result.
    pub(crate) fn output(&self) -> &TensorType {
        &self.outputs[0]
    }
}

/// A caller's mistake that shows only in the data.
pub(crate) struct Misuse(pub(crate) String);
