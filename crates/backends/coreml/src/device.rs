//! Core ML as a backend.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use rustorch_ir::{Graph, Op, Role, Shape, Signature};
use rustorch_runtime::{
    Absent, Backend, Compilation, Contents, Deadline, DeviceBuffer, DeviceError, DeviceInfo,
    DeviceMemory, DeviceType, FailureClass, Hardware, HostBuffer, HostMemory, Probe, Program,
};

use crate::api::{Api, ComputeUnit, ComputeUnits, ModelError, Output, Properties};
use crate::boundary::{
    Dense, Source, Unfit, array_bytes, check_indices, from_array, is_in_place, to_array, viewed,
};
use crate::cache::{Cache, Key};
use crate::check::check;
use crate::dump::{Dump, folder_of_user};
use crate::emit::{Emitted, Emitter, Feature, Start, Update};
use crate::helper::Helper;
use crate::load::{LoadError, Loader, Model, outline};
use crate::opset::{Opset, Precision, Target};
use crate::package::Package;
use crate::proto::model::ArrayDataType;

/// Options of users for a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Options {
    /// Precision of `f32`.
    pub precision: Precision,
    /// The units that Core ML may choose from.
    pub units: ComputeUnits,
    /// Whether programs that update a cache of halves row by row keep a copy of it themselves (`MLState`).
    /// Only newer systems can.
    pub states: bool,
    /// Compiles and first loads programs in a child process, in case Core ML ends it. The output of
    /// Apple's compiler is then hidden, too. This program has to call [`help`](crate::help) if its
    /// first argument is [`COMMAND`](crate::COMMAND).
    pub isolated: bool,
}

/// Settings of a device.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Options of this run.
    pub options: Options,
    /// Cache of compiled models.
    pub cache: Cache,
    /// Limit of a call's time.
    pub deadline: Deadline,
    /// Process that compiles and first loads programs, if it is not this one.
    pub helper: Option<Helper>,
    /// A folder in which every package is kept for inspection.
    pub dump: Option<PathBuf>,
}

impl Settings {
    /// No options, a limit of five minutes, and nothing but this cache.
    pub fn new(cache: Cache) -> Self {
        Self {
            options: Options::default(),
            cache,
            deadline: Deadline::default(),
            helper: None,
            dump: None,
        }
    }

    /// These options; the user's cache, deadline, and folder of packages (`RUSTORCH_COREML_DUMP`).
    ///
    /// # Errors
    /// Fails if the system names no folder for a cache.
    pub fn of_user(options: Options) -> Result<Self, Absent> {
        let cache = Cache::of_user().ok_or_else(|| {
            let cure = "set RUSTORCH_CACHE_DIR to a writable folder";
            Absent::new(
                "coreml",
                "cannot create a directory for compiled models",
                cure,
            )
        })?;
        Ok(Self {
            options,
            deadline: Deadline::of_user(),
            helper: (options.isolated.then(Helper::this_program)).flatten(),
            dump: folder_of_user(),
            ..Self::new(cache)
        })
    }
}

/// Core ML as a device: it compiles segments as wholes.
pub struct CoreMl<A: Api> {
    info: DeviceInfo,
    memory: HostMemory,
    shared: Arc<Shared<A>>,
}

/// State of the device that programs share.
struct Shared<A: Api> {
    api: A,
    device: DeviceType,
    emitter: Emitter,
    loader: Loader,
    dump: Option<Dump>,
    /// May halves be for the Neural Engine, which writes to no memory of the host's?
    uses_surfaces: bool,
    /// Why nothing can be compiled any more.
    shut: OnceLock<String>,
    copied: AtomicU64,
}

