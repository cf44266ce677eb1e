//! HTTP/1.1, to the extent that the page needs it. Each connection has one request. A slow client is disconnected.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The time within which a request must arrive.
const READ: Duration = Duration::from_secs(5);
/// The time within which a client must have read the whole response. The page gives up after as long. Without a bound,
/// slow clients could keep the bodies of many snapshots in memory.
const WRITE: Duration = Duration::from_secs(10);
const MOST_HEAD: usize = 16 * 1024;
const MOST_BODY: usize = 64 * 1024;
const MOST_HEADERS: usize = 64;
/// The headers that are read. Each may occur once: a proxy and this program could read different ones of two.
const READ_HEADERS: [&str; 9] = [
    "host",
    "origin",
    "sec-fetch-site",
    "authorization",
    "cookie",
    "content-type",
    "content-length",
    "transfer-encoding",
    "if-none-match",
];

pub(super) struct Request {
    pub(super) method: String,
    pub(super) path: String,
    pub(super) query: String,
    headers: Vec<(&'static str, String)>,
    pub(super) body: Vec<u8>,
}

impl Request {
    /// The value of a header that is one of [`READ_HEADERS`], in lower case.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str())
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
    /// All readers of a snapshot share it.
    pub(super) body: Arc<[u8]>,
    /// The end of the body, which each response has for itself.
    pub(super) tail: String,
}

impl Response {
    pub(super) fn new(status: &'static str, kind: &'static str, body: impl Into<Arc<[u8]>>) -> Response {
        Response { status, kind, headers: Vec::new(), body: body.into(), tail: String::new() }
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
    let mut headers: Vec<(&str, String)> = Vec::new();
    for header in &*head.headers {
        let Some(name) = READ_HEADERS.into_iter().find(|name| name.eq_ignore_ascii_case(header.name)) else { continue };
        if headers.iter().any(|(known, _)| *known == name) {
            return Err(BAD);
        }
        headers.push((name, String::from_utf8_lossy(header.value).trim_matches([' ', '\t']).to_owned()));
    }
    let request = Request { method, path, query, headers, body: Vec::new() };
    if request.header("transfer-encoding").is_some() {
        return Err(Some("411 Length Required"));
    }
    let length = request.header("content-length").unwrap_or("0");
    // `parse` would take a sign too.
    let length = length.parse().ok().filter(|_| length.bytes().all(|byte| byte.is_ascii_digit())).ok_or(BAD)?;
    Ok(Some((request, length, end)))
}

pub(super) fn write(stream: &mut TcpStream, response: &Response, with_body: bool) -> io::Result<()> {
    let by = Instant::now() + WRITE;
    let Response { status, kind, headers, body, tail } = response;
    let length = ("Content-Length", (body.len() + tail.len()).to_string());
    let kind = (!kind.is_empty()).then(|| ("Content-Type", (*kind).to_owned()));
    let all = [("Connection", "close".to_owned()), length].into_iter().chain(kind).chain(headers.iter().cloned());
    let lines: Vec<String> = all.map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let head = format!("HTTP/1.1 {status}\r\n{}\r\n", lines.concat());
    let (body, tail) = if with_body { (&**body, tail.as_bytes()) } else { (&[][..], &[][..]) };
    for part in [head.as_bytes(), body, tail] {
        send(stream, part, by)?;
    }
    stream.shutdown(std::net::Shutdown::Write)?;
    // Reads further input. Otherwise, the system would discard the unread part of the response.
    stream.set_read_timeout(Some(Duration::from_millis(200)))?;
    let mut rest = [0; 4096];
    _ = stream.read(&mut rest);
    Ok(())
}

/// Writes all bytes before the deadline, however few of them the client takes at a time.
fn send(stream: &mut TcpStream, mut bytes: &[u8], by: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        let left = by.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_write_timeout(Some(left))?;
        match stream.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
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
        for headers in [
            "Content-Length: 3\r\nContent-Length: 4",
            "Content-Length: 3\r\ncontent-length: 3",
            "Transfer-Encoding: chunked",
            "Content-Length: -1",
            "Content-Length: +3",
            "Content-Length: 3, 3",
            "Content-Length: 0x3",
            "Content-Length:",
            "Content-Length: 99999999999999999999999",
            "a b: c",
            "Host: a\r\nHost: a",
            "Sec-Fetch-Site: cross-site\r\nsec-fetch-site: same-origin",
            "Origin: http://a\r\nOrigin: http://a",
        ] {
            assert!(parsed(format!("POST / HTTP/1.1\r\n{headers}\r\n\r\n").as_bytes()).is_err(), "{headers}");
        }
        // What a proxy may add twice is not read.
        let (request, ..) = parsed(b"GET / HTTP/1.1\r\nHost: a\r\nVia: b\r\nVia: c\r\n\r\n").ok().flatten().unwrap();
        assert_eq!((request.header("host"), request.header("via")), (Some("a"), None));
        let odd = "GET / HTTP/1.1\r\nHost: \u{3000}localhost\r\nOrigin: \t a \t\r\n\r\n";
        let (request, ..) = parsed(odd.as_bytes()).ok().flatten().unwrap();
        assert_eq!((request.header("host"), request.header("origin")), (Some("\u{3000}localhost"), Some("a")));
    }
}
