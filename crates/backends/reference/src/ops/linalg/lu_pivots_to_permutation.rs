use rustorch_ir::ops::LuPivotsToPermutation;

use crate::Values;
use crate::operand::{Call, Misuse};
use crate::values::Element;

pub(crate) fn evaluate(op: &LuPivotsToPermutation, call: &Call) -> Result<Values, Misuse> {
    let pivots = &call.inputs[0];
    let [batch @ .., count] = &pivots.shape()[..] else {
        unreachable!("inference admits no number");
    };
    let all: &[i128] = Element::of(&pivots.values);
    let mut permutations = Vec::new();
    for matrix in 0..batch.iter().product() {
        let mut rows: Vec<i128> = (0..op.rows as i128).collect();
        for i in 0..*count {
            let pivot = all[matrix * count + i];
            if !(1..=op.rows as i128).contains(&pivot) {
                return Err(Misuse(format!("the pivot {pivot} is not a row")));
            }
            rows.swap(i, pivot as usize - 1);
        }
        permutations.extend(rows);
    }
    Ok(Values::Int(permutations))
}
