//! Types of results.

use std::collections::BTreeMap;
use std::fmt;

use crate::proto::mil::DataType;

/// Type of a tensor.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Type {
    pub(super) data_type: DataType,
    pub(super) shape: Vec<usize>,
}

impl Type {
    /// Number of elements.
    pub(super) fn count(&self) -> usize {
        let sizes = self.shape.iter();
        sizes.fold(1, |count: usize, &size| count.saturating_mul(size))
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}{:?}", self.data_type, self.shape)
    }
}

/// A value: its type, and its contents if they are known.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Operand {
    pub(super) ty: Type,
    pub(super) constant: Option<Constant>,
    /// Whether it is a state, which holds a tensor of the type.
    pub(super) is_state: bool,
}

/// Knowledge of a constant.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Constant {
    Ints(Vec<i64>),
    Bools(Vec<bool>),
    Text(String),
    /// Elements that no type depends on.
    Other,
}

/// Operands by the names of their parameters.
pub(super) struct Operands(pub(super) BTreeMap<String, Vec<Operand>>);

type Inferred = Result<Type, String>;

impl Operands {
    fn find(&self, name: &str) -> Option<&Operand> {
        self.0.get(name).and_then(|bound| bound.first())
    }

    fn get(&self, name: &str) -> Result<&Operand, String> {
        self.find(name).ok_or_else(|| format!("{name} is missing"))
    }

    fn ty(&self, name: &str) -> Result<&Type, String> {
        Ok(&self.get(name)?.ty)
    }

    /// Integers of a constant; nothing where it is not there.
    fn find_ints(&self, name: &str) -> Result<Option<&[i64]>, String> {
        match self.find(name).map(|operand| &operand.constant) {
            None => Ok(None),
            Some(Some(Constant::Ints(x))) => Ok(Some(x)),
            Some(_) => Err(format!("{name} has to be in the model itself")),
        }
    }

    fn ints(&self, name: &str, count: usize, default: i64) -> Result<Vec<i64>, String> {
        let found = self.find_ints(name)?;
        let found = found.map_or_else(|| vec![default; count], <[i64]>::to_vec);
        match found.len() == count {
            true => Ok(found),
            false => Err(format!("{} numbers for {name}, not {count}", found.len())),
        }
    }

    /// Sizes or places, none of them negative.
    fn sizes(&self, name: &str, count: usize, default: usize) -> Result<Vec<usize>, String> {
        let ints = self.ints(name, count, default as i64)?;
        let sizes = ints.into_iter().map(usize::try_from);
        let sizes = sizes.collect::<Result<_, _>>();
        sizes.map_err(|_| format!("a negative number for {name}"))
    }

    fn flag(&self, name: &str) -> Result<bool, String> {
        match self.find(name).map(|operand| &operand.constant) {
            None => Ok(false),
            Some(Some(Constant::Bools(x))) if x.len() == 1 => Ok(x[0]),
            Some(_) => Err(format!("{name} has to be a boolean")),
        }
    }

    fn text(&self, name: &str) -> Result<&str, String> {
        match &self.get(name)?.constant {
            Some(Constant::Text(text)) => Ok(text),
            _ => Err(format!("{name} has to be a text")),
        }
    }

    /// A dimension of `x`, counted from the end where negative.
    fn axis(&self, name: &str, x: &Type, default: i64) -> Result<usize, String> {
        let axis = self.ints(name, 1, default)?[0];
        dimension(axis, x.shape.len())
    }
}

fn dimension(axis: i64, rank: usize) -> Result<usize, String> {
    let from_start = if axis < 0 { axis + rank as i64 } else { axis };
    let found = usize::try_from(from_start).ok().filter(|&d| d < rank);
    found.ok_or_else(|| format!("no dimension {axis} of {rank}"))
}

fn shaped(x: &Type, shape: Vec<usize>) -> Type {
    Type {
        data_type: x.data_type,
        shape,
    }
}

fn ensure(condition: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if condition { Ok(()) } else { Err(what()) }
}

fn common(a: &[usize], b: &[usize]) -> Result<Vec<usize>, String> {
    let rank = a.len().max(b.len());
    let at = |s: &[usize], i: usize| (i + s.len()).checked_sub(rank).map_or(1, |j| s[j]);
    (0..rank)
        .map(|i| match (at(a, i), at(b, i)) {
            (x, y) if x == y || y == 1 => Ok(x),
            (1, y) => Ok(y),
            _ => Err(format!("{a:?} and {b:?} do not broadcast")),
        })
        .collect()
}

