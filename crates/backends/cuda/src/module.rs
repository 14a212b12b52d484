//! Loaded kernels, each a library of the driver's. The driver makes machine code of PTX libraries
//! on many threads at once. It makes modules one after the other (CUDA 13.0). It keeps the code for
//! later starts. Machine code that is linked from parts is slower.

use std::ffi::CString;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use cudarc::driver::sys::*;

use crate::context::Context;
use crate::pack::target_of_ptx;
use crate::status::{Failure, check};

/// The first compute capability whose kernels wait for the launch ahead of them by themselves.
const WAITS: u32 = 90;

/// A compiled kernel.
pub struct Kernel {
    context: Arc<Context>,
    library: CUlibrary,
    function: CUfunction,
    /// Bytes of local memory that were asked for.
    granted: AtomicU32,
    waits: bool,
}

// SAFETY: libraries and functions may be used by any thread whose current context is theirs.
unsafe impl Send for Kernel {}
// SAFETY: as above.
unsafe impl Sync for Kernel {}

impl Kernel {
    /// The kernel `name` of machine code for a device of this compute capability, or of PTX.
    pub(crate) fn load(
        context: &Arc<Context>,
        image: &[u8],
        name: &str,
        capability: u32,
    ) -> Result<Self, Failure> {
        // The driver opens its compiler for the first kernel of a process, so this kernel is loaded alone.
        // A call of another thread meanwhile went to address 0 (driver 580.159, CUDA 13.0).
        static HAS_LOADED: AtomicBool = AtomicBool::new(false);
        static FIRST: Mutex<()> = Mutex::new(());
        let has_loaded = || HAS_LOADED.load(Ordering::Acquire);
        let first = (!has_loaded()).then(|| FIRST.lock());
        // Threads that have waited go on together.
        let _alone = first.filter(|_| !has_loaded());
        context.enter()?;
        let waits = compiled_for(image).unwrap_or(capability) >= WAITS;
        let mut loaded = Self {
            context: context.clone(),
            library: library(image)?,
            function: ptr::null_mut(),
            granted: AtomicU32::new(0),
            waits,
        };
        let name = CString::new(name).unwrap_or_default();
        let mut kernel = ptr::null_mut();
        // SAFETY: the library is valid, and the name ends with a zero.
        let status = unsafe { cuLibraryGetKernel(&raw mut kernel, loaded.library, name.as_ptr()) };
        check("cuLibraryGetKernel", status)?;
        // SAFETY: the kernel is valid, and the context current.
        let status = unsafe { cuKernelGetFunction(&raw mut loaded.function, kernel) };
        check("cuKernelGetFunction", status)?;
        HAS_LOADED.store(true, Ordering::Release);
        Ok(loaded)
    }

    /// Does it wait for the launch ahead by itself, so that it may begin before that has ended? A
    /// kernel compiled for older devices does not, wherever it runs.
    pub(crate) fn waits(&self) -> bool {
        self.waits
    }

    /// The function, for launches with this number of bytes of dynamic local memory.
    pub(crate) fn function(&self, dynamic_local: u32) -> Result<CUfunction, Failure> {
        if dynamic_local > self.granted.load(Ordering::Relaxed) {
            use CUfunction_attribute::*;
            let bytes = dynamic_local.cast_signed();
            // All that can be local memory, or the next launch, which may begin early, would find
            // none left: not of the cache, but of what the driver made local for one group.
            let percent = 100;
            for (attribute, value) in [
                (CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, bytes),
                (CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, percent),
            ] {
                // SAFETY: the function is valid.
                let status = unsafe { cuFuncSetAttribute(self.function, attribute, value) };
                check("cuFuncSetAttribute", status)?;
            }
            self.granted.store(dynamic_local, Ordering::Relaxed);
        }
        Ok(self.function)
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        if self.context.wait().is_ok() {
            // SAFETY: no launch of it is under way any more.
            unsafe { cuLibraryUnload(self.library) };
        }
    }
}

/// Loads machine code or PTX.
fn library(image: &[u8]) -> Result<CUlibrary, Failure> {
    // PTX ends with a zero.
    let image: Vec<u8> = image.iter().copied().chain([0]).collect();
    let mut library = ptr::null_mut();
    // SAFETY: the driver checks what the image is; there are no options.
    let status = unsafe {
        cuLibraryLoadData(
            &raw mut library,
            image.as_ptr().cast(),
            ptr::null_mut(),
            ptr::null_mut(),
            0,
            ptr::null_mut(),
            ptr::null_mut(),
            0,
        )
    };
    check("cuLibraryLoadData", status)?;
    Ok(library)
}

/// The compute capability that PTX was compiled for; `None` for machine code.
fn compiled_for(image: &[u8]) -> Option<u32> {
    let name = target_of_ptx(image)?;
    name.trim_end_matches(|c: char| c.is_ascii_alphabetic())
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ptx_says_what_it_was_compiled_for() {
        for (target, capability) in [("70", 70), ("90a", 90), ("120", 120)] {
            let ptx = format!("//\n.version 8.4\n.target sm_{target}\n.address_size 64\n");
            assert_eq!(compiled_for(ptx.as_bytes()), Some(capability));
        }
        assert_eq!(compiled_for(b"\x7fELF.target"), None);
    }
}
