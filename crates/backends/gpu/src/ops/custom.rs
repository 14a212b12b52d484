//! Operations of others that bring a kernel.

use rustorch_ir::ops::{Custom, CustomKernel, KernelLanguage};
use rustorch_ir::{DType, Layout, Op, OpKind, Shape, Signature, TensorType};
use rustorch_runtime::{KernelEntry, Layouts, Place, Step};

use super::views::for_each;
use crate::dialect::Dialect;
use crate::emit::{Device, Emitter, GpuKernel};
use crate::kernel::{Kernel, Scratch};

pub(crate) const KERNEL: KernelEntry<GpuKernel> = KernelEntry {
    kind: OpKind::Custom,
    accepts,
    layouts: Layouts::Contiguous,
    launch: GpuKernel { emit, suits },
};

/// Bytes on each side of a result that a kernel which is looked after must not write to.
const GUARD: usize = 4096;

/// Stores of such a kernel: a store outside of the results is reported, not made. Writes by pointer
/// may still reach the guards.
const CHECKED_STORE: &str = "
#undef STORE
#define STORE(t, to_, i_, v_) \\
    do { \\
        if (IS_RESULT((ulong)((to_) + (i_)))) { PASTE(store_, t)((to_), (i_), v_); } \\
        else { REPORT(status, p.status_code); } \\
    } while (0)
";

fn accepts(_: &Signature) -> bool {
    true
}

fn suits(device: &Device, signature: &Signature) -> bool {
    let Op::Custom(op) = signature.op else {
        return false;
    };
    kernel_of(op, device.dialect, signature.inputs, signature.outputs).is_some()
}

fn kernel_of(
    op: &Custom,
    dialect: Dialect,
    inputs: &[&TensorType],
    outputs: &[TensorType],
) -> Option<CustomKernel> {
    let language = match dialect {
        Dialect::OpenCl => KernelLanguage::OpenCl,
        Dialect::Metal => KernelLanguage::Metal,
        Dialect::Cuda => KernelLanguage::Cuda,
        Dialect::Wgsl => return None,
    };
    op.kernel(language, inputs, outputs)
}

fn emit(step: &Step, emitter: &mut Emitter) {
    let Op::Custom(op) = &step.last().op else {
        return;
    };
    let inputs: Vec<&TensorType> = step.inputs.iter().map(|place| &place.ty).collect();
    let outputs: Vec<TensorType> = step.outputs.iter().map(|place| place.ty.clone()).collect();
    let Some(custom) = kernel_of(op, emitter.dialect, &inputs, &outputs) else {
        return;
    };
    let header = match op.is_guarded() {
        true => CHECKED_STORE,
        false => "",
    };
    let mut kernel = launch_of(op.name(), header, custom);
    for (i, place) in step.inputs.iter().enumerate() {
        kernel.define_dtype(&format!("X{i}"), place.ty.dtype);
        kernel.read(&format!("x{i}"), place);
    }
    for (i, place) in step.outputs.iter().enumerate() {
        kernel.define_dtype(&format!("Y{i}"), place.ty.dtype);
    }
    match op.is_guarded() {
        true => guarded(kernel, step, emitter),
        false => {
            for (i, place) in step.outputs.iter().enumerate() {
                kernel.write(&format!("y{i}"), place);
            }
            emitter.launch(kernel);
        }
    }
}

/// Beginning of the line before the text of a kernel.
const FIRST_LINE: &str = "#line 1 ";

/// A compiler's message, by the lines of the text that a user brought. NVIDIA's for OpenCL counts
/// those of the whole source, which it calls `<kernel>`.
pub(crate) fn by_lines_of_text(message: &str, source: &str) -> Option<String> {
    let mut lines = (1..).zip(source.lines());
    let (before, file) = lines.find_map(|(at, line)| Some((at, line.strip_prefix(FIRST_LINE)?)))?;
    let (head, rest) = message.split_once("<kernel>:")?;
    let (line, rest) = rest.split_once(':')?;
    let line: usize = line.parse().ok()?;
    let line = line.checked_sub(before).filter(|&line| line > 0)?;
    Some(format!("{head}{}:{line}:{rest}", file.trim_matches('"')))
}

