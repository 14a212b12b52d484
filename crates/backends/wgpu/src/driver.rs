//! The driver: the GPU layer's interface to a device.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustorch_gpu::{Dialect, Driver, Launch, Limits};
use rustorch_runtime::{Deadline, DeviceError, DeviceInfo, FailureClass, HostBuffer};

use crate::faults::{Faults, at_once, class_of};

/// Bytes that copies begin and end at multiples of.
const WORD: usize = 4;

/// Launches that are submitted at a time, so that the device begins while more are encoded.
const BATCH: usize = 64;

/// Parameters that are kept for later launches.
const KEPT: usize = 4096;

/// Bytes of a write that is submitted by itself, so that its copy is released soon.
const LARGE: usize = 1 << 20;

/// A compiled kernel.
pub struct Kernel {
    pipeline: wgpu::ComputePipeline,
    layout: wgpu::BindGroupLayout,
}

/// A device of WebGPU.
pub struct Wgpu {
    device: wgpu::Device,
    queue: wgpu::Queue,
    info: DeviceInfo,
    limits: Limits,
    faults: Arc<Faults>,
    deadline: Deadline,
    state: Mutex<State>,
}

/// Work that is not submitted yet.
#[derive(Default)]
struct State {
    encoder: Option<wgpu::CommandEncoder>,
    launches: usize,
    /// Buffers of parameters, by their words: those of a program are the same in every run.
    params: HashMap<Vec<u32>, wgpu::Buffer>,
}

impl Wgpu {
    pub(crate) fn new(
        device: wgpu::Device,
        queue: wgpu::Queue,
        info: DeviceInfo,
        limits: Limits,
    ) -> Self {
        let faults = Arc::new(Faults::default());
        let lost = faults.clone();
        device.set_device_lost_callback(move |reason, message| {
            lost.lose(FailureClass::Lost, format!("{reason:?}: {message}"));
        });
        let noted = faults.clone();
        device.on_uncaptured_error(Arc::new(move |error| noted.note(&error)));
        Self {
            device,
            queue,
            info,
            limits,
            faults,
            deadline: Deadline::of_user(),
            state: Mutex::default(),
        }
    }

    /// Makes the library lose the device, as a driver may at any time.
    pub fn destroy(&self) {
        self.device.destroy();
    }

    fn error(&self, class: FailureClass, message: impl Into<String>) -> DeviceError {
        DeviceError::new(self.info.device, class, message)
    }

