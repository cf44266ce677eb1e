//! Decides which requests are served. The page shows names of the user's data, and can release locks by force.
//!
//! 1. Without a token, `Host` must name this machine. A page of another site whose name resolves to this machine (DNS
//!    rebinding) sends its own name.
//! 2. With a token, requests for data need the token (`Authorization: Bearer`) or the cookie of a login.
//! 3. A request for data that a browser sends for a page of another site (`Sec-Fetch-Site`) is refused.
//! 4. A request that changes something is not a `GET`, has a JSON body, and has this page as its `Origin`. A program
//!    without an `Origin` has to send the token itself.

use std::hint::black_box;
use std::net::IpAddr;
use std::thread;
use std::time::Duration;

use super::http::{Request, Response};
use crate::json;

/// The delay of the response to a wrong token.
const WRONG: Duration = Duration::from_secs(1);
/// For how many seconds a browser keeps the cookie of a login: 12 hours.
const LOGIN_LASTS: u32 = 12 * 60 * 60;
/// The paths without data.
const OPEN: [&str; 4] = ["/", "/app.js", "/style.css", "/api/login"];

pub(super) struct Guard {
    /// The token that a login needs.
    token: Option<String>,
    /// The name of the cookie. It contains the port, since browsers send the cookies of all ports of a host.
    cookie_name: String,
    /// The value of the cookie. It is drawn at the start.
    session: String,
}

/// A random text of 32 hexadecimal digits.
pub(super) fn random() -> Result<String, getrandom::Error> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)?;
    Ok(format!("{:032x}", u128::from_be_bytes(bytes)))
}

pub(super) fn refused(status: &'static str, why: &str) -> Response {
    let body = json::escaped(&serde_json::json!({ "error": why }).to_string());
    Response::new(status, "application/json", body.into_bytes())
}

fn is_json(kind: &str) -> bool {
    kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"))
}

impl Guard {
    pub(super) fn new(token: Option<String>, port: u16) -> Result<Guard, getrandom::Error> {
        Ok(Guard { token, cookie_name: format!("redlock-dash-{port}"), session: random()? })
    }

    pub(super) fn check(&self, request: &Request) -> Result<(), Response> {
        let Some(host) = request.header("host") else {
            return Err(refused("400 Bad Request", "the Host header is missing"));
        };
        if self.token.is_none() && !is_this_machine(host) {
            return Err(refused(
                "421 Misdirected Request",
                "the Host header does not name this machine: start the dashboard with --token-file",
            ));
        }
        let (bearer, is_open) = (self.has_bearer(request), OPEN.contains(&request.path.as_str()));
        if self.token.is_some() && !is_open && !bearer && !self.has_cookie(request) {
            return Err(refused("401 Unauthorized", "the token is missing or wrong"));
        }
        if !is_open && !matches!(request.header("sec-fetch-site"), None | Some("same-origin" | "none")) {
            return Err(refused("403 Forbidden", "the request comes from a page of another site"));
        }
        match request.method.as_str() {
            "GET" | "HEAD" => Ok(()),
            "POST" if !request.header("content-type").is_some_and(is_json) => {
                Err(refused("415 Unsupported Media Type", "the content type must be application/json"))
            }
            "POST" => match request.header("origin") {
                Some(origin) if is_of(origin, host) => Ok(()),
                None if bearer => Ok(()),
                _ => Err(refused("403 Forbidden", "the Origin header does not name this page")),
            },
            _ => Err(refused("405 Method Not Allowed", "the method is not supported")),
        }
    }

    fn has_bearer(&self, request: &Request) -> bool {
        let given = request.header("authorization").and_then(|value| value.strip_prefix("Bearer "));
        given.is_some_and(|given| self.is_token(given))
    }

    fn has_cookie(&self, request: &Request) -> bool {
        let cookies = request.header("cookie").unwrap_or_default().split(';');
        let mut values = cookies.filter_map(|cookie| cookie.trim().strip_prefix(&self.cookie_name)?.strip_prefix('='));
        values.any(|value| is_same(value, &self.session))
    }

    /// Returns whether this is the token. For a wrong token, the call returns after a delay, so that guessing is slow.
    pub(super) fn is_token(&self, given: &str) -> bool {
        let Some(token) = &self.token else { return false };
        let is_token = is_same(given, token);
        if !is_token {
            thread::sleep(WRONG);
        }
        is_token
    }

    /// The cookie for a login by this request. Its `Origin` tells whether the browser reached the page by TLS: a server
    /// with TLS stands in front of this program.
    pub(super) fn cookie(&self, login: &Request) -> String {
        let by_tls = login.header("origin").is_some_and(|origin| origin.starts_with("https://"));
        let (name, value, secure) = (&self.cookie_name, &self.session, if by_tls { "; Secure" } else { "" });
        format!("{name}={value}; Max-Age={LOGIN_LASTS}; HttpOnly; SameSite=Strict; Path=/{secure}")
    }
}

/// Compares in constant time, so that the time does not reveal at which position the texts differ.
fn is_same(given: &str, known: &str) -> bool {
    let all = given.bytes().zip(known.bytes().chain(std::iter::repeat(0)));
    let differ = all.fold(0, |differ, (one, other)| black_box(differ | (one ^ other)));
    differ == 0 && given.len() == known.len()
}

fn is_this_machine(host: &str) -> bool {
    let name = host
        .rsplit_once(':')
        .filter(|(_, port)| port.bytes().all(|b| b.is_ascii_digit()))
        .map_or(host, |(name, _)| name);
    let name = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    name.eq_ignore_ascii_case("localhost") || name.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
}

fn is_of(origin: &str, host: &str) -> bool {
    let rest = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    rest.is_some_and(|rest| rest.eq_ignore_ascii_case(host))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_of_this_machine() {
        for host in ["localhost", "localhost:8900", "127.0.0.1:1", "127.8.8.8", "[::1]:8900", "LOCALHOST:1"] {
            assert!(is_this_machine(host), "{host}");
        }
        for host in [
            "",
            "a.example",
            "a.example:8900",
            "127.0.0.1.a.example",
            "10.0.0.1",
            "localhost:8900.a.example",
            "[[::1]]",
            "\u{3000}localhost",
        ] {
            assert!(!is_this_machine(host), "{host}");
        }
    }

    #[test]
    fn origins_and_tokens_are_compared_whole() {
        assert!(is_of("http://localhost:8900", "localhost:8900") && is_of("https://a.example", "a.example"));
        for origin in
            ["null", "", "http://localhost", "http://localhost:89001", "http://localhost:8900/", "ftp://localhost:8900"]
        {
            assert!(!is_of(origin, "localhost:8900"), "{origin}");
        }
        assert!(is_same("abc", "abc"));
        for given in ["", "ab", "abcd", "abd", "abc\0"] {
            assert!(!is_same(given, "abc"), "{given}");
        }
    }
}
