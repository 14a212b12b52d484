//! The functions of MPI that are used, in the three families of its binary interface.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::fmt::Debug;
use std::ptr;
use std::sync::Arc;

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW, Symbol};

/// A library of MPI, whatever its handles are.
pub(crate) trait Mpi: Send + Sync + Debug {
    fn version(&self) -> &str;
    /// Starts MPI. Returns rank and size.
    fn start(&self) -> Result<(usize, usize), String>;
    fn end(&self);
    fn send(&self, message: Vec<u8>, to: usize) -> Result<Box<dyn Request>, String>;
    /// Receives a message, if one is there.
    fn receive(&self, from: usize) -> Result<Option<Vec<u8>>, String>;
}

/// A message on its way.
pub(crate) trait Request: Send + Debug {
    fn is_done(&mut self) -> Result<bool, String>;
}

/// A handle of MPI: a number in MPICH's interface, else a pointer, which is only handed back.
trait Handle: Copy + Send + Sync + Debug + 'static {}

impl Handle for c_int {}
impl Handle for usize {}

/// Room for the status of any family.
type Status = [u64; 16];

/// The tag of all messages.
const TAG: c_int = 0x5275;

#[derive(Debug, Clone, Copy)]
struct Constants<H> {
    world: H,
    byte: H,
    errors_return: H,
    /// The level at which several threads call one after the other.
    serialized: c_int,
}

/// Functions by name and type, as a struct.
macro_rules! functions {
    ($($field:ident = $name:literal: fn($($argument:ty),*);)*) => {
        #[derive(Debug)]
        struct Functions<H> {
            $($field: Symbol<unsafe extern "C" fn($($argument),*) -> c_int>,)*
            // Functions are part of the library.
            _library: Library,
        }

        impl<H: Handle> Functions<H> {
            fn of(library: Library) -> Result<Self, String> {
                Ok(Self {
                    // SAFETY: the types are those of MPI's standard, with handles of the library's family.
                    $($field: unsafe { library.get($name) }.map_err(|error| error.to_string())?,)*
                    _library: library,
                })
            }
        }
    };
}

functions! {
    init_thread = b"MPI_Init_thread": fn(*mut c_int, *mut *mut *mut c_char, c_int, *mut c_int);
    initialized = b"MPI_Initialized": fn(*mut c_int);
    finalize = b"MPI_Finalize": fn();
    set_errhandler = b"MPI_Comm_set_errhandler": fn(H, H);
    comm_rank = b"MPI_Comm_rank": fn(H, *mut c_int);
    comm_size = b"MPI_Comm_size": fn(H, *mut c_int);
    isend = b"MPI_Isend": fn(*const c_void, c_int, H, c_int, c_int, H, *mut H);
    iprobe = b"MPI_Iprobe": fn(c_int, c_int, H, *mut c_int, *mut Status);
    get_count = b"MPI_Get_count": fn(*const Status, H, *mut c_int);
    recv = b"MPI_Recv": fn(*mut c_void, c_int, H, c_int, c_int, H, *mut Status);
    test = b"MPI_Test": fn(*mut H, *mut c_int, *mut Status);
}

#[derive(Debug)]
struct Family<H> {
    functions: Arc<Functions<H>>,
    constants: Constants<H>,
    version: String,
}

