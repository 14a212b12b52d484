//! The crate's main interface: devices, graphs that are compiled for them, their memory.

use std::hash::{BuildHasher, BuildHasherDefault, Hash};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, Weak};

use rustorch_ir::passes::Rule;
use rustorch_ir::{DType, FoldingHasher, Graph, Op, OpError, Scalar, TensorType};
use smallvec::SmallVec;

use crate::devices::policy::Policy;
use crate::devices::{Devices, Reserve, Slot};
use crate::exec::Executable;
use crate::journal::{Cause, lock};
use crate::memory::copies::StorageError;
use crate::plan::estimate::Locations;
use crate::plan::plan_cache::PlanCache;
use crate::plan::typical::{alone, typical};
use crate::{
    Backend, Costs, DeviceCapability, DeviceInfo, DeviceSelector, DeviceType, Explanation,
    Fallback, Fetched, Hardware, HostBuffer, HostWork, MemoryManager, NodeNote, Observer, OpType,
    Outline, PlanCounters, Route, Routing, RunError, Source, Span, Storage, TensorInfo,
};

/// Graphs that were run before.
type Cache = PlanCache<Executable>;

/// Numbers that are kept.
const KEPT_NUMBERS: usize = 256;

impl Reserve for Mutex<Cache> {
    fn give_back(&self) {
        let cleared = lock(self).clear();
        drop(cleared);
    }
}

fn hash_of(key: &impl Hash) -> u64 {
    BuildHasherDefault::<FoldingHasher>::default().hash_one(key)
}

/// The results of a graph, in the order of its outputs.
pub type Results = SmallVec<[Storage; 1]>;

/// Bytes that recipes may keep at first, where a device runs ahead.
const RECIPE_BYTES: u64 = 256 << 20;

/// A graph that is to be run: how it is known, and made if it is not.
struct Asked<I, M> {
    hash: u64,
    is_it: I,
    make: M,
    /// The same as [`Executable::running_ahead`].
    runs_ahead: bool,
}

/// Devices in their order of preference, and graphs compiled for them.
///
/// Clones share everything.
#[derive(Clone)]
pub struct Runtime {
    pub(crate) devices: Arc<Devices>,
    cache: Arc<Mutex<Cache>>,
}

impl Runtime {
    /// A runtime with these devices. They are put into the platform's order: Core ML, Metal, CUDA,
    /// OpenCL, CPU, the processor through other drivers, the reference; those of one kind stay as
    /// they are given.
    pub fn new(backends: impl IntoIterator<Item = Arc<dyn Backend>>) -> Self {
        let cache = Arc::<Mutex<Cache>>::default();
        let reserve: Weak<Mutex<Cache>> = Arc::downgrade(&cache);
        let runtime = Self {
            devices: Arc::new(Devices::new(backends, reserve)),
            cache,
        };
        let slots = runtime.devices.slots();
        if slots.iter().any(|slot| slot.backend.runs_ahead()) {
            runtime.set_recipe_limit(RECIPE_BYTES);
        }
        runtime
    }

    /// The description of each device, in the platform's order.
    pub fn devices(&self) -> impl Iterator<Item = &DeviceInfo> {
        self.devices.slots().iter().map(|s| s.backend.info())
    }

    /// [`Backend::streams`] of a device; 0 if there is none.
    pub fn streams(&self, device: DeviceType) -> usize {
        let slot = self.devices.named(device).next();
        slot.map_or(0, |slot| slot.backend.streams())
    }

    /// The capabilities of each device. The devices are queried only once.
    pub fn capabilities(&self) -> impl Iterator<Item = &DeviceCapability> {
        let ids = self.devices.ids();
        ids.map(|id| self.devices.capability(id))
    }

    /// The devices that have run segments, with their numbers.
    pub fn used_devices(&self) -> Vec<(DeviceType, u64)> {
        let slots = self.devices.slots().iter();
        slots
            .map(|s| (s.owner.device, s.runs.load(Ordering::Relaxed)))
            .filter(|&(_, runs)| runs > 0)
            .collect()
    }

    /// Returns whether this device was lost.
    pub fn is_lost(&self, device: DeviceType) -> bool {
        self.devices.named(device).any(|slot| slot.owner.is_lost())
    }