pub(super) fn same(x: &Operands) -> Inferred {
    Ok(x.ty("x")?.clone())
}

pub(super) fn read_state(x: &Operands) -> Inferred {
    Ok(x.ty("input")?.clone())
}

/// The written value, which is not a result.
pub(super) fn write_state(x: &Operands) -> Inferred {
    let (state, data) = (x.ty("input")?, x.ty("data")?);
    ensure(state == data, || format!("{data} into a state of {state}"))?;
    Ok(data.clone())
}

/// If the places are known only when the program runs, the sizes alone are checked.
pub(super) fn slice_update(x: &Operands) -> Inferred {
    let (ty, update) = (x.ty("x")?, x.ty("update")?);
    let rank = ty.shape.len();
    for name in ["begin", "end"] {
        let places = x.ty(name)?;
        ensure(places.shape == [rank], || {
            format!("{name} of {places} for {ty}")
        })?;
    }
    let fits = update.shape.len() == rank
        && rank > 0
        && update
            .shape
            .iter()
            .zip(&ty.shape)
            .all(|(part, all)| part <= all);
    ensure(fits, || format!("{update} into {ty}"))?;
    Ok(ty.clone())
}

pub(super) fn broadcast(x: &Operands) -> Inferred {
    let (a, b) = (x.ty("x")?, x.ty("y")?);
    Ok(shaped(a, common(&a.shape, &b.shape)?))
}

pub(super) fn comparison(x: &Operands) -> Inferred {
    let data_type = DataType::Bool;
    let shape = broadcast(x)?.shape;
    Ok(Type { data_type, shape })
}

pub(super) fn select(x: &Operands) -> Inferred {
    let (a, b) = (x.ty("a")?, x.ty("b")?);
    let shape = common(&a.shape, &b.shape)?;
    let whole = common(&x.ty("cond")?.shape, &shape)?;
    ensure(whole == shape, || {
        format!("a condition larger than {shape:?}")
    })?;
    Ok(shaped(a, shape))
}

pub(super) fn cast(x: &Operands) -> Inferred {
    let data_type = match x.text("dtype")? {
        "fp16" => DataType::Float16,
        "fp32" => DataType::Float32,
        "int32" => DataType::Int32,
        "bool" => DataType::Bool,
        other => return Err(format!("a cast to {other:?}")),
    };
    let shape = x.ty("x")?.shape.clone();
    Ok(Type { data_type, shape })
}

pub(super) fn matmul(x: &Operands) -> Inferred {
    let matrix = |name, transposed| {
        let ty = x.ty(name)?;
        let rank = ty.shape.len();
        ensure(rank >= 2, || format!("{name} of {ty} is not a matrix"))?;
        let (batch, last) = ty.shape.split_at(rank - 2);
        let [rows, columns] = if transposed { [1, 0] } else { [0, 1] };
        Ok::<_, String>((batch, last[rows], last[columns]))
    };
    let (batch_x, rows, inner_x) = matrix("x", x.flag("transpose_x")?)?;
    let (batch_y, inner_y, columns) = matrix("y", x.flag("transpose_y")?)?;
    ensure(inner_x == inner_y, || {
        format!("inner sizes {inner_x} and {inner_y}")
    })?;
    let mut shape = common(batch_x, batch_y)?;
    shape.extend([rows, columns]);
    Ok(shaped(x.ty("x")?, shape))
}

pub(super) fn shift_scale(x: &Operands) -> Inferred {
    let (data, scale) = (x.ty("data")?, x.ty("scale")?);
    let is_whole = |(data, scale): (&usize, &usize)| *scale > 0 && data.is_multiple_of(*scale);
    let fits =
        data.shape.len() == scale.shape.len() && data.shape.iter().zip(&scale.shape).all(is_whole);
    ensure(fits && !data.shape.is_empty(), || {
        format!("scales {scale} of {data}")
    })?;
    if let Some(offset) = x.find("offset") {
        let offset = &offset.ty;
        ensure(offset.shape == scale.shape, || {
            format!("offsets {offset} beside scales {scale}")
        })?;
    }
    Ok(shaped(scale, data.shape.clone()))
}

