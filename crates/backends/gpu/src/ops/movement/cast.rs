//! Conversion of blocks to scalars; among scalars it is elementwise.

use rustorch_ir::{OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts, Step};

use crate::emit::{Emitter, GpuKernel};
use crate::ops::blocks::{dequantize, format};

pub(crate) const KERNEL: KernelEntry<GpuKernel> = KernelEntry {
    kind: OpKind::Cast,
    accepts,
    layouts: Layouts::Contiguous,
    launch: GpuKernel::everywhere(emit),
};

fn accepts(s: &Signature) -> bool {
    s.inputs[0].dtype.is_block()
}

fn emit(step: &Step, emitter: &mut Emitter) {
    let x = &step.inputs[0];
    let Some(format) = format(x.ty.dtype) else {
        return;
    };
    let mut kernel = dequantize(format, x, step.output());
    kernel.define("HAS_IDS", 0);
    emitter.launch(kernel);
}
