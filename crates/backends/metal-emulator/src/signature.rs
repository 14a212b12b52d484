//! A kernel's parameters, read from its text.

/// Binding of a parameter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Binding {
    /// The pointer type of a buffer of the device.
    Buffer(String),
    /// The reference type of constants, which follow the buffers.
    Constants(String),
    /// `threadgroup_position_in_grid`
    Group,
    /// `thread_index_in_threadgroup`
    Thread,
    /// `thread_index_in_simdgroup`
    Lane,
    /// `simdgroup_index_in_threadgroup`
    SimdGroup,
}

/// The parameters of the kernel `name`, in the order of its signature, which is one line.
///
/// # Errors
/// Fails for signatures that Metal would reject.
pub(crate) fn parameters(source: &str, name: &str) -> Result<Vec<Binding>, String> {
    let start = format!("kernel void {name}(");
    let text = (source.split_once(&start)).ok_or_else(|| format!("no kernel {name}"))?;
    let text = (text.1.split_once(") {")).ok_or("a signature that does not end")?;
    let mut buffers = 0;
    let mut has_constants = false;
    let bindings = text.0.split(", ").map(|parameter| {
        let (declaration, attribute) = (parameter.trim().split_once(" [["))
            .ok_or_else(|| format!("no attribute: {parameter}"))?;
        let (ty, _) = declaration.rsplit_once(' ').ok_or("no type")?;
        let attribute = attribute.trim_end_matches("]]");
        let buffer = (attribute.strip_prefix("buffer(")).and_then(|n| n.strip_suffix(')'));
        if let Some(index) = buffer {
            if index.parse() != Ok(buffers) || has_constants {
                return Err(format!("buffer {index} is not the next"));
            }
            buffers += 1;
            has_constants = ty.starts_with("constant ");
            return match has_constants {
                true => Ok(Binding::Constants(ty.trim_end_matches('&').to_owned())),
                false if ty.starts_with("device ") && ty.ends_with('*') => {
                    Ok(Binding::Buffer(ty.to_owned()))
                }
                false => Err(format!("{ty} is not a pointer of the device")),
            };
        }
        match (attribute, ty) {
            ("threadgroup_position_in_grid", "uint3") => Ok(Binding::Group),
            ("thread_index_in_threadgroup", "uint") => Ok(Binding::Thread),
            ("thread_index_in_simdgroup", "uint") => Ok(Binding::Lane),
            ("simdgroup_index_in_threadgroup", "uint") => Ok(Binding::SimdGroup),
            _ => Err(format!("{ty} [[{attribute}]]")),
        }
    });
    bindings.collect()
}

/// A function of one signature for all kernels, which calls this one.
pub(crate) fn entry(name: &str, parameters: &[Binding]) -> String {
    let mut buffers = 0;
    let arguments = parameters.iter().map(|parameter| match parameter {
        Binding::Buffer(ty) => {
            buffers += 1;
            format!("({ty})(ulong)buffers[{}]", buffers - 1)
        }
        Binding::Constants(ty) => format!("*({ty}*)(ulong)params"),
        Binding::Group => "group".to_owned(),
        Binding::Thread => "thread_".to_owned(),
        Binding::Lane => "thread_ % 32".to_owned(),
        Binding::SimdGroup => "thread_ / 32".to_owned(),
    });
    let arguments = arguments.collect::<Vec<_>>().join(", ");
    format!(
        "\nextern \"C\" void rustorch_bind(const RustorchThreads* threads) {{\n\
         rustorch_threads = threads;\n}}\n\
         extern \"C\" void rustorch_entry(void* const* buffers, const void* params, \
         const uint* position, uint thread_) {{\n\
         uint3 group; group.x = position[0]; group.y = position[1]; group.z = position[2];\n\
         {name}({arguments});\n}}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bindings_are_read() {
        let source = "kernel void f(device const float* x_ [[buffer(0)]], \
                      constant Params& p [[buffer(1)]], \
                      uint lane_ [[thread_index_in_threadgroup]]) {";
        let bindings = parameters(source, "f").unwrap();
        let expected = [
            Binding::Buffer("device const float*".to_owned()),
            Binding::Constants("constant Params".to_owned()),
            Binding::Thread,
        ];
        assert_eq!(bindings, expected);
        assert!(entry("f", &bindings).contains(
            "f((device const float*)(ulong)buffers[0], *(constant Params*)(ulong)params, thread_)"
        ));
    }

    #[test]
    fn wrong_bindings_are_errors() {
        for wrong in [
            "device float* x",
            "float* x [[buffer(0)]]",
            "device float* x [[buffer(1)]]",
            "device float* x [[buffer(0)]], device float* y [[buffer(0)]]",
            "uint x [[threadgroup_position_in_grid]]",
            "uint x [[vertex_id]]",
        ] {
            let source = format!("kernel void f({wrong}) {{");
            assert!(parameters(&source, "f").is_err(), "{wrong}");
        }
        assert!(parameters("kernel void g() {", "f").is_err());
    }
}