/// Palettes whose entries are numbers, one for each block of the indices.
pub(super) fn lut(x: &Operands) -> Inferred {
    let (indices, lut) = (x.ty("indices")?, x.ty("lut")?);
    let wrong = || format!("a palette {lut} for {indices}");
    let (counts, entries) = (lut.shape.split_at_checked(indices.shape.len())).ok_or_else(wrong)?;
    let is_whole = |(size, count): (&usize, &usize)| *count > 0 && size.is_multiple_of(*count);
    let is_full = |bits: usize| entries == [1 << bits, 1];
    let fits = indices.shape.iter().zip(counts).all(is_whole)
        && indices.data_type.bits().is_some_and(is_full);
    ensure(fits && !counts.is_empty(), wrong)?;
    Ok(shaped(lut, indices.shape.clone()))
}

pub(super) fn dequantize(x: &Operands) -> Inferred {
    let (data, scale) = (x.ty("quantized_data")?, x.ty("scale")?);
    let axis = x.axis("axis", data, 0)?;
    for name in ["scale", "zero_point"] {
        let ty = x.ty(name)?;
        let fits = ty.shape.is_empty() || ty.shape == [data.shape[axis]];
        ensure(fits, || format!("{name} of {ty} along {axis} of {data}"))?;
    }
    Ok(shaped(scale, data.shape.clone()))
}

pub(super) fn linear(x: &Operands) -> Inferred {
    let (ty, weight) = (x.ty("x")?, x.ty("weight")?);
    let Some((&inner, batch)) = ty.shape.split_last() else {
        return Err("x of rank 0".to_owned());
    };
    let [columns, k] = weight.shape[..] else {
        return Err(format!("weights of {weight}"));
    };
    ensure(batch.len() <= 2, || {
        format!("x of {ty}: more than 3 dimensions")
    })?;
    ensure(inner == k, || format!("inner sizes {inner} and {k}"))?;
    channels(x, "bias", columns)?;
    let shape = batch.iter().copied().chain([columns]).collect();
    Ok(shaped(ty, shape))
}

/// A vector with a number for each channel, if it is there.
fn channels(x: &Operands, name: &str, count: usize) -> Result<(), String> {
    match x.find(name) {
        Some(operand) if operand.ty.shape != [count] => {
            Err(format!("{name} of {}, not [{count}]", operand.ty))
        }
        _ => Ok(()),
    }
}

/// Images `[n, c, …]`, with the padding before and behind each of their dimensions.
struct Images<'a> {
    ty: &'a Type,
    padding: Vec<[usize; 2]>,
}

impl<'a> Images<'a> {
    fn of(x: &'a Operands) -> Result<Self, String> {
        let ty = x.ty("x")?;
        let dims = ty.shape.len().saturating_sub(2);
        ensure((1..=3).contains(&dims), || format!("x of {ty}: no images"))?;
        let is_custom = x.text("pad_type")? == "custom";
        ensure(is_custom, || {
            "padding that is not given by numbers".to_owned()
        })?;
        let flat = x.sizes("pad", 2 * dims, 0)?;
        let padding = flat.as_chunks().0.to_vec();
        Ok(Self { ty, padding })
    }

    fn dims(&self) -> usize {
        self.padding.len()
    }
}

pub(super) fn conv(x: &Operands) -> Inferred {
    let images = Images::of(x)?;
    let dims = images.dims();
    let weight = x.ty("weight")?;
    let strides = x.sizes("strides", dims, 1)?;
    let dilations = x.sizes("dilations", dims, 1)?;
    let groups = x.sizes("groups", 1, 1)?[0];
    let is_constant = x.get("weight")?.constant.is_some();
    ensure(is_constant || dilations.iter().all(|&d| d == 1), || {
        "dilations with weights that are not constant".to_owned()
    })?;
    let fits = weight.shape.len() == dims + 2
        && groups > 0
        && weight.shape[1].checked_mul(groups) == Some(images.ty.shape[1])
        && weight.shape[0].is_multiple_of(groups);
    ensure(fits, || {
        format!("{weight} in {groups} groups for {}", images.ty)
    })?;
    channels(x, "bias", weight.shape[0])?;
    let mut shape = vec![images.ty.shape[0], weight.shape[0]];
    for i in 0..dims {
        let kernel = weight.shape[2 + i];
        let window = [kernel, strides[i], dilations[i]];
        shape.push(windows(images.ty.shape[2 + i], images.padding[i], window)?);
    }
    Ok(shaped(images.ty, shape))
}

/// Number of windows along a dimension, of a size, stride and dilation.
fn windows(
    size: usize,
    [before, after]: [usize; 2],
    [kernel, stride, dilation]: [usize; 3],
) -> Result<usize, String> {
    let none = || format!("no window of {kernel} in {size}");
    let reach = dilation.checked_mul(kernel.checked_sub(1).ok_or_else(none)?);
    let padded = size.saturating_add(before).saturating_add(after);
    let room = padded.checked_sub(reach.ok_or_else(none)?.saturating_add(1));
    let count = room.and_then(|room| room.checked_div(stride));
    Ok(count.ok_or_else(none)? + 1)
}