    fn check(&self) -> Result<(), DeviceError> {
        let checked = self.faults.check();
        checked.map_err(|(class, message)| self.error(class, message))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `make`. An error of the library in it is the result.
    fn caught<T>(&self, make: impl FnOnce() -> T) -> Result<T, DeviceError> {
        let filters = [
            wgpu::ErrorFilter::OutOfMemory,
            wgpu::ErrorFilter::Validation,
            wgpu::ErrorFilter::Internal,
        ];
        let scopes = filters.map(|filter| self.device.push_error_scope(filter));
        let made = make();
        let errors = scopes.into_iter().rev().map(|scope| at_once(scope.pop()));
        // All scopes have to be closed, also behind an error.
        let errors: Vec<wgpu::Error> = errors.flatten().flatten().collect();
        self.check()?;
        match errors.first() {
            Some(error) => {
                let (class, message) = class_of(error);
                Err(self.error(class, message))
            }
            None => Ok(made),
        }
    }

    fn encoder<'s>(&self, state: &'s mut State) -> &'s mut wgpu::CommandEncoder {
        let descriptor = wgpu::CommandEncoderDescriptor::default();
        let begin = || self.device.create_command_encoder(&descriptor);
        state.encoder.get_or_insert_with(begin)
    }

    /// Submits what was encoded.
    fn submit(&self, state: &mut State) -> Result<(), DeviceError> {
        if let Some(encoder) = state.encoder.take() {
            state.launches = 0;
            self.queue.submit([encoder.finish()]);
        }
        self.check()
    }

    /// Waits until all that was submitted is done.
    fn finish(&self) -> Result<(), DeviceError> {
        let waited = self.device.poll(wgpu::PollType::Wait {
            submission_index: None,
            timeout: self.deadline.limit(),
        });
        if let Err(wgpu::PollError::Timeout) = waited {
            let why = self.deadline.to_string();
            self.faults.lose(FailureClass::Timeout, why);
        }
        self.check()
    }

    fn buffer(&self, bytes: usize, usage: wgpu::BufferUsages) -> Result<wgpu::Buffer, DeviceError> {
        let descriptor = wgpu::BufferDescriptor {
            label: None,
            size: bytes.next_multiple_of(WORD) as u64,
            usage,
            mapped_at_creation: false,
        };
        self.caught(|| self.device.create_buffer(&descriptor))
    }

    /// The words from `start` on, which is one's beginning, to the host.
    fn read_words(
        &self,
        buffer: &wgpu::Buffer,
        start: usize,
        bytes: usize,
    ) -> Result<Vec<u8>, DeviceError> {
        let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
        let staging = self.buffer(bytes, usage)?;
        let mut state = self.state();
        let encoder = self.encoder(&mut state);
        encoder.copy_buffer_to_buffer(buffer, start as u64, &staging, 0, bytes as u64);
        self.submit(&mut state)?;
        drop(state);
        // An error comes by a callback, and shows in the range.
        staging.map_async(wgpu::MapMode::Read, .., |_| {});
        self.finish()?;
        let range = staging.get_mapped_range(..);
        let range = range.map_err(|error| self.error(FailureClass::Lost, error.to_string()))?;
        Ok(range.to_vec())
    }

    /// The buffer of a launch's parameters.
    fn params(&self, state: &mut State, words: &[u32]) -> wgpu::Buffer {
        if let Some(known) = state.params.get(words) {
            return known.clone();
        }
        if state.params.len() >= KEPT {
            state.params.clear();
        }
        let buffer = self.device.create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size: size_of_val(words) as u64,
            usage: wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.queue.write_buffer(&buffer, 0, &bytes);
        state.params.insert(words.to_vec(), buffer.clone());
        buffer
    }
}

impl Driver for Wgpu {
    type Buffer = wgpu::Buffer;
    type Kernel = Kernel;
    type Recording = std::convert::Infallible;

    const KEEPS_BINARIES: bool = false;

    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn dialect(&self) -> Dialect {
        Dialect::Wgsl
    }

    fn alloc(&self, bytes: usize) -> Result<wgpu::Buffer, DeviceError> {
        self.check()?;
        let usage = wgpu::BufferUsages::STORAGE
            | wgpu::BufferUsages::COPY_SRC
            | wgpu::BufferUsages::COPY_DST;
        match self.buffer(bytes, usage) {
            // Released memory is free again only when queued work is done with it.
            Err(e) if matches!(e.class, FailureClass::OutOfMemory { .. }) => {
                self.wait()?;
                self.buffer(bytes, usage)
            }
            result => result,
        }
    }

    fn share(&self, _: &HostBuffer) -> Result<Option<wgpu::Buffer>, DeviceError> {
        self.check().map(|()| None)
    }

