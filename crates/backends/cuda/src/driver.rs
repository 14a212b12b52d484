//! The driver: the GPU layer's interface to a device.

use std::ffi::c_void;
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cudarc::driver::sys::*;
use rustorch_gpu::{Dialect, Driver, Gemm, Launch, Limits, TileMap};
use rustorch_ir::{DType, OpKind, Signature};
use rustorch_runtime::{
    DeviceError, DeviceInfo, DeviceType, FailureClass, Fetch, HostBuffer, Watcher,
};
use smallvec::SmallVec;

use crate::blas::{Products, blas};
use crate::buffer::Buffer;
use crate::context::Context;
use crate::device::Device;
use crate::event::Event;
use crate::module::Kernel;
use crate::nvrtc::nvrtc;
use crate::pack::Pack;
use crate::recording::Recording;
use crate::spans::Spans;
use crate::staging::Staging;
use crate::status::{Failure, check};

/// A GPU of NVIDIA's.
pub struct Cuda {
    info: DeviceInfo,
    limits: Limits,
    staging: Staging,
    products: Products,
    /// Lock of recordings, one at a time.
    recording: Mutex<()>,
    /// Events of timed runs, one run at a time.
    events: Mutex<Vec<Event>>,
    /// Timing spans of asynchronous runs.
    spans: Spans,
    /// Dropped last.
    context: Arc<Context>,
}

impl Cuda {
    pub(crate) fn new(device: Device, name: DeviceType) -> Result<Self, Failure> {
        let limits = device.limits(name)?;
        Ok(Self {
            info: device.info(name, &limits)?,
            limits,
            staging: Staging::default(),
            products: Products::default(),
            recording: Mutex::default(),
            events: Mutex::default(),
            spans: Spans::default(),
            context: Arc::new(Context::new(device.raw(), name)?),
        })
    }

    fn failed(&self, failure: Failure) -> DeviceError {
        self.context.failed(failure)
    }

    fn try_launch(&self, kernel: &Kernel, launch: &Launch<'_, Self>) -> Result<(), Failure> {
        self.context.enter()?;
        let function = kernel.function(launch.dynamic_local)?;
        let addresses: SmallVec<[CUdeviceptr; 16]> =
            launch.buffers.iter().map(|b| b.address()).collect();
        let maps = launch
            .tiles
            .iter()
            .map(|map| tensor_map(map, addresses[map.buffer]));
        let maps: SmallVec<[CUtensorMap; 3]> = maps.collect::<Result<_, _>>()?;
        let addresses_of = addresses.iter().map(|a| ptr::from_ref(a).cast_mut().cast());
        let maps_of = maps.iter().map(|map| ptr::from_ref(map).cast_mut().cast());
        let mut arguments: SmallVec<[*mut c_void; 17]> = addresses_of.chain(maps_of).collect();
        if !launch.params.is_empty() {
            arguments.push(launch.params.as_ptr().cast_mut().cast());
        }
        let mut attribute = CUlaunchAttribute {
            id: CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
            pad: [0; 4],
            value: CUlaunchAttributeValue {
                programmaticStreamSerializationAllowed: 1,
            },
        };
        let [x, y, z] = launch.groups;
        let config = CUlaunchConfig {
            gridDimX: x,
            gridDimY: y,
            gridDimZ: z,
            blockDimX: launch.group,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: launch.dynamic_local,
            hStream: self.context.stream(),
            attrs: &raw mut attribute,
            numAttrs: u32::from(launch.begins_early && kernel.waits()),
        };
        // SAFETY: the arguments are those that the kernel was made for, as the caller
        // promises; the call takes copies of them.
        let status = unsafe {
            cuLaunchKernelEx(
                &raw const config,
                function,
                arguments.as_mut_ptr(),
                ptr::null_mut(),
            )
        };
        check("cuLaunchKernelEx", status)
    }

    /// Code that NVRTC makes of a source.
    fn compile_here(&self, source: &str) -> Result<Vec<u8>, DeviceError> {
        let compiled = match nvrtc() {
            Ok(nvrtc) => nvrtc.compile(source, self.limits.cuda_capability),
            Err(absent) => Err(format!(
                "this kernel is not precompiled; install NVRTC, or set RUSTORCH_NVRTC to its \
                 file ({absent})"
            )),
        };
        compiled.map_err(|why| self.context.error(FailureClass::Unsupported, why))
    }

    fn memory_refused(&self, bytes: usize, failure: Failure) -> DeviceError {
        let error = self.failed(failure);
        match (error.class, self.context.memory()) {
            (FailureClass::OutOfMemory { .. }, Ok((free, total))) => {
                let mib = |bytes: u64| bytes >> 20;
                let message = format!(
                    "{} MiB were refused: {} MiB of {} are free",
                    mib(bytes as u64),
                    mib(free),
                    mib(total)
                );
                self.context.error(error.class, message)
            }
            _ => error,
        }
    }
}

