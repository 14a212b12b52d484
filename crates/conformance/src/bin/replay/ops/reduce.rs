//! Elements combined along dimensions.

use crate::call::{Call, Found, missing};

table! {
    "all", "input, dim=None, keepdim=False", |c| {
        c.input()?.all(c.dims("dim")?, c.bool("keepdim")?)?
    };
    "allclose", "input, other, rtol=1e-5, atol=1e-8, equal_nan=False", |c| {
        c.only("equal_nan", "False")?;
        c.input()?.allclose(c.tensor("other")?, c.float("rtol")?, c.float("atol")?)?
    };
    "amax", "input, dim=None, keepdim=False", |c| {
        c.input()?.max(c.dims_or_all("dim")?, c.bool("keepdim")?)?
    };
    "amin", "input, dim=None, keepdim=False", |c| {
        c.input()?.min(c.dims_or_all("dim")?, c.bool("keepdim")?)?
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
        c.input()?.argsort(c.int("dim")?, c.bool("descending")?)?
    };
    "cumsum", "input, dim, *, dtype=None", |c| c.input_as("dtype")?.cumsum(c.int("dim")?)?;
    "equal", "input, other", |c| c.input()?.equal(c.tensor("other")?)?;
    "logsumexp", "input, dim, keepdim=False", |c| {
        c.input()?.logsumexp(c.dims("dim")?, c.bool("keepdim")?)?
    };
    "max.reduction_no_dim", "input", |c| c.input()?.max(None, false)?;
    "max.reduction_with_dim", "input, dim, keepdim=False", |c| {
        c.input()?.max_dim(c.int("dim")?, c.bool("keepdim")?)?
    };
    "mean", "input, dim=None, keepdim=False, *, dtype=None", |c| {
        c.input_as("dtype")?.mean(c.dims_or_all("dim")?, c.bool("keepdim")?)?
    };
    "min.reduction_no_dim", "input", |c| c.input()?.min(None, false)?;
    "min.reduction_with_dim", "input, dim, keepdim=False", |c| {
        c.input()?.min_dim(c.int("dim")?, c.bool("keepdim")?)?
    };
    "prod", "input, dim=None, keepdim=False, *, dtype=None", |c| {
        c.input_as("dtype")?.prod(c.dims("dim")?, c.bool("keepdim")?)?
    };
    "sort", "input, dim=-1, descending=False, stable=False", |c| {
        c.input()?.sort(c.int("dim")?, c.bool("descending")?)?
    };
    "std", "input, dim=None, *, correction=1, keepdim=False", |c| {
        c.input()?.std(c.dims_or_all("dim")?, correction(c)?, c.bool("keepdim")?)?
    };
    "std.unbiased", "input, unbiased", |c| c.input()?.std(None, unbiased(c)?, false)?;
    "sum", "input, dim=None, keepdim=False, *, dtype=None", |c| {
        c.input_as("dtype")?.sum(c.dims_or_all("dim")?, c.bool("keepdim")?)?
    };
    "topk", "input, k, dim=-1, largest=True, sorted=True", |c| {
        c.input()?.topk(c.int("k")?, c.int("dim")?, c.bool("largest")?)?
    };
    "var", "input, dim=None, *, correction=1, keepdim=False", |c| {
        c.input()?.var(c.dims_or_all("dim")?, correction(c)?, c.bool("keepdim")?)?
    };
    "var.unbiased", "input, unbiased", |c| c.input()?.var(None, unbiased(c)?, false)?;
}

fn correction(c: &Call) -> Found<usize> {
    let correction = match c.has("correction") {
        true => c.float("correction")?,
        false => 1.0,
    };
    match correction >= 0.0 && correction.fract() == 0.0 {
        true => Ok(correction as usize),
        false => missing(format!("correction={correction}")),
    }
}

fn unbiased(c: &Call) -> Found<usize> {
    c.bool("unbiased").map(usize::from)
}
