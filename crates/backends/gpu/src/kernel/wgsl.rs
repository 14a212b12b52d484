//! The head of a source in WGSL: constants, parameters, bindings, and functions that read and write elements.
//!
//! The language has no pointers to buffers and no types of 8, 16 or 64 bits in them. So each argument `x` is an array
//! of words, with `load_x(i)` and `store_x(i, value)` for its elements. Kernels compute floats as `f32`, signed
//! integers as `i32`, and the others as `u32`.

use std::fmt::Write;

use super::{Argument, Buffer, Field, GRANULE, Kernel};

/// Words of a granule.
const GRANULE_WORDS: usize = GRANULE / size_of::<u32>();

/// The type that kernels compute elements in, by the dtype's name.
fn computed(element: &str) -> &'static str {
    match element {
        "f32" | "f16" | "bf16" => "f32",
        "i64" | "i32" | "i16" | "i8" => "i32",
        _ => "u32",
    }
}

/// Bytes of an element.
fn size(element: &str) -> usize {
    match element {
        "i64" => 8,
        "f32" | "i32" | "u32" => 4,
        "f16" | "bf16" | "i16" | "u16" => 2,
        _ => 1,
    }
}

/// The source of a kernel without the prelude.
pub(super) fn source(kernel: &Kernel) -> String {
    let mut source = String::new();
    let status = kernel.arguments.iter().find(|a| a.buffer == Buffer::Status);
    let is_other = |value: &str| status.is_some_and(|status| status.name == value);
    for (name, value) in &kernel.definitions {
        if !is_other(value) {
            let _ = writeln!(source, "const {name} = {value};");
        }
    }
    source.push_str("struct Params {\n");
    for (name, field) in &kernel.fields {
        let _ = match field {
            Field::Word => writeln!(source, "    {name}: u32,"),
            Field::Words(count) => writeln!(source, "    {name}: array<u32, {count}>,"),
            Field::Float => writeln!(source, "    {name}: f32,"),
        };
    }
    source.push_str("}\n");
    for (binding, argument) in kernel.arguments.iter().enumerate() {
        declare(binding, argument, &mut source);
    }
    let _ = writeln!(
        source,
        "@group(0) @binding({}) var<storage, read> p: Params;",
        kernel.arguments.len()
    );
    if let Some(status) = status {
        let codes = kernel.fields.iter();
        for name in codes.filter_map(|(name, _)| name.strip_suffix("_code")) {
            let (word, code) = (&status.name, format!("p.{name}_code"));
            let _ = writeln!(
                source,
                "fn report_{name}() {{ atomicStore(&{word}_[0], {code}); }}"
            );
        }
    }
    source.push_str(&kernel.text);
    source
}

/// Declares the binding of an argument, and the functions for its elements.
fn declare(binding: usize, argument: &Argument, source: &mut String) {
    let Argument {
        name,
        element,
        buffer,
        access,
    } = argument;
    let size = size(element);
    // Neighbours of another work-item share a word with an element that is smaller.
    let is_atomic = *buffer == Buffer::Status || access.is_written && size < 4;
    let word = match is_atomic {
        true => "atomic<u32>",
        false => "u32",
    };
    let _ = writeln!(
        source,
        "@group(0) @binding({binding}) var<storage, read_write> {name}_: array<{word}>;"
    );
    if *buffer == Buffer::Status {
        return;
    }
    let read = |at: &str| match is_atomic {
        true => format!("atomicLoad(&{name}_[{at}])"),
        false => format!("{name}_[{at}]"),
    };
    let first = format!("p.{name}_granule * {GRANULE_WORDS}u");
    let t = computed(element);
    let _ = match size {
        8 => writeln!(
            source,
            "fn load_{name}(i: u32) -> i32 {{\n    let at = {first} + (p.{name}_at + i) * 2u;\n    \
                 return i32_of_words({}, {});\n}}",
            read("at"),
            read("at + 1u"),
        ),
        4 => writeln!(
            source,
            "fn load_{name}(i: u32) -> {t} {{ return bitcast<{t}>({}); }}",
            read(&format!("{first} + p.{name}_at + i"))
        ),
        _ => {
            let (each, bits) = (4 / size, 8 * size);
            let mask = (1u32 << bits) - 1;
            writeln!(
                source,
                "fn load_{name}(i: u32) -> {t} {{\n    let at = p.{name}_at + i;\n    \
                     let word = {};\n    \
                     return load_{element}((word >> (at % {each}u * {bits}u)) & {mask}u);\n}}",
                read(&format!("{first} + at / {each}u"))
            )
        }
    };
    if size == 1 && !access.is_written {
        let _ = writeln!(
            source,
            "fn word_{name}(i: u32) -> u32 {{\n    let byte = p.{name}_at + i;\n    \
                 let at = {first} + byte / 4u;\n    let shift = byte % 4u * 8u;\n    \
                 let low = {};\n    if (shift == 0u) {{ return low; }}\n    \
                 return (low >> shift) | ({} << (32u - shift));\n}}",
            read("at"),
            read("at + 1u"),
        );
    }
    if access.is_written {
        declare_store(name, element, source);
    }
}

/// Declares the function that writes an element of an argument.
fn declare_store(name: &str, element: &str, source: &mut String) {
    let (size, t) = (size(element), computed(element));
    let first = format!("p.{name}_granule * {GRANULE_WORDS}u");
    let _ = match size {
        4 => writeln!(
            source,
            "fn store_{name}(i: u32, value: {t}) {{\n    \
                 {name}_[{first} + p.{name}_at + i] = bitcast<u32>(value);\n}}"
        ),
        1 | 2 => {
            let (each, bits) = (4 / size, 8 * size);
            let mask = (1u32 << bits) - 1;
            writeln!(
                source,
                "fn store_{name}(i: u32, value: {t}) {{\n    let at = p.{name}_at + i;\n    \
                     let shift = at % {each}u * {bits}u;\n    \
                     let word = {first} + at / {each}u;\n    \
                     atomicAnd(&{name}_[word], ~({mask}u << shift));\n    \
                     atomicOr(&{name}_[word], (store_{element}(value) & {mask}u) << shift);\n}}"
            )
        }
        _ => Ok(()),
    };
}
