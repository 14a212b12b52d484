//! Transposed convolutions as convolutions: one for the pixels of the result that lie a stride
//! apart, which the same elements of windows reach.

use rustorch_ir::ops::ConvTranspose2d;
use rustorch_ir::{Layout, Op, Signature, TensorType};
use rustorch_runtime::{Place, Step};

use super::conv2d::{Convolution, Images, Sharing, has_numbers};
use crate::emit::Emitter;
use crate::ops::views::{WIDEST, for_each};
use crate::ops::windows::Windows;

/// Returns whether this transposed convolution is one of those.
pub(crate) fn accepts(s: &Signature) -> bool {
    matches!(s.op, Op::ConvTranspose2d(op) if op.groups == 1) && has_numbers(s)
}

/// Appends its launches.
pub(crate) fn emit(step: &Step, emitter: &mut Emitter) {
    let Op::ConvTranspose2d(op) = &step.last().op else {
        return;
    };
    let operands: Vec<&Place> = step.inputs.iter().collect();
    spread(op, &operands, step.output(), emitter);
}

/// Appends the launches of the transposed convolution of an operand by a weight and perhaps a bias.
pub(crate) fn spread(op: &ConvTranspose2d, operands: &[&Place], y: &Place, emitter: &mut Emitter) {
    let (w, bias) = (operands[1], operands.get(2).copied());
    let [rows, columns] = [0, 1].map(|i| Phase::all(op, i, w.ty.shape[2 + i], y.ty.shape[2 + i]));
    if rows.iter().chain(&columns).any(|phase| phase.taps == 0) {
        fill(y, bias, emitter);
    }
    let images = Images::new(operands[0], Sharing::NONE, emitter);
    for row in &rows {
        for column in columns.iter().filter(|column| row.taps * column.taps > 0) {
            let seen = w.layout.permute(&[1, 0, 2, 3]);
            let seen = seen.slice(2, row.tap, row.taps, row.tap_step);
            let seen = seen.slice(3, column.tap, column.taps, column.tap_step);
            let pixels = y.layout.slice(2, row.first, row.count, op.stride[0]);
            let pixels = pixels.slice(3, column.first, column.count, op.stride[1]);
            let convolution = Convolution {
                windows: Windows {
                    kernel_size: [row.taps, column.taps],
                    stride: [1; 2],
                    padding: [row.padding, column.padding],
                    dilation: [row.dilation, column.dilation],
                },
                w: &view(w, seen),
                bias,
                y: &view(y, pixels),
            };
            convolution.emit(&images, emitter);
        }
    }
}

/// The pixels of one side of the result that lie a stride apart. Also the elements of windows that
/// reach them.
struct Phase {
    /// The first pixel, and how many there are.
    first: usize,
    count: usize,
    /// The first element of windows, the distance to the next, and how many there are.
    tap: usize,
    tap_step: usize,
    taps: usize,
    /// Padding of the equivalent convolution, modulo 2³²: each element sees a pixel of the operand
    /// before that of the one before it.
    padding: usize,
    dilation: usize,
}

impl Phase {
    /// The phases of side `i` of a result of `size` pixels, for windows of `kernel` elements.
    fn all(op: &ConvTranspose2d, i: usize, kernel: usize, size: usize) -> Vec<Self> {
        let (stride, dilation) = (op.stride[i], op.dilation[i]);
        let of_first = |first: usize| {
            // The windows that begin a whole number of strides before the pixel.
            let place = first + op.padding[i];
            let taps = (0..kernel).filter(|tap| tap * dilation % stride == place % stride);
            let taps: Vec<usize> = taps.collect();
            let tap = taps.first().copied().unwrap_or(0);
            let tap_step = taps.get(1).map_or(1, |next| next - tap);
            Self {
                first,
                count: (size - first).div_ceil(stride),
                tap,
                tap_step,
                taps: taps.len(),
                padding: (tap * dilation / stride).wrapping_sub(place / stride),
                dilation: (tap_step * dilation / stride).wrapping_neg(),
            }
        };
        (0..stride.min(size)).map(of_first).collect()
    }
}

/// Elements of a tensor.
fn view(place: &Place, layout: Layout) -> Place {
    Place {
        slot: place.slot,
        ty: TensorType::new(layout.shape.clone(), place.ty.dtype),
        layout,
    }
}

