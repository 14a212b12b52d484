//! Checks of a request before it is read: its host, its origin, its key, its size.

pub(crate) mod origins;

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, Uri, header};
use futures_util::StreamExt;
use tokio::time::timeout;

use crate::connections::Limits;
use crate::error::ApiError;
use crate::page;
use origins::{Origins, is_loopback};

/// Paths that need no key, besides the page's files.
const PUBLIC: [&str; 3] = ["/", "/health", "/v1/health"];

/// The keys of an API.
pub struct Keys {
    /// Hashes of the keys: comparing them gives no time to learn a key from.
    salts: HashSet<u64>,
    state: RandomState,
    /// The file that they came from.
    path: Option<PathBuf>,
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
        let keys = Self::of(&std::fs::read_to_string(path)?);
        Ok(Self {
            path: Some(path.to_owned()),
            ..keys
        })
    }

    /// Reads the file again, if there is one. A key that stays keeps its share of the cache.
    ///
    /// # Errors
    /// Fails if the file cannot be read, or if it has no key: a server with keys is not opened to all. The keys are
    /// the same then.
    pub fn read_again(&mut self) -> io::Result<()> {
        let Some(path) = &self.path else {
            return Ok(());
        };
        let salts = salts(&std::fs::read_to_string(path)?, &self.state);
        if salts.is_empty() {
            return Err(io::Error::other("the file has no key"));
        }
        self.salts = salts;
        Ok(())
    }

    /// The keys of a text, one a line.
    pub fn of(text: &str) -> Self {
        let state = RandomState::new();
        Self {
            salts: salts(text, &state),
            state,
            path: None,
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

/// Hashes of the keys of a text.
fn salts(text: &str, state: &RandomState) -> HashSet<u64> {
    let lines = text.lines().map(str::trim);
    let keys = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    keys.map(|key| state.hash_one(key)).collect()
}

/// Checks of hosts, origins and keys.
pub(crate) struct Guard {
    pub(crate) keys: RwLock<Keys>,
    /// Does only this machine reach the server?
    pub(crate) is_loopback: bool,
    /// Pages of other origins that may ask.
    pub(crate) origins: Origins,
}

impl Guard {
    /// Checks a request before its body is read. Returns the salt of its cache.
    ///
    /// # Errors
    /// Fails if it comes from another page, by a foreign name, or without a key.
    pub(crate) fn check(&self, uri: &Uri, headers: &HeaderMap) -> Result<u64, ApiError> {
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
        let host = text(header::HOST).or_else(|| uri.authority().map(|it| it.as_str()));
        if self.is_loopback && !host.is_some_and(is_loopback) {
            let problem =
                "the Host header is not this machine's; a page of another name may be behind it";
            return Err(ApiError::forbidden(problem));
        }
        if let Some(origin) = text(header::ORIGIN)
            && origin.split_once("://").map(|(_, rest)| rest) != host
            && !self.origins.allow(origin)
        {
            let problem = "the request comes from a page of another origin";
            return Err(ApiError::forbidden(problem));
        }
        let path = uri.path();
        match PUBLIC.contains(&path) || path.starts_with(page::FOLDER) {
            true => Ok(0),
            false => {
                let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner);
                keys.salt(headers)
            }
        }
    }

    /// Reads the file of keys again.
    #[cfg(unix)]
    pub(crate) fn reload(&self) {
        let mut keys = self.keys.write().unwrap_or_else(PoisonError::into_inner);
        match keys.read_again() {
            Ok(()) => tracing::info!("the keys were read again"),
            Err(error) => tracing::error!("the keys stay as they were: {error}"),
        }
    }
}

/// Reads a body.
///
/// # Errors
/// Fails if it is too large or too slow, or breaks off.
pub(crate) async fn body(body: Body, limits: &Limits) -> Result<Bytes, ApiError> {
    let read = async {
        let (mut all, mut pieces) = (Vec::new(), body.into_data_stream());
        while let Some(piece) = pieces.next().await {
            let piece = piece.map_err(|_| ApiError::bad("the body broke off"))?;
            if all.len() + piece.len() > limits.body_bytes {
                return Err(ApiError::too_large(limits.body_bytes));
            }
            all.extend_from_slice(&piece);
        }
        Ok(all.into())
    };
    timeout(limits.body_time, read)
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
            keys: Keys::none().into(),
            is_loopback: true,
            origins: Origins::default(),
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
            keys: Keys::none().into(),
            is_loopback: false,
            origins: Origins::default(),
        };
        assert_eq!(check(&open, "/health", &[("host", "any.example")]), None);
    }

    #[test]
    fn keys_are_asked_for() {
        let guard = Guard {
            keys: Keys::of("# mine\none\n\n two \n").into(),
            is_loopback: false,
            origins: Origins::default(),
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

    #[test]
    fn keys_are_read_again() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "one\ntwo").unwrap();
        let guard = Guard {
            keys: Keys::read(file.path()).unwrap().into(),
            is_loopback: false,
            origins: Origins::default(),
        };
        let status = |key: &str| check(&guard, "/v1/models", &[("x-api-key", key)]);
        let salt = |key: &str| {
            let headers =
                HeaderMap::from_iter([("x-api-key".parse().unwrap(), key.parse().unwrap())]);
            guard
                .check(&"/v1/models".parse().unwrap(), &headers)
                .unwrap()
        };
        let before = salt("two");
        std::fs::write(file.path(), "two\nthree").unwrap();
        guard.reload();
        assert_eq!(["one", "two", "three"].map(status), [Some(401), None, None]);
        assert_eq!(salt("two"), before);
        // A file without a key opens nothing.
        for text in ["", "# none"] {
            std::fs::write(file.path(), text).unwrap();
            guard.reload();
            assert_eq!(["", "one", "two"].map(status), [Some(401), Some(401), None]);
        }
        drop(file);
        guard.reload();
        assert_eq!(status("three"), None);
    }
}
