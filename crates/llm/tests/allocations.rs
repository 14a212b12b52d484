//! A decode step takes no memory: what it works in is there from steps before.

use std::alloc::{GlobalAlloc, Layout, System};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rustorch_cpu::Cpu;
use rustorch_gguf::Gguf;
use rustorch_llm::{Model, Session, SessionOptions};
use rustorch_runtime::{Backend, Runtime};

/// The system's allocator, counting calls on any thread while it is told to.
struct Counting;

static COUNTS: AtomicBool = AtomicBool::new(false);
static TAKEN: AtomicUsize = AtomicUsize::new(0);

fn count() {
    if COUNTS.load(Ordering::SeqCst) {
        TAKEN.fetch_add(1, Ordering::SeqCst);
    }
}

// SAFETY: everything is left to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: promised by the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: promised by the caller.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, start: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: promised by the caller.
        unsafe { System.realloc(start, layout, size) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        // SAFETY: promised by the caller.
        unsafe { System.dealloc(start, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Numbers of allocations in each of `steps` decode steps on a CPU of `threads`, after a prompt and
/// two steps.
fn taken(threads: usize, steps: usize) -> Vec<usize> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/classics-13m-Q4_K_M.gguf");
    let model = Model::load(Gguf::open(path).unwrap()).unwrap();
    let runtime = Runtime::new([Arc::new(Cpu::new(threads)) as Arc<dyn Backend>]);
    let prompt = [0, 48, 1299, 602, 260];
    let options = SessionOptions {
        context: prompt.len() + 2 + steps,
        ..SessionOptions::default()
    };
    let mut session = Session::new(&model, &runtime, options).unwrap();
    let mut logits = Vec::new();
    session.feed(&prompt, &mut logits).unwrap();
    let mut tokens = [7, 602, 48, 1299].into_iter().cycle();
    let mut step = || {
        let token = tokens.next().unwrap();
        TAKEN.store(0, Ordering::SeqCst);
        COUNTS.store(true, Ordering::SeqCst);
        session.feed(&[token], &mut logits).unwrap();
        COUNTS.store(false, Ordering::SeqCst);
        TAKEN.load(Ordering::SeqCst)
    };
    step();
    step();
    (0..steps).map(|_| step()).collect()
}

// One test, for the counter is everybody's. A thread takes what it works in when it first comes to a
// kind of work, which can be late for a worker, and twice as much when there are more keys than
// that holds.
#[test]
fn decode_steps_take_no_memory() {
    for threads in [1, 2] {
        let taken = taken(threads, 400);
        let steps = taken.iter().filter(|&&taken| taken != 0).count();
        assert!(steps <= 8 * threads, "{steps} of 400 steps: {taken:?}");
    }
}
