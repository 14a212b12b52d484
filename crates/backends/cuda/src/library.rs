//! Optional libraries.

use std::path::PathBuf;

use libloading::Library;

/// The newest version of a library of the CUDA toolkit, such as `nvrtc`: where the system finds
/// libraries, then in the toolkit that `CUDA_PATH` or `CUDA_HOME` names, or the usual one. The
/// variable `RUSTORCH_NVRTC` is the file to take instead, or `none` to do without.
///
/// # Errors
/// Fails with one line if the library is missing.
pub(crate) fn open(name: &str) -> Result<Library, String> {
    let variable = format!("RUSTORCH_{}", name.to_uppercase());
    if let Some(chosen) = std::env::var_os(&variable) {
        if chosen == "none" {
            return Err(format!("lib{name} is left out by {variable}=none"));
        }
        // SAFETY: as below.
        let library = unsafe { Library::new(&chosen) };
        return library.map_err(|e| format!("{variable}: {e}"));
    }
    let names: Vec<String> = match cfg!(windows) {
        true => vec![format!("{name}64_13.dll"), format!("{name}64_12.dll")],
        false => [".so.13", ".so.12", ".so"]
            .map(|v| format!("lib{name}{v}"))
            .into(),
    };
    let mut folders = vec![PathBuf::new()];
    for variable in ["CUDA_PATH", "CUDA_HOME"] {
        let toolkit = std::env::var_os(variable).map(PathBuf::from);
        folders.extend(
            toolkit
                .iter()
                .flat_map(|t| [t.join("lib64"), t.join("bin")]),
        );
    }
    folders.push("/usr/local/cuda/lib64".into());
    let mut why = None;
    for folder in &folders {
        for name in &names {
            // SAFETY: NVIDIA's libraries do nothing when they are loaded that others would
            // have to know of.
            match unsafe { Library::new(folder.join(name)) } {
                Ok(library) => return Ok(library),
                Err(e) => why = why.or(Some(e)),
            }
        }
    }
    let why = why.map_or_else(String::new, |e| format!(": {e}"));
    Err(format!("lib{name} (CUDA 12 or 13) is not installed{why}"))
}

/// A function of a library.
///
/// # Safety
/// `F` is its type.
///
/// # Errors
/// Fails if the library has no function of this name.
pub(crate) unsafe fn function<F: Copy>(library: &Library, name: &str) -> Result<F, String> {
    // SAFETY: as the caller promises.
    let function = unsafe { library.get::<F>(name.as_bytes()) };
    function.map(|f| *f).map_err(|e| e.to_string())
}

/// The functions of a library that are used, as the struct `Api` with [`open`]ed library.
macro_rules! api {
    ($library:literal: $($field:ident = $name:literal: fn($($arg:ty),*);)*) => {
        struct Api {
            $($field: unsafe extern "C" fn($($arg),*) -> std::ffi::c_int,)*
            _library: libloading::Library,
        }

        impl Api {
            fn load() -> Result<Self, String> {
                let library = $crate::library::open($library)?;
                Ok(Self {
                    // SAFETY: the types are those of the library's header.
                    $($field: unsafe { $crate::library::function(&library, $name)? },)*
                    _library: library,
                })
            }
        }
    };
}
pub(crate) use api;
