//! Differences between GPU APIs: buffers, modules, launches, waiting, errors.

use std::fmt::Debug;
use std::time::Duration;

use rustorch_ir::{DType, OpKind, Signature};
use rustorch_runtime::{
    DeviceError, DeviceInfo, DeviceType, FailureClass, Fetch, HostBuffer, Watcher,
};

use crate::dialect::Dialect;

/// Properties of a device that kernels depend on.
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
    /// Whether there is double precision.
    pub has_f64: bool,
    /// Number of groups that run at a time, about: more of them hide no more latency.
    pub compute_units: usize,
    /// Whether it is a processor, whose groups are loops of one thread. Lanes then cost as much as their
    /// work, and local memory is as slow as other memory.
    pub is_processor: bool,
    /// CUDA's compute capability, ten times the major number plus the minor one; else 0.
    pub cuda_capability: u32,
}

impl Limits {
    /// These limits, with a safe value for each impossible one, so that the driver works all the
    /// same. Replaced figures are a line in the log.
    pub fn sensible(self, device: DeviceType) -> Self {
        const LARGEST_MEMORY: u64 = 1 << 50;
        let mut strange = Vec::new();
        let mut check = |what: &str, told: u64, most: u64, safe: u64| {
            if (1..=most).contains(&told) {
                return told;
            }
            strange.push(format!("{what} {told}, using {safe} instead"));
            safe
        };
        let memory = check("bytes of memory", self.memory, LARGEST_MEMORY, 512 << 20);
        let max_buffer = self.max_buffer;
        // The other safe values are the least that OpenCL 1.2 demands of devices.
        let max_buffer = check("bytes of a buffer", max_buffer, LARGEST_MEMORY, memory / 4);
        let mut count = |what, told: usize, most, safe: u32| {
            let told = check(what, told as u64, most, safe.into());
            usize::try_from(told).unwrap_or(usize::MAX)
        };
        let max_group = count("work-items of a group", self.max_group, 1 << 16, 64);
        let local_bytes = count("bytes of local memory", self.local_bytes, 1 << 32, 32 << 10);
        let compute_units = count("compute units", self.compute_units, 1 << 20, 8);
        if !strange.is_empty() {
            let strange = strange.join("; ");
            tracing::warn!("{device}: its driver reports impossible values: {strange}");
        }
        Self {
            max_group,
            local_bytes,
            max_buffer,
            memory,
            compute_units,
            ..self
        }
    }
}

/// The bytes of a buffer that a launch uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access {
    /// The first.
    pub start: usize,
    /// The one after the last; possibly far behind the buffer's end.
    pub end: usize,
    /// Whether the launch may write to them.
    pub is_written: bool,
}

/// Tiles of 16-bit numbers that a launch brings to local memory: a tensor map ([`Dialect::Cuda`]).
/// Tiles are in columns of 64 numbers. In these the 16 bytes `i` of row `r` are at `i ^ r % 8`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TileMap {
    /// Index of their buffer among the launch's.
    pub buffer: usize,
    /// The byte that they begin at.
    pub offset: usize,
    /// f16 or bf16.
    pub dtype: DType,
    /// `[batch, heads, rows, columns]`, with a multiple of 64 columns.
    pub shape: [usize; 4],
    /// Elements from one batch, head and row to the next, each a multiple of 16 bytes; columns are neighbours.
    pub strides: [usize; 3],
    /// Rows of a tile, up to 256, which has all columns.
    pub rows: usize,
}

/// One kernel to be run over a grid of groups.
pub struct Launch<'a, D: Driver> {
    /// Groups in each dimension; none is zero.
    pub groups: [u32; 3],
    /// Work-items of a group, along the first dimension, as the source expects.
    pub group: u32,
    /// The buffers, in the order of the kernel's parameters.
    pub buffers: &'a [&'a D::Buffer],
    /// Access of the kernel to each of them.
    pub accesses: &'a [Access],
    /// Tensor maps, which follow the buffers.
    pub tiles: &'a [TileMap],
    /// The words of the parameter structure, which follows these.
    pub params: &'a [u32],
    /// Bytes of local memory beyond the source's declarations.
    pub dynamic_local: u32,
    /// Whether it may begin before the preceding launch has ended, if its kernel waits for that itself
    /// ([`Dialect::Cuda`]). Not for the first launch of a run: kernels read inputs of the run
    /// before they wait, and earlier runs may still write these.
    pub begins_early: bool,
}