/// Appends the launch that fills `y` with the bias, or zeros, for pixels that no element of a
/// window reaches.
fn fill(y: &Place, bias: Option<&Place>, emitter: &mut Emitter) {
    let text = include_str!("../../../kernels/cuda/fill_channels.cu");
    let strides = &y.layout.strides;
    let mut order = [0, 1, 2, 3];
    order.sort_by_key(|&d| std::cmp::Reverse(strides[d]));
    let count = y.ty.shape.elements();
    let wide = y.ty.dtype.size().map_or(1, |size| WIDEST / size);
    let are_zeros = bias.is_none()
        && y.layout.permute(&order).is_contiguous()
        && [count, y.layout.offset]
            .iter()
            .all(|n| n.is_multiple_of(wide));
    let items = if are_zeros { count / wide } else { count };
    let mut kernel = for_each("fill_channels", text, items);
    kernel.define_dtype("Y", y.ty.dtype);
    kernel.define("ARE_ZEROS", u8::from(are_zeros));
    kernel.write("y", y);
    let channels = order.iter().position(|&d| d == 1).unwrap_or(1);
    kernel.define("CHANNELS", channels);
    kernel.words("shape", &order.map(|d| y.ty.shape[d]));
    kernel.words("strides", &order.map(|d| strides[d]));
    let value = bias.map_or("0".to_owned(), |place| {
        kernel.read("bias", place);
        kernel.word("bias_stride", place.layout.strides[0]);
        "LOAD(Y, bias, (i) * p.bias_stride)".to_owned()
    });
    kernel.define("BIAS(i)", value);
    emitter.launch(kernel);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The view of `kernels/cuda/gemm.cu` on a phase. Each entry has a pixel of the result, an
    /// element of windows, and a pixel of the operand. The operand has `count` pixels.
    fn seen(phase: &Phase, stride: usize, count: usize) -> Vec<[usize; 3]> {
        let mut seen = Vec::new();
        for at in 0..phase.count as u32 {
            for tap in 0..phase.taps as u32 {
                let begin = at.wrapping_sub(phase.padding as u32);
                let from = begin.wrapping_add(tap.wrapping_mul(phase.dilation as u32)) as usize;
                if from < count {
                    let pixel = phase.first + at as usize * stride;
                    seen.push([pixel, phase.tap + tap as usize * phase.tap_step, from]);
                }
            }
        }
        seen
    }

    #[test]
    fn phases_see_what_is_spread() {
        let sides = [1, 2, 3, 4].map(|stride| [1, 2, 3, 4, 6].map(|dilation| [stride, dilation]));
        for [stride, dilation] in sides.into_iter().flatten() {
            for (kernel, padding) in (1..8).flat_map(|kernel| [0, 1, 3].map(|p| (kernel, p))) {
                for (count, rest) in [(1, 0), (5, 0), (6, stride.max(dilation) - 1)] {
                    let reach: usize = (count - 1) * stride + dilation * (kernel - 1) + rest + 1;
                    let Some(size) = reach.checked_sub(2 * padding).filter(|&size| size > 0) else {
                        continue;
                    };
                    let op = ConvTranspose2d {
                        stride: [stride; 2],
                        padding: [padding; 2],
                        dilation: [dilation; 2],
                        ..ConvTranspose2d::default()
                    };
                    let phases = Phase::all(&op, 0, kernel, size);
                    let pixels = phases.iter().map(|phase| phase.count).sum::<usize>();
                    assert_eq!(pixels, size, "{op:?}");
                    let mut seen: Vec<_> = (phases.iter())
                        .flat_map(|phase| seen(phase, stride, count))
                        .collect();
                    seen.sort_unstable();
                    let mut spread = Vec::new();
                    for (from, tap) in (0..count).flat_map(|f| (0..kernel).map(move |t| (f, t))) {
                        let place = from * stride + tap * dilation;
                        if (padding..padding + size).contains(&place) {
                            spread.push([place - padding, tap, from]);
                        }
                    }
                    spread.sort_unstable();
                    assert_eq!(seen, spread, "{op:?}, {kernel} elements");
                }
            }
        }
    }
}
