//! Convolution: of single precision as [`crate::convolution`] does it, else as a matrix product
//! with the windows as columns, tile by tile.

use std::any::TypeId;
use std::ops::{AddAssign, Range};

use bytemuck::{cast_slice, cast_slice_mut};
use num_traits::{One, Zero};
use rustorch_ir::ops::Conv2d;
use rustorch_ir::{Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts};

use crate::convolution::{Convolution, Phases, Weights};
use crate::element::{Element, with_type};
use crate::kernel::{Args, Misuse, SharedMut};
use crate::launch::Launch;
use crate::product::{Matrix, for_tiles, multiply};
use crate::reader::{Reader, read_all};
use crate::window::Side;

pub(crate) const KERNEL: KernelEntry<Launch> = KernelEntry {
    kind: OpKind::Conv2d,
    accepts,
    layouts: Layouts::Any,
    launch: Launch::Whole(launch),
};

fn accepts(_: &Signature) -> bool {
    true
}

fn launch(mut args: Args) -> Result<(), Misuse> {
    let Op::Conv2d(op) = args.op else {
        return Err(Misuse("not a conv2d".to_owned()));
    };
    with_type!(args.output.dtype(), floats T => {
        conv2d::<T>(&mut args, op);
        Ok(())
    })
}

fn conv2d<T>(args: &mut Args, op: &Conv2d)
where
    T: Element<Compute: Zero + One + AddAssign>,
{
    let (x, weight, pool) = (&args.inputs[0], &args.inputs[1], args.pool);
    let (from, to) = (x.shape(), args.output.ty.shape.clone());
    let &[channels, kh, kw] = &weight.shape()[1..] else {
        return;
    };
    let side = |i: usize| Side {
        size: from[2 + i],
        count: to[2 + i],
        stride: op.stride[i],
        padding: op.padding[i],
        dilation: op.dilation[i],
    };
    let windows = Windows {
        sides: [side(0), side(1)],
        kernel: [kh, kw],
    };
    let bias = args.inputs.get(2).map(read_all::<T>);
    let mut x = Reader::<T>::whole(x);
    let x = x.all();
    let mut weight = Reader::<T>::whole(weight);
    let (outputs, inner) = (to[1] / op.groups, channels * kh * kw);
    let weight = weight.all();
    let (pixels, image) = (to[2] * to[3], channels * from[2] * from[3]);
    let sizes = [outputs, inner, pixels];
    let is_single = TypeId::of::<T::Compute>() == TypeId::of::<f32>();
    let convolution = (is_single && !windows.are_pixels()).then(|| Convolution {
        sides: [0, 1].map(|i| Phases::of_windows(side(i), windows.kernel[i])),
        channels,
        outputs,
        groups: op.groups,
        x: cast_slice(x),
        weight: Weights {
            data: cast_slice(weight),
            strides: [outputs * inner, inner, kh * kw],
            width: kw,
        },
        bias: bias.as_deref().map(cast_slice),
        result: [to[2], to[3]],
    });

    T::write(args.output.data::<T>(), &mut Vec::new(), |out| {
        if let Some(convolution) = convolution.filter(|c| c.pays(out.len())) {
            return convolution.run(pool, cast_slice_mut(out));
        }
        let out = SharedMut::new(out);
        for_tiles(pool, to[0] * op.groups, sizes, |batch, rows, columns| {
            let x = &x[batch * image..][..image];
            let first = batch % op.groups * outputs + rows.start;
            let weight = Matrix {
                data: &weight[first * inner..],
                strides: [inner, 1],
            };
            let mut seen = Vec::new();
            let windows = windows.columns(x, columns.clone(), &mut seen);
            let sizes = [rows.len(), inner, columns.len()];
            let start = (batch * outputs + rows.start) * pixels + columns.start;
            // SAFETY: tiles lie within the result, which nothing else uses, and are
            // disjoint.
            unsafe { multiply(sizes, weight, windows, out.at(start), pixels) };
            let Some(bias) = &bias else { return };
            for (row, &bias) in bias[first..][..rows.len()].iter().enumerate() {
                // SAFETY: a row of the same tile.
                let row = unsafe { out.range(start + row * pixels, columns.len()) };
                row.iter_mut().for_each(|y| *y += bias);
            }
        });
    });
}

/// The windows of an image.
struct Windows {
    sides: [Side; 2],
    kernel: [usize; 2],
}

impl Windows {
    /// Is each window one pixel, and each pixel a window?
    fn are_pixels(&self) -> bool {
        let single = |s: &Side| s.stride == 1 && s.padding == 0;
        self.kernel == [1, 1] && self.sides.iter().all(single)
    }

    /// A matrix whose columns are the windows with numbers `columns`: a row for each
    /// channel of the image `x` and element of a window.
    fn columns<'a, T: Element>(
        &self,
        x: &'a [T],
        columns: Range<usize>,
        buffer: &'a mut Vec<T>,
    ) -> Matrix<'a, T> {
        let [down, across] = self.sides;
        if self.are_pixels() {
            let whole = Matrix {
                data: x,
                strides: [down.size * across.size, 1],
            };
            return whole.from(0, columns.start);
        }
        let elements = self.kernel[0] * self.kernel[1];
        let rows = x.len() / (down.size * across.size).max(1) * elements;
        let width = columns.len();
        buffer.resize(rows * width, T::zeroed());
        for (row, out) in buffer.chunks_exact_mut(width).enumerate() {
            let (channel, element) = (row / elements, row % elements);
            let (i, j) = (element / self.kernel[1], element % self.kernel[1]);
            let (inside_down, inside_across) = (down.windows(i), across.windows(j));
            // Pixels of one row of the result at a time.
            let mut pixel = columns.start;
            while pixel < columns.end {
                let (y, from) = (pixel / across.count, pixel % across.count);
                let to = across.count.min(from + columns.end - pixel);
                let inside = inside_across.start.max(from)..inside_across.end.min(to);
                if inside_down.contains(&y) && !inside.is_empty() {
                    let line = channel * down.size + down.at(y, i);
                    let first = line * across.size + across.at(inside.start, j);
                    let line = x[first..].iter().step_by(across.stride);
                    let start = pixel - columns.start + inside.start - from;
                    let out = &mut out[start..][..inside.len()];
                    out.iter_mut().zip(line).for_each(|(out, x)| *out = *x);
                }
                pixel += to - from;
            }
        }
        Matrix {
            data: buffer,
            strides: [width, 1],
        }
    }
}
