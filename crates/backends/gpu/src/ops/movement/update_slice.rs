//! Writing into a state.

use rustorch_ir::{Layout, Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts, Step};

use crate::emit::{Emitter, GpuKernel};
use crate::kernel::Kernel;
use crate::ops::functions::convert;

pub(crate) const KERNEL: KernelEntry<GpuKernel> = KernelEntry {
    kind: OpKind::UpdateSlice,
    accepts,
    layouts: Layouts::Any,
    launch: GpuKernel::everywhere(emit),
};

/// Work-items of a group.
const GROUP: u32 = 64;

/// Least rank that the kernel is made for, that of caches, so that one serves all of their sizes.
const RANK: usize = 3;

fn accepts(s: &Signature) -> bool {
    !s.output().dtype.is_block()
}

fn emit(step: &Step, emitter: &mut Emitter) {
    let Op::UpdateSlice(op) = &step.last().op else {
        return;
    };
    let (x, start, y) = (&step.inputs[1], &step.inputs[2], step.output());
    let (count, size) = (x.ty.shape[op.dim], y.ty.shape[op.dim]);
    let [from, to] = Layout::collapse([&x.layout, &y.layout.slice(op.dim, 0, count, 1)]);
    let n = x.ty.shape.elements();
    let text = include_str!("../../../kernels/update_slice.c");
    let mut kernel = Kernel::new("update_slice", text, GROUP);
    convert(&mut kernel, x.ty.dtype, y.ty.dtype);
    kernel.define_dtype("X", x.ty.dtype);
    kernel.read("x", x);
    kernel.read("start", start);
    kernel.define_dtype("Y", y.ty.dtype);
    kernel.write("y", y);
    kernel.word("n", n);
    kernel.word("last", size - count);
    kernel.word("stride", y.layout.strides[op.dim]);
    kernel.define("RANK", from.rank().max(RANK));
    for (name, values, missing) in [
        ("shape", &from.shape[..], 1),
        ("x_strides", &from.strides, 0),
        ("y_strides", &to.strides, 0),
    ] {
        let mut padded = vec![missing; RANK.saturating_sub(values.len())];
        padded.extend(values);
        kernel.words(name, &padded);
    }
    let message = format!(
        "the start leaves no room for {count} in dim {} of {}",
        op.dim, y.ty
    );
    kernel.status("status", emitter.mistake(step, 0, message));
    // A group even for no elements: the start may be a mistake.
    emitter.launch(kernel.groups(n.div_ceil(GROUP as usize).max(1), 1, 1));
}
