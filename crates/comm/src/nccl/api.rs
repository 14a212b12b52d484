//! The functions of NCCL that are used.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::path::PathBuf;
use std::sync::Arc;
use std::{env, fs, ptr};

use half::{bf16, f16};
use libloading::Library;

use crate::{CommError, DType, ReduceOp};

pub(super) const IN_PROGRESS: c_int = 7;
pub(super) const ON_HOST: c_int = 1;
/// The number of reductions that NCCL has. Reductions that are made have higher numbers.
pub(super) const OWN_REDUCTIONS: c_int = 5;
/// 2.14, which introduced calls that do not wait.
const OLDEST: c_int = 21_400;

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct UniqueId(pub(super) [u8; 128]);

impl Default for UniqueId {
    fn default() -> Self {
        Self([0; 128])
    }
}

/// A communicator's handle.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(super) struct Comm(pub(super) *mut c_void);

// SAFETY: NCCL's communicators may be used by any thread, by one at a time.
unsafe impl Send for Comm {}

/// NCCL 2.17's configuration. Later versions take it, as it names its size and version.
#[repr(C)]
pub(super) struct Config {
    size: usize,
    magic: c_uint,
    version: c_uint,
    blocking: c_int,
    cga_cluster_size: c_int,
    min_ctas: c_int,
    max_ctas: c_int,
    net_name: *const c_char,
    split_share: c_int,
}

impl Config {
    pub(super) fn non_blocking() -> Self {
        const UNSET: c_int = c_int::MIN;
        Self {
            size: size_of::<Self>(),
            magic: 0xcafe_beef,
            version: 21_800,
            blocking: 0,
            cga_cluster_size: UNSET,
            min_ctas: UNSET,
            max_ctas: UNSET,
            net_name: ptr::null(),
            split_share: UNSET,
        }
    }
}

/// Functions by name and type, as a struct.
macro_rules! functions {
    ($($field:ident = $name:literal: fn($($argument:ty),*);)*) => {
        pub(super) struct Functions {
            $(pub(super) $field: unsafe extern "C" fn($($argument),*) -> c_int,)*
            error_string: unsafe extern "C" fn(c_int) -> *const c_char,
            // Functions are part of the library.
            _library: Library,
        }

        impl Functions {
            fn of(library: Library) -> Result<Self, libloading::Error> {
                // SAFETY: the types are those of NCCL's header.
                unsafe {
                    Ok(Self {
                        $($field: *library.get($name)?,)*
                        error_string: *library.get(b"ncclGetErrorString")?,
                        _library: library,
                    })
                }
            }
        }
    };
}

functions! {
    version = b"ncclGetVersion": fn(*mut c_int);
    unique_id = b"ncclGetUniqueId": fn(*mut UniqueId);
    init_rank = b"ncclCommInitRankConfig": fn(*mut Comm, c_int, UniqueId, c_int, *mut Config);
    finalize = b"ncclCommFinalize": fn(Comm);
    destroy = b"ncclCommDestroy": fn(Comm);
    abort = b"ncclCommAbort": fn(Comm);
    async_error = b"ncclCommGetAsyncError": fn(Comm, *mut c_int);
    create_premul = b"ncclRedOpCreatePreMulSum": fn(*mut c_int, *const c_void, c_int, c_int, Comm);
    destroy_op = b"ncclRedOpDestroy": fn(c_int, Comm);
    all_reduce = b"ncclAllReduce":
        fn(*const c_void, *mut c_void, usize, c_int, c_int, Comm, *mut c_void);
    all_gather = b"ncclAllGather": fn(*const c_void, *mut c_void, usize, c_int, Comm, *mut c_void);
    reduce_scatter = b"ncclReduceScatter":
        fn(*const c_void, *mut c_void, usize, c_int, c_int, Comm, *mut c_void);
    broadcast = b"ncclBroadcast":
        fn(*const c_void, *mut c_void, usize, c_int, c_int, Comm, *mut c_void);
    send = b"ncclSend": fn(*const c_void, usize, c_int, c_int, Comm, *mut c_void);
    recv = b"ncclRecv": fn(*mut c_void, usize, c_int, c_int, Comm, *mut c_void);
    group_start = b"ncclGroupStart": fn();
    group_end = b"ncclGroupEnd": fn();
}

/// The library NCCL.
pub struct Nccl {
    pub(super) functions: Functions,
    version: c_int,
}

/// The error of a library that cannot be used.
pub(super) fn library(problem: String) -> CommError {
    CommError::Library {
        library: "NCCL",
        problem,
    }
}

