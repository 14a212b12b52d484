//! Running the stages of a plan.

use std::sync::atomic::Ordering;

use super::failing::{Attempt, Failure};
use super::inputs::{Held, Inputs};
use super::{Executable, Prepared, Source};
use crate::exec::profile::{Timer, Whole};
use crate::exec::watch::Watch;
use crate::memory::copies::StorageError;
use crate::observer::Observers;
use crate::{HostWork, NoProbe, Probe, RunError};

/// The observers of a run.
#[derive(Clone, Copy)]
struct Onlookers<'a> {
    /// Are launches timed for [`Executable::explain`]?
    profiling: bool,
    /// The observers of single launches.
    observers: Option<&'a Observers>,
}

impl Executable {
    /// Runs all stages of a plan.
    pub(super) fn execute(&self, prepared: &mut Prepared, inputs: Inputs) -> Result<(), Attempt> {
        let writes = prepared.writes.clone();
        let _held = Held::acquire(inputs, &writes)?;
        let profiling = self.devices.profiling.load(Ordering::Relaxed);
        let gallery = &self.devices.journal.gallery;
        let _span = gallery.begin(HostWork::Run, || "run");
        let observers = gallery.observers().filter(Observers::want_launches);
        let onlookers = Onlookers {
            profiling,
            observers: observers.as_ref(),
        };
        if prepared.stages.iter().any(|stage| stage.update.is_some()) {
            self.reserve(prepared)?;
        }
        // Was an update launched that must not run twice?
        let mut is_past = false;
        for index in 0..prepared.stages.len() {
            let ran = self.stage(prepared, index, inputs, onlookers, &mut is_past);
            ran.map_err(|failed| match is_past {
                true => self.lose_states(inputs, &writes, failed),
                false => failed,
            })?;
        }
        if profiling {
            prepared.profile.count_run();
        }
        Ok(())
    }

    /// Runs a stage.
    fn stage(
        &self,
        prepared: &mut Prepared,
        index: usize,
        inputs: Inputs,
        onlookers: Onlookers<'_>,
        is_past: &mut bool,
    ) -> Result<(), Attempt> {
        let stage = &prepared.stages[index];
        let writes = stage.operands.iter().any(|(_, write)| *write);
        // A run that writes states is checked, since the states cannot be computed again. A stage with
        // others behind it would give them poisoned values again and again.
        let must_be_right = writes || prepared.stages.len() > 1;
        let ahead = self.runs_ahead
            && stage.update.is_none()
            && !(must_be_right && stage.program.finds_mistakes());
        if writes || !ahead {
            let settled = self.devices.slot(stage.device).backend.settle();
            settled.map_err(|e| self.failed(&prepared.plan, stage.first, stage.device, e))?;
        }
        self.gather(prepared, index, inputs)?;
        let Prepared {
            plan,
            stages,
            operands,
            targets,
            profile,
            launches,
            ..
        } = prepared;
        let stage = &stages[index];
        let launches = &mut launches[index];
        let slot = self.devices.slot(stage.device);
        let Onlookers {
            profiling,
            observers,
        } = onlookers;
        // A device works off launches that come together faster than one by one.
        let at_once = stage.program.is_queued() && (self.is_checked || ahead);
        let observes_each = observers.is_some() && (!at_once || launches.are_to_be_timed());
        let is_timed = profiling || observes_each;
        let run = |probe: &dyn Probe| match (self.is_checked, ahead) {
            _ if is_timed => stage.program.run(operands, targets, probe),
            (true, _) => stage.program.queue(operands, targets, probe),
            (false, true) => stage.program.run_ahead(operands, targets, probe),
            (false, false) => stage.program.run(operands, targets, probe),
        };
        let mut watched = |probe: &dyn Probe| match stage.update {
            None => run(probe),
            Some(update) => {
                let watch = Watch::new(probe, update);
                let ran = run(&watch);
                *is_past |= watch.is_past();
                ran
            }
        };
        let device = slot.owner.device;
        let ran = match observers {
            _ if is_timed => {
                let mut timer = Timer::new(stage.first);
                if profiling {
                    timer = timer.noting(profile);
                }
                if let Some(observers) = observers {
                    timer = timer.telling(observers, &plan.graph, device, launches);
                }
                let ran = watched(&timer);
                let nodes = plan.segments[index].graph.nodes().len();
                timer.finish(ran.is_ok().then_some(nodes));
                ran
            }
            Some(observers) => watched(&Whole(launches.watcher(device, observers))),
            None => watched(&NoProbe),
        };
        if stage.update.is_none() || *is_past {
            for &(source, write) in &stage.operands {
                if let (Source::Input(i), true) = (source, write)
                    && let Some(state) = inputs.get(i)
                {
                    state.wrote(&slot.owner);
                }
            }
        }
        ran.map_err(|e| self.failed(plan, stage.first, stage.device, e))?;
        slot.runs.fetch_add(1, Ordering::Relaxed);
        slot.owner.accessed(operands.len() + targets.len());
        self.devices.journal.count_conversions(stage.conversions);
        (self.devices.journal).count_computed(plan.segments[index].nodes().len() as u64);
        Ok(())
    }

