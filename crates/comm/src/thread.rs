//! Ranks that are threads of one process, with faults on command.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::link::{Event, Frame, Link};
use crate::mesh::{Mesh, group};
use crate::{Cause, Options};

/// A fault of ranks or of the connections between them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// Messages from one rank to another take this long.
    Delay {
        /// The sender.
        from: usize,
        /// The receiver.
        to: usize,
        /// The time that they take.
        by: Duration,
    },
    /// A message from one rank to another is lost.
    Lose {
        /// The sender.
        from: usize,
        /// The receiver.
        to: usize,
        /// The number of the message between them, from 0.
        message: u64,
    },
    /// A rank ends without a message.
    Kill {
        /// The rank.
        rank: usize,
        /// The number of messages that it sends before.
        after: u64,
        /// True if connections stay open, as those of a stopped process do.
        silent: bool,
    },
    /// Messages between some ranks and the others are lost for some time.
    Partition {
        /// The ranks of one side.
        side: Vec<usize>,
        /// The start, counted from the group's creation.
        start: Duration,
        /// The end, counted likewise.
        end: Duration,
    },
}

/// A rank in a thread of this process.
#[derive(Debug)]
pub struct ThreadGroup(Mesh<ThreadLink>);

impl ThreadGroup {
    /// A group of `size` ranks: a handle for the thread of each.
    pub fn create(size: usize, options: Options) -> Vec<Self> {
        Self::connect(
            size,
            options,
            Hub::new(size, Clock::System(Instant::now()), Vec::new()),
        )
    }

    /// A group with a simulated clock, which advances only while all ranks wait. Waiting takes no real time, and
    /// computing takes no simulated time. Faults happen at the same points of every run.
    ///
    /// Each handle has to be used or dropped: until then its rank counts as computing.
    pub fn simulate(size: usize, options: Options, faults: Vec<Fault>) -> Vec<Self> {
        Self::connect(
            size,
            options,
            Hub::new(size, Clock::Simulated(Duration::ZERO), faults),
        )
    }

    fn connect(size: usize, options: Options, hub: Hub) -> Vec<Self> {
        let (hub, options) = (Arc::new(hub), options.bounded());
        let link = |rank| ThreadLink {
            rank,
            hub: Arc::clone(&hub),
        };
        (0..size)
            .map(|rank| Self(Mesh::new(link(rank), size, options)))
            .collect()
    }

    /// The time on the group's clock since its creation.
    pub fn now(&self) -> Duration {
        self.0.link().now()
    }

    /// Advances the group's clock, as a slow rank does.
    pub fn pause(&self, time: Duration) {
        let link = self.0.link();
        link.hub.wait(link.rank, link.now() + time, false);
    }
}

group!(ThreadGroup);

/// The state that threads share.
struct Hub {
    state: Mutex<State>,
    /// One for each rank.
    wakers: Vec<Condvar>,
    faults: Vec<Fault>,
}

struct State {
    clock: Clock,
    ranks: Vec<Rank>,
    /// Messages from a rank to another so far, and when the last one arrives.
    pairs: BTreeMap<(usize, usize), (u64, Duration)>,
    /// Messages so far. Messages that arrive at one time are taken in their order.
    messages: u64,
}

#[derive(Clone, Copy)]
enum Clock {
    System(Instant),
    Simulated(Duration),
}

#[derive(Default)]
struct Rank {
    activity: Activity,
    /// By time of arrival and number, with the sender.
    inbox: BTreeMap<(Duration, u64), (usize, Event)>,
    sent: u64,
    is_killed: bool,
}

#[derive(Clone, Copy, PartialEq, Default)]
enum Activity {
    #[default]
    Computes,
    Waits {
        until: Duration,
        for_messages: bool,
    },
    Ended,
}

impl Rank {
    /// The time at which it goes on if nothing else happens.
    fn wakes_at(&self) -> Option<Duration> {
        let Activity::Waits {
            until,
            for_messages,
        } = self.activity
        else {
            return None;
        };
        let arrival = self.inbox.keys().next().filter(|_| for_messages);
        Some(arrival.map_or(until, |&(time, _)| time.min(until)))
    }
}

