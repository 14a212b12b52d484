//! Keys and values by which processes find each other, with the protocol of PyTorch's `TCPStore`, or as files.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use std::{fs, process};

/// The time between two attempts.
const AGAIN: Duration = Duration::from_millis(20);

pub(crate) trait Store {
    /// Sets a key that has no value. Returns the value that it has then. Fails at the time `until`.
    fn claim(&mut self, key: &str, value: &str, until: Instant) -> io::Result<String>;

    /// Waits for a key's value. None if it has none at the time `until`.
    fn get(&mut self, key: &str, until: Instant) -> io::Result<Option<String>>;
}

// Queries of the protocol.
const VALIDATE: u8 = 0;
const COMPARE_SET: u8 = 2;
const GET: u8 = 3;
const WAIT: u8 = 6;
const MAGIC: u32 = 0x3C85_F7CE;
const STOP_WAITING: u8 = 0;

/// The longest value that is read.
const LONGEST: u64 = 1 << 20;

/// A client of a `TCPStore`.
pub(crate) struct TcpStore {
    stream: TcpStream,
    prefix: String,
}

impl TcpStore {
    /// Connects, as soon as something listens.
    pub(crate) fn connect(
        host: &str,
        port: u16,
        prefix: String,
        until: Instant,
    ) -> io::Result<Self> {
        let mut stream = connect((host, port), until)?;
        stream.write_all(&[&[VALIDATE], &MAGIC.to_ne_bytes()[..]].concat())?;
        Ok(Self { stream, prefix })
    }

    /// The address by which the store's host sees this one.
    pub(crate) fn own_address(&self) -> io::Result<IpAddr> {
        Ok(self.stream.local_addr()?.ip())
    }

    fn key(&self, key: &str) -> Vec<u8> {
        text(&format!("/{}/{key}", self.prefix))
    }

    /// Lets no read wait beyond the time `until`.
    fn limit(&self, until: Instant) -> io::Result<()> {
        let left = until.saturating_duration_since(Instant::now()).max(AGAIN);
        self.stream.set_read_timeout(Some(left))
    }

    fn answer(&mut self) -> io::Result<String> {
        read_text(&mut self.stream).map_err(|error| match is_timeout(&error) {
            true => io::Error::new(
                ErrorKind::TimedOut,
                "the store does not answer before the deadline; check MASTER_ADDR and MASTER_PORT",
            ),
            false => error,
        })
    }
}

impl Store for TcpStore {
    fn claim(&mut self, key: &str, value: &str, until: Instant) -> io::Result<String> {
        let query = [vec![COMPARE_SET], self.key(key), text(""), text(value)].concat();
        self.limit(until)?;
        self.stream.write_all(&query)?;
        self.answer()
    }

    fn get(&mut self, key: &str, until: Instant) -> io::Result<Option<String>> {
        self.limit(until)?;
        let key = self.key(key);
        let wait = [vec![WAIT], 1_u64.to_ne_bytes().to_vec(), key.clone()].concat();
        self.stream.write_all(&wait)?;
        let mut answer = [0];
        match self.stream.read_exact(&mut answer) {
            Err(error) if is_timeout(&error) => return Ok(None),
            result => result?,
        }
        if answer != [STOP_WAITING] {
            return Ok(None);
        }
        self.stream.write_all(&[vec![GET], key].concat())?;
        self.limit(until)?;
        self.answer().map(Some)
    }
}

pub(crate) fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

/// Connects to a host, as soon as something listens there.
pub(crate) fn connect(to: impl ToSocketAddrs, until: Instant) -> io::Result<TcpStream> {
    loop {
        let left = until.saturating_duration_since(Instant::now()).max(AGAIN);
        let attempt = |address: SocketAddr| TcpStream::connect_timeout(&address, left);
        let mut result = Err(io::Error::from(ErrorKind::NotFound));
        for address in to.to_socket_addrs()? {
            result = attempt(address);
            if result.is_ok() {
                break;
            }
        }
        if result.is_ok() || Instant::now() >= until {
            if let Ok(stream) = &result {
                stream.set_nodelay(true)?;
            }
            return result;
        }
        thread::sleep(AGAIN);
    }
}

fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_ne_bytes()[..], text.as_bytes()].concat()
}

fn read_text(stream: &mut TcpStream) -> io::Result<String> {
    let mut length = [0; 8];
    stream.read_exact(&mut length)?;
    let length = u64::from_ne_bytes(length);
    if length > LONGEST {
        return Err(io::Error::new(
            ErrorKind::InvalidData,
            "this is not a store of ranks",
        ));
    }
    let mut bytes = vec![0; length as usize];
    stream.read_exact(&mut bytes)?;
    String::from_utf8(bytes).map_err(|error| io::Error::new(ErrorKind::InvalidData, error))
}

