//! Which devices there are, and which of them compute.

use std::cell::RefCell;
use std::sync::{Arc, LazyLock};

use rustorch_runtime::{Backend, Routing, Runtime};

/// Every device of this machine, best first: the one list of backends. The processor works
/// with `threads` threads, 0 for as many as it has physical cores.
pub fn backends(threads: usize) -> Vec<Arc<dyn Backend>> {
    vec![
        Arc::new(rustorch_cpu::Cpu::new(threads)),
        Arc::new(rustorch_reference::Reference::new()),
    ]
}

static GLOBAL: LazyLock<Runtime> = LazyLock::new(|| Runtime::new(backends(0)));

thread_local! {
    static CHOSEN: RefCell<Vec<(Runtime, Routing)>> = const { RefCell::new(Vec::new()) };
}

/// The runtime that this thread's tensors are computed by: that of the innermost
/// [`with_runtime`], else one of all [`backends`], made when it is first needed.
pub fn runtime() -> Runtime {
    current().0
}

/// [`runtime`], and which of its devices may be used.
pub(crate) fn current() -> (Runtime, Routing) {
    let chosen = CHOSEN.with_borrow(|chosen| chosen.last().cloned());
    chosen.unwrap_or_else(|| (GLOBAL.clone(), Routing::default()))
}

/// Calls `f`; what it evaluates on this thread is computed by `runtime`, on the devices that
/// `routing` names.
pub fn with_runtime<R>(runtime: &Runtime, routing: Routing, f: impl FnOnce() -> R) -> R {
    /// Ends the choice even if `f` panics.
    struct Restore;
    impl Drop for Restore {
        fn drop(&mut self) {
            CHOSEN.with_borrow_mut(Vec::pop);
        }
    }
    CHOSEN.with_borrow_mut(|chosen| chosen.push((runtime.clone(), routing)));
    let _restore = Restore;
    f()
}