impl Hub {
    fn new(size: usize, clock: Clock, faults: Vec<Fault>) -> Self {
        let ranks = (0..size).map(|_| Rank::default()).collect();
        let state = State {
            clock,
            ranks,
            pairs: BTreeMap::new(),
            messages: 0,
        };
        let wakers = (0..size).map(|_| Condvar::new()).collect();
        let hub = Self {
            state: Mutex::new(state),
            wakers,
            faults,
        };
        let mut state = hub.lock();
        for rank in 0..size {
            hub.kill_if_due(&mut state, rank);
        }
        drop(state);
        hub
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until a time, or until a message is there.
    fn wait(&self, rank: usize, until: Duration, for_messages: bool) -> Option<(usize, Event)> {
        let mut state = self.lock();
        loop {
            let now = state.now();
            let inbox = &mut state.ranks[rank].inbox;
            if for_messages
                && let Some(first) = inbox.first_entry()
                && first.key().0 <= now
            {
                return Some(first.remove());
            }
            if until <= now {
                return None;
            }
            state.ranks[rank].activity = Activity::Waits {
                until,
                for_messages,
            };
            state = self.sleep(state, rank);
            state.ranks[rank].activity = Activity::Computes;
        }
    }

    fn sleep<'a>(&self, mut state: MutexGuard<'a, State>, rank: usize) -> MutexGuard<'a, State> {
        let waker = &self.wakers[rank];
        if matches!(state.clock, Clock::System(_)) {
            let wake = state.ranks[rank].wakes_at().unwrap_or_default();
            let time = wake.saturating_sub(state.now());
            let woken = waker.wait_timeout(state, time);
            return woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        self.advance(&mut state);
        while state.ranks[rank].activity != Activity::Computes {
            state = waker.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state
    }

    /// Sets a simulated clock to the next event, if all ranks wait. Wakes the ranks that it is for.
    fn advance(&self, state: &mut State) {
        let computes = |rank: &Rank| rank.activity == Activity::Computes;
        let next = state.ranks.iter().filter_map(Rank::wakes_at).min();
        let (Clock::Simulated(now), Some(next)) = (&mut state.clock, next) else {
            return;
        };
        if state.ranks.iter().any(computes) {
            return;
        }
        *now = next.max(*now);
        for rank in 0..state.ranks.len() {
            self.wake_if_due(state, rank);
        }
    }

    fn wake_if_due(&self, state: &mut State, rank: usize) {
        let now = state.now();
        if state.ranks[rank].wakes_at().is_some_and(|time| time <= now) {
            state.ranks[rank].activity = Activity::Computes;
            self.wakers[rank].notify_one();
        }
    }

    /// Sends an event, if no fault keeps it.
    fn post(&self, state: &mut State, from: usize, to: usize, event: Event) {
        if state.ranks[from].is_killed || state.ranks[to].is_killed {
            return;
        }
        let now = state.now();
        let (message, last) = state.pairs.get(&(from, to)).copied().unwrap_or_default();
        let delay = self.delay(from, to, message, now);
        let arrival = delay.map(|delay| (now + delay).max(last));
        state
            .pairs
            .insert((from, to), (message + 1, arrival.unwrap_or(last)));
        if let Some(arrival) = arrival {
            self.deliver(state, from, to, arrival, event);
        }
        state.ranks[from].sent += 1;
        self.kill_if_due(state, from);
    }

    fn deliver(&self, state: &mut State, from: usize, to: usize, arrival: Duration, event: Event) {
        state.ranks[to]
            .inbox
            .insert((arrival, state.messages), (from, event));
        state.messages += 1;
        match state.clock {
            Clock::Simulated(_) => self.wake_if_due(state, to),
            Clock::System(_) => self.wakers[to].notify_one(),
        }
    }

    /// The time that a message takes. None if it is lost.
    fn delay(&self, from: usize, to: usize, message: u64, now: Duration) -> Option<Duration> {
        let mut delay = Duration::ZERO;
        for fault in &self.faults {
            match fault {
                Fault::Delay { from: f, to: t, by } if (*f, *t) == (from, to) => delay += *by,
                Fault::Lose {
                    from: f,
                    to: t,
                    message: m,
                } if (*f, *t, *m) == (from, to, message) => {
                    return None;
                }
                Fault::Partition { side, start, end } => {
                    let separates = side.contains(&from) != side.contains(&to);
                    if separates && (*start..*end).contains(&now) {
                        return None;
                    }
                }
                _ => {}
            }
        }
        Some(delay)
    }

    fn kill_if_due(&self, state: &mut State, rank: usize) {
        let sent = state.ranks[rank].sent;
        let is_silent = self.faults.iter().find_map(|fault| match fault {
            Fault::Kill {
                rank: r,
                after,
                silent,
            } if (*r, *after) == (rank, sent) => Some(*silent),
            _ => None,
        });
        let Some(is_silent) = is_silent else {
            return;
        };
        state.ranks[rank].is_killed = true;
        state.ranks[rank].inbox.clear();
        let now = state.now();
        for other in 0..state.ranks.len() {
            // A killed thread learns that no other rank can be reached.
            let gone = || Event::Gone(Cause::Disconnected("the rank was killed".into()));
            if other != rank {
                self.deliver(state, other, rank, now, gone());
                if !is_silent {
                    self.deliver(state, rank, other, now, gone());
                }
            }
        }
    }

    fn end(&self, rank: usize) {
        let mut state = self.lock();
        for other in (0..state.ranks.len()).filter(|&other| other != rank) {
            self.post(&mut state, rank, other, Event::Gone(Cause::Left));
        }
        state.ranks[rank].activity = Activity::Ended;
        self.advance(&mut state);
    }
}

impl State {
    fn now(&self) -> Duration {
        match self.clock {
            Clock::System(start) => start.elapsed(),
            Clock::Simulated(now) => now,
        }
    }
}

#[derive(Debug)]
struct ThreadLink {
    rank: usize,
    hub: Arc<Hub>,
}

impl Link for ThreadLink {
    fn id(&self) -> usize {
        self.rank
    }

    fn now(&self) -> Duration {
        self.hub.lock().now()
    }

    fn wait_for_room(&self, _: usize, _: Duration) -> bool {
        true
    }

    fn send(&self, to: usize, frame: Frame) {
        self.hub
            .post(&mut self.hub.lock(), self.rank, to, Event::Frame(frame));
    }

    fn next(&self, until: Duration) -> Option<(usize, Event)> {
        self.hub.wait(self.rank, until, true)
    }
}

impl Drop for ThreadLink {
    fn drop(&mut self) {
        self.hub.end(self.rank);
    }
}

impl std::fmt::Debug for Hub {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} threads", self.wakers.len())
    }
}
