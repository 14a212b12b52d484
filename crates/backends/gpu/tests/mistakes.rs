//! Mistakes that kernels find in runs which nobody waits for, on a device that computes nothing: it is told which
//! launch finds one.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use rustorch_gpu::{Dialect, Driver, Gpu, Launch, Limits};
use rustorch_ir::ops::{IndexSelect, UnaryOp};
use rustorch_ir::{DType, Graph, TensorType};
use rustorch_runtime::{
    Backend, DeviceBuffer, DeviceError, DeviceInfo, DeviceType, Hardware, HostBuffer, NoProbe,
    Program,
};

thread_local! {
    /// Does the next launch of this thread that can find a mistake find one?
    static IS_WRONG: Cell<bool> = const { Cell::new(false) };
}

/// A device that notes mistakes when it is waited for.
struct Late {
    info: DeviceInfo,
    limits: Limits,
    waits: Arc<AtomicU32>,
    /// Words that launches have written to, but for which nobody has waited.
    written: Mutex<Vec<Word>>,
}

/// A word of memory: kernels write to those of statuses.
#[derive(Clone, Default, Debug)]
struct Word {
    value: Arc<AtomicU32>,
    is_status: bool,
}

impl Late {
    fn new(waits: &Arc<AtomicU32>) -> Self {
        Self {
            info: DeviceInfo {
                device: DeviceType::Cuda(0),
                hardware: Hardware::Gpu,
                shares_host_memory: false,
                name: "late".to_owned(),
                memory_bytes: None,
                details: Vec::new(),
            },
            limits: Limits {
                max_group: 1024,
                local_bytes: 48 << 10,
                max_buffer: 1 << 30,
                memory: 1 << 30,
                has_f64: true,
                compute_units: 1,
                is_processor: false,
                cuda_capability: 70,
            },
            waits: waits.clone(),
            written: Mutex::default(),
        }
    }

    fn written(&self) -> MutexGuard<'_, Vec<Word>> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Driver for Late {
    type Buffer = Word;
    type Kernel = ();
    type Recording = ();

    const KEEPS_BINARIES: bool = false;
    const RECORDS: bool = true;

    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn dialect(&self) -> Dialect {
        Dialect::Cuda
    }

    fn alloc(&self, _: usize) -> Result<Word, DeviceError> {
        Ok(Word::default())
    }

    fn alloc_status(&self) -> Result<Word, DeviceError> {
        Ok(Word {
            is_status: true,
            ..Word::default()
        })
    }

    fn share(&self, _: &HostBuffer) -> Result<Option<Word>, DeviceError> {
        Ok(None)
    }

    fn host<'b>(&self, _: &'b Word) -> Result<Option<&'b HostBuffer>, DeviceError> {
        Ok(None)
    }

    unsafe fn read(&self, word: &Word, _: usize, to: &mut [u8]) -> Result<(), DeviceError> {
        self.wait()?;
        to.fill(0);
        if word.is_status {
            to.copy_from_slice(&word.value.load(Ordering::SeqCst).to_ne_bytes());
        }
        Ok(())
    }

    unsafe fn write(&self, word: &Word, _: usize, _: &[u8]) -> Result<(), DeviceError> {
        word.value.store(0, Ordering::SeqCst);
        Ok(())
    }

    fn compile(&self, _: &str) -> Result<Vec<u8>, DeviceError> {
        Ok(Vec::new())
    }

    fn load(&self, _: &[u8], _: &str) -> Result<(), DeviceError> {
        Ok(())
    }

    unsafe fn launch(&self, (): &(), launch: &Launch<'_, Self>) -> Result<(), DeviceError> {
        let status = launch.buffers.iter().find(|word| word.is_status);
        if let Some(&word) = status
            && IS_WRONG.replace(false)
        {
            self.written().push(word.clone());
        }
        Ok(())
    }

    fn wait(&self) -> Result<(), DeviceError> {
        self.waits.fetch_add(1, Ordering::SeqCst);
        for word in self.written().drain(..) {
            word.value.store(1, Ordering::SeqCst);
        }
        Ok(())
    }
}

type Buffer = Arc<dyn DeviceBuffer>;

/// The device with two programs that find mistakes, and one that finds none.
struct Device {
    waits: Arc<AtomicU32>,
    backend: Gpu<Late>,
    selects: [Box<dyn Program>; 2],
    negates: Box<dyn Program>,
    x: Buffer,
    index: Buffer,
}

const BYTES: usize = 16;

/// Chooses so many places of a vector, whose numbers may be wrong.
fn choice(places: usize) -> Graph {
    let mut graph = Graph::new();
    let x = graph.input(TensorType::new([4], DType::F32)).unwrap();
    let index = graph.input(TensorType::new([places], DType::I32)).unwrap();
    let y = graph.push(IndexSelect { dim: 0 }, &[x, index]).unwrap();
    graph.output(y);
    graph
}

fn new() -> Device {
    let waits = Arc::<AtomicU32>::default();
    let backend = Gpu::new(Late::new(&waits));
    let select = |places| backend.compile(&choice(places)).unwrap();
    let mut graph = Graph::new();
    let [a, b] = [(); 2].map(|()| graph.input(TensorType::new([4], DType::F32)).unwrap());
    let sum = graph.add(a, b).unwrap();
    let y = graph.unary(UnaryOp::Neg, sum).unwrap();
    graph.output(y);
    Device {
        selects: [select(4), select(3)],
        negates: backend.compile(&graph).unwrap(),
        x: backend.memory().alloc(BYTES).unwrap(),
        index: backend.memory().alloc(BYTES).unwrap(),
        waits,
        backend,
    }
}

