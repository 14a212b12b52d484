//! Runs graphs, and answers failures.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustorch_ir::{Graph, Node, Op, Role, TensorType, ValueId};
use smallvec::SmallVec;

use crate::planner::{Constraints, plan};
use crate::storage::{Owner, StorageError};
use crate::{
    Backend, DeviceBuffer, DeviceError, DeviceId, DeviceInfo, DeviceType, Explanation,
    FailureClass, Fallback, NoProbe, Plan, Program, RunError, Storage,
};

/// Graphs that a runtime remembers the programs of.
const CACHED_GRAPHS: usize = 256;

/// Failures that a runtime remembers.
const REMEMBERED_FALLBACKS: usize = 1000;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The devices and what has been learnt about them.
pub(crate) struct Devices {
    slots: Vec<Slot>,
    /// What a device has turned out not to support.
    unsupported: Mutex<HashSet<(DeviceId, Memo)>>,
    /// Counts what makes plans outdated.
    epoch: AtomicU64,
    fallbacks: Mutex<Vec<Fallback>>,
}

struct Slot {
    backend: Arc<dyn Backend>,
    owner: Arc<Owner>,
    /// Segments that ran here.
    runs: AtomicU64,
}

/// An operation with its operand and result types: what support is remembered by.
type Memo = (Op, SmallVec<[TensorType; 4]>, TensorType);

fn memo(graph: &Graph, node: &Node) -> Memo {
    let inputs = node.inputs.iter().map(|&v| graph.ty(v).clone()).collect();
    (node.op.clone(), inputs, node.output.clone())
}

impl Devices {
    pub(crate) fn backend(&self, device: DeviceId) -> &dyn Backend {
        &*self.slots[device.0].backend
    }

    pub(crate) fn is_lost(&self, device: DeviceId) -> bool {
        self.slots[device.0].owner.is_lost()
    }

    fn device_type(&self, device: DeviceId) -> DeviceType {
        self.backend(device).info().device
    }
}

/// Which devices a graph may use.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Routing {
    /// The device asked for; [`DeviceType::Auto`] for the chain.
    pub device: DeviceType,
    /// No falling back: what the first device cannot do is an error.
    pub strict: bool,
}

impl Default for Routing {
    fn default() -> Self {
        Self {
            device: DeviceType::Auto,
            strict: false,
        }
    }
}

type Cache = HashMap<(Graph, Routing), Arc<Executable>>;

/// Devices in their order of preference, and graphs compiled for them.
///
/// Clones share everything.
#[derive(Clone)]
pub struct Runtime {
    devices: Arc<Devices>,
    cache: Arc<Mutex<Cache>>,
}

impl Runtime {
    /// A runtime of these devices, best first.
    pub fn new(backends: impl IntoIterator<Item = Arc<dyn Backend>>) -> Self {
        let slot = |backend: Arc<dyn Backend>| Slot {
            owner: Owner::new(backend.info().device),
            backend,
            runs: AtomicU64::new(0),
        };
        Self {
            devices: Arc::new(Devices {
                slots: backends.into_iter().map(slot).collect(),
                unsupported: Mutex::default(),
                epoch: AtomicU64::new(0),
                fallbacks: Mutex::default(),
            }),
            cache: Arc::default(),
        }
    }

    /// What each device says of itself.
    pub fn devices(&self) -> impl Iterator<Item = &DeviceInfo> {
        self.devices.slots.iter().map(|s| s.backend.info())
    }

    /// The devices that have run something, with the number of segments.
    pub fn used_devices(&self) -> Vec<(DeviceType, u64)> {
        let slots = self.devices.slots.iter();
        slots
            .map(|s| (s.backend.info().device, s.runs.load(Ordering::Relaxed)))
            .filter(|&(_, runs)| runs > 0)
            .collect()
    }

    /// The failures so far, oldest first.
    pub fn fallbacks(&self) -> Vec<Fallback> {
        lock(&self.devices.fallbacks).clone()
    }

    /// Prepares `graph` to be run often. Planning happens with the first run.
    pub fn prepare(&self, graph: Graph, routing: Routing) -> Executable {
        Executable {
            devices: self.devices.clone(),
            graph,
            routing,
            prepared: Mutex::default(),
        }
    }

    /// Runs `graph` once; its program is remembered for graphs that are equal.
    ///
    /// # Errors
    /// See [`Executable::run`].
    pub fn run(
        &self,
        graph: &Graph,
        inputs: &[Storage],
        routing: Routing,
    ) -> Result<Vec<Storage>, RunError> {
        let executable = self.cached(graph, routing);
        executable.run(inputs)
    }

