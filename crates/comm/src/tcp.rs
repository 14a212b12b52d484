//! Ranks that are processes, connected by TCP.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, ErrorKind, Write};
use std::net::{
    IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket,
};
use std::process;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::call;
use crate::environment::{Identity, Meeting};
use crate::link::{Event, Frame, Link};
use crate::mesh::{Mesh, group};
use crate::store::{Folder, Server, Store, TcpStore, connect, is_timeout};
use crate::wire::Packet;
use crate::{Cause, CommError, Group, Options};

/// A rank in its own process, connected to every other rank.
#[derive(Debug)]
pub struct TcpGroup(Mesh<TcpLink>);

impl TcpGroup {
    /// Joins the group that processes of these identities make. Waits for all of them.
    ///
    /// # Errors
    /// Fails if the identity's rank is not below its size, or if the port is taken. Also fails if a rank does not come
    /// before the deadline, or comes twice. Also fails if ranks disagree about their number, or about the program's
    /// version.
    pub fn join(identity: &Identity, options: Options) -> Result<Self, CommError> {
        call::check_rank("join", identity.size, identity.rank)?;
        let options = options.bounded();
        let joining = Joining {
            identity,
            until: Instant::now() + options.deadline,
        };
        let (streams, server) = joining.connect()?;
        let link = TcpLink::new(identity.rank, streams, options);
        let group = Self(Mesh::new(link, identity.size, options));
        group.barrier()?;
        // All have met.
        drop(server);
        if let (Meeting::Folder(folder), 0) = (&identity.meeting, identity.rank) {
            Folder::clear(folder, (0..identity.size).map(key));
        }
        Ok(group)
    }
}

group!(TcpGroup);

/// A rank's description of itself, for the place where ranks meet.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Card {
    version: String,
    size: usize,
    address: SocketAddr,
    process: u32,
    /// A number that only ranks which met know.
    secret: u64,
}

/// The first message of a connection.
#[derive(Debug, Serialize, Deserialize)]
struct Hello {
    rank: usize,
    secret: u64,
}

/// The key of a rank's card.
fn key(rank: usize) -> String {
    format!("rank{rank}")
}

/// A rank on its way into a group.
struct Joining<'a> {
    identity: &'a Identity,
    until: Instant,
}

/// The place where ranks meet.
struct Place {
    store: Box<dyn Store>,
    /// The address by which other hosts see this one.
    own: IpAddr,
    /// The store's server, on rank 0.
    server: Option<Server>,
}

type Streams = Vec<Option<TcpStream>>;

