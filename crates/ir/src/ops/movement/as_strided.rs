use smallvec::smallvec;

use crate::autodiff::{Cotangents, Differentiated};
use crate::case::{Case, CaseOperand};
use crate::ops::*;
use crate::{Graph, Layout, Named, OpDef, OpType, ResultTypes, Role, Scalar, Shape};

/// A storage `[n]` seen through any layout inside it: a strided tensor as a graph input.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct AsStrided {
    /// Layout of the elements in the storage.
    pub layout: Layout,
}

impl OpDef for AsStrided {
    fn op_type(&self) -> Option<OpType> {
        None
    }

    fn role(&self) -> Role {
        Role::View
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<ResultTypes, OpError> {
        let [storage] = operands(Self::NAME, inputs)?;
        require_scalar(Self::NAME, storage)?;
        let inside = storage.rank() == 1 && self.layout.end() <= storage.shape[0];
        let got = format_args!("{:?} of {storage}", self.layout);
        require(
            Self::NAME,
            inside,
            "a layout inside a storage of rank 1",
            got,
        )?;
        Ok(smallvec![TensorType::new(
            self.layout.shape.clone(),
            storage.dtype
        )])
    }

    fn view(&self, input: &Layout) -> Option<Layout> {
        (input.offset == 0 && input.is_contiguous()).then(|| self.layout.clone())
    }

    fn vjp(&self, g: &mut Graph, node: &Differentiated) -> Result<Cotangents, OpError> {
        let ct = node.cotangent(g, 0)?;
        let n = g.ty(node.inputs[0]).shape.clone();
        node.each(g, |g, _| {
            // The place of each element. An element that is shown several times gets the sum.
            let mut places = g.full(
                self.layout.shape.clone(),
                self.layout.offset as i64,
                DType::I64,
            )?;
            for (dim, &stride) in self.layout.strides.iter().enumerate() {
                let mut along: Shape = self.layout.shape.iter().map(|_| 1).collect();
                along.to_mut()[dim] = self.layout.shape[dim];
                let steps = Arange {
                    start: Scalar::Int(0),
                    step: Scalar::Int(stride as i64),
                    len: self.layout.shape[dim],
                    dtype: DType::I64,
                };
                let steps = g.push(steps, &[])?;
                let steps = g.reshape(steps, along)?;
                places = g.add(places, steps)?;
            }
            let elements = [self.layout.shape.elements()];
            let places = g.reshape(places, elements)?;
            let x = g.reshape(ct, elements)?;
            g.scatter_add(n.clone(), 0, places, x)
        })
    }
}

impl Named for AsStrided {
    const NAME: &'static str = "as_strided";

    fn cases() -> Vec<Case> {
        let window = Layout {
            shape: [3, 2].into(),
            strides: [1, 2].into_iter().collect(),
            offset: 1,
        };
        let case = |dtype| {
            let layout = window.clone();
            Case::new(Self { layout }, [CaseOperand::new([8], dtype)])
        };
        DType::SCALARS.into_iter().map(case).collect()
    }
}
