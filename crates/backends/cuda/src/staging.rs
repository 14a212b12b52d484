//! Copies between pageable memory of the host and the device, by way of pinned memory: while
//! one piece is on the link, the processor copies the next.

use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;

use cudarc::driver::sys::*;
use rustorch_runtime::{DeviceError, Fetch};

use crate::context::Context;
use crate::status::{Failure, check};

/// Bytes of a piece.
const PIECE: usize = 4 << 20;

/// Pieces of a copy that are under way for each thread.
const DEPTH: usize = 2;

/// Pieces of copies to the device that may wait behind its computations, before a thread waits for one of
/// them.
const QUEUED: usize = 4;

/// Below, the driver's own staging is as good, and nothing has to be waited for.
const SMALL: usize = 64 << 10;

/// Threads that fill pinned memory: one copies slower than the link carries.
const MOST_THREADS: usize = 8;

/// Bytes that are worth a thread.
const PER_THREAD: usize = 4 * PIECE;

/// Pinned memory, and the event after which it is free again.
struct Slot {
    memory: *mut u8,
    event: CUevent,
    context: Arc<Context>,
}

// SAFETY: both are used by one thread at a time.
unsafe impl Send for Slot {}

impl Slot {
    fn new(context: &Arc<Context>, bytes: usize) -> Result<Self, Failure> {
        let mut slot = Self {
            memory: ptr::null_mut(),
            event: ptr::null_mut(),
            context: context.clone(),
        };
        let memory = (&raw mut slot.memory).cast();
        // SAFETY: there is room for the address.
        check("cuMemHostAlloc", unsafe {
            cuMemHostAlloc(memory, bytes, 0)
        })?;
        let flags = CUevent_flags::CU_EVENT_DISABLE_TIMING as u32;
        // SAFETY: there is room for the event.
        check("cuEventCreate", unsafe {
            cuEventCreate(&raw mut slot.event, flags)
        })?;
        Ok(slot)
    }

    fn wait(&self) -> Result<(), Failure> {
        self.context.wait_for(self.event)
    }

    fn record(&self, stream: CUstream) -> Result<(), Failure> {
        // SAFETY: both are valid and of one context.
        check("cuEventRecord", unsafe {
            cuEventRecord(self.event, stream)
        })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if !self.event.is_null() {
            // A device that hangs, or is lost, may still use the memory.
            if self.wait().is_err() {
                return;
            }
            // SAFETY: what was queued with it is over, and it is not used again.
            unsafe { cuEventDestroy_v2(self.event) };
        }
        if !self.memory.is_null() {
            // SAFETY: as above.
            unsafe { cuMemFreeHost(self.memory.cast()) };
        }
    }
}

/// Pinned memory of a device's copies, made as it is needed.
#[derive(Default)]
pub(crate) struct Staging {
    pieces: Mutex<Vec<Slot>>,
    /// Pieces that were copied to the device, so that each copy goes on with the slot that waits longest.
    turns: AtomicUsize,
    /// Slots of [`SMALL`] bytes that no fetch uses.
    small: Arc<Mutex<Vec<Slot>>>,
}

/// Bytes on their way to the host.
struct Fetching {
    context: Arc<Context>,
    /// `None` only while it is dropped.
    slot: Option<Slot>,
    bytes: usize,
    home: Arc<Mutex<Vec<Slot>>>,
}

impl Fetching {
    /// The bytes in the slot, whose copy is over.
    fn give(&self, slot: &Slot, to: &mut [u8]) {
        let bytes = self.bytes.min(to.len());
        // SAFETY: the slot has these bytes, and their copy is over.
        unsafe { slot.memory.copy_to_nonoverlapping(to.as_mut_ptr(), bytes) };
    }
}

impl Fetch for Fetching {
    fn poll(&mut self, to: &mut [u8]) -> Poll<Result<(), DeviceError>> {
        let Some(slot) = &self.slot else {
            return Poll::Ready(Ok(()));
        };
        let has_come = self.context.has_come(slot.event);
        match has_come.map_err(|failure| self.context.failed(failure))? {
            true => self.give(slot, to),
            false => return Poll::Pending,
        }
        Poll::Ready(Ok(()))
    }

    fn wait(self: Box<Self>, to: &mut [u8]) -> Result<(), DeviceError> {
        let Some(slot) = &self.slot else {
            return Ok(());
        };
        let waited = slot.wait();
        waited.map_err(|failure| self.context.failed(failure))?;
        self.give(slot, to);
        Ok(())
    }
}

impl Drop for Fetching {
    fn drop(&mut self) {
        let mut home = self.home.lock().unwrap_or_else(PoisonError::into_inner);
        home.extend(self.slot.take());
    }
}

