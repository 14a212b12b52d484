//! Metal on a processor, to test code for it on machines other than Macs.
//!
//! [`Emulator`] is an [`Api`] that compiles the shading language with clang, against a header
//! (`shim/metal_stdlib`) that models address spaces, vectors, half precision, threadgroups and
//! SIMD-groups, and runs each thread as a fibre. It is strict and adversarial:
//!
//! * a pointer into one address space does not convert to another; there is no double
//!   precision, and no function that the language lacks;
//! * nothing runs before it is waited for, so that a forgotten wait reads old data;
//! * dispatches that no barrier separates run in reverse order, and the threads of every other
//!   dispatch too;
//! * memory of threadgroups begins as NaN;
//! * threads that do not all get to a barrier are an error.

mod compile;
mod execute;
mod refused;
mod signature;

use std::collections::{HashMap, VecDeque};
use std::ffi::c_void;
use std::fmt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustorch_metal::{Api, CommandError, Dispatch, Properties};

use crate::compile::Compiler;
use crate::execute::{Grid, Kernel};

/// Why there is no emulator.
#[derive(Debug, thiserror::Error)]
#[error(
    "the emulator of Metal needs clang 16 or newer to compile kernels: {0}; install it, or say \
     where it is in RUSTORCH_CLANG"
)]
pub struct NoCompiler(String);

/// Bytes of a page, as on Apple's processors.
const PAGE: usize = 16 << 10;

/// Threads of a SIMD-group.
const SIMD: usize = 32;

/// Bytes of a threadgroup's memory.
const THREADGROUP_MEMORY: usize = 32 << 10;

/// Threads of the largest threadgroup.
const MAX_THREADS: usize = 1024;

/// Command buffers of a queue that may be open or running, `maxCommandBufferCount`.
const MAX_COMMAND_BUFFERS: usize = 64;

/// Limit of `setBytes`, and the number of buffers that a kernel may have.
const MAX_CONSTANT_BYTES: usize = 4096;
const MAX_BUFFERS: usize = 31;

/// Factor by which the emulator is slower than a GPU, about. It reports a GPU's times. Otherwise
/// the driver would put each dispatch into its own command buffer. Nothing could be out of order
/// there.
const SLOWNESS: f64 = 1000.0;

/// `MTLCommandBufferErrorInvalidResource`.
const INVALID_RESOURCE: isize = 9;

/// An emulated device.
pub struct Emulator {
    properties: Properties,
    compiler: Compiler,
    kernels: Mutex<HashMap<(String, String), Arc<Kernel>>>,
    queue: Arc<Mutex<Queue>>,
    /// Bytes of all buffers.
    allocated: Arc<AtomicU64>,
}

/// Committed work without a wait, and the outcome of the rest.
#[derive(Default)]
struct Queue {
    open: usize,
    next: u64,
    waiting: VecDeque<(u64, Vec<Command>)>,
    done: HashMap<u64, Result<f64, CommandError>>,
    /// Ends of the next command buffers that run.
    failures: VecDeque<CommandError>,
    dispatches: u64,
    barriers: u64,
}

/// Memory of the host.
#[derive(Clone)]
pub struct Buffer {
    start: NonNull<c_void>,
    bytes: usize,
    /// Counted as long as there is a clone.
    _counted: Arc<Counted>,
}

/// Bytes of the device's sum.
struct Counted(u64, Arc<AtomicU64>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.1.fetch_sub(self.0, Ordering::Relaxed);
    }
}

// SAFETY: it is only a pointer, which the emulator uses as the callers of `Api` promise.
unsafe impl Send for Buffer {}
// SAFETY: as above.
unsafe impl Sync for Buffer {}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} bytes)", self.bytes)
    }
}

/// Operation of a command buffer.
enum Command {
    Dispatch {
        kernel: Arc<Kernel>,
        buffers: Vec<(Buffer, usize)>,
        params: Vec<u32>,
        groups: [u32; 3],
        group: u32,
    },
    Barrier,
}

