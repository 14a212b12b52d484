//! Rotary position embedding of `f32` rows.

use std::cell::RefCell;

use rustorch_ir::ops::{Rope, RopeLayout};
use rustorch_ir::{DType, Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts};

use crate::kernel::{Args, Misuse, for_rows};
use crate::launch::Launch;
use crate::pool::Pool;
use crate::view::View;

pub(crate) const KERNEL: KernelEntry<Launch> = KernelEntry {
    kind: OpKind::Rope,
    accepts,
    layouts: Layouts::DenseRows,
    launch: Launch::Whole(launch),
};

fn accepts(s: &Signature) -> bool {
    s.output().dtype == DType::F32
}

fn launch(mut args: Args) -> Result<(), Misuse> {
    let Op::Rope(op) = args.op else {
        return Err(Misuse("not a rope".to_owned()));
    };
    let (x, positions) = (&args.inputs[0], &args.inputs[1]);
    let factors: Option<&[f32]> = args.inputs.get(2).map(|f| f.data());
    SCRATCH.with_borrow_mut(|scratch| {
        scratch.fill(op, x, positions, factors);
        let Scratch { turns, starts, .. } = scratch;
        rotate(args.pool, op, x, turns, starts, args.output.data());
    });
    Ok(())
}

/// A thread's preparations for a call, as large as its largest so far. All layers of a model turn by
/// the same angles, and all tokens have the same frequencies. So those of the last call are kept.
#[derive(Default)]
struct Scratch {
    /// Operation of the frequencies.
    op: Option<Rope>,
    factors: Option<Vec<f32>>,
    frequencies: Vec<f64>,
    /// Positions of the turns.
    positions: Vec<i32>,
    /// Cosine and sine, with their magnitude, for each position and pair.
    turns: Vec<(f32, f32)>,
    /// Starts of the rows.
    starts: Vec<usize>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

impl Scratch {
    fn fill(&mut self, op: &Rope, x: &View, positions: &View, factors: Option<&[f32]>) {
        let (layout, data) = (positions.layout, positions.data::<i32>());
        let positions = || layout.positions().map(|at| data[at - layout.offset]);
        let is_same = self.op.as_ref() == Some(op) && self.factors.as_deref() == factors;
        if !is_same {
            self.op = Some(op.clone());
            self.factors = factors.map(<[f32]>::to_vec);
            let pairs = 0..op.dims / 2;
            self.frequencies.clear();
            (self.frequencies).extend(pairs.map(|pair| op.frequency(pair, factors)));
        }
        if !is_same || !positions().eq(self.positions.iter().copied()) {
            self.positions.clear();
            self.positions.extend(positions());
            self.fill_turns(op);
        }
        // Rows in row-major order; row r has position r % t and starts where its layout says.
        let mut rows = x.layout.clone();
        rows.shape = rows.shape.with_dim(x.shape().len() - 1, 1);
        self.starts.clear();
        (self.starts).extend(rows.positions().map(|at| at - x.layout.offset));
    }

    fn fill_turns(&mut self, op: &Rope) {
        let magnitude = op.magnitude();
        self.turns.clear();
        for &position in &self.positions {
            self.turns.extend(self.frequencies.iter().map(|f| {
                let (sin, cos) = (f64::from(position) * f).sin_cos();
                ((cos * magnitude) as f32, (sin * magnitude) as f32)
            }));
        }
    }
}

fn rotate(
    pool: &Pool,
    op: &Rope,
    x: &View,
    turns: &[(f32, f32)],
    starts: &[usize],
    out: &mut [f32],
) {
    let d = *x.shape().last().unwrap_or(&0);
    let pairs = op.dims / 2;
    let positions = turns.len().checked_div(pairs).unwrap_or(1);
    let data: &[f32] = x.data();
    for_rows(pool, out, d, 4 * d, |first, part| {
        for (i, out) in part.chunks_exact_mut(d).enumerate() {
            let row = &data[starts[first + i]..][..d];
            let turns = &turns[(first + i) % positions * pairs..][..pairs];
            turn(op, turns, row, out);
        }
    });
}

fn turn(op: &Rope, turns: &[(f32, f32)], row: &[f32], out: &mut [f32]) {
    let (x, rest) = row.split_at(op.dims);
    let (y, tail) = out.split_at_mut(op.dims);
    tail.copy_from_slice(rest);
    match op.layout {
        RopeLayout::Interleaved => {
            let pairs = y.chunks_exact_mut(2).zip(x.chunks_exact(2));
            for ((y, x), &(cos, sin)) in pairs.zip(turns) {
                y[0] = x[0] * cos - x[1] * sin;
                y[1] = x[0] * sin + x[1] * cos;
            }
        }
        RopeLayout::Halves => {
            let (a, b) = x.split_at(op.dims / 2);
            let (ya, yb) = y.split_at_mut(op.dims / 2);
            for (i, &(cos, sin)) in turns.iter().enumerate() {
                ya[i] = a[i] * cos - b[i] * sin;
                yb[i] = a[i] * sin + b[i] * cos;
            }
        }
    }
}
