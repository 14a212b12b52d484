//! Ranges for NVIDIA's tools, such as Nsight Systems: the host's activity, by NVTX.
//!
//! The tools record launches by themselves.

use std::ffi::{CString, c_char, c_int};

use libloading::Library;
use rustorch_runtime::{Event, Observer};

/// The variable that Nsight Systems and other tools set for the programs that they observe.
const TOOL: &str = "NVTX_INJECTION64_PATH";

/// The library as toolkits have named it, the latest first.
const NAMES: [&str; 4] = [
    "libnvtx3interop.so.1",
    "libnvToolsExt.so.1",
    "nvtx3interop.dll",
    "nvToolsExt64_1.dll",
];

type Named = unsafe extern "C" fn(*const c_char) -> c_int;

/// Reports the host's activity to NVIDIA's tools.
pub struct Nvtx {
    push: Named,
    pop: unsafe extern "C" fn() -> c_int,
    mark: unsafe extern "C" fn(*const c_char),
    _library: Library,
}

impl Nvtx {
    /// Does a tool profile this process?
    pub(crate) fn is_wanted() -> bool {
        std::env::var_os(TOOL).is_some_and(|path| !path.is_empty())
    }

    /// Loads the library of the CUDA toolkit.
    ///
    /// # Errors
    /// Fails if the library is not installed. The message is one line with the cure.
    pub fn load() -> Result<Self, String> {
        // SAFETY: NVIDIA's library does nothing when it is loaded that others would have to know of.
        let mut found = NAMES.iter().map(|name| unsafe { Library::new(name) });
        let Some(library) = found.find_map(Result::ok) else {
            return Err(format!(
                "no ranges for NVIDIA's tools: there is no {}, which the CUDA toolkit has",
                NAMES[0]
            ));
        };
        // SAFETY: these are the types of the functions in `nvToolsExt.h`.
        let functions = unsafe {
            let push = library.get(b"nvtxRangePushA\0").map(|f| *f);
            let pop = library.get(b"nvtxRangePop\0").map(|f| *f);
            let mark = library.get(b"nvtxMarkA\0").map(|f| *f);
            push.and_then(|push| Ok((push, pop?, mark?)))
        };
        let (push, pop, mark) = functions.map_err(|e| format!("NVTX: {e}"))?;
        Ok(Self {
            push,
            pop,
            mark,
            _library: library,
        })
    }
}

/// A text as tools that are written in C take it. Texts with a zero are cut off there.
pub(crate) fn c_text(text: &str) -> CString {
    CString::new(text.replace('\0', " ")).unwrap_or_default()
}

impl Observer for Nvtx {
    fn saw(&self, event: Event<'_>) {
        match event {
            Event::Begun { name, .. } => {
                // SAFETY: the text is one of C, of which the library takes a copy.
                unsafe { (self.push)(c_text(name).as_ptr()) };
            }
            Event::Ended => {
                // SAFETY: it takes nothing.
                unsafe { (self.pop)() };
            }
            Event::FellBack(fallback) => {
                let text = c_text(&fallback.to_string());
                // SAFETY: as above.
                unsafe { (self.mark)(text.as_ptr()) };
            }
            _ => {}
        }
    }

    fn wants_launches(&self) -> bool {
        false
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::fs;
    use std::process::Command;

    use rustorch_runtime::HostWork;

    use super::*;

    /// A library that records its calls.
    const FAKE: &str = r#"
        #include <stdio.h>
        #include <stdlib.h>
        static int told(const char* what, const char* name) {
            FILE* file = fopen(getenv("FAKE_NVTX"), "a");
            fprintf(file, "%s %s\n", what, name);
            return fclose(file);
        }
        int nvtxRangePushA(const char* name) { return told("push", name); }
        int nvtxRangePop(void) { return told("pop", ""); }
        void nvtxMarkA(const char* name) { told("mark", name); }
    "#;

    /// Run by the test below, with the library in its path.
    #[test]
    #[ignore = "run by another, in a process of its own"]
    fn tells() {
        let nvtx = Nvtx::load().unwrap();
        let (work, name) = (HostWork::Range, "a\0b");
        nvtx.saw(Event::Begun { work, name });
        nvtx.saw(Event::Ended);
        assert!(!nvtx.wants_launches() && !Nvtx::is_wanted());
    }

    #[test]
    fn ranges_reach_the_library() {
        let folder = tempfile::tempdir().unwrap();
        let (source, notes) = (folder.path().join("fake.c"), folder.path().join("notes"));
        fs::write(&source, FAKE).unwrap();
        let library = folder.path().join(NAMES[0]);
        let mut compiler = Command::new("cc");
        compiler
            .args(["-shared", "-fPIC", "-o"])
            .arg(library)
            .arg(source);
        assert!(compiler.status().expect("a C compiler").success());
        let ran = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "nvtx::tests::tells", "--ignored"])
            .env("LD_LIBRARY_PATH", folder.path())
            .env("FAKE_NVTX", &notes)
            .env_remove(TOOL)
            .output()
            .unwrap();
        assert!(ran.status.success(), "{ran:?}");
        assert_eq!(fs::read_to_string(notes).unwrap(), "push a b\npop \n");
    }
}
