//! What differs from one GPU API to the next: buffers, modules, launches, waiting, errors.

use std::fmt::Debug;

use rustorch_runtime::{DeviceError, DeviceInfo, HostBuffer};

/// The language that a driver compiles.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Dialect {
    /// OpenCL C 1.2.
    OpenCl,
    /// Metal Shading Language 3.0: buffers from 0 on, then the parameter structure, if it has
    /// any words, as a buffer of constants.
    Metal,
}

/// What kernels have to know of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Work-items of the largest group.
    pub max_group: usize,
    /// Bytes of local memory that a group has.
    pub local_bytes: usize,
    /// Bytes of the largest buffer.
    pub max_buffer: u64,
    /// Bytes of the device's memory.
    pub memory: u64,
    /// Is there double precision?
    pub has_f64: bool,
    /// Groups that run at a time, about: more of them hide no more latency.
    pub compute_units: usize,
    /// Is it a processor, whose groups are loops of one thread? Lanes then cost what they
    /// compute, and local memory is no faster than the rest.
    pub is_processor: bool,
}

/// The bytes of a buffer that a launch uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access {
    /// The first.
    pub start: usize,
    /// The one after the last; possibly far behind the buffer's end.
    pub end: usize,
    /// May they be written to?
    pub is_written: bool,
}

/// One kernel to be run over a grid of groups.
pub struct Launch<'a, D: Driver> {
    /// Groups in each dimension; none is zero.
    pub groups: [u32; 3],
    /// Work-items of a group, along the first dimension: what the source was made for.
    pub group: u32,
    /// The buffers, in the order of the kernel's parameters.
    pub buffers: &'a [&'a D::Buffer],
    /// What the kernel does with each of them.
    pub accesses: &'a [Access],
    /// The words of the parameter structure, which follows the buffers.
    pub params: &'a [u32],
}

/// A GPU API's device: thin, without knowledge of any operation.
///
/// Work is queued in order. A failure may show at any later call; [`Driver::wait`] finds the
/// last of them. Every error has its class, so that the runtime knows what to do about it.
pub trait Driver: Send + Sync + Sized + 'static {
    /// Memory of the device; given back when it is dropped, once queued work is done with it.
    type Buffer: Send + Sync + Debug + 'static;
    /// A compiled kernel.
    type Kernel: Send + Sync + 'static;

    /// Is what [`Driver::compile`] gives worth a file? It is not if the API keeps what it has
    /// compiled by itself.
    const KEEPS_BINARIES: bool = true;

    /// What the device says of itself.
    fn info(&self) -> &DeviceInfo;

    /// What kernels have to know of it.
    fn limits(&self) -> &Limits;

    /// What it compiles.
    fn dialect(&self) -> Dialect;

    /// Uninitialised memory of at least one byte: host memory where the device shares that.
    ///
    /// # Errors
    /// Out of memory (`never_fits` above [`Limits::max_buffer`]), or the device is lost.
    fn alloc(&self, bytes: usize) -> Result<Self::Buffer, DeviceError>;

    /// Host memory used in place; `None` where the device cannot, so that it is copied.
    ///
    /// # Errors
    /// The device is lost.
    fn share(&self, host: &HostBuffer) -> Result<Option<Self::Buffer>, DeviceError>;

    /// The host memory that a buffer is, with all that was queued before written to it, and
    /// for the host to use until the buffer's next launch. `None` where memory is not shared.
    ///
    /// # Errors
    /// The device is lost.
    fn host<'b>(&self, buffer: &'b Self::Buffer) -> Result<Option<&'b HostBuffer>, DeviceError>;

    /// Copies bytes from `offset` on to the host, after all that was queued before.
    ///
    /// # Safety
    /// The range lies inside the buffer.
    ///
    /// # Errors
    /// The device is lost.
    unsafe fn read(
        &self,
        buffer: &Self::Buffer,
        offset: usize,
        to: &mut [u8],
    ) -> Result<(), DeviceError>;

    /// Copies bytes from the host to `offset`, after all that was queued before; `from` is
    /// free again on return.
    ///
    /// # Safety
    /// The range lies inside the buffer, whose memory may be written to.
    ///
    /// # Errors
    /// The device is lost.
    unsafe fn write(
        &self,
        buffer: &Self::Buffer,
        offset: usize,
        from: &[u8],
    ) -> Result<(), DeviceError>;

    /// Compiles a source to what [`Driver::load`] takes and a file can keep.
    ///
    /// # Errors
    /// Unsupported, with the compiler's message; or the device is lost.
    fn compile(&self, source: &str) -> Result<Vec<u8>, DeviceError>;

    /// Makes the kernel `name` of a compiled source ready.
    ///
    /// # Errors
    /// Unsupported, also where the binary is not one of this device and driver.
    fn load(&self, binary: &[u8], name: &str) -> Result<Self::Kernel, DeviceError>;

    /// Queues a launch.
    ///
    /// # Safety
    /// The kernel stays inside the buffers with these parameters, and nothing else uses what
    /// it writes until it is done.
    ///
    /// # Errors
    /// Any class.
    unsafe fn launch(
        &self,
        kernel: &Self::Kernel,
        launch: &Launch<'_, Self>,
    ) -> Result<(), DeviceError>;

    /// Waits for all that was queued.
    ///
    /// # Errors
    /// What went wrong meanwhile.
    fn wait(&self) -> Result<(), DeviceError>;
}
