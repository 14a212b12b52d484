//! Elements combined along dimensions.

use rustorch_tensor::{Interpolation, Operand, ScatterReduce, Tensor};

use crate::call::{Call, Called, missing, untyped};
use crate::value::Output;

table! {
    "all", "input, dim=None, keepdim=False", |c| {
        c.input()?.all(c.dims("dim")?, c.bool("keepdim")?)?
    };
    "allclose", "input, other, rtol=1e-5, atol=1e-8, equal_nan=False", |c| {
        let (rtol, atol) = (c.float("rtol")?, c.float("atol")?);
        let close = c.input()?.isclose(c.tensor("other")?, rtol, atol, c.bool("equal_nan")?)?;
        close.all(None, false)?.to_scalar::<bool>()?
    };
    "amax", "input, dim=None, keepdim=False", |c| {
        c.input()?.amax(c.dims_or_all("dim")?, c.bool("keepdim")?)?
    };
    "amin", "input, dim=None, keepdim=False", |c| {
        c.input()?.amin(c.dims_or_all("dim")?, c.bool("keepdim")?)?
    };
    "aminmax", "input, *, dim=None, keepdim=False", |c| {
        c.input()?.aminmax(c.maybe_int("dim")?, c.bool("keepdim")?)?
    };
    "any", "input, dim=None, keepdim=False", |c| {
        c.input()?.any(c.dims("dim")?, c.bool("keepdim")?)?
    };
    "argmax", "input, dim=None, keepdim=False", |c| {
        c.input()?.argmax(c.maybe_int("dim")?, c.bool("keepdim")?)?
    };
    "argmin", "input, dim=None, keepdim=False", |c| {
        c.input()?.argmin(c.maybe_int("dim")?, c.bool("keepdim")?)?
    };
    "argsort", "input, dim=-1, descending=False, stable=False", |c| {
        c.input()?.argsort(c.int::<isize>("dim")?, c.bool("descending")?)?
    };
    "count_nonzero", "input, dim=None", |c| c.input()?.count_nonzero(c.dims_or_all("dim")?)?;
    "cummax", "input, dim", |c| c.input()?.cummax(c.int::<isize>("dim")?)?;
    "cummin", "input, dim", |c| c.input()?.cummin(c.int::<isize>("dim")?)?;
    "cumprod", "input, dim, *, dtype=None", |c| {
        asked(c, c.input_as("dtype")?.cumprod(c.int::<isize>("dim")?)?)?
    };
    "cumsum", "input, dim, *, dtype=None", |c| {
        asked(c, c.input_as("dtype")?.cumsum(c.int::<isize>("dim")?)?)?
    };
    "cumulative_trapezoid", "y, x=None, *, dx=None, dim=-1", |c| match c.optional("x")? {
        Some(x) => c.input()?.cumulative_trapezoid_at(x, c.int::<isize>("dim")?)?,
        None => { let dx = c.maybe_float("dx")?.unwrap_or(1.0); c.input()?.cumulative_trapezoid(dx, c.int::<isize>("dim")?)? },
    };
    "diff", "input, n=1, dim=-1, prepend=None, append=None", |c| {
        c.input()?.diff(c.int("n")?, c.int::<isize>("dim")?, c.optional("prepend")?, c.optional("append")?)?
    };
    "equal", "input, other", |c| c.input()?.equal(c.tensor("other")?)?;
    "hash_tensor", "input, dim=None, keepdim=False, mode=0", |c| {
        match c.int::<i64>("mode")? {
            0 => {}
            mode => return untyped(format!("mode={mode}")),
        }
        c.input()?.hash_tensor(c.dims_or_all("dim")?, c.bool("keepdim")?)?
    };
    "index_reduce", "input, dim, index, source, reduce, *, include_self=True", |c| {
        let (index, source) = (c.tensor("index")?, c.tensor("source")?);
        c.input()?.index_reduce(c.int::<isize>("dim")?, index, source, reduction(c)?, c.bool("include_self")?)?
    };
    "kthvalue", "input, k, dim=-1, keepdim=False", |c| {
        c.input()?.kthvalue(c.int("k")?, c.int::<isize>("dim")?, c.bool("keepdim")?)?
    };
    "logcumsumexp", "input, dim", |c| c.input()?.logcumsumexp(c.int::<isize>("dim")?)?;
    "logsumexp", "input, dim, keepdim=False", |c| {
        c.input()?.logsumexp(c.dims("dim")?, c.bool("keepdim")?)?
    };
    "max.reduction_no_dim", "input", |c| c.input()?.max(None, false)?;
    "max.reduction_with_dim", "input, dim, keepdim=False", |c| {
        c.input()?.max_dim(c.int::<isize>("dim")?, c.bool("keepdim")?)?
    };
    "mean", "input, dim=None, keepdim=False, *, dtype=None", |c| {
        c.input_as("dtype")?.mean(c.dims_or_all("dim")?, c.bool("keepdim")?)?
    };
    "median", "input, dim=None, keepdim=False", |c| match c.maybe_int::<isize>("dim")? {
        Some(dim) => Output::from(c.input()?.median_dim(dim, c.bool("keepdim")?)?),
        None => Output::from(c.input()?.median()?),
    };
    "min.reduction_no_dim", "input", |c| c.input()?.min(None, false)?;
    "min.reduction_with_dim", "input, dim, keepdim=False", |c| {
        c.input()?.min_dim(c.int::<isize>("dim")?, c.bool("keepdim")?)?
    };
    "mode", "input, dim=-1, keepdim=False", |c| c.input()?.mode(c.int::<isize>("dim")?, c.bool("keepdim")?)?;
    "msort", "input", |c| c.input()?.msort()?;
    "nanmean", "input, dim=None, keepdim=False, *, dtype=None", |c| {
        c.input_as("dtype")?.nanmean(c.dims_or_all("dim")?, c.bool("keepdim")?)?
    };
    "nanmedian", "input, dim=None, keepdim=False", |c| match c.maybe_int::<isize>("dim")? {
        Some(dim) => Output::from(c.input()?.nanmedian_dim(dim, c.bool("keepdim")?)?),
        None => Output::from(c.input()?.nanmedian()?),
    };
    "nanquantile", "input, q, dim=None, keepdim=False, *, interpolation='linear'", |c| {
        c.input()?.nanquantile(&quantiles(c)?, c.maybe_int("dim")?, c.bool("keepdim")?, interpolation(c)?)?
    };
    "nansum", "input, dim=None, keepdim=False, *, dtype=None", |c| {
        asked(c, c.input_as("dtype")?.nansum(c.dims_or_all("dim")?, c.bool("keepdim")?)?)?
    };
    "prod", "input, dim=None, keepdim=False, *, dtype=None", |c| {
        asked(c, c.input_as("dtype")?.prod(c.dims("dim")?, c.bool("keepdim")?)?)?
    };
    "quantile", "input, q, dim=None, keepdim=False, *, interpolation='linear'", |c| {
        c.input()?.quantile(&quantiles(c)?, c.maybe_int("dim")?, c.bool("keepdim")?, interpolation(c)?)?
    };
    "scatter_reduce", "input, dim, index, src, reduce, *, include_self=True", |c| {
        let (index, source) = (c.tensor("index")?, c.tensor("src")?);
        c.input()?.scatter_reduce(c.int::<isize>("dim")?, index, source, reduction(c)?, c.bool("include_self")?)?
    };
    "sort", "input, dim=-1, descending=False, stable=False", |c| {
        c.input()?.sort(c.int::<isize>("dim")?, c.bool("descending")?)?
    };
    "std", "input, dim=None, *, unbiased=None, correction=1, keepdim=False", |c| {
        c.input()?.std(c.dims_or_all("dim")?, correction(c)?, c.bool("keepdim")?)?
    };
    "std.unbiased", "input, unbiased=True", |c| c.input()?.std(None, unbiased(c)?, false)?;
    "std_mean", "input, dim=None, *, unbiased=None, correction=1, keepdim=False", |c| {
        c.input()?.std_mean(c.dims_or_all("dim")?, correction(c)?, c.bool("keepdim")?)?
    };
    "std_mean.unbiased", "input, unbiased=True", |c| {
        c.input()?.std_mean(None, unbiased(c)?, false)?
    };
    "sum", "input, dim=None, keepdim=False, *, dtype=None", |c| {
        asked(c, c.input_as("dtype")?.sum(c.dims_or_all("dim")?, c.bool("keepdim")?)?)?
    };
    "topk", "input, k, dim=-1, largest=True, sorted=True", |c| {
        c.input()?.topk(c.int("k")?, c.int::<isize>("dim")?, c.bool("largest")?)?
    };
    "trapezoid", "y, x=None, *, dx=None, dim=-1", |c| match c.optional("x")? {
        Some(x) => c.input()?.trapezoid_at(x, c.int::<isize>("dim")?)?,
        None => { let dx = c.maybe_float("dx")?.unwrap_or(1.0); c.input()?.trapezoid(dx, c.int::<isize>("dim")?)? },
    };
    "trapz", "y, x=None, *, dx=None, dim=-1", |c| match c.optional("x")? {
        Some(x) => c.input()?.trapezoid_at(x, c.int::<isize>("dim")?)?,
        None => { let dx = c.maybe_float("dx")?.unwrap_or(1.0); c.input()?.trapezoid(dx, c.int::<isize>("dim")?)? },
    };
    "var", "input, dim=None, *, unbiased=None, correction=1, keepdim=False", |c| {
        c.input()?.var(c.dims_or_all("dim")?, correction(c)?, c.bool("keepdim")?)?
    };
    "var.unbiased", "input, unbiased=True", |c| c.input()?.var(None, unbiased(c)?, false)?;
    "var_mean", "input, dim=None, *, unbiased=None, correction=1, keepdim=False", |c| {
        c.input()?.var_mean(c.dims_or_all("dim")?, correction(c)?, c.bool("keepdim")?)?
    };
    "var_mean.unbiased", "input, unbiased=True", |c| {
        c.input()?.var_mean(None, unbiased(c)?, false)?
    };
}

