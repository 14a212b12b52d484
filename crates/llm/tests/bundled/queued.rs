//! A device that works behind the caller's back: sessions run ahead of what they have read.

use std::any::Any;
use std::fmt;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

use rustorch_cpu::Cpu;
use rustorch_faulty::{Fault, FaultKind, Faulty, When};
use rustorch_ir::{Graph, Signature};
use rustorch_llm::sampler::{SamplerChain, SamplerConfig};
use rustorch_llm::{
    GenerateOptions, LlmError, Model, Scores, Selection, Session, SessionOptions,
    generate as generate_text,
};
use rustorch_runtime::{
    Backend, DeviceBuffer, DeviceError, DeviceInfo, DeviceMemory, DeviceType, FailureClass, Fetch,
    Hardware, HostBuffer, NoProbe, Probe, Program, Runtime,
};

use crate::common::load;

const PROMPT: [u32; 5] = [0, 48, 1299, 602, 260];
const TOKENS: usize = 10;

type Job = Box<dyn FnOnce() -> Result<(), DeviceError> + Send>;

/// Work in the order in which it came, on a thread of its own. After a failure nothing is done.
struct Queue {
    jobs: Mutex<mpsc::Sender<Job>>,
    failed: Arc<AtomicBool>,
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
        })
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
        waited.map_err(|_| Self::lost())
    }
}

/// Another device's programs, queued, with memory of their own.
struct Queued {
    inner: Arc<dyn Backend>,
    info: DeviceInfo,
    queue: Arc<Queue>,
}

