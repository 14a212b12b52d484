//! Tensors of one value.

use rustorch_ir::{Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts};

use crate::element::with_type;
use crate::elementwise::Function;
use crate::kernel::Misuse;
use crate::launch::Launch;

pub(crate) const KERNEL: KernelEntry<Launch> = KernelEntry {
    kind: OpKind::Full,
    accepts,
    layouts: Layouts::Any,
    launch: Launch::Elementwise {
        function,
        check: None,
    },
};

fn accepts(_: &Signature) -> bool {
    true
}

fn function(signature: &Signature) -> Result<Function, Misuse> {
    let Op::Full(op) = signature.op else {
        return Err(Misuse("not a full".to_owned()));
    };
    let dtype = signature.output().dtype;
    with_type!(dtype, words T => {
        let value: T = bytemuck::pod_read_unaligned(&op.value.to_bytes(dtype));
        Ok(Function::constant(value))
    })
}
