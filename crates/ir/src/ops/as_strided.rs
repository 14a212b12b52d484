use smallvec::smallvec;

use super::*;
use crate::case::{Case, Operand};
use crate::{Layout, Named, OpDef, OpType, ResultTypes, Role};

/// A storage `[n]` seen through any layout inside it: how a strided tensor enters a graph.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct AsStrided {
    /// Where the elements lie in the storage.
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
            Case::new(Self { layout }, [Operand::new([8], dtype)])
        };
        DType::SCALARS.into_iter().map(case).collect()
    }
}