pub(super) fn conv_transpose(x: &Operands) -> Inferred {
    let images = Images::of(x)?;
    let dims = images.dims();
    let weight = x.ty("weight")?;
    let strides = x.sizes("strides", dims, 1)?;
    let dilations = x.sizes("dilations", dims, 1)?;
    let groups = x.sizes("groups", 1, 1)?[0];
    let fits = weight.shape.len() == dims + 2
        && groups > 0
        && weight.shape[0] == images.ty.shape[1]
        && weight.shape[0].is_multiple_of(groups);
    ensure(fits, || {
        format!("{weight} in {groups} groups for {}", images.ty)
    })?;
    let made = weight.shape[1].saturating_mul(groups);
    channels(x, "bias", made)?;
    let mut shape = vec![images.ty.shape[0], made];
    for i in 0..dims {
        let spread = (images.ty.shape[2 + i].max(1) - 1).saturating_mul(strides[i]);
        let reach = weight.shape[2 + i].max(1) - 1;
        let reach = reach.saturating_mul(dilations[i]);
        let all = spread.saturating_add(reach).saturating_add(1);
        let cut = images.padding[i].iter().sum();
        let size = all.checked_sub(cut).filter(|&size| size > 0);
        shape.push(size.ok_or_else(|| format!("{cut} of {all} cut"))?);
    }
    Ok(shaped(images.ty, shape))
}

pub(super) fn pool(x: &Operands) -> Inferred {
    let images = Images::of(x)?;
    let dims = images.dims();
    let kernel = x.sizes("kernel_sizes", dims, 0)?;
    let strides = x.sizes("strides", dims, 1)?;
    ensure(!x.flag("ceil_mode")?, || {
        "sizes that are rounded up".to_owned()
    })?;
    let mut shape = images.ty.shape[..2].to_vec();
    for i in 0..dims {
        let window = [kernel[i], strides[i], 1];
        shape.push(windows(images.ty.shape[2 + i], images.padding[i], window)?);
    }
    Ok(shaped(images.ty, shape))
}

/// The dimensions that `name` lists, each once; all where it is not there.
fn axes(x: &Operands, name: &str, ty: &Type) -> Result<Vec<usize>, String> {
    let rank = ty.shape.len();
    let Some(listed) = x.find_ints(name)? else {
        return Ok((0..rank).collect());
    };
    let axes = listed.iter().map(|&axis| dimension(axis, rank));
    let mut axes: Vec<usize> = axes.collect::<Result<_, _>>()?;
    axes.sort_unstable();
    let count = axes.len();
    axes.dedup();
    ensure(axes.len() == count && count > 0, || {
        format!("{name} {listed:?}: none, or one twice")
    })?;
    Ok(axes)
}

pub(super) fn reduce(x: &Operands) -> Inferred {
    let ty = x.ty("x")?;
    let axes = axes(x, "axes", ty)?;
    let keeps = x.flag("keep_dims")?;
    let size = |(d, &size): (usize, &usize)| match axes.contains(&d) {
        true => keeps.then_some(1),
        false => Some(size),
    };
    let shape = ty.shape.iter().enumerate().filter_map(size).collect();
    Ok(shaped(ty, shape))
}

pub(super) fn softmax(x: &Operands) -> Inferred {
    let ty = x.ty("x")?;
    x.axis("axis", ty, -1)?;
    Ok(ty.clone())
}

pub(super) fn layer_norm(x: &Operands) -> Inferred {
    let ty = x.ty("x")?;
    let axes = axes(x, "axes", ty)?;
    let inner: Vec<usize> = axes.iter().map(|&d| ty.shape[d]).collect();
    for name in ["gamma", "beta"] {
        if let Some(operand) = x.find(name) {
            ensure(operand.ty.shape == inner, || {
                format!("{name} of {}, not {inner:?}", operand.ty)
            })?;
        }
    }
    Ok(ty.clone())
}

pub(super) fn batch_norm(x: &Operands) -> Inferred {
    let ty = x.ty("x")?;
    let rank = ty.shape.len();
    ensure((3..=5).contains(&rank), || {
        format!("x of {ty}: not 3 to 5 dimensions")
    })?;
    for name in ["mean", "variance", "gamma", "beta"] {
        channels(x, name, ty.shape[1])?;
    }
    Ok(ty.clone())
}

