//! `redlock dash`: a web page that shows the current locks and queues.
//!
//! 1. `http`: requests and responses. `guard`: decides which requests are served.
//! 2. `api`: the requests of the page. `page/`: the page, with its script and its style.
//! 3. This module: the connections. Each connection has its own thread, so a slow client does not delay other clients.

mod api;
mod guard;
mod http;

use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use std::{fs, io, thread};

use redlock_sync::Redlock;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use self::api::Api;
use self::guard::Guard;
use self::http::{Request, Response};
use crate::args::Dash;
use crate::ending::{Answer, Failure, OS, USAGE};
use crate::signals::not_ignored;
use crate::stderr::say;
use crate::watch::Watch;

/// The pause between two snapshots while a page is open.
const EVERY: Duration = Duration::from_secs(1);
/// The largest number of open connections. Further connections are closed.
const MOST: usize = 64;
/// The shortest permitted token. A shorter one could be guessed.
const SHORTEST: usize = 16;

/// The headers of all responses: the page loads only from this program, no other site can frame it, and nothing is
/// cached.
const POLICY: [(&str, &str); 6] = [
    (
        "Content-Security-Policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'",
    ),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Cache-Control", "no-store"),
];

pub(crate) fn dash(locks: &Redlock, order: &Dash) -> Result<Answer, Failure> {
    let token = order.token_file.as_ref().map(|file| token(file)).transpose()?;
    let bad = |why: String| Failure::new(USAGE, format!("--listen {}: {why}", order.listen));
    let addresses: Vec<_> = order.listen.to_socket_addrs().map_err(|error| bad(error.to_string()))?.collect();
    if token.is_none() && !addresses.iter().all(|address| address.ip().is_loopback()) {
        return Err(bad("other machines can reach it, so it needs --token-file".to_owned()));
    }
    let mut signals = Signals::new(not_ignored([SIGHUP, SIGINT, SIGTERM]))?;
    let listener =
        TcpListener::bind(&*addresses).map_err(|error| Failure::new(OS, format!("{}: {error}", order.listen)))?;
    let watch = Watch::start(locks, &order.pattern, EVERY)?;
    let random = |error: getrandom::Error| Failure::new(OS, error.to_string());
    let guard = Guard::new(token, listener.local_addr()?.port()).map_err(random)?;
    let api = Arc::new(Api::new(locks, watch, guard, order.allow_release).map_err(random)?);
    say(&format!("http://{}/", listener.local_addr()?));
    thread::Builder::new().name("accept".to_owned()).spawn(move || accept(&listener, &api))?;
    signals.forever().next();
    Ok(Answer::well(String::new()))
}

fn token(file: &str) -> Result<String, Failure> {
    let text =
        fs::read_to_string(file).map_err(|error| Failure::new(USAGE, format!("--token-file {file}: {error}")))?;
    let token = text.trim();
    if token.len() < SHORTEST || token.contains(char::is_control) {
        let rule = format!("a token has {SHORTEST} characters or more, on one line");
        return Err(Failure::new(USAGE, format!("--token-file {file}: {rule}")));
    }
    Ok(token.to_owned())
}

fn accept(listener: &TcpListener, api: &Arc<Api>) {
    let open = Arc::new(AtomicUsize::new(0));
    for stream in listener.incoming() {
        let Ok(mut stream) = stream else {
            // Usually the limit of open files was reached.
            thread::sleep(Duration::from_millis(50));
            continue;
        };
        if open.load(Ordering::Relaxed) >= MOST {
            continue;
        }
        let (api, one) = (Arc::clone(api), Open::new(&open));
        let serve = move || {
            _ = serve(&mut stream, &api);
            drop(one);
        };
        // If no thread can be started, the connection is closed.
        _ = thread::Builder::new().name("request".to_owned()).spawn(serve);
    }
}

/// Counts an open connection until it is dropped.
struct Open(Arc<AtomicUsize>);

impl Open {
    fn new(open: &Arc<AtomicUsize>) -> Open {
        open.fetch_add(1, Ordering::Relaxed);
        Open(Arc::clone(open))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn serve(stream: &mut TcpStream, api: &Api) -> io::Result<()> {
    let (response, with_body) = match http::read(stream) {
        Ok(request) => (respond(&request, api), request.method != "HEAD"),
        Err(Some(status)) => (Response::new(status, "", Vec::new()), true),
        Err(None) => return Ok(()),
    };
    let response = POLICY.iter().fold(response, |response, (name, value)| response.with(name, (*value).to_owned()));
    http::write(stream, &response, with_body)
}

fn respond(request: &Request, api: &Api) -> Response {
    let file = |kind, text: &'static str| Ok(Response::new("200 OK", kind, text.as_bytes()));
    let answer = api.guard.check(request).and_then(|()| match (request.method.as_str(), request.path.as_str()) {
        ("GET" | "HEAD", "/") => file("text/html; charset=utf-8", include_str!("page/index.html")),
        ("GET" | "HEAD", "/app.js") => file("text/javascript; charset=utf-8", include_str!("page/app.js")),
        ("GET" | "HEAD", "/style.css") => file("text/css; charset=utf-8", include_str!("page/style.css")),
        _ => api.answer(request),
    });
    answer.unwrap_or_else(|refused| refused)
}