/// An open command buffer.
pub struct Commands {
    list: Vec<Command>,
    /// It counts until it is committed or dropped.
    _open: Open,
}

/// One of the command buffers that a queue may have open.
struct Open(Arc<Mutex<Queue>>);

impl Drop for Open {
    fn drop(&mut self) {
        lock(&self.0).open -= 1;
    }
}

/// A committed command buffer.
pub struct Committed(u64);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Emulator {
    /// A device, if there is a compiler for it.
    ///
    /// # Errors
    /// Fails if there is no compiler.
    pub fn new() -> Result<Self, NoCompiler> {
        Ok(Self {
            properties: Properties {
                name: "Metal emulated on the processor".to_owned(),
                apple_family: 9,
                system: "no macOS".to_owned(),
                has_unified_memory: true,
                max_buffer_length: 8 << 30,
                recommended_max_working_set_size: 16 << 30,
                max_threads_per_threadgroup: MAX_THREADS,
                max_threadgroup_memory_length: THREADGROUP_MEMORY,
                page_bytes: PAGE,
            },
            compiler: Compiler::new().map_err(NoCompiler)?,
            kernels: Mutex::default(),
            queue: Arc::default(),
            allocated: Arc::default(),
        })
    }

    /// A device for a test, which is skipped without a compiler.
    ///
    /// # Panics
    /// Panics if there is no compiler although `RUSTORCH_TEST_METAL` promises one.
    pub fn for_tests() -> Option<Self> {
        Self::new()
            .inspect_err(|why| {
                let promised = std::env::var_os("RUSTORCH_TEST_METAL").is_some();
                assert!(!promised, "an emulated Metal device was promised: {why}");
                println!("without Metal: {why}");
            })
            .ok()
    }

    /// Has the next command buffer that runs, and that no earlier call is about, do nothing and
    /// end so.
    pub fn fail_next(&self, error: CommandError) {
        lock(&self.queue).failures.push_back(error);
    }

    /// The dispatches that ran so far, and the barriers between them.
    pub fn counts(&self) -> (u64, u64) {
        let queue = lock(&self.queue);
        (queue.dispatches, queue.barriers)
    }
}

impl Queue {
    /// Runs a command buffer.
    fn run(&mut self, commands: &[Command]) -> Result<f64, CommandError> {
        if let Some(error) = self.failures.pop_front() {
            return Err(error);
        }
        let start = Instant::now();
        for part in commands.split(|command| matches!(command, Command::Barrier)) {
            for command in part.iter().rev() {
                let Command::Dispatch {
                    kernel,
                    buffers,
                    params,
                    groups,
                    group,
                } = command
                else {
                    continue;
                };
                self.dispatches += 1;
                let pointer = |(buffer, at): &(Buffer, usize)| {
                    // SAFETY: the position lies inside the buffer, as was seen to.
                    unsafe { buffer.start.as_ptr().cast::<u8>().add(*at) }
                };
                let grid = Grid {
                    buffers: buffers.iter().map(pointer).collect(),
                    params,
                    groups: *groups,
                    threads: *group as usize,
                    is_reversed: self.dispatches.is_multiple_of(2),
                };
                // SAFETY: who encoded the dispatch promised that the kernel stays inside.
                let ran = unsafe { kernel.run(&grid) };
                ran.map_err(|message| invalid(format!("{}: {message}", kernel.name)))?;
            }
        }
        self.barriers += commands
            .iter()
            .filter(|command| matches!(command, Command::Barrier))
            .count() as u64;
        // Never nothing, however coarse the clock is.
        Ok(start.elapsed().as_secs_f64().max(1e-9) / SLOWNESS)
    }
}

fn invalid(message: String) -> CommandError {
    CommandError {
        code: INVALID_RESOURCE,
        message,
    }
}

