//! What the crate is used through: devices, graphs that are compiled for them, their memory.

use std::hash::{BuildHasher, BuildHasherDefault, Hash};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, Weak};

use rustorch_ir::fusion::Rule;
use rustorch_ir::{DType, FoldingHasher, Graph, Op, OpError, Scalar, TensorType};
use smallvec::SmallVec;

use crate::devices::{Devices, Reserve, Slot};
use crate::estimate::Locations;
use crate::executor::Executable;
use crate::journal::{Cause, lock};
use crate::plan_cache::PlanCache;
use crate::policy::Policy;
use crate::storage::StorageError;
use crate::typical::{alone, typical};
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

/// What a graph computed, in the order of its outputs: mostly one.
pub type Results = SmallVec<[Storage; 1]>;

/// Bytes that recipes may keep at first, where a device runs ahead.
const RECIPE_BYTES: u64 = 256 << 20;

/// A graph that is to be run: how it is known, and made if it is not.
struct Asked<I, M> {
    hash: u64,
    is_it: I,
    make: M,
    /// As [`Executable::running_ahead`].
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
    /// A runtime of these devices. They are put into the platform's order: Core ML, Metal,
    /// CUDA, OpenCL, CPU, the processor through other drivers, the reference; those of one
    /// kind stay as they are given.
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

    /// What each device says of itself, in the platform's order.
    pub fn devices(&self) -> impl Iterator<Item = &DeviceInfo> {
        self.devices.slots().iter().map(|s| s.backend.info())
    }

    /// [`Backend::streams`] of a device; 0 if there is none.
    pub fn streams(&self, device: DeviceType) -> usize {
        let slot = self.devices.named(device).next();
        slot.map_or(0, |slot| slot.backend.streams())
    }

    /// What each device can do. The devices are asked once.
    pub fn capabilities(&self) -> impl Iterator<Item = &DeviceCapability> {
        let ids = self.devices.ids();
        ids.map(|id| self.devices.capability(id))
    }

    /// The devices that have run something, with the number of segments.
    pub fn used_devices(&self) -> Vec<(DeviceType, u64)> {
        let slots = self.devices.slots().iter();
        slots
            .map(|s| (s.owner.device, s.runs.load(Ordering::Relaxed)))
            .filter(|&(_, runs)| runs > 0)
            .collect()
    }

    /// Was this device lost?
    pub fn is_lost(&self, device: DeviceType) -> bool {
        self.devices.named(device).any(|slot| slot.owner.is_lost())
    }

    /// The failures so far, oldest first.
    pub fn fallbacks(&self) -> Vec<Fallback> {
        self.devices.journal.fallbacks()
    }

    /// What is in the devices' memory, and what moved between them.
    pub fn memory(&self) -> MemoryManager {
        MemoryManager::new(self.devices.clone())
    }

    /// Sends an operation, or a family of them, to a device from now on. Pins go before
    /// routes, routes before the device that a run asks for.
    pub fn set_route(&self, route: impl Into<Route>, device: DeviceType) {
        let route = route.into();
        self.change_policy(|policy| {
            policy.routes.insert(route, device);
        });
    }

    /// Takes all routes back.
    pub fn clear_routes(&self) {
        self.change_policy(|policy| policy.routes.clear());
    }

    /// From now on `rule` is tried, before those that are known: it finds what a
    /// [`Composite`](rustorch_ir::ops::Composite) can be put in place of, wherever a device
    /// supports that.
    pub fn add_fusion(&self, rule: Rule) {
        self.change_policy(|policy| policy.fusions.push(rule));
    }

    /// Replaces the rules by which [`DeviceType::Auto`] chooses.
    pub fn set_selector(&self, selector: DeviceSelector) {
        self.change_policy(|policy| policy.selector = selector);
    }

    /// What a device was measured to do; `None` if it was not.
    pub fn costs(&self, device: DeviceType) -> Option<Arc<Costs>> {
        self.devices.named(device).find_map(Slot::costs)
    }

    /// From now on `device` is known to take these times, as [`Runtime::measure`] finds them:
    /// [`Explanation::expected`](crate::Explanation) tells them, and as soon as two devices are
    /// known, the [`DeviceSelector`] compares them. `None` forgets them.
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

    /// Waits until nothing is compiled in the background any more, see
    /// [`Backend::compilation`](crate::Backend::compilation): the next runs use what was compiled.
    pub fn wait_for_compilation(&self) {
        self.devices.compiler.wait();
    }

