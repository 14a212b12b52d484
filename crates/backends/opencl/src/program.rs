//! Compiling kernels.

use std::ffi::{CString, c_char};
use std::ptr;
use std::sync::{Arc, Mutex};

use opencl_sys::*;
use rustorch_runtime::{DeviceError, FailureClass};

use crate::api::Object;
use crate::context::Context;
use crate::status::{check, query, text};

/// A compiled kernel.
pub struct Kernel {
    kernel: Object,
    /// Number of its parameters.
    pub(crate) parameters: usize,
    /// Held from the first argument set until the launch is queued: the arguments are the
    /// kernel's, not the launch's.
    pub(crate) arguments: Mutex<()>,
}

impl Kernel {
    pub(crate) fn raw(&self) -> cl_kernel {
        self.kernel.raw()
    }
}

/// Compiles a source to the driver's own format. If the driver keeps kernels, the result is the
/// source.
pub(crate) fn compile(context: &Arc<Context>, source: &str) -> Result<Vec<u8>, DeviceError> {
    if context.keeps_kernels {
        return Ok(source.into());
    }
    let source = source.to_owned();
    context.watch("clBuildProgram", move |context| {
        let program = of_source(context, source.as_bytes())?;
        build(context, &program)?;
        binary(context, &program)
    })
}

fn of_source(context: &Context, source: &[u8]) -> Result<Object, DeviceError> {
    let within = context.context().map_err(|f| context.failed(f))?;
    let (mut text, length) = (source.as_ptr().cast::<c_char>(), source.len());
    let mut status = CL_SUCCESS;
    // SAFETY: there is one text, with its length.
    let program = unsafe {
        (context.api.create_program_with_source)(
            within,
            1,
            &raw mut text,
            &raw const length,
            &raw mut status,
        )
    };
    check("clCreateProgramWithSource", status).map_err(|f| context.failed(f))?;
    // SAFETY: it was just made, and nobody else has it.
    Ok(unsafe { context.object(program, context.api.release_program) })
}

fn of_binary(context: &Context, binary: &[u8]) -> Result<Object, DeviceError> {
    let within = context.context().map_err(|f| context.failed(f))?;
    let (id, mut bytes, length) = (context.device.id(), binary.as_ptr(), binary.len());
    let (mut valid, mut status) = (CL_SUCCESS, CL_SUCCESS);
    // SAFETY: there is one device with one binary of this length.
    let program = unsafe {
        (context.api.create_program_with_binary)(
            within,
            1,
            &raw const id,
            &raw const length,
            &raw mut bytes,
            &raw mut valid,
            &raw mut status,
        )
    };
    check("clCreateProgramWithBinary", status).map_err(|f| context.failed(f))?;
    // SAFETY: it was just made, and nobody else has it.
    Ok(unsafe { context.object(program, context.api.release_program) })
}

/// Makes a kernel from the result of [`compile`].
pub(crate) fn load(
    context: &Arc<Context>,
    binary: &[u8],
    name: &str,
) -> Result<Kernel, DeviceError> {
    let (binary, name) = (binary.to_owned(), name.to_owned());
    context.watch("clBuildProgram", move |context| {
        kernel(context, &binary, &name)
    })
}

fn kernel(context: &Context, binary: &[u8], name: &str) -> Result<Kernel, DeviceError> {
    let unsupported = |message| context.error(FailureClass::Unsupported, message);
    let c_name = CString::new(name)
        .map_err(|_| unsupported(format!("a kernel cannot be called {name:?}")))?;
    if binary.is_empty() {
        return Err(unsupported(
            "an empty file is not a compiled kernel".to_owned(),
        ));
    }
    let program = match context.keeps_kernels {
        true => of_source(context, binary)?,
        false => of_binary(context, binary)?,
    };
    let mut status = CL_SUCCESS;
    build(context, &program)?;
    let create = context.api.create_kernel;
    // SAFETY: the program is built, and the name ends with a zero.
    let kernel = unsafe { create(program.raw(), c_name.as_ptr(), &raw mut status) };
    check("clCreateKernel", status)
        .map_err(|f| context.error(f.class(), format!("{f}, of {name:?}")))?;
    // SAFETY: as for the program, which it keeps.
    let kernel = unsafe { context.object(kernel, context.api.release_kernel) };
    let parameters = query("clGetKernelInfo", |size, to, needed| {
        let ask = context.api.get_kernel_info;
        // SAFETY: `query` gives room for `size` bytes.
        unsafe { ask(kernel.raw(), CL_KERNEL_NUM_ARGS, size, to, needed) }
    });
    let parameters = parameters.map_err(|f| context.failed(f))?;
    let parameters = parameters
        .first_chunk()
        .map_or(0, |n| u32::from_ne_bytes(*n));
    Ok(Kernel {
        kernel,
        parameters: parameters as usize,
        arguments: Mutex::new(()),
    })
}

fn build(context: &Context, program: &Object) -> Result<(), DeviceError> {
    let id = context.device.id();
    // SAFETY: the program is valid, and the options end with a zero.
    let status = unsafe {
        (context.api.build_program)(
            program.raw(),
            1,
            &raw const id,
            context.options.as_ptr(),
            None,
            ptr::null_mut(),
        )
    };
    check("clBuildProgram", status).map_err(|failure| {
        let log = query("clGetProgramBuildInfo", |size, to, needed| {
            let ask = context.api.get_program_build_info;
            // SAFETY: `query` gives room for `size` bytes.
            unsafe { ask(program.raw(), id, CL_PROGRAM_BUILD_LOG, size, to, needed) }
        });
        let log = log.map_or_else(|failure| failure.to_string(), |log| text(&log));
        tracing::debug!("{failure}\n{log}");
        // One line will do: what follows from the first error is not news.
        let first = log.lines().find(|line| line.contains("error"));
        let first = first.or(log.lines().next()).unwrap_or_default();
        context.error(failure.class(), format!("{failure}: {first}"))
    })
}

/// A built program in the driver's own format.
fn binary(context: &Context, program: &Object) -> Result<Vec<u8>, DeviceError> {
    let call = "clGetProgramInfo";
    let ask = context.api.get_program_info;
    let sizes = query(call, |size, to, needed| {
        // SAFETY: `query` gives room for `size` bytes.
        unsafe { ask(program.raw(), CL_PROGRAM_BINARY_SIZES, size, to, needed) }
    });
    let sizes = sizes.map_err(|f| context.failed(f))?;
    let size = sizes.first_chunk().map_or(0, |n| usize::from_ne_bytes(*n));
    if size == 0 {
        let message = "the driver does not return compiled kernels";
        return Err(context.error(FailureClass::Unsupported, message));
    }
    let mut binary = vec![0; size];
    let mut to = binary.as_mut_ptr();
    // SAFETY: the value is one pointer for the one device, to as many bytes as it asked for.
    let status = unsafe {
        ask(
            program.raw(),
            CL_PROGRAM_BINARIES,
            size_of_val(&to),
            (&raw mut to).cast(),
            ptr::null_mut(),
        )
    };
    check(call, status).map_err(|f| context.failed(f))?;
    Ok(binary)
}