impl Queued {
    fn over(inner: Arc<dyn Backend>) -> Arc<dyn Backend> {
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
        Arc::new(QueuedBuffer { inner, queue })
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

impl Program for QueuedProgram {
    fn run(
        &self,
        inputs: &[Arc<dyn DeviceBuffer>],
        outputs: &[Arc<dyn DeviceBuffer>],
        probe: &dyn Probe,
    ) -> Result<(), DeviceError> {
        self.queue(inputs, outputs, probe)?;
        self.queue.wait()
    }

    fn queue(
        &self,
        inputs: &[Arc<dyn DeviceBuffer>],
        outputs: &[Arc<dyn DeviceBuffer>],
        probe: &dyn Probe,
    ) -> Result<(), DeviceError> {
        for (i, node) in self.graph.nodes().iter().enumerate() {
            probe.before(i, &node.op)?;
        }
        let unwrap = |buffers: &[Arc<dyn DeviceBuffer>]| -> Vec<_> {
            buffers.iter().map(|b| own(b).inner.clone()).collect()
        };
        let (inner, inputs, outputs) = (self.inner.clone(), unwrap(inputs), unwrap(outputs));
        let run = move || inner.run(&inputs, &outputs, &NoProbe);
        self.queue.push(Box::new(run));
        Ok(())
    }

    fn is_queued(&self) -> bool {
        true
    }
}

struct QueuedBuffer {
    inner: Arc<dyn DeviceBuffer>,
    queue: Arc<Queue>,
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
        Ok(Some(Box::new(Arriving(arriving))))
    }

    fn host(&self) -> Result<Option<&HostBuffer>, DeviceError> {
        match self.queue.failed.load(Ordering::SeqCst) {
            true => Err(Queue::lost()),
            false => Ok(None),
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

struct Arriving(mpsc::Receiver<Vec<u8>>);

impl Fetch for Arriving {
    fn wait(self: Box<Self>, to: &mut [u8]) -> Result<(), DeviceError> {
        let bytes = self.0.recv().map_err(|_| Queue::lost())?;
        to.copy_from_slice(&bytes);
        Ok(())
    }
}

fn cpu() -> Arc<dyn Backend> {
    Arc::new(Cpu::new(1))
}

fn options() -> SessionOptions {
    SessionOptions {
        context: PROMPT.len() + TOKENS,
        ..SessionOptions::default()
    }
}

/// The best tokens one after the other, and the segments that the first device ran.
fn generate(model: &Model, first: Arc<dyn Backend>) -> (Vec<u32>, u64, Runtime) {
    let device = first.info().device;
    let runtime = Runtime::new([first, cpu()]);
    let mut session = Session::new(model, &runtime, options()).unwrap();
    let mut scores = Scores::default();
    let mut fed = PROMPT.to_vec();
    for _ in 0..=TOKENS {
        let best = Selection::best();
        session.feed_and_select(&fed, &best, &mut scores).unwrap();
        fed.clone_from(scores.ids.as_ref().unwrap());
    }
    let used = runtime.used_devices();
    let runs = used.iter().find(|(d, _)| *d == device).map_or(0, |u| u.1);
    (session.tokens().to_vec(), runs, runtime)
}

fn fault(device: DeviceType, nth: u64, kind: FaultKind) -> Fault {
    let (op, when) = (None, When::Nth(nth));
    Fault {
        device,
        op,
        when,
        kind,
    }
}

pub(crate) fn a_device_that_runs_ahead_tells_the_same_and_no_further_than_the_context() {
    let model = load("Q4_K_M");
    let (expected, ..) = generate(&model, cpu());
    let (told, runs, runtime) = generate(&model, Queued::over(cpu()));
    assert_eq!(told, expected);
    assert!(runtime.fallbacks().is_empty());
    // The context is full: no pass was begun that nobody asked for.
    assert_eq!(runs, 1 + TOKENS as u64);
}

/// Of a prompt in batches, only the last one chooses a token to go on with.
pub(crate) fn generating_begins_one_pass_for_nothing() {
    let model = load("Q4_K_M");
    let greedy = SamplerConfig {
        temperature: 0.0,
        ..SamplerConfig::default()
    };
    let limit = GenerateOptions {
        max_tokens: Some(4),
        ignore_end: false,
    };
    let tell = |backend: Arc<dyn Backend>| {
        let runtime = Runtime::new([backend]);
        let options = SessionOptions {
            batch: 2,
            ..options()
        };
        let mut session = Session::new(&model, &runtime, options).unwrap();
        let mut sampler = SamplerChain::new(&greedy).unwrap();
        let on_event = |_| Ok::<_, LlmError>(ControlFlow::Continue(()));
        let told = generate_text(&mut session, &PROMPT, &mut sampler, &limit, on_event);
        (
            told.unwrap().ids,
            session.tokens().to_vec(),
            runtime.used_devices()[0].1,
        )
    };
    let (ids, tokens, passes) = tell(cpu());
    assert_eq!((ids.len(), tokens.len(), passes), (4, 5 + 3, 3 + 3));
    assert_eq!(tell(Queued::over(cpu())), (ids, tokens, passes + 1));
}

/// Weights and cache are where they are needed before the first token.
pub(crate) fn loading_copies_all_that_stays() {
    let model = load("Q4_K_M");
    let device = DeviceType::Cuda(0);
    let runtime = Runtime::new([Queued::over(cpu())]);
    let mut session = Session::new(&model, &runtime, options()).unwrap();
    let (mut done, mut total) = (0, 0);
    let best = Selection::best();
    let progress = |now, all| {
        assert!(now > done && now <= all);
        (done, total) = (now, all);
    };
    session.load(&best, progress).unwrap();
    let weights = model.gguf().tensors().iter();
    let weights: u64 = weights.map(|t| t.bytes() as u64).sum();
    let stays = weights + session.cache_bytes() as u64;
    assert_eq!((done, total), (stays, stays));
    let copied = || runtime.memory().moved(DeviceType::Cpu, device);
    assert_eq!(copied().bytes, stays);
    let mut scores = Scores::default();
    session
        .feed_and_select(&PROMPT, &best, &mut scores)
        .unwrap();
    // Token ids and positions.
    assert_eq!(copied().bytes, stays + PROMPT.len() as u64 * (8 + 4));
    assert_eq!(runtime.used_devices(), [(device, 1 + 1)]);
}

pub(crate) fn what_was_begun_for_nothing_is_forgotten() {
    let model = load("Q4_K_M");
    let queued = Runtime::new([Queued::over(cpu())]);
    let direct = Runtime::new([cpu()]);
    let mut ahead = Session::new(&model, &queued, options()).unwrap();
    let mut behind = Session::new(&model, &direct, options()).unwrap();
    let all = Selection::default();
    let mut both = |fed: &[u32], back: usize, best: &Selection| {
        let [ahead, behind] = [&mut ahead, &mut behind].map(|session| {
            let mut scores = Scores::default();
            session.truncate(session.tokens().len() - back);
            session.feed_and_select(fed, best, &mut scores).unwrap();
            (scores.ids, scores.logits)
        });
        assert!(ahead == behind, "{fed:?} after {back} tokens less");
        ahead.0.map_or(0, |ids| ids[0])
    };
    let best = Selection::best();
    let chosen = both(&PROMPT, 0, &best);
    // Another token, several, one less, the same again, and other scores of the chosen one.
    both(&[chosen + 1], 0, &best);
    both(&[7, 8, 9], 0, &best);
    both(&[10], 2, &best);
    let chosen = both(&[10], 1, &best);
    both(&[chosen], 0, &all);
    let chosen = both(&[chosen], 1, &best);
    both(&[chosen], 0, &best);
}

pub(crate) fn faults_ahead_of_the_host_change_no_token() {
    // Of a product that was refused its parts, too, give these tokens.
    let model = load("f16");
    let (expected, ..) = generate(&model, Queued::over(cpu()));
    // Where the work is queued, and where it is done.
    let early = |fault| {
        let faulty = Arc::new(Faulty::new(Queued::over(cpu()), [fault]));
        (faulty.clone(), faulty as Arc<dyn Backend>)
    };
    let late = |fault| {
        let faulty = Arc::new(Faulty::new(cpu(), [fault]));
        (faulty.clone(), Queued::over(faulty))
    };
    for (device, failing) in [
        (DeviceType::Cuda(0), &early as &dyn Fn(Fault) -> _),
        (DeviceType::Cpu, &late),
    ] {
        let (faulty, first) = failing(fault(device, u64::MAX, FaultKind::Lost));
        generate(&model, first);
        let launches = faulty.launches();
        for kind in FaultKind::FAILURES {
            for nth in (1..launches).step_by(launches as usize / 9) {
                let (_, first) = failing(fault(device, nth, kind));
                let (told, _, runtime) = generate(&model, first);
                let what = format!("{} at launch {nth} of {device}", kind.name());
                assert_eq!(told, expected, "{what}");
                assert!(!runtime.fallbacks().is_empty(), "{what}");
            }
        }
    }
}