impl Joining<'_> {
    fn connect(&self) -> Result<(Streams, Option<Server>), CommError> {
        let listen = |error| self.failed("listen for other ranks", &error);
        let Place {
            mut store,
            own,
            server,
        } = self.meet()?;
        let all: IpAddr = match own {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let listener = TcpListener::bind((all, 0)).map_err(listen)?;
        let port = listener.local_addr().map_err(listen)?.port();
        let card = Card {
            version: env!("CARGO_PKG_VERSION").into(),
            size: self.identity.size,
            address: SocketAddr::new(own, port),
            process: process::id(),
            secret: RandomState::new().hash_one(process::id()),
        };
        let cards = self.exchange(&mut *store, card)?;
        let mut streams: Streams = cards.iter().map(|_| None).collect();
        for (rank, card) in cards.iter().enumerate().take(self.identity.rank) {
            streams[rank] = Some(self.call(rank, card)?);
        }
        self.accept(&listener, cards[self.identity.rank].secret, &mut streams)?;
        Ok((streams, server))
    }

    fn meet(&self) -> Result<Place, CommError> {
        let (host, port, prefix, server) = match &self.identity.meeting {
            Meeting::Port { host, port } => {
                let is_host = self.identity.rank == 0;
                let server = is_host.then(|| self.serve(*port)).transpose()?;
                (host, *port, "rustorch".into(), server)
            }
            Meeting::Store { host, port, prefix } => (host, *port, prefix.clone(), None),
            Meeting::Folder(path) => {
                let folder = Folder::open(path);
                let open =
                    |error| self.failed(&format!("use the folder {}", path.display()), &error);
                let store = Box::new(folder.map_err(open)?);
                return Ok(Place {
                    store,
                    own: address_of_host(),
                    server: None,
                });
            }
        };
        let reach = |error| self.failed(&format!("reach rank 0 at {host}:{port}"), &error);
        let store = TcpStore::connect(host, port, prefix, self.until).map_err(reach)?;
        let own = store.own_address().map_err(reach)?;
        Ok(Place {
            store: Box::new(store),
            own,
            server,
        })
    }

    fn serve(&self, port: u16) -> Result<Server, CommError> {
        Server::start(port).map_err(|error| match error.kind() {
            ErrorKind::AddrInUse => self.problem(format!(
                "port {port} is taken; set MASTER_PORT to a free one"
            )),
            _ => self.failed(&format!("listen on port {port}"), &error),
        })
    }

    /// Shows the own card, and reads those of all ranks.
    fn exchange(&self, store: &mut dyn Store, card: Card) -> Result<Vec<Card>, CommError> {
        let Identity {
            rank: own, size, ..
        } = *self.identity;
        let meet = |error| self.failed("meet other ranks", &error);
        let text = serde_json::to_string(&card).map_err(|error| meet(error.into()))?;
        let found = store.claim(&key(own), &text, self.until).map_err(meet)?;
        if found != text {
            let other = serde_json::from_str(&found).ok();
            let other = other.map_or_else(String::new, |card: Card| {
                format!(", process {} at {}", card.process, card.address.ip())
            });
            return Err(self.problem(format!(
                "there is another rank {own}{other}; give each rank another number, or a new folder"
            )));
        }
        (0..size)
            .map(|rank| self.card(store, rank, &card))
            .collect()
    }

    fn card(&self, store: &mut dyn Store, rank: usize, own: &Card) -> Result<Card, CommError> {
        let meet = |error| self.failed(&format!("read the address of rank {rank}"), &error);
        let Some(text) = store.get(&key(rank), self.until).map_err(meet)? else {
            return Err(self.problem(format!(
                "rank {rank} did not come before the deadline; start all {} ranks",
                own.size
            )));
        };
        let card: Card = serde_json::from_str(&text).map_err(|error| meet(error.into()))?;
        let differ = |what: &str, theirs: &str, mine: &str| {
            self.problem(format!(
                "rank {rank} has {what} {theirs}, this rank {mine}; start all alike"
            ))
        };
        if card.version != own.version {
            return Err(differ("version", &card.version, &own.version));
        }
        if card.size != own.size {
            let sizes = [card.size, own.size].map(|size| size.to_string());
            return Err(differ("world size", &sizes[0], &sizes[1]));
        }
        Ok(card)
    }

    fn call(&self, rank: usize, card: &Card) -> Result<TcpStream, CommError> {
        let hello = Hello {
            rank: self.identity.rank,
            secret: card.secret,
        };
        let greet = || {
            let mut stream = connect(card.address, self.until)?;
            let json = serde_json::to_vec(&hello)?;
            stream.write_all(&[&(json.len() as u32).to_le_bytes(), &json[..]].concat())?;
            Ok(stream)
        };
        greet().map_err(|e| self.failed(&format!("reach rank {rank} at {}", card.address), &e))
    }

    /// Waits for the connections of all ranks above this one.
    fn accept(
        &self,
        listener: &TcpListener,
        secret: u64,
        streams: &mut Streams,
    ) -> Result<(), CommError> {
        let listen = |error| self.failed("listen for other ranks", &error);
        listener.set_nonblocking(true).map_err(listen)?;
        let first = self.identity.rank + 1;
        while let Some(absent) = (first..streams.len()).find(|&rank| streams[rank].is_none()) {
            if Instant::now() >= self.until {
                return Err(self.problem(format!("rank {absent} met, but does not connect")));
            }
            match listener.accept() {
                Ok((stream, _)) => {
                    // Whoever knows no secret is not a rank.
                    let hello = greeting(&stream)
                        .ok()
                        .filter(|hello| hello.secret == secret);
                    let place = hello.and_then(|hello| streams.get_mut(hello.rank));
                    if let Some(place) = place {
                        *place = Some(stream);
                    }
                }
                Err(error) if is_timeout(&error) => thread::sleep(Duration::from_millis(1)),
                Err(error) => return Err(listen(error)),
            }
        }
        Ok(())
    }

    fn failed(&self, action: &str, error: &io::Error) -> CommError {
        self.problem(format!("cannot {action}: {error}"))
    }

    fn problem(&self, problem: String) -> CommError {
        let Identity { rank, size, .. } = *self.identity;
        CommError::Join {
            rank,
            size,
            problem,
        }
    }
}

