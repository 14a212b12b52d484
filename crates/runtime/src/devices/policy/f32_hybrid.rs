//! The rules of the f32 hybrid: one element type on all devices, so that operations can be
//! spread over them without a conversion.

use rustorch_ir::OpKind;

use super::{Offer, Subject, coreml_takes, is_coreml, put_first};
use crate::devices::placement::{Chain, Reason};
use crate::{DeviceType, OpType};

/// Elements of its largest operand or result above which a product goes to a GPU.
pub(super) const LARGE_PRODUCT: usize = 10_000;

/// Sorts devices that are in the platform's order.
///
/// | operation | order |
/// | --- | --- |
/// | product above [`LARGE_PRODUCT`] elements; state, which products read | GPUs, then the chain |
/// | convolution, activation | Core ML, GPUs, then the chain |
/// | all else | CPU, then the chain |
///
/// Metal is the first of the GPUs. Without one, the processor through another driver counts as one. So there
/// is a hybrid wherever there are two devices.
pub(super) fn sort(offer: &mut Offer, subject: &Subject, all: &Chain) {
    let device = |id| all.info(id).device;
    let is_coreml = |id| is_coreml(device(id));
    let is_gpu =
        |id| !is_coreml(id) && !matches!(device(id), DeviceType::Cpu | DeviceType::Reference);
    offer
        .ids
        .retain(|&mut id| !is_coreml(id) || coreml_takes(subject));
    match subject.op_type {
        _ if subject.kind == Some(OpKind::UpdateSlice) => {
            offer.reason = Reason::Rule("f32 hybrid: state stays where products read it");
            put_first(&mut offer.ids, &is_gpu);
        }
        Some(OpType::LinearAlgebra) if subject.elements > LARGE_PRODUCT => {
            offer.reason = Reason::Rule("f32 hybrid: a product above 10 000 elements");
            put_first(&mut offer.ids, &is_gpu);
        }
        Some(OpType::Convolution | OpType::Activation) => {
            offer.reason = Reason::Rule("f32 hybrid: convolutions and activations");
            put_first(&mut offer.ids, &is_gpu);
            put_first(&mut offer.ids, &is_coreml);
        }
        _ => {
            offer.reason = Reason::Policy("f32 hybrid: everything else runs on the CPU");
            put_first(&mut offer.ids, &|id| device(id) == DeviceType::Cpu);
        }
    }
}
