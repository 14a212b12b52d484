//! Functions of the selected elements.

use rustorch_tensor::{Tensor, masked};

use crate::call::{Call, Called};

table! {
    "masked.amax", "input, dim=None, keepdim=False, *, dtype=None, mask=None", |c| {
        let most = masked::amax(c.input()?, c.dims_or_all("dim")?, c.bool("keepdim")?, c.optional("mask")?)?;
        asked(c, most)?
    };
    "masked.amin", "input, dim=None, keepdim=False, *, dtype=None, mask=None", |c| {
        let least = masked::amin(c.input()?, c.dims_or_all("dim")?, c.bool("keepdim")?, c.optional("mask")?)?;
        asked(c, least)?
    };
    "masked.argmax", "input, dim=None, keepdim=False, *, dtype=None, mask=None", |c| {
        asked(c, masked::argmax(c.input()?, c.maybe_int("dim")?, c.bool("keepdim")?, c.optional("mask")?)?)?
    };
    "masked.argmin", "input, dim=None, keepdim=False, *, dtype=None, mask=None", |c| {
        asked(c, masked::argmin(c.input()?, c.maybe_int("dim")?, c.bool("keepdim")?, c.optional("mask")?)?)?
    };
    "masked.cumprod", "input, dim, *, dtype=None, mask=None", |c| {
        masked::cumprod(&c.input_as("dtype")?, c.int::<isize>("dim")?, c.optional("mask")?)?
    };
    "masked.cumsum", "input, dim, *, dtype=None, mask=None", |c| {
        masked::cumsum(&c.input_as("dtype")?, c.int::<isize>("dim")?, c.optional("mask")?)?
    };
    "masked.log_softmax", "input, dim, *, dtype=None, mask=None", |c| {
        masked::log_softmax(&c.input_as("dtype")?, c.int::<isize>("dim")?, c.optional("mask")?)?
    };
    "masked.logaddexp", "input, other, *, dtype=None, input_mask=None, other_mask=None", |c| {
        let masks = (c.optional("input_mask")?, c.optional("other_mask")?);
        asked(c, masked::logaddexp(c.input()?, c.tensor("other")?, masks.0, masks.1)?)?
    };
    "masked.logsumexp", "input, dim=None, keepdim=False, *, dtype=None, mask=None", |c| {
        let log = masked::logsumexp(c.input()?, c.dims_or_all("dim")?, c.bool("keepdim")?, c.optional("mask")?)?;
        asked(c, log)?
    };
    "masked.mean", "input, dim=None, keepdim=False, *, dtype=None, mask=None", |c| {
        masked::mean(&c.input_as("dtype")?, c.dims_or_all("dim")?, c.bool("keepdim")?, c.optional("mask")?)?
    };
    "masked.median", "input, dim=-1, keepdim=False, *, dtype=None, mask=None", |c| {
        asked(c, masked::median(c.input()?, c.int::<isize>("dim")?, c.bool("keepdim")?, c.optional("mask")?)?)?
    };
    "masked.norm", "input, ord=2.0, dim=None, keepdim=False, *, dtype=None, mask=None", |c| {
        let (ord, dims) = (c.float("ord")?, c.dims_or_all("dim")?);
        masked::norm(&c.input_as("dtype")?, ord, dims, c.bool("keepdim")?, c.optional("mask")?)?
    };
    "masked.normalize", "input, ord, dim, *, eps=1e-12, dtype=None, mask=None", |c| {
        let (ord, dim) = (c.float("ord")?, c.int::<isize>("dim")?);
        masked::normalize(&c.input_as("dtype")?, ord, dim, c.float("eps")?, c.optional("mask")?)?
    };
    "masked.prod", "input, dim=None, keepdim=False, *, dtype=None, mask=None", |c| {
        let x = c.input_as("dtype")?;
        asked(c, masked::prod(&x, c.dims_or_all("dim")?, c.bool("keepdim")?, c.optional("mask")?)?)?
    };
    "masked.softmax", "input, dim, *, dtype=None, mask=None", |c| {
        masked::softmax(&c.input_as("dtype")?, c.int::<isize>("dim")?, c.optional("mask")?)?
    };
    "masked.softmin", "input, dim, *, dtype=None, mask=None", |c| {
        masked::softmin(&c.input_as("dtype")?, c.int::<isize>("dim")?, c.optional("mask")?)?
    };
    "masked.std", "input, dim=None, unbiased=None, *, correction=None, keepdim=False, dtype=None, mask=None", |c| {
        let (dims, correction) = (c.dims_or_all("dim")?, correction(c)?);
        masked::std(&c.input_as("dtype")?, dims, correction, c.bool("keepdim")?, c.optional("mask")?)?
    };
    "masked.sum", "input, dim=None, keepdim=False, *, dtype=None, mask=None", |c| {
        let x = c.input_as("dtype")?;
        asked(c, masked::sum(&x, c.dims_or_all("dim")?, c.bool("keepdim")?, c.optional("mask")?)?)?
    };
    "masked.var", "input, dim=None, unbiased=None, *, correction=None, keepdim=False, dtype=None, mask=None", |c| {
        let (dims, correction) = (c.dims_or_all("dim")?, correction(c)?);
        masked::var(&c.input_as("dtype")?, dims, correction, c.bool("keepdim")?, c.optional("mask")?)?
    };
}

/// The result in the dtype that was asked for.
fn asked(c: &Call, result: Tensor) -> Called<Tensor> {
    Ok(result.to_dtype(c.dtype_or("dtype", result.dtype())?)?)
}

fn correction(c: &Call) -> Called<f64> {
    Ok(match c.has("unbiased") {
        true => f64::from(u8::from(c.bool("unbiased")?)),
        false => c.maybe_float("correction")?.unwrap_or(1.0),
    })
}
