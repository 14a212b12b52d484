//! Devices that are made up.

use std::any::{Any, TypeId};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::task::Poll;

use rustorch_cpu::Cpu;
use rustorch_ir::ops::Custom;
use rustorch_ir::{Graph, Op, OpKind, Signature, ValueId};
use rustorch_runtime::{
    Backend, Compilation, DeviceBuffer, DeviceError, DeviceInfo, DeviceMemory, DeviceType,
    FailureClass, Fetch, Hardware, HostBuffer, Probe, Program,
};

/// The processor under another name.
pub(crate) struct Fake {
    info: DeviceInfo,
    cpu: Cpu,
    memory: FakeMemory,
    lacks: Vec<OpKind>,
    feature: Option<&'static str>,
    /// Whether it has a kernel for this composite.
    does: fn(&Custom) -> bool,
    compilation: Option<Compilation>,
    /// Whether it has all programs in a cache.
    has_compiled: bool,
    pub(crate) state: Arc<State>,
}

/// State that tests inspect and set.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// Failures of the next runs.
    pub(crate) failures: Mutex<VecDeque<FailureClass>>,
    /// Failures of the next runs, after all was computed.
    pub(crate) failures_behind: Mutex<VecDeque<FailureClass>>,
    /// Failures of the next allocations.
    pub(crate) refusals: Mutex<VecDeque<FailureClass>>,
    /// Failures of the next programs to be compiled.
    pub(crate) compile_failures: Mutex<VecDeque<FailureClass>>,
    /// Programs that were compiled, or failed to be.
    pub(crate) compiled: AtomicUsize,
    /// Compiling waits here.
    pub(crate) gate: Gate,
    /// Opened when the device is dropped.
    pub(crate) dropped: Gate,
    /// Every call fails from now on.
    pub(crate) lost: AtomicBool,
    /// Whether it is lost with the end of the next run.
    pub(crate) after_run: Mutex<bool>,
    /// Whether it sends bytes to the host while it computes.
    pub(crate) sends: AtomicBool,
    /// Sent bytes arrive behind it.
    pub(crate) way: Gate,
    pub(crate) trims: AtomicUsize,
    pub(crate) runs: AtomicUsize,
    /// Free memory that the device reports.
    pub(crate) free: Mutex<Option<u64>>,
    device: Option<DeviceType>,
}

/// Something to wait at while it is closed.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    is_closed: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    pub(crate) fn close(&self) {
        *self.is_closed.lock().unwrap() = true;
    }

    pub(crate) fn open(&self) {
        *self.is_closed.lock().unwrap() = false;
        self.opened.notify_all();
    }

    fn is_closed(&self) -> bool {
        *self.is_closed.lock().unwrap()
    }

    pub(crate) fn pass(&self) {
        let closed = self.is_closed.lock().unwrap();
        drop(self.opened.wait_while(closed, |closed| *closed).unwrap());
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.state.dropped.open();
    }
}

impl State {
    fn error(&self, class: FailureClass) -> DeviceError {
        if class == FailureClass::Lost {
            self.lost.store(true, Ordering::SeqCst);
        }
        let device = self.device.unwrap_or(DeviceType::Auto);
        DeviceError::new(device, class, format!("told to: {class}"))
    }

    fn check(&self, failures: &Mutex<VecDeque<FailureClass>>) -> Result<(), DeviceError> {
        if self.lost.load(Ordering::SeqCst) {
            return Err(self.error(FailureClass::Lost));
        }
        let failure = failures.lock().unwrap().pop_front();
        failure.map_or(Ok(()), |class| Err(self.error(class)))
    }

    fn alive(&self) -> Result<(), DeviceError> {
        self.check(&Mutex::default())
    }
}

impl Fake {
    /// A device with memory of its own.
    pub(crate) fn new(device: DeviceType, hardware: Hardware) -> Self {
        let state = Arc::new(State {
            device: Some(device),
            ..State::default()
        });
        Self {
            info: DeviceInfo {
                device,
                hardware,
                shares_host_memory: false,
                name: format!("a made-up {device}"),
                memory_bytes: Some(1 << 30),
                details: Vec::new(),
            },
            cpu: Cpu::new(1),
            memory: FakeMemory {
                shares: false,
                has_peers: false,
                state: state.clone(),
            },
            lacks: Vec::new(),
            feature: None,
            does: |_| false,
            compilation: None,
            has_compiled: false,
            state,
        }
    }

    /// A GPU with memory of its own.
    pub(crate) fn gpu(device: DeviceType) -> Self {
        Self::new(device, Hardware::Gpu)
    }

    /// In the host's memory, of which the device sees what it had when it was last launched.
    pub(crate) fn sharing(mut self) -> Self {
        self.info.shares_host_memory = true;
        self.memory.shares = true;
        self
    }

