//! A blocking HTTP server with annotated handlers. It uses threads and no runtime, and any number of instances can run.
//!
//! ```text
//! cargo run --example http                          # runs two instances, sends them some requests, and ends
//! cargo run --example http -- 127.0.0.1:8080        # runs one instance until Ctrl-C. Try:
//!     curl -X POST http://127.0.0.1:8080/tickets/opera
//!     curl -X POST http://127.0.0.1:8080/close/opera
//! ```
//!
//! The server sells numbered tickets. All instances read and write the last number in one file. Without the lock, some
//! tickets would be sold twice. The program exits with 1 if that happens.
#![allow(clippy::disallowed_methods, reason = "the work to be done under the lock is to sleep")]

use std::collections::BTreeSet;
use std::error::Error;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;
use std::{env, fs, io, thread};

use redlock_examples::{Redis, TempDir, Worker, work};
use redlock_sync::{Redlock, distributed_lock};
use tiny_http::{Header, Method, Request, Response, Server};

/// The number of threads of an instance. Each thread handles one request at a time.
const THREADS: usize = 4;

/// `POST /tickets/EVENT`: for each event, one request at a time in all instances. Other requests wait for a limited
/// time.
#[distributed_lock("tickets:<event>", wait = "10s", lease = "5s")]
fn sell_ticket(dir: &Path, event: &str) -> Result<String, Refusal> {
    let file = dir.join(event);
    let last: u32 = fs::read_to_string(&file).ok().and_then(|text| text.parse().ok()).unwrap_or(0);
    thread::sleep(Duration::from_millis(10)); // This sleep stands for a call to a bank.
    fs::write(&file, (last + 1).to_string())?;
    Ok(format!("ticket {}", last + 1))
}

/// `POST /close/EVENT`: fails at once if another request is doing the same.
#[distributed_lock("close:<event>", wait = "0s", lease = "5s")]
fn close(dir: &Path, event: &str) -> Result<String, Refusal> {
    thread::sleep(Duration::from_secs(1)); // This sleep stands for the count of the money.
    let last = fs::read_to_string(dir.join(event)).unwrap_or_default();
    Ok(format!("closed after ticket {last}"))
}

/// The usual time for which an instance holds one of these locks, in seconds, rounded up.
const USUAL_HOLD: u32 = 1;

/// A response that refuses a request.
struct Refusal {
    status: u16,
    message: String,
    /// The value of `Retry-After`, in seconds.
    retry_after: Option<u32>,
}

impl Refusal {
    fn new(status: u16, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), retry_after: None }
    }
}

/// `#[distributed_lock]` needs this conversion. It maps the kinds of errors to different status codes.
impl From<redlock_sync::Error> for Refusal {
    fn from(error: redlock_sync::Error) -> Self {
        match &error {
            // The response does not use `expires_in`, which is the time after which the lock of a dead holder ends. A
            // live holder usually releases the lock much earlier.
            redlock_sync::Error::Busy { .. } => {
                Self { retry_after: Some(USUAL_HOLD), ..Self::new(423, error.to_string()) }
            }
            // The Redis server does not answer.
            redlock_sync::Error::Unavailable { .. } => Self::new(503, error.to_string()),
            // For `Lost`, another process may have done the work as well.
            _ => Self::new(500, error.to_string()),
        }
    }
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Self {
        Self::new(500, error.to_string())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    if let Some(args) = work() {
        let [url, dir] = &args[..] else { return Err("arguments are missing".into()) };
        return serve("127.0.0.1:0", url, Path::new(dir));
    }
    let (redis, dir) = (Redis::any(), TempDir::new()?);
    println!("{}", redis.describe());
    match env::args().nth(1) {
        Some(address) => serve(&address, redis.url(), dir.path()),
        None => try_it(redis.url(), dir.path()),
    }
}

/// Runs one instance.
fn serve(address: &str, redis: &str, dir: &Path) -> Result<(), Box<dyn Error>> {
    Redlock::set_default(Redlock::builder().node(redis).key_prefix("http:").build()?)?;
    let server = Server::http(address).map_err(|error| error.to_string())?;
    println!("{}", server.server_addr());
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| server.incoming_requests().for_each(|request| answer(request, dir)));
        }
    });
    Ok(())
}

