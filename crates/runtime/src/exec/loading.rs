//! Bringing inputs to devices before the first run.

use rustorch_ir::order::sort_by_key;

use super::{Attempt, Executable, Inputs, Prepared, RunMemory, Source, Stage, WorkingMemory};
use crate::{DeviceError, FailureClass, RunError, Storage};

/// An input that is loaded.
#[derive(Clone, Copy, Debug)]
pub struct Loaded<'a> {
    /// The input.
    pub storage: &'a Storage,
    /// Whether it was copied to the device's own memory. Otherwise it is used in place on the host.
    pub is_copied: bool,
    /// Bytes of the loaded inputs so far.
    pub done: u64,
    /// Bytes of all inputs.
    pub total: u64,
}

impl Executable {
    /// Plans and compiles, and copies the inputs after the first `fresh` ones to the devices that
    /// use them. The first ones differ in every run. The order is that of the host's memory.
    /// Without this call, the first runs do the same. `each` is called for every loaded input,
    /// perhaps again if a device fails.
    ///
    /// # Errors
    /// The same errors as [`Executable::run_into`].
    pub fn load(
        &self,
        inputs: &[&[Storage]],
        fresh: usize,
        mut each: impl FnMut(Loaded),
    ) -> Result<(), RunError> {
        let inputs = Inputs(inputs);
        self.check(inputs)?;
        self.persist(|prepared, memory| self.bring(prepared, inputs, fresh, memory, &mut each))
    }

    /// [`Executable::load`] that also reserves working memory: a device with too little free memory
    /// is out of memory, and the next one is tried. `held` is working memory that devices have
    /// already, which these runs may use as well.
    ///
    /// # Errors
    /// The same errors as [`Executable::load`].
    pub fn load_with_room(
        &self,
        inputs: &[&[Storage]],
        fresh: usize,
        held: &[WorkingMemory],
        mut each: impl FnMut(Loaded),
    ) -> Result<(), RunError> {
        let inputs = Inputs(inputs);
        self.check(inputs)?;
        self.persist(|prepared, memory| {
            self.bring(prepared, inputs, fresh, memory, &mut each)?;
            self.find_room(prepared, held)
        })
    }

    fn find_room(
        &self,
        prepared: &Option<Prepared>,
        held: &[WorkingMemory],
    ) -> Result<(), Attempt> {
        let Some(Prepared { stages, plan, .. }) = prepared else {
            return Ok(());
        };
        for (id, working) in self.working_memory_of(stages) {
            let WorkingMemory {
                device,
                bytes,
                free,
                ..
            } = working;
            let held = held.iter().find(|held| held.device == device);
            let more = bytes.saturating_sub(held.map_or(0, |held| held.bytes));
            let Some(free) = free.filter(|&free| more as u64 > free) else {
                continue;
            };
            let message = format!("a run works in {more} bytes more, where {free} are free");
            let class = FailureClass::OutOfMemory { never_fits: false };
            let error = DeviceError::new(device, class, message);
            let first = stages.iter().find(|stage| stage.device == id);
            let first = first.map_or(0, |stage| stage.first);
            return Err(self.failed(plan, first, id, error));
        }
        Ok(())
    }

    fn bring(
        &self,
        prepared: &mut Option<Prepared>,
        inputs: Inputs,
        fresh: usize,
        memory: &RunMemory,
        each: &mut impl FnMut(Loaded),
    ) -> Result<(), Attempt> {
        let Prepared { stages, plan, .. } = self.current(prepared, inputs, memory)?;
        let mut wanted: Vec<Wanted> = Vec::new();
        for stage in stages.iter() {
            for &(source, write) in &stage.operands {
                let Source::Input(input) = source else {
                    continue;
                };
                let storage = inputs.get(input).filter(|_| input >= fresh);
                wanted.extend(storage.map(|storage| Wanted {
                    stage,
                    input,
                    write,
                    storage,
                }));
            }
        }
        sort_by_key(&mut wanted, |w| {
            (w.storage.host_address(), w.input, w.stage.device.0)
        });
        wanted.dedup_by_key(|w| (w.input, w.stage.device.0));
        let total = wanted.iter().map(|w| w.storage.bytes() as u64).sum();
        let mut done = 0;
        for Wanted {
            stage,
            input,
            write,
            storage,
        } in wanted
        {
            let slot = self.devices.slot(stage.device);
            if !storage.acquire(write) {
                return Err(RunError::Busy { input }.into());
            }
            let placed = storage.on(&slot.owner, slot.backend.memory(), write);
            storage.release(write);
            placed.map_err(|e| match e.on_device(slot.owner.device) {
                Some(e) => self.failed(plan, stage.first, stage.device, e),
                None => Attempt::Final(RunError::DataLost {
                    input,
                    during: None,
                }),
            })?;
            done += storage.bytes() as u64;
            each(Loaded {
                storage,
                is_copied: !slot.owner.shares_host_memory,
                done,
                total,
            });
        }
        Ok(())
    }
}

/// An input that a stage reads, or updates.
struct Wanted<'a> {
    stage: &'a Stage,
    input: usize,
    write: bool,
    storage: &'a Storage,
}
