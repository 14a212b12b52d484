//! A device that works asynchronously.

use std::any::Any;
use std::fmt;
use std::mem;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::TryRecvError;
use std::sync::{Arc, Mutex, mpsc};
use std::task::Poll;
use std::thread;

use rustorch_ir::{Graph, Signature};
use rustorch_runtime::{
    Backend, DeviceBuffer, DeviceError, DeviceInfo, DeviceMemory, DeviceType, FailureClass, Fetch,
    Hardware, HostBuffer, NoProbe, Probe, Program,
};

type Job = Box<dyn FnOnce() -> Result<(), DeviceError> + Send>;

/// Work in the order in which it came, on its own thread. After a failure nothing is done.
struct Queue {
    jobs: Mutex<mpsc::Sender<Job>>,
    failed: Arc<AtomicBool>,
    /// Number of waits.
    period: AtomicU64,
    /// The number of the next program.
    next: AtomicU64,
    /// Runs with a mistake that was not reported yet.
    mistaken: Mutex<Vec<Runs>>,
    /// Mistaken runs that are known.
    poisoned: Mutex<Vec<Runs>>,
}

/// The runs of a program, by its number, from one wait to the next: one mistake among them counts for all.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Runs {
    program: u64,
    period: u64,
}

impl Queue {
    fn new() -> Arc<Self> {
        let (jobs, queued) = mpsc::channel::<Job>();
        let failed = Arc::new(AtomicBool::new(false));
        let flag = failed.clone();
        thread::spawn(move || {
            for job in queued {
                if !flag.load(Ordering::SeqCst) && job().is_err() {
                    flag.store(true, Ordering::SeqCst);
                }
            }
        });
        Arc::new(Self {
            jobs: Mutex::new(jobs),
            failed,
            period: AtomicU64::new(0),
            next: AtomicU64::new(0),
            mistaken: Mutex::default(),
            poisoned: Mutex::default(),
        })
    }

    /// Looks for mistakes of runs that are over.
    fn settle(&self) {
        let found = mem::take(&mut *self.mistaken.lock().unwrap());
        self.poisoned.lock().unwrap().extend(found);
        self.period.fetch_add(1, Ordering::SeqCst);
    }

    fn is_poisoned(&self, came_of: &[Runs]) -> bool {
        let poisoned = self.poisoned.lock().unwrap();
        came_of.iter().any(|runs| poisoned.contains(runs))
    }

    /// Fails if results of these runs are poisoned.
    fn check(&self, came_of: &[Runs]) -> Result<(), DeviceError> {
        let message = "computed from what a mistake led to";
        match self.is_poisoned(came_of) {
            true => Err(DeviceError::new(
                DeviceType::Cuda(0),
                FailureClass::Caller,
                message,
            )),
            false => Ok(()),
        }
    }

    fn push(&self, job: Job) {
        self.jobs.lock().unwrap().send(job).unwrap();
    }

    fn lost() -> DeviceError {
        let message = "the queue stopped";
        DeviceError::new(DeviceType::Cuda(0), FailureClass::Lost, message)
    }

    /// Sends the result of a job that comes after all others.
    fn after<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> Result<T, DeviceError> + Send + 'static,
    ) -> mpsc::Receiver<T> {
        let (send, receive) = mpsc::channel();
        self.push(Box::new(move || {
            // Nobody may be left who wants it.
            let _ = send.send(job()?);
            Ok(())
        }));
        receive
    }

    fn wait(&self) -> Result<(), DeviceError> {
        let waited = self.after(|| Ok(())).recv();
        waited.map_err(|_| Self::lost())?;
        self.settle();
        Ok(())
    }
}

/// Another device's programs, queued, with their own memory. A mistake of the caller's that one
/// finds poisons all that came of its last runs.
pub struct Queued {
    inner: Arc<dyn Backend>,
    info: DeviceInfo,
    queue: Arc<Queue>,
}

