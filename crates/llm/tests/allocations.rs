//! A decode step takes no memory: everything it works in is there from the steps before.

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

#[test]
fn a_decode_step_takes_no_memory() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/classics-13m-Q4_K_M.gguf");
    let model = Model::load(Gguf::open(path).unwrap()).unwrap();
    let runtime = Runtime::new([Arc::new(Cpu::new(2)) as Arc<dyn Backend>]);
    let options = SessionOptions {
        context: 64,
        ..SessionOptions::default()
    };
    let mut session = Session::new(&model, &runtime, options).unwrap();
    let mut logits = Vec::new();
    session.feed(&[0, 48, 1299, 602, 260], &mut logits).unwrap();
    for token in [7, 602] {
        session.feed(&[token], &mut logits).unwrap();
    }
    for token in [48, 1299, 7] {
        COUNTS.store(true, Ordering::SeqCst);
        session.feed(&[token], &mut logits).unwrap();
        COUNTS.store(false, Ordering::SeqCst);
        assert_eq!(TAKEN.load(Ordering::SeqCst), 0, "a step took memory");
    }
}
