//! The same elementwise operations on tensors of several groups, and one number of each: as many groups as
//! a launch has room for. Work-groups find theirs by where it begins; the kernels are generated.

use std::fmt::Write;
use std::ops::Range;

use rustorch_ir::ops::Foreach;
use rustorch_ir::{DType, Graph, Node, Op, OpKind, Signature, ValueId};
use rustorch_runtime::{KernelEntry, Layouts, Place, Step};

use super::functions::{expression, rounded};
use super::reduce::Combination;
use super::views::Memory;
use super::{pointwise, special};
use crate::dialect::Dialect;
use crate::emit::{Device, Emitter, GpuKernel};
use crate::kernel::{Kernel, name};

const fn entry(kind: OpKind, emit: fn(&Step, &mut Emitter)) -> KernelEntry<GpuKernel> {
    KernelEntry {
        kind,
        accepts,
        layouts: Layouts::Contiguous,
        launch: GpuKernel { emit, suits },
    }
}

pub(crate) const KERNELS: [KernelEntry<GpuKernel>; 2] = [
    entry(OpKind::Foreach, emit_updates),
    entry(OpKind::ForeachReduce, emit_numbers),
];

/// Work-items of a work-group.
const GROUP: usize = 256;

/// Elements of a work-item in updates. The next constant is the number in reductions.
const EACH: usize = 8;
const EACH_REDUCED: usize = 16;

/// Buffers of a kernel in Metal; one has the parameters.
const METAL_BUFFERS: usize = 30;

/// Bytes of parameters that every device takes. `OTHER_BYTES` are for parameters that belong to no
/// group.
const OPENCL_BYTES: usize = 1024;
const CUDA_BYTES: usize = 4096;
const OTHER_BYTES: usize = 160;

/// Bytes of a pointer, with its start, and of a group, with its size.
const POINTER_BYTES: usize = 16;
const GROUP_BYTES: usize = 8;

fn body_of(op: &Op) -> Option<&Foreach> {
    match op {
        Op::Foreach(op) => Some(op),
        Op::ForeachReduce(op) => Some(&op.each),
        _ => None,
    }
}

fn accepts(s: &Signature) -> bool {
    let Some(each) = body_of(s.op) else {
        return false;
    };
    let body = &each.body;
    body.nodes().iter().all(|node| match node.op.kind() {
        OpKind::Assign | OpKind::Reduce => true,
        _ => body.with_signature(node, |s| {
            let from = s.inputs.last().map_or(DType::F32, |ty| ty.dtype);
            pointwise::accepts(s) && !pointwise::divides_integers(s.op, from)
        }),
    })
}

/// Returns whether there is double precision, if the body computes with it.
fn suits(device: &Device, s: &Signature) -> bool {
    let is_wide = |node: &Node| {
        let mut types = node.outputs.iter();
        types.any(|ty| matches!(ty.dtype, DType::F64 | DType::Complex128))
    };
    let body = body_of(s.op).map(|each| &each.body);
    device.limits.has_f64 || !body.is_some_and(|body| body.nodes().iter().any(is_wide))
}

/// Number of groups that a launch has room for, each with `pointers` pointers, beside the `shared`
/// ones.
fn room(dialect: Dialect, pointers: usize, shared: usize) -> usize {
    let by_bytes = |bytes: usize| {
        let left = bytes.saturating_sub(OTHER_BYTES + shared * POINTER_BYTES);
        left / (pointers * POINTER_BYTES + GROUP_BYTES)
    };
    let room = match dialect {
        Dialect::OpenCl | Dialect::Wgsl => by_bytes(OPENCL_BYTES),
        Dialect::Cuda => by_bytes(CUDA_BYTES),
        Dialect::Metal => METAL_BUFFERS.saturating_sub(shared) / pointers.max(1),
    };
    room.max(1)
}

/// The groups of a launch.
struct Groups<'a> {
    each: &'a Foreach,
    step: &'a Step,
    groups: Range<usize>,
}