fn answer(request: Request, dir: &Path) {
    let outcome = route(request.method(), request.url(), dir);
    let (status, text, retry_after) = match outcome {
        Ok(text) => (200, text, None),
        Err(Refusal { status, message, retry_after }) => (status, message, retry_after),
    };
    let mut response = Response::from_string(text + "\n").with_status_code(status);
    if let Some(Ok(header)) = retry_after.map(|seconds| Header::from_bytes("Retry-After", seconds.to_string())) {
        response.add_header(header);
    }
    _ = request.respond(response); // The client may have closed the connection.
}

fn route(method: &Method, path: &str, dir: &Path) -> Result<String, Refusal> {
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    match (method, &parts[..]) {
        (_, [_, event]) if !event.chars().all(char::is_alphanumeric) => Err(Refusal::new(400, "no such event")),
        (Method::Post, ["tickets", event]) => sell_ticket(dir, event),
        (Method::Post, ["close", event]) => close(dir, event),
        _ => Err(Refusal::new(404, "try POST /tickets/EVENT or POST /close/EVENT")),
    }
}

/// Runs two instances and clients of both.
fn try_it(redis: &str, dir: &Path) -> Result<(), Box<dyn Error>> {
    let mut addresses = Vec::new();
    let mut instances = Vec::new(); // The instances end when this variable is dropped.
    for _ in 0..2 {
        let mut instance = Worker::start([redis, &dir.display().to_string()])?;
        let address = instance.lines()?.next().ok_or("an instance ended early")??;
        println!("process {} listens on {address}", instance.id());
        addresses.push(address);
        instances.push(instance);
    }
    let clients = 24;
    println!("\n{clients} requests at once to POST /tickets/opera, every other one to the other instance:");
    let replies = post_to_each(addresses.iter().cycle().take(clients), "/tickets/opera")?;
    let tickets: BTreeSet<&str> = replies.iter().map(|(_, text)| text.as_str()).collect();
    println!("{}", replies.iter().map(|(_, text)| text.trim_start_matches("ticket ")).collect::<Vec<_>>().join(" "));

    println!("\nTwo requests at once to POST /close/opera, one to each instance:");
    let closes = post_to_each(addresses.iter(), "/close/opera")?;
    for (status, text) in &closes {
        println!("{status} {text}");
    }

    let mut statuses: Vec<u16> = closes.iter().map(|(status, _)| *status).collect();
    statuses.sort_unstable();
    if tickets.len() != clients || replies.iter().any(|(status, _)| *status != 200) || statuses != [200, 423] {
        return Err("BROKEN: that is not what the locks are for".into());
    }
    println!("\nOK: {} tickets, all different; one of two closed", tickets.len());
    Ok(())
}

/// Runs one client for each address, all at the same time.
fn post_to_each<'a>(
    addresses: impl Iterator<Item = &'a String>,
    path: &str,
) -> Result<Vec<(u16, String)>, Box<dyn Error>> {
    thread::scope(|scope| {
        let clients: Vec<_> = addresses.map(|address| scope.spawn(move || post(address, path))).collect();
        let replies =
            clients.into_iter().map(|client| client.join().map_err(|_| "a client panicked")?.map_err(Box::from));
        replies.collect()
    })
}

/// Sends a minimal HTTP request. Returns the status and the body of the reply.
fn post(address: &str, path: &str) -> io::Result<(u16, String)> {
    let mut stream = TcpStream::connect(address)?;
    write!(stream, "POST {path} HTTP/1.0\r\nHost: {address}\r\nContent-Length: 0\r\n\r\n")?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply)?;
    let status = reply.split(' ').nth(1).and_then(|status| status.parse().ok());
    let body = reply.split_once("\r\n\r\n").map_or("", |(_, body)| body.trim());
    status.map(|status| (status, body.to_owned())).ok_or_else(|| io::Error::other("no HTTP reply"))
}
