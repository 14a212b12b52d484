//! The values that are still to be computed, wherever their handles are. A write over memory finds its readers
//! among them.
//!
//! A value takes a place when it is recorded, and leaves it when it is computed or dropped. Each thread has a list, as
//! far as there are enough. A write looks at its own thread's list: handles on values of others would change the memory
//! that those threads keep.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustorch_ir::order::sort_by_key;

use super::{Pending, Value, WeakValue};

/// Lists that there are, a power of two.
const LISTS: usize = 256;

/// Bits of a place's number for the place in its list.
const BITS: u32 = u32::BITS - LISTS.trailing_zeros();

static PLACES: [Mutex<Places>; LISTS] = [const { Mutex::new(Places::new()) }; LISTS];

thread_local! {
    static LIST: Cell<Option<usize>> = const { Cell::new(None) };
}

/// The places of one list.
struct Places {
    values: Vec<Option<WeakValue>>,
    /// Places that no value has.
    free: Vec<u32>,
}

impl Places {
    const fn new() -> Self {
        Self {
            values: Vec::new(),
            free: Vec::new(),
        }
    }
}

fn places(list: usize) -> MutexGuard<'static, Places> {
    PLACES[list].lock().unwrap_or_else(PoisonError::into_inner)
}

/// The list of this thread.
#[inline]
fn own_list() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    LIST.with(|list| match list.get() {
        Some(list) => list,
        None => {
            let own = THREADS.fetch_add(1, Ordering::Relaxed) % LISTS;
            list.set(Some(own));
            own
        }
    })
}

/// Takes a place for a value, whose number is put down in it. Numbers begin at 1.
#[inline]
pub(crate) fn enter(number: &AtomicU32, value: impl FnOnce() -> WeakValue) {
    let list = own_list();
    let mut places = places(list);
    let value = Some(value());
    let at = match places.free.pop() {
        Some(at) => {
            places.values[at as usize] = value;
            at
        }
        None => {
            places.values.push(value);
            places.values.len() as u32 - 1
        }
    };
    number.store((list as u32) << BITS | (at + 1), Ordering::Relaxed);
}

/// Gives the place of this number back, if it is one.
#[inline]
pub(crate) fn leave(number: &AtomicU32) {
    if number.load(Ordering::Relaxed) == 0 {
        return;
    }
    let taken = number.swap(0, Ordering::Relaxed);
    let Some(at) = (taken & ((1 << BITS) - 1)).checked_sub(1) else {
        return;
    };
    let mut places = places((taken >> BITS) as usize);
    places.values[at as usize] = None;
    places.free.push(at);
}

/// The values of this thread that are still to be computed, in the order in which that was recorded.
pub(crate) fn pending() -> Vec<(Value, Arc<Pending>)> {
    let values: Vec<Value> = {
        let places = places(own_list());
        // None is dropped here: that would wait for the list.
        places
            .values
            .iter()
            .flatten()
            .filter_map(WeakValue::upgrade)
            .collect()
    };
    let pending = |value: Value| Some((value.clone(), value.pending()?));
    let mut pending: Vec<_> = values.into_iter().filter_map(pending).collect();
    sort_by_key(&mut pending, |(_, pending)| pending.recorded);
    pending
}
