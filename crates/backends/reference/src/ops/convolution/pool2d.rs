use rustorch_ir::ops::{Pool2d, PoolIndices, PoolKind};

use super::conv2d::{sizes, windows};
use crate::Values;
use crate::operand::{Call, Misuse};
use crate::ops::binary::maximum;
use crate::values::Element;

pub(crate) fn evaluate(op: &Pool2d, call: &Call) -> Result<Vec<Values>, Misuse> {
    let x = &call.inputs[0];
    let [_, _, height, width] = sizes(x.shape());
    let [batch, channels, out_h, out_w] = sizes(&call.output().shape);
    let x = f64::of(&x.values);
    let steps = |side| [op.stride[side], op.dilation[side], op.padding[side]];
    let rows = windows(out_h, op.kernel[0], height, steps(0));
    let columns = windows(out_w, op.kernel[1], width, steps(1));
    let window_size = (op.kernel[0] * op.kernel[1]) as f64;
    let mut out = Vec::with_capacity(batch * channels * out_h * out_w);
    let mut indices = Vec::new();
    for plane in 0..batch * channels {
        let x = &x[plane * height * width..];
        for rows in &rows {
            for columns in &columns {
                let line = |&(_, row): &_| columns.iter().map(move |&(_, z)| row * width + z);
                let places = rows.iter().flat_map(line);
                let window = places.clone().map(|at| x[at]);
                out.push(match op.kind {
                    PoolKind::Max => window.fold(f64::NEG_INFINITY, maximum),
                    PoolKind::Average => window.sum::<f64>() / window_size,
                });
                let place = place_of_maximum(x, places);
                indices.extend(op.indices.map(|indices| match indices {
                    PoolIndices::Plane => place as i128,
                    PoolIndices::Window => {
                        let element = |side: &[(usize, usize)], at: usize| {
                            let found = side.iter().find(|(_, place)| *place == at);
                            found.map_or(0, |(element, _)| *element)
                        };
                        let [row, column] = [
                            element(rows, place / width),
                            element(columns, place % width),
                        ];
                        (row * op.kernel[1] + column) as i128
                    }
                }));
            }
        }
    }
    let indices = op.indices.map(|_| Values::Int(indices));
    Ok([Values::Float(out)].into_iter().chain(indices).collect())
}

/// Index among `places` in `x` of the largest element: the first of equals, the last NaN.
fn place_of_maximum(x: &[f64], places: impl Iterator<Item = usize>) -> usize {
    let later = |best: usize, at: usize| match x[at] > x[best] || x[at].is_nan() {
        true => at,
        false => best,
    };
    places.reduce(later).unwrap_or(0)
}
