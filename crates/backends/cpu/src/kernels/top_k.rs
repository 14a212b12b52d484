//! The largest or smallest elements of each line, in order, and their places.

use std::cmp::Ordering;

use rustorch_ir::{Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts};

use crate::element::with_type;
use crate::fold::Ordered;
use crate::index::take;
use crate::kernel::{Args, Misuse};
use crate::launch::Launch;
use crate::lines::map_lines_to;

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

fn launch(args: Args) -> Result<(), Misuse> {
    let Op::TopK(op) = args.op else {
        return Err(Misuse("not a top_k".to_owned()));
    };
    let Args {
        pool,
        inputs: [x],
        output: mut values,
        mut others,
        ..
    } = args
    else {
        return Err(Misuse("top_k has one operand".to_owned()));
    };
    let [indices] = &mut others[..] else {
        return Err(Misuse("top_k has two results".to_owned()));
    };
    with_type!(x.dtype(), reals T => {
        map_lines_to::<T, i64>(pool, x, indices, op.dim, WORK, |x, y| top(x, op.largest, y));
        Ok(())
    })?;
    let picks: &[i64] = indices.data();
    let shape = &values.ty.shape;
    with_type!(x.dtype(), words T => {
        take::<T>(pool, values.data(), shape, x, op.dim, |i| picks[i] as usize);
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
