//! The driver: the GPU layer's interface to a device.

use std::time::Duration;

use rustorch_gpu::{Dialect, Driver, Launch, Limits};
use rustorch_runtime::{
    Deadline, DeviceError, DeviceInfo, DeviceType, FailureClass, Hardware, HostBuffer,
    LARGEST_BUFFER,
};
use smallvec::SmallVec;

use crate::buffer::Buffer;
use crate::queue::Queue;
use crate::{Api, Dispatch, Properties};

/// Entries of a kernel's table of buffers ("Metal Feature Set Tables").
const MAX_BUFFERS: usize = 31;

/// Bytes of the largest `setBytes`.
const MAX_PARAMS: usize = 4096;

/// Groups that run at a time, about: Metal does not report the number of cores.
const COMPUTE_UNITS: usize = 32;

/// A Metal device.
pub struct Metal<A: Api> {
    queue: Queue<A>,
    info: DeviceInfo,
    limits: Limits,
}

/// A compiled kernel.
pub struct Kernel<A: Api> {
    pipeline: A::Pipeline,
    /// Threads of its largest group.
    max_threads: usize,
}

impl<A: Api> Metal<A> {
    /// The driver of `api`'s device, which is called `metal:index`.
    pub fn new(api: A, index: usize) -> Self {
        let device = DeviceType::Metal(index);
        let properties = api.properties();
        let limits = limits(properties).sensible(device);
        Self {
            info: info(device, properties, &limits),
            limits,
            queue: Queue::new(api, device),
        }
    }

    /// The API that it drives.
    pub fn api(&self) -> &A {
        &self.queue.api
    }

    /// From now on a command buffer, and the compiler, may take so long; at first it is as the
    /// [user](Deadline::of_user) says.
    pub fn set_deadline(&self, deadline: Deadline) {
        self.queue.set_deadline(deadline);
    }

    fn error(&self, class: FailureClass, message: impl Into<String>) -> DeviceError {
        self.queue.error(class, message)
    }

    /// A buffer over host memory, if there can be one.
    fn over(&self, host: &HostBuffer) -> Option<Buffer<A>> {
        Buffer::over(&*self.queue.api, host, self.limits.max_buffer)
    }

    fn try_alloc(&self, bytes: usize) -> Option<Buffer<A>> {
        self.over(&HostBuffer::uninit(bytes)?)
    }

    /// Why a launch cannot be encoded, if so. Metal would end the program.
    fn unfit(kernel: &Kernel<A>, launch: &Launch<'_, Self>) -> Option<String> {
        let buffers = launch.buffers.len() + usize::from(!launch.params.is_empty());
        let params = size_of_val(launch.params);
        let threads = launch.group as usize;
        if buffers > MAX_BUFFERS {
            return Some(format!(
                "{buffers} buffers; kernels may have at most {MAX_BUFFERS}"
            ));
        }
        if params > MAX_PARAMS {
            return Some(format!(
                "{params} bytes of parameters, and kernels have {MAX_PARAMS} at most"
            ));
        }
        (threads > kernel.max_threads).then(|| {
            let most = kernel.max_threads;
            format!("a group of {threads} threads, and the kernel's have {most} at most")
        })
    }
}

fn info(device: DeviceType, properties: &Properties, limits: &Limits) -> DeviceInfo {
    let mib = |bytes: u64| format!("{} MiB", bytes >> 20);
    let details = [
        ("family", format!("Apple {}", properties.apple_family)),
        ("system", properties.system.clone()),
        ("largest threadgroup", limits.max_group.to_string()),
        (
            "threadgroup memory",
            format!("{} KiB", limits.local_bytes / 1024),
        ),
        (LARGEST_BUFFER, mib(limits.max_buffer)),
    ];
    DeviceInfo {
        device,
        hardware: Hardware::Gpu,
        shares_host_memory: properties.has_unified_memory,
        name: properties.name.clone(),
        memory_bytes: Some(limits.memory),
        details: details.map(|(key, value)| (key.to_owned(), value)).into(),
    }
}

fn limits(properties: &Properties) -> Limits {
    Limits {
        max_group: properties.max_threads_per_threadgroup,
        local_bytes: properties.max_threadgroup_memory_length,
        max_buffer: properties.max_buffer_length,
        memory: properties.recommended_max_working_set_size,
        has_f64: false,
        compute_units: COMPUTE_UNITS,
        is_processor: false,
        cuda_capability: 0,
    }
}

impl<A: Api> Driver for Metal<A> {
    type Buffer = Buffer<A>;
    type Kernel = Kernel<A>;
    type Recording = std::convert::Infallible;

    /// Metal has its own cache.
    const KEEPS_BINARIES: bool = false;

    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn dialect(&self) -> Dialect {
        Dialect::Metal
    }

    /// Dropped memory is free again only when command buffers are done with it. So the driver waits
    /// for that before it gives up.
    fn alloc(&self, bytes: usize) -> Result<Buffer<A>, DeviceError> {
        self.queue.check()?;
        let largest = self.limits.max_buffer;
        if u64::try_from(bytes).is_ok_and(|bytes| bytes > largest) {
            return Err(self.error(
                FailureClass::OutOfMemory { never_fits: true },
                format!("{bytes} bytes in one piece, of which the device has {largest} at most"),
            ));
        }
        if let Some(buffer) = self.try_alloc(bytes) {
            return Ok(buffer);
        }
        // A failure is told to whom it concerns.
        let _ = self.queue.finish(u64::MAX);
        self.queue.check()?;
        self.try_alloc(bytes).ok_or_else(|| {
            let class = FailureClass::OutOfMemory { never_fits: false };
            self.error(class, format!("the system refused {bytes} bytes"))
        })
    }

