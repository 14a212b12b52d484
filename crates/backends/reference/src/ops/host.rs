use rustorch_ir::ops::{Host, HostArray, HostArrayMut};

use crate::Values;
use crate::operand::{Call, Misuse};

/// Bytes where elements of any type may be.
struct Memory {
    words: Vec<u64>,
    bytes: usize,
}

impl Memory {
    fn zeros(bytes: usize) -> Self {
        let words = vec![0; bytes.div_ceil(size_of::<u64>())];
        Self { words, bytes }
    }

    fn of(bytes: &[u8]) -> Self {
        let mut memory = Self::zeros(bytes.len());
        memory.bytes_mut().copy_from_slice(bytes);
        memory
    }

    fn bytes(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.words)[..self.bytes]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.words)[..self.bytes]
    }
}

pub(crate) fn evaluate(op: &Host, call: &Call) -> Result<Vec<Values>, Misuse> {
    let encoded = (call.inputs.iter()).map(|x| Memory::of(&x.values.encode(x.dtype())));
    let encoded: Vec<Memory> = encoded.collect();
    let inputs = call.inputs.iter().zip(&encoded);
    let inputs: Vec<HostArray> = inputs
        .map(|(x, memory)| HostArray {
            ty: x.ty,
            bytes: memory.bytes(),
        })
        .collect();
    let results = call.outputs.iter().map(|ty| Memory::zeros(ty.bytes()));
    let mut results: Vec<Memory> = results.collect();
    let outputs = call.outputs.iter().zip(&mut results);
    let mut outputs: Vec<HostArrayMut> = outputs
        .map(|(ty, memory)| HostArrayMut {
            ty,
            bytes: memory.bytes_mut(),
        })
        .collect();
    op.call(&inputs, &mut outputs).map_err(Misuse)?;
    let results = results.iter().zip(call.outputs);
    Ok(results
        .map(|(memory, ty)| Values::decode(memory.bytes().to_vec(), ty.dtype))
        .collect())
}