    /// Saying something more of itself.
    pub(crate) fn with_detail(mut self, key: &str, value: &str) -> Self {
        self.info.details.push((key.to_owned(), value.to_owned()));
        self
    }

    /// With memory that others of its kind can copy from, without the host.
    pub(crate) fn with_peers(mut self) -> Self {
        self.memory.has_peers = true;
        self
    }

    /// Without kernels for these.
    pub(crate) fn without(mut self, lacks: &[OpKind]) -> Self {
        self.lacks = lacks.to_vec();
        self
    }

    /// Missing kernels are in this feature.
    pub(crate) fn without_feature(mut self, feature: &'static str) -> Self {
        self.feature = Some(feature);
        self
    }

    /// With a kernel for the composites that `does` knows.
    pub(crate) fn with(mut self, does: fn(&Custom) -> bool) -> Self {
        self.does = does;
        self
    }

    /// Compiling slowly, for as long as [`State::gate`] is closed.
    pub(crate) fn compiling_slowly(mut self, compilation: Compilation) -> Self {
        self.compilation = Some(compilation);
        self
    }

    /// With all programs in a cache.
    pub(crate) fn with_cache(mut self) -> Self {
        self.has_compiled = true;
        self
    }

    pub(crate) fn state(&self) -> Arc<State> {
        self.state.clone()
    }

    pub(crate) fn backend(self) -> Arc<dyn Backend> {
        Arc::new(self)
    }
}

/// The real one.
pub(crate) fn cpu() -> Arc<dyn Backend> {
    Arc::new(Cpu::new(1))
}

impl Backend for Fake {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn supports(&self, signature: &Signature) -> bool {
        let does = matches!(signature.op, Op::Custom(op) if (self.does)(op));
        let lacks = self.lacks.contains(&signature.op.kind());
        does || (!lacks && self.cpu.supports(signature))
    }

    fn missing_feature(&self, _: &Signature) -> Option<&'static str> {
        self.feature
    }

    fn memory(&self) -> &dyn DeviceMemory {
        &self.memory
    }

    fn compilation(&self) -> Option<Compilation> {
        self.compilation
    }

    fn has_compiled(&self, _: &Graph, _: &[Option<HostBuffer>]) -> bool {
        self.has_compiled
    }

    fn compile(&self, graph: &Graph) -> Result<Box<dyn Program>, DeviceError> {
        self.state.gate.pass();
        self.state.compiled.fetch_add(1, Ordering::SeqCst);
        self.state.check(&self.state.compile_failures)?;
        Ok(Box::new(FakeProgram {
            cpu: self.cpu.compile(&expanded(graph))?,
            state: self.state.clone(),
        }))
    }
}

/// The graph with composites as what they are made of, which stands for their kernels.
fn expanded(graph: &Graph) -> Graph {
    let mut out = Graph::new();
    let inputs = graph.inputs().iter();
    let mut values: Vec<ValueId> = inputs.map(|ty| out.input(ty.clone()).unwrap()).collect();
    for node in graph.nodes() {
        let operands: Vec<ValueId> = node.inputs.iter().map(|v| values[v.index()]).collect();
        let results = match &node.op {
            Op::Custom(_) => out.expand(&node.op, &operands).unwrap(),
            _ => {
                let first = out.push_node(node, &operands).unwrap();
                out.results(first)
            }
        };
        values.extend(results);
    }
    for value in graph.outputs() {
        out.output(values[value.index()]);
    }
    out
}

struct FakeProgram {
    cpu: Box<dyn Program>,
    state: Arc<State>,
}

impl Program for FakeProgram {
    fn run(
        &self,
        inputs: &[Arc<dyn DeviceBuffer>],
        outputs: &[Arc<dyn DeviceBuffer>],
        probe: &dyn Probe,
    ) -> Result<(), DeviceError> {
        let launched = |buffer: &Arc<dyn DeviceBuffer>| -> Arc<dyn DeviceBuffer> {
            let fake = buffer.as_any().downcast_ref::<FakeBuffer>();
            Arc::new(fake.expect("a buffer of this device").launched())
        };
        let inputs: Vec<_> = inputs.iter().map(launched).collect();
        let outputs: Vec<_> = outputs.iter().map(launched).collect();
        self.state.check(&self.state.failures)?;
        self.state.runs.fetch_add(1, Ordering::SeqCst);
        self.cpu.run(&inputs, &outputs, probe)?;
        self.state.check(&self.state.failures_behind)?;
        if *self.state.after_run.lock().unwrap() {
            self.state.lost.store(true, Ordering::SeqCst);
        }
        Ok(())
    }
}

struct FakeMemory {
    shares: bool,
    has_peers: bool,
    state: Arc<State>,
}

