//! Collectives made of messages from every rank to every other.
//!
//! Each rank hears from all others directly. So at a deadline it knows which ones it waits for. Ranks exchange these
//! findings (`settle`), and choose one of them by the same rule: that every rank returns.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::call::{Call, Memory, Signature};
use crate::link::{Body, Data, Event, Frame, Link, Payload};
use crate::reduce::{Part, reduce};
use crate::{Cause, Collective, CommError, DType, Failure, Group, Options, ReduceOp};

/// Up to so many bytes, one message to each rank is faster than two of a part each.
const ONE_MESSAGE: usize = 16 << 10;

pub(crate) struct Mesh<L> {
    link: Arc<L>,
    /// The link's number of each rank.
    members: Vec<usize>,
    rank: usize,
    epoch: u64,
    options: Options,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Collectives so far.
    sequence: u64,
    peers: Vec<Peer>,
    /// The failure that ended the epoch.
    failure: Option<Failure>,
    /// Findings at the end of the epoch, by rank.
    findings: BTreeMap<usize, Failure>,
    /// Frames of later epochs, with the link's number of their senders.
    ahead: Vec<(usize, Frame)>,
    /// Ranks that want to be members of the next epoch.
    joined: BTreeSet<usize>,
}

/// Another rank, as this one knows it.
#[derive(Default)]
struct Peer {
    sent: u64,
    received: u64,
    inbox: VecDeque<Message>,
    gone: Option<Cause>,
    /// The ranks whose findings it has.
    knows: BTreeSet<usize>,
}

struct Message {
    data: Data,
    payload: Payload,
}

impl<L: Link> Mesh<L> {
    /// The group of all that the link connects.
    pub(crate) fn new(link: L, size: usize, options: Options) -> Self {
        let (rank, members) = (link.id(), (0..size).collect());
        Self::of(Arc::new(link), members, rank, 0, options, Vec::new())
    }

    fn of(
        link: Arc<L>,
        members: Vec<usize>,
        rank: usize,
        epoch: u64,
        options: Options,
        early: Vec<(usize, Event)>,
    ) -> Self {
        let peers = members.iter().map(|_| Peer::default()).collect();
        let state = State {
            peers,
            ..State::default()
        };
        let mesh = Self {
            link,
            members,
            rank,
            epoch,
            options,
            state: Mutex::new(state),
        };
        let mut state = mesh.lock();
        for (id, event) in early {
            mesh.accept(&mut state, id, event);
        }
        drop(state);
        mesh
    }

