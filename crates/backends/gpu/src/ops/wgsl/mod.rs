//! Kernels in WGSL, in place of those in the portable dialect. Other kernels run on the next device.

mod functions;
mod lines;
pub(crate) mod pointwise;
mod product;
mod rows;

use rustorch_ir::{DType, Layout, OpKind, Signature};
use rustorch_runtime::{KernelEntry, KernelTable, Layouts, Step};

use crate::emit::{Emitter, GpuKernel};
use crate::kernel::Kernel;
use crate::ops::views::walk;

/// Work-items of a group.
const GROUP: u32 = 256;

/// Every kernel in WGSL.
pub(crate) fn table() -> KernelTable<GpuKernel> {
    let mut kernels = Vec::new();
    kernels.extend(lines::KERNELS);
    kernels.extend(pointwise::KERNELS);
    kernels.extend(product::KERNELS);
    kernels.extend(rows::KERNELS);
    KernelTable::new(kernels)
}

/// A kernel for operands of any layout.
const fn entry(
    kind: OpKind,
    accepts: fn(&Signature) -> bool,
    emit: fn(&Step, &mut Emitter),
) -> KernelEntry<GpuKernel> {
    KernelEntry {
        kind,
        accepts,
        layouts: Layouts::Any,
        launch: GpuKernel::everywhere(emit),
    }
}

/// Appends a kernel with a work-item for each of `n` elements.
fn launch_for_each(emitter: &mut Emitter, kernel: Kernel, n: usize) {
    emitter.launch(kernel.groups(n.div_ceil(GROUP as usize), 1, 1));
}

/// Dtypes that kernels read and write. Others have 64 bits, or 8 bits for a float.
fn is_known(dtype: DType) -> bool {
    is_float(dtype)
        || matches!(
            dtype,
            DType::I32 | DType::I16 | DType::I8 | DType::U32 | DType::U16 | DType::U8 | DType::Bool
        )
}

/// Floats that are computed in single precision.
fn is_float(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::F16 | DType::BF16)
}

/// Returns whether all operands are such floats.
fn are_floats(signature: &Signature) -> bool {
    signature.inputs.iter().all(|x| is_float(x.dtype))
}

/// The function `at_{view}` of a kernel's text, from a flat index to the place of that element of a view.
fn places(kernel: &mut Kernel, view: &str, layout: &Layout) -> String {
    let dense = Layout::contiguous(&layout.shape);
    let body = match layout.strides == dense.strides || layout.shape.elements() <= 1 {
        true => "return i;".to_owned(),
        false => match walk(kernel, view, &[(view, layout)]) {
            1 => format!("return i * p.{view}_strides[0];"),
            _ => format!(
                "var rest = i; var at = 0u;\n    \
                     for (var d = p.{view}_rank; d > 0u; d -= 1u) {{\n        \
                     let size = p.{view}_shape[d - 1u];\n        \
                     at += rest % size * p.{view}_strides[d - 1u];\n        rest /= size;\n    }}\n    \
                     return at;"
            ),
        },
    };
    format!("fn at_{view}(i: u32) -> u32 {{\n    {body}\n}}\n")
}

/// The dimensions `dims` of a view, and the others before them.
fn split(layout: &Layout, dims: &[usize]) -> (Layout, Layout) {
    let (along, kept): (Vec<usize>, Vec<usize>) =
        (0..layout.rank()).partition(|d| dims.contains(d));
    (layout.permute(&kept), layout.permute(&along))
}