impl Device {
    fn run(&self, program: &dyn Program, inputs: &[&Buffer]) -> Buffer {
        let inputs: Vec<Buffer> = inputs.iter().map(|&input| input.clone()).collect();
        let y = self.backend.memory().alloc(BYTES).unwrap();
        program
            .run_ahead(&inputs, std::slice::from_ref(&y), &NoProbe)
            .unwrap();
        y
    }

    /// A run of one of the programs that find mistakes.
    fn select(&self, program: usize, is_wrong: bool) -> Buffer {
        IS_WRONG.set(is_wrong);
        self.run(&*self.selects[program], &[&self.x, &self.index])
    }

    fn negate(&self, a: &Buffer, b: &Buffer) -> Buffer {
        self.run(&*self.negates, &[a, b])
    }
}

fn can_be_read(buffer: &Buffer) -> bool {
    // SAFETY: nothing writes to it.
    unsafe { buffer.read(0, &mut [0; BYTES]) }.is_ok()
}

#[test]
fn what_came_of_a_mistake_cannot_be_read_and_all_else_can() {
    let device = new();
    let before = device.select(1, false);
    let wrong = device.select(0, true);
    let from_it = device.negate(&device.x, &wrong);
    let further = device.negate(&from_it, &before);
    let between = device.negate(&device.x, &before);
    let after = device.select(1, false);
    assert!(!wrong.is_poisoned(), "nobody has waited yet");
    for innocent in [&device.x, &before, &between, &after] {
        assert!(can_be_read(innocent) && !innocent.is_poisoned());
    }
    for poisoned in [&wrong, &from_it, &further, &wrong] {
        assert!(!can_be_read(poisoned) && poisoned.is_poisoned());
    }
    // Nothing right is computed from results that are known to be wrong; all else goes on.
    let later = device.negate(&before, &from_it);
    assert!(later.is_poisoned() && !can_be_read(&later));
    assert!(can_be_read(&device.select(0, false)));
    assert!(can_be_read(&device.negate(&between, &after)));
}

#[test]
fn a_mistake_is_waited_for_only_by_who_may_have_it() {
    let device = new();
    let innocent = device.negate(&device.x, &device.x);
    let wrong = device.select(0, true);
    let waits = || device.waits.load(Ordering::SeqCst);
    let begun = waits();
    innocent.settle().unwrap();
    assert_eq!(waits(), begun);
    wrong.settle().unwrap();
    assert!(waits() > begun && wrong.is_poisoned());
    assert!(!innocent.is_poisoned());
    let begun = waits();
    wrong.settle().unwrap();
    assert_eq!(waits(), begun, "it is known");
}

#[test]
fn a_buffer_that_is_written_anew_is_suspected_of_nothing() {
    let device = new();
    let y = device.select(0, true);
    // SAFETY: nothing else uses it.
    unsafe { y.write(0, &[0; BYTES]) }.unwrap();
    assert!(can_be_read(&y));
    let inputs = [device.x.clone(), device.x.clone()];
    let y = device.select(0, true);
    (device
        .negates
        .run_ahead(&inputs, std::slice::from_ref(&y), &NoProbe))
    .unwrap();
    assert!(can_be_read(&y));
}

#[test]
fn a_run_that_is_waited_for_tells_its_own_mistakes_alone() {
    let device = new();
    let wrong = device.select(0, true);
    let inputs = [device.x.clone(), device.index.clone()];
    let y = device.backend.memory().alloc(BYTES).unwrap();
    let run = || device.selects[0].run(&inputs, std::slice::from_ref(&y), &NoProbe);
    run().unwrap();
    assert!(can_be_read(&y) && wrong.is_poisoned());
    IS_WRONG.set(true);
    let told = run().unwrap_err().to_string();
    assert!(told.contains("index"), "{told}");
    run().unwrap();
}

#[test]
fn more_programs_than_a_period_tells_apart_poison_no_less() {
    let device = new();
    let select = |places| device.backend.compile(&choice(places)).unwrap();
    let programs: Vec<_> = (5..45).map(select).collect();
    for wrong in [0, 10, 23, 39] {
        let made: Vec<Buffer> = (programs.iter().enumerate())
            .map(|(i, program)| {
                IS_WRONG.set(i == wrong);
                device.run(&**program, &[&device.x, &device.index])
            })
            .collect();
        let readable: Vec<bool> = made.iter().map(can_be_read).collect();
        assert!(!readable[wrong], "{wrong}");
        // The first programs are told apart.
        let mut others = (0..20).filter(|&i| i != wrong);
        assert!(others.all(|i| readable[i]), "{wrong}");
    }
}

#[test]
fn threads_miss_no_mistake_and_find_none_too_many() {
    const RUNS: usize = 2000;
    let device = &new();
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..RUNS {
                    let y = device.negate(&device.x, &device.select(1, false));
                    assert!(can_be_read(&y));
                }
            });
        }
        for is_wrong in [true, false] {
            scope.spawn(move || {
                for _ in 0..RUNS {
                    let y = device.negate(&device.select(0, is_wrong), &device.x);
                    // Runs of one program by several threads share their mistakes.
                    assert!(!is_wrong || !can_be_read(&y));
                }
            });
        }
    });
}
