//! A lowered graph as launches on host memory.

use std::sync::{Arc, Mutex, PoisonError};

use rustorch_runtime::{
    DeviceBuffer, DeviceError, DeviceType, FailureClass, HostBuffer, Lowered, Nodes, Part, Place,
    Probe, Program, Scratch, Slot, Step,
};
use smallvec::SmallVec;

use crate::kernel::{Args, Misuse};
use crate::laps::Laps;
use crate::launch::Prepared;
use crate::pool::Pool;
use crate::view::{Target, View};

/// The launches of a graph.
pub(crate) struct CpuProgram {
    pool: Arc<Pool>,
    lowered: Lowered,
    /// Launches, one for each step.
    launches: Vec<Prepared>,
    /// The nodes that each step computes, for timing.
    nodes: Arc<[Nodes]>,
    /// Memory of intermediate values, kept between runs.
    arena: Mutex<Option<Vec<HostBuffer>>>,
}

/// The memory of a run.
pub(crate) struct Memory<'a> {
    inputs: &'a [Arc<dyn DeviceBuffer>],
    outputs: &'a [Arc<dyn DeviceBuffer>],
    arena: &'a [HostBuffer],
}

impl Memory<'_> {
    /// Address and bytes of a place's buffer, or of the rest of one of the arena.
    fn find(&self, place: &Place) -> Result<(*mut u8, usize), DeviceError> {
        Ok(match place.slot {
            Slot::Input(i) => {
                let host = host(&self.inputs[i])?;
                (host.as_ptr(), host.bytes())
            }
            Slot::Output(i) => {
                let host = host(&self.outputs[i])?;
                (host.as_ptr(), host.bytes())
            }
            Slot::Arena { buffer, at } => {
                let arena = &self.arena[buffer];
                // SAFETY: lowering keeps every range inside its buffer.
                unsafe { (arena.as_ptr().add(at), arena.bytes() - at) }
            }
        })
    }

    /// An operand that is read.
    pub(crate) fn view<'a>(&'a self, place: &'a Place) -> Result<View<'a>, DeviceError> {
        let (start, bytes) = self.find(place)?;
        // SAFETY: the runtime gives each input and output its type's bytes and keeps writers
        // away; lowering places values that are alive apart from each other.
        Ok(unsafe { View::new(start, bytes, &place.layout, &place.ty) })
    }

    /// A result. One launch asks for it once.
    pub(crate) fn target<'a>(&'a self, place: &'a Place) -> Result<Target<'a>, DeviceError> {
        let (start, bytes) = self.find(place)?;
        // SAFETY: as above; a state is exclusively this run's.
        Ok(unsafe { Target::new(start, bytes, &place.layout, &place.ty) })
    }
}

impl CpuProgram {
    pub(crate) fn new(pool: Arc<Pool>, lowered: Lowered, launches: Vec<Prepared>) -> Self {
        Self {
            pool,
            nodes: lowered.steps.iter().map(Step::nodes).collect(),
            lowered,
            launches,
            arena: Mutex::default(),
        }
    }

    /// Runs a step.
    fn step(
        &self,
        step: &Step,
        prepared: &Prepared,
        memory: &Memory,
    ) -> Result<Result<(), Misuse>, DeviceError> {
        let mut views: SmallVec<[View; 8]> = SmallVec::new();
        for place in &step.inputs {
            views.push(memory.view(place)?);
        }
        let mut others: SmallVec<[Target; 4]> = SmallVec::new();
        for place in &step.outputs[1..] {
            others.push(memory.target(place)?);
        }
        Ok(prepared.launch(Args {
            pool: &self.pool,
            op: &step.last().op,
            inputs: &views,
            output: memory.target(step.output())?,
            others,
        }))
    }

    fn take_arena(&self) -> Result<Vec<HostBuffer>, DeviceError> {
        if self.lowered.arena.is_empty() {
            return Ok(Vec::new());
        }
        let mut kept = self.arena.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(arena) = kept.take() {
            return Ok(arena);
        }
        let alloc = |&bytes: &usize| {
            let refused = || {
                DeviceError::new(
                    DeviceType::Cpu,
                    FailureClass::OutOfMemory { never_fits: false },
                    format!("the system refused {bytes} bytes for intermediate values"),
                )
            };
            HostBuffer::uninit(bytes).ok_or_else(refused)
        };
        self.lowered.arena.iter().map(alloc).collect()
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
        let memory = Memory {
            inputs,
            outputs,
            arena: &arena,
        };
        let begin = probe.timed_since();
        let mut laps = begin.map(|begin| Laps::new(begin, &self.nodes, probe));
        for (step, prepared) in self.lowered.steps.iter().zip(&self.launches) {
            for part in &step.parts {
                probe.before(part.node, &part.op)?;
            }
            self.step(step, prepared, &memory)?.map_err(|misuse| {
                let Part { node, op, .. } = step.last();
                DeviceError::new(DeviceType::Cpu, FailureClass::Caller, misuse.0)
                    .at(*node, op.name())
            })?;
            if let Some(laps) = &mut laps {
                laps.lap();
            }
        }
        if !arena.is_empty() {
            *self.arena.lock().unwrap_or_else(PoisonError::into_inner) = Some(arena);
        }
        Ok(())
    }

    fn scratch(&self) -> Scratch {
        Scratch {
            bytes: self.lowered.arena_bytes(),
            kept: true,
            offloaded: 0,
        }
    }
}