impl<A: Api> CoreMl<A> {
    /// The device `coreml:index`.
    ///
    /// # Errors
    /// Fails if the system has no ML Programs or lacks the requested compute units.
    pub fn new(api: A, index: usize, settings: Settings) -> Result<Self, Absent> {
        let properties = api.properties();
        let opset = properties.opset.ok_or_else(|| {
            let reason = format!("{} has no ML Programs", properties.system);
            Absent::new("coreml", reason, "macOS 12 or iOS 15, or later, is needed")
        })?;
        let Options {
            precision,
            units,
            states,
            ..
        } = settings.options;
        check_units(units, opset, properties)?;
        if states && !opset.has_states() {
            let system = &properties.system;
            tracing::warn!(
                "--coreml-states needs macOS 15 or iOS 18, not {system}; running without states"
            );
        }
        let may_use_engine = matches!(units, ComputeUnits::All | ComputeUnits::CpuAndNeuralEngine)
            && properties.has_neural_engine != Some(false);
        let details = [
            ("system", properties.system.clone()),
            ("operations", opset.name().to_owned()),
            ("units", describe(units, precision)),
            ("states", describe_states(states, opset).to_owned()),
        ];
        let device = DeviceType::CoreML(index);
        let info = DeviceInfo {
            device,
            hardware: Hardware::NeuralEngine,
            shares_host_memory: true,
            name: format!("Core ML on {}", properties.name),
            memory_bytes: None,
            details: details.map(|(key, value)| (key.to_owned(), value)).into(),
        };
        Ok(Self {
            info,
            memory: HostMemory::new(device),
            shared: Arc::new(Shared {
                api,
                device,
                emitter: Emitter::new(Target {
                    opset,
                    precision,
                    states,
                }),
                loader: Loader {
                    cache: settings.cache,
                    units,
                    deadline: settings.deadline,
                    helper: settings.helper,
                },
                dump: settings.dump.map(Dump::new),
                uses_surfaces: may_use_engine && precision == Precision::F16,
                shut: OnceLock::new(),
                copied: AtomicU64::new(0),
            }),
        })
    }

    /// The calls that it makes.
    pub fn api(&self) -> &A {
        &self.shared.api
    }
}

/// Checks that these units are available.
fn check_units(units: ComputeUnits, opset: Opset, properties: &Properties) -> Result<(), Absent> {
    if units != ComputeUnits::CpuAndNeuralEngine {
        return Ok(());
    }
    let reason = if properties.has_neural_engine == Some(false) {
        format!(
            "{} has no Neural Engine that Core ML may use",
            properties.name
        )
    } else if opset < Opset::CoreML6 {
        format!("{} cannot leave out the GPU alone", properties.system)
    } else {
        return Ok(());
    };
    Err(Absent::new(
        "coreml",
        reason,
        "choose other compute units, such as all",
    ))
}

/// The units, and what follows from the precision for them.
fn describe(units: ComputeUnits, precision: Precision) -> String {
    match precision {
        Precision::F32 => format!("{units}; not the Neural Engine, which has no single precision"),
        Precision::F16 => units.to_string(),
    }
}

/// Description of the keeper of states.
fn describe_states(states: bool, opset: Opset) -> &'static str {
    match (opset.has_states(), states) {
        (false, _) => "in the host's memory",
        (true, false) => "in the host's memory; programs of a token can keep them, too (MLState)",
        (true, true) => "in the host's memory, and kept by programs of a token (MLState)",
    }
}

impl<A: Api> Shared<A> {
    fn error(&self, class: FailureClass, what: impl ToString) -> DeviceError {
        DeviceError::new(self.device, class, what.to_string())
    }

    /// Refusal of a segment: its first operation, and so the segment, goes to the next device.
    fn refusal(&self, nodes: &[(usize, Op)], what: impl ToString) -> DeviceError {
        at_first(self.error(FailureClass::Unsupported, what), nodes)
    }

    fn timeout(&self, what: &str) -> DeviceError {
        let what = format!("{what} has not ended in time (RUSTORCH_DEVICE_TIMEOUT)");
        self.error(FailureClass::Timeout, what)
    }

    /// Key of a graph's program.
    fn outline(&self, graph: &Graph, constants: &[Option<HostBuffer>]) -> Key {
        let system = &self.api.properties().system;
        outline(system, self.emitter.target(), graph, constants)
    }

    /// The loaded model of a program.
    fn load(&self, package: &Package, outline: &Key) -> Result<Model<A::Model>, DeviceError> {
        let loaded = self.loader.load(&self.api, package, outline);
        let model = loaded.map_err(|e| self.not_loaded(e))?;
        if tracing::enabled!(tracing::Level::DEBUG) {
            self.tell_preferences(&model.compiled());
        }
        Ok(model)
    }

    /// If nothing can be kept, nothing more is compiled.
    fn not_loaded(&self, e: LoadError) -> DeviceError {
        match e {
            LoadError::Model(e) => self.error(e.class(), e),
            LoadError::Cache(e) if e.kind() == io::ErrorKind::OutOfMemory => {
                self.error(FailureClass::OutOfMemory { never_fits: false }, e)
            }
            LoadError::Cache(e) => {
                let why = self.shut.get_or_init(|| e.to_string());
                self.error(FailureClass::Unsupported, why)
            }
        }
    }