/// A sum in the dtype that was asked for: of integers it is an `i64`.
fn asked(c: &Call, sum: Tensor) -> Called<Tensor> {
    Ok(sum.to_dtype(c.dtype_or("dtype", sum.dtype())?)?)
}

fn correction(c: &Call) -> Called<f64> {
    match c.has("unbiased") {
        true => unbiased(c),
        false => Ok(c.maybe_float("correction")?.unwrap_or(1.0)),
    }
}

fn unbiased(c: &Call) -> Called<f64> {
    Ok(f64::from(u8::from(c.bool("unbiased")?)))
}

/// `q`, a tensor or a number of the input's dtype.
fn quantiles(c: &Call) -> Called<Tensor> {
    match c.operand("q")? {
        Operand::Tensor(q) => Ok(q.clone()),
        Operand::Scalar(q) => Ok(Tensor::scalar(q, c.input()?.dtype())?),
    }
}

fn interpolation(c: &Call) -> Called<Interpolation> {
    Ok(match c.text("interpolation")? {
        "linear" => Interpolation::Linear,
        "lower" => Interpolation::Lower,
        "higher" => Interpolation::Higher,
        "midpoint" => Interpolation::Midpoint,
        "nearest" => Interpolation::Nearest,
        other => return missing(format!("interpolation={other}")),
    })
}

fn reduction(c: &Call) -> Called<ScatterReduce> {
    Ok(match c.text("reduce")? {
        "sum" => ScatterReduce::Sum,
        "prod" => ScatterReduce::Prod,
        "mean" => ScatterReduce::Mean,
        "amax" => ScatterReduce::Amax,
        "amin" => ScatterReduce::Amin,
        other => return missing(format!("reduce={other}")),
    })
}