    pub(crate) fn link(&self) -> &L {
        &self.link
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic in a call leaves a failure for others to find: nothing came from this rank.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn others(&self) -> impl Iterator<Item = usize> + use<L> {
        let rank = self.rank;
        (0..self.members.len()).filter(move |&other| other != rank)
    }

    fn send(&self, to: usize, body: Body, payload: Payload) {
        self.link.send(
            self.members[to],
            Frame {
                epoch: self.epoch,
                body,
                payload,
            },
        );
    }

    /// Waits for an event until a time. False if nothing happens.
    fn wait(&self, state: &mut State, until: Duration) -> bool {
        let event = self.link.next(until);
        let happened = event.is_some();
        if let Some((id, event)) = event {
            self.accept(state, id, event);
        }
        happened
    }

    fn accept(&self, state: &mut State, id: usize, event: Event) {
        let Some(rank) = self.members.iter().position(|&member| member == id) else {
            return;
        };
        let peer = &mut state.peers[rank];
        let frame = match event {
            Event::Gone(cause) => {
                peer.gone = Some(cause);
                return;
            }
            Event::Frame(frame) => frame,
        };
        match frame.body {
            Body::Join if frame.epoch == self.epoch + 1 => {
                state.joined.insert(rank);
            }
            _ if frame.epoch > self.epoch => state.ahead.push((id, frame)),
            _ if frame.epoch < self.epoch => {}
            Body::Data(data) => peer.inbox.push_back(Message {
                data,
                payload: frame.payload,
            }),
            Body::Abort(findings) => {
                peer.knows = findings.iter().map(|finding| finding.found_by).collect();
                state
                    .findings
                    .extend(findings.into_iter().map(|f| (f.found_by, f)));
            }
            Body::Join | Body::Commit(_) => {}
        }
    }

    /// The failure on which ranks agree, if anything was found.
    fn failed(&self, state: &mut State) -> Option<Failure> {
        if state.failure.is_none() && !state.findings.is_empty() {
            state.failure = self.settle(state);
        }
        state.failure.clone()
    }

    /// Exchanges findings until all ranks have the same ones, and chooses the failure.
    fn settle(&self, state: &mut State) -> Option<Failure> {
        let until = self.link.now() + self.options.settle;
        let mut said = BTreeSet::new();
        loop {
            let known: BTreeSet<usize> = state.findings.keys().copied().collect();
            if said != known {
                self.report(&state.findings);
            }
            let agrees = |rank: usize| {
                let peer = &state.peers[rank];
                peer.knows == known || peer.gone.is_some()
            };
            if self.others().all(agrees) || !self.wait(state, until) {
                return choose(&state.findings);
            }
            said = known;
        }
    }

    fn report(&self, findings: &BTreeMap<usize, Failure>) {
        for rank in self.others() {
            let findings = findings.values().cloned().collect();
            self.send(rank, Body::Abort(findings), Payload::default());
        }
    }

    fn failure(
        &self,
        sequence: u64,
        collective: &str,
        step: u32,
        missing: Vec<usize>,
        cause: Cause,
    ) -> Failure {
        let (epoch, collective, found_by) = (self.epoch, collective.into(), self.rank);
        Failure {
            epoch,
            sequence,
            collective,
            step,
            found_by,
            missing,
            cause,
        }
    }

    /// Events for the next epoch: frames that came early, and the ends of ranks, which come once.
    fn early(&self, state: &mut State) -> Vec<(usize, Event)> {
        let frames = std::mem::take(&mut state.ahead).into_iter();
        let frames = frames.map(|(id, frame)| (id, Event::Frame(frame)));
        let peers = self.members.iter().zip(&state.peers);
        let gone = peers.filter_map(|(&id, peer)| Some((id, Event::Gone(peer.gone.clone()?))));
        frames.chain(gone).collect()
    }

    fn error(&self, failure: &Failure) -> CommError {
        CommError::Failed {
            rank: self.rank,
            failure: Box::new(failure.clone()),
        }
    }
}

/// The group that a struct's mesh is.
macro_rules! group {
    ($group:ty) => {
        impl $crate::Group for $group {
            fn rank(&self) -> usize {
                self.0.rank()
            }

            fn size(&self) -> usize {
                self.0.size()
            }

            fn epoch(&self) -> u64 {
                self.0.epoch()
            }

            fn call(&self, call: $crate::call::Call<'_>) -> Result<(), $crate::CommError> {
                self.0.call(call)
            }

            fn abort(&self, reason: &str) {
                self.0.abort(reason);
            }

            fn shrink(&self) -> Result<std::sync::Arc<dyn $crate::Group>, $crate::CommError> {
                self.0.shrink()
            }
        }
    };
}

pub(crate) use group;

/// The failure that explains the others. A rank that others miss may itself wait for another one.
fn choose(findings: &BTreeMap<usize, Failure>) -> Option<Failure> {
    let waits = |failure: &Failure| {
        let mut others = failure
            .missing
            .iter()
            .filter(|&&rank| rank != failure.found_by);
        others.any(|rank| findings.contains_key(rank))
    };
    let is_late = |failure: &Failure| matches!(failure.cause, Cause::Deadline(_));
    let order = |failure: &Failure| {
        let Failure {
            sequence,
            step,
            found_by,
            ..
        } = failure;
        (
            is_late(failure),
            waits(failure),
            *sequence,
            *step,
            *found_by,
        )
    };
    findings
        .values()
        .min_by_key(|&failure| order(failure))
        .cloned()
}

/// A call while it runs.
struct Turn<'a, L> {
    mesh: &'a Mesh<L>,
    state: &'a mut State,
    signature: Signature,
    until: Duration,
    step: u32,
}

/// The call cannot be finished, for this reason at least: the state has all findings.
struct Stop(Box<Failure>);

