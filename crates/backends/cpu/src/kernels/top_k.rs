//! The places of the largest or smallest elements of each line, in order.

use std::cmp::Ordering;

use rustorch_ir::{Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts};

use crate::element::with_type;
use crate::fold::Ordered;
use crate::kernel::{Args, Misuse};
use crate::launch::Launch;
use crate::lines::map_lines;

pub(crate) const KERNEL: KernelEntry<Launch> = KernelEntry {
    kind: OpKind::TopK,
    accepts,
    layouts: Layouts::Any,
    launch: Launch::Whole(launch),
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
    // Candidates, thinned out to the best when there are twice as many as needed; later
    // ones have to be better than the worst of those.
    let k = best.len();
    let mut places = Vec::with_capacity(x.len().min(2 * k));
    let mut worst = None;
    for place in 0..x.len() as i64 {
        if worst.is_none_or(|worst| better(&place, &worst).is_lt()) {
            places.push(place);
        }
        if places.len() == 2 * k {
            worst = Some(*places.select_nth_unstable_by(k - 1, better).1);
            places.truncate(k);
        }
    }
    places.sort_unstable_by(better);
    places.truncate(k);
    best.copy_from_slice(&places);
}

/// By size, NaN being the largest.
fn compare<T: Ordered>(a: T, b: T) -> Ordering {
    let nan = || a.is_unordered().cmp(&b.is_unordered());
    a.partial_cmp(&b).unwrap_or_else(nan)
}