impl Api for Emulator {
    type Buffer = Buffer;
    type Pipeline = Arc<Kernel>;
    type Commands = Commands;
    type Committed = Committed;

    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn current_allocated_size(&self) -> u64 {
        self.allocated.load(Ordering::Relaxed)
    }

    unsafe fn buffer_no_copy(&self, pages: NonNull<c_void>, bytes: usize) -> Option<Buffer> {
        let are_pages = pages.addr().get().is_multiple_of(PAGE) && bytes.is_multiple_of(PAGE);
        let fits = bytes > 0 && bytes as u64 <= self.properties.max_buffer_length;
        (are_pages && fits).then(|| {
            self.allocated.fetch_add(bytes as u64, Ordering::Relaxed);
            Buffer {
                start: pages,
                bytes,
                _counted: Arc::new(Counted(bytes as u64, self.allocated.clone())),
            }
        })
    }

    fn pipeline(&self, source: &str, name: &str) -> Result<Arc<Kernel>, String> {
        let key = (source.to_owned(), name.to_owned());
        if let Some(kernel) = lock(&self.kernels).get(&key) {
            return Ok(kernel.clone());
        }
        let kernel = Arc::new(self.compiler.compile(source, name)?);
        lock(&self.kernels).insert(key, kernel.clone());
        Ok(kernel)
    }

    fn commands(&self) -> Option<Commands> {
        let mut queue = lock(&self.queue);
        if queue.open + queue.waiting.len() >= MAX_COMMAND_BUFFERS {
            return None;
        }
        queue.open += 1;
        Some(Commands {
            list: Vec::new(),
            _open: Open(self.queue.clone()),
        })
    }

    /// # Panics
    /// Panics if Metal's validation layer would stop the program.
    unsafe fn dispatch(&self, commands: &mut Commands, dispatch: &Dispatch<'_, Self>) {
        let kernel = dispatch.pipeline;
        let (given, asked) = (dispatch.buffers.len(), kernel.buffers);
        assert_eq!(given, asked, "buffers of {}", kernel.name);
        // One more is for the constants.
        assert!(given < MAX_BUFFERS, "{given} buffers of {}", kernel.name);
        let bytes = size_of_val(dispatch.params);
        assert!(bytes <= MAX_CONSTANT_BYTES, "{bytes} bytes of constants");
        let threads = dispatch.group as usize;
        assert!((1..=MAX_THREADS).contains(&threads), "{threads} threads");
        assert!(!dispatch.groups.contains(&0), "an empty grid");
        for (buffer, at) in dispatch.buffers {
            assert!(*at < buffer.bytes, "byte {at} of {}", buffer.bytes);
            assert!(at.is_multiple_of(4), "byte {at} of a buffer");
        }
        commands.list.push(Command::Dispatch {
            kernel: kernel.clone(),
            buffers: (dispatch.buffers.iter().map(|&(b, at)| (b.clone(), at))).collect(),
            params: dispatch.params.to_vec(),
            groups: dispatch.groups,
            group: dispatch.group,
        });
    }

    fn barrier(&self, commands: &mut Commands) {
        commands.list.push(Command::Barrier);
    }

    fn commit(&self, commands: Commands) -> Committed {
        let mut queue = lock(&self.queue);
        let id = queue.next;
        queue.next += 1;
        queue.waiting.push_back((id, commands.list));
        Committed(id)
    }

    /// It computes as long as it takes.
    fn wait(
        &self,
        &Committed(id): &Committed,
        _: Option<Duration>,
    ) -> Option<Result<f64, CommandError>> {
        let mut queue = lock(&self.queue);
        while let Some((next, commands)) = queue.waiting.pop_front_if(|(next, _)| *next <= id) {
            let result = queue.run(&commands);
            queue.done.insert(next, result);
        }
        let result = queue.done.remove(&id);
        Some(result.unwrap_or_else(|| Err(invalid("waited for a command buffer twice".to_owned()))))
    }
}