    /// Brings a stage's operands to its device, and makes room for its results.
    fn gather(&self, prepared: &mut Prepared, index: usize, inputs: Inputs) -> Result<(), Attempt> {
        let Prepared {
            plan,
            stages,
            results,
            operands,
            targets,
            ..
        } = prepared;
        let stage = &stages[index];
        let slot = self.devices.slot(stage.device);
        let (owner, memory) = (&slot.owner, slot.backend.memory());
        let fail = |e| self.failed(plan, stage.first, stage.device, e);
        operands.clear();
        for &(source, write) in &stage.operands {
            let storage = match source {
                Source::Input(i) => inputs.get(i),
                Source::Result(i) => results[i].as_ref(),
            };
            let buffer = match storage {
                Some(storage) => storage.on(owner, memory, write),
                None => Err(StorageError::Gone),
            };
            operands.push(
                buffer.map_err(|e| match (e.on_device(owner.device), source) {
                    (Some(e), _) => fail(e),
                    (None, Source::Input(input)) => Attempt::Final(RunError::DataLost {
                        input,
                        during: None,
                    }),
                    (None, Source::Result(_)) => Attempt::Again,
                })?,
            );
        }
        targets.clear();
        for (k, &(result, bytes)) in stage.targets.iter().enumerate() {
            let room = slot.room_for(&mut results[result], bytes);
            targets.push(room.map_err(|e| fail(plan.segments[index].without_room(k, e)))?);
        }
        Ok(())
    }

    /// Allocates the results of all stages. So none fails for lack of memory after an update that must not run
    /// twice.
    fn reserve(&self, prepared: &mut Prepared) -> Result<(), Attempt> {
        let plan = &prepared.plan;
        for (stage, segment) in prepared.stages.iter().zip(&plan.segments) {
            let slot = self.devices.slot(stage.device);
            for (k, &(result, bytes)) in stage.targets.iter().enumerate() {
                let room = slot.room_for(&mut prepared.results[result], bytes);
                let no_room = |e| segment.without_room(k, e);
                room.map_err(|e| self.failed(plan, stage.first, stage.device, no_room(e)))?;
            }
        }
        Ok(())
    }

    /// A failure after the first update that must not run twice: the loss of all states that the graph updates.
    fn lose_states(&self, inputs: Inputs, writes: &[bool], failed: Attempt) -> Attempt {
        let during = match failed {
            Attempt::Failed(failure) => {
                let Failure { device, error, .. } = *failure;
                if error.class.loses_device() {
                    self.devices.slot(device).owner.set_lost();
                }
                self.devices.journal.count_fault(&error);
                Some(Box::new(error))
            }
            Attempt::Final(_) | Attempt::Again => None,
        };
        let mut first = None;
        for (input, (state, &write)) in inputs.iter().zip(writes).enumerate() {
            if write {
                state.lose();
                first.get_or_insert(input);
            }
        }
        Attempt::Final(RunError::DataLost {
            input: first.unwrap_or_default(),
            during,
        })
    }
}