    fn cached(&self, graph: &Graph, routing: Routing) -> Arc<Executable> {
        let mut cache = lock(&self.cache);
        let key = (graph.clone(), routing);
        if let Some(executable) = cache.get(&key) {
            return executable.clone();
        }
        if cache.len() >= CACHED_GRAPHS {
            cache.clear();
        }
        let executable = Arc::new(self.prepare(graph.clone(), routing));
        cache.insert(key, executable.clone());
        executable
    }

    /// The device whose memory a storage is in: [`DeviceType::Cpu`] if it is only the host's.
    pub fn device_of(&self, storage: &Storage) -> DeviceType {
        storage.device().unwrap_or(DeviceType::Cpu)
    }

    /// Copies a storage's bytes from `offset` on to the host.
    ///
    /// # Errors
    /// The only copy was on a device that is lost. The range must lie inside the storage.
    pub fn read(&self, storage: &Storage, offset: usize, to: &mut [u8]) -> Result<(), RunError> {
        let result = storage.read(offset, to);
        result.map_err(|e| data_error(e, 0, DeviceType::Auto))
    }

    /// Replaces a storage's bytes.
    ///
    /// # Errors
    /// The host is out of memory.
    pub fn write(&self, storage: &Storage, from: &[u8]) -> Result<(), RunError> {
        let result = storage.write(from);
        result.map_err(|e| data_error(e, 0, DeviceType::Auto))
    }
}

fn data_error(e: StorageError, input: usize, device: DeviceType) -> RunError {
    match e.on_device(device) {
        Some(e) => RunError::Device(e),
        None => RunError::DataLost { input },
    }
}

/// A graph that is planned once and run often.
pub struct Executable {
    devices: Arc<Devices>,
    graph: Graph,
    routing: Routing,
    prepared: Mutex<Option<Prepared>>,
}

/// A plan with its programs.
struct Prepared {
    epoch: u64,
    plan: Plan,
    programs: Vec<Box<dyn Program>>,
    /// Storage of each value of the plan's graph during a run.
    values: Vec<Option<Storage>>,
    /// Buffers of the segment that is running.
    inputs: Vec<Arc<dyn DeviceBuffer>>,
    outputs: Vec<Arc<dyn DeviceBuffer>>,
}

/// A failure while planning or running, with what it happened to.
enum Attempt {
    Final(RunError),
    Failed(Box<Failure>),
}

struct Failure {
    device: DeviceId,
    error: DeviceError,
    memo: Option<Memo>,
}

impl From<RunError> for Attempt {
    fn from(e: RunError) -> Self {
        Self::Final(e)
    }
}

/// What a run learns of devices that are full. A plan made with it is kept.
#[derive(Default)]
struct RunMemory {
    /// Devices that were out of memory once: they have been asked to free some.
    trimmed: HashSet<DeviceId>,
    /// Devices that were out of memory again.
    full: HashSet<DeviceId>,
}

struct Limits<'a> {
    devices: &'a Devices,
    run: &'a RunMemory,
}

impl Constraints for Limits<'_> {
    fn forbids(&self, device: DeviceId, graph: &Graph, node: &Node) -> Option<String> {
        if self.devices.is_lost(device) {
            return Some("lost".to_owned());
        }
        if self.run.full.contains(&device) {
            return Some("out of memory".to_owned());
        }
        let unsupported = lock(&self.devices.unsupported);
        let known = !unsupported.is_empty() && unsupported.contains(&(device, memo(graph, node)));
        known.then(|| "failed as unsupported before".to_owned())
    }
}

impl Executable {
    /// The graph that this runs.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// Runs the graph. Inputs it updates as state are changed in place; outputs are new.
    ///
    /// # Errors
    /// [`RunError`]; a failure of a device becomes one only when no device is left to turn
    /// to, or in strict mode.
    pub fn run(&self, inputs: &[Storage]) -> Result<Vec<Storage>, RunError> {
        self.check(inputs)?;
        let mut prepared = lock(&self.prepared);
        let mut memory = RunMemory::default();
        loop {
            match self.attempt(&mut prepared, inputs, &memory) {
                Ok(outputs) => return Ok(outputs),
                Err(Attempt::Final(e)) => return Err(e),
                Err(Attempt::Failed(failure)) => {
                    self.answer(*failure, &mut memory, &mut prepared)?;
                }
            }
        }
    }

