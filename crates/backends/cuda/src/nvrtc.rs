//! NVRTC, the compiler of kernels.

use std::ffi::{CString, c_char, c_int};
use std::ptr;
use std::sync::LazyLock;

use crate::library::api;
use crate::pack::Target;

type Status = c_int;
type RawProgram = *mut std::ffi::c_void;

// Functions of `nvrtc.h`.
api! { "nvrtc":
    version = "nvrtcVersion": fn(*mut c_int, *mut c_int);
    archs = "nvrtcGetSupportedArchs": fn(*mut c_int);
    arch_count = "nvrtcGetNumSupportedArchs": fn(*mut c_int);
    create = "nvrtcCreateProgram": fn(*mut RawProgram, *const c_char, *const c_char, c_int,
        *const *const c_char, *const *const c_char);
    destroy = "nvrtcDestroyProgram": fn(*mut RawProgram);
    compile = "nvrtcCompileProgram": fn(RawProgram, c_int, *const *const c_char);
    log_size = "nvrtcGetProgramLogSize": fn(RawProgram, *mut usize);
    log = "nvrtcGetProgramLog": fn(RawProgram, *mut c_char);
    cubin_size = "nvrtcGetCUBINSize": fn(RawProgram, *mut usize);
    cubin = "nvrtcGetCUBIN": fn(RawProgram, *mut c_char);
    ptx_size = "nvrtcGetPTXSize": fn(RawProgram, *mut usize);
    ptx = "nvrtcGetPTX": fn(RawProgram, *mut c_char);
}

/// The compiler, if it is installed.
pub(crate) struct Nvrtc {
    api: Api,
    /// Major and minor.
    pub(crate) version: (i32, i32),
    /// The compute capabilities that it makes machine code for, as in [`target`].
    capabilities: Vec<c_int>,
}

/// The least version, major and minor: older ones do not know the kernels' language.
const LEAST: (i32, i32) = (12, 0);

/// The compiler of this machine.
///
/// # Errors
/// Fails if NVRTC is not installed. Also fails if it cannot be used; this is also a warning.
pub(crate) fn nvrtc() -> Result<&'static Nvrtc, &'static str> {
    static NVRTC: LazyLock<Result<Nvrtc, String>> = LazyLock::new(Nvrtc::load);
    NVRTC.as_ref().map_err(String::as_str)
}

/// Name that compilers give to a device. The compute capability is ten times the major number plus
/// the minor one. Hopper's own instructions need a name of their own.
pub(crate) fn target(capability: u32) -> String {
    match capability {
        90 => "90a".to_owned(),
        other => other.to_string(),
    }
}

/// A program, destroyed when it is dropped.
struct Program<'a>(&'a Api, RawProgram);

impl Drop for Program<'_> {
    fn drop(&mut self) {
        // SAFETY: it is valid, and not used again.
        unsafe { (self.0.destroy)(&raw mut self.1) };
    }
}

impl Nvrtc {
    fn load() -> Result<Self, String> {
        let api = Api::load()?;
        let (mut major, mut minor, mut count) = (0, 0, 0);
        // SAFETY: there is room for each number.
        unsafe {
            (api.version)(&raw mut major, &raw mut minor);
            (api.arch_count)(&raw mut count);
        }
        if (major, minor) < LEAST {
            let why = format!(
                "NVRTC {major}.{minor} is too old; install {}.{} or newer",
                LEAST.0, LEAST.1
            );
            tracing::warn!("{why}; using precompiled kernels");
            return Err(why);
        }
        let mut capabilities = vec![0; usize::try_from(count).unwrap_or(0)];
        // SAFETY: there is room for as many as it said.
        unsafe { (api.archs)(capabilities.as_mut_ptr()) };
        Ok(Self {
            api,
            version: (major, minor),
            capabilities,
        })
    }

