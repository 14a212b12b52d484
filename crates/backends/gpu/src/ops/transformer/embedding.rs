//! Rows of a table: a gather, unless they are converted.

use rustorch_ir::{Layout, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts, Step};

use crate::emit::{Emitter, GpuKernel};
use crate::kernel::Kernel;
use crate::ops::blocks::{dequantize, format};
use crate::ops::functions::convert;
use crate::ops::gather::Picked;

pub(crate) const KERNEL: KernelEntry<GpuKernel> = KernelEntry {
    kind: OpKind::Embedding,
    accepts,
    layouts: Layouts::Contiguous,
    launch: GpuKernel::everywhere(emit),
};

/// Work-items of a group.
const GROUP: u32 = 64;

fn accepts(_: &Signature) -> bool {
    true
}

fn emit(step: &Step, emitter: &mut Emitter) {
    let (table, ids) = (&step.inputs[0], &step.inputs[1]);
    let (rows, width) = (table.ty.shape[0], table.ty.shape[1]);
    let code = emitter.outside(step, ids, rows, format!("a table of {rows} rows"));
    if table.ty.dtype == step.output().ty.dtype {
        let view = |strides: [usize; 2], offset: usize| Layout {
            shape: [ids.ty.shape.elements(), width].into(),
            strides: strides.into_iter().collect(),
            offset,
        };
        let picked = Picked {
            x: table,
            lines: view([0, 1], table.layout.offset),
            step: width,
            size: rows,
            index: (ids, view([1, 0], ids.layout.offset)),
        };
        return picked.emit(step, code, emitter);
    }
    let (mut kernel, width) = match format(table.ty.dtype) {
        Some(format) => {
            let mut kernel = dequantize(format, table, step.output());
            kernel.define("HAS_IDS", 1);
            (kernel, width / 4)
        }
        None => (scalars(step), width),
    };
    kernel.define_dtype("IDS", ids.ty.dtype);
    kernel.read("ids", ids);
    kernel.word("rows", rows);
    kernel.word("width", width);
    kernel.status("status", code);
    emitter.launch(kernel);
}

/// The kernel for a table of scalars of another dtype.
fn scalars(step: &Step) -> Kernel {
    let (table, y) = (&step.inputs[0], step.output());
    let text = include_str!("../../../kernels/embedding.c");
    let mut kernel = Kernel::new("embedding", text, GROUP);
    convert(&mut kernel, table.ty.dtype, y.ty.dtype);
    kernel.define_dtype("W", table.ty.dtype);
    kernel.read("w", table);
    kernel.define_dtype("Y", y.ty.dtype);
    kernel.write("y", y);
    let n = y.ty.shape.elements();
    kernel.word("n", n);
    kernel.groups(n.div_ceil(GROUP as usize), 1, 1)
}
