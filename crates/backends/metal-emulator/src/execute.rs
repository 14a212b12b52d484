//! Threadgroups, each thread a fibre.

use std::cell::{Cell, RefCell, UnsafeCell};
use std::ffi::c_void;
use std::ptr;

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use libloading::Library;

use crate::{SIMD, THREADGROUP_MEMORY};

/// A kernel for one thread: buffers, constants, the group's position, the thread's number.
pub(crate) type Entry = unsafe extern "C" fn(*const *mut u8, *const u32, *const [u32; 3], u32);

/// Functions that kernels call, `RustorchThreads` in the header.
#[repr(C)]
pub(crate) struct Threads {
    barrier: unsafe extern "C" fn(),
    exchange: unsafe extern "C" fn(*const c_void, usize) -> *const c_void,
    shared: unsafe extern "C" fn(u32, usize) -> *mut c_void,
    leads: unsafe extern "C" fn() -> bool,
    lane: unsafe extern "C" fn() -> u32,
}

pub(crate) static THREADS: Threads = Threads {
    barrier,
    exchange,
    shared,
    leads,
    lane,
};

/// A dispatch.
pub(crate) struct Grid<'a> {
    pub(crate) buffers: Vec<*mut u8>,
    pub(crate) params: &'a [u32],
    pub(crate) groups: [u32; 3],
    /// Threads of a group.
    pub(crate) threads: usize,
    /// Do the last threads go first?
    pub(crate) is_reversed: bool,
}

/// Bytes of a fibre's stack.
const STACK: usize = 128 << 10;

/// Reasons for a thread's wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stop {
    Barrier,
    Simd,
}

/// State of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Runs,
    Waits(Stop),
    Done,
}

/// A value that a thread of a SIMD-group gives to the others.
#[derive(Clone, Copy)]
#[repr(C, align(16))]
struct Slot([u8; 16]);

/// Common state of the threads of a group.
struct Group {
    /// The one that runs.
    thread: Cell<usize>,
    threads: usize,
    is_reversed: bool,
    /// Suspension of each thread; null outside of fibres.
    yielders: Vec<Cell<*const Yielder<(), Stop>>>,
    /// The values given, of each SIMD-group in turn: those of the last time may still be read.
    slots: Vec<[UnsafeCell<[Slot; SIMD]>; 2]>,
    /// Index, of the two, for a thread's next value.
    turns: Vec<Cell<usize>>,
    memory: Box<UnsafeCell<[u8; THREADGROUP_MEMORY]>>,
    /// Starts of the arrays in it.
    arrays: RefCell<Vec<Option<usize>>>,
    used: Cell<usize>,
    error: Cell<Option<&'static str>>,
}

thread_local! {
    static CURRENT: Cell<*const Group> = const { Cell::new(ptr::null()) };
    static STACKS: RefCell<Vec<DefaultStack>> = const { RefCell::new(Vec::new()) };
}

/// Calls `f` with the group that runs on this thread of the processor.
fn current<R>(f: impl FnOnce(&Group) -> R) -> R {
    // SAFETY: kernels only run inside of `Kernel::run`, which keeps it.
    f(unsafe { &*CURRENT.get() })
}

unsafe extern "C" fn barrier() {
    current(|group| group.suspend(Stop::Barrier));
}

unsafe extern "C" fn exchange(value: *const c_void, bytes: usize) -> *const c_void {
    current(|group| {
        let thread = group.thread.get();
        let turn = group.turns[thread].get();
        group.turns[thread].set(1 - turn);
        let slots = group.slots[thread / SIMD][turn].get();
        // SAFETY: the slot is this thread's alone until all have given theirs, and a value has
        // at most its 16 bytes.
        unsafe {
            let slot = slots.cast::<Slot>().add(thread % SIMD).cast::<u8>();
            slot.copy_from_nonoverlapping(value.cast(), bytes.min(16));
        }
        if !group.threads.is_multiple_of(SIMD) {
            group.error.set(Some("a SIMD-group is not full"));
        }
        group.suspend(Stop::Simd);
        slots.cast_const().cast()
    })
}