    /// The failures so far, oldest first.
    pub fn fallbacks(&self) -> Vec<Fallback> {
        self.devices.journal.fallbacks()
    }

    /// The contents of the devices' memory, and transfers between them.
    pub fn memory(&self) -> MemoryManager {
        MemoryManager::new(self.devices.clone())
    }

    /// Sends an operation, or a family of them, to a device from now on. Pins take precedence over
    /// routes, and routes over the device that a run requests.
    pub fn set_route(&self, route: impl Into<Route>, device: DeviceType) {
        let route = route.into();
        self.change_policy(|policy| {
            policy.routes.insert(route, device);
        });
    }

    /// Removes all routes.
    pub fn clear_routes(&self) {
        self.change_policy(|policy| policy.routes.clear());
    }

    /// Adds a rule before the known ones. It finds operations that a
    /// [`Composite`](rustorch_ir::ops::Composite) can replace, on devices that support it.
    pub fn add_fusion(&self, rule: Rule) {
        self.change_policy(|policy| policy.fusions.push(rule));
    }

    /// Replaces the rules of [`DeviceType::Auto`].
    pub fn set_selector(&self, selector: DeviceSelector) {
        self.change_policy(|policy| policy.selector = selector);
    }

    /// The measured speed of a device; `None` if it was not measured.
    pub fn costs(&self, device: DeviceType) -> Option<Arc<Costs>> {
        self.devices.named(device).find_map(Slot::costs)
    }

    /// Sets the measured times of `device`, as [`Runtime::measure`] finds them.
    /// [`Explanation::expected`](crate::Explanation) reports them. If two devices have times, the
    /// [`DeviceSelector`] compares them. `None` removes them.
    pub fn set_costs(&self, device: DeviceType, costs: Option<Costs>) {
        let costs = costs.map(Arc::new);
        for slot in self.devices.named(device) {
            lock(&slot.costs).clone_from(&costs);
        }
        let slots = self.devices.slots().iter();
        let measured = slots.filter(|slot| slot.costs().is_some()).count();
        (self.devices.compares).store(measured > 1, Ordering::Relaxed);
        self.devices.journal.outdate("measured times were changed");
    }

    fn change_policy(&self, change: impl FnOnce(&mut Policy)) {
        change(&mut lock(&self.devices.policy));
        self.devices.journal.outdate("routes or rules were changed");
    }

    /// Waits until nothing is compiled in the background, see
    /// [`Backend::compilation`](crate::Backend::compilation): the next runs use the compiled
    /// programs.
    pub fn wait_for_compilation(&self) {
        self.devices.compiler.wait();
    }

    /// Sets whether slow compilations run in the background while other devices compute. The default is yes.
    /// Measurements and checks of devices should switch it off, so that they wait for programs.
    pub fn set_background_compilation(&self, on: bool) {
        self.devices.waits.store(!on, Ordering::Relaxed);
    }

    /// Sets whether runs are timed for [`Executable::explain`].
    pub fn set_profiling(&self, on: bool) {
        self.devices.profiling.store(on, Ordering::Relaxed);
    }

    /// Adds `observer`, which receives events from now on.
    pub fn add_observer(&self, observer: Arc<dyn Observer>) {
        self.devices.journal.gallery.add(observer);
        let slots = self.devices.slots().iter();
        slots.for_each(|slot| slot.owner.tell_memory());
    }

    /// Waits for queued work, reports it to `observer`, and removes the observer.
    pub fn remove_observer(&self, observer: &Arc<dyn Observer>) {
        for slot in self.devices.slots() {
            // A failure is reported to the callers that it concerns.
            let _ = slot.backend.wait();
        }
        self.devices.journal.gallery.remove(observer);
    }

    /// Reports a span of this thread to observers. The span ends when the guard is dropped. Without
    /// observers it costs almost nothing.
    pub fn span(&self, name: &str) -> Span {
        (self.devices.journal.gallery).begin(HostWork::Range, || name)
    }

