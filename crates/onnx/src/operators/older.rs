//! Operators that had another meaning in older versions: each behind `<` and the version that changed it.

use rustorch_dispatch::{Call, Called};
use rustorch_tensor::Tensor;

use super::{layers, lines};

rustorch_dispatch::table! {
    "Hardmax<13", "input, axis=1", |c| in_rows(c, |x| layers::hardmax(x, 1))?;
    "LogSoftmax<13", "input, axis=1", |c| in_rows(c, |x| Ok(x.log_softmax(1)?))?;
    "Resize<11", lines::UPSAMPLE, |c| lines::upsampled(c)?;
    "Softmax<13", "input, axis=1", |c| in_rows(c, |x| Ok(x.softmax(1)?))?;
}

/// A function of rows, which all dimensions from an axis on make up.
fn in_rows(c: &Call, of: impl Fn(&Tensor) -> Called<Tensor>) -> Called<Tensor> {
    let x = c.input()?;
    let axis = super::split(c, x.rank())?;
    let (rows, columns) = x.shape().split_at(axis);
    let rows = x.reshape([rows.iter().product::<usize>(), columns.iter().product()])?;
    Ok(of(&rows)?.reshape(x.shape())?)
}
