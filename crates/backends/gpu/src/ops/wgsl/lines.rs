//! Reductions, softmax and norms: a group for each line of elements.

use rustorch_ir::ops::ReduceOp;
use rustorch_ir::{DType, Layout, Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Step};

use super::{are_floats, entry, is_float, is_known, places, split};
use crate::emit::{Emitter, GpuKernel};
use crate::kernel::Kernel;

/// Fewest and most work-items of a line.
const LEAST: usize = 32;
const MOST: usize = 256;

pub(super) const KERNELS: [KernelEntry<GpuKernel>; 4] = [
    entry(OpKind::Reduce, is_reduced, reduce),
    entry(OpKind::Softmax, are_floats, softmax),
    entry(OpKind::RmsNorm, are_floats, rms_norm),
    entry(OpKind::LayerNorm, are_floats, layer_norm),
];

fn is_reduced(signature: &Signature) -> bool {
    let Op::Reduce(op) = signature.op else {
        return false;
    };
    let dtype = signature.inputs[0].dtype;
    match op.op {
        ReduceOp::Sum | ReduceOp::Prod => is_float(dtype),
        ReduceOp::Max | ReduceOp::Min => is_known(dtype),
    }
}

/// The type that elements are computed in.
fn computed(dtype: DType) -> &'static str {
    match dtype {
        dtype if is_float(dtype) => "f32",
        DType::I32 | DType::I16 | DType::I8 => "i32",
        _ => "u32",
    }
}

/// A kernel for lines of `length` elements, and the beginning of its text: how two numbers are combined.
fn line_kernel(
    name: &'static str,
    length: usize,
    computed: &str,
    combined: &str,
) -> (Kernel, String) {
    let group = length.next_power_of_two().clamp(LEAST, MOST);
    let mut kernel = Kernel::new(name, "", group as u32);
    kernel.word("length", length);
    let text = format!(
        "alias COMPUTED = {computed};\n\
             fn combined(a: COMPUTED, b: COMPUTED) -> COMPUTED {{ return {combined}; }}\n{}",
        include_str!("../../../kernels/wgsl/lines.wgsl")
    );
    (kernel, text)
}

fn reduce(step: &Step, emitter: &mut Emitter) {
    let Op::Reduce(op) = &step.last().op else {
        return;
    };
    let x = &step.inputs[0];
    let t = computed(x.ty.dtype);
    let is_float = is_float(x.ty.dtype);
    let (combined, beginning) = match op.op {
        ReduceOp::Sum => ("a + b", "0.0"),
        ReduceOp::Prod => ("a * b", "1.0"),
        ReduceOp::Max if is_float => ("larger(a, b)", "load_x(first)"),
        ReduceOp::Min if is_float => ("smaller(a, b)", "load_x(first)"),
        ReduceOp::Max => ("max(a, b)", "load_x(first)"),
        ReduceOp::Min => ("min(a, b)", "load_x(first)"),
    };
    let (starts, along) = split(&x.layout, &op.dims);
    let length = along.shape.elements();
    let (mut kernel, mut text) = line_kernel("reduce", length, t, combined);
    kernel.read("x", x);
    kernel.write("y", step.output());
    text += &places(&mut kernel, "starts", &starts);
    text += &places(&mut kernel, "along", &along);
    text += &format!("fn beginning(first: u32) -> COMPUTED {{ return {beginning}; }}\n");
    text += include_str!("../../../kernels/wgsl/reduce.wgsl");
    kernel.set_text(text);
    emitter.launch(kernel.groups(starts.shape.elements(), 1, 1));
}

fn softmax(step: &Step, emitter: &mut Emitter) {
    let Op::Softmax(op) = &step.last().op else {
        return;
    };
    let x = &step.inputs[0];
    let (starts, along) = split(&x.layout, &[op.dim]);
    let dense = Layout::contiguous(&x.ty.shape);
    let (results, along_results) = split(&dense, &[op.dim]);
    let length = along.shape.elements();
    let (mut kernel, mut text) = line_kernel("softmax", length, "f32", "larger(a, b)");
    kernel.define("LOG", format!("{}u", u8::from(op.log)));
    kernel.read("x", x);
    kernel.write("y", step.output());
    let views = [
        ("starts", &starts),
        ("along", &along),
        ("results", &results),
        ("along_results", &along_results),
    ];
    for (view, layout) in views {
        text += &places(&mut kernel, view, layout);
    }
    text += include_str!("../../../kernels/wgsl/softmax.wgsl");
    kernel.set_text(text);
    emitter.launch(kernel.groups(starts.shape.elements(), 1, 1));
}

fn rms_norm(step: &Step, emitter: &mut Emitter) {
    let Op::RmsNorm(op) = &step.last().op else {
        return;
    };
    let text = include_str!("../../../kernels/wgsl/rms_norm.wgsl");
    emitter.launch(norm("rms_norm", text, step, 1, op.eps.0));
}

fn layer_norm(step: &Step, emitter: &mut Emitter) {
    let Op::LayerNorm(op) = &step.last().op else {
        return;
    };
    let text = include_str!("../../../kernels/wgsl/layer_norm.wgsl");
    emitter.launch(norm("layer_norm", text, step, op.dims, op.eps.0));
}

/// The kernel of a norm over the last `dims` dimensions. Its weight and bias are those of the step, if any.
fn norm(name: &'static str, norm: &str, step: &Step, dims: usize, eps: f64) -> Kernel {
    let x = &step.inputs[0];
    let last: Vec<usize> = (x.layout.rank() - dims..x.layout.rank()).collect();
    let (starts, along) = split(&x.layout, &last);
    let (mut kernel, mut text) = line_kernel(name, along.shape.elements(), "f32", "a + b");
    kernel.float("eps", eps as f32);
    kernel.read("x", x);
    kernel.write("y", step.output());
    text += &places(&mut kernel, "starts", &starts);
    text += &places(&mut kernel, "along", &along);
    let mut weighted = "x".to_owned();
    for (name, place) in ["weight", "bias"].into_iter().zip(&step.inputs[1..]) {
        kernel.read(name, place);
        text += &places(&mut kernel, name, &place.layout);
        let sign = if name == "weight" { "*" } else { "+" };
        weighted = format!("{weighted} {sign} load_{name}(at_{name}(j))");
    }
    text += &format!(
        "fn element(line: u32, j: u32) -> f32 {{ return load_x(at_starts(line) + at_along(j)); }}\n\
             fn weighted(j: u32, x: f32) -> f32 {{ return {weighted}; }}\n"
    );
    text += norm;
    kernel.set_text(text);
    kernel.groups(starts.shape.elements(), 1, 1)
}
