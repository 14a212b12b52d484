use rustorch_ir::ops::Where;

use crate::Values;
use crate::operand::{Call, Misuse};
use crate::values::{Element, each_type};

pub(crate) fn evaluate(_op: &Where, call: &Call) -> Result<Values, Misuse> {
    let shape = &call.output().shape;
    let condition = call.inputs[0].broadcast(shape);
    let (a, b) = (
        call.inputs[1].broadcast(shape),
        call.inputs[2].broadcast(shape),
    );
    Ok(each_type!(&*a, a => {
        let pairs = a.iter().zip(Element::of(&b));
        let choose = |(&c, (&a, &b))| if c != 0 { a } else { b };
        i128::of(&condition).iter().zip(pairs).map(choose).collect()
    }))
}