impl FakeMemory {
    fn buffer(&self, host: Option<HostBuffer>, bytes: usize) -> FakeBuffer {
        FakeBuffer {
            own: HostBuffer::zeroed(bytes).unwrap(),
            with_device: AtomicBool::new(false),
            host,
            state: self.state.clone(),
        }
    }
}

impl DeviceMemory for FakeMemory {
    fn alloc(&self, bytes: usize) -> Result<Arc<dyn DeviceBuffer>, DeviceError> {
        self.state.check(&self.state.refusals)?;
        let host = self.shares.then(|| HostBuffer::zeroed(bytes).unwrap());
        Ok(Arc::new(self.buffer(host, bytes)))
    }

    fn adopt(&self, host: &HostBuffer) -> Result<Arc<dyn DeviceBuffer>, DeviceError> {
        self.state.check(&self.state.refusals)?;
        let buffer = self.buffer(self.shares.then(|| host.clone()), host.bytes());
        if !self.shares {
            copy(host, &buffer.own);
        }
        Ok(Arc::new(buffer))
    }

    fn peers(&self) -> Option<TypeId> {
        self.has_peers.then(TypeId::of::<Self>)
    }

    unsafe fn copy_of(
        &self,
        other: &dyn DeviceBuffer,
    ) -> Result<Option<Arc<dyn DeviceBuffer>>, DeviceError> {
        if !self.has_peers {
            return Ok(None);
        }
        let other = other.as_any().downcast_ref::<FakeBuffer>().unwrap();
        let buffer = self.buffer(None, other.bytes());
        copy(&other.own, &buffer.own);
        Ok(Some(Arc::new(buffer)))
    }

    fn trim(&self) {
        self.state.trims.fetch_add(1, Ordering::SeqCst);
    }

    fn free(&self) -> Option<u64> {
        *self.state.free.lock().unwrap()
    }
}

fn copy(from: &HostBuffer, to: &HostBuffer) {
    let mut bytes = vec![0; from.bytes()];
    // SAFETY: tests use a buffer from one thread at a time.
    unsafe {
        from.read(0, &mut bytes).unwrap();
        to.write(0, &bytes).unwrap();
    }
}

/// A device's memory. If it shares the host's, writes of each side reach the other only when
/// the memory changes hands: with a launch, and with `host`.
struct FakeBuffer {
    own: HostBuffer,
    host: Option<HostBuffer>,
    with_device: AtomicBool,
    state: Arc<State>,
}

impl std::fmt::Debug for FakeBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FakeBuffer({} bytes)", self.own.bytes())
    }
}

impl FakeBuffer {
    fn launched(&self) -> HostBuffer {
        if let Some(host) = &self.host
            && !self.with_device.swap(true, Ordering::SeqCst)
        {
            copy(host, &self.own);
        }
        self.own.clone()
    }
}

impl DeviceBuffer for FakeBuffer {
    fn bytes(&self) -> usize {
        self.own.bytes()
    }

    unsafe fn read(&self, offset: usize, to: &mut [u8]) -> Result<(), DeviceError> {
        self.state.alive()?;
        // SAFETY: promised by the caller.
        unsafe { self.own.read(offset, to) }
    }

    unsafe fn write(&self, offset: usize, from: &[u8]) -> Result<(), DeviceError> {
        self.state.alive()?;
        // SAFETY: promised by the caller.
        unsafe { self.own.write(offset, from) }
    }

    fn fetch(&self, bytes: usize) -> Result<Option<Box<dyn Fetch>>, DeviceError> {
        self.state.alive()?;
        if !self.state.sends.load(Ordering::SeqCst) {
            return Ok(None);
        }
        let mut sent = vec![0; bytes];
        // SAFETY: tests use a buffer from one thread at a time.
        unsafe { self.own.read(0, &mut sent)? };
        let state = self.state.clone();
        Ok(Some(Box::new(FakeFetch { sent, state })))
    }

    fn host(&self) -> Result<Option<&HostBuffer>, DeviceError> {
        self.state.alive()?;
        if let Some(host) = &self.host
            && self.with_device.swap(false, Ordering::SeqCst)
            && host.is_writable()
        {
            copy(&self.own, host);
        }
        Ok(self.host.as_ref())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Bytes that arrive once the way is open.
struct FakeFetch {
    sent: Vec<u8>,
    state: Arc<State>,
}

impl Fetch for FakeFetch {
    fn poll(&mut self, to: &mut [u8]) -> Poll<Result<(), DeviceError>> {
        self.state.alive()?;
        if self.state.way.is_closed() {
            return Poll::Pending;
        }
        to.copy_from_slice(&self.sent);
        Poll::Ready(Ok(()))
    }
}