impl<L: Link> Turn<'_, L> {
    fn run(&mut self, call: Call<'_>) -> Result<(), Stop> {
        let Call {
            collective,
            dtype,
            op,
            peer,
            memory,
            ..
        } = call;
        match (collective, memory, op, peer) {
            (Collective::AllReduce, Memory::Write(data), Some(op), _) => {
                self.all_reduce(dtype, op, data)
            }
            (Collective::ReduceScatter, Memory::Both { input, output }, Some(op), _) => {
                self.reduce_scatter(dtype, op, input, output)
            }
            (Collective::AllGather, Memory::Both { input, output }, ..) => {
                self.all_gather(input, output)
            }
            (Collective::AllToAll, Memory::Both { input, output }, ..) => {
                self.all_to_all(input, output)
            }
            (Collective::Broadcast, Memory::Write(data), _, Some(root)) => {
                self.broadcast(dtype, data, root)
            }
            (_, Memory::Read(data), _, Some(to)) => {
                self.open(&[to])?;
                self.send(to, Payload::new(data.to_vec()));
                Ok(())
            }
            (_, Memory::Write(data), _, Some(from)) => {
                self.open(&[])?;
                let messages = self.gather(&[(from, data.len())])?;
                data.copy_from_slice(&messages[0].payload);
                Ok(())
            }
            _ => {
                self.open_all()?;
                self.exchange(&[]).map(drop)
            }
        }
    }

    fn all_reduce(&mut self, dtype: DType, op: ReduceOp, data: &mut [u8]) -> Result<(), Stop> {
        self.open_all()?;
        let ranks = self.mesh.members.len();
        if ranks == 2 || data.len() <= ONE_MESSAGE {
            let (own, messages) = self.exchange(data)?;
            self.reduce(dtype, op, &own, &messages, data);
            return Ok(());
        }
        let parts = parts(data.len(), ranks, dtype.size());
        let mine = parts[self.mesh.rank].clone();
        for rank in self.mesh.others() {
            self.send(rank, Payload::new(data[parts[rank].clone()].to_vec()));
        }
        let own = data[mine.clone()].to_vec();
        let messages = self.gather_all(|_| mine.len())?;
        self.reduce(dtype, op, &own, &messages, &mut data[mine.clone()]);
        self.send_all(&data[mine]);
        let messages = self.gather_all(|rank| parts[rank].len())?;
        for (rank, message) in self.mesh.others().zip(&messages) {
            data[parts[rank].clone()].copy_from_slice(&message.payload);
        }
        Ok(())
    }

    fn reduce_scatter(
        &mut self,
        dtype: DType,
        op: ReduceOp,
        input: &[u8],
        output: &mut [u8],
    ) -> Result<(), Stop> {
        let length = output.len();
        let part = |rank: usize| &input[rank * length..][..length];
        let messages = self.scatter(part, length)?;
        self.reduce(dtype, op, part(self.mesh.rank), &messages, output);
        Ok(())
    }

    fn all_gather(&mut self, input: &[u8], output: &mut [u8]) -> Result<(), Stop> {
        self.open_all()?;
        let (_, messages) = self.exchange(input)?;
        self.place(input, &messages, output);
        Ok(())
    }

    fn all_to_all(&mut self, input: &[u8], output: &mut [u8]) -> Result<(), Stop> {
        let length = input.len() / self.mesh.members.len();
        let part = |rank: usize| &input[rank * length..][..length];
        let messages = self.scatter(part, length)?;
        self.place(part(self.mesh.rank), &messages, output);
        Ok(())
    }

    /// A small buffer is sent to all. The root sends each rank a part of a large one, and ranks send these on.
    fn broadcast(&mut self, dtype: DType, data: &mut [u8], root: usize) -> Result<(), Stop> {
        let (ranks, rank) = (self.mesh.members.len(), self.mesh.rank);
        let is_whole = ranks == 2 || data.len() <= ONE_MESSAGE;
        if rank == root {
            self.open_all()?;
            if is_whole {
                self.send_all(data);
                return Ok(());
            }
            let parts = parts(data.len(), ranks, dtype.size());
            for rank in self.mesh.others() {
                self.send(rank, Payload::new(data[parts[rank].clone()].to_vec()));
            }
            self.send_all(&data[parts[root].clone()]);
            return Ok(());
        }
        if is_whole {
            self.open(&[])?;
            let messages = self.gather(&[(root, data.len())])?;
            data.copy_from_slice(&messages[0].payload);
            return Ok(());
        }
        let parts = parts(data.len(), ranks, dtype.size());
        let receivers: Vec<_> = self.mesh.others().filter(|&other| other != root).collect();
        self.open(&receivers)?;
        let mine = self.gather(&[(root, parts[rank].len())])?.remove(0).payload;
        data[parts[rank].clone()].copy_from_slice(&mine);
        for to in receivers {
            self.send(to, mine.clone());
        }
        let messages = self.gather_all(|rank| parts[rank].len())?;
        for (rank, message) in self.mesh.others().zip(&messages) {
            data[parts[rank].clone()].copy_from_slice(&message.payload);
        }
        Ok(())
    }

    /// Sends `own` to all others, and receives theirs. Returns both.
    fn exchange(&mut self, own: &[u8]) -> Result<(Payload, Vec<Message>), Stop> {
        let sent = self.send_all(own);
        Ok((sent, self.gather_all(|_| own.len())?))
    }

    /// Sends each other rank its part, and receives one of `length` bytes from each.
    fn scatter<'a>(
        &mut self,
        part: impl Fn(usize) -> &'a [u8],
        length: usize,
    ) -> Result<Vec<Message>, Stop> {
        self.open_all()?;
        for rank in self.mesh.others() {
            self.send(rank, Payload::new(part(rank).to_vec()));
        }
        self.gather_all(|_| length)
    }

    /// Reduces the buffers of all ranks in their order.
    fn reduce(&self, dtype: DType, op: ReduceOp, own: &[u8], messages: &[Message], out: &mut [u8]) {
        let factor = |message: &Message| message.data.signature.op.map_or(1.0, ReduceOp::factor);
        let others = messages.iter().map(|m| Part {
            bytes: &m.payload,
            factor: factor(m),
        });
        let mut parts: Vec<_> = others.collect();
        parts.insert(
            self.mesh.rank,
            Part {
                bytes: own,
                factor: op.factor(),
            },
        );
        reduce(dtype, op, &parts, out);
    }

    /// Writes the buffers of all ranks one after the other.
    fn place(&self, own: &[u8], messages: &[Message], output: &mut [u8]) {
        let length = own.len();
        output[self.mesh.rank * length..][..length].copy_from_slice(own);
        for (rank, message) in self.mesh.others().zip(messages) {
            output[rank * length..][..length].copy_from_slice(&message.payload);
        }
    }

    fn open_all(&mut self) -> Result<(), Stop> {
        let others: Vec<_> = self.mesh.others().collect();
        self.open(&others)
    }

    /// Waits until ranks can take messages, and looks for failures that were reported meanwhile.
    fn open(&mut self, to: &[usize]) -> Result<(), Stop> {
        let Mesh { link, members, .. } = self.mesh;
        let is_full = |rank: &usize| !link.wait_for_room(members[*rank], self.until);
        let full: Vec<_> = to.iter().copied().filter(is_full).collect();
        let now = link.now();
        while self.mesh.wait(self.state, now) {}
        if let Some(failure) = choose(&self.state.findings) {
            return Err(Stop(Box::new(failure)));
        }
        self.check_gone(to)?;
        match full.is_empty() {
            true => Ok(()),
            false => Err(self.found(full, Cause::Deadline(self.mesh.options.deadline))),
        }
    }

    fn send_all(&mut self, bytes: &[u8]) -> Payload {
        let payload = Payload::new(bytes.to_vec());
        for rank in self.mesh.others() {
            self.send(rank, payload.clone());
        }
        payload
    }

    fn send(&mut self, to: usize, payload: Payload) {
        let peer = &mut self.state.peers[to];
        let data = Data {
            signature: self.signature.clone(),
            number: peer.sent,
        };
        peer.sent += 1;
        self.mesh.send(to, Body::Data(data), payload);
    }

    /// Receives one message from every other rank, of so many bytes.
    fn gather_all(&mut self, bytes: impl Fn(usize) -> usize) -> Result<Vec<Message>, Stop> {
        let from: Vec<_> = self.mesh.others().map(|rank| (rank, bytes(rank))).collect();
        self.gather(&from)
    }

    /// Receives a message from each of some ranks, of so many bytes.
    fn gather(&mut self, from: &[(usize, usize)]) -> Result<Vec<Message>, Stop> {
        let mut messages = BTreeMap::new();
        loop {
            for &(rank, bytes) in from {
                if !messages.contains_key(&rank)
                    && let Some(message) = self.state.peers[rank].inbox.pop_front()
                {
                    self.check(rank, &message, bytes)?;
                    messages.insert(rank, message);
                }
            }
            let ranks = from.iter().map(|&(rank, _)| rank);
            let absent: Vec<_> = ranks.filter(|rank| !messages.contains_key(rank)).collect();
            if absent.is_empty() {
                self.step += 1;
                return Ok(messages.into_values().collect());
            }
            if let Some(failure) = choose(&self.state.findings) {
                // If others wait too long, perhaps for this rank, they have to know what it waits for.
                return Err(match failure.cause {
                    Cause::Deadline(time) => self.found(absent, Cause::Deadline(time)),
                    _ => Stop(Box::new(failure)),
                });
            }
            self.check_gone(&absent)?;
            if !self.mesh.wait(self.state, self.until) {
                return Err(self.found(absent, Cause::Deadline(self.mesh.options.deadline)));
            }
        }
    }

    /// Checks that a message is the next one, and for this call.
    fn check(&mut self, rank: usize, message: &Message, bytes: usize) -> Result<(), Stop> {
        let peer = &mut self.state.peers[rank];
        let expected = peer.received;
        peer.received += 1;
        let sent = &message.data.signature;
        if message.data.number != expected {
            return Err(self.found(vec![rank], Cause::Lost));
        }
        if !self.signature.takes(sent) {
            let mut calls = [
                (self.mesh.rank, self.signature.to_string()),
                (rank, sent.to_string()),
            ];
            calls.sort();
            let ranks = [calls[0].0, calls[1].0];
            let calls = calls.map(|(_, call)| call);
            return Err(self.found(Vec::new(), Cause::Mismatch { ranks, calls }));
        }
        if message.payload.len() != bytes {
            return Err(self.found(vec![rank], Cause::Lost));
        }
        Ok(())
    }

    fn check_gone(&mut self, needed: &[usize]) -> Result<(), Stop> {
        let gone = |rank: &usize| self.state.peers[*rank].gone.clone();
        let Some(cause) = needed.iter().find_map(gone) else {
            return Ok(());
        };
        let missing = needed
            .iter()
            .copied()
            .filter(|rank| gone(rank).is_some())
            .collect();
        Err(self.found(missing, cause))
    }

    /// Notes what this rank found.
    fn found(&mut self, missing: Vec<usize>, cause: Cause) -> Stop {
        let (mesh, sequence) = (self.mesh, self.signature.sequence);
        let collective = self.signature.collective().name();
        let finding = mesh.failure(sequence, collective, self.step, missing, cause);
        self.state.findings.insert(mesh.rank, finding.clone());
        Stop(Box::new(finding))
    }
}

