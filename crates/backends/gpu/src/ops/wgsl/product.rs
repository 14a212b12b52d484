//! Products of matrices: `matmul`, and `linear` with weights of floats or blocks.

use rustorch_ir::{BlockFormat, DType, Layout, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Step};

use super::{are_floats, entry, is_float, places, split};
use crate::emit::{Emitter, GpuKernel};
use crate::kernel::Kernel;

/// Rows of results up to which each result has a group.
const FEW: usize = 4;

/// Rows and columns of a tile.
const TILE: usize = 16;

/// Work-items of a group for a tile, and for a single result.
const GROUP: u32 = 256;
const TEAM: u32 = 64;

pub(super) const KERNELS: [KernelEntry<GpuKernel>; 2] = [
    entry(OpKind::Matmul, are_floats, matmul),
    entry(OpKind::Linear, is_linear, linear),
];

fn is_linear(signature: &Signature) -> bool {
    let [x, w] = [0, 1].map(|i| signature.inputs[i]);
    is_float(x.dtype) && (is_float(w.dtype) || block_text(w.dtype).is_some())
}

/// The text of a format of weights: `block_value(byte, i)`, the value `i` of the block at a byte of `w`.
pub(super) fn block_text(dtype: DType) -> Option<&'static str> {
    match dtype {
        DType::Block(BlockFormat::Q8_0) => Some(include_str!("../../../kernels/wgsl/q8_0.wgsl")),
        DType::Block(BlockFormat::Q4K) => Some(include_str!("../../../kernels/wgsl/q4_k.wgsl")),
        DType::Block(BlockFormat::Q6K) => Some(include_str!("../../../kernels/wgsl/q6_k.wgsl")),
        _ => None,
    }
}

/// The function `weight(row, k)` of a matrix `w`, whose rows are blocks or floats.
pub(super) fn weight(kernel: &mut Kernel, dtype: DType, layout: &Layout) -> String {
    let DType::Block(format) = dtype else {
        kernel.word("w_row", layout.strides[0]);
        kernel.word("w_column", layout.strides[1]);
        return "fn weight(row: u32, k: u32) -> f32 { return load_w(row * p.w_row + k * p.w_column); }\n"
            .to_owned();
    };
    let (size, bytes) = (format.block_len(), format.block_bytes());
    kernel.word("w_row", layout.strides[0] / size);
    format!(
        "{}fn weight(row: u32, k: u32) -> f32 {{\n    \
             return block_value((row * p.w_row + k / {size}u) * {bytes}u, k % {size}u);\n}}\n",
        block_text(dtype).unwrap_or_default()
    )
}

fn matmul(step: &Step, emitter: &mut Emitter) {
    let [a, b] = [0, 1].map(|i| &step.inputs[i]);
    let shape = &step.output().ty.shape;
    let rank = shape.len();
    let [m, n] = [shape[rank - 2], shape[rank - 1]];
    let mut kernel = Kernel::new("matmul", "", GROUP);
    sizes(&mut kernel, [m, n, a.ty.shape[a.ty.rank() - 1]]);
    let mut text = String::from("var<private> first_a: u32;\nvar<private> first_b: u32;\n");
    for (name, place) in [("a", a), ("b", b)] {
        kernel.read(name, place);
        let own = place.layout.rank();
        let (batch, matrix) = split(&place.layout, &[own - 2, own - 1]);
        let whole = rustorch_ir::Shape::from(&shape[..rank - 2]);
        let batch = batch.broadcast_to(&whole);
        text += &places(&mut kernel, &format!("batch_{name}"), &batch);
        kernel.word(&format!("{name}_row"), matrix.strides[0]);
        kernel.word(&format!("{name}_column"), matrix.strides[1]);
        text += &format!(
            "fn {name}(row: u32, column: u32) -> f32 {{\n    \
                 return load_{name}(first_{name} + row * p.{name}_row + column * p.{name}_column);\n}}\n"
        );
    }
    text += "fn begin(batch: u32) { first_a = at_batch_a(batch); first_b = at_batch_b(batch); }\n\
             fn ended(j: u32, total: f32) -> f32 { return total; }\n";
    text += include_str!("../../../kernels/wgsl/matmul.wgsl");
    kernel.write("y", step.output());
    kernel.set_text(text);
    let batches: usize = shape[..rank - 2].iter().product();
    emitter.launch(kernel.groups(batches * m.div_ceil(TILE) * n.div_ceil(TILE), 1, 1));
}

fn sizes(kernel: &mut Kernel, [m, n, k]: [usize; 3]) {
    kernel.word("m", m);
    kernel.word("n", n);
    kernel.word("k", k);
}

fn linear(step: &Step, emitter: &mut Emitter) {
    let [x, w] = [0, 1].map(|i| &step.inputs[i]);
    let shape = &x.ty.shape;
    let [n, k] = [w.ty.shape[0], w.ty.shape[1]];
    let m = shape[..shape.len() - 1].iter().product();
    let is_few = m <= FEW;
    let (name, group) = match is_few {
        true => ("matvec", TEAM),
        false => ("matmul", GROUP),
    };
    let mut kernel = Kernel::new(name, "", group);
    sizes(&mut kernel, [m, n, k]);
    kernel.read("x", x);
    kernel.read("w", w);
    let (rows, columns) = split(&x.layout, &[shape.len() - 1]);
    let mut text =
        places(&mut kernel, "rows_x", &rows) + &places(&mut kernel, "columns_x", &columns);
    text += &weight(&mut kernel, w.ty.dtype, &w.layout);
    let ended = match step.inputs.get(2) {
        Some(bias) => {
            kernel.read("bias", bias);
            text += &places(&mut kernel, "bias", &bias.layout);
            "total + load_bias(at_bias(j))"
        }
        None => "total",
    };
    text += &format!(
        "fn a(i: u32, k: u32) -> f32 {{ return load_x(at_rows_x(i) + at_columns_x(k)); }}\n\
             fn ended(j: u32, total: f32) -> f32 {{ return {ended}; }}\n"
    );
    kernel.write("y", step.output());
    let groups = match is_few {
        true => {
            let each = 4;
            kernel.define("EACH", format!("{each}u"));
            text += "alias COMPUTED = f32;\nfn combined(a: f32, b: f32) -> f32 { return a + b; }\n";
            text += include_str!("../../../kernels/wgsl/lines.wgsl");
            text += "fn piece(i: u32, j: u32, first: u32) -> f32 {\n    var part = 0.0;\n    \
                     for (var k = first; k < min(first + EACH, p.k); k += 1u) {\n        \
                     part = fma(a(i, k), weight(j, k), part);\n    }\n    return part;\n}\n";
            text += include_str!("../../../kernels/wgsl/matvec.wgsl");
            m * n
        }
        false => {
            text +=
                "fn b(k: u32, j: u32) -> f32 { return weight(j, k); }\nfn begin(batch: u32) {}\n";
            text += include_str!("../../../kernels/wgsl/matmul.wgsl");
            m.div_ceil(TILE) * n.div_ceil(TILE)
        }
    };
    kernel.set_text(text);
    emitter.launch(kernel.groups(groups, 1, 1));
}
