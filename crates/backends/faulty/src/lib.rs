//! A backend that wraps another and fails on command, for tests and for `--inject`.
//!
//! A fault strikes before a kernel is launched (or, for [`FaultKind::Sync`] and
//! [`FaultKind::Wrong`], after all of them). A loss is a true one: from then on every call on the device fails and its memory
//! cannot be read.

mod fault;

use std::any::Any;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Instant;

use rustorch_ir::ops::philox;
use rustorch_ir::{Graph, Op, OpKind, Signature};
use rustorch_runtime::{
    Backend, Compilation, DeviceBuffer, DeviceError, DeviceInfo, DeviceMemory, DeviceType,
    FailureClass, Fetch, HostBuffer, LaunchTime, Nodes, Probe, Program, Scratch, Watcher,
};

pub use fault::{Fault, FaultError, FaultKind, Faults, When};

/// A backend with faults.
pub struct Faulty {
    inner: Arc<dyn Backend>,
    memory: FaultyMemory,
    state: Arc<State>,
}

/// State shared by a faulty device, its programs and its memory.
struct State {
    device: DeviceType,
    faults: Vec<Armed>,
    launches: AtomicU64,
    lost: AtomicBool,
    /// A fault that shows only when the work is waited for.
    late: Mutex<Option<FaultKind>>,
}

/// A fault with the number of its matching launches so far.
struct Armed {
    fault: Fault,
    seen: AtomicU64,
}

impl Faulty {
    /// `inner`, which fails by the faults of its device.
    pub fn new(inner: Arc<dyn Backend>, faults: impl IntoIterator<Item = Fault>) -> Self {
        let device = inner.info().device;
        let arm = |fault| Armed {
            fault,
            seen: AtomicU64::new(0),
        };
        let state = Arc::new(State {
            device,
            faults: (faults.into_iter())
                .filter(|f| f.device == device)
                .map(arm)
                .collect(),
            launches: AtomicU64::new(0),
            lost: AtomicBool::new(false),
            late: Mutex::default(),
        });
        let memory = FaultyMemory {
            inner: inner.clone(),
            state: state.clone(),
        };
        Self {
            inner,
            memory,
            state,
        }
    }

    fn wrap(&self, inner: Box<dyn Program>) -> Box<dyn Program> {
        Box::new(FaultyProgram {
            inner,
            state: self.state.clone(),
        })
    }

    /// Kernel launches so far, failed ones included.
    pub fn launches(&self) -> u64 {
        self.state.launches.load(Ordering::Relaxed)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    fn error(&self, class: FailureClass, message: impl Into<String>) -> DeviceError {
        DeviceError::new(self.device, class, message)
    }

    fn check_alive(&self) -> Result<(), DeviceError> {
        match self.lost.load(Ordering::Acquire) {
            true => Err(self.error(FailureClass::Lost, "injected: the device is gone")),
            false => Ok(()),
        }
    }

    /// Counts the launch of a node, and fails if a fault strikes. A fused operation counts as those
    /// that it was put in place of, too.
    fn strike(&self, node: usize, op: &Op) -> Result<(), DeviceError> {
        self.check_alive().map_err(|e| e.at(node, op.name()))?;
        self.launches.fetch_add(1, Ordering::Relaxed);
        let mut struck = Ok(());
        let replaced = op.def().replaces();
        for armed in &self.faults {
            let (count, name) = match armed.fault.op {
                Some(kind) if kind != op.kind() => (
                    replaced.iter().filter(|&&part| part == kind).count(),
                    kind.name(),
                ),
                _ => (1, op.name()),
            };
            for _ in 0..count {
                if armed.strikes() && struck.is_ok() {
                    struck = self.fail(armed.fault.kind).map_err(|e| e.at(node, name));
                }
            }
        }
        struck
    }

    fn fail(&self, kind: FaultKind) -> Result<(), DeviceError> {
        let message = match kind {
            FaultKind::Unsupported => "injected: no kernel",
            FaultKind::Compile => "injected: compilation failed",
            FaultKind::OutOfMemory => "injected: allocation refused",
            FaultKind::Lost => "injected: device lost",
            FaultKind::Timeout => "injected: no answer in time",
            FaultKind::Sync | FaultKind::Wrong => {
                *lock(&self.late) = Some(kind);
                return Ok(());
            }
        };
        self.tell(kind, message)
    }

    /// The failure for a fault of this kind.
    fn tell(&self, kind: FaultKind, message: &str) -> Result<(), DeviceError> {
        let Some(class) = kind.class() else {
            return Ok(());
        };
        if class.loses_device() {
            self.lost.store(true, Ordering::Release);
        }
        Err(self.error(class, message))
    }
}

impl Armed {
    /// Counts a matching launch: is it one that fails?
    fn strikes(&self) -> bool {
        let count = self.seen.fetch_add(1, Ordering::Relaxed);
        match self.fault.when {
            When::Nth(n) => count + 1 == n,
            When::Probability { p, seed } => f64::from(philox(count, seed)[0]) < p * 32f64.exp2(),
        }
    }
}

impl Backend for Faulty {
    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }

