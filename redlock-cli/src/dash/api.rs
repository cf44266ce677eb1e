//! The requests of the page: the snapshot, which all viewers share, the dead tasks, and changes.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redlock_sync::{Error, Redlock};
use serde::{Deserialize, Serialize};

use super::guard::{Guard, random, refused};
use super::http::{Request, Response};
use crate::ending::{BUSY, Failure, UNAVAILABLE};
use crate::json;
use crate::look::of_holder;
use crate::watch::{Latest, Watch};

/// The longest time that a response waits for the first snapshot, or for a new one after a time without viewers.
const PATIENCE: Duration = Duration::from_secs(3);
/// The largest number of dead tasks that the page shows.
const MOST_DEAD: usize = 100;

/// The body for the page, made from one snapshot. Each response adds the age of the snapshot as a last field.
#[derive(Serialize)]
struct Shown<'a> {
    allow_release: bool,
    problem: Option<&'a str>,
    snapshot: Option<&'a redlock_sync::Snapshot>,
}

#[derive(Deserialize)]
struct Login {
    token: String,
}

#[derive(Deserialize)]
struct Release {
    name: String,
    /// The first characters of the holder's token.
    holder: String,
}

#[derive(Deserialize)]
struct Task {
    queue: String,
    id: String,
}

pub(super) struct Api {
    pub(super) locks: Redlock,
    pub(super) watch: Arc<Watch>,
    pub(super) guard: Guard,
    pub(super) may_change: bool,
    /// A random id of this process. By this id, the page tells a response of this process from one of a former process.
    start: String,
    /// The last body, and the number of its snapshot.
    body: Mutex<(u64, Arc<[u8]>)>,
    /// Locked while dead tasks are read, so that many requests for them put no more load on a server than one request.
    reads_dead: Mutex<()>,
}

type Answer = Result<Response, Response>;

impl Api {
    pub(super) fn new(
        locks: &Redlock,
        watch: Arc<Watch>,
        guard: Guard,
        may_change: bool,
    ) -> Result<Api, getrandom::Error> {
        let (locks, body) = (locks.clone(), Mutex::new((0, Arc::from([]))));
        Ok(Api { locks, watch, guard, may_change, start: random()?, body, reads_dead: Mutex::default() })
    }

    pub(super) fn answer(&self, request: &Request) -> Answer {
        match (request.method.as_str(), request.path.as_str()) {
            ("GET" | "HEAD", "/api/snapshot") => Ok(self.snapshot(request)),
            ("GET" | "HEAD", "/api/dead") => self.dead(request),
            ("POST", "/api/login") => self.login(request),
            ("POST", path @ ("/api/release" | "/api/revive" | "/api/remove")) => {
                if !self.may_change {
                    return Err(refused("403 Forbidden", "this dashboard is read-only: start it with --allow-release"));
                }
                let done = match path {
                    "/api/release" => self.release(&read(request)?),
                    "/api/revive" => self.revive(&read(request)?),
                    _ => self.remove(&read(request)?),
                };
                self.watch.hurry();
                done
            }
            _ => Err(refused("404 Not Found", "there is no such page")),
        }
    }

    fn snapshot(&self, request: &Request) -> Response {
        let latest = self.watch.first_look(PATIENCE);
        let tag = format!("\"{}-{}\"", self.start, latest.passes);
        let age = latest.age().as_millis().to_string();
        let is_known = request.header("if-none-match") == Some(tag.as_str());
        let response = if is_known {
            Response::new("304 Not Modified", "", Vec::new())
        } else {
            let age = if latest.at.is_some() { &age } else { "null" };
            let response = Response::new("200 OK", "application/json", self.body(&latest));
            Response { tail: format!(",\"age_ms\":{age}}}\n"), ..response }
        };
        response.with("ETag", tag).with("Redlock-Age-Ms", age)
    }

    /// The body without its last field and its end.
    fn body(&self, latest: &Latest) -> Arc<[u8]> {
        let mut known = self.body.lock().unwrap_or_else(PoisonError::into_inner);
        if known.0 != latest.passes || known.1.is_empty() {
            let (problem, snapshot) = (latest.problem.as_deref(), latest.seen.as_deref());
            let shown = json::line(Shown { allow_release: self.may_change, problem, snapshot });
            *known = (latest.passes, shown.trim_end_matches("}\n").as_bytes().into());
        }
        Arc::clone(&known.1)
    }

    fn login(&self, request: &Request) -> Answer {
        let Login { token } = read(request)?;
        if self.guard.is_token(&token) {
            return Ok(done().with("Set-Cookie", self.guard.cookie(request)));
        }
        Err(refused("401 Unauthorized", "the token is wrong"))
    }

    fn dead(&self, request: &Request) -> Answer {
        let Some(queue) = request.parameter("queue") else {
            return Err(refused("400 Bad Request", "the parameter `queue` is missing"));
        };
        let _one = self.reads_dead.lock().unwrap_or_else(PoisonError::into_inner);
        let tasks = self.locks.queue(queue).dead(MOST_DEAD).map_err(failed)?;
        let body = json::line(std::collections::BTreeMap::from([("tasks", tasks)]));
        Ok(Response::new("200 OK", "application/json", body.into_bytes()))
    }

    /// Releases the lock of the holder that the page showed. The lock of another holder is left alone.
    fn release(&self, Release { name, holder }: &Release) -> Answer {
        let held = of_holder(&self.locks, name, holder).map_err(failed)?;
        is_done(self.locks.mutex(name).force_unlock(&held.holder))
    }

    fn revive(&self, Task { queue, id }: &Task) -> Answer {
        is_done(self.locks.queue(queue).revive(id))
    }

    /// Removes a dead task. A task with the same id that was revived meanwhile is left alone.
    fn remove(&self, Task { queue, id }: &Task) -> Answer {
        let queue = self.locks.queue(queue);
        let dead = queue.dead(MOST_DEAD).map_err(failed)?;
        match dead.iter().find(|task| task.id() == id) {
            Some(seen) => is_done(queue.remove_if(seen)),
            None => is_done(Ok(false)),
        }
    }
}

fn read<T: for<'a> Deserialize<'a>>(request: &Request) -> Result<T, Response> {
    serde_json::from_slice(&request.body).map_err(|error| refused("400 Bad Request", &error.to_string()))
}

fn done() -> Response {
    Response::new("200 OK", "application/json", b"{}\n".to_vec())
}

fn is_done(outcome: Result<bool, Error>) -> Answer {
    match outcome {
        Ok(true) => Ok(done()),
        Ok(false) => Err(refused("409 Conflict", "it no longer exists, or it was changed meanwhile")),
        Err(error) => Err(failed(error)),
    }
}

fn failed(error: impl Into<Failure>) -> Response {
    let Failure { code, message } = error.into();
    let status = match code {
        UNAVAILABLE => "503 Service Unavailable",
        BUSY => "409 Conflict",
        _ => "400 Bad Request",
    };
    refused(status, &message)
}