    /// Number of operations for each unit that Core ML prefers; operations without a report go by
    /// `None`.
    fn preferences(
        &self,
        compiled: &Path,
    ) -> Result<BTreeMap<Option<ComputeUnit>, usize>, ModelError> {
        let mut counts = BTreeMap::new();
        for (_, unit) in self.api.preferences(compiled, self.loader.units)? {
            *counts.entry(unit).or_default() += 1;
        }
        Ok(counts)
    }

    /// Writes to the log how many operations Core ML would have each unit run.
    fn tell_preferences(&self, compiled: &Path) {
        let counts = match self.preferences(compiled) {
            Ok(counts) => counts,
            Err(e) => return tracing::debug!("{}: no compute plan: {e}", self.device),
        };
        for (unit, count) in counts {
            match unit {
                Some(unit) => {
                    tracing::debug!("{}: prefers {unit} for {count} operations", self.device)
                }
                None => tracing::debug!(
                    "{}: reports no preference for {count} operations",
                    self.device
                ),
            }
        }
    }
}

/// The failure, as that of the first of these nodes.
fn at_first(error: DeviceError, nodes: &[(usize, Op)]) -> DeviceError {
    match nodes.first() {
        Some((node, op)) => error.at(*node, op.name()),
        None => error,
    }
}

impl<A: Api> Backend for CoreMl<A> {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// Nothing is known to be a constant where this is asked. Weights in blocks are taken for
    /// constants, since they nearly always are. If they are not, compiling fails.
    fn supports(&self, signature: &Signature) -> bool {
        if self.shared.shut.get().is_some() {
            return false;
        }
        let inputs = signature.inputs.iter();
        let constant: Vec<bool> = inputs.map(|ty| ty.dtype.is_block()).collect();
        self.shared.emitter.supports(signature, &constant)
    }

    fn memory(&self) -> &dyn DeviceMemory {
        &self.memory
    }

    fn compile(&self, graph: &Graph) -> Result<Box<dyn Program>, DeviceError> {
        self.compile_with(graph, &[])
    }

    /// Bytes of inputs and outputs that were copied, also where Core ML did not use the offered
    /// memory.
    fn copied(&self) -> u64 {
        self.shared.copied.load(Ordering::Relaxed)
    }

    fn takes_constants(&self) -> bool {
        true
    }

    fn compilation(&self) -> Option<Compilation> {
        self.shared.api.properties().compilation
    }

    fn has_compiled(&self, graph: &Graph, constants: &[Option<HostBuffer>]) -> bool {
        let outline = self.shared.outline(graph, constants);
        self.shared.loader.cache.knows(&outline)
    }

    fn compile_with(
        &self,
        graph: &Graph,
        constants: &[Option<HostBuffer>],
    ) -> Result<Box<dyn Program>, DeviceError> {
        let shared = self.shared.clone();
        let computes = |node: &rustorch_ir::Node| node.op.def().role() == Role::Compute;
        let nodes = graph.nodes().iter().enumerate();
        let nodes: Vec<(usize, Op)> = (nodes.filter(|(_, node)| computes(node)))
            .map(|(index, node)| (index, node.op.clone()))
            .collect();
        let refused = |what: String| self.shared.refusal(&nodes, what);
        if let Some(why) = shared.shut.get() {
            return Err(refused(why.clone()));
        }
        let outline = shared.outline(graph, constants);
        let dense = Dense::of(graph).map_err(|e| refused(e.to_string()))?;
        let constants = dense.constants(constants);
        let constants = constants.iter().map(|(&index, bytes)| (index, &**bytes));
        let emitted = shared.emitter.emit(&dense.graph, &constants.collect());
        let emitted = emitted.map_err(|e| {
            let node = e.node(&dense.graph).map(|node| dense.origins[node]);
            let blamed = nodes.iter().position(|(index, _)| Some(*index) == node);
            shared.refusal(&nodes[blamed.unwrap_or(0)..], e)
        })?;
        let Emitted {
            package,
            inputs,
            outputs,
            updates,
        } = emitted;
        if let Some(dump) = &shared.dump {
            dump.keep(&package);
        }
        if let Some(flaw) = check(&package.model, package.weights.as_deref()).first() {
            return Err(refused(format!("a program that is not sound: {flaw}")));
        }
        let deadline = shared.loader.deadline;
        let loaded = deadline.watch(move || shared.load(&package, &outline));
        let loaded = loaded.ok_or_else(|| self.shared.timeout("Core ML's compiler"))?;
        let model = loaded.map_err(|e| at_first(e, &nodes))?;
        Ok(Box::new(Loaded {
            shared: self.shared.clone(),
            model,
            nodes,
            sources: dense.sources,
            inputs,
            outputs,
            updates,
            spare: Mutex::default(),
            kept: Mutex::new(None),
        }))
    }
}