/// Loads the library that is installed, or the chosen one.
pub(crate) fn load() -> Result<Box<dyn Mpi>, String> {
    let (library, is_standard) = open()?;
    let version = version(&library)?;
    if is_standard {
        let constants = Constants {
            world: 0x101,
            byte: 0x247,
            errors_return: 0x143,
            serialized: 2048,
        };
        return family::<usize>(library, constants, version);
    }
    if version.starts_with("Open MPI") {
        let address = |name: &[u8]| -> Result<usize, String> {
            // SAFETY: only the address is used.
            let symbol = unsafe { library.get::<*mut c_void>(name) };
            Ok(symbol.map_err(|error| error.to_string())?.into_raw() as usize)
        };
        let constants = Constants {
            world: address(b"ompi_mpi_comm_world")?,
            byte: address(b"ompi_mpi_byte")?,
            errors_return: address(b"ompi_mpi_errors_return")?,
            serialized: 2,
        };
        return family(library, constants, version);
    }
    // Libraries that agreed on MPICH's interface.
    if ["MPICH", "MVAPICH", "Intel(R) MPI", "CRAY MPICH"]
        .iter()
        .any(|f| version.starts_with(f))
    {
        let constants = Constants::<c_int> {
            world: 0x4400_0000,
            byte: 0x4c00_010d,
            errors_return: 0x5400_0001,
            serialized: 2,
        };
        return family(library, constants, version);
    }
    Err(format!(
        "\"{version}\" has an unknown family; set RUSTORCH_MPI to libmpi_abi.so, or to a library of Open MPI or MPICH"
    ))
}

fn family<H: Handle>(
    library: Library,
    constants: Constants<H>,
    version: String,
) -> Result<Box<dyn Mpi>, String> {
    let functions = Arc::new(Functions::of(library)?);
    Ok(Box::new(Family {
        functions,
        constants,
        version,
    }))
}

/// The library, and whether it has the interface of MPI 5's standard.
fn open() -> Result<(Library, bool), String> {
    // SAFETY: MPI's libraries do nothing when they are loaded that others would have to know of. Open MPI's parts
    // find its symbols only if these are global.
    let open = |name: &str| unsafe { Library::open(Some(name), RTLD_NOW | RTLD_GLOBAL) };
    let is_standard = |name: &str| name.contains("libmpi_abi");
    if let Ok(chosen) = std::env::var("RUSTORCH_MPI") {
        let library = open(&chosen).map_err(|error| format!("RUSTORCH_MPI: {error}"))?;
        return Ok((library, is_standard(&chosen)));
    }
    let names: &[&str] = match cfg!(target_os = "macos") {
        true => &["libmpi_abi.dylib", "libmpi.dylib"],
        false => &[
            "libmpi_abi.so.1",
            "libmpi_abi.so.0",
            "libmpi_abi.so",
            "libmpi.so.40",
            "libmpi.so.12",
            "libmpi.so",
        ],
    };
    let mut found = names
        .iter()
        .filter_map(|name| Some((open(name).ok()?, is_standard(name))));
    found.next().ok_or_else(|| {
        format!(
            "none of {} is installed; install Open MPI or MPICH, or set RUSTORCH_MPI",
            names.join(", ")
        )
    })
}

fn version(library: &Library) -> Result<String, String> {
    type Version = unsafe extern "C" fn(*mut c_char, *mut c_int) -> c_int;
    // SAFETY: the type is that of MPI's standard, the same in all families.
    let get: Symbol<Version> = unsafe { library.get(b"MPI_Get_library_version") }
        .map_err(|_| "the library is not MPI: it lacks MPI_Get_library_version".to_owned())?;
    // Room for the longest text of any family.
    let mut text = vec![0_u8; 8192 + 1];
    let mut length = 0;
    // SAFETY: the text has room for the longest version.
    check("MPI_Get_library_version", unsafe {
        get(text.as_mut_ptr().cast(), &mut length)
    })?;
    let text = CStr::from_bytes_until_nul(&text)
        .unwrap_or_default()
        .to_string_lossy();
    // The name comes first, and much else behind it.
    let line = text.lines().next().unwrap_or_default();
    Ok(line.split(',').next().unwrap_or_default().trim().to_owned())
}

fn check(function: &str, status: c_int) -> Result<(), String> {
    match status {
        0 => Ok(()),
        error => Err(format!("{function} fails with status {error}")),
    }
}

impl<H: Handle> Mpi for Family<H> {
    fn version(&self) -> &str {
        &self.version
    }

