//! The rules of the Mac's hybrid: Core ML and Metal share the work by their strengths.

use rustorch_ir::OpKind;

use super::{DeviceSelector, Offer, Subject, coreml_takes, is_coreml, put_first, sort_by_time};
use crate::devices::placement::{Chain, Reason};
use crate::{DeviceInfo, DeviceType, OpType, Routing};

/// The device that operations of a kind go to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    CoreMl,
    Metal,
}

/// The rules' device for an operation, whatever its operands are; `None` of one that goes where its first
/// operand is computed.
fn side(subject: &Subject) -> Option<Side> {
    match subject.op_type {
        _ if subject.kind.is_some_and(OpKind::is_rms_norm) => Some(Side::Metal),
        Some(OpType::LinearAlgebra) => Some(Side::Metal),
        Some(OpType::Convolution | OpType::Activation) => Some(Side::CoreMl),
        _ => None,
    }
}

/// Does an operation go where its first operand is computed?
pub(super) fn follows(subject: &Subject) -> bool {
    side(subject).is_none()
}

/// Sorts devices that are in the platform's order.
///
/// | graph | operation | order |
/// | --- | --- | --- |
/// | below the strategy's threshold | | CPU, then the chain |
/// | up to [`DeviceSelector::large_bytes`] | convolution, activation and other functions of elements | Core ML, Metal, then the chain |
/// | | product, RMSNorm | Metal, Core ML, then the chain |
/// | | all else | where its first operand is computed, else as products |
/// | above | | GPUs, then the chain |
///
/// If both were measured, the expected times of the graph, or its segments, decide.
pub(super) fn sort(
    selector: &DeviceSelector,
    offer: &mut Offer,
    routing: Routing,
    subject: &Subject,
    all: &Chain,
) {
    let device = |id| all.info(id).device;
    let is_coreml = |id| is_coreml(device(id));
    let is_metal = |id| matches!(device(id), DeviceType::Metal(_));
    (offer.ids).retain(|&mut id| !is_coreml(id) || coreml_takes(subject));
    let side = side(subject);
    if side == Some(Side::CoreMl) {
        put_first(&mut offer.ids, &is_metal);
        put_first(&mut offer.ids, &is_coreml);
    } else {
        put_first(&mut offer.ids, &is_coreml);
        put_first(&mut offer.ids, &is_metal);
    }
    offer.reason = match side {
        Some(Side::CoreMl) => Reason::Rule("mac hybrid: convolutions and activations"),
        Some(Side::Metal) => Reason::Rule("mac hybrid: products and RMSNorm"),
        None => Reason::Policy("mac hybrid: where products are"),
    };
    selector.sort_by_size(offer, routing, subject, all);
    if selector.compares {
        sort_by_time(offer, routing, subject, all);
    }
}

/// Returns whether it is one of those whose times are compared.
pub(super) fn compares(info: &DeviceInfo) -> bool {
    is_coreml(info.device) || matches!(info.device, DeviceType::Metal(_))
}