/// Surfaces with their shapes.
type Surfaces<Array> = Vec<(Shape, Array)>;

/// Place to which an output is written.
enum Place<Array> {
    /// Its own memory.
    Output(HostBuffer),
    /// In memory that it is brought from to where it belongs.
    Host(HostBuffer),
    /// In a surface, from where it is brought there, too.
    Surface(Array),
}

/// A loaded model.
struct Loaded<A: Api> {
    shared: Arc<Shared<A>>,
    model: Model<A::Model>,
    /// The nodes that compute.
    nodes: Vec<(usize, Op)>,
    /// Sources of the graph's inputs among those of a run.
    sources: Vec<Source>,
    inputs: Vec<Feature>,
    outputs: Vec<Feature>,
    updates: Vec<Update>,
    /// Surfaces that no run uses.
    spare: Mutex<Surfaces<A::Array>>,
    /// The states of the last run, if it succeeded and none uses them.
    kept: Mutex<Option<Kept<A::State>>>,
}

/// The states that a program keeps.
struct Kept<State> {
    state: State,
    /// Contents of each state, in the order of the updates.
    contents: Vec<Contents>,
}

impl<A: Api> Program for Loaded<A> {
    fn preferred_units(&self) -> Vec<(Option<String>, usize)> {
        let (shared, compiled) = (self.shared.clone(), self.model.compiled());
        let deadline = shared.loader.deadline;
        let told = deadline.watch(move || shared.preferences(&compiled));
        let counts = match told.unwrap_or_else(|| Err(ModelError::new(0, "no answer in time"))) {
            Ok(counts) => counts,
            Err(e) => {
                tracing::debug!("{}: no compute plan: {e}", self.shared.device);
                return Vec::new();
            }
        };
        let named = |(unit, count): (Option<ComputeUnit>, usize)| {
            (unit.map(|unit| unit.to_string()), count)
        };
        counts.into_iter().map(named).collect()
    }

    fn run(
        &self,
        inputs: &[Arc<dyn DeviceBuffer>],
        outputs: &[Arc<dyn DeviceBuffer>],
        probe: &dyn Probe,
    ) -> Result<(), DeviceError> {
        for (node, op) in &self.nodes {
            probe.before(*node, op)?;
        }
        let mut surfaces = Vec::new();
        let given = (self.inputs.iter())
            .map(|feature| self.input(feature, inputs, &mut surfaces))
            .collect::<Result<Vec<_>, DeviceError>>()?;
        let buffers = outputs.iter().map(Some).chain(std::iter::repeat(None));
        let rows = self.updates.iter().map(|update| &update.rows);
        let features: Vec<&Feature> = self.outputs.iter().chain(rows).collect();
        let places = (features.iter().zip(buffers))
            .map(|(feature, buffer)| {
                let buffer = buffer.map(|buffer| &**buffer);
                self.place(feature, buffer, &mut surfaces)
            })
            .collect::<Result<Vec<_>, DeviceError>>()?;
        let offered = (features.iter().zip(&places))
            .map(|(feature, place)| match place {
                Place::Output(memory) | Place::Host(memory) => self.array(feature, memory),
                Place::Surface(array) => Ok((feature.name.clone(), array.clone())),
            })
            .collect::<Result<Vec<_>, DeviceError>>()?;
        let kept = self.kept(inputs)?;
        let state = kept.as_ref().map(|kept| &kept.state);
        let api = &self.shared.api;
        let pending = api.predict(&self.model.model, given, offered, state);
        let limit = self.shared.loader.deadline.limit();
        let results = api.wait(pending, limit);
        let results = results.ok_or_else(|| self.shared.timeout("a prediction"))?;
        let results = results.map_err(|e| self.failure(&e))?;
        let mut results = places.iter().zip(results);
        for ((feature, buffer), (place, result)) in
            self.outputs.iter().zip(outputs).zip(&mut results)
        {
            self.output(feature, &**buffer, place, result)?;
        }
        for (update, (place, result)) in self.updates.iter().zip(results) {
            self.update(update, inputs, place, result)?;
        }
        self.spare().extend(surfaces);
        *self.kept.lock().unwrap_or_else(PoisonError::into_inner) = kept;
        Ok(())
    }
}

