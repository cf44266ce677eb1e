//! HTTP/1.1, to the extent that the page needs it. Each connection has one request. A slow client is disconnected.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The time within which a request must arrive.
const READ: Duration = Duration::from_secs(5);
/// The time after which the connection is closed if the client reads nothing of a response.
const STALLED: Duration = Duration::from_secs(5);
const WRITE: Duration = Duration::from_secs(60);
const MOST_HEAD: usize = 16 * 1024;
const MOST_BODY: usize = 64 * 1024;
const MOST_HEADERS: usize = 64;

pub(super) struct Request {
    pub(super) method: String,
    pub(super) path: String,
    pub(super) query: String,
    headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
}

impl Request {
    /// The value of a header that occurs exactly once.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let mut same = self.headers.iter().filter(|(known, _)| known.eq_ignore_ascii_case(name));
        let (_, value) = same.next()?;
        same.next().is_none().then_some(value)
    }

    /// The value of a parameter of the query.
    pub(super) fn parameter(&self, name: &str) -> Option<String> {
        let mut pairs = self.query.split('&').filter_map(|pair| pair.split_once('='));
        decoded(pairs.find(|(known, _)| *known == name)?.1)
    }
}

/// Decodes a parameter: `%41` is `A`, and `+` is a space.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let mut digit = || rest.next().and_then(|digit| char::from(digit).to_digit(16));
                u8::try_from(digit()? * 16 + digit()?).ok()?
            }
            other => other,
        });
    }
    String::from_utf8(bytes).ok()
}

pub(super) struct Response {
    pub(super) status: &'static str,
    pub(super) kind: &'static str,
    pub(super) headers: Vec<(&'static str, String)>,
    pub(super) body: Arc<[u8]>,
}

impl Response {
    pub(super) fn new(status: &'static str, kind: &'static str, body: impl Into<Arc<[u8]>>) -> Response {
        Response { status, kind, headers: Vec::new(), body: body.into() }
    }

    pub(super) fn with(mut self, name: &'static str, value: String) -> Response {
        self.headers.push((name, value));
        self
    }
}

/// The response if there is no valid request; `None` if the client is gone or too slow.
type NoRequest = Option<&'static str>;

pub(super) fn read(stream: &mut TcpStream) -> Result<Request, NoRequest> {
    let by = Instant::now() + READ;
    let mut bytes = Vec::new();
    let (mut request, length, head) = loop {
        more(stream, by, &mut bytes)?;
        if let Some(found) = parsed(&bytes)? {
            break found;
        }
        if bytes.len() > MOST_HEAD {
            return Err(Some("431 Request Header Fields Too Large"));
        }
    };
    if length > MOST_BODY {
        return Err(Some("413 Content Too Large"));
    }
    while bytes.len() < head + length {
        more(stream, by, &mut bytes)?;
    }
    request.body = bytes.get(head..head + length).unwrap_or_default().to_vec();
    Ok(request)
}

fn more(stream: &mut TcpStream, by: Instant, bytes: &mut Vec<u8>) -> Result<(), NoRequest> {
    let left = by.saturating_duration_since(Instant::now());
    let mut part = [0; 4096];
    let is_set = !left.is_zero() && stream.set_read_timeout(Some(left)).is_ok();
    match is_set.then(|| stream.read(&mut part)) {
        Some(Ok(read @ 1..)) => {
            bytes.extend_from_slice(part.get(..read).unwrap_or_default());
            Ok(())
        }
        _ => Err(None),
    }
}

/// Parses a request. Returns it with the length of its body and the position of the body. `None` says that more bytes
/// are needed.
fn parsed(bytes: &[u8]) -> Result<Option<(Request, usize, usize)>, NoRequest> {
    const BAD: NoRequest = Some("400 Bad Request");
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut head = httparse::Request::new(&mut headers);
    let httparse::Status::Complete(end) = head.parse(bytes).map_err(|_| BAD)? else { return Ok(None) };
    let (path, query) = head.path.unwrap_or_default().split_once('?').unwrap_or((head.path.unwrap_or_default(), ""));
    let (path, query) = (path.to_owned(), query.to_owned());
    let method = head.method.unwrap_or_default().to_owned();
    let text = |header: &httparse::Header<'_>| {
        (header.name.to_owned(), String::from_utf8_lossy(header.value).trim().to_owned())
    };
    let headers: Vec<_> = head.headers.iter().map(text).collect();
    let request = Request { method, path, query, headers, body: Vec::new() };
    let has = |name: &str| request.headers.iter().any(|(known, _)| known.eq_ignore_ascii_case(name));
    if has("transfer-encoding") {
        return Err(Some("411 Length Required"));
    }
    let length = match request.header("content-length") {
        Some(length) => length.parse().map_err(|_| BAD)?,
        None if has("content-length") => return Err(BAD),
        None => 0,
    };
    Ok(Some((request, length, end)))
}

pub(super) fn write(stream: &mut TcpStream, response: &Response, with_body: bool) -> io::Result<()> {
    let Response { status, kind, headers, body } = response;
    let length = ("Content-Length", body.len().to_string());
    let kind = (!kind.is_empty()).then(|| ("Content-Type", (*kind).to_owned()));
    let all = [("Connection", "close".to_owned()), length].into_iter().chain(kind).chain(headers.iter().cloned());
    let lines: Vec<String> = all.map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let head = format!("HTTP/1.1 {status}\r\n{}", lines.concat());
    stream.set_write_timeout(Some(STALLED))?;
    stream.write_all((head + "\r\n").as_bytes())?;
    let by = Instant::now() + WRITE;
    for part in if with_body { body.chunks(64 * 1024) } else { [].chunks(1) } {
        if Instant::now() > by {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.write_all(part)?;
    }
    stream.shutdown(std::net::Shutdown::Write)?;
    // Reads further input. Otherwise, the system would discard the unread part of the response.
    stream.set_read_timeout(Some(Duration::from_millis(200)))?;
    let mut rest = [0; 4096];
    _ = stream.read(&mut rest);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_whole() {
        let head = b"POST /api/release?queue=a%20b%2Bc+d&x=1 HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n";
        assert!(matches!(parsed(&head[..head.len() - 1]), Ok(None)));
        let (request, length, end) = parsed(head).ok().flatten().unwrap();
        assert_eq!(
            (request.method.as_str(), request.path.as_str(), length, end),
            ("POST", "/api/release", 3, head.len())
        );
        assert_eq!(request.parameter("queue").unwrap(), "a b+c d");
        assert_eq!((request.header("host"), request.parameter("y")), (Some("a"), None));
        assert_eq!((decoded("%4"), decoded("%zz"), decoded("%ff")), (None, None, None));
    }

    #[test]
    fn what_could_be_read_in_two_ways_is_refused() {
        for headers in
            ["Content-Length: 3\r\nContent-Length: 4", "Transfer-Encoding: chunked", "Content-Length: -1", "a b: c"]
        {
            assert!(parsed(format!("POST / HTTP/1.1\r\n{headers}\r\n\r\n").as_bytes()).is_err(), "{headers}");
        }
        let (request, ..) = parsed(b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n").ok().flatten().unwrap();
        assert_eq!(request.header("host"), None);
    }
}