pub(super) fn reshape(x: &Operands) -> Inferred {
    let ty = x.ty("x")?;
    let rank = x.ty("shape")?.count();
    let out = shaped(ty, x.sizes("shape", rank, 0)?);
    ensure(out.count() == ty.count(), || format!("{ty} as {out}"))?;
    Ok(out)
}

pub(super) fn transpose(x: &Operands) -> Inferred {
    let ty = x.ty("x")?;
    let rank = ty.shape.len();
    let perm = x.sizes("perm", rank, 0)?;
    let mut sorted = perm.clone();
    sorted.sort_unstable();
    ensure(sorted.into_iter().eq(0..rank), || {
        format!("{perm:?} is not an order of the dimensions of {ty}")
    })?;
    Ok(shaped(ty, perm.iter().map(|&d| ty.shape[d]).collect()))
}

pub(super) fn slice(x: &Operands) -> Inferred {
    let ty = x.ty("x")?;
    let rank = ty.shape.len();
    let begin = x.sizes("begin", rank, 0)?;
    let end = x.sizes("end", rank, 0)?;
    let stride = x.sizes("stride", rank, 1)?;
    let size = |d: usize| {
        let fits = begin[d] < end[d] && end[d] <= ty.shape[d] && stride[d] > 0;
        ensure(fits, || {
            format!("{}..{} of dimension {d} of {ty}", begin[d], end[d])
        })?;
        Ok((end[d] - begin[d]).div_ceil(stride[d]))
    };
    let shape = (0..rank).map(size).collect::<Result<_, String>>()?;
    Ok(shaped(ty, shape))
}

pub(super) fn tile(x: &Operands) -> Inferred {
    let ty = x.ty("x")?;
    let reps = x.sizes("reps", ty.shape.len(), 1)?;
    let sizes = ty.shape.iter().zip(reps);
    Ok(shaped(
        ty,
        sizes.map(|(&size, n)| size.saturating_mul(n)).collect(),
    ))
}

pub(super) fn pad(x: &Operands) -> Inferred {
    let ty = x.ty("x")?;
    ensure(x.text("mode")? == "constant", || {
        "a mode other than constant".to_owned()
    })?;
    let padding = x.sizes("pad", 2 * ty.shape.len(), 0)?;
    let sizes = ty.shape.iter().zip(padding.as_chunks().0);
    let shape = sizes.map(|(size, [before, after])| size.saturating_add(before + after));
    Ok(shaped(ty, shape.collect()))
}

pub(super) fn concat(x: &Operands) -> Inferred {
    let values = x.0.get("values").map_or(&[][..], |values| values);
    let Some(first) = values.first() else {
        return Err("no values".to_owned());
    };
    let mut out = first.ty.clone();
    let axis = x.axis("axis", &out, 0)?;
    ensure(!x.flag("interleave")?, || "interleaved values".to_owned())?;
    for value in &values[1..] {
        let mut like = value.ty.clone();
        let size = like.shape.get(axis).copied().unwrap_or_default();
        if let Some(joined) = like.shape.get_mut(axis) {
            *joined = out.shape[axis];
        }
        ensure(like == out, || format!("{} beside {}", value.ty, first.ty))?;
        out.shape[axis] = out.shape[axis].saturating_add(size);
    }
    Ok(out)
}

pub(super) fn gather(x: &Operands) -> Inferred {
    let (ty, indices) = (x.ty("x")?, x.ty("indices")?);
    let axis = x.axis("axis", ty, 0)?;
    let (before, from) = ty.shape.split_at(axis);
    let sizes = before.iter().chain(&indices.shape).chain(&from[1..]);
    Ok(shaped(ty, sizes.copied().collect()))
}

pub(super) fn gather_along_axis(x: &Operands) -> Inferred {
    let (ty, indices) = (x.ty("x")?, x.ty("indices")?);
    let axis = x.axis("axis", ty, 0)?;
    let equal = |d: usize| d == axis || ty.shape[d] == indices.shape[d];
    let fits = indices.shape.len() == ty.shape.len() && (0..ty.shape.len()).all(equal);
    ensure(fits, || format!("indices of {indices} in {ty}"))?;
    Ok(shaped(ty, indices.shape.clone()))
}

pub(super) fn fill(x: &Operands) -> Inferred {
    let value = x.ty("value")?;
    ensure(value.shape.is_empty(), || format!("a value of {value}"))?;
    let rank = x.ty("shape")?.count();
    Ok(shaped(value, x.sizes("shape", rank, 0)?))
}