impl Groups<'_> {
    fn operand(&self, group: usize, input: usize) -> &Place {
        &self.step.inputs[self.each.operand(group, input)]
    }

    /// Elements of a group's tensors.
    fn elements(&self, group: usize) -> usize {
        let tensor = (0..self.each.own).find(|&input| !self.each.is_number(input));
        tensor.map_or(1, |input| self.operand(group, input).ty.shape.elements())
    }

    /// Adds the pointers to a kernel, and names a work-group's in its text. These are `x0`, `x1` and so on, and
    /// `y0` and so on for the `results` that are not states. The text also has `n` elements, and the group's
    /// `first` work-group. Each work-group has so many elements. Returns the number of work-groups.
    fn find(
        &self,
        kernel: &mut Kernel,
        body: &mut String,
        results: &[usize],
        elements: usize,
    ) -> usize {
        let mut ends = Vec::new();
        let (mut sizes, mut end) = (Vec::new(), 0);
        for group in self.groups.clone() {
            sizes.push(self.elements(group));
            end += self.elements(group).div_ceil(elements).max(1);
            ends.push(end);
        }
        kernel.words("sizes", &sizes);
        kernel.words("ends", &ends);
        let last = self.groups.len() - 1;
        let _ = writeln!(
            body,
            "    uint group = 0;\n    \
                 for (uint most = {last}; group < most;) {{\n        \
                     const uint middle = (group + most) / 2;\n        \
                     if (GROUP_ID(0) >= p.ends[middle]) group = middle + 1;\n        \
                     else most = middle;\n    \
                 }}\n    \
                 const uint first = group == 0 ? 0 : p.ends[group - 1];\n    \
                 const uint n = p.sizes[group];"
        );
        let inputs = 0..self.each.body.inputs().len();
        let states: Vec<usize> = (0..self.each.body.outputs().len())
            .filter_map(|output| self.each.state(output))
            .collect();
        // Declares each pointer, and sets it in the case of each group.
        let mut cases = vec![String::new(); self.groups.len()];
        let mut declare = |body: &mut String, name: &str, constant: &str, ty: &str| {
            let _ = writeln!(
                body,
                "    GLOBAL {constant}storage_{ty}* {name} = {name}_0;"
            );
            for (at, case) in cases.iter_mut().enumerate() {
                let _ = write!(case, " {name} = {name}_{at};");
            }
        };
        for input in inputs {
            let place = self.operand(self.groups.start, input);
            let ty = name(place.ty.dtype);
            if input >= self.each.own {
                kernel.read(&format!("x{input}"), place);
                continue;
            }
            let is_state = states.contains(&input);
            for (at, group) in self.groups.clone().enumerate() {
                let (name, place) = (format!("x{input}_{at}"), self.operand(group, input));
                match is_state {
                    true => kernel.write(&name, place),
                    false => kernel.read(&name, place),
                }
            }
            let constant = if is_state { "" } else { "const " };
            declare(body, &format!("x{input}"), constant, ty);
        }
        let outputs = self.each.body.outputs().len();
        for &output in results {
            let place = |group: usize| &self.step.outputs[group * outputs + output];
            for (at, group) in self.groups.clone().enumerate() {
                kernel.write(&format!("y{output}_{at}"), place(group));
            }
            let ty = name(place(self.groups.start).ty.dtype);
            declare(body, &format!("y{output}"), "", ty);
        }
        body.push_str("    switch (group) {\n");
        for (at, case) in cases.iter().enumerate().skip(1) {
            let _ = writeln!(body, "    case {at}:{case} break;");
        }
        body.push_str("    default: break;\n    }\n");
        end
    }
}

/// The text of nodes of a body, with the names of values.
struct Text<'a> {
    body: &'a Graph,
    values: Vec<String>,
}

impl<'a> Text<'a> {
    fn new(body: &'a Graph) -> Self {
        let inputs = (0..body.inputs().len()).map(|input| format!("v{input}"));
        Self {
            body,
            values: inputs.collect(),
        }
    }

    /// Loads the operands of element `i`.
    fn load(&self, each: &Foreach, is_read: impl Fn(ValueId) -> bool, text: &mut String) {
        for (input, ty) in self.body.inputs().iter().enumerate() {
            if is_read(ValueId(input as u32)) {
                let at = if each.is_number(input) { "0" } else { "i" };
                let t = name(ty.dtype);
                let _ = writeln!(
                    text,
                    "            const compute_{t} v{input} = LOAD({t}, x{input}, {at});"
                );
            }
        }
    }

    /// Loads the operands of a work-item's elements, so that all are on their way together. `begin` is the first
    /// element.
    fn load_ahead(&self, each: &Foreach, text: &mut String) {
        let mut loads = String::new();
        for (input, ty) in self.body.inputs().iter().enumerate() {
            let t = name(ty.dtype);
            let _ = match each.is_number(input) {
                true => writeln!(
                    text,
                    "        const compute_{t} v{input} = LOAD({t}, x{input}, 0);"
                ),
                false => {
                    let _ = writeln!(text, "        compute_{t} w{input}[{EACH}];");
                    writeln!(loads, "            w{input}[e] = LOAD({t}, x{input}, i);")
                }
            };
        }
        let _ = writeln!(
            text,
            "        UNROLL\n        \
                 for (uint e = 0; e < {EACH}; e++) {{\n            \
                     const uint i = min((uint)(begin + e * GROUP), (uint)(n - 1));\n\
             {loads}        }}"
        );
    }

