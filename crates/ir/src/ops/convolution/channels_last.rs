use crate::case::Case;
use crate::ops::*;
use crate::{Graph, Named, Op, OpDef, OpKind, OpType, ResultTypes, Results, Signature, ValueId};

/// An operation on images whose channels are last: `[n, h, w, c]` in place of `[n, c, h, w]`.
///
/// Operands and results are those of the operation, but that [images](ChannelsLast::is_image) among
/// them are so. Devices with faster kernels for this layout have one for it;
/// [`crate::passes::ChannelsLastImages`] replaces the operation.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ChannelsLast {
    /// The operation.
    pub op: Box<Op>,
}

impl ChannelsLast {
    /// For each dimension of images with their channels last, which one it is of others; and the other way round.
    pub const ORDER: [usize; 4] = [0, 2, 3, 1];
    /// See [`Self::ORDER`].
    pub const BACK: [usize; 4] = [0, 3, 1, 2];

    /// Returns whether operand `i`, of a type, is an image. Weights of convolutions are none.
    pub fn is_image(op: &Op, i: usize, ty: &TensorType) -> bool {
        let is_weight = i == 1 && matches!(op, Op::Conv2d(_) | Op::ConvTranspose2d(_));
        ty.rank() == 4 && !is_weight
    }

    /// Returns whether a result of a type is an image.
    pub fn gives_image(op: &Op, ty: &TensorType) -> bool {
        ty.rank() == 4 && !matches!(op, Op::Conv2dWeight(_))
    }

    fn permuted(ty: &TensorType, order: [usize; 4]) -> TensorType {
        TensorType::new(order.map(|d| ty.shape[d]), ty.dtype)
    }

    /// The operands' types as the operation has them.
    fn inner(&self, inputs: &[&TensorType]) -> Vec<TensorType> {
        let inner = |(i, ty): (usize, &&TensorType)| match Self::is_image(&self.op, i, ty) {
            true => Self::permuted(ty, Self::BACK),
            false => (*ty).clone(),
        };
        inputs.iter().enumerate().map(inner).collect()
    }
}

impl OpDef for ChannelsLast {
    fn op_type(&self) -> Option<OpType> {
        self.op.def().op_type()
    }

    fn function(&self) -> Option<&'static str> {
        Some(self.op.function())
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<ResultTypes, OpError> {
        let inner = self.inner(inputs);
        let inner: Vec<&TensorType> = inner.iter().collect();
        let mut results = self.op.def().infer(&inner)?;
        for ty in &mut results {
            if Self::gives_image(&self.op, ty) {
                *ty = Self::permuted(ty, Self::ORDER);
            }
        }
        Ok(results)
    }

    fn macs(&self, s: &Signature) -> usize {
        let inner = self.inner(s.inputs);
        let inputs: Vec<&TensorType> = inner.iter().collect();
        let outputs = self.op.def().infer(&inputs).unwrap_or_default();
        let signature = Signature {
            op: &self.op,
            inputs: &inputs,
            outputs: &outputs,
        };
        match outputs.is_empty() {
            true => 0,
            false => self.op.def().macs(&signature),
        }
    }

    fn is_composite(&self) -> bool {
        true
    }

    fn replaces(&self) -> Vec<OpKind> {
        vec![self.op.kind()]
    }

    fn decompose(&self, g: &mut Graph, inputs: &[ValueId]) -> Result<Results, OpError> {
        let mut inner = Vec::with_capacity(inputs.len());
        for (i, &input) in inputs.iter().enumerate() {
            inner.push(match Self::is_image(&self.op, i, g.ty(input)) {
                true => g.permute(input, &Self::BACK)?,
                false => input,
            });
        }
        let first = g.push((*self.op).clone(), &inner)?;
        let mut results = g.results(first);
        for result in &mut results {
            if Self::gives_image(&self.op, g.ty(*result)) {
                *result = g.permute(*result, &Self::ORDER)?;
            }
        }
        Ok(results)
    }
}

impl Named for ChannelsLast {
    const NAME: &'static str = "channels_last";

    /// The cases on images, of the operations on images.
    fn cases() -> Vec<Case> {
        let kinds = [
            OpKind::Conv2d,
            OpKind::ConvTranspose2d,
            OpKind::Conv2dWeight,
            OpKind::BatchNormTrain,
            OpKind::BatchNormBackward,
            OpKind::Pool2d,
            OpKind::MaxPool2dBackward,
        ];
        let cases = kinds.into_iter().flat_map(OpKind::cases);
        let last = |mut case: Case| {
            let mut has_image = false;
            for (i, operand) in case.inputs.iter_mut().enumerate() {
                if Self::is_image(&case.op, i, &operand.ty) {
                    has_image = true;
                    operand.ty = Self::permuted(&operand.ty, Self::ORDER);
                }
            }
            let op = Box::new(case.op);
            case.op = Self { op }.into();
            has_image.then_some(case)
        };
        cases.filter_map(last).collect()
    }
}
