use crate::arguments::Arguments;
use crate::tensor::{Tensor, common};

pub(super) fn matmul(args: &Arguments) -> Result<Tensor, String> {
    let (x, y) = (args.get("x")?, args.get("y")?);
    let (turn_x, turn_y) = (args.flag("transpose_x")?, args.flag("transpose_y")?);
    if x.data_type != y.data_type || x.shape.len() < 2 || y.shape.len() < 2 {
        return Err(format!("{:?} times {:?}", x.shape, y.shape));
    }
    let x = if turn_x { transposed(x)? } else { x.clone() };
    // Its columns as rows.
    let y = if turn_y { y.clone() } else { transposed(y)? };
    let (batch_x, [m, k]) = split(&x.shape);
    let (batch_y, [n, l]) = split(&y.shape);
    if k != l {
        return Err(format!("{:?} times {:?}", x.shape, y.shape));
    }
    let batch = common(batch_x, batch_y)?;
    let x = x.broadcast(&[&batch[..], &[m, k]].concat())?;
    let y = y.broadcast(&[&batch[..], &[n, k]].concat())?;
    let (a, b) = (x.as_floats()?, y.as_floats()?);
    let shape = [&batch[..], &[m, n]].concat();
    let mut out = Vec::with_capacity(shape.iter().product());
    for matrix in 0..batch.iter().product() {
        for row in 0..m {
            let a = &a[(matrix * m + row) * k..][..k];
            for column in 0..n {
                out.push(dot(a, &b[(matrix * n + column) * k..][..k]));
            }
        }
    }
    Ok(Tensor::floats(x.data_type, &shape, out))
}

/// The sum of products, added up in eight separate sums, which processors compute faster.
fn dot(a: &[f64], b: &[f64]) -> f64 {
    let (a, rest_a) = a.as_chunks::<8>();
    let (b, rest_b) = b.as_chunks::<8>();
    let mut sums = [0.0; 8];
    for (a, b) in a.iter().zip(b) {
        for i in 0..8 {
            sums[i] += a[i] * b[i];
        }
    }
    let rest = rest_a.iter().zip(rest_b).map(|(a, b)| a * b);
    sums.iter().sum::<f64>() + rest.sum::<f64>()
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
    let mut out = vec![0.0; shape.iter().product()];
    // Each row of the weights, of which there are many, is read from memory once.
    for (column, w) in w.chunks_exact(k.max(1)).enumerate() {
        let bias = bias.map_or(0.0, |bias| bias[column]);
        for (row, a) in a.chunks_exact(k.max(1)).enumerate() {
            out[row * n + column] = dot(a, w) + bias;
        }
    }
    Ok(Tensor::floats(x.data_type, &shape, out))
}
