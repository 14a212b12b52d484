//! Memory use of a function.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

/// The system's allocator, which counts each thread's memory.
///
/// ```
/// use rustorch_testing::memory::{Counting, peak};
///
/// #[global_allocator]
/// static ALLOCATOR: Counting = Counting;
///
/// let (bytes, numbers) = peak(|| vec![0_u64; 1000]);
/// assert_eq!((bytes, numbers.len()), (8000, 1000));
/// ```
pub struct Counting;

fn count(change: isize) {
    let held = HELD.get() + change;
    HELD.set(held);
    PEAK.set(PEAK.get().max(held));
}

// SAFETY: every call is passed on unchanged to the system's allocator; counting touches two numbers of this thread that
// need neither allocation nor destruction.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// Runs `f`. Returns the peak bytes of this thread during the call, beyond those before, and the
/// result.
pub fn peak<T>(f: impl FnOnce() -> T) -> (usize, T) {
    let before = HELD.get();
    PEAK.set(before);
    let result = f();
    ((PEAK.get() - before) as usize, result)
}

/// Runs `f`, which may hold at most `most` bytes.
///
/// # Panics
/// Panics if the function holds more.
pub fn within<T>(most: usize, f: impl FnOnce() -> T) -> T {
    let (peak, result) = peak(f);
    assert!(peak <= most, "{peak} bytes held, of {most}");
    result
}