    /// The memory that the device works well with, less this process's part. `None` if nothing is
    /// left, as with a mapped file that is larger. The system knows the memory of other programs,
    /// since the memory is its own.
    fn free_memory(&self) -> Option<u64> {
        let allocated = self.queue.api.current_allocated_size();
        let left = self.limits.memory.checked_sub(allocated);
        left.filter(|&bytes| bytes > 0)
    }

    fn share(&self, host: &HostBuffer) -> Result<Option<Buffer<A>>, DeviceError> {
        self.queue.check()?;
        match self.info.shares_host_memory {
            true => Ok(self.over(host)),
            false => Ok(None),
        }
    }

    fn host<'b>(&self, buffer: &'b Buffer<A>) -> Result<Option<&'b HostBuffer>, DeviceError> {
        self.queue.finish(buffer.last_use())?;
        Ok(Some(buffer.host()))
    }

    unsafe fn read(
        &self,
        buffer: &Buffer<A>,
        offset: usize,
        to: &mut [u8],
    ) -> Result<(), DeviceError> {
        self.queue.finish(buffer.last_use())?;
        // SAFETY: the range lies inside the buffer, as the caller promises; the GPU is done
        // with it.
        unsafe {
            let from = buffer.host().as_ptr().add(offset);
            from.copy_to_nonoverlapping(to.as_mut_ptr(), to.len());
        }
        Ok(())
    }

    unsafe fn write(
        &self,
        buffer: &Buffer<A>,
        offset: usize,
        from: &[u8],
    ) -> Result<(), DeviceError> {
        self.queue.finish(buffer.last_use())?;
        // SAFETY: the range lies inside the buffer, which may be written to, as the caller
        // promises; the GPU is done with it.
        unsafe {
            let to = buffer.host().as_ptr().add(offset);
            to.copy_from_nonoverlapping(from.as_ptr(), from.len());
        }
        Ok(())
    }

    /// The source itself.
    fn compile(&self, source: &str) -> Result<Vec<u8>, DeviceError> {
        self.queue.check()?;
        Ok(source.into())
    }

    fn load(&self, binary: &[u8], name: &str) -> Result<Kernel<A>, DeviceError> {
        self.queue.check()?;
        let unsupported = |message| self.error(FailureClass::Unsupported, message);
        let source = str::from_utf8(binary).map_err(|e| unsupported(e.to_string()))?;
        let (api, text, called) = (self.queue.api.clone(), source.to_owned(), name.to_owned());
        let compiled = (self.queue.deadline()).watch(move || api.pipeline(&text, &called));
        let compiled = compiled.ok_or_else(|| self.queue.hangs("compiler"))?;
        let pipeline = compiled.map_err(|log| {
            tracing::debug!("{name}: {log}");
            // One line will do: what follows from the first error is not news.
            let first = log.lines().find(|line| line.contains("error"));
            let first = first.or(log.lines().next()).unwrap_or_default();
            unsupported(format!("{name}: {first}"))
        })?;
        Ok(Kernel {
            max_threads: self.queue.api.max_threads(&pipeline),
            pipeline,
        })
    }

    unsafe fn launch(
        &self,
        kernel: &Kernel<A>,
        launch: &Launch<'_, Self>,
    ) -> Result<(), DeviceError> {
        if let Some(why) = Self::unfit(kernel, launch) {
            return Err(self.error(FailureClass::Unsupported, why));
        }
        let bindings: SmallVec<[_; 16]> = launch.buffers.iter().map(|b| b.binding()).collect();
        let with_access = launch.buffers.iter().zip(launch.accesses);
        let uses: SmallVec<[_; 16]> = with_access.map(|(b, access)| b.addresses(access)).collect();
        let dispatch = Dispatch {
            pipeline: &kernel.pipeline,
            buffers: &bindings,
            params: launch.params,
            groups: launch.groups,
            group: launch.group,
        };
        let memory = launch.buffers.iter().map(|b| b.memory());
        // SAFETY: as the caller promises; the bindings are of these buffers.
        unsafe { self.queue.launch(&dispatch, memory, &uses) }
    }

    /// Each step is in its own command buffers, for which the GPU reports times.
    fn time(
        &self,
        steps: usize,
        queue: &mut dyn FnMut(usize) -> Result<(), DeviceError>,
    ) -> Result<Option<Vec<Duration>>, DeviceError> {
        self.queue.time()?;
        let mut times = Vec::with_capacity(steps);
        for step in 0..steps {
            queue(step)?;
            times.push(self.queue.time()?);
        }
        let times = times.into_iter().map(Duration::try_from_secs_f64);
        // Times that cannot be are none.
        Ok(times.collect::<Result<_, _>>().ok())
    }

    fn wait(&self) -> Result<(), DeviceError> {
        self.queue.wait()
    }
}
