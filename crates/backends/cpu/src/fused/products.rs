//! Sums of a single and a product: one function in place of two or three, between which blocks would be
//! written and read again. Each step is rounded as it would be by itself.

use rustorch_ir::ops::BinaryOp;
use smallvec::SmallVec;

use super::{Call, Value};
use crate::elementwise::Loop;
use crate::simd::{apply2_broadcast, apply3_broadcast, apply4_broadcast};

/// The calls with those that give an addend's product made one with the sum.
pub(super) fn joined(mut calls: Vec<Call>) -> Vec<Call> {
    let mut uses = vec![0; calls.len()];
    for value in calls.iter().flat_map(|call| &call.operands) {
        if let Value::Call(call) = value {
            uses[*call] += 1;
        }
    }
    let is = |call: &Call, op| call.function.arithmetic == Some(op);
    // The product that a value is, if nobody else reads it.
    let product = |calls: &[Call], value| match value {
        Value::Call(at) if uses[at] == 1 && is(&calls[at], BinaryOp::Mul) => Some(at),
        Value::Call(_) | Value::Source(_) => None,
    };
    let mut is_gone = vec![false; calls.len()];
    for at in 0..calls.len() {
        let [a, b] = match calls[at].operands[..] {
            [a, b] if is(&calls[at], BinaryOp::Add) => [a, b],
            _ => continue,
        };
        let (addend, first) = match (product(&calls, a), product(&calls, b)) {
            (_, Some(first)) => (a, first),
            (Some(first), None) => (b, first),
            (None, None) => continue,
        };
        is_gone[first] = true;
        let mut factors = calls[first].operands.clone();
        let inner = factors
            .iter()
            .position(|&factor| product(&calls, factor).is_some());
        if let Some(inner) = inner
            && let Some(second) = product(&calls, factors.remove(inner))
        {
            is_gone[second] = true;
            factors.insert_many(0, calls[second].operands.iter().copied());
        }
        let call = &mut calls[at];
        call.function = match factors.len() {
            2 => Loop::broadcasting(2, |[x, a, b], y: &mut [f32]| match b {
                &[b] if x.len() == a.len() => apply2_broadcast(x, a, y, |x, a| x + a * b),
                b => apply3_broadcast(x, a, b, y, |x, a, b| x + a * b),
            }),
            _ => Loop::broadcasting(3, |[x, a, b, c], y: &mut [f32]| {
                apply4_broadcast([x, a, b, c], y, |x, a, b, c| x + a * b * c);
            }),
        };
        factors.insert(0, addend);
        call.operands = factors;
    }
    renumbered(calls, &is_gone)
}

/// The calls that are left, which know each other by new numbers.
fn renumbered(calls: Vec<Call>, is_gone: &[bool]) -> Vec<Call> {
    let mut count = 0;
    let numbers: SmallVec<[usize; 16]> = (is_gone.iter())
        .map(|&is_gone| {
            count += usize::from(!is_gone);
            count - usize::from(!is_gone)
        })
        .collect();
    let left = calls
        .into_iter()
        .zip(is_gone)
        .filter(|(_, is_gone)| !**is_gone);
    left.map(|(mut call, _)| {
        for value in &mut call.operands {
            if let Value::Call(at) = value {
                *at = numbers[*at];
            }
        }
        call
    })
    .collect()
}
