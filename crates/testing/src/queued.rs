//! A device that works behind the caller's back.

use std::any::Any;
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

use rustorch_ir::{Graph, Signature};
use rustorch_runtime::{
    Backend, DeviceBuffer, DeviceError, DeviceInfo, DeviceMemory, DeviceType, FailureClass, Fetch,
    Hardware, HostBuffer, NoProbe, Probe, Program,
};

type Job = Box<dyn FnOnce() -> Result<(), DeviceError> + Send>;

/// Work in the order in which it came, on a thread of its own. After a failure nothing is done.
struct Queue {
    jobs: Mutex<mpsc::Sender<Job>>,
    failed: Arc<AtomicBool>,
    /// The number of the next run.
    next: AtomicU64,
    /// Runs that found a mistake, of which nobody knows yet.
    mistaken: Mutex<Vec<u64>>,
    /// Runs that were queued from such a one on, until somebody waited.
    poisoned: Mutex<Vec<RangeInclusive<u64>>>,
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
            next: AtomicU64::new(1),
            mistaken: Mutex::default(),
            poisoned: Mutex::default(),
        })
    }

    /// Looks for mistakes of runs that are over.
    fn settle(&self) {
        for number in self.mistaken.lock().unwrap().drain(..) {
            let mut poisoned = self.poisoned.lock().unwrap();
            poisoned.push(number..=self.next.load(Ordering::SeqCst));
            self.next.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn is_poisoned(&self, number: u64) -> bool {
        let poisoned = self.poisoned.lock().unwrap();
        poisoned.iter().any(|range| range.contains(&number))
    }

    /// Fails if what a run wrote is poisoned.
    fn check(&self, number: u64) -> Result<(), DeviceError> {
        let message = "computed from what a mistake led to";
        match self.is_poisoned(number) {
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

/// Another device's programs, queued, with memory of their own. A mistake of the caller's that one
/// finds poisons all that was computed by it and later.
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
            written: AtomicU64::new(0),
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
    queue: Arc<Queue>,
}

impl QueuedProgram {
    /// Queues a run, whose mistakes are the run's failure, or poison what it writes.
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
        let number = self.queue.next.fetch_add(1, Ordering::SeqCst);
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
                        queue.mistaken.lock().unwrap().push(number);
                    }
                }
                Err(e) => return Err(e.clone()),
                Ok(()) => {}
            }
            // Nobody may be left who wants it.
            let _ = send.send(ran);
            Ok(())
        }));
        let mut written = number;
        for input in inputs.iter().filter(|input| input.is_poisoned()) {
            written = own(input).written.load(Ordering::SeqCst);
        }
        for output in outputs {
            own(output).written.store(written, Ordering::SeqCst);
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
    /// The number of the run that wrote it; 0 if that was none.
    written: AtomicU64,
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
        self.queue.check(self.written.load(Ordering::SeqCst))?;
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
        let (queue, written) = (self.queue.clone(), self.written.load(Ordering::SeqCst));
        Ok(Some(Box::new(Arriving {
            arriving,
            queue,
            written,
        })))
    }

    fn host(&self) -> Result<Option<&HostBuffer>, DeviceError> {
        match self.queue.failed.load(Ordering::SeqCst) {
            true => Err(Queue::lost()),
            false => Ok(None),
        }
    }

    fn is_poisoned(&self) -> bool {
        self.queue.is_poisoned(self.written.load(Ordering::SeqCst))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

struct Arriving {
    arriving: mpsc::Receiver<Vec<u8>>,
    queue: Arc<Queue>,
    /// The number of the run that wrote it.
    written: u64,
}

impl Fetch for Arriving {
    fn wait(self: Box<Self>, to: &mut [u8]) -> Result<(), DeviceError> {
        let bytes = self.arriving.recv().map_err(|_| Queue::lost())?;
        self.queue.settle();
        self.queue.check(self.written)?;
        to.copy_from_slice(&bytes);
        Ok(())
    }
}
