//! Connections: how many there are, and how long their requests may take to arrive.

use std::future::Future;
use std::io::{self, ErrorKind, IoSlice};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use futures_util::future::select_all;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep, sleep};

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
    /// Time in which a client has to read some of what waits for it.
    pub write_time: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 4096,
            head_time: Duration::from_secs(30),
            body_time: Duration::from_secs(30),
            body_bytes: 32 << 20,
            write_time: Duration::from_secs(60),
        }
    }
}

/// Answers connections until `stop`. Then it returns when the answers have ended.
pub(crate) async fn serve(
    listeners: Vec<TcpListener>,
    router: Router,
    limits: Limits,
    stop: impl Future<Output = ()>,
) {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head_time)
        .max_headers(MAX_HEADERS)
        .max_buf_size(MAX_HEAD)
        // Some clients look for names in this spelling alone.
        .title_case_headers(true);
    let room = Arc::new(Semaphore::new(limits.connections));
    let graceful = GracefulShutdown::new();
    let mut stop = pin!(stop);
    loop {
        let (stream, place) = tokio::select! {
            () = &mut stop => break,
            next = next(&listeners, &room) => match next {
                Ok(next) => next,
                Err(error) if is_clients(&error) => continue,
                Err(error) => {
                    tracing::warn!("no new connection: {error}");
                    sleep(PAUSE).await;
                    continue;
                }
            },
        };
        let service = TowerToHyperService::new(router.clone());
        let stream = TokioIo::new(Impatient::new(stream, limits.write_time));
        let connection = builder.serve_connection(stream, service);
        let connection = graceful.watch(connection);
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!("a connection ended: {error}");
            }
            drop(place);
        });
    }
    drop(listeners);
    graceful.shutdown().await;
}

/// The next connection, when there is room for it.
async fn next(
    listeners: &[TcpListener],
    room: &Arc<Semaphore>,
) -> io::Result<(TcpStream, OwnedSemaphorePermit)> {
    let place = Arc::clone(room).acquire_owned().await;
    let place = place.map_err(io::Error::other)?;
    let accepted = listeners.iter().map(|listener| Box::pin(listener.accept()));
    let (accepted, ..) = select_all(accepted).await;
    let (stream, _) = accepted?;
    // Tokens are small, and each is awaited. A client that is gone already makes it fail, which reading tells, too.
    let _ = stream.set_nodelay(true);
    Ok((stream, place))
}

/// Is it the error of one client, which says nothing about the next?
fn is_clients(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionAborted | ErrorKind::ConnectionReset | ErrorKind::ConnectionRefused
    )
}

/// A stream that fails if its client reads nothing for some time, although bytes wait.
struct Impatient {
    stream: TcpStream,
    limit: Duration,
    /// The end of the time.
    end: Pin<Box<Sleep>>,
    /// Do bytes wait?
    waits: bool,
}

impl Impatient {
    fn new(stream: TcpStream, limit: Duration) -> Self {
        Self {
            stream,
            limit,
            end: Box::pin(sleep(limit)),
            waits: false,
        }
    }

    /// The result of writing, or the error of a client that has had its time.
    fn limited<T>(
        &mut self,
        written: Poll<io::Result<T>>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.waits = false;
            return written;
        }
        if !self.waits {
            self.waits = true;
            self.end.as_mut().reset(Instant::now() + self.limit);
        }
        match self.end.as_mut().poll(context) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(()) => {
                let problem = "the client does not read";
                Poll::Ready(Err(io::Error::new(ErrorKind::TimedOut, problem)))
            }
        }
    }
}

impl AsyncRead for Impatient {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Impatient {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.limited(written, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, pieces);
        self.limited(written, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
