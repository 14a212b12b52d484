//! Connections: how many there are, and how long their requests may take to arrive.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Lines of a request's head.
const MAX_HEADERS: usize = 100;

/// Bytes of a request's head.
const MAX_HEAD: usize = 64 << 10;

/// Pause after the system refused a connection, for want of file handles as a rule.
const PAUSE: Duration = Duration::from_millis(100);

/// Limits of what clients may cost before they are answered.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at once. More wait until one closes.
    pub connections: usize,
    /// Time for a request's head to arrive. An idle connection is closed after it, too.
    pub head_time: Duration,
    /// Time for a request's body to arrive.
    pub body_time: Duration,
    /// Bytes of a request's body.
    pub body_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 4096,
            head_time: Duration::from_secs(30),
            body_time: Duration::from_secs(30),
            body_bytes: 32 << 20,
        }
    }
}

/// Answers connections until `stop`. Then it returns when the answers have ended.
pub(crate) async fn serve(
    listener: TcpListener,
    router: Router,
    limits: Limits,
    stop: impl Future<Output = ()>,
) {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head_time)
        .max_headers(MAX_HEADERS)
        .max_buf_size(MAX_HEAD);
    let room = Arc::new(Semaphore::new(limits.connections));
    let graceful = GracefulShutdown::new();
    let mut stop = pin!(stop);
    loop {
        let (stream, place) = tokio::select! {
            () = &mut stop => break,
            next = next(&listener, &room) => match next {
                Ok(next) => next,
                Err(error) => {
                    tracing::warn!("no new connection: {error}");
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            },
        };
        let service = TowerToHyperService::new(router.clone());
        let connection = builder.serve_connection(TokioIo::new(stream), service);
        let connection = graceful.watch(connection);
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!("a connection ended: {error}");
            }
            drop(place);
        });
    }
    drop(listener);
    graceful.shutdown().await;
}

/// The next connection, when there is room for it.
async fn next(
    listener: &TcpListener,
    room: &Arc<Semaphore>,
) -> io::Result<(TcpStream, OwnedSemaphorePermit)> {
    let place = Arc::clone(room).acquire_owned().await;
    let place = place.map_err(io::Error::other)?;
    let (stream, _) = listener.accept().await?;
    // Tokens are small, and each is awaited.
    stream.set_nodelay(true)?;
    Ok((stream, place))
}
