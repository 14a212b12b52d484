//! Triangles of matrices.

use rustorch_ir::ops::Full;
use rustorch_ir::{Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts, Step};

use super::views::{define_rank, for_each, walk, words};
use crate::emit::{Emitter, GpuKernel};
use crate::kernel::halves;
use crate::ops::pointwise::constant;

pub(crate) const KERNEL: KernelEntry<GpuKernel> = KernelEntry {
    kind: OpKind::Triangle,
    accepts,
    layouts: Layouts::Any,
    launch: GpuKernel::everywhere(emit),
};

fn accepts(_: &Signature) -> bool {
    true
}

fn emit(step: &Step, emitter: &mut Emitter) {
    let Op::Triangle(op) = &step.last().op else {
        return;
    };
    let (x, y) = (words(&step.inputs[0]), words(step.output()));
    let [.., rows, columns] = y.ty.shape[..] else {
        return;
    };
    let count = y.ty.shape.elements();
    let mut kernel = for_each(
        "triangle",
        include_str!("../../../kernels/triangle.c"),
        count,
    );
    let zero = Full {
        shape: [].into(),
        value: 0.into(),
        dtype: x.ty.dtype,
    };
    let zero = constant(0, &zero, Some(&mut kernel));
    kernel.define("ZERO", zero);
    kernel.define("UPPER", u8::from(op.upper));
    kernel.define_dtype("X", x.ty.dtype);
    kernel.read("x", &x);
    kernel.write("y", &y);
    kernel.word("rows", rows);
    kernel.word("columns", columns);
    // Far enough from all matrices, and from where a sum wraps.
    let most = i64::from(u32::MAX);
    kernel.words("diagonal", &halves(op.diagonal.clamp(-most, most) as u64));
    let rank = walk(&mut kernel, "view", &[("x", &x.layout)]);
    define_rank(&mut kernel, "RANK", rank, "view_rank");
    emitter.launch(kernel);
}
