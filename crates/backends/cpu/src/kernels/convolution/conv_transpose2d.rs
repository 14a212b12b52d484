//! Transposed convolution. In single precision it is a convolution for each phase of the result
//! ([`crate::convolution`]). Else it is products of the weights with all channels of the operand, for each
//! channel of the result. They are spread to their windows.

use std::any::TypeId;
use std::ops::AddAssign;

use bytemuck::{cast_slice, cast_slice_mut};
use num_traits::{One, Zero};
use rustorch_ir::ops::ConvTranspose2d;
use rustorch_ir::{Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts};

use crate::convolution::{Convolution, Phases, Weights};
use crate::element::{Element, with_type};
use crate::kernel::{Args, Misuse, for_rows};
use crate::launch::Launch;
use crate::product::{Matrix, multiply};
use crate::reader::{Reader, read_all};
use crate::window::Side;

pub(crate) const KERNEL: KernelEntry<Launch> = KernelEntry {
    kind: OpKind::ConvTranspose2d,
    accepts,
    layouts: Layouts::Any,
    launch: Launch::Whole(launch),
};

fn accepts(s: &Signature) -> bool {
    matches!(s.op, Op::ConvTranspose2d(op) if !op.stride.contains(&0))
}

fn launch(mut args: Args) -> Result<(), Misuse> {
    let Op::ConvTranspose2d(op) = args.op else {
        return Err(Misuse("not a conv_transpose2d".to_owned()));
    };
    with_type!(args.output.dtype(), floats T => {
        conv_transpose2d::<T>(&mut args, op);
        Ok(())
    })
}

fn conv_transpose2d<T>(args: &mut Args, op: &ConvTranspose2d)
where
    T: Element<Compute: Zero + One + AddAssign>,
{
    let (x, weight, pool) = (&args.inputs[0], &args.inputs[1], args.pool);
    let (from, to) = (x.shape(), args.output.ty.shape.clone());
    let &[outputs, kh, kw] = &weight.shape()[1..] else {
        return;
    };
    // Elements of the operand are where windows of the result would be.
    let side = |i: usize| Side {
        size: to[2 + i],
        count: from[2 + i],
        stride: op.stride[i],
        padding: op.padding[i],
        dilation: op.dilation[i],
    };
    let sides = [side(0), side(1)];
    let bias = args.inputs.get(2).map(read_all::<T>);
    let mut x = Reader::<T>::whole(x);
    let x = x.all();
    let mut weight = Reader::<T>::whole(weight);
    let (kernel, channels) = (kh * kw, from[1] / op.groups);
    let weight = weight.all();
    let (plane, pixels) = (to[2] * to[3], from[2] * from[3]);

    let is_single = TypeId::of::<T::Compute>() == TypeId::of::<f32>();
    let strides = [0, 1].map(|i| if is_single { op.stride[i] } else { 0 });
    let phases = (0..strides[0]).flat_map(|i| (0..strides[1]).map(move |j| [i, j]));
    let convolution = |[i, j]: [usize; 2]| Convolution {
        sides: [
            Phases::of_spread(sides[0], kh, i),
            Phases::of_spread(sides[1], kw, j),
        ],
        channels,
        outputs,
        groups: op.groups,
        x: cast_slice(x),
        weight: Weights {
            data: cast_slice(weight),
            strides: [channels * outputs * kernel, kernel, outputs * kernel],
            width: kw,
        },
        bias: bias.as_deref().map(cast_slice),
        result: [to[2], to[3]],
    };
    let convolutions: Vec<Convolution> = phases.map(convolution).collect();

    T::write(args.output.data::<T>(), &mut Vec::new(), |out| {
        if is_single && convolutions.iter().all(|c| c.pays(out.len())) {
            let out = cast_slice_mut(out);
            return convolutions.iter().for_each(|c| c.run(pool, out));
        }
        let work = kernel * channels * pixels;
        for_rows(pool, out, plane, work, |first, part| {
            let mut products = vec![T::Compute::zero(); kernel * pixels];
            for (index, out) in (first..).zip(part.chunks_exact_mut(plane)) {
                let (image, channel) = (index / to[1], index % to[1]);
                let group = channel / outputs;
                let input = group * channels;
                // Rows are the elements of a window, columns the channels of the operand.
                let weight = Matrix {
                    data: &weight[(input * outputs + channel % outputs) * kernel..],
                    strides: [1, outputs * kernel],
                };
                let x = Matrix {
                    data: &x[(image * from[1] + input) * pixels..],
                    strides: [pixels, 1],
                };
                let sizes = [kernel, channels, pixels];
                // SAFETY: the products are of this size and only this thread's.
                unsafe { multiply(sizes, weight, x, products.as_mut_ptr(), pixels) };
                out.fill(bias.as_ref().map_or(T::Compute::zero(), |b| b[channel]));
                for (element, products) in products.chunks_exact(pixels).enumerate() {
                    spread(products, sides, [element / kw, element % kw], out);
                }
            }
        });
    });
}

/// Adds the products for one element of the windows to their places.
fn spread<T: Copy + AddAssign>(x: &[T], sides: [Side; 2], [i, j]: [usize; 2], out: &mut [T]) {
    let [down, across] = sides;
    let inside = across.windows(j);
    if inside.is_empty() {
        return;
    }
    for y in down.windows(i) {
        let first = down.at(y, i) * across.size + across.at(inside.start, j);
        let out = out[first..].iter_mut().step_by(across.stride);
        let x = &x[y * across.count..][inside.clone()];
        out.zip(x).for_each(|(out, x)| *out += *x);
    }
}
