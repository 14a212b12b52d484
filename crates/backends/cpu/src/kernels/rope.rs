//! Rotary position embedding of `f32` rows.

use rustorch_ir::ops::{Rope, RopeLayout};
use rustorch_ir::{DType, Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts};

use crate::kernel::{Args, Misuse, for_rows};
use crate::launch::Launch;

pub(crate) const KERNEL: KernelEntry<Launch> = KernelEntry {
    kind: OpKind::Rope,
    accepts,
    layouts: Layouts::DenseRows,
    launch: Launch::Whole(launch),
};

fn accepts(s: &Signature) -> bool {
    s.output.dtype == DType::F32
}

fn launch(mut args: Args) -> Result<(), Misuse> {
    let Op::Rope(op) = args.op else {
        return Err(Misuse("not a rope".to_owned()));
    };
    let (x, positions) = (&args.inputs[0], &args.inputs[1]);
    let positions: Vec<i32> = (positions.layout.positions())
        .map(|at| positions.data::<i32>()[at - positions.layout.offset])
        .collect();
    let factors: Option<&[f32]> = args.inputs.get(2).map(|f| f.data());
    let turns = turns(op, &positions, factors);

    // Rows in row-major order; row r has position r % t and starts where its layout says.
    let (t, d) = (positions.len(), *x.shape().last().unwrap_or(&0));
    let data: &[f32] = x.data();
    let mut rows = x.layout.clone();
    rows.shape = rows.shape.with_dim(x.shape().len() - 1, 1);
    let starts: Vec<usize> = rows.positions().map(|at| at - x.layout.offset).collect();
    for_rows(
        args.pool,
        args.output.data::<f32>(),
        d,
        4 * d,
        |first, part| {
            for (i, out) in part.chunks_exact_mut(d).enumerate() {
                let row = &data[starts[first + i]..][..d];
                let turns = &turns[(first + i) % t * (op.dims / 2)..][..op.dims / 2];
                turn(op, turns, row, out);
            }
        },
    );
    Ok(())
}

/// Cosine and sine, with their magnitude, for each position and pair.
fn turns(op: &Rope, positions: &[i32], factors: Option<&[f32]>) -> Vec<(f32, f32)> {
    let (frequencies, magnitude) = op.frequencies(factors);
    let turn = |angle: f64| {
        let (sin, cos) = angle.sin_cos();
        ((cos * magnitude) as f32, (sin * magnitude) as f32)
    };
    (positions.iter())
        .flat_map(|&p| frequencies.iter().map(move |f| turn(f64::from(p) * f)))
        .collect()
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
