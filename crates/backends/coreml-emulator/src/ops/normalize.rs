use super::elementwise::maximum;
use super::reduce::lines;
use crate::arguments::Arguments;
use crate::tensor::{Tensor, for_each_index, position};

pub(super) fn softmax(args: &Arguments) -> Result<Tensor, String> {
    let x = args.get("x")?;
    let axis = args.need_sizes("axis")?[0];
    let (kept, groups) = lines(x, &[axis])?;
    let of = |f: fn(&[f64]) -> f64| {
        let values = groups.iter().map(|group| f(group)).collect();
        widened(&kept, values, x)
    };
    let largest = of(|x| {
        x.iter()
            .copied()
            .fold(f64::NEG_INFINITY, |a, b| maximum(b, a))
    })?;
    let sums = of(|x| {
        let largest = x
            .iter()
            .copied()
            .fold(f64::NEG_INFINITY, |a, b| maximum(b, a));
        x.iter().map(|x| (x - largest).exp()).sum()
    })?;
    let elements = x.as_floats()?.iter().zip(largest.iter().zip(sums));
    let out = elements.map(|(x, (largest, sum))| (x - largest).exp() / sum);
    Ok(Tensor::floats(x.data_type, &x.shape, out.collect()))
}

/// Numbers for the elements of `kept`, one for each element of `like`, unrounded.
fn widened(kept: &[usize], values: Vec<f64>, like: &Tensor) -> Result<Vec<f64>, String> {
    let mut out = Vec::with_capacity(like.count());
    for_each_index(&like.shape, |index| {
        let own = kept.iter().zip(index);
        let at: Vec<usize> = own
            .map(|(&size, &i)| if size == 1 { 0 } else { i })
            .collect();
        out.push(values[position(kept, &at)?]);
        Ok(())
    })?;
    Ok(out)
}

pub(super) fn layer_norm(args: &Arguments) -> Result<Tensor, String> {
    let x = args.get("x")?;
    let axes = args.sizes("axes")?;
    let axes = axes.unwrap_or_else(|| (0..x.shape.len()).collect());
    let epsilon = args.number("epsilon", 1e-5)?;
    let (kept, groups) = lines(x, &axes)?;
    let mean = |x: &[f64]| x.iter().sum::<f64>() / x.len() as f64;
    let means = groups.iter().map(|x| mean(x)).collect();
    let variance = |x: &Vec<f64>| {
        let mean = mean(x);
        x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / x.len() as f64
    };
    let roots = groups.iter().map(|x| (variance(x) + epsilon).sqrt());
    let (means, roots) = (
        widened(&kept, means, x)?,
        widened(&kept, roots.collect(), x)?,
    );
    // Weights have the sizes of the axes, which are the last ones.
    let inner: Vec<usize> = axes.iter().map(|&axis| x.shape[axis]).collect();
    let (gamma, beta) = affine(args, &inner, &x.shape)?;
    let out = x.as_floats()?.iter().enumerate();
    let out = out.map(|(i, x)| (x - means[i]) / roots[i] * gamma[i] + beta[i]);
    Ok(Tensor::floats(x.data_type, &x.shape, out.collect()))
}

/// `gamma` and `beta`, of this shape or left out, broadcast.
fn affine(
    args: &Arguments,
    own: &[usize],
    shape: &[usize],
) -> Result<(Vec<f64>, Vec<f64>), String> {
    let one = |name, default| {
        let Some(given) = args.find(name) else {
            return Ok(vec![default; shape.iter().product()]);
        };
        match given.shape == own {
            true => Ok(given.broadcast(shape)?.as_floats()?.to_vec()),
            false => Err(format!("{name} {:?}, not {own:?}", given.shape)),
        }
    };
    Ok((one("gamma", 1.0)?, one("beta", 0.0)?))
}

pub(super) fn batch_norm(args: &Arguments) -> Result<Tensor, String> {
    let x = args.get("x")?;
    let epsilon = args.number("epsilon", 1e-5)?;
    if !(3..=5).contains(&x.shape.len()) {
        return Err(format!("x {:?}", x.shape));
    }
    let channels = x.shape[1];
    let plane: usize = x.shape[2..].iter().product();
    let one = |name, default| match args.find(name) {
        Some(given) if given.shape == [channels] => Ok(given.as_floats()?.to_vec()),
        Some(given) => Err(format!("{name} {:?}", given.shape)),
        None => default,
    };
    let missing = |name| Err(format!("{name} is missing"));
    let mean = one("mean", missing("mean"))?;
    let variance = one("variance", missing("variance"))?;
    let gamma = one("gamma", Ok(vec![1.0; channels]))?;
    let beta = one("beta", Ok(vec![0.0; channels]))?;
    let out = x.as_floats()?.iter().enumerate().map(|(i, x)| {
        let c = i / plane % channels;
        (x - mean[c]) / (variance[c] + epsilon).sqrt() * gamma[c] + beta[c]
    });
    Ok(Tensor::floats(x.data_type, &x.shape, out.collect()))
}
