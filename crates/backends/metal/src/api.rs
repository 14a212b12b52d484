//! Calls to Metal: an implementation of this trait is all that only a Mac can run.

use std::ffi::c_void;
use std::fmt::Debug;
use std::ptr::NonNull;
use std::time::Duration;

/// Properties of a device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Properties {
    /// `MTLDevice.name`.
    pub name: String,
    /// The newest family of Apple's GPUs that it is of, `MTLGPUFamilyApple7` being 7; 0 if none.
    pub apple_family: u32,
    /// The system and its version.
    pub system: String,
    /// Whether it shares the processor's memory.
    pub has_unified_memory: bool,
    /// Bytes of the largest buffer.
    pub max_buffer_length: u64,
    /// Bytes of memory that it works well with.
    pub recommended_max_working_set_size: u64,
    /// Threads of the largest threadgroup.
    pub max_threads_per_threadgroup: usize,
    /// Bytes of threadgroup memory.
    pub max_threadgroup_memory_length: usize,
    /// Bytes of a page: pointer and length of `bytesNoCopy` have to be multiples of it.
    pub page_bytes: usize,
}

/// Why a command buffer did not complete: a code of `MTLCommandBufferError`, and the text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CommandError {
    /// The code.
    pub code: isize,
    /// `localizedDescription`.
    pub message: String,
}

/// A buffer and the byte in it that a kernel's pointer is given.
pub type Binding<'a, A> = (&'a <A as Api>::Buffer, usize);

/// A dispatch of threadgroups.
pub struct Dispatch<'a, A: Api> {
    /// The kernel.
    pub pipeline: &'a A::Pipeline,
    /// Buffers 0, 1, 2 ….
    pub buffers: &'a [Binding<'a, A>],
    /// The bytes that follow the buffers as one more, by `setBytes`; none if empty.
    pub params: &'a [u32],
    /// Threadgroups in each dimension.
    pub groups: [u32; 3],
    /// Threads of a threadgroup, along the first dimension.
    pub group: u32,
}

/// A Metal device with a command queue.
///
/// A command buffer has one compute encoder of the concurrent kind: dispatches may overlap unless
/// there is a [`Api::barrier`] between them. Command buffers run one after the other, in the order
/// in which they were committed. Each sees the writes of those before.
pub trait Api: Send + Sync + Sized + 'static {
    /// `MTLBuffer` in shared storage.
    type Buffer: Send + Sync + Debug + 'static;
    /// `MTLComputePipelineState`.
    type Pipeline: Send + Sync + 'static;
    /// A command buffer with its open encoder.
    type Commands: Send + 'static;
    /// A committed command buffer.
    type Committed: Send + 'static;

    /// Properties of the device.
    fn properties(&self) -> &Properties;

    /// `MTLDevice.currentAllocatedSize`: bytes of all buffers that this process has on the device.
    fn current_allocated_size(&self) -> u64;

    /// `newBufferWithBytesNoCopy`: whole pages of host memory used in place. `None` if refused.
    ///
    /// # Safety
    /// Pointer and length are multiples of the page size; the pages stay mapped until the
    /// buffer is dropped.
    unsafe fn buffer_no_copy(&self, pages: NonNull<c_void>, bytes: usize) -> Option<Self::Buffer>;

    /// Compiles a source and makes the pipeline of its function `name`.
    ///
    /// # Errors
    /// Fails with the compiler's message.
    fn pipeline(&self, source: &str, name: &str) -> Result<Self::Pipeline, String>;

    /// Threads of the largest threadgroup that a pipeline can be dispatched in: fewer than the
    /// device's if it needs many registers.
    fn max_threads(&self, _pipeline: &Self::Pipeline) -> usize {
        self.properties().max_threads_per_threadgroup
    }

    /// A new command buffer with an open encoder; `None` if refused.
    fn commands(&self) -> Option<Self::Commands>;

    /// Encodes a dispatch.
    ///
    /// # Safety
    /// The kernel stays inside the buffers, which live until the command buffer is complete.
    unsafe fn dispatch(&self, commands: &mut Self::Commands, dispatch: &Dispatch<'_, Self>);

    /// Dispatches from here on see the writes of those before, and do not overtake them.
    fn barrier(&self, commands: &mut Self::Commands);

    /// Ends the encoder and commits.
    fn commit(&self, commands: Self::Commands) -> Self::Committed;

    /// Waits until it is complete, but no longer than `limit`: the seconds that the GPU says it
    /// worked on it, or how it failed; `None` if it is not complete.
    fn wait(
        &self,
        committed: &Self::Committed,
        limit: Option<Duration>,
    ) -> Option<Result<f64, CommandError>>;
}
