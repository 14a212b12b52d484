//! Listening.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;

use rustorch_llm::LlmError;
use rustorch_runtime::Runtime as Devices;
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;

use crate::connections::{Limits, serve};
use crate::guard::origins::Origins;
use crate::guard::{Guard, Keys};
use crate::model::{Loaded, ServedModel};
use crate::routes::{App, Features, router};

/// Threads for templates, grammars and vocabularies, which take their time.
const BLOCKING_THREADS: usize = 4;

/// Options of a [`Server`].
pub struct ServeOptions {
    /// Names or addresses to listen on, with commas between them.
    pub host: String,
    /// Port to listen on; 0 for a free one.
    pub port: u16,
    /// Keys that requests need.
    pub keys: Keys,
    /// Limits of connections and requests.
    pub limits: Limits,
    /// The devices, whose fallbacks are counted.
    pub devices: Devices,
    /// Pages of other origins that may ask.
    pub origins: Origins,
    /// Parts that a server may have or not.
    pub features: Features,
}

/// A server that cannot begin, or go on.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The address is taken, or is not this machine's.
    #[error("cannot listen on {address}: {error}; give another --host or --port")]
    Listen {
        /// The address.
        address: String,
        /// The system's reason.
        error: io::Error,
    },
    /// The system refuses threads or signals.
    #[error("the system refuses what a server needs: {0}")]
    System(#[from] io::Error),
    /// A model that cannot be served.
    #[error(transparent)]
    Model(#[from] LlmError),
    /// Two models with one name.
    #[error("two models have the name {0:?}; rename a file")]
    SameName(String),
    /// No model.
    #[error("there is no model to serve")]
    NoModel,
}

/// A server that listens, and answers when it is [`run`](Self::run).
pub struct Server {
    runtime: Runtime,
    listeners: Vec<TcpListener>,
    addresses: Vec<SocketAddr>,
    guard: Guard,
    limits: Limits,
    devices: Devices,
    features: Features,
    stop: (watch::Sender<bool>, watch::Receiver<bool>),
}

/// Ends a server.
#[derive(Clone)]
pub struct Stopper(watch::Sender<bool>);

impl Stopper {
    /// Has the server take no new connections and end when its answers have ended.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }
}

impl Server {
    /// Listens. Connections wait until the server [`run`](Self::run)s.
    ///
    /// # Errors
    /// Fails if the address cannot be listened on.
    pub fn bind(options: ServeOptions) -> Result<Self, ServeError> {
        let ServeOptions {
            host,
            port,
            keys,
            limits,
            devices,
            origins,
            features,
        } = options;
        let runtime = runtime()?;
        let (mut listeners, mut addresses) = (Vec::new(), Vec::new());
        let mut port = port;
        for host in host.split(',').map(str::trim) {
            let listen = |error| ServeError::Listen {
                address: format!("{host}:{port}"),
                error,
            };
            let bare = host.trim_start_matches('[').trim_end_matches(']');
            let found = (bare, port).to_socket_addrs().map_err(listen)?;
            let found: Vec<SocketAddr> = found.collect();
            let bound = runtime.block_on(TcpListener::bind(&found[..]));
            let listener = bound.map_err(listen)?;
            let address = listener.local_addr()?;
            // A free port is the same on all addresses.
            port = address.port();
            addresses.push(address);
            listeners.push(listener);
        }
        Ok(Self {
            runtime,
            listeners,
            guard: Guard {
                keys: keys.into(),
                is_loopback: addresses.iter().all(|address| address.ip().is_loopback()),
                origins,
            },
            addresses,
            limits,
            devices,
            features,
            stop: watch::channel(false),
        })
    }

    /// The first address, with the port that was found.
    pub fn address(&self) -> SocketAddr {
        self.addresses[0]
    }

    /// All addresses.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Ends the server from elsewhere.
    pub fn stopper(&self) -> Stopper {
        Stopper(self.stop.0.clone())
    }

    /// Answers with these models until the program is asked to end (SIGTERM, SIGINT), or until [`Stopper::stop`].
    /// Then it takes no new connections, and returns when its answers have ended. A second signal returns at once.
    /// A request without a model's name gets the first. On SIGHUP the file of keys is read again.
    ///
    /// # Errors
    /// Fails if there is no model, if one has no vocabulary, or if two have one name. Also fails if the system refuses
    /// signals.
    pub fn run(self, models: Vec<ServedModel>) -> Result<(), ServeError> {
        let Self {
            runtime,
            listeners,
            guard,
            limits,
            devices,
            features,
            stop: (stop, mut stopped),
            ..
        } = self;
        let app = Arc::new(App::new(loaded(models)?, guard, devices, limits, features));
        runtime.block_on(async {
            let mut signals = Signals::new()?;
            let until = async move {
                tokio::select! {
                    () = signals.next() => {
                        stop.send_replace(true);
                        signals
                    }
                    // The sender lives as long as this server.
                    _ = stopped.wait_for(|&stopped| stopped) => signals,
                }
            };
            let (give, given) = tokio::sync::oneshot::channel();
            let shutdown = async move {
                let signals = until.await;
                tracing::info!("no new connections; waiting for the answers to end");
                let _ = give.send(signals);
            };
            let reload = reloading(Arc::clone(&app))?;
            let serve = serve(listeners, router(app), limits, shutdown);
            let again = async {
                match given.await {
                    Ok(mut signals) => signals.next().await,
                    Err(_) => std::future::pending().await,
                }
            };
            tokio::select! {
                () = serve => {}
                () = again => {}
                () = reload => {}
            }
            Ok(())
        })
    }
}

/// The thread that answers.
pub(crate) fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(BLOCKING_THREADS)
        .build()
}

/// The models, ready to answer.
pub(crate) fn loaded(models: Vec<ServedModel>) -> Result<Vec<Arc<Loaded>>, ServeError> {
    let mut loaded: Vec<Arc<Loaded>> = Vec::new();
    for model in models {
        let mut names = std::iter::once(&model.name).chain(&model.aliases);
        if let Some(name) = names.find(|name| loaded.iter().any(|other| other.is_named(name))) {
            return Err(ServeError::SameName(name.clone()));
        }
        loaded.push(Loaded::new(model)?);
    }
    match loaded.is_empty() {
        true => Err(ServeError::NoModel),
        false => Ok(loaded),
    }
}

/// Reads the keys again at each SIGHUP, without end.
#[cfg(unix)]
fn reloading(app: Arc<App>) -> io::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};

    let mut hangup = signal(SignalKind::hangup())?;
    Ok(async move {
        loop {
            match hangup.recv().await {
                Some(()) => app.guard.reload(),
                None => std::future::pending().await,
            }
        }
    })
}

#[cfg(not(unix))]
fn reloading(_: Arc<App>) -> io::Result<impl Future<Output = ()>> {
    Ok(std::future::pending())
}

/// Signals that end the program.
struct Signals {
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
}

impl Signals {
    #[cfg(unix)]
    fn new() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};

        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    #[cfg(not(unix))]
    fn new() -> io::Result<Self> {
        Ok(Self {})
    }

    #[cfg(unix)]
    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }

    #[cfg(not(unix))]
    async fn next(&mut self) {
        let _ = tokio::signal::ctrl_c().await;
    }
}
