//! From the shading language to functions of the processor.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use libloading::Library;
use sha2::{Digest, Sha256};

use crate::execute::{Entry, Kernel, THREADS, Threads};
use crate::refused::refused;
use crate::signature::{Binding, entry, parameters};

/// Options of the compiler. Every warning is an error. Attributes are a part of the language that C++
/// lacks; [`parameters`] looks at them. An older clang lacks some warnings, which need not be
/// silenced there.
const OPTIONS: [&str; 28] = [
    "-x",
    "c++",
    "-std=c++14",
    "-O2",
    "-march=native",
    "-ffp-contract=off",
    "-Xclang",
    "-ffloat16-excess-precision=none",
    "-fno-math-errno",
    "-fsigned-char",
    "-fno-exceptions",
    "-fno-rtti",
    "-fno-stack-protector",
    "-nostdinc",
    "-nostdinc++",
    "-shared",
    "-fPIC",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-Wno-unknown-warning-option",
    "-Wdouble-promotion",
    "-Wno-unknown-attributes",
    "-Wno-unknown-pragmas",
    "-Wno-unused-function",
    "-Wno-unused-parameter",
    "-Wno-pass-failed",
    "-Wno-invalid-feature-combination",
];

/// Names of clang that are looked for.
const NAMES: [&str; 8] = [
    "clang++",
    "clang++-16",
    "clang++-17",
    "clang++-18",
    "clang++-19",
    "clang++-20",
    "clang++-21",
    "clang++-22",
];

/// The oldest version that has half precision on x86-64.
const OLDEST: u32 = 16;

/// clang, and the folder of its output.
pub(crate) struct Compiler {
    program: String,
    version: String,
    folder: PathBuf,
}

impl Compiler {
    /// Looks for clang.
    pub(crate) fn new() -> Result<Self, String> {
        let chosen = std::env::var("RUSTORCH_CLANG").ok();
        let names = match &chosen {
            Some(name) => vec![name.as_str()],
            None => NAMES.to_vec(),
        };
        let versions = names.iter().filter_map(|name| {
            let output = Command::new(name).arg("--version").output().ok()?;
            let text = String::from_utf8(output.stdout).ok()?;
            let number = text.split("clang version ").nth(1)?.split('.').next()?;
            let number: u32 = number.parse().ok()?;
            (number >= OLDEST).then(|| ((*name).to_owned(), text))
        });
        let (program, version) = { versions }.next().ok_or("none was found")?;
        let folder = std::env::temp_dir().join("rustorch-metal-emulator");
        let compiler = Self {
            program,
            version,
            folder,
        };
        compiler.prepare().map_err(|e| e.to_string())?;
        Ok(compiler)
    }

    /// Writes the header to where clang finds it.
    fn prepare(&self) -> std::io::Result<()> {
        fs::create_dir_all(self.include())?;
        let mut file = tempfile::NamedTempFile::new_in(self.include())?;
        file.write_all(HEADER.as_bytes())?;
        file.persist(self.include().join("metal_stdlib"))?;
        Ok(())
    }

    /// Its own folder for each version of the header.
    fn include(&self) -> PathBuf {
        self.folder.join(hex(&Sha256::digest(HEADER)))
    }

    /// Compiles a source, or finds an earlier result.
    pub(crate) fn compile(&self, source: &str, name: &str) -> Result<Kernel, String> {
        if let Some(what) = refused(source) {
            return Err(format!("error: Metal refuses {what}"));
        }
        let parameters = parameters(source, name)?;
        let text = rewrite(source) + &entry(name, &parameters);
        let mut hash = Sha256::new();
        for part in [HEADER, &self.version, &OPTIONS.join(" "), &text] {
            hash.update(part);
        }
        let path = self.folder.join(format!("{}.so", hex(&hash.finalize())));
        if !path.exists() {
            self.make(&text, &path)?;
        }
        // SAFETY: the library was made from a kernel and has no constructors.
        let library = unsafe { Library::new(&path) }.map_err(|e| e.to_string())?;
        // SAFETY: the functions have these types, see `entry`.
        let entry = unsafe {
            let bind = library.get::<unsafe extern "C" fn(&'static Threads)>(b"rustorch_bind\0");
            bind.map_err(|e| e.to_string())?(&THREADS);
            *library
                .get::<Entry>(b"rustorch_entry\0")
                .map_err(|e| e.to_string())?
        };
        let buffers = parameters
            .iter()
            .filter(|p| matches!(p, Binding::Buffer(_)));
        Ok(Kernel {
            name: name.to_owned(),
            buffers: buffers.count(),
            entry,
            _library: library,
        })
    }

    fn make(&self, text: &str, path: &std::path::Path) -> Result<(), String> {
        let failed = |e: std::io::Error| format!("{}: {e}", self.program);
        let file = tempfile::NamedTempFile::new_in(&self.folder).map_err(failed)?;
        let mut clang = Command::new(&self.program)
            .args(OPTIONS)
            .arg("-I")
            .arg(self.include())
            .arg("-o")
            .arg(file.path())
            .args(["-", "-lm"])
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        if let Some(mut input) = clang.stdin.take() {
            input.write_all(text.as_bytes()).map_err(failed)?;
        }
        let output = clang.wait_with_output().map_err(failed)?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        }
        file.persist(path).map_err(|e| failed(e.error))?;
        Ok(())
    }
}

const HEADER: &str = include_str!("../shim/metal_stdlib");

/// Declarations of arrays in threadgroup memory become references into it: in C++ no variable
/// of a function is in an address space.
fn rewrite(source: &str) -> String {
    let mut lines = source.lines().map(|line| {
        let Some((before, declaration)) = line.split_once("threadgroup ") else {
            return line.to_owned();
        };
        let array = declaration.split_once(' ').and_then(|(ty, rest)| {
            let (name, rest) = rest.split_once('[')?;
            let (size, rest) = rest.split_once(']')?;
            let is_name = |text: &str| text.chars().all(|c| c.is_alphanumeric() || c == '_');
            (is_name(ty) && is_name(name)).then_some((ty, name, size, rest))
        });
        match array {
            Some((ty, name, size, rest)) => {
                format!("{before}RUSTORCH_THREADGROUP({ty}, {name}, ({size})){rest}")
            }
            None => line.to_owned(),
        }
    });
    let mut text = String::with_capacity(source.len());
    for line in &mut lines {
        text.push_str(&line);
        text.push('\n');
    }
    text
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_of_threadgroups_are_rewritten() {
        let rewritten = |line| rewrite(line).trim_end().to_owned();
        assert_eq!(
            rewritten("#define LOCAL_ARRAY(type, name, length) threadgroup type name[length]"),
            "#define LOCAL_ARRAY(type, name, length) RUSTORCH_THREADGROUP(type, name, (length))"
        );
        for other in [
            "void f(threadgroup float* x);",
            "#define LOCAL threadgroup",
            "threadgroup float(&x)[3] = y;",
        ] {
            assert_eq!(rewritten(other), other);
        }
    }
}