/// A dense product by the driver's own library, `y = a · b + bias` for each index of a batch.
///
/// Sums of halves are made in single precision, those of other types in their own; none with
/// fewer digits than the elements have.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Gemm {
    /// Rows of `a` and `y`.
    pub m: usize,
    /// Columns of `b` and `y`.
    pub n: usize,
    /// Columns of `a` and rows of `b`.
    pub k: usize,
    /// Products.
    pub batch: usize,
    /// `[m, k]`.
    pub a: Matrix,
    /// `[k, n]`, of `a`'s dtype.
    pub b: Matrix,
    /// `[m, n]`, not transposed.
    pub y: Matrix,
    /// Whether there is a bias, `[n]` of `y`'s dtype.
    pub has_bias: bool,
}

/// Layout of a matrix of a [`Gemm`] in memory: row after row, or column after column if it is
/// transposed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Matrix {
    /// Its elements.
    pub dtype: DType,
    /// Whether columns follow each other.
    pub transposed: bool,
    /// Elements from one row, or column, to the next.
    pub stride: usize,
    /// Elements from one matrix of the batch to the next.
    pub batch_stride: usize,
}

/// A GPU API's device: thin, without knowledge of any operation.
///
/// Work is queued in order. A failure may show at any later call; [`Driver::wait`] finds the last
/// of them. Every error has its class, so that the runtime knows the answer.
pub trait Driver: Send + Sync + Sized + 'static {
    /// Memory of the device; given back when it is dropped, once queued work is done with it.
    type Buffer: Send + Sync + Debug + 'static;
    /// A compiled kernel.
    type Kernel: Send + Sync + 'static;
    /// Launches to be made again at once; [`Infallible`](std::convert::Infallible) where there
    /// is no such thing.
    type Recording: Send + 'static;

    /// Whether the result of [`Driver::compile`] is worth caching in a file. It is not if the API keeps compiled
    /// kernels by itself.
    const KEEPS_BINARIES: bool = true;

    /// Whether launches can be [recorded](Driver::record).
    const RECORDS: bool = false;

    /// Whether several threads compile and load kernels faster than one.
    const LOADS_AT_ONCE: bool = false;

    /// Whether bytes can be [copied](Driver::copy) between its devices.
    const HAS_PEERS: bool = false;

    /// Description of the device.
    fn info(&self) -> &DeviceInfo;

    /// Properties that kernels depend on.
    fn limits(&self) -> &Limits;

    /// Language that it compiles.
    fn dialect(&self) -> Dialect;

    /// Uninitialised memory of at least one byte: host memory where the device shares that.
    ///
    /// # Errors
    /// Fails if memory runs out (`never_fits` above [`Limits::max_buffer`]), or if the device is
    /// lost.
    fn alloc(&self, bytes: usize) -> Result<Self::Buffer, DeviceError>;

    /// Uninitialised memory of a word that kernels seldom write to, and that the host looks at
    /// after each run: where there is such memory, without a copy.
    ///
    /// # Errors
    /// The same errors as [`Driver::alloc`].
    fn alloc_status(&self) -> Result<Self::Buffer, DeviceError> {
        self.alloc(size_of::<u32>())
    }

    /// Uninitialised memory of the host's, of at least one byte, that kernels reach where it is.
    ///
    /// # Errors
    /// The same errors as [`Driver::alloc`].
    fn alloc_host(&self, bytes: usize) -> Result<Self::Buffer, DeviceError> {
        self.alloc(bytes)
    }

    /// Bytes of the device's own memory that could be taken now, if it reports them.
    fn free_memory(&self) -> Option<u64> {
        None
    }

    /// Host memory used in place; `None` where the device cannot, so that it is copied.
    ///
    /// # Errors
    /// Fails if the device is lost.
    fn share(&self, host: &HostBuffer) -> Result<Option<Self::Buffer>, DeviceError>;

    /// The host memory of a buffer, with all queued work written to it. The host may use it until
    /// the buffer's next launch. `None` if memory is not shared.
    ///
    /// # Errors
    /// Fails if the device is lost.
    fn host<'b>(&self, buffer: &'b Self::Buffer) -> Result<Option<&'b HostBuffer>, DeviceError>;

    /// Copies bytes from `offset` on to the host, after all that was queued before.
    ///
    /// # Safety
    /// The range lies inside the buffer.
    ///
    /// # Errors
    /// Fails if the device is lost.
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
    /// Fails if the device is lost.
    unsafe fn write(
        &self,
        buffer: &Self::Buffer,
        offset: usize,
        from: &[u8],
    ) -> Result<(), DeviceError>;

    /// Copies host memory to the beginning of a buffer, as [`Driver::write`] does; it can be kept
    /// for as long as the device needs it.
    ///
    /// # Safety
    /// The buffer is as large, and nothing writes to the host's memory.
    ///
    /// # Errors
    /// Fails if the device is lost.
    unsafe fn upload(&self, buffer: &Self::Buffer, host: &HostBuffer) -> Result<(), DeviceError> {
        // SAFETY: as the caller promises.
        unsafe {
            let bytes = std::slice::from_raw_parts(host.as_ptr(), host.bytes());
            self.write(buffer, 0, bytes)
        }
    }

    /// Queues a copy of the first bytes of another device's buffer, if there are
    /// [peers](Driver::HAS_PEERS). It comes after all work queued on either device before.
    ///
    /// # Safety
    /// Both buffers have these bytes.
    ///
    /// # Errors
    /// Fails if one of the devices is lost.
    unsafe fn copy(
        &self,
        to: &Self::Buffer,
        other: &Self,
        from: &Self::Buffer,
        bytes: usize,
    ) -> Result<(), DeviceError> {
        let _ = (to, other, from, bytes);
        let class = FailureClass::Unsupported;
        let message = "there are no copies between devices";
        Err(DeviceError::new(self.info().device, class, message))
    }

    /// Begins to copy the first `bytes` to the host, behind all that was queued so far; `None`
    /// where [`Driver::read`] does as well.
    ///
    /// # Safety
    /// The bytes lie inside the buffer.
    ///
    /// # Errors
    /// Fails if the device is lost.
    unsafe fn fetch(
        &self,
        buffer: &Self::Buffer,
        bytes: usize,
    ) -> Result<Option<Box<dyn Fetch>>, DeviceError> {
        let _ = (buffer, bytes);
        Ok(None)
    }

    /// Returns whether [`Driver::gemm`] is available. It is asked only before use, so that a library of products is
    /// opened only for products.
    fn has_gemm(&self) -> bool {
        false
    }

    /// The same as [`Backend::libraries`](rustorch_runtime::Backend::libraries).
    fn libraries(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    /// The same as [`Backend::may_lack`](rustorch_runtime::Backend::may_lack).
    fn may_lack(&self, kind: OpKind) -> bool {
        let _ = kind;
        false
    }

    /// Returns whether there are kernels of an operation on such operands. Not all of them, where nothing compiles.
    fn has_kernels_of(&self, _signature: &Signature) -> bool {
        true
    }

    /// Compiles a source to a binary for [`Driver::load`], which a file can keep.
    ///
    /// # Errors
    /// Fails as unsupported, with the compiler's message, or if the device is lost.
    fn compile(&self, source: &str) -> Result<Vec<u8>, DeviceError>;

    /// Makes the kernel `name` of a compiled source ready.
    ///
    /// # Errors
    /// Fails as unsupported, also if the binary is not for this device and driver.
    fn load(&self, binary: &[u8], name: &str) -> Result<Self::Kernel, DeviceError>;

    /// Queues a launch.
    ///
    /// # Safety
    /// The kernel stays inside the buffers with these parameters. Nothing else uses its results
    /// until it is done.
    ///
    /// # Errors
    /// Fails with an error of any class.
    unsafe fn launch(
        &self,
        kernel: &Self::Kernel,
        launch: &Launch<'_, Self>,
    ) -> Result<(), DeviceError>;

    /// Queues a product. Operands are `a`, `b`, `y` and, if it has one, the bias, from a byte of
    /// their buffers on.
    ///
    /// # Safety
    /// The matrices lie inside the buffers; nothing else uses `y` until it is done.
    ///
    /// # Errors
    /// Fails with an error of any class. Unsupported without a library, see [`Driver::has_gemm`].
    unsafe fn gemm(
        &self,
        gemm: &Gemm,
        operands: &[(&Self::Buffer, usize)],
    ) -> Result<(), DeviceError> {
        let (_, message) = (operands, format!("no library for {gemm:?}"));
        let class = FailureClass::Unsupported;
        Err(DeviceError::new(self.info().device, class, message))
    }

    /// Queues `steps` steps, each as `queue` does by its index, and waits for them. Returns for
    /// each the time that the device worked, from the end of the step before. `None` if the device
    /// does not report times.
    ///
    /// # Errors
    /// The errors of `queue`, and of the device's work in the meantime.
    fn time(
        &self,
        steps: usize,
        queue: &mut dyn FnMut(usize) -> Result<(), DeviceError>,
    ) -> Result<Option<Vec<Duration>>, DeviceError> {
        (0..steps).try_for_each(queue)?;
        self.wait()?;
        Ok(None)
    }

    /// Calls `queue`, and reports to `watcher` how long the device works on the queued work. It
    /// does so once the time is known and the driver is called again, at the latest by
    /// [`Driver::wait`]. Devices that do not
    /// [record](Driver::RECORDS) are never asked.
    ///
    /// # Errors
    /// The errors of `queue`, and of the device's work in the meantime.
    fn span(
        &self,
        queue: &mut dyn FnMut() -> Result<(), DeviceError>,
        watcher: Watcher,
    ) -> Result<(), DeviceError> {
        drop(watcher);
        queue()
    }

    /// Address of a buffer, if drivers [record](Driver::RECORDS): another buffer with the same
    /// address is as good to a recording.
    fn address(&self, buffer: &Self::Buffer) -> u64 {
        let _ = buffer;
        0
    }

    /// Records the launches that `queue` makes on this thread, instead of running them. They
    /// can be [replayed](Driver::replay) as long as their buffers live.
    ///
    /// # Errors
    /// The errors of `queue` and of the device. Unsupported unless drivers
    /// [record](Driver::RECORDS).
    fn record(
        &self,
        queue: &mut dyn FnMut() -> Result<(), DeviceError>,
    ) -> Result<Self::Recording, DeviceError> {
        let _ = queue;
        let class = FailureClass::Unsupported;
        let message = "launches cannot be recorded";
        Err(DeviceError::new(self.info().device, class, message))
    }

    /// Queues all launches of a recording at once.
    ///
    /// # Safety
    /// The conditions of each of its launches hold.
    ///
    /// # Errors
    /// Fails with an error of any class.
    unsafe fn replay(&self, recording: &Self::Recording) -> Result<(), DeviceError> {
        let _ = recording;
        Ok(())
    }

    /// Waits for all that was queued.
    ///
    /// # Errors
    /// The errors of the device's work in the meantime.
    fn wait(&self) -> Result<(), DeviceError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOUND: Limits = Limits {
        max_group: 256,
        local_bytes: 64 << 10,
        max_buffer: 1 << 30,
        memory: 4 << 30,
        has_f64: false,
        compute_units: 30,
        is_processor: false,
        cuda_capability: 0,
    };

    #[test]
    fn limits_that_can_be_are_as_the_driver_tells_them() {
        let small = Limits {
            max_group: 1,
            local_bytes: 1,
            max_buffer: 1,
            memory: 1,
            compute_units: 1,
            ..SOUND
        };
        for limits in [SOUND, small] {
            assert_eq!(limits.sensible(DeviceType::OpenCL(0)), limits);
        }
    }

    #[test]
    fn limits_that_cannot_be_are_replaced_one_by_one() {
        let safe = Limits {
            max_group: 64,
            local_bytes: 32 << 10,
            max_buffer: 128 << 20,
            memory: 512 << 20,
            compute_units: 8,
            ..SOUND
        };
        for (count, bytes) in [(0, 0), (usize::MAX, u64::MAX)] {
            let strange = Limits {
                max_group: count,
                local_bytes: count,
                max_buffer: bytes,
                memory: bytes,
                compute_units: count,
                ..SOUND
            };
            assert_eq!(strange.sensible(DeviceType::OpenCL(0)), safe);
        }
        let one = Limits {
            max_buffer: 0,
            ..SOUND
        };
        assert_eq!(one.sensible(DeviceType::OpenCL(0)), SOUND);
    }
}