/// A launch without operands. The compiler's messages count the lines of the user's text.
fn launch_of(name: &str, header: &str, custom: CustomKernel) -> Kernel {
    let file: String = name
        .chars()
        .filter(|c| !c.is_control() && !"\"\\".contains(*c))
        .collect();
    let text = format!("{header}{FIRST_LINE}\"{file}\"\n{}\n", custom.text);
    let [x, y, z] = custom.groups;
    let mut kernel = Kernel::new("custom", text, custom.group).groups(x, y, z);
    kernel.define("ITEM", "(GROUP_ID(0) * GROUP + LANE)");
    for (name, value) in custom.definitions {
        kernel.define(name, value);
    }
    for (name, value) in custom.words {
        kernel.word(name, value as usize);
    }
    kernel
}

/// A launch that writes to the middle of marked memory, from which the results are then copied.
fn guarded(mut kernel: Kernel, step: &Step, emitter: &mut Emitter) {
    let text = include_str!("../../kernels/guard.c");
    let message = "its kernel writes outside of its results".to_owned();
    let code = emitter.mistake(step, 0, message);
    let mut around = Vec::new();
    let mut is_result = Vec::new();
    for (i, place) in step.outputs.iter().enumerate() {
        let bytes = place.ty.bytes();
        let memory = emitter.scratch(bytes + 2 * GUARD);
        let mut fill = for_each("guard", text, memory.bytes);
        fill.define("FILLS", 1);
        fill.scratch("memory", DType::U8, memory, true);
        emitter.launch(fill);
        let inside = Scratch {
            at: memory.at + GUARD,
            bytes,
        };
        kernel.scratch(&format!("y{i}"), place.ty.dtype, inside, true);
        kernel.word(&format!("y{i}_bytes"), bytes);
        is_result.push(format!("(at) - (ulong)y{i} < p.y{i}_bytes"));
        around.push(memory);
    }
    kernel.define(
        "IS_RESULT(at)",
        format_args!("({})", is_result.join(" || ")),
    );
    kernel.status("status", code);
    emitter.launch(kernel);
    for (place, memory) in step.outputs.iter().zip(around) {
        let mut copy = for_each("guard", text, memory.bytes);
        copy.define("FILLS", 0);
        copy.scratch("memory", DType::U8, memory, false);
        copy.write("y", &bytes_of(place));
        copy.status("status", code);
        copy.word("guard", GUARD);
        copy.word("bytes", place.ty.bytes());
        emitter.launch(copy);
    }
}

/// A place without gaps as its bytes.
fn bytes_of(place: &Place) -> Place {
    let size = place.ty.dtype.size().unwrap_or(1);
    let shape = Shape::from([place.ty.bytes()]);
    let layout = Layout {
        offset: place.layout.offset * size,
        ..Layout::contiguous(&shape)
    };
    Place {
        slot: place.slot,
        layout,
        ty: TensorType::new(shape, DType::U8),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_are_in_lines_of_the_text() {
        let source = "#define ITEM 1\ntypedef float real;\n#line 1 \"shrink\"\nKERNEL_BEGIN\n  wrong\nKERNEL_END\n";
        let told = |message: &str| by_lines_of_text(message, source);
        let failed = "clBuildProgram: CL_BUILD_PROGRAM_FAILURE";
        assert_eq!(
            told(&format!("{failed}: <kernel>:5:12: error: unknown type")),
            Some(format!("{failed}: shrink:2:12: error: unknown type"))
        );
        // Lines before the user's text stay as they are, as do lines that are counted within it.
        assert_eq!(told("<kernel>:2:1: error: unknown type"), None);
        assert_eq!(told("shrink:2:12: error: unknown type"), None);
        let plain = source.replace(FIRST_LINE, "// ");
        assert_eq!(by_lines_of_text("<kernel>:5:12: error", &plain), None);
    }
}