    /// Machine code of a source for a device; its PTX where the compiler is older than the
    /// device.
    ///
    /// # Errors
    /// Fails with the compiler's message, as one line.
    pub(crate) fn compile(&self, source: &str, capability: u32) -> Result<Vec<u8>, String> {
        let knows = |c: &i32| u32::try_from(*c) == Ok(capability);
        let is_known = self.capabilities.iter().any(knows);
        let newest = self.capabilities.iter().max();
        let architecture = match (is_known, newest) {
            (true, _) | (false, None) => format!("sm_{}", target(capability)),
            (false, Some(newest)) => format!("compute_{newest}"),
        };
        let program = self.program(source, &architecture)?;
        let api = &self.api;
        let binary = match is_known {
            true => program.bytes(api.cubin_size, api.cubin),
            false => program.bytes(api.ptx_size, api.ptx),
        };
        match binary.is_empty() {
            true => Err("NVRTC returns no machine code".to_owned()),
            false => Ok(binary),
        }
    }

    /// PTX of a source, without comments, which count earlier compilations.
    ///
    /// # Errors
    /// Fails with the compiler's message, as one line.
    pub(crate) fn ptx(&self, source: &str, target: Target) -> Result<Vec<u8>, String> {
        let program = self.program(source, &format!("compute_{}", target.name()))?;
        let ptx = program.bytes(self.api.ptx_size, self.api.ptx);
        let text = String::from_utf8_lossy(&ptx);
        // In memory it ends with a zero.
        let lines = text.trim_end_matches('\0').lines();
        let code = lines.map(|line| {
            line.split_once("//")
                .map_or(line, |(code, _)| code)
                .trim_end()
        });
        let mut ptx = Vec::with_capacity(ptx.len());
        for line in code.filter(|line| !line.is_empty()) {
            ptx.extend(line.as_bytes());
            ptx.push(b'\n');
        }
        match ptx.is_empty() {
            true => Err("NVRTC returns no PTX".to_owned()),
            false => Ok(ptx),
        }
    }

    fn program(&self, source: &str, architecture: &str) -> Result<Program<'_>, String> {
        let architecture = format!("--gpu-architecture={architecture}");
        let options = [
            architecture.as_str(),
            "--fmad=false",
            "--std=c++17",
            "--disable-warnings",
        ];
        let options: Vec<CString> = options
            .into_iter()
            .filter_map(|o| CString::new(o).ok())
            .collect();
        let options: Vec<*const c_char> = options.iter().map(|o| o.as_ptr()).collect();
        let text = CString::new(source).map_err(|_| "a source with a zero byte".to_owned())?;
        let api = &self.api;
        let mut raw = ptr::null_mut();
        let none = ptr::null();
        // SAFETY: the source ends with a zero; there are no headers.
        let created = unsafe {
            (api.create)(
                &raw mut raw,
                text.as_ptr(),
                none,
                0,
                ptr::null(),
                ptr::null(),
            )
        };
        if created != 0 {
            return Err(format!("nvrtcCreateProgram: status {created}"));
        }
        let program = Program(api, raw);
        let count = c_int::try_from(options.len()).unwrap_or(0);
        // SAFETY: the program is valid, and the options end with zeros.
        let compiled = unsafe { (api.compile)(program.1, count, options.as_ptr()) };
        if compiled != 0 {
            let log = program.bytes(api.log_size, api.log);
            let log = String::from_utf8_lossy(&log);
            tracing::debug!("nvrtcCompileProgram: {log}");
            // One line will do: what follows from the first error is not news.
            let first = log.lines().find(|line| line.contains("error"));
            let first = first.or(log.lines().next()).unwrap_or_default();
            return Err(format!("nvrtcCompileProgram: status {compiled}: {first}"));
        }
        Ok(program)
    }
}

impl Program<'_> {
    fn bytes(
        &self,
        size: unsafe extern "C" fn(RawProgram, *mut usize) -> Status,
        get: unsafe extern "C" fn(RawProgram, *mut c_char) -> Status,
    ) -> Vec<u8> {
        let mut bytes = 0;
        // SAFETY: the program is valid, and there is room for the size.
        if unsafe { size(self.1, &raw mut bytes) } != 0 {
            return Vec::new();
        }
        let mut out = vec![0; bytes];
        // SAFETY: there is room for as many bytes as it said.
        match unsafe { get(self.1, out.as_mut_ptr().cast()) } {
            0 => out,
            _ => Vec::new(),
        }
    }
}
