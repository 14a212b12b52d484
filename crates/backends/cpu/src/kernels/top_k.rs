//! The places of the largest or smallest elements of each line, in order.

use std::cmp::Ordering;

use rustorch_ir::{Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts};

use crate::element::with_type;
use crate::elementwise::map_lines;
use crate::fold::Ordered;
use crate::kernel::{Args, Launch, Misuse};

pub(crate) const KERNEL: KernelEntry<Launch> = KernelEntry {
    kind: OpKind::TopK,
    accepts,
    layouts: Layouts::Any,
    launch,
};

/// Cost of an element beside an addition.
const WORK: usize = 8;

fn accepts(_: &Signature) -> bool {
    true
}

fn launch(mut args: Args) -> Result<(), Misuse> {
    let Op::TopK(op) = args.op else {
        return Err(Misuse("not a top_k".to_owned()));
    };
    with_type!(args.inputs[0].dtype(), reals T => {
        map_lines::<T, i64>(&mut args, op.dim, WORK, |x, y| top(x, op.largest, y));
        Ok(())
    })
}

/// The places in `x` of the `best.len()` best elements.
fn top<T: Ordered>(x: &[T], largest: bool, best: &mut [i64]) {
    let better = |&a: &i64, &b: &i64| {
        let order = compare(x[a as usize], x[b as usize]);
        let order = if largest { order.reverse() } else { order };
        order.then(a.cmp(&b))
    };
    let k = best.len();
    let mut places: Vec<i64> = (0..x.len() as i64).collect();
    if k < places.len() {
        places.select_nth_unstable_by(k, better);
    }
    let places = &mut places[..k];
    places.sort_unstable_by(better);
    best.copy_from_slice(places);
}

/// By size, NaN being the largest.
fn compare<T: Ordered>(a: T, b: T) -> Ordering {
    let nan = || a.is_unordered().cmp(&b.is_unordered());
    a.partial_cmp(&b).unwrap_or_else(nan)
}