    /// Are programs that take long to compile made in the background, while other devices serve? That
    /// is so at first. Who measures devices, or checks them, would rather wait for their programs.
    pub fn set_background_compilation(&self, on: bool) {
        self.devices.waits.store(!on, Ordering::Relaxed);
    }

    /// Should runs be timed, for [`Executable::explain`] to tell? They are then a little
    /// slower.
    pub fn set_profiling(&self, on: bool) {
        self.devices.profiling.store(on, Ordering::Relaxed);
    }

    /// From now on `observer` is told what happens, besides those that are told already. It is to
    /// be [removed](Self::remove_observer) again.
    pub fn add_observer(&self, observer: Arc<dyn Observer>) {
        self.devices.journal.gallery.add(observer);
        let slots = self.devices.slots().iter();
        slots.for_each(|slot| slot.owner.tell_memory());
    }

    /// Waits for what devices were given, of which `observer` is told, and tells it no more.
    pub fn remove_observer(&self, observer: &Arc<dyn Observer>) {
        for slot in self.devices.slots() {
            // Whom a failure concerns will find it.
            let _ = slot.backend.wait();
        }
        self.devices.journal.gallery.remove(observer);
    }

    /// Tells those who look on that this thread begins something, which it ends when the guard is
    /// dropped. It costs next to nothing where nobody does.
    pub fn span(&self, name: &str) -> Span {
        (self.devices.journal.gallery).begin(HostWork::Range, || name)
    }

    /// The devices that an operation of a family on such a tensor would be tried on, best first,
    /// if it were a graph of its own: what the planner does with a typical one, which is a product
    /// with a matrix that is no larger, a convolution of 3 × 3 to as many channels, ReLU (or a sum
    /// of two of what is not floating-point), a sum along the last dimension, softmax along that, a
    /// product of two complex tensors, normal numbers. Empty where the family has none for the
    /// tensor, or no device can run it.
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

    /// The devices that an operation on operands of these types would be tried on, best first, if
    /// it were a graph of its own: what the planner does. Empty where the operation is not defined
    /// for them, or no device can run it.
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

    /// Is there a graphics processor that was not lost?
    pub fn has_gpu(&self) -> bool {
        let slots = self.devices.slots().iter();
        let gpus = slots.filter(|s| s.backend.info().hardware == Hardware::Gpu);
        gpus.filter(|s| !s.owner.is_lost()).count() > 0
    }

    /// Prepares `graph` to be run often. Planning happens with the first run, and takes the
    /// inputs to be on the host; see [`Executable::with_fresh_inputs`].
    pub fn prepare(&self, graph: Graph, routing: Routing) -> Executable {
        Executable::new(self.devices.clone(), graph, routing, Locations::new(), true)
    }

