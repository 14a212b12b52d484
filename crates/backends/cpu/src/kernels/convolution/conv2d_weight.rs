//! The gradient of a convolution's weights, in single precision.

use rustorch_ir::ops::Conv2dWeight;
use rustorch_ir::{DType, Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts};

use crate::convolution::{Phases, WeightGradient};
use crate::element::{Element, with_type};
use crate::kernel::{Args, Misuse};
use crate::launch::Launch;
use crate::reader::Reader;
use crate::window::Side;

pub(crate) const KERNEL: KernelEntry<Launch> = KernelEntry {
    kind: OpKind::Conv2dWeight,
    accepts,
    layouts: Layouts::Any,
    launch: Launch::Whole(launch),
};

fn accepts(s: &Signature) -> bool {
    s.inputs[0].dtype != DType::F64
}

fn launch(mut args: Args) -> Result<(), Misuse> {
    let Op::Conv2dWeight(op) = args.op else {
        return Err(Misuse("not a conv2d_weight".to_owned()));
    };
    with_type!(args.output.dtype(), singles T => {
        conv2d_weight::<T>(&mut args, op);
        Ok(())
    })
}

fn conv2d_weight<T: Element<Compute = f32>>(args: &mut Args, op: &Conv2dWeight) {
    let [x, gradient] = [&args.inputs[0], &args.inputs[1]];
    let (from, to) = (x.shape(), gradient.shape());
    let conv = &op.conv;
    let sides = [0, 1].map(|i| {
        let side = Side {
            size: from[2 + i],
            count: to[2 + i],
            stride: conv.stride[i],
            padding: conv.padding[i],
            dilation: conv.dilation[i],
        };
        Phases::of_windows(side, op.kernel[i])
    });
    let (channels, outputs) = (from[1] / conv.groups, to[1] / conv.groups);
    let images = from[0];
    let (mut x, mut gradient) = (Reader::<T>::whole(x), Reader::<T>::whole(gradient));
    let gradient = WeightGradient {
        sides,
        channels,
        outputs,
        groups: conv.groups,
        x: x.all(),
        images,
        gradient: gradient.all(),
    };
    T::write(args.output.data::<T>(), &mut Vec::new(), |out| {
        gradient.run(args.pool, out);
    });
}
