//! Elements put to places along a dimension, or combined with what is there.

use std::cmp::Ordering;

use rustorch_ir::ops::{Scatter, ScatterMode};
use rustorch_ir::{Layout, Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts};

use crate::element::{Element, with_type};
use crate::index::indices;
use crate::kernel::{Args, Misuse, for_rows};
use crate::launch::Launch;
use crate::reader::{Reader, Runs};

pub(crate) const KERNEL: KernelEntry<Launch> = KernelEntry {
    kind: OpKind::Scatter,
    accepts,
    layouts: Layouts::Any,
    launch: Launch::Whole(launch),
};

fn accepts(_: &Signature) -> bool {
    true
}

fn launch(mut args: Args) -> Result<(), Misuse> {
    let Op::Scatter(op) = args.op else {
        return Err(Misuse("not a scatter".to_owned()));
    };
    let picks = indices(args.pool, &args.inputs[1], &args.inputs[0], op.dim)?;
    let dtype = args.output.dtype();
    match op.mode {
        ScatterMode::Set => with_type!(dtype, words T => {
            scatter::<T>(&mut args, op, &picks, |_, source| source);
            Ok(())
        }),
        ScatterMode::Add if dtype.is_float() => with_type!(dtype, floats T => {
            scatter::<T>(&mut args, op, &picks, |x, source| x + source);
            Ok(())
        }),
        ScatterMode::Add if dtype.is_complex() => with_type!(dtype, complex T => {
            scatter::<T>(&mut args, op, &picks, |x, source| x + source);
            Ok(())
        }),
        ScatterMode::Add => with_type!(dtype, ints T => {
            scatter::<T>(&mut args, op, &picks, |x: T, source| x.wrapping_add(source));
            Ok(())
        }),
        ScatterMode::Prod if dtype.is_float() => with_type!(dtype, floats T => {
            scatter::<T>(&mut args, op, &picks, |x, source| x * source);
            Ok(())
        }),
        ScatterMode::Prod if dtype.is_complex() => with_type!(dtype, complex T => {
            scatter::<T>(&mut args, op, &picks, |x, source| x * source);
            Ok(())
        }),
        ScatterMode::Prod => with_type!(dtype, ints T => {
            scatter::<T>(&mut args, op, &picks, |x: T, source| x.wrapping_mul(source));
            Ok(())
        }),
        ScatterMode::Max => with_type!(dtype, reals T => {
            scatter::<T>(&mut args, op, &picks, larger);
            Ok(())
        }),
        ScatterMode::Min => with_type!(dtype, reals T => {
            scatter::<T>(&mut args, op, &picks, smaller);
            Ok(())
        }),
    }
}

/// The larger; NaN where one is NaN.
fn larger<T: PartialOrd>(a: T, b: T) -> T {
    match b.partial_cmp(&a) {
        Some(Ordering::Greater) => b,
        None if is_nan(&b) => b,
        _ => a,
    }
}

/// The smaller; NaN where one is NaN.
fn smaller<T: PartialOrd>(a: T, b: T) -> T {
    match b.partial_cmp(&a) {
        Some(Ordering::Less) => b,
        None if is_nan(&b) => b,
        _ => a,
    }
}

fn is_nan<T: PartialOrd>(x: &T) -> bool {
    x.partial_cmp(x).is_none()
}

/// Copies `x` and puts `combine(old, new)` where the index says, in row-major order. What
/// is behind different indices of the first dimension is done in parallel, if that is not
/// the dimension that is indexed.
fn scatter<T: Element>(
    args: &mut Args,
    op: &Scatter,
    picks: &[usize],
    combine: impl Fn(T, T) -> T + Sync,
) {
    let [x, index, source] = [&args.inputs[0], &args.inputs[1], &args.inputs[2]];
    let slabs = if op.dim == 0 { 1 } else { x.shape()[0] };
    let indexed = if op.dim == 0 { 1 } else { index.shape()[0] };
    // Elements of the result and of the index in a slab.
    let slab = x.layout.elements() / slabs.max(1);
    let picked = picks.len() / indexed.max(1);
    let mut lines = Layout::contiguous(&args.output.ty.shape);
    let stride = std::mem::take(&mut lines.strides[op.dim]);
    lines.shape = index.ty.shape.clone();
    let [lines] = Layout::collapse([&lines]);
    let (x, source) = (Reader::<T>::whole(x), Reader::<T>::whole(source));
    for_rows(
        args.pool,
        args.output.data::<T>(),
        slab,
        slab,
        |first, part| {
            let base = first * slab;
            x.copy(base, part);
            let start = (first * picked).min(picks.len());
            let end = (start + part.len() / slab * picked).min(picks.len());
            let mut new = vec![T::zeroed(); end - start];
            source.copy(start, &mut new);
            let places = Runs::new(&lines, start..end)
                .flat_map(|run| (0..run.len).map(move |i| run.at + i * run.stride));
            for ((place, pick), new) in places.zip(&picks[start..]).zip(new) {
                let old = &mut part[place + pick * stride - base];
                *old = combine(*old, new);
            }
        },
    );
}