fn greeting(mut stream: &TcpStream) -> io::Result<Hello> {
    use io::Read;
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(Duration::from_secs(2)))?;
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let mut json = vec![0; u32::from_le_bytes(length).min(1024) as usize];
    stream.read_exact(&mut json)?;
    Ok(serde_json::from_slice(&json)?)
}

/// The address by which other hosts reach this one: that of packets to elsewhere. None is sent.
fn address_of_host() -> IpAddr {
    let address = || {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9))?;
        socket.local_addr()
    };
    address().map_or(Ipv4Addr::LOCALHOST.into(), |address: SocketAddr| {
        address.ip()
    })
}

/// Bytes for a rank, or from it, above which senders wait.
const FULL: usize = 256 << 20;

#[derive(Debug)]
struct TcpLink {
    rank: usize,
    start: Instant,
    options: Options,
    inbox: Arc<Inbox>,
    peers: Vec<Option<Arc<Peer>>>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Inbox {
    state: Mutex<Arrived>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Arrived {
    events: VecDeque<(usize, Event)>,
    /// Bytes of each rank among the events.
    bytes: Vec<usize>,
    is_closed: bool,
}

/// A connection with a rank.
#[derive(Debug)]
struct Peer {
    rank: usize,
    stream: TcpStream,
    outbox: Mutex<Outbox>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Outbox {
    packets: VecDeque<Packet>,
    bytes: usize,
    /// Nothing more is sent.
    is_closed: bool,
    /// Nothing more arrives there.
    is_gone: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn wait<'a, T>(changed: &Condvar, guard: MutexGuard<'a, T>, time: Duration) -> MutexGuard<'a, T> {
    let woken = changed.wait_timeout(guard, time);
    woken.unwrap_or_else(PoisonError::into_inner).0
}

impl TcpLink {
    fn new(rank: usize, streams: Streams, options: Options) -> Self {
        let inbox = Arc::new(Inbox::default());
        lock(&inbox.state).bytes = vec![0; streams.len()];
        let peer = |(rank, stream): (usize, Option<TcpStream>)| {
            let (outbox, changed) = Default::default();
            stream.map(|stream| {
                Arc::new(Peer {
                    rank,
                    stream,
                    outbox,
                    changed,
                })
            })
        };
        let peers: Vec<_> = streams.into_iter().enumerate().map(peer).collect();
        let mut threads = Vec::new();
        for peer in peers.iter().flatten() {
            let (reader, writer) = (Arc::clone(peer), Arc::clone(peer));
            let inbox = Arc::clone(&inbox);
            threads.push(thread::spawn(move || reader.read(&inbox, options.silence)));
            threads.push(thread::spawn(move || writer.write(options.silence / 5)));
        }
        Self {
            rank,
            start: Instant::now(),
            options,
            inbox,
            peers,
            threads,
        }
    }
}

impl Peer {
    fn post(&self, packet: Packet) {
        let mut outbox = lock(&self.outbox);
        if !outbox.is_closed && !outbox.is_gone {
            outbox.bytes += packet.payload().map_or(0, |payload| payload.len());
            outbox.packets.push_back(packet);
            self.changed.notify_all();
        }
    }

    /// Sends what is posted, and else from time to time that this process lives.
    fn write(&self, beat: Duration) {
        loop {
            let mut outbox = lock(&self.outbox);
            if outbox.packets.is_empty() && !outbox.is_closed {
                outbox = wait(&self.changed, outbox, beat);
            }
            let packet = outbox.packets.pop_front();
            let is_over = outbox.is_gone || (outbox.is_closed && packet.is_none());
            drop(outbox);
            let packet = packet.unwrap_or(Packet::Alive);
            // The reader reports why a connection broke.
            if is_over || self.write_packet(&packet).is_err() {
                return;
            }
            let mut outbox = lock(&self.outbox);
            outbox.bytes -= packet.payload().map_or(0, |payload| payload.len());
            self.changed.notify_all();
        }
    }

    fn write_packet(&self, packet: &Packet) -> io::Result<()> {
        let mut stream = &self.stream;
        stream.write_all(&packet.header()?)?;
        packet
            .payload()
            .map_or(Ok(()), |payload| stream.write_all(payload))
    }

    fn read(&self, inbox: &Inbox, silence: Duration) {
        let mut has_left = false;
        let cause = loop {
            match self.read_packet(silence) {
                Ok(Packet::Frame(frame)) => {
                    let bytes = frame.payload.len();
                    self.arrived(inbox, Event::Frame(frame), bytes);
                }
                Ok(Packet::Alive) => {}
                Ok(Packet::Leave) => {
                    has_left = true;
                    self.post(Packet::Seen);
                    self.arrived(inbox, Event::Gone(Cause::Left), 0);
                }
                Ok(Packet::Seen) => break None,
                Err(_) if has_left => break None,
                Err(error) if is_timeout(&error) => break Some(Cause::Silent(silence)),
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                    break Some(Cause::Disconnected("the process ended".into()));
                }
                Err(error) => break Some(Cause::Disconnected(error.to_string())),
            }
        };
        let mut outbox = lock(&self.outbox);
        outbox.is_gone = true;
        self.changed.notify_all();
        drop(outbox);
        if let Some(cause) = cause {
            self.arrived(inbox, Event::Gone(cause), 0);
        }
    }

    fn read_packet(&self, silence: Duration) -> io::Result<Packet> {
        self.stream.set_read_timeout(Some(silence))?;
        Packet::read(&mut &self.stream)
    }

    /// Hands over an event, and waits while too much of this rank is not taken.
    fn arrived(&self, inbox: &Inbox, event: Event, bytes: usize) {
        let mut arrived = lock(&inbox.state);
        arrived.events.push_back((self.rank, event));
        arrived.bytes[self.rank] += bytes;
        inbox.changed.notify_all();
        while arrived.bytes[self.rank] > FULL && !arrived.is_closed {
            arrived = wait(&inbox.changed, arrived, Duration::from_secs(1));
        }
    }
}

impl Link for TcpLink {
    fn id(&self) -> usize {
        self.rank
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn wait_for_room(&self, to: usize, until: Duration) -> bool {
        let Some(peer) = &self.peers[to] else {
            return true;
        };
        let mut outbox = lock(&peer.outbox);
        while outbox.bytes > FULL && !outbox.is_gone {
            let left = until.saturating_sub(self.now());
            if left.is_zero() {
                return false;
            }
            outbox = wait(&peer.changed, outbox, left);
        }
        true
    }

    fn send(&self, to: usize, frame: Frame) {
        if let Some(peer) = &self.peers[to] {
            peer.post(Packet::Frame(frame));
        }
    }

    fn next(&self, until: Duration) -> Option<(usize, Event)> {
        let mut arrived = lock(&self.inbox.state);
        loop {
            if let Some((rank, event)) = arrived.events.pop_front() {
                if let Event::Frame(frame) = &event {
                    arrived.bytes[rank] -= frame.payload.len();
                    self.inbox.changed.notify_all();
                }
                return Some((rank, event));
            }
            let left = until.saturating_sub(self.now());
            if left.is_zero() {
                return None;
            }
            arrived = wait(&self.inbox.changed, arrived, left);
        }
    }
}

impl Drop for TcpLink {
    /// Leaves the group. Waits a little until others have got all that was sent.
    fn drop(&mut self) {
        lock(&self.inbox.state).is_closed = true;
        self.inbox.changed.notify_all();
        let until = self.now() + self.options.settle;
        for peer in self.peers.iter().flatten() {
            peer.post(Packet::Leave);
        }
        for peer in self.peers.iter().flatten() {
            let mut outbox = lock(&peer.outbox);
            while !outbox.is_gone && self.now() < until {
                outbox = wait(&peer.changed, outbox, until.saturating_sub(self.now()));
            }
            outbox.is_closed = true;
            peer.changed.notify_all();
            drop(outbox);
            let _ = peer.stream.shutdown(Shutdown::Both);
        }
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