    fn supports(&self, signature: &Signature) -> bool {
        self.inner.supports(signature)
    }

    fn missing_feature(&self, signature: &Signature) -> Option<&'static str> {
        self.inner.missing_feature(signature)
    }

    fn memory(&self) -> &dyn DeviceMemory {
        &self.memory
    }

    fn copied(&self) -> u64 {
        self.inner.copied()
    }

    fn libraries(&self) -> Vec<(String, String)> {
        self.inner.libraries()
    }

    fn may_lack(&self, kind: OpKind) -> bool {
        self.inner.may_lack(kind)
    }

    fn runs_ahead(&self) -> bool {
        self.inner.runs_ahead()
    }

    fn settle(&self) -> Result<(), DeviceError> {
        self.inner.settle()
    }

    fn wait(&self) -> Result<(), DeviceError> {
        self.inner.wait()
    }

    fn streams(&self) -> usize {
        self.inner.streams()
    }

    fn compilation(&self) -> Option<Compilation> {
        self.inner.compilation()
    }

    fn has_compiled(&self, graph: &Graph, constants: &[Option<HostBuffer>]) -> bool {
        self.inner.has_compiled(graph, constants)
    }

    fn compile(&self, graph: &Graph) -> Result<Box<dyn Program>, DeviceError> {
        self.state.check_alive()?;
        Ok(self.wrap(self.inner.compile(graph)?))
    }

    fn compile_with(
        &self,
        graph: &Graph,
        constants: &[Option<HostBuffer>],
    ) -> Result<Box<dyn Program>, DeviceError> {
        self.state.check_alive()?;
        Ok(self.wrap(self.inner.compile_with(graph, constants)?))
    }

    fn takes_constants(&self) -> bool {
        self.inner.takes_constants()
    }
}

struct FaultyProgram {
    inner: Box<dyn Program>,
    state: Arc<State>,
}

/// Strikes before a launch, then asks the run's own probe.
struct Striking<'a> {
    state: &'a State,
    next: &'a dyn Probe,
}

impl Probe for Striking<'_> {
    fn before(&self, node: usize, op: &Op) -> Result<(), DeviceError> {
        self.state.strike(node, op)?;
        self.next.before(node, op)
    }

    fn timed_since(&self) -> Option<Instant> {
        self.next.timed_since()
    }

    fn took(&self, launches: &Arc<[Nodes]>, first: usize, times: &[LaunchTime]) {
        self.next.took(launches, first, times);
    }

    fn update(&self) -> Option<usize> {
        self.next.update()
    }

    fn watcher(&self) -> Option<Watcher> {
        self.next.watcher()
    }
}