    /// The devices that would be tried for an operation of a family on such a tensor, best first.
    /// The operation is a separate graph. The planner decides by a typical operation. One is a
    /// product with a matrix that is no larger. One is a convolution of 3 × 3 to as many channels.
    /// One is ReLU, or for integers a sum of two. Others are a sum or softmax along the last
    /// dimension, a product of two complex tensors, and normal numbers. Empty if the family has
    /// none for the tensor, or no device can run it.
    pub fn candidates(
        &self,
        op_type: OpType,
        tensor: &TensorInfo,
        routing: Routing,
    ) -> Vec<DeviceType> {
        let Some(graph) = typical(op_type, &tensor.ty) else {
            return Vec::new();
        };
        self.able(graph, routing, tensor.custom_kernel)
    }

    /// The devices that the planner would try for an operation on operands of these types, best first. The operation
    /// is a separate graph. Empty if it is not defined for them, or no device can run it.
    pub fn candidates_of(
        &self,
        op: &Op,
        inputs: &[TensorType],
        routing: Routing,
    ) -> Vec<DeviceType> {
        let graph = alone(op.clone(), inputs);
        graph.map_or_else(|_| Vec::new(), |graph| self.able(graph, routing, false))
    }

    fn able(&self, graph: Graph, routing: Routing, custom_kernel: bool) -> Vec<DeviceType> {
        self.prepare(graph, routing).candidates(custom_kernel)
    }

    /// Returns whether there is a GPU that was not lost.
    pub fn has_gpu(&self) -> bool {
        let slots = self.devices.slots().iter();
        let gpus = slots.filter(|s| s.backend.info().hardware == Hardware::Gpu);
        gpus.filter(|s| !s.owner.is_lost()).count() > 0
    }

    /// Prepares `graph` to be run often. Planning happens with the first run, and assumes inputs on
    /// the host; see [`Executable::with_fresh_inputs`].
    pub fn prepare(&self, graph: Graph, routing: Routing) -> Executable {
        Executable::new(self.devices.clone(), graph, routing, Locations::new(), true)
    }

    /// The device of each operation of `graph` if it were run on these inputs now, and why. `note` adds
    /// information about a node, by its index.
    ///
    /// # Errors
    /// Fails if no device can run some operation.
    pub fn explain(
        &self,
        graph: Graph,
        inputs: &[Storage],
        routing: Routing,
        note: &dyn Fn(usize) -> NodeNote,
    ) -> Result<Vec<Explanation>, RunError> {
        let devices = self.devices.clone();
        let executable = Executable::new(devices, graph, routing, self.places(inputs), false);
        executable.explain_known(&self.devices.places(inputs), note)
    }

    /// Runs `graph` once; its program is kept for equal graphs.
    ///
    /// # Errors
    /// See [`Executable::run`].
    pub fn run(
        &self,
        graph: &Graph,
        inputs: &[Storage],
        routing: Routing,
    ) -> Result<Vec<Storage>, RunError> {
        let asked = Asked {
            hash: hash_of(&graph),
            is_it: |known: &Graph| known == graph,
            make: || Ok(graph.clone()),
            runs_ahead: false,
        };
        let mut outputs = Vec::with_capacity(graph.outputs().len());
        self.run_asked(asked, inputs, routing, |output| outputs.push(output))?;
        Ok(outputs)
    }

    /// [`Runtime::run`] of a graph that is made only if it is not known yet. With `runs_ahead`, it
    /// may return while devices still work. This suits callers who can compute lost results again.
    /// Later failures show when results are read, as a loss of the device.
    ///
    /// # Errors
    /// The same errors as [`Runtime::run`]. Also the errors of [`Outline::graph`].
    pub fn run_outline(
        &self,
        outline: &Outline,
        inputs: &[Storage],
        routing: Routing,
        runs_ahead: bool,
    ) -> Result<Results, RunError> {
        let asked = Asked {
            hash: hash_of(outline),
            is_it: |known: &Graph| outline.is(known),
            make: || outline.graph(),
            runs_ahead,
        };
        let mut outputs = Results::with_capacity(outline.outputs());
        self.run_asked(asked, inputs, routing, |output| outputs.push(output))?;
        Ok(outputs)
    }