    /// Declares element `e` of those.
    fn take(&self, each: &Foreach, text: &mut String) {
        for (input, ty) in self.body.inputs().iter().enumerate() {
            if !each.is_number(input) {
                let t = name(ty.dtype);
                let _ = writeln!(
                    text,
                    "            const compute_{t} v{input} = w{input}[e];"
                );
            }
        }
    }

    /// Computes a node of the body.
    fn compute(&mut self, at: usize, kernel: &mut Kernel, text: &mut String) {
        let node = &self.body.nodes()[at];
        let names: Vec<&str> = (node.inputs.iter())
            .map(|value| self.values[value.index()].as_str())
            .collect();
        let dtype = node.output().dtype;
        let value = match &node.op {
            Op::Assign(_) => {
                let source = names[1].to_owned();
                self.values.push(source);
                return;
            }
            Op::Full(full) => pointwise::constant(at, full, Some(kernel)),
            op => {
                let from = node.inputs.last().map_or(dtype, |&x| self.body.ty(x).dtype);
                // `accepts` has asked for it before.
                rounded(
                    dtype,
                    expression(op, from, dtype, &names).unwrap_or_default(),
                )
            }
        };
        let _ = writeln!(
            text,
            "            const compute_{} t{at} = {value};",
            name(dtype)
        );
        self.values.push(format!("t{at}"));
    }
}

fn emit_updates(step: &Step, emitter: &mut Emitter) {
    let Op::Foreach(each) = &step.last().op else {
        return;
    };
    let body = &each.body;
    let outputs = 0..body.outputs().len();
    let results: Vec<usize> = outputs
        .clone()
        .filter(|&o| each.state(o).is_none())
        .collect();
    let shared = body.inputs().len() - each.own;
    let room = room(emitter.dialect, each.own + results.len(), shared);
    for start in (0..each.count).step_by(room) {
        let groups = Groups {
            each,
            step,
            groups: start..each.count.min(start + room),
        };
        let mut kernel = Kernel::new("foreach", "", GROUP as u32);
        // Numbers are rounded as by each operation alone.
        let mut text = String::from("SEPARATE_ROUNDING\nKERNEL_BEGIN\n");
        let count = groups.find(&mut kernel, &mut text, &results, EACH * GROUP);
        let _ = writeln!(
            text,
            "    const uint begin = (GROUP_ID(0) - first) * ({EACH} * GROUP) + LANE;\n    \
                 if (begin < n) {{"
        );
        let mut parts = Text::new(body);
        parts.load_ahead(each, &mut text);
        let _ = writeln!(
            text,
            "        UNROLL\n        \
                 for (uint e = 0; e < {EACH}; e++) {{\n            \
                     const uint i = begin + e * GROUP;\n            \
                     if (i >= n) break;"
        );
        parts.take(each, &mut text);
        for at in 0..body.nodes().len() {
            parts.compute(at, &mut kernel, &mut text);
        }
        for output in outputs.clone() {
            let value = body.outputs()[output];
            let (t, result) = (name(body.ty(value).dtype), &parts.values[value.index()]);
            let to = match each.state(output) {
                Some(state) => format!("x{state}"),
                None => format!("y{output}"),
            };
            let _ = writeln!(text, "            STORE({t}, {to}, i, {result});");
        }
        text.push_str("        }\n    }\nKERNEL_END\n");
        kernel.set_text(special::with_definitions(text));
        emitter.launch(kernel.groups(count, 1, 1));
    }
}

/// Text that joins the results of a work-group's work-items, `value` of each.
const JOIN: &str = "    shared[LANE] = value;
    BARRIER;
    for (uint rest = GROUP / 2; rest > 0; rest /= 2) {
        if (LANE < rest) shared[LANE] = COMBINE(shared[LANE], shared[LANE + rest]);
        BARRIER;
    }
";

