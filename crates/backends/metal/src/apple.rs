//! Metal itself: each call as it is, and nothing else, because only a Mac can run it.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use block2::RcBlock;
use objc2::rc::{Retained, autoreleasepool};
use objc2::runtime::ProtocolObject;
use objc2::{available, msg_send};
use objc2_foundation::{NSError, NSPageSize, NSProcessInfo, NSString};
use objc2_metal::{
    MTLBarrierScope, MTLBuffer, MTLCommandBuffer, MTLCommandBufferStatus, MTLCommandEncoder,
    MTLCommandQueue, MTLCompileOptions, MTLComputeCommandEncoder, MTLComputePipelineState,
    MTLCopyAllDevices, MTLDevice, MTLDispatchType, MTLFence, MTLGPUFamily, MTLLanguageVersion,
    MTLLibrary, MTLMathFloatingPointFunctions, MTLMathMode, MTLResidencySet,
    MTLResidencySetDescriptor, MTLResourceOptions, MTLSize,
};
use rustorch_gpu::Signal;
use rustorch_runtime::Absent;

use crate::{Api, CommandError, Dispatch, Properties};

// Without it Metal has no devices for a program without windows (Apple's page on
// `MTLCreateSystemDefaultDevice`).
#[link(name = "CoreGraphics", kind = "framework")]
unsafe extern "C" {}

/// A device with a queue.
pub(crate) struct Device {
    device: Retained<ProtocolObject<dyn MTLDevice>>,
    queue: Retained<ProtocolObject<dyn MTLCommandQueue>>,
    /// Each command buffer waits for the one before. Metal tracks nothing, since it would not know
    /// that two buffers share memory.
    fence: Retained<ProtocolObject<dyn MTLFence>>,
    residency: Option<Arc<Residency>>,
    properties: Properties,
}

/// The devices of the system.
///
/// # Errors
/// Fails if the system is too old.
pub(crate) fn devices() -> Result<Vec<Device>, Absent> {
    if !available!(macos = 13.0) {
        let reason = "the system is too old for Metal 3";
        return Err(Absent::new("metal", reason, "macOS 13 or later is needed"));
    }
    Ok(autoreleasepool(|_| {
        let devices = MTLCopyAllDevices();
        devices.iter().filter_map(Device::open).collect()
    }))
}

impl Device {
    fn open(device: Retained<ProtocolObject<dyn MTLDevice>>) -> Option<Self> {
        let properties = properties(&device);
        let (Some(queue), Some(fence)) = (device.newCommandQueue(), device.newFence()) else {
            tracing::warn!(
                "ignoring the Metal device {}: it has no command queue",
                properties.name
            );
            return None;
        };
        let residency = Residency::new(&device, &queue, &properties);
        Some(Self {
            device,
            queue,
            fence,
            residency: residency.map(Arc::new),
            properties,
        })
    }
}

fn properties(device: &ProtocolObject<dyn MTLDevice>) -> Properties {
    let families = [
        (7, MTLGPUFamily::Apple7),
        (8, MTLGPUFamily::Apple8),
        (9, MTLGPUFamily::Apple9),
        (10, MTLGPUFamily::Apple10),
    ];
    let is_of = |(_, family): &&(u32, MTLGPUFamily)| device.supportsFamily(*family);
    let newest = families.iter().rev().find(is_of);
    let version = NSProcessInfo::processInfo().operatingSystemVersionString();
    Properties {
        name: device.name().to_string(),
        apple_family: newest.map_or(0, |(number, _)| *number),
        system: format!("macOS {version}"),
        has_unified_memory: device.hasUnifiedMemory(),
        max_buffer_length: device.maxBufferLength() as u64,
        recommended_max_working_set_size: device.recommendedMaxWorkingSetSize(),
        max_threads_per_threadgroup: device.maxThreadsPerThreadgroup().width,
        max_threadgroup_memory_length: device.maxThreadgroupMemoryLength(),
        page_bytes: NSPageSize(),
    }
}

/// Options of compiling: arithmetic stays as exact as written.
fn compile_options() -> Retained<MTLCompileOptions> {
    let options = MTLCompileOptions::new();
    if available!(macos = 15.0) {
        options.setLanguageVersion(MTLLanguageVersion::Version3_2);
        options.setMathMode(MTLMathMode::Safe);
        options.setMathFloatingPointFunctions(MTLMathFloatingPointFunctions::Precise);
    } else {
        options.setLanguageVersion(MTLLanguageVersion::Version3_0);
        // SAFETY: the property is there from the first version on, and takes a Boolean.
        let () = unsafe { msg_send![&options, setFastMathEnabled: false] };
    }
    options
}