    fn run_asked(
        &self,
        asked: Asked<impl Fn(&Graph) -> bool, impl FnOnce() -> Result<Graph, OpError>>,
        inputs: &[Storage],
        routing: Routing,
        mut give: impl FnMut(Storage),
    ) -> Result<(), RunError> {
        let Asked {
            hash,
            is_it,
            make,
            runs_ahead,
        } = asked;
        let places = self.places(inputs);
        let hash = hash_of(&(hash, routing, &places, runs_ahead));
        let is_known = |e: &Executable| {
            let is_same = e.routing() == routing && e.runs_ahead == runs_ahead;
            is_same && *e.places() == places && is_it(e.graph())
        };
        let found = lock(&self.cache).find(hash, is_known);
        if let Some(executable) = found {
            return executable.run_and_give(&[inputs], &mut give);
        }
        let executable = Executable::new(self.devices.clone(), make()?, routing, places, false);
        let executable = self.insert(hash, executable.running_ahead(runs_ahead));
        let ran = executable.run_and_give(&[inputs], &mut give);
        // The size of a plan is known after its first run.
        let evicted = lock(&self.cache).charge(hash, &executable, executable.footprint());
        drop(evicted);
        ran
    }

    /// The operands' device, which decides only if there is a choice.
    fn places(&self, inputs: &[Storage]) -> Locations {
        match self.devices.compares.load(Ordering::Relaxed) {
            true => self.devices.places(inputs),
            false => Locations::new(),
        }
    }

    fn insert(&self, hash: u64, executable: Executable) -> Arc<Executable> {
        let mut cache = lock(&self.cache);
        let cause = match cache.was_evicted(hash) {
            true => Cause::Evicted,
            false => Cause::New,
        };
        let executable = Arc::new(executable.because_of(cause));
        let replaced = cache.insert(hash, executable.clone());
        // Dropping a program may take time, so the lock is released first.
        drop(cache);
        drop(replaced);
        executable
    }

    /// A number as an operand, of a dtype that is not a block format: only to be read. Repeated
    /// inputs use the copies that devices have made of them.
    ///
    /// # Errors
    /// Fails if the host is out of memory.
    pub fn number(&self, number: Scalar, dtype: DType) -> Result<Storage, RunError> {
        let mut numbers = lock(&self.devices.numbers);
        if let Some(storage) = numbers.get(&(number, dtype)) {
            return Ok(storage.clone());
        }
        let storage = HostBuffer::copy_of(&number.to_bytes(dtype)).map(Storage::from_host);
        let Some(storage) = storage else {
            let full = StorageError::NoHostMemory;
            return Err(full.into_run_error(DeviceType::Cpu));
        };
        if numbers.len() >= KEPT_NUMBERS {
            numbers.clear();
        }
        numbers.insert((number, dtype), storage.clone());
        Ok(storage)
    }

    /// Number of operations that devices have computed, including views and fused ones.
    pub fn computed(&self) -> u64 {
        self.devices.journal.computed()
    }

    /// Numbers of planned graphs with reasons, and the size of their plans.
    pub fn plans(&self) -> PlanCounters {
        let mut counters = self.devices.journal.plan_counters();
        lock(&self.cache).count(&mut counters);
        counters
    }

    /// Sets the limit in bytes for plans of graphs that are [run](Self::run) by themselves. The least recently used
    /// plans are evicted first.
    pub fn set_plan_limit(&self, bytes: usize) {
        let evicted = lock(&self.cache).set_limit(bytes);
        drop(evicted);
    }

    /// Makes computed tensors remember their recipes from now on. So they survive the loss of the device with their
    /// only copy: they are computed again. Host memory that recipes need is kept, up to about `bytes` otherwise unused
    /// bytes; 0 disables recipes. Each operation takes about another kilobyte. The default is 256 MiB if a device [runs
    /// ahead](crate::Backend::runs_ahead), else 0.
    ///
    /// The limit is enforced at every evaluation. Beyond it the oldest recipes are dropped; tensors
    /// computed from them are then lost with their device.
    pub fn set_recipe_limit(&self, bytes: u64) {
        self.devices.sources.set_limit(bytes);
    }