fn emit_numbers(step: &Step, emitter: &mut Emitter) {
    let Op::ForeachReduce(op) = &step.last().op else {
        return;
    };
    let (each, Some((reduction, reduce))) = (&op.each, op.reduction()) else {
        return;
    };
    let body = &each.body;
    let reduced = body.nodes()[reduction].inputs[0];
    let combination = Combination::of(reduce.op, body.ty(reduced).dtype);
    let partial = combination.dtype;
    let whole = Groups {
        each,
        step,
        groups: 0..each.count,
    };
    // Partial results lie group by group.
    let parts_of = |group: usize| whole.elements(group).div_ceil(EACH_REDUCED * GROUP).max(1);
    let mut ends = vec![0];
    for group in 0..each.count {
        ends.push(ends[group] + parts_of(group));
    }
    let bytes = ends[each.count] * partial.size().unwrap_or(0);
    let memory = Memory::Scratch(partial, emitter.scratch(bytes));
    let shared = body.inputs().len() - each.own;
    // The partial results are one more that all have.
    let room_for_elements = room(emitter.dialect, each.own, shared + 1);
    for start in (0..each.count).step_by(room_for_elements) {
        let groups = Groups {
            groups: start..each.count.min(start + room_for_elements),
            ..whole
        };
        let mut kernel = Kernel::new("foreach_reduce", "", GROUP as u32);
        combination.define(&mut kernel);
        let mut text = format!("{}SEPARATE_ROUNDING\nKERNEL_BEGIN\n", combination.functions);
        text.push_str("    LOCAL_ARRAY(COMPUTE(A), shared, GROUP);\n");
        memory.write(&mut kernel, "y");
        kernel.word("before", ends[start]);
        let count = groups.find(&mut kernel, &mut text, &[], EACH_REDUCED * GROUP);
        // Behind the last element, the first one again, which a largest one does not mind.
        let (begin, skip) = match &combination.start {
            Some(start) => (start.as_str(), "if (is_there) "),
            None => ("0", ""),
        };
        let _ = writeln!(
            text,
            "    COMPUTE(A) value = {begin};\n    \
                 const uint begin = (GROUP_ID(0) - first) * {EACH_REDUCED} * GROUP;\n    \
                 for (uint e = 0; e < {EACH_REDUCED}; e++) {{\n        \
                     const bool is_there = begin + e * GROUP + LANE < n;\n        \
                     const uint i = is_there ? begin + e * GROUP + LANE : begin;\n        \
                     if (i < n) {{"
        );
        let mut parts = Text::new(body);
        let before = &body.nodes()[..reduction];
        let is_read = |value| {
            let mut read = before.iter().flat_map(|node| &node.inputs);
            value == reduced || read.any(|&read| read == value)
        };
        parts.load(each, is_read, &mut text);
        for at in 0..reduction {
            parts.compute(at, &mut kernel, &mut text);
        }
        let element = &parts.values[reduced.index()];
        let combined = match combination.start {
            Some(_) => "COMBINE(value, element)",
            None => "e == 0 ? element : COMBINE(value, element)",
        };
        let _ = writeln!(
            text,
            "            const COMPUTE(A) element = {element};\n            \
                 {skip}value = {combined};\n        }}\n    }}"
        );
        text.push_str(JOIN);
        text.push_str("    if (LANE == 0) STORE(A, y, p.before + GROUP_ID(0), shared[0]);\n");
        text.push_str("KERNEL_END\n");
        kernel.set_text(special::with_definitions(text));
        emitter.launch(kernel.groups(count, 1, 1));
    }
    let room_for_parts = room(emitter.dialect, 0, shared);
    for start in (0..each.count).step_by(room_for_parts) {
        let groups = start..each.count.min(start + room_for_parts);
        let mut kernel = Kernel::new("foreach_reduce_parts", "", GROUP as u32);
        combination.define(&mut kernel);
        kernel.words("ends", &ends[start..=groups.end]);
        kernel.word("before", start);
        memory.read(&mut kernel, "x");
        kernel.write("y", step.output());
        let mut text = format!("{}SEPARATE_ROUNDING\nKERNEL_BEGIN\n", combination.functions);
        text.push_str(
            "    LOCAL_ARRAY(COMPUTE(A), shared, GROUP);
    const uint first = p.ends[GROUP_ID(0)], end = p.ends[GROUP_ID(0) + 1];
    const uint own = first + LANE < end ? first + LANE : first;
    COMPUTE(A) value = LOAD(A, x, own);
    for (uint i = own + GROUP; i < end; i += GROUP) value = COMBINE(value, LOAD(A, x, i));
",
        );
        if let Some(start) = &combination.start {
            let _ = writeln!(text, "    if (first + LANE >= end) value = {start};");
        }
        text.push_str(JOIN);
        text.push_str("    if (LANE == 0) {\n");
        let dtype = body.nodes()[reduction].output().dtype;
        let mut parts = Text::new(body);
        for at in 0..body.nodes().len() {
            let is_constant = body.nodes()[at].op.kind() == OpKind::Full;
            match at {
                _ if at == reduction => {
                    let (t, value) = (name(dtype), rounded(dtype, "shared[0]".to_owned()));
                    let _ = writeln!(text, "            const compute_{t} t{at} = {value};");
                    parts.values.push(format!("t{at}"));
                }
                // Read before the reduction, if not by what is behind it.
                _ if at < reduction && !is_constant => parts.values.push(String::new()),
                _ => parts.compute(at, &mut kernel, &mut text),
            }
        }
        let output = body.outputs()[0];
        let (t, result) = (name(body.ty(output).dtype), &parts.values[output.index()]);
        let _ = writeln!(
            text,
            "            STORE({t}, y, p.before + GROUP_ID(0), {result});\n    }}"
        );
        text.push_str("KERNEL_END\n");
        kernel.set_text(special::with_definitions(text));
        emitter.launch(kernel.groups(groups.len(), 1, 1));
    }
}
