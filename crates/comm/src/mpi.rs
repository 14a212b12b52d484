//! Ranks that MPI started and connects. The library is loaded when it is first used.

mod api;

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::link::{Event, Frame, Link};
use crate::mesh::{Mesh, group};
use crate::wire::{self, Packet};
use crate::{Cause, CommError, Group, Options};
use api::{Mpi, Request};

/// A rank that MPI started. Collectives are made of MPI's messages, so that they have the same bits and errors as
/// everywhere.
///
/// MPI's program (`mpirun`) itself finds processes that end, and ends the others.
#[derive(Debug)]
pub struct MpiGroup(Mesh<MpiLink>);

impl MpiGroup {
    /// Starts MPI, and joins the group of all its ranks. A process can do so once.
    ///
    /// The library is the file `RUSTORCH_MPI`, else the installed one: of MPI 5's ABI, Open MPI, or MPICH and those
    /// that are compatible with it.
    ///
    /// # Errors
    /// Fails if the library is missing, belongs to another family, or refuses to start.
    pub fn start(options: Options) -> Result<Self, CommError> {
        let options = options.bounded();
        let mpi = api::load().map_err(library)?;
        let (rank, size) = mpi.start().map_err(library)?;
        let state = State {
            sending: VecDeque::new(),
            events: VecDeque::new(),
            partial: vec![Vec::new(); size],
            has_left: vec![false; size],
            broken: None,
        };
        let link = MpiLink {
            mpi,
            rank,
            start: Instant::now(),
            options,
            state: Mutex::new(state),
        };
        let group = Self(Mesh::new(link, size, options));
        group.barrier()?;
        Ok(group)
    }

    /// The library's own name and version, such as `Open MPI v5.0.11`.
    pub fn version(&self) -> &str {
        self.0.link().mpi.version()
    }
}

fn library(problem: String) -> CommError {
    CommError::Library {
        library: "MPI",
        problem,
    }
}

group!(MpiGroup);

/// The longest message, as MPI counts bytes with `int`.
const LONGEST: usize = 1 << 30;

/// How long a rank looks for messages without a pause, and then the pause.
const EAGER: Duration = Duration::from_micros(200);
const PAUSE: Duration = Duration::from_micros(50);

#[derive(Debug)]
struct MpiLink {
    mpi: Box<dyn Mpi>,
    rank: usize,
    start: Instant,
    options: Options,
    /// MPI is called with this locked: by one thread at a time.
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    sending: VecDeque<Box<dyn Request>>,
    events: VecDeque<(usize, Event)>,
    /// Bytes of each rank that are not a whole packet yet.
    partial: Vec<Vec<u8>>,
    has_left: Vec<bool>,
    /// The error of MPI after which it is not called again.
    broken: Option<String>,
}

impl MpiLink {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn post(&self, to: usize, packet: &Packet) -> Result<(), String> {
        let mut state = self.lock();
        if let Some(error) = &state.broken {
            return Err(error.clone());
        }
        let mut bytes = packet.header().map_err(|error| error.to_string())?;
        if let Some(payload) = packet.payload() {
            bytes.extend_from_slice(payload);
        }
        while !bytes.is_empty() {
            let rest = bytes.split_off(bytes.len().min(LONGEST));
            state.sending.push_back(self.mpi.send(bytes, to)?);
            bytes = rest;
        }
        Ok(())
    }

    /// Lets MPI work. After an error of it no rank can be reached.
    fn progress(&self, state: &mut State) {
        if state.broken.is_some() {
            return;
        }
        let Err(error) = self.work(state) else {
            return;
        };
        for rank in (0..state.partial.len()).filter(|&rank| rank != self.rank) {
            let gone = Event::Gone(Cause::Disconnected(error.clone()));
            state.events.push_back((rank, gone));
        }
        state.broken = Some(error);
    }

    /// Frees what was sent, and takes what came.
    fn work(&self, state: &mut State) -> Result<(), String> {
        let mut waiting = VecDeque::new();
        for mut request in state.sending.drain(..) {
            if !request.is_done()? {
                waiting.push_back(request);
            }
        }
        state.sending = waiting;
        for from in (0..state.partial.len()).filter(|&from| from != self.rank) {
            if let Some(bytes) = self.mpi.receive(from)? {
                self.take(state, from, bytes)?;
            }
        }
        Ok(())
    }

    fn take(&self, state: &mut State, from: usize, bytes: Vec<u8>) -> Result<(), String> {
        let partial = &mut state.partial[from];
        match partial.is_empty() {
            true => *partial = bytes,
            false => partial.extend(bytes),
        }
        if wire::length(partial).is_none_or(|length| partial.len() < length) {
            return Ok(());
        }
        let whole = std::mem::take(partial);
        let event = match Packet::read(&mut &whole[..]).map_err(|error| error.to_string())? {
            Packet::Frame(frame) => Event::Frame(frame),
            Packet::Leave => {
                state.has_left[from] = true;
                Event::Gone(Cause::Left)
            }
            Packet::Alive | Packet::Seen => return Ok(()),
        };
        state.events.push_back((from, event));
        Ok(())
    }

    /// Looks for events until a time, or until `done`.
    fn poll<T>(&self, until: Duration, mut done: impl FnMut(&mut State) -> Option<T>) -> Option<T> {
        let eager = self.now() + EAGER;
        loop {
            let mut state = self.lock();
            self.progress(&mut state);
            if let Some(found) = done(&mut state) {
                return Some(found);
            }
            drop(state);
            let now = self.now();
            if now >= until {
                return None;
            }
            if now >= eager {
                thread::sleep(PAUSE);
            }
        }
    }
}

impl Link for MpiLink {
    fn id(&self) -> usize {
        self.rank
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn wait_for_room(&self, _: usize, until: Duration) -> bool {
        // Few messages are on their way: those of a call or two.
        let few = |state: &mut State| {
            let few = state.sending.len() < 64 * state.partial.len();
            (few || state.broken.is_some()).then_some(())
        };
        self.poll(until, few).is_some()
    }

    fn send(&self, to: usize, frame: Frame) {
        if let Err(error) = self.post(to, &Packet::Frame(frame)) {
            let mut state = self.lock();
            state
                .events
                .push_back((to, Event::Gone(Cause::Disconnected(error))));
        }
    }

    fn next(&self, until: Duration) -> Option<(usize, Event)> {
        self.poll(until, |state| state.events.pop_front())
    }
}

impl Drop for MpiLink {
    /// Leaves the group. MPI ends when all ranks have: else its end would wait for ever.
    fn drop(&mut self) {
        let size = self.lock().partial.len();
        let others = (0..size).filter(|&rank| rank != self.rank);
        for rank in others.clone() {
            if self.post(rank, &Packet::Leave).is_err() {
                return;
            }
        }
        let until = self.now() + self.options.deadline;
        let all_left = |state: &mut State| {
            let left = others.clone().all(|rank| state.has_left[rank]);
            let is_over = left && state.sending.is_empty();
            (is_over || state.broken.is_some()).then_some(is_over)
        };
        if self.poll(until, all_left) == Some(true) {
            self.mpi.end();
        }
    }
}
