//! A running `redlock dash`, and requests to it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use redlock_tests::{Server, find};
use serde_json::Value;

/// The longest time for an event that usually comes at once.
pub(crate) const LONG: Duration = Duration::from_secs(30);

pub(crate) fn client(server: &Server) -> redlock_sync::Redlock {
    redlock_tests::open(server.url())
}

pub(crate) fn command(servers: &[Server], args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_redlock"));
    for server in servers {
        command.args(["--node", &server.url()]);
    }
    for name in find::OF_TESTS {
        command.env_remove(name);
    }
    command.arg("dash").args(args).env("REDLOCK_NODE_TIMEOUT", "900ms");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    command
}

/// A running `redlock dash`. It ends with the test.
pub(crate) struct Dash {
    child: Child,
    /// The address that it listens on: host and port.
    pub(crate) address: String,
}

pub(crate) struct Answer {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let is_it = |known: &str| known.eq_ignore_ascii_case(name);
        self.head
            .lines()
            .filter_map(|line| line.split_once(": "))
            .find(|(known, _)| is_it(known))
            .map(|(_, value)| value)
    }
}

impl Dash {
    pub(crate) fn start(server: &Server, args: &[&str]) -> Dash {
        Dash::with(std::slice::from_ref(server), args)
    }

    pub(crate) fn with(servers: &[Server], args: &[&str]) -> Dash {
        let mut child = command(servers, &[&["--listen", "127.0.0.1:0"], args].concat()).spawn().unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        // The thread reads the later log lines, so that the pipe is never full.
        thread::spawn(move || said.lines().for_each(drop));
        let address = line.trim().strip_prefix("redlock: http://").unwrap_or_else(|| panic!("{line}"));
        Dash { child, address: address.trim_end_matches('/').to_owned() }
    }

    pub(crate) fn origin(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn raw(&self, bytes: &[u8]) -> Answer {
        self.try_raw(bytes).unwrap()
    }

    fn try_raw(&self, bytes: &[u8]) -> Option<Answer> {
        let mut stream = TcpStream::connect(&self.address).ok()?;
        // The server may close the connection before all bytes are sent.
        _ = stream.write_all(bytes);
        let mut said = Vec::new();
        _ = stream.read_to_end(&mut said);
        let said = String::from_utf8(said).unwrap();
        let (head, body) = said.split_once("\r\n\r\n")?;
        let status = head.split(' ').nth(1)?.parse().ok()?;
        Some(Answer { status, head: head.to_owned(), body: body.to_owned() })
    }

    fn request(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Vec<u8> {
        let lines: Vec<String> = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let (host, length, headers) = (&self.address, body.len(), lines.concat());
        format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {length}\r\n{headers}\r\n{body}")
            .into_bytes()
    }

    pub(crate) fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        self.raw(&self.request(method, path, headers, body))
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, &[], "")
    }

    pub(crate) fn try_get(&self, path: &str) -> Option<Answer> {
        self.try_raw(&self.request("GET", path, &[], ""))
    }

    /// Sends a request, and reads nothing.
    pub(crate) fn begin(&self, path: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        // The server closes the connection if it has too many.
        _ = stream.write_all(&self.request("GET", path, &[], ""));
        stream
    }

    /// The memory of the process, in bytes.
    pub(crate) fn memory(&self) -> usize {
        let ps = Command::new("ps").args(["-o", "rss=", "-p", &self.child.id().to_string()]).output().unwrap();
        String::from_utf8(ps.stdout).unwrap().trim().parse::<usize>().unwrap() * 1024
    }

    /// Sends a request in the way of the page.
    pub(crate) fn post(&self, path: &str, body: &Value) -> Answer {
        self.ask("POST", path, &[("Content-Type", "application/json"), ("Origin", &self.origin())], &body.to_string())
    }

    pub(crate) fn snapshot(&self) -> Value {
        let told: Value = serde_json::from_str(&self.get("/api/snapshot").body).unwrap();
        told["snapshot"].clone()
    }
}

impl Drop for Dash {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}