impl<A: Api> Loaded<A> {
    fn spare(&self) -> MutexGuard<'_, Surfaces<A::Array>> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A surface for a feature of halves, where the Neural Engine may use it; it is noted in `used`.
    fn surface(&self, feature: &Feature, used: &mut Surfaces<A::Array>) -> Option<A::Array> {
        if !self.shared.uses_surfaces || feature.elements != ArrayDataType::Float16 {
            return None;
        }
        let mut spare = self.spare();
        let known = spare.iter().position(|(shape, _)| *shape == feature.shape);
        let array = match known {
            Some(at) => spare.swap_remove(at).1,
            None => self.shared.api.surface(&feature.shape)?,
        };
        used.push((feature.shape.clone(), array.clone()));
        Some(array)
    }

    /// The states that the program keeps, with the contents of the inputs, and the contents of both after
    /// the run. States that others have written to since the last run are copied. If there was no such
    /// run, or it failed, all are copied. `None` if the program keeps none.
    fn kept(
        &self,
        inputs: &[Arc<dyn DeviceBuffer>],
    ) -> Result<Option<Kept<A::State>>, DeviceError> {
        if self.updates.iter().all(|update| update.kept.is_none()) {
            return Ok(None);
        }
        let last = self
            .kept
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let api = &self.shared.api;
        let Kept { state, contents } = last.unwrap_or_else(|| Kept {
            state: api.new_state(&self.model.model),
            contents: Vec::new(),
        });
        let mut held = contents.into_iter();
        let mut contents = Vec::new();
        for update in &self.updates {
            let Some(name) = &update.kept else {
                continue;
            };
            let memory = self.host(&*inputs[self.sources[update.state].input])?;
            let given = memory.contents();
            if held.next().as_ref() != Some(&given) {
                // SAFETY: the memory has the state's bytes, and nobody else writes to it in a run that
                // does.
                let bytes =
                    unsafe { std::slice::from_raw_parts(memory.as_ptr(), update.ty.bytes()) };
                let filled = api.fill(&state, name, bytes);
                filled.map_err(|e| self.failure(&e))?;
                self.count_copy(bytes.len());
            }
            contents.push(given.next());
        }
        Ok(Some(Kept { state, contents }))
    }

    fn failure(&self, e: &ModelError) -> DeviceError {
        at_first(self.shared.error(e.class(), e), &self.nodes)
    }

    fn count_copy(&self, bytes: usize) {
        self.shared
            .copied
            .fetch_add(bytes as u64, Ordering::Relaxed);
    }

    fn out_of_memory(&self) -> DeviceError {
        let class = FailureClass::OutOfMemory { never_fits: false };
        self.shared
            .error(class, "the system has no memory for an array")
    }

