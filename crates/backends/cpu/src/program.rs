//! A lowered graph as launches on host memory.

use std::sync::{Arc, Mutex, PoisonError};

use rustorch_runtime::{
    DeviceBuffer, DeviceError, DeviceType, FailureClass, HostBuffer, Lowered, Place, Probe,
    Program, Scratch, Slot,
};
use smallvec::SmallVec;

use crate::kernel::Args;
use crate::launch::Prepared;
use crate::pool::Pool;
use crate::view::{Target, View};

/// The launches of a graph.
pub(crate) struct CpuProgram {
    pool: Arc<Pool>,
    lowered: Lowered,
    /// One for each step.
    launches: Vec<Prepared>,
    /// Memory of intermediate values, kept between runs.
    arena: Mutex<Option<HostBuffer>>,
}

impl CpuProgram {
    pub(crate) fn new(pool: Arc<Pool>, lowered: Lowered, launches: Vec<Prepared>) -> Self {
        Self {
            pool,
            lowered,
            launches,
            arena: Mutex::default(),
        }
    }

    fn take_arena(&self) -> Result<HostBuffer, DeviceError> {
        let mut kept = self.arena.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = self.lowered.arena_bytes;
        kept.take()
            .or_else(|| HostBuffer::uninit(bytes))
            .ok_or_else(|| {
                DeviceError::new(
                    DeviceType::Cpu,
                    FailureClass::OutOfMemory { never_fits: false },
                    format!("the system refused {bytes} bytes for intermediate values"),
                )
            })
    }
}

/// The host memory that a buffer of this backend is.
fn host(buffer: &Arc<dyn DeviceBuffer>) -> Result<&HostBuffer, DeviceError> {
    buffer.host()?.ok_or_else(|| {
        DeviceError::new(
            DeviceType::Cpu,
            FailureClass::Unsupported,
            "a buffer that is not in host memory",
        )
    })
}

impl Program for CpuProgram {
    fn run(
        &self,
        inputs: &[Arc<dyn DeviceBuffer>],
        outputs: &[Arc<dyn DeviceBuffer>],
        probe: &dyn Probe,
    ) -> Result<(), DeviceError> {
        let arena = self.take_arena()?;
        let find = |place: &Place| -> Result<(*mut u8, usize), DeviceError> {
            Ok(match place.slot {
                Slot::Input(i) => {
                    let host = host(&inputs[i])?;
                    (host.as_ptr(), host.bytes())
                }
                Slot::Output(i) => {
                    let host = host(&outputs[i])?;
                    (host.as_ptr(), host.bytes())
                }
                // SAFETY: lowering keeps every range inside the arena.
                Slot::Arena(at) => unsafe {
                    (arena.as_ptr().add(at), self.lowered.arena_bytes - at)
                },
            })
        };
        for (step, launch) in self.lowered.steps.iter().zip(&self.launches) {
            for part in &step.parts {
                probe.before(part.node, &part.op)?;
            }
            let part = step.last();
            let mut views: SmallVec<[View; 4]> = SmallVec::new();
            for place in &step.inputs {
                let (start, bytes) = find(place)?;
                // SAFETY: the runtime gives each input and output its type's bytes and keeps
                // writers away; lowering places values that are alive apart from each other.
                views.push(unsafe { View::new(start, bytes, &place.layout, &place.ty) });
            }
            let (start, bytes) = find(&step.output)?;
            let args = Args {
                pool: &self.pool,
                op: &part.op,
                inputs: &views,
                // SAFETY: as above; a state is exclusively this run's.
                output: unsafe { Target::new(start, bytes, &step.output.layout, &step.output.ty) },
            };
            launch.launch(args).map_err(|misuse| {
                DeviceError::new(DeviceType::Cpu, FailureClass::Caller, misuse.0)
                    .at(part.node, part.op.name())
            })?;
        }
        *self.arena.lock().unwrap_or_else(PoisonError::into_inner) = Some(arena);
        Ok(())
    }

    fn scratch(&self) -> Scratch {
        Scratch {
            bytes: self.lowered.arena_bytes,
            kept: true,
        }
    }
}
