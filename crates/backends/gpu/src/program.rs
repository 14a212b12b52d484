//! Launches on buffers.

use std::sync::{Arc, Mutex, PoisonError};

use rustorch_runtime::{DeviceBuffer, DeviceError, FailureClass, Probe, Program, Scratch, Step};
use smallvec::SmallVec;

use crate::driver::{Driver, Launch};
use crate::emit::{Emitted, Mistake};
use crate::kernel::{Buffer, Dispatch};
use crate::pool::{GpuBuffer, Pool};

/// The launches of a graph.
pub(crate) struct GpuProgram<D: Driver> {
    pool: Arc<Pool<D>>,
    steps: Vec<Step>,
    /// For each step, the number of launches up to its end.
    ends: Vec<usize>,
    launches: Vec<(Arc<D::Kernel>, Dispatch)>,
    mistakes: Vec<Mistake>,
    arena_bytes: usize,
    /// The word that kernels tell mistakes in: 0 between runs, and of one run at a time.
    status: Mutex<Option<GpuBuffer<D>>>,
}

impl<D: Driver> GpuProgram<D> {
    /// `emitted` launches of `steps`, with a kernel for each.
    pub(crate) fn new(
        pool: Arc<Pool<D>>,
        steps: Vec<Step>,
        emitted: Emitted,
        kernels: Vec<Arc<D::Kernel>>,
    ) -> Self {
        Self {
            pool,
            steps,
            ends: emitted.ends,
            launches: kernels.into_iter().zip(emitted.dispatches).collect(),
            mistakes: emitted.mistakes,
            arena_bytes: emitted.arena_bytes,
            status: Mutex::default(),
        }
    }

    fn error(&self, class: FailureClass, message: &str) -> DeviceError {
        DeviceError::new(self.pool.driver.info().device, class, message)
    }

    /// The buffer of this backend that a handle is on.
    fn own<'b>(&self, buffer: &'b Arc<dyn DeviceBuffer>) -> Result<&'b GpuBuffer<D>, DeviceError> {
        let own = buffer.as_any().downcast_ref();
        own.ok_or_else(|| self.error(FailureClass::Unsupported, "a buffer of another device"))
    }

    fn queue(
        &self,
        inputs: &[Arc<dyn DeviceBuffer>],
        outputs: &[Arc<dyn DeviceBuffer>],
        arena: &GpuBuffer<D>,
        status: Option<&GpuBuffer<D>>,
        probe: &dyn Probe,
    ) -> Result<(), DeviceError> {
        let mut launches = self.launches.iter().enumerate().peekable();
        for (step, &end) in self.steps.iter().zip(&self.ends) {
            for part in &step.parts {
                probe.before(part.node, &part.op)?;
            }
            while let Some((_, (kernel, dispatch))) = launches.next_if(|(at, _)| *at < end) {
                let mut buffers: SmallVec<[&D::Buffer; 16]> = SmallVec::new();
                for buffer in &dispatch.buffers {
                    buffers.push(match *buffer {
                        Buffer::Input(i) => self.own(&inputs[i])?.inner(),
                        Buffer::Output(i) => self.own(&outputs[i])?.inner(),
                        Buffer::Arena => arena.inner(),
                        Buffer::Status => status.unwrap_or(arena).inner(),
                    });
                }
                let launch = Launch {
                    groups: dispatch.groups,
                    group: dispatch.group,
                    buffers: &buffers,
                    accesses: &dispatch.accesses,
                    params: &dispatch.params,
                };
                // SAFETY: kernels stay inside the operands whose layouts made their
                // parameters; the runtime gives each input and output its type's bytes and
                // keeps writers away; lowering places live values apart from each other.
                let launched = unsafe { self.pool.driver.launch(kernel, &launch) };
                let part = step.last();
                launched.map_err(|e| e.at(part.node, part.op.name()))?;
            }
        }
        Ok(())
    }

    /// Fails if a kernel has found a mistake, which is then forgotten.
    fn check(&self, status: &GpuBuffer<D>) -> Result<(), DeviceError> {
        let mut word = [0; 4];
        // SAFETY: the run is over, and the word is this run's alone.
        unsafe { status.read(0, &mut word)? };
        let code = u32::from_ne_bytes(word);
        if code == 0 {
            return Ok(());
        }
        // SAFETY: as above.
        unsafe { status.write(0, &[0; 4])? };
        let mistake = self.mistakes.get(code as usize - 1);
        Err(match mistake {
            Some(Mistake { node, op, message }) => {
                self.error(FailureClass::Caller, message).at(*node, op)
            }
            None => self.error(FailureClass::Lost, "memory was overwritten"),
        })
    }
}

impl<D: Driver> Program for GpuProgram<D> {
    fn run(
        &self,
        inputs: &[Arc<dyn DeviceBuffer>],
        outputs: &[Arc<dyn DeviceBuffer>],
        probe: &dyn Probe,
    ) -> Result<(), DeviceError> {
        let arena = self.pool.alloc(self.arena_bytes)?;
        let mut kept = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        let status = match self.mistakes.is_empty() {
            true => None,
            false => Some(match &mut *kept {
                Some(status) => status,
                none => {
                    let status = self.pool.alloc(4)?;
                    // SAFETY: nobody else has the new buffer.
                    unsafe { status.write(0, &[0; 4])? };
                    none.insert(status)
                }
            }),
        };
        let queued = self.queue(inputs, outputs, &arena, status.as_deref(), probe);
        // Even after a failure: what was queued before still uses the buffers.
        let waited = self.pool.driver.wait();
        queued.and(waited)?;
        status.map_or(Ok(()), |status| self.check(status))
    }

    fn scratch(&self) -> Scratch {
        Scratch {
            bytes: self.arena_bytes,
            kept: false,
        }
    }
}
