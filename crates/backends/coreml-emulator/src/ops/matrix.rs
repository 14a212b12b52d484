use crate::arguments::Arguments;
use crate::tensor::{Tensor, common, for_each_index, position};

pub(super) fn matmul(args: &Arguments) -> Result<Tensor, String> {
    let (x, y) = (args.get("x")?, args.get("y")?);
    let (turn_x, turn_y) = (args.flag("transpose_x")?, args.flag("transpose_y")?);
    if x.data_type != y.data_type || x.shape.len() < 2 || y.shape.len() < 2 {
        return Err(format!("{:?} times {:?}", x.shape, y.shape));
    }
    let x = if turn_x { transposed(x)? } else { x.clone() };
    let y = if turn_y { transposed(y)? } else { y.clone() };
    let (batch_x, [m, k]) = split(&x.shape);
    let (batch_y, [l, n]) = split(&y.shape);
    if k != l {
        return Err(format!("{:?} times {:?}", x.shape, y.shape));
    }
    let batch = common(batch_x, batch_y)?;
    let x = x.broadcast(&[&batch[..], &[m, k]].concat())?;
    let y = y.broadcast(&[&batch[..], &[k, n]].concat())?;
    let (a, b) = (x.as_floats()?, y.as_floats()?);
    let shape = [&batch[..], &[m, n]].concat();
    let mut out = Vec::with_capacity(shape.iter().product());
    for matrix in 0..batch.iter().product() {
        for row in 0..m {
            let a = &a[(matrix * m + row) * k..][..k];
            for column in 0..n {
                let b = b[matrix * k * n + column..].iter().step_by(n);
                out.push(a.iter().zip(b).map(|(a, b)| a * b).sum());
            }
        }
    }
    Ok(Tensor::floats(x.data_type, &shape, out))
}

fn split(shape: &[usize]) -> (&[usize], [usize; 2]) {
    let (batch, matrix) = shape.split_at(shape.len() - 2);
    (batch, [matrix[0], matrix[1]])
}

fn transposed(x: &Tensor) -> Result<Tensor, String> {
    let last = x.shape.len() - 1;
    let mut shape = x.shape.clone();
    shape.swap(last - 1, last);
    x.gathered(&shape, |index| {
        let mut from = index.to_vec();
        from.swap(last - 1, last);
        Ok(from)
    })
}

/// `x · weightᵀ + bias`.
pub(super) fn linear(args: &Arguments) -> Result<Tensor, String> {
    let (x, weight) = (args.get("x")?, args.get("weight")?);
    let bias = args.find("bias").map(Tensor::as_floats).transpose()?;
    let (Some((&k, batch)), [n, inner]) = (x.shape.split_last(), &weight.shape[..]) else {
        return Err(format!("{:?} with weights {:?}", x.shape, weight.shape));
    };
    if k != *inner || batch.len() > 2 {
        return Err(format!("{:?} with weights {:?}", x.shape, weight.shape));
    }
    let shape = [batch, &[*n]].concat();
    let (a, w) = (x.as_floats()?, weight.as_floats()?);
    let mut out = Vec::with_capacity(shape.iter().product());
    for_each_index(&shape, |index| {
        let (&column, row) = index.split_last().ok_or("no column")?;
        let row = position(batch, row)?;
        let products = (0..k).map(|i| a[row * k + i] * w[column * k + i]);
        let bias = bias.map_or(0.0, |bias| bias[column]);
        out.push(products.sum::<f64>() + bias);
        Ok(())
    })?;
    Ok(Tensor::floats(x.data_type, &shape, out))
}
