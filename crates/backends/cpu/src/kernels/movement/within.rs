//! Checks that elements are in a range.

use std::sync::atomic::{AtomicUsize, Ordering};

use rustorch_ir::ops::Within;
use rustorch_ir::{Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts};

use crate::element::{Element, with_type};
use crate::index::coordinates;
use crate::kernel::{Args, Misuse, for_rows};
use crate::launch::Launch;
use crate::reader::Reader;

pub(crate) const KERNEL: KernelEntry<Launch> = KernelEntry {
    kind: OpKind::Within,
    accepts,
    layouts: Layouts::Any,
    launch: Launch::Whole(launch),
};

fn accepts(_: &Signature) -> bool {
    true
}

fn launch(mut args: Args) -> Result<(), Misuse> {
    let Op::Within(op) = args.op else {
        return Err(Misuse("not a within".to_owned()));
    };
    with_type!(args.output.dtype(), floats T => within::<T>(&mut args, op))
}

fn within<T: Element + Into<f64>>(args: &mut Args, op: &Within) -> Result<(), Misuse> {
    let x = &args.inputs[0];
    let reader = Reader::<T>::whole(x);
    let outside = AtomicUsize::new(usize::MAX);
    let out = args.output.data::<T>();
    for_rows(args.pool, out, 1, 1, |first, part| {
        reader.copy(first, part);
        if let Some(i) = part.iter().position(|&x| !op.holds(x.into())) {
            outside.fetch_min(first + i, Ordering::Relaxed);
        }
    });
    let at = outside.into_inner();
    match out.get(at) {
        None => Ok(()),
        Some(&value) => Err(Misuse(format!(
            "the element at {:?} is {}, not {}",
            coordinates(x.shape(), at),
            value.into(),
            op.range()
        ))),
    }
}
