use rustorch_ir::ops::Attention;
use rustorch_ir::{DType, Op, OpKind, Shape};
use smallvec::smallvec;

use crate::builder::{Builder, Var, Vars};
use crate::constant::Constant;
use crate::kernel::{Call, Kernel, is_float, parameters};
use crate::ops::matmul::product;
use crate::proto::mil::DataType;

pub(crate) const KERNEL: Kernel = Kernel {
    kind: OpKind::Attention,
    accepts,
    emit,
};

/// Without the totals of the weights, and without a window.
fn accepts(call: &Call) -> bool {
    let op = parameters!(call.signature.op, Attention);
    let is_plain = !op.log_sum_exp && op.window.is_none();
    is_plain && call.operands_are(|dtype| is_float(dtype) || dtype == DType::I32)
}

/// Queries of one group are rows of one matrix: `[…, g, h / g · t, d]` by `[…, g, s, d]`.
fn emit(b: &mut Builder, op: &Op, x: &[Var]) -> Vars {
    let op = parameters!(op, Attention);
    let (q, k, v) = (
        &x[0],
        b.cast(&x[1], x[0].data_type),
        b.cast(&x[2], x[0].data_type),
    );
    let rank = q.shape.len();
    let [groups, keys] = [0, 1].map(|i| k.shape[rank - 3 + i]);
    let [heads, t, width] = [0, 1, 2].map(|i| q.shape[rank - 3 + i]);
    let with = |last: [usize; 3]| -> Shape {
        let lead = q.shape[..rank - 3].iter().copied();
        lead.chain(last).collect()
    };
    let rows = heads / groups * t;
    // Halves hold the scores of scaled queries where they do not hold those of others.
    let scale = b.number(op.scale.0, q);
    let scaled = b.binary("mul", q, &scale);
    let scaled = b.reshape(&scaled, &with([groups, rows, width]));
    let scores = product(b, &scaled, &k, true);
    let scores = b.reshape(&scores, &with([heads, t, keys]));
    let mut scores = capped(b, scores, op);
    if op.mask {
        scores = b.binary("add", &scores, &x[3]);
    }
    let mut v = v;
    if op.causal {
        let past = op.past.then(|| &x[x.len() - 1]);
        (scores, v) = causal(b, scores, v, past);
    }
    let args = [
        ("x", (&scores).into()),
        ("axis", Constant::int(rank - 1).into()),
    ];
    let weights = b.op("softmax", &args, scores.data_type, &scores.shape);
    let weights = b.reshape(&weights, &with([groups, rows, keys]));
    smallvec![product(b, &weights, &v, false)]
}

/// `c · tanh(x / c)`, where there is such a cap.
fn capped(b: &mut Builder, scores: Var, op: &Attention) -> Var {
    let Some(cap) = op.soft_cap else {
        return scores;
    };
    let inverse = b.number(1.0 / cap.0, &scores);
    let x = b.binary("mul", &scores, &inverse);
    let x = b.unary("tanh", &x);
    let cap = b.number(cap.0, &x);
    b.binary("mul", &x, &cap)
}

/// The scores of keys up to each query's own position, of others the least number there is; and the
/// values of keys that some query sees, of others 0: they may be anything, NaN included.
fn causal(b: &mut Builder, scores: Var, v: Var, past: Option<&Var>) -> (Var, Var) {
    let rank = scores.shape.len();
    let (t, keys) = (scores.shape[rank - 2], scores.shape[rank - 1]);
    let places = b.range(keys);
    let last = b.range(t);
    let mut last = b.reshape(&last, &[t, 1]);
    let mut newest = b.constant(&Constant::ints(&[t - 1]));
    if let Some(past) = past {
        let past = b.reshape(past, &[1]);
        last = b.binary("add", &last, &past);
        newest = b.binary("add", &newest, &past);
    }
    let seen = b.compare("less_equal", &places, &last);
    let seen = b.expand(&seen, &scores.shape);
    let least = b.number(least(scores.data_type), &scores);
    let least = b.expand(&least, &scores.shape);
    let scores = b.select(&seen, &scores, &least);
    let seen = b.compare("less_equal", &places, &newest);
    let seen = b.reshape(&seen, &[keys, 1]);
    let seen = b.expand(&seen, &v.shape);
    let zero = b.number(0.0, &v);
    let zero = b.expand(&zero, &v.shape);
    let v = b.select(&seen, &v, &zero);
    (scores, v)
}

/// The least number of a type: Apple leaves the behaviour of infinite ones open.
fn least(data_type: DataType) -> f64 {
    match data_type {
        DataType::Float16 => half::f16::MIN.to_f64(),
        _ => f32::MIN.into(),
    }
}