/// Nearly equal parts of a buffer, one for each rank, of whole elements.
fn parts(bytes: usize, ranks: usize, size: usize) -> Vec<Range<usize>> {
    let elements = bytes / size;
    let start = |rank: usize| elements / ranks * rank + (elements % ranks).min(rank);
    (0..ranks)
        .map(|rank| start(rank) * size..start(rank + 1) * size)
        .collect()
}

impl<L: Link + 'static> Group for Mesh<L> {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.members.len()
    }

    fn epoch(&self) -> u64 {
        self.epoch
    }

    fn call(&self, call: Call<'_>) -> Result<(), CommError> {
        let mut state = self.lock();
        if let Some(failure) = self.failed(&mut state) {
            return Err(self.error(&failure));
        }
        let sequence = state.sequence + 1;
        if call.collective.is_for_all() {
            state.sequence = sequence;
        }
        let mut turn = Turn {
            mesh: self,
            state: &mut state,
            signature: Signature::new(&call, sequence),
            until: self.link.now() + self.options.deadline,
            step: 0,
        };
        turn.run(call).map_err(|Stop(first)| {
            let failure = self.failed(&mut state).unwrap_or(*first);
            tracing::debug!(rank = self.rank, "{failure}");
            self.error(&failure)
        })
    }

    fn abort(&self, reason: &str) {
        let mut state = self.lock();
        if state.failure.is_some() || !state.findings.is_empty() {
            return;
        }
        let (sequence, cause) = (state.sequence + 1, Cause::Aborted(reason.into()));
        let failure = self.failure(sequence, "before collective", 0, vec![self.rank], cause);
        state.findings.insert(self.rank, failure);
        self.report(&state.findings);
    }

    fn shrink(&self) -> Result<Arc<dyn Group>, CommError> {
        let mut state = self.lock();
        let Some(failure) = self.failed(&mut state) else {
            return Err(CommError::Invalid(
                "shrink: nothing failed; continue with this group".into(),
            ));
        };
        let members = self.agree_on_members(&mut state, &failure)?;
        let Some(rank) = members.iter().position(|&member| member == self.rank) else {
            return Err(self.no_quorum("the other ranks gave it up"));
        };
        let members = members.iter().map(|&member| self.members[member]).collect();
        let early = self.early(&mut state);
        let link = Arc::clone(&self.link);
        let epoch = self.epoch + 1;
        Ok(Arc::new(Self::of(
            link,
            members,
            rank,
            epoch,
            self.options,
            early,
        )))
    }
}