impl Nccl {
    /// Loads the library: the file `RUSTORCH_NCCL`, else `libnccl.so.2` of the system or of Python's package.
    ///
    /// Multicast over NVLink (NVLS) is off unless `NCCL_NVLS_ENABLE` is set.
    ///
    /// # Errors
    /// Fails if the library is missing or older than 2.14.
    ///
    /// # Safety
    /// No other thread reads or writes the environment meanwhile, other than by `std::env`.
    pub unsafe fn load() -> Result<Arc<Self>, CommError> {
        if env::var_os("NCCL_NVLS_ENABLE").is_none() {
            // SAFETY: as the caller promises.
            unsafe { env::set_var("NCCL_NVLS_ENABLE", "0") };
        }
        let opened = open().map_err(library)?;
        let functions = Functions::of(opened).map_err(|error| library(error.to_string()))?;
        let mut nccl = Self {
            functions,
            version: 0,
        };
        // SAFETY: the pointer is to a number.
        let status = unsafe { (nccl.functions.version)(&mut nccl.version) };
        nccl.check("ncclGetVersion", status).map_err(library)?;
        match nccl.version < OLDEST {
            true => Err(library(format!(
                "version {} is too old; install 2.14 or later",
                nccl.version()
            ))),
            false => Ok(Arc::new(nccl)),
        }
    }

    /// The version, such as `2.30.7`.
    pub fn version(&self) -> String {
        // Versions before 2.9 have fewer digits.
        let thousands = if self.version < 10_000 { 1000 } else { 10_000 };
        let (major, rest) = (self.version / thousands, self.version % thousands);
        format!("{major}.{}.{}", rest / 100, rest % 100)
    }

    pub(super) fn check(&self, function: &str, status: c_int) -> Result<(), String> {
        if status == 0 {
            return Ok(());
        }
        // SAFETY: NCCL has a text that stays for each number.
        let text = unsafe { CStr::from_ptr((self.functions.error_string)(status)) };
        Err(format!("{function}: {}", text.to_string_lossy()))
    }
}

fn open() -> Result<Library, String> {
    // SAFETY: NCCL does nothing when it is loaded that others would have to know of.
    let open = |path: PathBuf| unsafe { Library::new(path) };
    if let Some(chosen) = env::var_os("RUSTORCH_NCCL") {
        return open(chosen.into()).map_err(|error| format!("RUSTORCH_NCCL: {error}"));
    }
    let name = "libnccl.so.2";
    let system = open(name.into());
    let mut found = packages().into_iter().map(|folder| open(folder.join(name)));
    system
        .or_else(|error| found.find_map(Result::ok).ok_or(error))
        .map_err(|error| {
            format!("{error}; install libnccl2 or Python's nvidia-nccl-cu13, or set RUSTORCH_NCCL")
        })
}

/// Folders of Python's package: of the current environment, of the user, and of the Pythons in `PATH`.
fn packages() -> Vec<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let programs = env::split_paths(&path).filter_map(|folder| Some(folder.parent()?.to_owned()));
    let home = env::var_os("HOME").map(|home| PathBuf::from(home).join(".local"));
    let prefixes = ["VIRTUAL_ENV", "CONDA_PREFIX"].map(|name| env::var_os(name).map(PathBuf::from));
    let prefixes = prefixes
        .into_iter()
        .chain([home, Some("/usr/local".into())])
        .flatten()
        .chain(programs);
    let pythons = prefixes
        .filter_map(|prefix| fs::read_dir(prefix.join("lib")).ok())
        .flatten();
    let pythons = pythons.flatten().map(|entry| entry.path());
    let packages = pythons.flat_map(|python| {
        ["site-packages", "dist-packages"].map(|name| python.join(name).join("nvidia/nccl/lib"))
    });
    packages.filter(|folder| folder.is_dir()).collect()
}

/// NCCL's number of a dtype.
pub(super) const fn dtype(dtype: DType) -> Option<c_int> {
    Some(match dtype {
        DType::I8 => 0,
        DType::U8 => 1,
        DType::I32 => 2,
        DType::U32 => 3,
        DType::I64 => 4,
        DType::U64 => 5,
        DType::F16 => 6,
        DType::F32 => 7,
        DType::F64 => 8,
        DType::BF16 => 9,
        DType::I16 | DType::U16 => return None,
    })
}

/// NCCL's number of a reduction that it has.
pub(super) const fn reduction(op: ReduceOp) -> Option<c_int> {
    Some(match op {
        ReduceOp::Sum => 0,
        ReduceOp::Product => 1,
        ReduceOp::Max => 2,
        ReduceOp::Min => 3,
        ReduceOp::Avg => 4,
        _ => return None,
    })
}

/// True for the reductions that NCCL has or can make.
pub(super) const fn has(op: ReduceOp) -> bool {
    reduction(op).is_some() || matches!(op, ReduceOp::PremulSum(_))
}

/// The bytes of a factor as an element of a float's dtype.
pub(super) fn scalar(factor: f64, dtype: DType) -> [u8; 8] {
    let mut bytes = [0; 8];
    let mut set = |element: &[u8]| bytes[..element.len()].copy_from_slice(element);
    match dtype {
        DType::F16 => set(&f16::from_f64(factor).to_ne_bytes()),
        DType::BF16 => set(&bf16::from_f64(factor).to_ne_bytes()),
        DType::F32 => set(&(factor as f32).to_ne_bytes()),
        _ => set(&factor.to_ne_bytes()),
    }
    bytes
}