fn message(error: &NSError) -> String {
    error.localizedDescription().to_string()
}

/// The memory that the GPU keeps mapped, so that Metal need not see to it for each command
/// buffer anew: from macOS 15 on.
struct Residency(Mutex<Set>);

struct Set {
    set: Retained<ProtocolObject<dyn MTLResidencySet>>,
    /// Whether there are changes that have not been committed.
    is_changed: bool,
    bytes: u64,
    /// Memory that the device works well with: beyond, buffers come and go as they are used.
    most: u64,
}

// SAFETY: Metal's objects have no thread of their own; the mutex lets one use the set at a time.
unsafe impl Send for Set {}

impl Residency {
    fn new(
        device: &ProtocolObject<dyn MTLDevice>,
        queue: &ProtocolObject<dyn MTLCommandQueue>,
        properties: &Properties,
    ) -> Option<Self> {
        if !available!(macos = 15.0) {
            return None;
        }
        let descriptor = MTLResidencySetDescriptor::new();
        let set = match device.newResidencySetWithDescriptor_error(&descriptor) {
            Ok(set) => set,
            Err(error) => {
                tracing::debug!("no residency set: {}", message(&error));
                return None;
            }
        };
        queue.addResidencySet(&set);
        Some(Self(Mutex::new(Set {
            set,
            is_changed: false,
            bytes: 0,
            most: properties.recommended_max_working_set_size,
        })))
    }

    fn lock(&self) -> MutexGuard<'_, Set> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a buffer, if there is room.
    fn add(&self, buffer: &ProtocolObject<dyn MTLBuffer>, bytes: usize) -> bool {
        let mut set = self.lock();
        let fits = set.bytes + bytes as u64 <= set.most;
        if fits {
            set.bytes += bytes as u64;
            set.set.addAllocation(ProtocolObject::from_ref(buffer));
            set.is_changed = true;
        }
        fits
    }

    /// Removes a buffer, which the set held on to.
    fn remove(&self, buffer: &ProtocolObject<dyn MTLBuffer>, bytes: usize) {
        let mut set = self.lock();
        set.bytes -= bytes as u64;
        set.set.removeAllocation(ProtocolObject::from_ref(buffer));
        set.is_changed = false;
        set.set.commit();
    }

    fn commit(&self) {
        let mut set = self.lock();
        if set.is_changed {
            set.is_changed = false;
            set.set.commit();
        }
    }
}

/// A buffer over the host's memory.
#[derive(Debug)]
pub(crate) struct Buffer {
    buffer: Retained<ProtocolObject<dyn MTLBuffer>>,
    bytes: usize,
    /// The set that it was added to.
    residency: Option<Arc<Residency>>,
}

// SAFETY: a buffer that is not changed may be used from any thread (Metal Programming Guide);
// what is in its memory is its users' concern.
unsafe impl Send for Buffer {}
// SAFETY: as above.
unsafe impl Sync for Buffer {}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(residency) = &self.residency {
            autoreleasepool(|_| residency.remove(&self.buffer, self.bytes));
        }
    }
}

impl std::fmt::Debug for Residency {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Residency")
    }
}

/// A command buffer that is encoded into.
pub(crate) struct Commands {
    buffer: Retained<ProtocolObject<dyn MTLCommandBuffer>>,
    encoder: Retained<ProtocolObject<dyn MTLComputeCommandEncoder>>,
}

// SAFETY: command buffers and encoders may be used from any thread, by one at a time.
unsafe impl Send for Commands {}

/// A command buffer that was committed.
pub(crate) struct Committed {
    buffer: Retained<ProtocolObject<dyn MTLCommandBuffer>>,
    /// Told when it is complete.
    ended: Arc<Signal>,
}

// SAFETY: as above.
unsafe impl Send for Committed {}

impl Api for Device {
    type Buffer = Buffer;
    type Pipeline = Retained<ProtocolObject<dyn MTLComputePipelineState>>;
    type Commands = Commands;
    type Committed = Committed;

    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn current_allocated_size(&self) -> u64 {
        self.device.currentAllocatedSize() as u64
    }

