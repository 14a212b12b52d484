//! Checks of a request before it is read: its host, its origin, its key, its size.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, Uri, header};
use futures_util::StreamExt;
use tokio::time::timeout;

use crate::error::ApiError;
use crate::page;

/// Bytes of a body.
const MAX_BODY: usize = 32 << 20;

/// Time for a body to arrive.
const BODY_TIME: Duration = Duration::from_secs(30);

/// Paths that need no key, besides the page's files.
const PUBLIC: [&str; 3] = ["/", "/health", "/v1/health"];

/// The keys of an API.
pub struct Keys {
    /// Hashes of the keys: comparing them gives no time to learn a key from.
    salts: HashSet<u64>,
    state: RandomState,
}

impl Keys {
    /// No keys: everyone may ask.
    pub fn none() -> Self {
        Self::of("")
    }

    /// The keys of a file, one a line. Empty lines and lines that begin with `#` are none.
    ///
    /// # Errors
    /// Fails if the file cannot be read.
    pub fn read(path: &Path) -> io::Result<Self> {
        Ok(Self::of(&std::fs::read_to_string(path)?))
    }

    /// The keys of a text, one a line.
    pub fn of(text: &str) -> Self {
        let state = RandomState::new();
        let lines = text.lines().map(str::trim);
        let keys = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
        Self {
            salts: keys.map(|key| state.hash_one(key)).collect(),
            state,
        }
    }

    /// Returns whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.salts.is_empty()
    }

    /// The salt of a request's cache, which is that of its key.
    ///
    /// # Errors
    /// Fails if a key is missing or wrong.
    fn salt(&self, headers: &HeaderMap) -> Result<u64, ApiError> {
        if self.salts.is_empty() {
            return Ok(0);
        }
        let text = |name: header::HeaderName| headers.get(name)?.to_str().ok();
        let bearer = text(header::AUTHORIZATION).and_then(|value| {
            let (scheme, key) = value.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then_some(key)
        });
        let key = bearer.or_else(|| text(header::HeaderName::from_static("x-api-key")));
        let salt = key.map(|key| self.state.hash_one(key.trim()));
        let known = salt.filter(|salt| self.salts.contains(salt));
        known.ok_or_else(ApiError::unauthorized)
    }
}

/// Checks of hosts, origins and keys.
pub(crate) struct Guard {
    pub(crate) keys: Keys,
    /// Does only this machine reach the server?
    pub(crate) is_loopback: bool,
}

impl Guard {
    /// Checks a request before its body is read. Returns the salt of its cache.
    ///
    /// # Errors
    /// Fails if it comes from another page, by a foreign name, or without a key.
    pub(crate) fn check(&self, uri: &Uri, headers: &HeaderMap) -> Result<u64, ApiError> {
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
        let host = text(header::HOST).or_else(|| uri.authority().map(|it| it.as_str()));
        if self.is_loopback && !host.is_some_and(is_local) {
            let problem =
                "the Host header is not this machine's; a page of another name may be behind it";
            return Err(ApiError::forbidden(problem));
        }
        if let Some(origin) = text(header::ORIGIN)
            && origin.split_once("://").map(|(_, rest)| rest) != host
        {
            let problem = "the request comes from a page of another origin";
            return Err(ApiError::forbidden(problem));
        }
        let path = uri.path();
        match PUBLIC.contains(&path) || path.starts_with(page::FOLDER) {
            true => Ok(0),
            false => self.keys.salt(headers),
        }
    }
}

/// Is it a name of this machine, with or without a port?
fn is_local(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|it| it.is_ascii_digit()) => name,
        _ => host,
    };
    let address = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost")
        || address
            .parse()
            .is_ok_and(|address: IpAddr| address.is_loopback())
}

/// Reads a body.
///
/// # Errors
/// Fails if it is too large or too slow, or breaks off.
pub(crate) async fn body(body: Body) -> Result<Bytes, ApiError> {
    let read = async {
        let (mut all, mut pieces) = (Vec::new(), body.into_data_stream());
        while let Some(piece) = pieces.next().await {
            let piece = piece.map_err(|_| ApiError::bad("the body broke off"))?;
            if all.len() + piece.len() > MAX_BODY {
                return Err(ApiError::too_large(MAX_BODY));
            }
            all.extend_from_slice(&piece);
        }
        Ok(all.into())
    };
    timeout(BODY_TIME, read)
        .await
        .unwrap_or_else(|_| Err(ApiError::too_slow()))
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn check(guard: &Guard, path: &str, headers: &[(&'static str, &str)]) -> Option<u16> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(*name, HeaderValue::from_str(value).unwrap());
        }
        let checked = guard.check(&path.parse().unwrap(), &map);
        checked.err().map(|error| error.status.as_u16())
    }

    #[test]
    fn hosts_and_origins_are_checked() {
        let guard = Guard {
            keys: Keys::none(),
            is_loopback: true,
        };
        for host in [
            "localhost:8080",
            "127.0.0.1",
            "127.0.0.1:80",
            "[::1]:8080",
            "LOCALHOST",
        ] {
            assert_eq!(check(&guard, "/health", &[("host", host)]), None, "{host}");
        }
        for host in [
            "evil.example",
            "localhost.evil.example:8080",
            "10.0.0.1",
            "",
        ] {
            assert_eq!(
                check(&guard, "/health", &[("host", host)]),
                Some(403),
                "{host}"
            );
        }
        assert_eq!(check(&guard, "/health", &[]), Some(403));
        let host = ("host", "localhost:8080");
        for (origin, status) in [
            ("http://localhost:8080", None),
            ("http://localhost:9999", Some(403)),
            ("https://evil.example", Some(403)),
            ("null", Some(403)),
        ] {
            let headers = [host, ("origin", origin)];
            assert_eq!(check(&guard, "/v1/models", &headers), status, "{origin}");
        }
        let open = Guard {
            keys: Keys::none(),
            is_loopback: false,
        };
        assert_eq!(check(&open, "/health", &[("host", "any.example")]), None);
    }

    #[test]
    fn keys_are_asked_for() {
        let guard = Guard {
            keys: Keys::of("# mine\none\n\n two \n"),
            is_loopback: false,
        };
        for header in [
            ("authorization", "Bearer one"),
            ("authorization", "bearer two"),
            ("x-api-key", "two"),
        ] {
            assert_eq!(check(&guard, "/v1/models", &[header]), None, "{header:?}");
        }
        for header in [
            ("authorization", "Bearer three"),
            ("authorization", "one"),
            ("x-api-key", "# mine"),
            ("x-other", "one"),
        ] {
            assert_eq!(
                check(&guard, "/v1/models", &[header]),
                Some(401),
                "{header:?}"
            );
        }
        assert_eq!(check(&guard, "/health", &[]), None);
    }
}