impl Queued {
    /// `inner`, as if it were `cuda:0`.
    pub fn over(inner: Arc<dyn Backend>) -> Arc<dyn Backend> {
        let info = DeviceInfo {
            device: DeviceType::Cuda(0),
            hardware: Hardware::Gpu,
            shares_host_memory: false,
            ..inner.info().clone()
        };
        let queue = Queue::new();
        Arc::new(Self { inner, info, queue })
    }

    fn wrap(&self, inner: Arc<dyn DeviceBuffer>) -> Arc<dyn DeviceBuffer> {
        let queue = self.queue.clone();
        Arc::new(QueuedBuffer {
            inner,
            queue,
            came_of: Mutex::default(),
        })
    }
}

impl Backend for Queued {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn supports(&self, signature: &Signature) -> bool {
        self.inner.supports(signature)
    }

    fn memory(&self) -> &dyn DeviceMemory {
        self
    }

    fn runs_ahead(&self) -> bool {
        true
    }

    fn settle(&self) -> Result<(), DeviceError> {
        self.queue.wait()
    }

    fn compile(&self, graph: &Graph) -> Result<Box<dyn Program>, DeviceError> {
        Ok(Box::new(QueuedProgram {
            inner: self.inner.compile(graph)?.into(),
            graph: graph.clone(),
            number: self.queue.next.fetch_add(1, Ordering::SeqCst),
            queue: self.queue.clone(),
        }))
    }
}

impl DeviceMemory for Queued {
    fn alloc(&self, bytes: usize) -> Result<Arc<dyn DeviceBuffer>, DeviceError> {
        Ok(self.wrap(self.inner.memory().alloc(bytes)?))
    }

    fn adopt(&self, host: &HostBuffer) -> Result<Arc<dyn DeviceBuffer>, DeviceError> {
        let copy = self.alloc(host.bytes())?;
        // SAFETY: the runtime keeps writers away while it moves data; the copy is new.
        unsafe {
            let bytes = std::slice::from_raw_parts(host.as_ptr(), host.bytes());
            copy.write(0, bytes)?;
        }
        Ok(copy)
    }

    fn trim(&self) {}
}

struct QueuedProgram {
    inner: Arc<dyn Program>,
    graph: Graph,
    number: u64,
    queue: Arc<Queue>,
}

impl QueuedProgram {
    /// Queues a run. Its mistakes fail the run, or poison its results.
    fn start(
        &self,
        inputs: &[Arc<dyn DeviceBuffer>],
        outputs: &[Arc<dyn DeviceBuffer>],
        probe: &dyn Probe,
        poisons: bool,
    ) -> Result<mpsc::Receiver<Result<(), DeviceError>>, DeviceError> {
        for (i, node) in self.graph.nodes().iter().enumerate() {
            probe.before(i, &node.op)?;
        }
        let runs = Runs {
            program: self.number,
            period: self.queue.period.load(Ordering::SeqCst),
        };
        let unwrap = |buffers: &[Arc<dyn DeviceBuffer>]| -> Vec<_> {
            buffers.iter().map(|b| own(b).inner.clone()).collect()
        };
        let (inner, taken, made) = (self.inner.clone(), unwrap(inputs), unwrap(outputs));
        let (send, ran) = mpsc::channel();
        let queue = self.queue.clone();
        self.queue.push(Box::new(move || {
            let ran = inner.run(&taken, &made, &NoProbe);
            match &ran {
                Err(e) if e.class == FailureClass::Caller => {
                    if poisons {
                        queue.mistaken.lock().unwrap().push(runs);
                    }
                }
                Err(e) => return Err(e.clone()),
                Ok(()) => {}
            }
            // Nobody may be left who wants it.
            let _ = send.send(ran);
            Ok(())
        }));
        let mut came_of: Vec<Runs> = Vec::from_iter(poisons.then_some(runs));
        for input in inputs {
            came_of.extend(own(input).came_of.lock().unwrap().iter());
        }
        for output in outputs {
            own(output).came_of.lock().unwrap().clone_from(&came_of);
        }
        Ok(ran)
    }
}

