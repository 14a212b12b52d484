use crate::arguments::Arguments;
use crate::tensor::{Data, Tensor, for_each_index, position};

pub(super) fn reshape(args: &Arguments) -> Result<Tensor, String> {
    let (x, shape) = (args.get("x")?, args.need_sizes("shape")?);
    match shape.iter().product::<usize>() == x.count() {
        true => Ok(Tensor { shape, ..x.clone() }),
        false => Err(format!("{:?} as {shape:?}", x.shape)),
    }
}

pub(super) fn transpose(args: &Arguments) -> Result<Tensor, String> {
    let (x, perm) = (args.get("x")?, args.need_sizes("perm")?);
    let mut sorted = perm.clone();
    sorted.sort_unstable();
    if !sorted.into_iter().eq(0..x.shape.len()) {
        return Err(format!("perm {perm:?} of {:?}", x.shape));
    }
    let shape: Vec<usize> = perm.iter().map(|&d| x.shape[d]).collect();
    x.gathered(&shape, |index| {
        let mut from = vec![0; perm.len()];
        perm.iter().zip(index).for_each(|(&d, &i)| from[d] = i);
        Ok(from)
    })
}

pub(super) fn slice_by_index(args: &Arguments) -> Result<Tensor, String> {
    let x = args.get("x")?;
    let rank = x.shape.len();
    let (begin, end) = (args.need_sizes("begin")?, args.need_sizes("end")?);
    let stride = args.sizes("stride")?.unwrap_or_else(|| vec![1; rank]);
    if [&begin, &end, &stride]
        .iter()
        .any(|list| list.len() != rank)
        || stride.contains(&0)
    {
        return Err(format!(
            "{begin:?} to {end:?} by {stride:?} of {:?}",
            x.shape
        ));
    }
    let size = |d: usize| {
        end[d]
            .min(x.shape[d])
            .saturating_sub(begin[d])
            .div_ceil(stride[d])
    };
    let shape: Vec<usize> = (0..rank).map(size).collect();
    x.gathered(&shape, |index| {
        let at = |d: usize| begin[d] + index[d] * stride[d];
        Ok((0..rank).map(at).collect())
    })
}

pub(super) fn slice_update(args: &Arguments) -> Result<Tensor, String> {
    let (x, update) = (args.get("x")?, args.get("update")?);
    let (begin, end) = (args.need_sizes("begin")?, args.need_sizes("end")?);
    let fits = begin.len() == x.shape.len()
        && end.len() == x.shape.len()
        && end.iter().zip(&x.shape).all(|(end, size)| end <= size)
        && (begin
            .iter()
            .zip(&end)
            .map(|(begin, end)| end.checked_sub(*begin)))
        .eq(update.shape.iter().map(|&size| Some(size)));
    if !fits || update.data_type != x.data_type {
        return Err(format!(
            "{:?} at {begin:?} to {end:?} of {:?}",
            update.shape, x.shape
        ));
    }
    let mut out = x.clone();
    let mut from = 0;
    for_each_index(&update.shape, |index| {
        let at: Vec<usize> = index
            .iter()
            .zip(&begin)
            .map(|(i, begin)| i + begin)
            .collect();
        let to = position(&x.shape, &at)?;
        match (&mut out.data, &update.data) {
            (Data::Float(out), Data::Float(update)) => out[to] = update[from],
            (Data::Int(out), Data::Int(update)) => out[to] = update[from],
            _ => return Err("a text has no elements".to_owned()),
        }
        from += 1;
        Ok(())
    })?;
    Ok(out)
}

pub(super) fn tile(args: &Arguments) -> Result<Tensor, String> {
    let (x, reps) = (args.get("x")?, args.need_sizes("reps")?);
    if reps.len() != x.shape.len() {
        return Err(format!("reps {reps:?} of {:?}", x.shape));
    }
    let sizes = x.shape.iter().zip(&reps);
    let shape: Vec<usize> = sizes.map(|(size, n)| size * n).collect();
    x.gathered(&shape, |index| {
        let places = index.iter().zip(&x.shape);
        Ok(places.map(|(i, size)| i % size).collect())
    })
}

