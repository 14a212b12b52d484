//! The functions of OpenCL, from the library that the system has at run time.

use std::ffi::c_void;
use std::sync::{Arc, OnceLock};

use libloading::Library;
use opencl_sys::cl_function_types::*;
use opencl_sys::cl_int;
use rustorch_runtime::Absent;

use crate::absent::no_library;
use crate::quarantine::Quarantine;

/// The library that finds the drivers.
const LIBRARY: &str = if cfg!(windows) {
    "OpenCL.dll"
} else if cfg!(target_os = "macos") {
    "/System/Library/Frameworks/OpenCL.framework/OpenCL"
} else {
    "libOpenCL.so.1"
};

macro_rules! api {
    ($($name:ident: $symbol:literal as $function:ty,)*) => {
        /// The functions in use, all of OpenCL 1.1.
        pub(crate) struct Api {
            $(pub(crate) $name: <$function as IntoIterator>::Item,)*
            _library: Library,
        }

        impl Api {
            fn load(path: &str) -> Result<Self, Absent> {
                // SAFETY: loading runs the library's initialisers, which for a system's own
                // OpenCL library is as safe as the system.
                let library = unsafe { Library::new(path) }
                    .map_err(|e| no_library(&e.to_string()))?;
                $(
                    // SAFETY: the type is that of the standard's function with this name; the
                    // library is kept with the function.
                    let $name = unsafe { library.get::<$function>($symbol.as_bytes()) }
                        .ok()
                        .and_then(|function| *function)
                        .ok_or_else(|| no_library(concat!("it lacks ", $symbol)))?;
                )*
                Ok(Self { $($name,)* _library: library })
            }
        }
    };
}

api! {
    get_platform_ids: "clGetPlatformIDs" as clGetPlatformIDs_t,
    get_platform_info: "clGetPlatformInfo" as clGetPlatformInfo_t,
    get_device_ids: "clGetDeviceIDs" as clGetDeviceIDs_t,
    get_device_info: "clGetDeviceInfo" as clGetDeviceInfo_t,
    create_context: "clCreateContext" as clCreateContext_t,
    release_context: "clReleaseContext" as clReleaseContext_t,
    create_command_queue: "clCreateCommandQueue" as clCreateCommandQueue_t,
    release_command_queue: "clReleaseCommandQueue" as clReleaseCommandQueue_t,
    flush: "clFlush" as clFlush_t,
    enqueue_marker: "clEnqueueMarker" as clEnqueueMarker_t,
    get_event_info: "clGetEventInfo" as clGetEventInfo_t,
    set_event_callback: "clSetEventCallback" as clSetEventCallback_t,
    wait_for_events: "clWaitForEvents" as clWaitForEvents_t,
    get_event_profiling_info: "clGetEventProfilingInfo" as clGetEventProfilingInfo_t,
    release_event: "clReleaseEvent" as clReleaseEvent_t,
    create_buffer: "clCreateBuffer" as clCreateBuffer_t,
    release_mem_object: "clReleaseMemObject" as clReleaseMemObject_t,
    set_mem_object_destructor_callback: "clSetMemObjectDestructorCallback"
        as clSetMemObjectDestructorCallback_t,
    enqueue_map_buffer: "clEnqueueMapBuffer" as clEnqueueMapBuffer_t,
    enqueue_unmap_mem_object: "clEnqueueUnmapMemObject" as clEnqueueUnmapMemObject_t,
    enqueue_read_buffer: "clEnqueueReadBuffer" as clEnqueueReadBuffer_t,
    enqueue_write_buffer: "clEnqueueWriteBuffer" as clEnqueueWriteBuffer_t,
    create_program_with_source: "clCreateProgramWithSource" as clCreateProgramWithSource_t,
    create_program_with_binary: "clCreateProgramWithBinary" as clCreateProgramWithBinary_t,
    build_program: "clBuildProgram" as clBuildProgram_t,
    get_program_info: "clGetProgramInfo" as clGetProgramInfo_t,
    get_program_build_info: "clGetProgramBuildInfo" as clGetProgramBuildInfo_t,
    release_program: "clReleaseProgram" as clReleaseProgram_t,
    create_kernel: "clCreateKernel" as clCreateKernel_t,
    get_kernel_info: "clGetKernelInfo" as clGetKernelInfo_t,
    release_kernel: "clReleaseKernel" as clReleaseKernel_t,
    set_kernel_arg: "clSetKernelArg" as clSetKernelArg_t,
    enqueue_nd_range_kernel: "clEnqueueNDRangeKernel" as clEnqueueNDRangeKernel_t,
}

/// The system's OpenCL. It stays loaded, since drivers have their own threads.
pub(crate) fn api() -> Result<&'static Api, Absent> {
    static API: OnceLock<Result<Api, Absent>> = OnceLock::new();
    API.get_or_init(|| Api::load(LIBRARY))
        .as_ref()
        .map_err(Absent::clone)
}

/// Something that OpenCL made, released when it is dropped, unless its device hangs.
#[derive(Debug)]
pub(crate) struct Object {
    raw: *mut c_void,
    release: unsafe extern "C" fn(*mut c_void) -> cl_int,
    quarantine: Arc<Quarantine>,
}

// SAFETY: OpenCL's functions may be called from any thread, but for those that set a kernel's
// arguments, which `Kernel` takes care of.
unsafe impl Send for Object {}
// SAFETY: as above.
unsafe impl Sync for Object {}

impl Object {
    /// Takes over `raw`, which is of a device with this quarantine.
    ///
    /// # Safety
    /// `release` is the function for objects like `raw`, which has no other owner.
    pub(crate) unsafe fn new(
        raw: *mut c_void,
        release: unsafe extern "C" fn(*mut c_void) -> cl_int,
        quarantine: &Arc<Quarantine>,
    ) -> Self {
        let quarantine = quarantine.clone();
        Self {
            raw,
            release,
            quarantine,
        }
    }

    pub(crate) fn raw(&self) -> *mut c_void {
        self.raw
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        if self.quarantine.check().is_ok() {
            // SAFETY: as promised to `new`. A failure leaves nothing to be done.
            unsafe { (self.release)(self.raw) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn absent(path: &str) -> Absent {
        Api::load(path).err().unwrap()
    }

    #[test]
    fn what_is_no_opencl_library_is_absent() {
        let missing = absent("no-such-library.so");
        assert!(missing.reason.contains("no-such-library.so"), "{missing}");
        assert!(missing.cure.contains("driver"), "{missing}");

        let path = std::env::temp_dir().join(format!("rustorch-{}.so", std::process::id()));
        std::fs::write(&path, b"no library").unwrap();
        let garbage = absent(path.to_str().unwrap());
        std::fs::remove_file(&path).unwrap();
        assert!(garbage.reason.contains("cannot be loaded"), "{garbage}");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn another_library_is_absent() {
        let other = absent("libm.so.6");
        assert!(other.reason.contains("clGetPlatformIDs"), "{other}");
    }
}