    fn host<'b>(&self, _: &'b wgpu::Buffer) -> Result<Option<&'b HostBuffer>, DeviceError> {
        self.check().map(|()| None)
    }

    unsafe fn read(
        &self,
        buffer: &wgpu::Buffer,
        offset: usize,
        to: &mut [u8],
    ) -> Result<(), DeviceError> {
        if to.is_empty() {
            return Ok(());
        }
        let start = offset / WORD * WORD;
        let end = (offset + to.len()).next_multiple_of(WORD);
        let words = self.read_words(buffer, start, end - start)?;
        to.copy_from_slice(&words[offset - start..][..to.len()]);
        Ok(())
    }

    unsafe fn write(
        &self,
        buffer: &wgpu::Buffer,
        offset: usize,
        from: &[u8],
    ) -> Result<(), DeviceError> {
        // Commands that were encoded before come first.
        self.submit(&mut self.state())?;
        let whole = match offset.is_multiple_of(WORD) {
            true => from.len() / WORD * WORD,
            false => 0,
        };
        if whole > 0 {
            self.queue
                .write_buffer(buffer, offset as u64, &from[..whole]);
        }
        let (rest, offset) = (&from[whole..], offset + whole);
        if !rest.is_empty() {
            // Bytes beside them in the same words stay.
            let start = offset / WORD * WORD;
            let end = (offset + rest.len()).next_multiple_of(WORD);
            let mut words = self.read_words(buffer, start, end - start)?;
            words[offset - start..][..rest.len()].copy_from_slice(rest);
            self.queue.write_buffer(buffer, start as u64, &words);
        }
        if from.len() >= LARGE {
            self.queue.submit([]);
        }
        self.check()
    }

    /// The source itself: the library keeps no binaries.
    fn compile(&self, source: &str) -> Result<Vec<u8>, DeviceError> {
        Ok(source.into())
    }

    fn load(&self, binary: &[u8], name: &str) -> Result<Kernel, DeviceError> {
        let source = String::from_utf8_lossy(binary);
        let bindings = source.matches("@group(0) @binding(").count() as u32;
        let most = self.device.limits().max_storage_buffers_per_shader_stage;
        if bindings > most {
            let message = format!("a kernel of {bindings} buffers, and the device has {most}");
            return Err(self.error(FailureClass::Unsupported, message));
        }
        let entry = |binding| wgpu::BindGroupLayoutEntry {
            binding,
            visibility: wgpu::ShaderStages::COMPUTE,
            ty: wgpu::BindingType::Buffer {
                // The last are the parameters.
                ty: wgpu::BufferBindingType::Storage {
                    read_only: binding + 1 == bindings,
                },
                has_dynamic_offset: false,
                min_binding_size: None,
            },
            count: None,
        };
        let entries: Vec<_> = (0..bindings).map(entry).collect();
        self.caught(|| {
            let descriptor = wgpu::ShaderModuleDescriptor {
                label: Some(name),
                source: wgpu::ShaderSource::Wgsl(source),
            };
            let checks = wgpu::ShaderRuntimeChecks::unchecked();
            // SAFETY: who launches a kernel promises that it stays inside its buffers. Texts have no endless loops,
            // and no divisors of 0.
            let module = unsafe { self.device.create_shader_module_trusted(descriptor, checks) };
            let layout = self
                .device
                .create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor {
                    label: None,
                    entries: &entries,
                });
            let whole = self
                .device
                .create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
                    label: None,
                    bind_group_layouts: &[Some(&layout)],
                    immediate_size: 0,
                });
            let pipeline = self
                .device
                .create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
                    label: Some(name),
                    layout: Some(&whole),
                    module: &module,
                    entry_point: Some(name),
                    compilation_options: wgpu::PipelineCompilationOptions {
                        zero_initialize_workgroup_memory: false,
                        ..wgpu::PipelineCompilationOptions::default()
                    },
                    cache: None,
                });
            Kernel { pipeline, layout }
        })
    }

    unsafe fn launch(&self, kernel: &Kernel, launch: &Launch<'_, Self>) -> Result<(), DeviceError> {
        self.check()?;
        let mut state = self.state();
        let params = self.params(&mut state, launch.params);
        let buffers = launch.buffers.iter().copied().chain([&params]);
        let entries: Vec<_> = (0..)
            .zip(buffers)
            .map(|(binding, buffer)| wgpu::BindGroupEntry {
                binding,
                resource: buffer.as_entire_binding(),
            })
            .collect();
        let group = self.device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: None,
            layout: &kernel.layout,
            entries: &entries,
        });
        let encoder = self.encoder(&mut state);
        {
            let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
            pass.set_pipeline(&kernel.pipeline);
            pass.set_bind_group(0, &group, &[]);
            let [x, y, z] = launch.groups;
            pass.dispatch_workgroups(x, y, z);
        }
        state.launches += 1;
        match state.launches >= BATCH {
            true => self.submit(&mut state),
            false => self.check(),
        }
    }

    /// Times of steps by the host's clock, which waits for each.
    fn time(
        &self,
        steps: usize,
        queue: &mut dyn FnMut(usize) -> Result<(), DeviceError>,
    ) -> Result<Option<Vec<Duration>>, DeviceError> {
        let mut times = Vec::with_capacity(steps);
        let mut start = Instant::now();
        for step in 0..steps {
            queue(step)?;
            self.wait()?;
            let end = Instant::now();
            times.push(end - start);
            start = end;
        }
        Ok(Some(times))
    }

    fn wait(&self) -> Result<(), DeviceError> {
        self.submit(&mut self.state())?;
        self.finish()
    }
}
