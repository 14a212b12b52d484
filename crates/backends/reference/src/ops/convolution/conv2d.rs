use rustorch_ir::ops::Conv2d;

use crate::Values;
use crate::operand::{Call, Misuse};
use crate::values::Element;

pub(crate) fn evaluate(op: &Conv2d, call: &Call) -> Result<Values, Misuse> {
    let (x, w) = (&call.inputs[0], &call.inputs[1]);
    let [_, channels, height, width] = sizes(x.shape());
    let [_, group_channels, kernel_h, kernel_w] = sizes(w.shape());
    let [batch, out_channels, out_h, out_w] = sizes(&call.output().shape);
    let (x, w) = (f64::of(&x.values), f64::of(&w.values));
    let bias = call.inputs.get(2).map(|bias| f64::of(&bias.values));
    let steps = |side| [op.stride[side], op.dilation[side], op.padding[side]];
    let rows = windows(out_h, kernel_h, height, steps(0));
    let columns = windows(out_w, kernel_w, width, steps(1));
    let mut out = Vec::with_capacity(batch * out_channels * out_h * out_w);
    for n in 0..batch {
        for o in 0..out_channels {
            let first_channel = o / (out_channels / op.groups) * group_channels;
            for rows in &rows {
                for columns in &columns {
                    let mut sum = bias.map_or(0.0, |bias| bias[o]);
                    for c in 0..group_channels {
                        let x = &x[(n * channels + first_channel + c) * height * width..];
                        let w = &w[(o * group_channels + c) * kernel_h * kernel_w..];
                        for &(i, row) in rows {
                            for &(j, column) in columns {
                                sum += x[row * width + column] * w[i * kernel_w + j];
                            }
                        }
                    }
                    out.push(sum);
                }
            }
        }
    }
    Ok(Values::Float(out))
}

/// The four sizes of a tensor of rank 4.
pub(crate) fn sizes(shape: &[usize]) -> [usize; 4] {
    shape.try_into().expect("inference admits only rank 4")
}

/// For each of `count` windows along a side of `size` elements: the kernel's elements outside of
/// the padding, each with its index in the side.
pub(crate) fn windows(
    count: usize,
    kernel: usize,
    size: usize,
    [stride, dilation, padding]: [usize; 3],
) -> Vec<Vec<(usize, usize)>> {
    let meets = |window: usize, inner: usize| {
        let padded = window * stride + inner * dilation;
        let at = padded.checked_sub(padding).filter(|&at| at < size)?;
        Some((inner, at))
    };
    let window = |w| (0..kernel).filter_map(|i| meets(w, i)).collect();
    (0..count).map(window).collect()
}