/// The map of tiles in a buffer at `address`, of five dimensions: 64 columns, rows, as many times 64
/// columns, heads, and batch.
fn tensor_map(tiles: &TileMap, address: CUdeviceptr) -> Result<CUtensorMap, Failure> {
    const COLUMNS: u64 = 64;
    const BYTES: u64 = 2;
    let dtype = match tiles.dtype {
        DType::F16 => CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
        _ => CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
    };
    let [batch, heads, rows, columns] = tiles.shape.map(|n| n as u64);
    let [batch_step, head_step, row_step] = tiles.strides.map(|n| n as u64 * BYTES);
    let times = columns / COLUMNS;
    let sizes = [COLUMNS, rows, times, heads, batch];
    let steps = [row_step, COLUMNS * BYTES, head_step, batch_step];
    let tile = [COLUMNS as u32, tiles.rows as u32, times as u32, 1, 1];
    let mut map = CUtensorMap { opaque: [0; 16] };
    // SAFETY: there is room for the map, and all arrays have the five dimensions, or one less, that
    // the call reads; it does not touch the tensor.
    let status = unsafe {
        cuTensorMapEncodeTiled(
            &raw mut map,
            dtype,
            sizes.len() as u32,
            (address + tiles.offset as u64) as *mut c_void,
            sizes.as_ptr(),
            steps.as_ptr(),
            tile.as_ptr(),
            [1; 5].as_ptr(),
            CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
            CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B,
            CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
            CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
    };
    check("cuTensorMapEncodeTiled", status)?;
    Ok(map)
}

impl Driver for Cuda {
    type Buffer = Buffer;
    type Kernel = Kernel;
    type Recording = Recording;

    const RECORDS: bool = true;

    const HAS_PEERS: bool = true;

    const LOADS_AT_ONCE: bool = true;

    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn dialect(&self) -> Dialect {
        Dialect::Cuda
    }

    /// Dropped memory is free again only when queued work is done with it. So the driver waits for
    /// that before it gives up.
    fn alloc(&self, bytes: usize) -> Result<Buffer, DeviceError> {
        match Buffer::new(&self.context, bytes) {
            Err(failure) if matches!(failure.class(), FailureClass::OutOfMemory { .. }) => {
                self.context.trim().map_err(|f| self.failed(f))?;
                Buffer::new(&self.context, bytes).map_err(|f| self.memory_refused(bytes, f))
            }
            buffer => buffer.map_err(|failure| self.failed(failure)),
        }
    }

    /// Memory of the host's: nothing is copied where no kernel has written to it.
    fn alloc_status(&self) -> Result<Buffer, DeviceError> {
        Buffer::mapped(&self.context).map_err(|failure| self.failed(failure))
    }

    fn alloc_host(&self, bytes: usize) -> Result<Buffer, DeviceError> {
        Buffer::pinned(&self.context, bytes).map_err(|failure| self.failed(failure))
    }

    fn free_memory(&self) -> Option<u64> {
        self.context.memory().ok().map(|(free, _)| free)
    }

    /// Memory of the host's is behind a link: it is copied.
    fn share(&self, _: &HostBuffer) -> Result<Option<Buffer>, DeviceError> {
        Ok(None)
    }

    fn host<'b>(&self, _: &'b Buffer) -> Result<Option<&'b HostBuffer>, DeviceError> {
        Ok(None)
    }

    unsafe fn read(
        &self,
        buffer: &Buffer,
        offset: usize,
        to: &mut [u8],
    ) -> Result<(), DeviceError> {
        let from = buffer.address() + offset as u64;
        let read = match buffer.word() {
            Some(word) => word.read(offset, to),
            // SAFETY: the range lies inside the buffer, as the caller promises.
            None => unsafe { self.staging.read(&self.context, from, to) },
        };
        read.map_err(|failure| self.failed(failure))
    }

    unsafe fn write(&self, buffer: &Buffer, offset: usize, from: &[u8]) -> Result<(), DeviceError> {
        let to = buffer.address() + offset as u64;
        let written = match buffer.word() {
            Some(word) => word.write(offset, from),
            // SAFETY: as above.
            None => unsafe { self.staging.write(&self.context, to, from) },
        };
        written.map_err(|failure| self.failed(failure))
    }

    unsafe fn copy(
        &self,
        to: &Buffer,
        other: &Self,
        from: &Buffer,
        bytes: usize,
    ) -> Result<(), DeviceError> {
        let copy = (to.address(), from.address(), bytes);
        // SAFETY: both have these bytes, as the caller promises.
        let copied = unsafe { self.context.copy_from(&other.context, copy) };
        copied.map_err(|failure| self.failed(failure))
    }

    unsafe fn fetch(
        &self,
        buffer: &Buffer,
        bytes: usize,
    ) -> Result<Option<Box<dyn Fetch>>, DeviceError> {
        if let Some(word) = buffer.word() {
            return Ok(Some(Box::new(word)));
        }
        // SAFETY: the bytes lie inside the buffer, as the caller promises.
        let fetch = unsafe { self.staging.fetch(&self.context, buffer.address(), bytes) };
        fetch.map_err(|failure| self.failed(failure))
    }

    fn has_gemm(&self) -> bool {
        blas().is_ok()
    }

    fn libraries(&self) -> Vec<(String, String)> {
        let compiler = match nvrtc() {
            Ok(nvrtc) => format!("NVRTC {}.{}", nvrtc.version.0, nvrtc.version.1),
            Err(why) => format!("precompiled kernels; {why}"),
        };
        let products = match blas() {
            Ok(blas) => format!("cuBLASLt {}", blas.version()),
            Err(why) => format!("the project's own kernels; {why}"),
        };
        [("compiler", compiler), ("dense products", products)]
            .map(|(key, value)| (key.to_owned(), value))
            .into()
    }

    fn may_lack(&self, kind: OpKind) -> bool {
        !Pack::has_all_of(kind) && nvrtc().is_err()
    }

    fn has_kernels_of(&self, signature: &Signature) -> bool {
        Pack::has_dtypes_of(signature) || nvrtc().is_ok()
    }

    /// A precompiled kernel is ready sooner than one that NVRTC compiles.
    fn compile(&self, source: &str) -> Result<Vec<u8>, DeviceError> {
        match Pack::shipped().best(source, self.limits.cuda_capability) {
            Some(shipped) => Ok(shipped),
            None => self.compile_here(source),
        }
    }

    fn load(&self, binary: &[u8], name: &str) -> Result<Kernel, DeviceError> {
        let capability = self.limits.cuda_capability;
        let kernel = Kernel::load(&self.context, binary, name, capability);
        kernel.map_err(|failure| self.failed(failure))
    }

    unsafe fn launch(&self, kernel: &Kernel, launch: &Launch<'_, Self>) -> Result<(), DeviceError> {
        self.try_launch(kernel, launch)
            .map_err(|failure| self.failed(failure))
    }

    unsafe fn gemm(&self, gemm: &Gemm, operands: &[(&Buffer, usize)]) -> Result<(), DeviceError> {
        let operands = operands.iter();
        let addresses = operands.map(|(buffer, at)| buffer.address() + *at as u64);
        let addresses: SmallVec<[CUdeviceptr; 4]> = addresses.collect();
        // SAFETY: the matrices lie inside the buffers, as the caller promises.
        unsafe { self.products.queue(&self.context, gemm, &addresses) }
    }

    fn address(&self, buffer: &Buffer) -> u64 {
        buffer.address()
    }

    fn record(
        &self,
        queue: &mut dyn FnMut() -> Result<(), DeviceError>,
    ) -> Result<Recording, DeviceError> {
        let _turn = self
            .recording
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let graph = self.context.record(queue)?;
        Recording::new(&self.context, graph).map_err(|failure| self.failed(failure))
    }

    unsafe fn replay(&self, recording: &Recording) -> Result<(), DeviceError> {
        recording.launch().map_err(|failure| self.failed(failure))
    }

    fn time(
        &self,
        steps: usize,
        queue: &mut dyn FnMut(usize) -> Result<(), DeviceError>,
    ) -> Result<Option<Vec<Duration>>, DeviceError> {
        let fail = |failure| self.failed(failure);
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        while events.len() <= steps {
            events.push(Event::new(&self.context).map_err(fail)?);
        }
        events[0].record().map_err(fail)?;
        for step in 0..steps {
            queue(step)?;
            events[step + 1].record().map_err(fail)?;
        }
        // Times of the first steps are read while the last steps still run.
        let moments = events[..=steps].windows(2);
        let times = moments.map(|pair| pair[1].since(&pair[0]));
        let times = times.collect::<Result<_, _>>().map_err(fail)?;
        self.spans.tell().map_err(fail)?;
        Ok(times)
    }

    fn span(
        &self,
        queue: &mut dyn FnMut() -> Result<(), DeviceError>,
        watcher: Watcher,
    ) -> Result<(), DeviceError> {
        let fail = |failure| self.failed(failure);
        self.spans.tell().map_err(fail)?;
        let span = self.spans.begin(&self.context, watcher).map_err(fail)?;
        queue()?;
        self.spans.end(span).map_err(fail)
    }

    fn wait(&self) -> Result<(), DeviceError> {
        let waited = self.context.wait().and_then(|()| self.spans.tell());
        waited.map_err(|failure| self.failed(failure))
    }
}