impl Program for QueuedProgram {
    fn run(
        &self,
        inputs: &[Arc<dyn DeviceBuffer>],
        outputs: &[Arc<dyn DeviceBuffer>],
        probe: &dyn Probe,
    ) -> Result<(), DeviceError> {
        let ran = self.start(inputs, outputs, probe, false)?;
        ran.recv().map_err(|_| Queue::lost())?
    }

    fn queue(
        &self,
        inputs: &[Arc<dyn DeviceBuffer>],
        outputs: &[Arc<dyn DeviceBuffer>],
        probe: &dyn Probe,
    ) -> Result<(), DeviceError> {
        self.start(inputs, outputs, probe, false).map(drop)
    }

    fn run_ahead(
        &self,
        inputs: &[Arc<dyn DeviceBuffer>],
        outputs: &[Arc<dyn DeviceBuffer>],
        probe: &dyn Probe,
    ) -> Result<(), DeviceError> {
        self.start(inputs, outputs, probe, true).map(drop)
    }

    fn is_queued(&self) -> bool {
        true
    }
}

struct QueuedBuffer {
    inner: Arc<dyn DeviceBuffer>,
    queue: Arc<Queue>,
    /// Runs ahead that it was computed by.
    came_of: Mutex<Vec<Runs>>,
}

fn own(buffer: &Arc<dyn DeviceBuffer>) -> &QueuedBuffer {
    buffer.as_any().downcast_ref().unwrap()
}

impl fmt::Debug for QueuedBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Queued({:?})", self.inner)
    }
}

impl DeviceBuffer for QueuedBuffer {
    fn bytes(&self) -> usize {
        self.inner.bytes()
    }

    unsafe fn read(&self, offset: usize, to: &mut [u8]) -> Result<(), DeviceError> {
        self.queue.wait()?;
        self.queue.check(&self.came_of.lock().unwrap())?;
        // SAFETY: promised by the caller.
        unsafe { self.inner.read(offset, to) }
    }

    unsafe fn write(&self, offset: usize, from: &[u8]) -> Result<(), DeviceError> {
        self.queue.wait()?;
        // SAFETY: promised by the caller.
        unsafe { self.inner.write(offset, from) }
    }

    fn fetch(&self, bytes: usize) -> Result<Option<Box<dyn Fetch>>, DeviceError> {
        let inner = self.inner.clone();
        let arriving = self.queue.after(move || {
            let mut copy = vec![0; bytes];
            // SAFETY: what writes to it comes before or after in the queue.
            unsafe { inner.read(0, &mut copy)? };
            Ok(copy)
        });
        Ok(Some(Box::new(Arriving {
            arriving,
            queue: self.queue.clone(),
            came_of: self.came_of.lock().unwrap().clone(),
        })))
    }

    fn host(&self) -> Result<Option<&HostBuffer>, DeviceError> {
        match self.queue.failed.load(Ordering::SeqCst) {
            true => Err(Queue::lost()),
            false => Ok(None),
        }
    }

    fn is_poisoned(&self) -> bool {
        self.queue.is_poisoned(&self.came_of.lock().unwrap())
    }

    fn settle(&self) -> Result<(), DeviceError> {
        match self.came_of.lock().unwrap().is_empty() {
            true => Ok(()),
            false => self.queue.wait(),
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

struct Arriving {
    arriving: mpsc::Receiver<Vec<u8>>,
    queue: Arc<Queue>,
    came_of: Vec<Runs>,
}

impl Fetch for Arriving {
    fn poll(&mut self, to: &mut [u8]) -> Poll<Result<(), DeviceError>> {
        let bytes = match self.arriving.try_recv() {
            Err(TryRecvError::Empty) => return Poll::Pending,
            arrived => arrived.map_err(|_| Queue::lost())?,
        };
        self.queue.settle();
        self.queue.check(&self.came_of)?;
        to.copy_from_slice(&bytes);
        Poll::Ready(Ok(()))
    }
}