unsafe extern "C" fn shared(number: u32, bytes: usize) -> *mut c_void {
    current(|group| {
        let mut arrays = group.arrays.borrow_mut();
        let number = number as usize;
        if arrays.len() <= number {
            arrays.resize(number + 1, None);
        }
        let at = *arrays[number].get_or_insert_with(|| {
            let at = group.used.get().next_multiple_of(16);
            group.used.set(at + bytes);
            at
        });
        if at + bytes > THREADGROUP_MEMORY {
            group.error.set(Some("more memory than a threadgroup has"));
            return group.memory.get().cast();
        }
        // SAFETY: it lies inside.
        unsafe { group.memory.get().cast::<u8>().add(at).cast() }
    })
}

unsafe extern "C" fn leads() -> bool {
    current(|group| {
        // Whoever goes first, so that it does not see what others have not waited for.
        let leader = if group.is_reversed { SIMD - 1 } else { 0 };
        group.thread.get() % SIMD == leader
    })
}

unsafe extern "C" fn lane() -> u32 {
    current(|group| (group.thread.get() % SIMD) as u32)
}

impl Group {
    fn new(threads: usize, is_reversed: bool) -> Self {
        let slots = || UnsafeCell::new([Slot([0; 16]); SIMD]);
        Self {
            thread: Cell::new(0),
            threads,
            is_reversed,
            yielders: vec![Cell::new(ptr::null()); threads],
            slots: (0..threads.div_ceil(SIMD))
                .map(|_| [slots(), slots()])
                .collect(),
            turns: vec![Cell::new(0); threads],
            memory: Box::new(UnsafeCell::new([0xff; THREADGROUP_MEMORY])),
            arrays: RefCell::default(),
            used: Cell::new(0),
            error: Cell::new(None),
        }
    }

    /// Makes it ready for the next position: memory is full of NaN.
    fn reset(&self) {
        let used = self.used.get().min(THREADGROUP_MEMORY);
        // SAFETY: no thread runs, and so much there is.
        unsafe { self.memory.get().cast::<u8>().write_bytes(0xff, used) };
        self.arrays.borrow_mut().clear();
        self.used.set(0);
        self.yielders.iter().for_each(|y| y.set(ptr::null()));
    }

    fn suspend(&self, stop: Stop) {
        let thread = self.thread.get();
        let yielder = self.yielders[thread].get();
        if yielder.is_null() {
            // The first thread got to its end without any of these.
            self.error.set(Some("not all threads get to a barrier"));
            return;
        }
        // SAFETY: it is that of the fibre that this runs on.
        unsafe { &*yielder }.suspend(stop);
        self.thread.set(thread);
    }

    /// Numbers from 0 to `n`, in the order in which threads go.
    fn order(&self, n: usize) -> impl Iterator<Item = usize> + use<> {
        let is_reversed = self.is_reversed;
        (0..n).map(move |i| if is_reversed { n - 1 - i } else { i })
    }

