//! Elements put to places along a dimension, or combined with what is there.

use std::cmp::Ordering;

use rustorch_ir::ops::{Scatter, ScatterMode};
use rustorch_ir::{Layout, Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts};

use crate::element::{Element, with_type};
use crate::index::{BLOCK, Check, Index, unsigned, with_index};
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
    with_index!(args.inputs[1].dtype(), I => scatter_by::<I>(&mut args, op))
}

/// With indices of type `I`.
fn scatter_by<I: Index>(args: &mut Args, op: &Scatter) -> Result<(), Misuse> {
    let dtype = args.output.dtype();
    match op.mode {
        ScatterMode::Set => with_type!(dtype, words T => {
            scatter::<T, I>(args, op, |_, source| source)
        }),
        ScatterMode::Add if dtype.is_float() => with_type!(dtype, floats T => {
            scatter::<T, I>(args, op, |x, source| x + source)
        }),
        ScatterMode::Add if dtype.is_complex() => with_type!(dtype, complex T => {
            scatter::<T, I>(args, op, |x, source| x + source)
        }),
        ScatterMode::Add => with_type!(dtype, ints T => {
            scatter::<T, I>(args, op, |x: T, source| x.wrapping_add(source))
        }),
        ScatterMode::Prod if dtype.is_float() => with_type!(dtype, floats T => {
            scatter::<T, I>(args, op, |x, source| x * source)
        }),
        ScatterMode::Prod if dtype.is_complex() => with_type!(dtype, complex T => {
            scatter::<T, I>(args, op, |x, source| x * source)
        }),
        ScatterMode::Prod => with_type!(dtype, ints T => {
            scatter::<T, I>(args, op, |x: T, source| x.wrapping_mul(source))
        }),
        ScatterMode::Max => with_type!(dtype, reals T => {
            scatter::<T, I>(args, op, larger)
        }),
        ScatterMode::Min => with_type!(dtype, reals T => {
            scatter::<T, I>(args, op, smaller)
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

/// Elements that stay in the nearest caches between being copied and being combined.
const NEAR: usize = 4096;

/// Copies `x` and puts `combine(old, new)` where the index says, in row-major order. What
/// is behind different indices of the first dimension is done in parallel, if that is not
/// the dimension that is indexed.
fn scatter<T: Element, I: Index>(
    args: &mut Args,
    op: &Scatter,
    combine: impl Fn(T, T) -> T + Sync,
) -> Result<(), Misuse> {
    let [x, index, source] = [&args.inputs[0], &args.inputs[1], &args.inputs[2]];
    let slabs = if op.dim == 0 { 1 } else { x.shape()[0] };
    let indexed = if op.dim == 0 { 1 } else { index.shape()[0] };
    // Elements of the result and of the index in a slab.
    let slab = x.layout.elements() / slabs.max(1);
    let all = index.layout.elements();
    let picked = all / indexed.max(1);
    let mut lines = Layout::contiguous(&args.output.ty.shape);
    let stride = std::mem::take(&mut lines.strides[op.dim]);
    lines.shape = index.ty.shape.clone();
    let [lines] = Layout::collapse([&lines]);
    let check = Check::new(x.shape()[op.dim]);
    let old = Reader::<T>::whole(x);
    let (indices, new) = (Reader::<I>::whole(index), Reader::<T>::whole(source));
    let together = (NEAR / slab.max(1)).max(1);
    for_rows(
        args.pool,
        args.output.data::<T>(),
        slab,
        slab + 4 * picked,
        |first, part| {
            let (mut indices, mut new) = (indices.clone(), new.clone());
            let slabs = (first..).step_by(together);
            for (first, part) in slabs.zip(part.chunks_mut(together * slab)) {
                let base = first * slab;
                old.copy(base, part);
                let end = (first + part.len() / slab) * picked;
                for number in ((first * picked).min(all)..end.min(all)).step_by(BLOCK) {
                    let len = BLOCK.min(end.min(all) - number);
                    let (indices, new) = (indices.read(number, len), new.stored(number, len));
                    let mut sources = (number..).zip(indices.iter().zip(new));
                    for run in Runs::new(&lines, number..number + len) {
                        let sources = sources.by_ref().take(run.len);
                        let part = &mut part[run.at - base..];
                        if [run.stride, stride] == [0, 1] {
                            // One line, of neighbours.
                            let line = &mut part[..check.size];
                            for (number, (&index, &new)) in sources {
                                match line.get_mut(unsigned(index)) {
                                    Some(old) => *old = combine(*old, new),
                                    None => check.note(number),
                                }
                            }
                            continue;
                        }
                        for (i, (number, (&index, &new))) in sources.enumerate() {
                            if let Some(index) = check.inside(index, number) {
                                let old = &mut part[i * run.stride + index * stride];
                                *old = combine(*old, new);
                            }
                        }
                    }
                }
            }
        },
    );
    check.finish::<I>(index, x, op.dim)
}