    /// Where each operation would go now, and why.
    ///
    /// # Errors
    /// No device can run some operation.
    pub fn explain(&self) -> Result<Vec<Explanation>, RunError> {
        Ok(self.plan(&RunMemory::default())?.explain(&self.devices))
    }

    fn check(&self, inputs: &[Storage]) -> Result<(), RunError> {
        for (input, ty) in self.graph.inputs().iter().enumerate() {
            let got = inputs.get(input).map_or(0, Storage::bytes);
            let expected = ty.bytes();
            if got != expected {
                return Err(RunError::WrongInput {
                    input,
                    expected,
                    got,
                });
            }
        }
        Ok(())
    }

    /// The devices that may be used, best first.
    fn chain(&self) -> SmallVec<[DeviceId; 4]> {
        let wanted = self.routing.device;
        let all = (0..self.devices.slots.len()).map(DeviceId);
        match wanted {
            DeviceType::Auto if self.routing.strict => all.take(1).collect(),
            DeviceType::Auto => all.collect(),
            _ => {
                let is_wanted = |&d: &DeviceId| self.devices.device_type(d) == wanted;
                let rest = all.clone().filter(|d| !is_wanted(d));
                let first: SmallVec<[DeviceId; 4]> = all.clone().filter(is_wanted).collect();
                match self.routing.strict {
                    true => first,
                    false => first.into_iter().chain(rest).collect(),
                }
            }
        }
    }

    fn plan(&self, run: &RunMemory) -> Result<Plan, RunError> {
        let devices = &*self.devices;
        let chain = self.chain();
        if chain.is_empty() {
            return Err(RunError::NoDevice {
                op: "anything".to_owned(),
                tried: format!("{} is not on this machine", self.routing.device),
            });
        }
        plan(&self.graph, devices, &chain, &Limits { devices, run })
    }

    fn attempt(
        &self,
        prepared: &mut Option<Prepared>,
        inputs: &[Storage],
        memory: &RunMemory,
    ) -> Result<Vec<Storage>, Attempt> {
        let epoch = self.devices.epoch.load(Ordering::Acquire);
        let current = match prepared {
            Some(p) if p.epoch == epoch => p,
            _ => prepared.insert(self.compile(epoch, memory)?),
        };
        let result = self.execute(current, inputs);
        // Storages and buffers must not outlive the run.
        current.values.clear();
        current.inputs.clear();
        current.outputs.clear();
        result
    }

    fn compile(&self, epoch: u64, memory: &RunMemory) -> Result<Prepared, Attempt> {
        let plan = self.plan(memory)?;
        let mut programs = Vec::with_capacity(plan.segments.len());
        for segment in &plan.segments {
            let backend = self.devices.backend(segment.device);
            let program = backend.compile(&segment.graph);
            programs
                .push(program.map_err(|e| self.failed(&plan, segment.first, segment.device, e))?);
        }
        Ok(Prepared {
            epoch,
            plan,
            programs,
            values: Vec::new(),
            inputs: Vec::new(),
            outputs: Vec::new(),
        })
    }

    fn failed(&self, plan: &Plan, first: usize, device: DeviceId, error: DeviceError) -> Attempt {
        let node = error.node.and_then(|i| plan.graph.nodes().get(first + i));
        Attempt::Failed(Box::new(Failure {
            device,
            memo: node.map(|n| memo(&plan.graph, n)),
            error,
        }))
    }

    fn execute(
        &self,
        prepared: &mut Prepared,
        inputs: &[Storage],
    ) -> Result<Vec<Storage>, Attempt> {
        let Prepared {
            plan,
            programs,
            values,
            inputs: buffers,
            outputs,
            ..
        } = prepared;
        values.extend(inputs.iter().cloned().map(Some));
        values.resize(plan.graph.len(), None);
        let held = Held::acquire(inputs, plan)?;
        for (segment, program) in plan.segments.iter().zip(programs) {
            let device = segment.device;
            let device_type = self.devices.device_type(device);
            let slot = &self.devices.slots[device.0];
            let fail = |e| self.failed(plan, segment.first, device, e);
            buffers.clear();
            for (&value, &write) in segment.inputs.iter().zip(&segment.writes) {
                // A state is read where it was given.
                let root = plan.graph.state_root(value).unwrap_or(value);
                let storage = values[root.index()].as_ref();
                let buffer = match storage {
                    Some(s) => s.on(&slot.owner, slot.backend.memory(), write),
                    None => Err(StorageError::Gone),
                };
                buffers.push(buffer.map_err(|e| match e.on_device(device_type) {
                    Some(e) => fail(e),
                    None if root.index() < inputs.len() => Attempt::Final(RunError::DataLost {
                        input: root.index(),
                    }),
                    // An intermediate result is computed again.
                    None => fail(DeviceError::new(
                        device_type,
                        FailureClass::Lost,
                        "an intermediate result was lost",
                    )),
                })?);
            }
            outputs.clear();
            for &value in &segment.outputs {
                let bytes = plan.graph.ty(value).bytes();
                let buffer = slot.backend.memory().alloc(bytes);
                let buffer = buffer.map_err(&fail)?;
                values[value.index()] =
                    Some(Storage::on_device(slot.owner.clone(), buffer.clone()));
                outputs.push(buffer);
            }
            program.run(buffers, outputs, &NoProbe).map_err(&fail)?;
            slot.runs.fetch_add(1, Ordering::Relaxed);
        }
        drop(held);
        let output = |&v: &ValueId| {
            let root = plan.graph.state_root(v).unwrap_or(v);
            values[root.index()].clone()
        };
        let outputs: Option<Vec<Storage>> = plan.graph.outputs().iter().map(output).collect();
        outputs.ok_or_else(|| {
            let op = "graph".to_owned();
            let tried = "an output was computed by no segment".to_owned();
            Attempt::Final(RunError::NoDevice { op, tried })
        })
    }