    unsafe fn buffer_no_copy(&self, pages: NonNull<c_void>, bytes: usize) -> Option<Buffer> {
        let options =
            MTLResourceOptions::StorageModeShared | MTLResourceOptions::HazardTrackingModeUntracked;
        autoreleasepool(|_| {
            // SAFETY: the pages outlive the buffer, as the caller promises, so that nobody has
            // to be told when it is gone.
            let buffer = unsafe {
                self.device
                    .newBufferWithBytesNoCopy_length_options_deallocator(
                        pages, bytes, options, None,
                    )
            }?;
            let residency = self.residency.as_ref();
            let residency = residency.filter(|residency| residency.add(&buffer, bytes));
            Some(Buffer {
                buffer,
                bytes,
                residency: residency.cloned(),
            })
        })
    }

    fn pipeline(&self, source: &str, name: &str) -> Result<Self::Pipeline, String> {
        autoreleasepool(|_| {
            let (device, options) = (&self.device, compile_options());
            let library = device
                .newLibraryWithSource_options_error(&NSString::from_str(source), Some(&options));
            let library = library.map_err(|error| message(&error))?;
            let function = library.newFunctionWithName(&NSString::from_str(name));
            let function = function.ok_or_else(|| format!("error: there is no {name:?}"))?;
            let pipeline = device.newComputePipelineStateWithFunction_error(&function);
            pipeline.map_err(|error| message(&error))
        })
    }

    fn max_threads(&self, pipeline: &Self::Pipeline) -> usize {
        pipeline.maxTotalThreadsPerThreadgroup()
    }

    fn commands(&self) -> Option<Commands> {
        autoreleasepool(|_| {
            let buffer = self.queue.commandBuffer()?;
            let encoder = buffer.computeCommandEncoderWithDispatchType(MTLDispatchType::Concurrent);
            let encoder = encoder?;
            encoder.waitForFence(&self.fence);
            Some(Commands { buffer, encoder })
        })
    }

    unsafe fn dispatch(&self, commands: &mut Commands, dispatch: &Dispatch<'_, Self>) {
        let encoder = &commands.encoder;
        let size = |[width, height, depth]: [u32; 3]| MTLSize {
            width: width as usize,
            height: height as usize,
            depth: depth as usize,
        };
        autoreleasepool(|_| {
            encoder.setComputePipelineState(dispatch.pipeline);
            for (index, (buffer, offset)) in dispatch.buffers.iter().enumerate() {
                // SAFETY: the offset is inside the buffer, and the kernel stays there, as the
                // caller promises.
                unsafe { encoder.setBuffer_offset_atIndex(Some(&buffer.buffer), *offset, index) };
            }
            if !dispatch.params.is_empty() {
                let bytes = NonNull::from(dispatch.params).cast();
                let (length, index) = (size_of_val(dispatch.params), dispatch.buffers.len());
                // SAFETY: there are as many bytes, which Metal copies.
                unsafe { encoder.setBytes_length_atIndex(bytes, length, index) };
            }
            encoder.dispatchThreadgroups_threadsPerThreadgroup(
                size(dispatch.groups),
                size([dispatch.group, 1, 1]),
            );
        });
    }

    fn barrier(&self, commands: &mut Commands) {
        commands
            .encoder
            .memoryBarrierWithScope(MTLBarrierScope::Buffers);
    }

    fn commit(&self, commands: Commands) -> Committed {
        autoreleasepool(|_| {
            commands.encoder.updateFence(&self.fence);
            commands.encoder.endEncoding();
            if let Some(residency) = &self.residency {
                residency.commit();
            }
            let ended = Arc::<Signal>::default();
            let signal = ended.clone();
            let tell = RcBlock::new(move |_| signal.tell());
            // SAFETY: the block is one of what handlers are given, and Metal copies it.
            unsafe { commands.buffer.addCompletedHandler(RcBlock::as_ptr(&tell)) };
            commands.buffer.commit();
            let buffer = commands.buffer;
            Committed { buffer, ended }
        })
    }

    fn wait(
        &self,
        committed: &Committed,
        limit: Option<Duration>,
    ) -> Option<Result<f64, CommandError>> {
        let buffer = &committed.buffer;
        committed.ended.sleep(limit).then(|| {
            autoreleasepool(|_| {
                if buffer.status() == MTLCommandBufferStatus::Completed {
                    return Ok(buffer.GPUEndTime() - buffer.GPUStartTime());
                }
                let error = buffer.error();
                Err(CommandError {
                    code: error.as_ref().map_or(0, |error| error.code()),
                    message: error.map_or_else(String::new, |error| message(&error)),
                })
            })
        })
    }
}