    fn start(&self) -> Result<(usize, usize), String> {
        let Self {
            functions,
            constants,
            ..
        } = self;
        let (mut started, mut level, mut rank, mut size) = (0, 0, 0, 0);
        // SAFETY: all pointers are to numbers, or null where MPI allows it.
        unsafe {
            check("MPI_Initialized", (functions.initialized)(&mut started))?;
            if started != 0 {
                return Err("MPI was started before; a process can do so once".into());
            }
            let (argc, argv) = (ptr::null_mut(), ptr::null_mut());
            let init = (functions.init_thread)(argc, argv, constants.serialized, &mut level);
            check("MPI_Init_thread", init)?;
            if level < constants.serialized {
                return Err("the library cannot be called by several threads".into());
            }
            let returned = (functions.set_errhandler)(constants.world, constants.errors_return);
            check("MPI_Comm_set_errhandler", returned)?;
            check(
                "MPI_Comm_rank",
                (functions.comm_rank)(constants.world, &mut rank),
            )?;
            check(
                "MPI_Comm_size",
                (functions.comm_size)(constants.world, &mut size),
            )?;
        }
        Ok((rank as usize, size as usize))
    }

    fn end(&self) {
        // SAFETY: MPI was started, and is not used afterwards.
        if let Err(error) = check("MPI_Finalize", unsafe { (self.functions.finalize)() }) {
            tracing::warn!("{error}");
        }
    }

    fn send(&self, message: Vec<u8>, to: usize) -> Result<Box<dyn Request>, String> {
        let Constants { world, byte, .. } = self.constants;
        let mut request = byte;
        let (data, count) = (message.as_ptr().cast(), message.len() as c_int);
        // SAFETY: the message stays where it is until the request is done.
        let sent = unsafe {
            (self.functions.isend)(data, count, byte, to as c_int, TAG, world, &mut request)
        };
        check("MPI_Isend", sent)?;
        let functions = Arc::clone(&self.functions);
        Ok(Box::new(Sending {
            functions,
            request,
            message: Some(message),
        }))
    }

    fn receive(&self, from: usize) -> Result<Option<Vec<u8>>, String> {
        let Constants { world, byte, .. } = self.constants;
        let (mut status, mut is_there, mut count) = (Status::default(), 0, 0);
        let from = from as c_int;
        // SAFETY: the status has room for that of any family, and the message for the bytes that were counted.
        unsafe {
            let probed = (self.functions.iprobe)(from, TAG, world, &mut is_there, &mut status);
            check("MPI_Iprobe", probed)?;
            if is_there == 0 {
                return Ok(None);
            }
            check(
                "MPI_Get_count",
                (self.functions.get_count)(&status, byte, &mut count),
            )?;
            let mut message = vec![0_u8; count as usize];
            let data = message.as_mut_ptr().cast();
            let received = (self.functions.recv)(data, count, byte, from, TAG, world, &mut status);
            check("MPI_Recv", received)?;
            Ok(Some(message))
        }
    }
}

#[derive(Debug)]
struct Sending<H> {
    functions: Arc<Functions<H>>,
    request: H,
    /// None when it was sent.
    message: Option<Vec<u8>>,
}

impl<H: Handle> Request for Sending<H> {
    fn is_done(&mut self) -> Result<bool, String> {
        let (mut done, mut status) = (0, Status::default());
        // SAFETY: the request is not done yet: it is dropped when it is.
        let tested = unsafe { (self.functions.test)(&mut self.request, &mut done, &mut status) };
        check("MPI_Test", tested)?;
        if done != 0 {
            self.message = None;
        }
        Ok(done != 0)
    }
}

impl<H> Drop for Sending<H> {
    fn drop(&mut self) {
        // MPI may still read a message that was not sent, when the group ends by a failure.
        std::mem::forget(self.message.take());
    }
}