    /// Returns whether tensors that are computed now [remember how](Self::set_recipe_limit).
    pub fn keeps_recipes(&self) -> bool {
        self.devices.sources.is_on()
    }

    /// Bytes that are kept only so that [others can be computed again](Self::set_recipe_limit).
    pub fn recipe_bytes(&self) -> u64 {
        self.devices.sources.bytes()
    }

    /// Keeps a storage so that something can be computed from it again; `None` where nothing is
    /// [kept](Self::set_recipe_limit), or if the host has no copy of it.
    pub fn keep(&self, storage: &Storage) -> Option<Source> {
        self.devices.sources.keep(storage)
    }

    /// Drops [kept](Self::keep) storages beyond the limit.
    pub fn bound_recipes(&self) {
        self.devices.sources.settle();
    }

    /// The device whose memory holds a storage: [`DeviceType::Cpu`] if only the host's does.
    pub fn device_of(&self, storage: &Storage) -> DeviceType {
        let devices = storage.devices();
        devices.first().copied().unwrap_or(DeviceType::Cpu)
    }

    /// Returns whether a device has a copy of a storage's bytes.
    pub fn has_copy(&self, storage: &Storage, device: DeviceType) -> bool {
        storage.devices().contains(&device)
    }

    /// Copies a storage's bytes to a device for later operations.
    ///
    /// # Errors
    /// Fails if the device does not exist or fails. Also fails if the only copy was on a lost
    /// device.
    pub fn place(&self, storage: &Storage, device: DeviceType) -> Result<(), RunError> {
        let Some(slot) = self.devices.named(device).next() else {
            return Err(RunError::NoDevice {
                op: format!("{} bytes", storage.bytes()),
                node: None,
                call: None,
                tried: format!("{device}: not on this machine"),
            });
        };
        if !storage.acquire(false) {
            return Err(RunError::Busy { input: 0 });
        }
        let placed = storage.on(&slot.owner, slot.backend.memory(), false);
        storage.release(false);
        match placed {
            Ok(_) => Ok(()),
            Err(e) => {
                let error = e.into_run_error(device);
                if let RunError::Device(error) = &error {
                    self.devices.journal.count_fault(error);
                    if error.class.loses_device() {
                        slot.owner.set_lost();
                    }
                }
                Err(error)
            }
        }
    }

    /// Makes a device's writes to a storage visible to the host: by a copy only if the device has
    /// its own memory.
    ///
    /// # Errors
    /// Fails if the only copy was on a lost device, or if the host is out of memory.
    pub fn synchronize(&self, storage: &Storage) -> Result<(), RunError> {
        let result = storage.synchronize();
        result.map_err(|e| e.into_run_error(DeviceType::Cpu))
    }

    /// The host's memory with a storage's bytes, and a device's writes in it. `None` if only a device's own memory has
    /// them. Later writes over the storage show only as long as they happen in this memory.
    ///
    /// # Errors
    /// Fails if the only copy was on a lost device.
    pub fn host_memory(&self, storage: &Storage) -> Result<Option<HostBuffer>, RunError> {
        let memory = storage.host_memory();
        memory.map_err(|e| e.into_run_error(DeviceType::Cpu))
    }

    /// Copies a storage's bytes from `offset` on to the host.
    ///
    /// # Errors
    /// Fails if the only copy was on a lost device. Fails if the range is not inside the storage.
    pub fn read(&self, storage: &Storage, offset: usize, to: &mut [u8]) -> Result<(), RunError> {
        let result = storage.read(offset, to);
        result.map_err(|e| e.into_run_error(DeviceType::Cpu))
    }

    /// Begins to copy a storage's bytes to the host, behind all that was queued so far. Later runs do not delay
    /// them, if the device can do that.
    pub fn fetch(&self, storage: &Storage) -> Fetched {
        storage.fetch()
    }

    /// Replaces a storage's bytes.
    ///
    /// # Errors
    /// Fails if the host is out of memory.
    pub fn write(&self, storage: &Storage, from: &[u8]) -> Result<(), RunError> {
        let result = storage.write(from);
        result.map_err(|e| e.into_run_error(DeviceType::Cpu))
    }
}