/// [`Program::run`] or [`Program::queue`].
type Start = fn(
    &(dyn Program + 'static),
    &[Arc<dyn DeviceBuffer>],
    &[Arc<dyn DeviceBuffer>],
    &dyn Probe,
) -> Result<(), DeviceError>;

impl FaultyProgram {
    fn start(
        &self,
        start: Start,
        inputs: &[Arc<dyn DeviceBuffer>],
        outputs: &[Arc<dyn DeviceBuffer>],
        probe: &dyn Probe,
    ) -> Result<(), DeviceError> {
        self.state.check_alive()?;
        let inputs: Vec<_> = inputs.iter().map(unwrap).collect();
        let outputs: Vec<_> = outputs.iter().map(unwrap).collect();
        let striking = Striking {
            state: &self.state,
            next: probe,
        };
        start(&*self.inner, &inputs, &outputs, &striking)?;
        match lock(&self.state.late).take() {
            Some(FaultKind::Wrong) => spoil(&outputs),
            Some(kind) => (self.state).tell(kind, "injected: found when waiting for the work"),
            None => Ok(()),
        }
    }
}

impl Program for FaultyProgram {
    fn run(
        &self,
        inputs: &[Arc<dyn DeviceBuffer>],
        outputs: &[Arc<dyn DeviceBuffer>],
        probe: &dyn Probe,
    ) -> Result<(), DeviceError> {
        self.start(<dyn Program>::run, inputs, outputs, probe)
    }

    fn queue(
        &self,
        inputs: &[Arc<dyn DeviceBuffer>],
        outputs: &[Arc<dyn DeviceBuffer>],
        probe: &dyn Probe,
    ) -> Result<(), DeviceError> {
        self.start(<dyn Program>::queue, inputs, outputs, probe)
    }

    fn run_ahead(
        &self,
        inputs: &[Arc<dyn DeviceBuffer>],
        outputs: &[Arc<dyn DeviceBuffer>],
        probe: &dyn Probe,
    ) -> Result<(), DeviceError> {
        self.start(<dyn Program>::run_ahead, inputs, outputs, probe)
    }

    fn finds_mistakes(&self) -> bool {
        self.inner.finds_mistakes()
    }

    fn is_queued(&self) -> bool {
        self.inner.is_queued()
    }

    fn preferred_units(&self) -> Vec<(Option<String>, usize)> {
        self.inner.preferred_units()
    }

    fn scratch(&self) -> Scratch {
        self.inner.scratch()
    }
}

/// Flips the lowest bit of every byte of the first output: all of its numbers change, whatever
/// their type.
fn spoil(outputs: &[Arc<dyn DeviceBuffer>]) -> Result<(), DeviceError> {
    let Some(output) = outputs.first() else {
        return Ok(());
    };
    let mut bytes = vec![0; output.bytes()];
    // SAFETY: the run is over, and its outputs are still its own.
    unsafe {
        output.read(0, &mut bytes)?;
        bytes.iter_mut().for_each(|byte| *byte ^= 1);
        output.write(0, &bytes)
    }
}

struct FaultyMemory {
    inner: Arc<dyn Backend>,
    state: Arc<State>,
}

impl FaultyMemory {
    fn wrap(&self, inner: Arc<dyn DeviceBuffer>, owned: bool) -> Arc<dyn DeviceBuffer> {
        Arc::new(FaultyBuffer {
            inner,
            state: self.state.clone(),
            owned,
        })
    }
}

impl DeviceMemory for FaultyMemory {
    fn alloc(&self, bytes: usize) -> Result<Arc<dyn DeviceBuffer>, DeviceError> {
        self.state.check_alive()?;
        Ok(self.wrap(self.inner.memory().alloc(bytes)?, true))
    }

    /// Writable memory is copied, as to a device with its own memory. So state is truly gone with
    /// the device. Weights are shared.
    fn adopt(&self, host: &HostBuffer) -> Result<Arc<dyn DeviceBuffer>, DeviceError> {
        self.state.check_alive()?;
        if !host.is_writable() {
            return Ok(self.wrap(self.inner.memory().adopt(host)?, false));
        }
        let mut bytes = vec![0; host.bytes()];
        let copy = self.alloc(host.bytes())?;
        // SAFETY: the runtime keeps writers away while it moves data; the copy is new.
        unsafe {
            host.read(0, &mut bytes)?;
            copy.write(0, &bytes)?;
        }
        Ok(copy)
    }

    fn free(&self) -> Option<u64> {
        self.inner.memory().free()
    }

    fn trim(&self) {
        self.inner.memory().trim();
    }
}

struct FaultyBuffer {
    inner: Arc<dyn DeviceBuffer>,
    state: Arc<State>,
    /// Whether it is the device's own memory, not the host's.
    owned: bool,
}

impl fmt::Debug for FaultyBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Faulty({:?})", self.inner)
    }
}

/// Bytes that do not arrive once the device is lost.
struct FaultyFetch {
    inner: Box<dyn Fetch>,
    state: Arc<State>,
}

impl Fetch for FaultyFetch {
    fn poll(&mut self, to: &mut [u8]) -> Poll<Result<(), DeviceError>> {
        self.state.check_alive()?;
        self.inner.poll(to)
    }

    fn wait(self: Box<Self>, to: &mut [u8]) -> Result<(), DeviceError> {
        self.state.check_alive()?;
        self.inner.wait(to)
    }
}

/// The wrapped device's buffer.
fn unwrap(buffer: &Arc<dyn DeviceBuffer>) -> Arc<dyn DeviceBuffer> {
    match buffer.as_any().downcast_ref::<FaultyBuffer>() {
        Some(faulty) => faulty.inner.clone(),
        None => buffer.clone(),
    }
}

impl DeviceBuffer for FaultyBuffer {
    fn bytes(&self) -> usize {
        self.inner.bytes()
    }

    unsafe fn read(&self, offset: usize, to: &mut [u8]) -> Result<(), DeviceError> {
        self.state.check_alive()?;
        // SAFETY: promised by the caller.
        unsafe { self.inner.read(offset, to) }
    }

    unsafe fn write(&self, offset: usize, from: &[u8]) -> Result<(), DeviceError> {
        self.state.check_alive()?;
        // SAFETY: promised by the caller.
        unsafe { self.inner.write(offset, from) }
    }

    fn fetch(&self, bytes: usize) -> Result<Option<Box<dyn Fetch>>, DeviceError> {
        self.state.check_alive()?;
        let fetch = self.inner.fetch(bytes)?;
        Ok(fetch.map(|inner| -> Box<dyn Fetch> {
            let state = self.state.clone();
            Box::new(FaultyFetch { inner, state })
        }))
    }

    fn host(&self) -> Result<Option<&HostBuffer>, DeviceError> {
        self.state.check_alive()?;
        // Memory of its own counts as the device's even where it is the host's, so that it
        // is truly gone with the device.
        match self.owned {
            true => Ok(None),
            false => self.inner.host(),
        }
    }

    fn is_poisoned(&self) -> bool {
        self.inner.is_poisoned()
    }

    fn settle(&self) -> Result<(), DeviceError> {
        self.state.check_alive()?;
        self.inner.settle()
    }

    fn wrote(&self) {
        self.inner.wrote();
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