    /// Runs the threads of one group.
    fn run(&self, call: &(impl Fn(usize) + Copy + 'static)) -> Result<(), &'static str> {
        self.reset();
        let mut order = self.order(self.threads);
        let first = order.next().unwrap_or(0);
        let mut fibre = self.fibre(first, *call);
        let state = self.resume(&mut fibre, first);
        if state == State::Done {
            give_back(fibre);
            for thread in order {
                self.thread.set(thread);
                call(thread);
            }
            return self.error.take().map_or(Ok(()), Err);
        }
        let mut fibres: Vec<_> = (0..self.threads).map(|_| None).collect();
        let mut states = vec![State::Runs; self.threads];
        fibres[first] = Some(fibre);
        states[first] = state;
        for thread in order {
            fibres[thread] = Some(self.fibre(thread, *call));
        }
        let result = self.schedule(&mut fibres, &mut states);
        for mut fibre in fibres.into_iter().flatten() {
            if !fibre.done() {
                // SAFETY: a kernel owns nothing that would have to be dropped.
                unsafe { fibre.force_reset() };
            }
            give_back(fibre);
        }
        result
    }

    /// Has all threads go from barrier to barrier.
    fn schedule(
        &self,
        fibres: &mut [Option<Fibre>],
        states: &mut [State],
    ) -> Result<(), &'static str> {
        let diverged = "not all threads get to a barrier";
        loop {
            for simd in self.order(self.threads.div_ceil(SIMD)) {
                let range = simd * SIMD..((simd + 1) * SIMD).min(self.threads);
                loop {
                    for i in self.order(range.len()) {
                        let thread = range.start + i;
                        if let (State::Runs, Some(fibre)) = (states[thread], &mut fibres[thread]) {
                            states[thread] = self.resume(fibre, thread);
                        }
                    }
                    if let Some(error) = self.error.take() {
                        return Err(error);
                    }
                    let own = &mut states[range.clone()];
                    if own.iter().any(|state| *state != own[0]) {
                        return Err(diverged);
                    }
                    match own[0] {
                        State::Waits(Stop::Simd) => own.fill(State::Runs),
                        State::Runs | State::Waits(Stop::Barrier) | State::Done => break,
                    }
                }
            }
            if states.iter().any(|state| *state != states[0]) {
                return Err(diverged);
            }
            if states[0] == State::Done {
                return Ok(());
            }
            states.fill(State::Runs);
        }
    }

    fn fibre(&self, thread: usize, call: impl Fn(usize) + 'static) -> Fibre {
        let stack = STACKS.with_borrow_mut(Vec::pop);
        let stack = stack.unwrap_or_else(|| {
            DefaultStack::new(STACK).expect("the system has memory for a stack")
        });
        let own: *const Cell<_> = &raw const self.yielders[thread];
        Coroutine::with_stack(stack, move |yielder: &Yielder<(), Stop>, ()| {
            // SAFETY: the group outlives its fibres.
            unsafe { &*own }.set(yielder);
            call(thread);
        })
    }

    fn resume(&self, fibre: &mut Fibre, thread: usize) -> State {
        self.thread.set(thread);
        match fibre.resume(()) {
            CoroutineResult::Yield(stop) => State::Waits(stop),
            CoroutineResult::Return(()) => State::Done,
        }
    }
}

type Fibre = Coroutine<(), Stop, (), DefaultStack>;

/// Keeps a stack for the next fibre.
fn give_back(fibre: Fibre) {
    STACKS.with_borrow_mut(|stacks| stacks.push(fibre.into_stack()));
}

/// A compiled kernel.
pub struct Kernel {
    pub(crate) name: String,
    /// The buffers that it asks for, without the constants.
    pub(crate) buffers: usize,
    pub(crate) entry: Entry,
    /// The kernel's code, which stays as long as it can be called.
    pub(crate) _library: Library,
}

impl Kernel {
    /// Runs all groups of a grid.
    ///
    /// # Safety
    /// The kernel stays inside the buffers, and nothing else uses them.
    ///
    /// # Errors
    /// Fails if the threads break a rule of the language.
    pub(crate) unsafe fn run(&self, grid: &Grid<'_>) -> Result<(), &'static str> {
        let group = Group::new(grid.threads, grid.is_reversed);
        let (entry, buffers, params) = (self.entry, grid.buffers.as_ptr(), grid.params.as_ptr());
        let [x, y, z] = grid.groups;
        CURRENT.set(&raw const group);
        let positions =
            (0..z).flat_map(|z| (0..y).flat_map(move |y| (0..x).map(move |x| [x, y, z])));
        for position in positions {
            let at = &raw const position;
            let call = move |thread: usize| {
                // SAFETY: as the caller promises.
                unsafe { entry(buffers, params, at, thread as u32) };
            };
            group.run(&call)?;
        }
        Ok(())
    }
}