pub(super) fn pad(args: &Arguments) -> Result<Tensor, String> {
    let (x, pad) = (args.get("x")?, args.need_sizes("pad")?);
    if args.text("mode")? != "constant" || pad.len() != 2 * x.shape.len() {
        return Err(format!("pad {pad:?} of {:?}", x.shape));
    }
    let value = args.number("constant_val", 0.0)?;
    let elements = x.as_floats()?;
    let sizes = x.shape.iter().zip(pad.as_chunks::<2>().0);
    let shape: Vec<usize> = sizes.map(|(size, [a, z])| a + size + z).collect();
    let mut out = Vec::with_capacity(shape.iter().product());
    for_each_index(&shape, |index| {
        let at = index.iter().zip(pad.as_chunks::<2>().0);
        let at: Option<Vec<usize>> = at.map(|(i, [before, _])| i.checked_sub(*before)).collect();
        let at = at.and_then(|at| position(&x.shape, &at).ok());
        out.push(at.map_or(value, |at| elements[at]));
        Ok(())
    })?;
    Ok(Tensor::floats(x.data_type, &shape, out))
}

pub(super) fn concat(args: &Arguments) -> Result<Tensor, String> {
    let (values, axis) = (args.list("values"), args.need_sizes("axis")?[0]);
    let first = values.first().ok_or("no values")?;
    if args.flag("interleave")? || axis >= first.shape.len() {
        return Err(format!("interleaved, or along {axis} of {:?}", first.shape));
    }
    let mut shape = first.shape.clone();
    shape[axis] = 0;
    for value in values {
        let mut like = value.shape.clone();
        let size = like.get(axis).copied().unwrap_or_default();
        like.get_mut(axis)
            .into_iter()
            .for_each(|d| *d = shape[axis]);
        if like != shape || value.data_type != first.data_type {
            return Err(format!("{:?} beside {:?}", value.shape, first.shape));
        }
        shape[axis] += size;
    }
    let outer: usize = shape[..axis].iter().product();
    let mut out = Tensor {
        data_type: first.data_type,
        shape,
        data: match first.data {
            Data::Float(_) => Data::Float(Vec::new()),
            _ => Data::Int(Vec::new()),
        },
    };
    for part in 0..outer {
        for value in values {
            let run = value.count() / outer;
            match (&mut out.data, &value.data) {
                (Data::Float(out), Data::Float(x)) => out.extend(&x[part * run..][..run]),
                (Data::Int(out), Data::Int(x)) => out.extend(&x[part * run..][..run]),
                _ => return Err("values of several kinds".to_owned()),
            }
        }
    }
    Ok(out)
}

/// An index that a program reads. Newer sets of operations leave an index outside undefined, and older
/// ones count from the end. Here it is an error.
fn index(indices: &[i64], at: usize, size: usize) -> Result<usize, String> {
    let index = usize::try_from(indices[at]).ok().filter(|&i| i < size);
    index.ok_or_else(|| format!("index {} is outside of {size}", indices[at]))
}

pub(super) fn gather(args: &Arguments) -> Result<Tensor, String> {
    let (x, indices) = (args.get("x")?, args.get("indices")?);
    let axis = args.need_sizes("axis")?[0];
    if axis >= x.shape.len() {
        return Err(format!("axis {axis} of {:?}", x.shape));
    }
    let (before, from) = x.shape.split_at(axis);
    let shape = [before, &indices.shape, &from[1..]].concat();
    let listed = indices.as_ints()?;
    let rank = indices.shape.len();
    x.gathered(&shape, |place| {
        let (before, rest) = place.split_at(axis);
        let (at, after) = rest.split_at(rank);
        let at = position(&indices.shape, at)?;
        let chosen = index(listed, at, x.shape[axis])?;
        Ok([before, &[chosen], after].concat())
    })
}

pub(super) fn gather_along_axis(args: &Arguments) -> Result<Tensor, String> {
    let (x, indices) = (args.get("x")?, args.get("indices")?);
    let axis = args.need_sizes("axis")?[0];
    let mut like = indices.shape.clone();
    let along = like.get_mut(axis).zip(x.shape.get(axis));
    along.into_iter().for_each(|(own, size)| *own = *size);
    if like != x.shape {
        return Err(format!("indices {:?} of {:?}", indices.shape, x.shape));
    }
    let listed = indices.as_ints()?;
    x.gathered(&indices.shape, |place| {
        let at = position(&indices.shape, place)?;
        let mut from = place.to_vec();
        from[axis] = index(listed, at, x.shape[axis])?;
        Ok(from)
    })
}

pub(super) fn fill(args: &Arguments) -> Result<Tensor, String> {
    let (shape, value) = (args.need_sizes("shape")?, args.get("value")?);
    match value.shape.is_empty() {
        true => value.broadcast(&shape),
        false => Err(format!("a value {:?}", value.shape)),
    }
}