/// A store that serves the queries of [`TcpStore`], while it lives.
pub(crate) struct Server {
    address: SocketAddr,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Values {
    values: Mutex<BTreeMap<String, String>>,
    changed: Condvar,
}

impl Server {
    pub(crate) fn start(port: u16) -> io::Result<Self> {
        let listener = TcpListener::bind(("0.0.0.0", port))?;
        let address = SocketAddr::from(([127, 0, 0, 1], listener.local_addr()?.port()));
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let thread = thread::spawn(move || {
            let values = Arc::new(Values::default());
            for stream in listener.incoming().flatten() {
                if over.load(Ordering::Acquire) {
                    return;
                }
                let values = Arc::clone(&values);
                // A client ends its thread by closing the connection.
                thread::spawn(move || serve(stream, &values));
            }
        });
        Ok(Self {
            address,
            is_over,
            thread: Some(thread),
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        // The thread looks when somebody connects.
        let woken = TcpStream::connect_timeout(&self.address, Duration::from_secs(1));
        if let (Ok(_), Some(thread)) = (woken, self.thread.take()) {
            let _ = thread.join();
        }
    }
}

fn serve(mut stream: TcpStream, values: &Values) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let lock = || values.values.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        let mut query = [0];
        stream.read_exact(&mut query)?;
        match query[0] {
            VALIDATE => stream.read_exact(&mut [0; 4])?,
            COMPARE_SET => {
                let key = read_text(&mut stream)?;
                let (expected, value) = (read_text(&mut stream)?, read_text(&mut stream)?);
                let mut values_now = lock();
                let current = values_now.get(&key).cloned();
                let answer = match current {
                    Some(current) if current != expected => current,
                    None if !expected.is_empty() => expected,
                    _ => {
                        values_now.insert(key, value.clone());
                        values.changed.notify_all();
                        value
                    }
                };
                drop(values_now);
                stream.write_all(&text(&answer))?;
            }
            WAIT => {
                stream.read_exact(&mut [0; 8])?;
                let key = read_text(&mut stream)?;
                let mut values_now = lock();
                while !values_now.contains_key(&key) {
                    let woken = values
                        .changed
                        .wait_timeout(values_now, Duration::from_secs(1));
                    values_now = woken.unwrap_or_else(PoisonError::into_inner).0;
                    if is_closed(&stream)? {
                        return Ok(());
                    }
                }
                drop(values_now);
                stream.write_all(&[STOP_WAITING])?;
            }
            GET => {
                let key = read_text(&mut stream)?;
                let value = lock().get(&key).cloned().unwrap_or_default();
                stream.write_all(&text(&value))?;
            }
            _ => return Ok(()),
        }
    }
}

fn is_closed(stream: &TcpStream) -> io::Result<bool> {
    stream.set_nonblocking(true)?;
    let peeked = stream.peek(&mut [0]);
    stream.set_nonblocking(false)?;
    Ok(matches!(peeked, Ok(0)))
}

/// A folder whose files are the values.
pub(crate) struct Folder {
    path: PathBuf,
}

impl Folder {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        fs::create_dir_all(path)?;
        Ok(Self { path: path.into() })
    }

    /// Removes the files of these keys, and the folder if nothing else is in it.
    pub(crate) fn clear(path: &Path, keys: impl Iterator<Item = String>) {
        // A file that stays is an error of the next run.
        for key in keys {
            let _ = fs::remove_file(path.join(key));
        }
        let _ = fs::remove_dir(path);
    }
}

impl Store for Folder {
    fn claim(&mut self, key: &str, value: &str, _: Instant) -> io::Result<String> {
        // A file gets its name when it is whole, and only one file gets it.
        let draft = self.path.join(format!("{key}.{}", process::id()));
        fs::write(&draft, value)?;
        let linked = fs::hard_link(&draft, self.path.join(key));
        fs::remove_file(&draft)?;
        match linked {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                fs::read_to_string(self.path.join(key))
            }
            result => result.map(|()| value.into()),
        }
    }

    fn get(&mut self, key: &str, until: Instant) -> io::Result<Option<String>> {
        loop {
            match fs::read_to_string(self.path.join(key)) {
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                result => return result.map(Some),
            }
            if Instant::now() >= until {
                return Ok(None);
            }
            thread::sleep(AGAIN);
        }
    }
}
