use rustorch_ir::ops::ConvTranspose2d;

use super::conv2d::{sizes, windows};
use crate::Values;
use crate::operand::{Call, Misuse};
use crate::values::Element;

/// A convolution backwards: each input element adds its multiple of the kernel to the
/// window of the result that it belongs to.
pub(crate) fn evaluate(op: &ConvTranspose2d, call: &Call) -> Result<Values, Misuse> {
    let (x, w) = (&call.inputs[0], &call.inputs[1]);
    let [batch, channels, height, width] = sizes(x.shape());
    let [_, group_outputs, kernel_h, kernel_w] = sizes(w.shape());
    let [_, out_channels, out_h, out_w] = sizes(&call.output().shape);
    let (x, w) = (f64::of(&x.values), f64::of(&w.values));
    let steps = |side| [op.stride[side], op.dilation[side], op.padding[side]];
    let rows = windows(height, kernel_h, out_h, steps(0));
    let columns = windows(width, kernel_w, out_w, steps(1));
    let plane = out_h * out_w;
    let mut out = vec![0.0; batch * out_channels * plane];
    if let Some(bias) = call.inputs.get(2) {
        let bias = f64::of(&bias.values);
        for (i, plane) in out.chunks_mut(plane).enumerate() {
            plane.fill(bias[i % out_channels]);
        }
    }
    for n in 0..batch {
        for c in 0..channels {
            let first_output = c / (channels / op.groups) * group_outputs;
            let x = &x[(n * channels + c) * height * width..];
            for o in 0..group_outputs {
                let w = &w[(c * group_outputs + o) * kernel_h * kernel_w..];
                let out = &mut out[(n * out_channels + first_output + o) * plane..][..plane];
                for (y, rows) in rows.iter().enumerate() {
                    for (z, columns) in columns.iter().enumerate() {
                        for &(i, row) in rows {
                            for &(j, column) in columns {
                                out[row * out_w + column] += x[y * width + z] * w[i * kernel_w + j];
                            }
                        }
                    }
                }
            }
        }
    }
    Ok(Values::Float(out))
}