    /// Where each operation of `graph` would go if it were run on these inputs now, and why. `note` tells what
    /// else is known of a node, by its index.
    ///
    /// # Errors
    /// No device can run some operation.
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
        let asked = Asked {
            hash: hash_of(&graph),
            is_it: |known: &Graph| known == graph,
            make: || Ok(graph.clone()),
            runs_ahead: false,
        };
        let mut outputs = Vec::with_capacity(graph.outputs().len());
        self.run_asked(asked, inputs, routing, &mut outputs)?;
        Ok(outputs)
    }

    /// [`Runtime::run`] of a graph that is made only if it is not known yet. If it `runs_ahead`,
    /// as is right for callers who can compute lost results again, it may return while devices
    /// still work: what fails then shows when results are read, as the loss of the device.
    ///
    /// # Errors
    /// As [`Runtime::run`]; those of [`Outline::graph`].
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
        self.run_asked(asked, inputs, routing, &mut outputs)?;
        Ok(outputs)
    }

    fn run_asked(
        &self,
        asked: Asked<impl Fn(&Graph) -> bool, impl FnOnce() -> Result<Graph, OpError>>,
        inputs: &[Storage],
        routing: Routing,
        outputs: &mut impl Extend<Storage>,
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
            return executable.run_and_append(&[inputs], outputs);
        }
        let executable = Executable::new(self.devices.clone(), make()?, routing, places, false);
        let executable = self.insert(hash, executable.running_ahead(runs_ahead));
        let ran = executable.run_and_append(&[inputs], outputs);
        // What a plan takes is known now.
        let evicted = lock(&self.cache).charge(hash, &executable, executable.footprint());
        drop(evicted);
        ran
    }

    /// Where the operands are, which decides only where there is something to choose between.
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
        // What is dropped may take time.
        drop(cache);
        drop(replaced);
        executable
    }

    /// A number as an operand, of a dtype that is not a block format: only to be read. Those that
    /// come again find the copies that devices have made of them.
    ///
    /// # Errors
    /// The host is out of memory.
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

    /// Operations that devices have computed, views and fused ones counted by themselves.
    pub fn computed(&self) -> u64 {
        self.devices.journal.computed()
    }

    /// How often graphs were planned, and why, and what their plans take.
    pub fn plans(&self) -> PlanCounters {
        let mut counters = self.devices.journal.plan_counters();
        lock(&self.cache).count(&mut counters);
        counters
    }

    /// Plans of graphs that are [run](Self::run) by themselves take at most about so many bytes
    /// from now on; those that were used least recently go first. The last one stays in any case.
    pub fn set_plan_limit(&self, bytes: usize) {
        let evicted = lock(&self.cache).set_limit(bytes);
        drop(evicted);
    }

    /// From now on, tensors that are computed remember how, so that they survive the loss of the
    /// device which has their only copy: they are computed again. What that needs of the host's
    /// memory is kept, up to about so many bytes that nobody else holds; 0 for nothing of all this.
    /// Each operation takes about a kilobyte besides. At first it is 256 MiB where a device
    /// [runs ahead](crate::Backend::runs_ahead), and else 0.
    ///
    /// The limit is kept whenever something is computed. Beyond it those go first that were kept
    /// longest; what was computed from them is then lost with its device.
    pub fn set_recipe_limit(&self, bytes: u64) {
        self.devices.sources.set_limit(bytes);
    }

    /// Do tensors that are computed now [remember how](Self::set_recipe_limit)?
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

    /// Gives up what is [kept](Self::keep) beyond the limit.
    pub fn bound_recipes(&self) {
        self.devices.sources.settle();
    }

    /// The device whose memory a storage is in: [`DeviceType::Cpu`] if it is only the host's.
    pub fn device_of(&self, storage: &Storage) -> DeviceType {
        let devices = storage.devices();
        devices.first().copied().unwrap_or(DeviceType::Cpu)
    }

    /// Has a device a copy of a storage's bytes?
    pub fn has_copy(&self, storage: &Storage, device: DeviceType) -> bool {
        storage.devices().contains(&device)
    }

    /// Brings a storage's bytes to a device, whose operations then find them there.
    ///
    /// # Errors
    /// There is no such device; it fails; the only copy was on a device that is lost.
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

    /// Makes what a device wrote to a storage visible to the host: by a copy only if the device
    /// has memory of its own.
    ///
    /// # Errors
    /// The only copy was on a device that is lost; the host is out of memory.
    pub fn synchronize(&self, storage: &Storage) -> Result<(), RunError> {
        let result = storage.synchronize();
        result.map_err(|e| e.into_run_error(DeviceType::Cpu))
    }

    /// The host's memory that a storage's bytes are in, with what a device has written there; `None` where only
    /// memory of a device's own has them. It shows what is written over the storage later only as long as that happens
    /// in this memory.
    ///
    /// # Errors
    /// The only copy was on a device that is lost.
    pub fn host_memory(&self, storage: &Storage) -> Result<Option<HostBuffer>, RunError> {
        let memory = storage.host_memory();
        memory.map_err(|e| e.into_run_error(DeviceType::Cpu))
    }

    /// Copies a storage's bytes from `offset` on to the host.
    ///
    /// # Errors
    /// The only copy was on a device that is lost. The range must lie inside the storage.
    pub fn read(&self, storage: &Storage, offset: usize, to: &mut [u8]) -> Result<(), RunError> {
        let result = storage.read(offset, to);
        result.map_err(|e| e.into_run_error(DeviceType::Cpu))
    }

    /// Begins to copy a storage's bytes to the host, behind all that was queued so far. Where the
    /// device can, runs that are queued later do not delay them.
    pub fn fetch(&self, storage: &Storage) -> Fetched {
        storage.fetch()
    }

    /// Replaces a storage's bytes.
    ///
    /// # Errors
    /// The host is out of memory.
    pub fn write(&self, storage: &Storage, from: &[u8]) -> Result<(), RunError> {
        let result = storage.write(from);
        result.map_err(|e| e.into_run_error(DeviceType::Cpu))
    }
}
