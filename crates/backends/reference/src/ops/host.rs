use rustorch_ir::TensorType;
use rustorch_ir::ops::{Host, HostArray, HostArrayMut};

use crate::Values;
use crate::operand::{Call, Misuse};

pub(crate) fn evaluate(op: &Host, call: &Call) -> Result<Vec<Values>, Misuse> {
    let encoded = (call.inputs.iter()).map(|x| (x.ty, x.values.encode(x.dtype())));
    let encoded: Vec<(&TensorType, Vec<u8>)> = encoded.collect();
    let inputs: Vec<HostArray> = (encoded.iter())
        .map(|(ty, bytes)| HostArray { ty, bytes })
        .collect();
    let mut results: Vec<Vec<u8>> = call.outputs.iter().map(|ty| vec![0; ty.bytes()]).collect();
    let outputs = call.outputs.iter().zip(&mut results);
    let mut outputs: Vec<HostArrayMut> = outputs
        .map(|(ty, bytes)| HostArrayMut { ty, bytes })
        .collect();
    op.call(&inputs, &mut outputs).map_err(Misuse)?;
    let results = results.into_iter().zip(call.outputs);
    Ok(results
        .map(|(bytes, ty)| Values::decode(bytes, ty.dtype))
        .collect())
}