    fn host<'a>(&self, buffer: &'a dyn DeviceBuffer) -> Result<&'a HostBuffer, DeviceError> {
        let message = "memory that is not the host's";
        let none = || self.shared.error(FailureClass::Unsupported, message);
        buffer.host()?.ok_or_else(none)
    }

    fn array(
        &self,
        feature: &Feature,
        memory: &HostBuffer,
    ) -> Result<(String, A::Array), DeviceError> {
        // SAFETY: an input is not written to in a run, an output is this run's own, and who gives a
        // run up does not use its memory again.
        let array = unsafe { (self.shared.api).array(memory, &feature.shape, feature.elements) };
        Ok((feature.name.clone(), array.map_err(|e| self.failure(&e))?))
    }

    /// The elements of an input of the program's graph, copied where it is a view.
    fn elements<'a>(
        &self,
        index: usize,
        size: usize,
        inputs: &'a [Arc<dyn DeviceBuffer>],
    ) -> Result<Cow<'a, [u8]>, DeviceError> {
        let source = &self.sources[index];
        let buffer = &*inputs[source.input];
        let host = self.host(buffer)?;
        // SAFETY: the bytes are the buffer's, and nobody else writes to an input in a run.
        let stored = unsafe { std::slice::from_raw_parts(host.as_ptr(), buffer.bytes()) };
        Ok(match &source.view {
            Some(layout) => Cow::Owned(viewed(stored, layout, size)),
            None => Cow::Borrowed(stored),
        })
    }

    /// An input in place if it can be, else a copy as its array has it.
    fn input(
        &self,
        feature: &Feature,
        inputs: &[Arc<dyn DeviceBuffer>],
        surfaces: &mut Surfaces<A::Array>,
    ) -> Result<(String, A::Array), DeviceError> {
        let size = feature.ty.dtype.size().unwrap_or(1);
        let elements = self.elements(feature.index, size, inputs)?;
        let bytes = &elements[..feature.ty.bytes()];
        let unfit = |unfit| match unfit {
            Unfit::Index(message) => self.shared.error(FailureClass::Caller, message),
            Unfit::Wide(x) => {
                let message = format!("{x} in input {} has more than 32 bits", feature.index);
                self.shared.error(FailureClass::Unsupported, message)
            }
        };
        check_indices(feature, bytes).map_err(unfit)?;
        if matches!(elements, Cow::Borrowed(_)) && is_in_place(feature) {
            let buffer = &*inputs[self.sources[feature.index].input];
            return self.array(feature, self.host(buffer)?);
        }
        self.count_copy(bytes.len());
        if let Some(surface) = self.surface(feature, surfaces) {
            let written = self.shared.api.write(&surface, bytes);
            written.map_err(|e| self.failure(&e))?;
            return Ok((feature.name.clone(), surface));
        }
        let copy = to_array(feature, bytes).map_err(unfit)?;
        self.array(feature, &copy.ok_or_else(|| self.out_of_memory())?)
    }

    /// Place to write an output: in place if it has one and can be.
    fn place(
        &self,
        feature: &Feature,
        buffer: Option<&dyn DeviceBuffer>,
        surfaces: &mut Surfaces<A::Array>,
    ) -> Result<Place<A::Array>, DeviceError> {
        if let Some(buffer) = buffer {
            let host = self.host(buffer)?;
            if is_in_place(feature) && host.is_writable() {
                return Ok(Place::Output(host.clone()));
            }
        }
        if let Some(surface) = self.surface(feature, surfaces) {
            return Ok(Place::Surface(surface));
        }
        let memory = HostBuffer::uninit(array_bytes(feature));
        memory.map(Place::Host).ok_or_else(|| self.out_of_memory())
    }

    /// Brings an output to where it belongs.
    fn output(
        &self,
        feature: &Feature,
        buffer: &dyn DeviceBuffer,
        place: &Place<A::Array>,
        result: Output<A::Array>,
    ) -> Result<(), DeviceError> {
        if matches!((&result, place), (Output::Offered, Place::Output(_))) {
            return Ok(());
        }
        let bytes = self.given(feature, place, result)?;
        // SAFETY: an output is this run's own.
        unsafe { buffer.write(0, &bytes) }
    }

    /// An output's bytes, as memory holds them.
    fn given(
        &self,
        feature: &Feature,
        place: &Place<A::Array>,
        result: Output<A::Array>,
    ) -> Result<Vec<u8>, DeviceError> {
        let mut bytes = vec![0; array_bytes(feature)];
        let array = match (&result, place) {
            (Output::Own(array), _) | (Output::Offered, Place::Surface(array)) => Some(array),
            (Output::Offered, Place::Output(memory) | Place::Host(memory)) => {
                // SAFETY: the prediction is complete, and the place has these bytes.
                unsafe { memory.read(0, &mut bytes)? };
                None
            }
        };
        if let Some(array) = array {
            let read = self.shared.api.read(array, &mut bytes);
            read.map_err(|e| self.failure(&e))?;
        }
        let bytes = from_array(feature, &bytes);
        self.count_copy(bytes.len());
        Ok(bytes)
    }

    /// Writes rows to where they belong in a state.
    fn update(
        &self,
        update: &Update,
        inputs: &[Arc<dyn DeviceBuffer>],
        place: &Place<A::Array>,
        result: Output<A::Array>,
    ) -> Result<(), DeviceError> {
        let rows = self.given(&update.rows, place, result)?;
        let start = match update.start {
            Start::At(start) => start,
            Start::Input { index, element } => {
                let elements = self.elements(index, size_of::<i32>(), inputs)?;
                let start = elements.as_chunks().0.get(element);
                let start = start.map(|&start| i32::from_ne_bytes(start));
                // It was looked at before the prediction.
                start
                    .and_then(|start| start.try_into().ok())
                    .unwrap_or_default()
            }
        };
        let state = &*inputs[self.sources[update.state].input];
        let mut rest = &rows[..];
        for place in update.places(start) {
            let (rows, next) = rest.split_at(place.len());
            // SAFETY: the prediction that read the state is complete, and a state is written to by
            // the run that updates it alone.
            unsafe { state.write(place.start, rows)? };
            rest = next;
        }
        Ok(())
    }
}
