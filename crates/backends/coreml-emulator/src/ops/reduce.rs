use super::elementwise::maximum;
use crate::arguments::Arguments;
use crate::tensor::{Tensor, for_each_index, position};

/// Function from the reduced elements to one.
pub(super) type Reduction = fn(&[f64]) -> f64;

/// Reductions of floats.
pub(super) fn reduction(kind: &str) -> Option<Reduction> {
    Some(match kind {
        "reduce_sum" => |x| x.iter().sum(),
        "reduce_mean" => |x| x.iter().sum::<f64>() / x.len() as f64,
        "reduce_prod" => |x| x.iter().product(),
        "reduce_max" => |x| {
            x.iter()
                .copied()
                .fold(f64::NEG_INFINITY, |a, b| maximum(b, a))
        },
        "reduce_min" => |x| {
            -x.iter()
                .map(|x| -x)
                .fold(f64::NEG_INFINITY, |a, b| maximum(b, a))
        },
        _ => return None,
    })
}

pub(super) fn reduce(args: &Arguments, f: Reduction) -> Result<Tensor, String> {
    let x = args.get("x")?;
    let rank = x.shape.len();
    let axes = args.sizes("axes")?.unwrap_or_else(|| (0..rank).collect());
    if axes.is_empty() || axes.iter().any(|&axis| axis >= rank) {
        return Err(format!("axes {axes:?} of {:?}", x.shape));
    }
    let (kept, groups) = lines(x, &axes)?;
    let out = groups.iter().map(|group| f(group)).collect();
    let shape: Vec<usize> = match args.flag("keep_dims")? {
        true => kept,
        false => {
            let sizes = x.shape.iter().enumerate();
            let stays = sizes.filter(|(d, _)| !axes.contains(d));
            stays.map(|(_, &size)| size).collect()
        }
    };
    Ok(Tensor::floats(x.data_type, &shape, out))
}

/// The elements along `axes` together, in order of the others. Also the shape in which `axes` have
/// size 1.
pub(super) fn lines(x: &Tensor, axes: &[usize]) -> Result<(Vec<usize>, Vec<Vec<f64>>), String> {
    let mut kept = x.shape.clone();
    for &axis in axes {
        *kept
            .get_mut(axis)
            .ok_or_else(|| format!("no axis {axis}"))? = 1;
    }
    let mut groups = vec![Vec::new(); kept.iter().product()];
    let mut elements = x.as_floats()?.iter();
    for_each_index(&x.shape, |index| {
        let mut at = index.to_vec();
        axes.iter().for_each(|&axis| at[axis] = 0);
        groups[position(&kept, &at)?].extend(elements.next());
        Ok(())
    })?;
    Ok((kept, groups))
}