impl Staging {
    /// Begins to copy to the host, behind all that was queued before. `None` if it is much.
    ///
    /// # Safety
    /// `from` has as many bytes.
    pub(crate) unsafe fn fetch(
        &self,
        context: &Arc<Context>,
        from: CUdeviceptr,
        bytes: usize,
    ) -> Result<Option<Box<dyn Fetch>>, Failure> {
        if bytes > SMALL {
            return Ok(None);
        }
        context.enter()?;
        let free = self
            .small
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop();
        let slot = match free {
            Some(slot) => slot,
            None => Slot::new(context, SMALL)?,
        };
        // Nobody may have waited for the slot's previous copy.
        slot.wait()?;
        let stream = context.main_stream();
        // SAFETY: the device's memory has these bytes, as the caller promises, and the slot has
        // room for them.
        let status = unsafe { cuMemcpyDtoHAsync_v2(slot.memory.cast(), from, bytes, stream) };
        check("cuMemcpyDtoHAsync", status)?;
        slot.record(stream)?;
        Ok(Some(Box::new(Fetching {
            context: context.clone(),
            slot: Some(slot),
            bytes,
            home: self.small.clone(),
        })))
    }

    /// Copies to the device. `from` is free again on return.
    ///
    /// # Safety
    /// `to` has as many bytes.
    pub(crate) unsafe fn write(
        &self,
        context: &Arc<Context>,
        to: CUdeviceptr,
        from: &[u8],
    ) -> Result<(), Failure> {
        context.enter()?;
        let copy = |to, from: *const u8, bytes| {
            let stream = context.main_stream();
            // SAFETY: both have these bytes, as the caller promises. From pageable memory the
            // driver has taken them on return.
            let status = unsafe { cuMemcpyHtoDAsync_v2(to, from.cast(), bytes, stream) };
            check("cuMemcpyHtoDAsync", status)
        };
        if from.len() <= SMALL {
            return copy(to, from.as_ptr(), from.len());
        }
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = (from.len() / PER_THREAD).clamp(1, MOST_THREADS.min(cores));
        let mut slots = self.pieces.lock().unwrap_or_else(PoisonError::into_inner);
        while slots.len() < QUEUED.max(threads * DEPTH) {
            slots.push(Slot::new(context, PIECE)?);
        }
        let pieces = from.len().div_ceil(PIECE);
        let turn = self.turns.fetch_add(pieces, Ordering::Relaxed);
        let next = AtomicUsize::new(0);
        let work = |slots: &mut [Slot]| -> Result<(), Failure> {
            context.enter()?;
            for turn in turn.. {
                let start = next.fetch_add(PIECE, Ordering::Relaxed);
                if start >= from.len() {
                    break;
                }
                let piece = &from[start..from.len().min(start + PIECE)];
                let slot = &slots[turn % slots.len()];
                slot.wait()?;
                // SAFETY: a slot has room for a piece, and nothing uses it.
                unsafe {
                    piece
                        .as_ptr()
                        .copy_to_nonoverlapping(slot.memory, piece.len())
                };
                copy(to + start as u64, slot.memory, piece.len())?;
                slot.record(context.main_stream())?;
            }
            Ok(())
        };
        if threads == 1 {
            return work(&mut slots);
        }
        std::thread::scope(|scope| {
            let parts = slots.chunks_mut(DEPTH).take(threads);
            let running: Vec<_> = parts.map(|part| scope.spawn(|| work(part))).collect();
            let lost = || Err(unfinished());
            let results = running
                .into_iter()
                .map(|t| t.join().unwrap_or_else(|_| lost()));
            results.fold(Ok(()), Result::and)
        })
    }

    /// Copies to the host, after all that was queued before.
    ///
    /// # Safety
    /// `from` has as many bytes.
    pub(crate) unsafe fn read(
        &self,
        context: &Arc<Context>,
        from: CUdeviceptr,
        to: &mut [u8],
    ) -> Result<(), Failure> {
        context.enter()?;
        let stream = context.main_stream();
        let mut slots = self.pieces.lock().unwrap_or_else(PoisonError::into_inner);
        while slots.len() < DEPTH {
            slots.push(Slot::new(context, PIECE)?);
        }
        let start = |piece: usize, bytes: usize| -> Result<(), Failure> {
            let slot = &slots[piece % DEPTH];
            slot.wait()?;
            let (to, from) = (slot.memory.cast(), from + (piece * PIECE) as u64);
            // SAFETY: the device's memory has these bytes, as the caller promises, and a slot
            // has room for them.
            let status = unsafe { cuMemcpyDtoHAsync_v2(to, from, bytes, stream) };
            check("cuMemcpyDtoHAsync", status)?;
            slot.record(stream)
        };
        let mut pieces = to.chunks_mut(PIECE).enumerate().peekable();
        if let Some((piece, bytes)) = pieces.peek() {
            start(*piece, bytes.len())?;
        }
        while let Some((piece, bytes)) = pieces.next() {
            if let Some((next, bytes)) = pieces.peek() {
                start(*next, bytes.len())?;
            }
            let slot = &slots[piece % DEPTH];
            slot.wait()?;
            // SAFETY: the slot has these bytes, and its copy is over.
            unsafe {
                slot.memory
                    .copy_to_nonoverlapping(bytes.as_mut_ptr(), bytes.len())
            };
        }
        Ok(())
    }
}

/// Failure that stands for a thread which did not finish.
fn unfinished() -> Failure {
    match check("copy to the device", CUresult::CUDA_ERROR_UNKNOWN) {
        Err(failure) => failure,
        Ok(()) => unreachable!("an error code is a failure"),
    }
}
