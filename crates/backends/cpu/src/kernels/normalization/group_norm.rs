//! Normalisation of groups of channels to mean 0 and variance 1.

use rustorch_ir::ops::GroupNorm;
use rustorch_ir::{Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts};

use super::layer_norm::{Affine, Normalization, normalize};
use crate::element::{Element, with_type};
use crate::kernel::{Args, Misuse};
use crate::launch::Launch;
use crate::math::Real;
use crate::reader::read_all;

pub(crate) const KERNEL: KernelEntry<Launch> = KernelEntry {
    kind: OpKind::GroupNorm,
    accepts,
    layouts: Layouts::Any,
    launch: Launch::Whole(launch),
};

fn accepts(_: &Signature) -> bool {
    true
}

fn launch(mut args: Args) -> Result<(), Misuse> {
    let Op::GroupNorm(op) = args.op else {
        return Err(Misuse("not a group_norm".to_owned()));
    };
    with_type!(args.output.dtype(), floats T => {
        group_norm::<T>(&mut args, op);
        Ok(())
    })
}

fn group_norm<T: Element<Compute: Real>>(args: &mut Args, op: &GroupNorm) {
    let shape = args.inputs[0].shape();
    let (channels, pixels) = (shape[1], shape[2..].iter().product::<usize>());
    let each = channels / op.groups;
    let weight = args.inputs.get(1).map(read_all::<T>);
    let bias = args.inputs.get(2).map(read_all::<T>);
    let normalization = Normalization {
        len: each * pixels,
        eps: op.eps.0,
    };
    normalize::<T>(args, &normalization, |line| {
        let first = line % op.groups * each;
        let of_group = first..first + each;
        Affine {
            weight: weight.as_ref().map(|weight| &weight[of_group.clone()]),
            bias: bias.as_ref().map(|bias| &bias[of_group]),
            each: pixels,
        }
    });
}