/// The next epoch's members. Every rank asks the lowest one that it believes to remain. It decides for
/// the ranks that asked it, if they are a majority: there cannot be two.
impl<L: Link> Mesh<L> {
    fn agree_on_members(
        &self,
        state: &mut State,
        failure: &Failure,
    ) -> Result<Vec<usize>, CommError> {
        let remains = |rank: usize| !failure.missing.contains(&rank);
        if !remains(self.rank) {
            return Err(self.no_quorum("the other ranks gave it up"));
        }
        let candidates: Vec<usize> = (0..self.members.len())
            .filter(|&rank| remains(rank) && state.peers[rank].gone.is_none())
            .collect();
        let until = self.link.now() + self.options.deadline;
        match candidates[0] == self.rank {
            true => self.decide(state, &candidates, until),
            false => self.ask(state, candidates[0], until),
        }
    }

    fn decide(
        &self,
        state: &mut State,
        candidates: &[usize],
        until: Duration,
    ) -> Result<Vec<usize>, CommError> {
        state.joined.insert(self.rank);
        let is_open = |state: &State, &rank: &usize| {
            !state.joined.contains(&rank) && state.peers[rank].gone.is_none()
        };
        while candidates.iter().any(|rank| is_open(state, rank)) && self.wait(state, until) {}
        let members: Vec<usize> = state.joined.iter().copied().collect();
        let (joined, all) = (members.len(), self.members.len());
        if joined * 2 < all || (joined * 2 == all && self.rank != 0) {
            return Err(self.no_quorum(&format!("only {joined} of {all} ranks remain")));
        }
        for &member in members.iter().filter(|&&member| member != self.rank) {
            let frame = Frame::new(self.epoch + 1, Body::Commit(members.clone()));
            self.link.send(self.members[member], frame);
        }
        Ok(members)
    }

    fn ask(
        &self,
        state: &mut State,
        first: usize,
        until: Duration,
    ) -> Result<Vec<usize>, CommError> {
        self.link
            .send(self.members[first], Frame::new(self.epoch + 1, Body::Join));
        // The first rank decides at its own deadline, which may be later by as much as it came later.
        let until = until + self.options.deadline;
        loop {
            let answer = state.ahead.iter().position(|(id, frame)| {
                *id == self.members[first] && matches!(frame.body, Body::Commit(_))
            });
            if let Some(index) = answer
                && let Body::Commit(members) = state.ahead.remove(index).1.body
            {
                return Ok(members);
            }
            if state.peers[first].gone.is_some() || !self.wait(state, until) {
                return Err(self.no_quorum(&format!("rank {first} does not answer")));
            }
        }
    }

    fn no_quorum(&self, problem: &str) -> CommError {
        CommError::NoQuorum {
            rank: self.rank,
            problem: problem.into(),
        }
    }
}

impl<L> fmt::Debug for Mesh<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rank, size) = (self.rank, self.members.len());
        write!(f, "rank {rank} of {size}, epoch {}", self.epoch)
    }
}
