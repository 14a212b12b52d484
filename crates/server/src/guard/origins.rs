//! Origins of pages that may ask this server (CORS).

use std::convert::Infallible;
use std::net::IpAddr;
use std::str::FromStr;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use axum::response::Response;

/// Pages of other origins that may ask the server; none by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origins {
    all: bool,
    /// Pages of this machine's servers.
    local: bool,
    listed: Vec<String>,
}

impl FromStr for Origins {
    type Err = Infallible;

    /// Origins with commas between them: `*` for all, `localhost` for this machine's.
    fn from_str(text: &str) -> Result<Self, Infallible> {
        let mut origins = Self::default();
        for origin in text.split(',').map(str::trim).filter(|it| !it.is_empty()) {
            match origin {
                "*" => origins.all = true,
                "localhost" => origins.local = true,
                origin => origins.listed.push(origin.trim_end_matches('/').to_owned()),
            }
        }
        Ok(origins)
    }
}

impl Origins {
    /// Returns whether pages of this origin may ask.
    pub(crate) fn allow(&self, origin: &str) -> bool {
        self.all
            || (self.local && is_local(origin))
            || self.listed.iter().any(|listed| listed == origin)
    }

    /// The answer to a browser that asks whether a page may send a request; `None` if it is another request. Without
    /// the headers the browser sends none.
    pub(crate) fn preflight(&self, method: &Method, headers: &HeaderMap) -> Option<Response> {
        let is_one = method == Method::OPTIONS
            && headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
            && *self != Self::default();
        is_one.then(|| {
            let mut response = Response::new(Body::empty());
            self.mark(headers, &mut response);
            if response
                .headers()
                .contains_key(header::ACCESS_CONTROL_ALLOW_ORIGIN)
            {
                for (name, value) in [
                    (
                        header::ACCESS_CONTROL_ALLOW_METHODS,
                        "GET, POST, DELETE, OPTIONS",
                    ),
                    (header::ACCESS_CONTROL_ALLOW_HEADERS, "*"),
                ] {
                    set(&mut response, name, HeaderValue::from_static(value));
                }
            }
            response
        })
    }

    /// Lets the page that asked read the response, if it may.
    pub(crate) fn mark(&self, headers: &HeaderMap, response: &mut Response) {
        let Some(origin) = headers.get(header::ORIGIN) else {
            return;
        };
        if !origin.to_str().is_ok_and(|origin| self.allow(origin)) {
            return;
        }
        set(
            response,
            header::ACCESS_CONTROL_ALLOW_ORIGIN,
            origin.clone(),
        );
        for (name, value) in [
            (header::ACCESS_CONTROL_ALLOW_CREDENTIALS, "true"),
            (header::VARY, "Origin"),
        ] {
            set(response, name, HeaderValue::from_static(value));
        }
    }
}

fn set(response: &mut Response, name: HeaderName, value: HeaderValue) {
    response.headers_mut().insert(name, value);
}

/// Is it the origin of a server on this machine?
fn is_local(origin: &str) -> bool {
    let host = origin
        .strip_prefix("http://")
        .or_else(|| origin.strip_prefix("https://"));
    host.is_some_and(is_loopback)
}

/// Is it a name of this machine, with or without a port?
pub(crate) fn is_loopback(host: &str) -> bool {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_listed() {
        let origins: Origins = "localhost, https://a.example/".parse().unwrap();
        for (origin, allowed) in [
            ("http://localhost", true),
            ("http://localhost:8080", true),
            ("https://127.0.0.1:3000", true),
            ("http://[::1]:3000", true),
            ("https://a.example", true),
            ("http://a.example", false),
            ("https://b.a.example", false),
            ("http://localhost.evil.example", false),
            ("http://notlocalhost", false),
            ("localhost", false),
            ("null", false),
            ("", false),
        ] {
            assert_eq!(origins.allow(origin), allowed, "{origin}");
        }
        assert!("*".parse::<Origins>().unwrap().allow("http://any.example"));
        assert!(!Origins::default().allow("http://localhost"));
    }
}