    /// Decides what follows from a failure: `Ok` to try again.
    fn answer(
        &self,
        failure: Failure,
        memory: &mut RunMemory,
        prepared: &mut Option<Prepared>,
    ) -> Result<(), RunError> {
        let Failure {
            device,
            error,
            memo,
        } = failure;
        if error.class == FailureClass::Caller || self.routing.strict {
            return Err(RunError::Device(error));
        }
        *prepared = None;
        let slot = &self.devices.slots[device.0];
        // Each answer rules something out that was not before, so that this ends.
        let memo = memo.filter(|(op, ..)| op.def().role() != Role::View);
        let learnt = error.class == FailureClass::Unsupported
            && memo.is_some_and(|m| lock(&self.devices.unsupported).insert((device, m)));
        match error.class {
            FailureClass::Unsupported if learnt => {
                self.devices.epoch.fetch_add(1, Ordering::Release);
            }
            FailureClass::OutOfMemory { never_fits: false } if memory.trimmed.insert(device) => {
                slot.backend.memory().trim();
            }
            FailureClass::OutOfMemory { .. } | FailureClass::Unsupported => {
                memory.full.insert(device);
            }
            FailureClass::Lost => {
                slot.owner.set_lost();
                self.devices.epoch.fetch_add(1, Ordering::Release);
            }
            FailureClass::Caller => {}
        }
        let to = self.next_device(&error, memory);
        let fallback = Fallback { error, to };
        tracing::warn!("{fallback}");
        let mut fallbacks = lock(&self.devices.fallbacks);
        if fallbacks.len() < REMEMBERED_FALLBACKS {
            fallbacks.push(fallback);
        }
        Ok(())
    }

    /// Where what failed goes now: the device that the new plan has for that operation.
    fn next_device(&self, error: &DeviceError, memory: &RunMemory) -> Option<DeviceType> {
        let plan = self.plan(memory).ok()?;
        let rows = plan.explain(&self.devices);
        let of_op = |row: &&Explanation| error.op.is_none_or(|op| row.op == op);
        // An operation that is made of others there has no row, but its neighbours have.
        let row = rows.iter().rev().find(of_op).or(rows.last());
        row.map(|row| row.device)
    }
}

/// The storages of a run, registered as in use.
struct Held<'a> {
    storages: &'a [Storage],
    writes: SmallVec<[bool; 64]>,
}

impl<'a> Held<'a> {
    fn acquire(storages: &'a [Storage], plan: &Plan) -> Result<Self, Attempt> {
        let mut writes: SmallVec<[bool; 64]> = SmallVec::from_elem(false, storages.len());
        for segment in &plan.segments {
            for (value, _) in segment
                .inputs
                .iter()
                .zip(&segment.writes)
                .filter(|(_, w)| **w)
            {
                if let Some(root) = plan.graph.state_root(*value) {
                    writes[root.index()] = true;
                }
            }
        }
        for (input, storage) in storages.iter().enumerate() {
            if !storage.acquire(writes[input]) {
                let held = Held {
                    storages: &storages[..input],
                    writes,
                };
                drop(held);
                return Err(Attempt::Final(RunError::Busy { input }));
            }
        }
        Ok(Self { storages, writes })
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        for (storage, &write) in self.storages.iter().zip(&self.writes) {
            storage.release(write);
        }
    }
}
