use std::f64::consts::TAU;

use rustorch_ir::ops::{Rope, RopeLayout};
use rustorch_ir::{DType, Op, OpKind, Shape};
use smallvec::smallvec;

use crate::builder::{Builder, Var, Vars};
use crate::constant::Constant;
use crate::kernel::{Call, Kernel, is_float, parameters};
use crate::ops::concat::concat;
use crate::ops::slice::slice;
use crate::proto::mil::DataType;

pub(crate) const KERNEL: Kernel = Kernel {
    kind: OpKind::Rope,
    accepts,
    emit,
};

/// Pairs of neighbours take one dimension more.
fn accepts(call: &Call) -> bool {
    let op = parameters!(call.signature.op, Rope);
    let inputs = call.signature.inputs;
    let x = inputs[0];
    is_float(x.dtype)
        && op.dims > 0
        && (op.layout == RopeLayout::Halves || x.rank() < 5)
        && inputs
            .iter()
            .all(|ty| is_float(ty.dtype) || ty.dtype == DType::I32)
}

fn emit(b: &mut Builder, op: &Op, x: &[Var]) -> Vars {
    let op = parameters!(op, Rope);
    let angle = angles(b, op, &x[1], x.get(2));
    let magnitude = b.number(op.magnitude(), &angle);
    let x = &x[0];
    let [cos, sin] = ["cos", "sin"].map(|kind| {
        let wave = b.unary(kind, &angle);
        let wave = b.binary("mul", &wave, &magnitude);
        b.cast(&wave, x.data_type)
    });
    let last = x.shape.len() - 1;
    let pairs = op.dims / 2;
    let flat = x.shape.clone().with_dim(last, pairs);
    let [first, second] = [0, 1].map(|i| {
        let (range, step) = match op.layout {
            RopeLayout::Interleaved => ((i, op.dims - 1 + i), 2),
            RopeLayout::Halves => ((i * pairs, (i + 1) * pairs), 1),
        };
        slice(b, x, last, range, step)
    });
    let mut turned = |kind: &str, a: &Var, z: &Var| {
        let a = b.binary("mul", &first, a);
        let z = b.binary("mul", &second, z);
        b.binary(kind, &a, &z)
    };
    let parts = [turned("sub", &cos, &sin), turned("add", &sin, &cos)];
    let turned = match op.layout {
        RopeLayout::Halves => concat(b, &parts, last),
        RopeLayout::Interleaved => {
            let single: Shape = flat.iter().copied().chain([1]).collect();
            let parts = parts.map(|part| b.reshape(&part, &single));
            let pairs = concat(b, &parts, last + 1);
            b.reshape(&pairs, &flat.with_dim(last, op.dims))
        }
    };
    if op.dims == x.shape[last] {
        return smallvec![turned];
    }
    let rest = slice(b, x, last, (op.dims, x.shape[last]), 1);
    smallvec![concat(b, &[turned, rest], last)]
}

/// Positions are split by this number: products of single precision stay exact to some digits of a
/// turn.
const SPLIT: f64 = 256.0;

/// Angles `[t, dims / 2]` in single precision, whatever the program computes in. Whole turns are
/// left out: a large angle would keep no digits. A position is `256 a + b`. The angle is `a` times
/// the turn of 256 positions, without whole turns, plus `b` times that of one. `factors` are in
/// single precision, too.
fn angles(b: &mut Builder, op: &Rope, positions: &Var, factors: Option<&Var>) -> Var {
    let single = DataType::Float32;
    let pairs = op.dims / 2;
    let position = b.cast(positions, single);
    let position = b.reshape(&position, &[positions.shape.elements(), 1]);
    let (frequencies, _) = op.frequencies(None);
    if let Some(factors) = factors {
        // Factors are an operand, so the program itself divides the frequencies.
        let constant = Constant::floats(frequencies, &[pairs], single);
        let frequency = b.constant(&constant);
        let frequency = b.binary("real_div", &frequency, factors);
        return b.binary("mul", &position, &frequency);
    }
    let split = b.number(SPLIT, &position);
    let above = b.binary("real_div", &position, &split);
    let above = b.unary("floor", &above);
    let below = b.binary("mul", &above, &split);
    let below = b.binary("sub", &position, &below);
    let mut turns = |count: &Var, positions: f64| {
        let turns = frequencies.iter().map(|f| fraction(positions * f / TAU));
        let turns = b.constant(&Constant::floats(turns, &[pairs], single));
        let turns = b.binary("mul", count, &turns);
        without_whole(b, &turns)
    };
    let (above, below) = (turns(&above, SPLIT), turns(&below, 1.0));
    let sum = b.binary("add", &above, &below);
    let turn = b.number(TAU, &sum);
    b.binary("mul", &sum, &turn)
}

/// `x` without the nearest whole number.
fn fraction(x: f64) -> f64 {
    x - x.round()
}

fn without_whole(b: &mut Builder, turns: &Var) -> Var {
    let half = b.number(0.5, turns);
    let whole = b.binary("add", turns, &half);
    let whole = b.unary("floor", &whole);
    b.binary("sub", turns, &whole)
}
