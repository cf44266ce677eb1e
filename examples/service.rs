//! A service to copy: a lock for each order, a row that refuses late writes, SIGTERM, and a Redis that is down.
//!
//! ```text
//! REDIS_URL=redis://127.0.0.1/ cargo run --example service 127.0.0.1:8080 orders.sqlite
//! curl -X POST http://127.0.0.1:8080/orders/42        # one request of an order at a time, in all instances
//! curl http://127.0.0.1:8080/ready                    # for a readiness probe
//! ```
//!
//! Run as many instances as you like. If Redis is down, requests are refused by 503, and no order is touched.

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use std::{env, thread};

use redlock_sync::{Builder, Redlock, distributed_lock};
use rusqlite::{Connection, params};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tiny_http::{Method, Request, Response, Server};

/// Each of these threads handles one request at a time.
const THREADS: usize = 4;
/// How long running requests may take after SIGTERM. It is shorter than the time after which the process is killed.
const GRACE: Duration = Duration::from_secs(8);

const SCHEMA: &str = "CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, step INTEGER, fence INTEGER)";

/// The condition on `fence` refuses the write if a later holder of the lock has written.
const NEXT_STEP: &str = "
    INSERT INTO orders (id, step, fence) VALUES (?1, 1, ?2)
    ON CONFLICT (id) DO UPDATE SET step = step + 1, fence = ?2 WHERE fence <= ?2";

/// Takes an order one step further. If another request has the order for 2 s, the call is `Err(Busy)`.
#[distributed_lock("order:{id}", wait = "2s", guard = lock)]
fn ship(db: &Connection, id: i64) -> Result<String, Refusal> {
    let fence = i64::try_from(lock.fencing_token()?)?; // greater for each later holder of this lock
    // Here is the work. If the process is paused now, for longer than the lease, another one gets the lock.
    lock.check()?; // Before each step. After such a pause it is `Err(Lost)`.
    if db.execute(NEXT_STEP, params![id, fence])? == 0 {
        return Err(Refusal { status: 409, why: "a later holder of the lock has written".into() });
    }
    Ok(format!("order {id} is shipped"))
}

/// The reply to a request that was refused.
struct Refusal {
    status: u16,
    why: String,
}

/// The attribute and `?` need this conversion.
impl From<redlock_sync::Error> for Refusal {
    fn from(error: redlock_sync::Error) -> Self {
        let status = match &error {
            redlock_sync::Error::Busy { .. } => 423,
            // Redis is down, or this process shuts down. The body has not run.
            redlock_sync::Error::Unavailable { .. } | redlock_sync::Error::Closed => 503,
            // Such as `Lost`: the lock was lost while the body ran. The fence has protected the row.
            _ => 500,
        };
        Self { status, why: error.to_string() }
    }
}

impl From<rusqlite::Error> for Refusal {
    fn from(error: rusqlite::Error) -> Self {
        Self { status: 500, why: error.to_string() }
    }
}

impl From<std::num::TryFromIntError> for Refusal {
    fn from(error: std::num::TryFromIntError) -> Self {
        Self { status: 500, why: error.to_string() }
    }
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let mut signals = Signals::new([SIGTERM, SIGINT])?; // before the first lock is taken
    let mut args = env::args().skip(1);
    let address = args.next().unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let file = args.next().unwrap_or_else(|| "orders.sqlite".to_owned());

    // While Redis is down, a request is refused after a second, and not after the default of 10 s.
    let locks = Builder::from_env()?.unavailable_after(Duration::from_secs(1)).build()?;
    Redlock::set_default(locks.clone())?;
    eprintln!("{}", locks.health()?); // What is wrong with Redis. The service starts all the same.

    Connection::open(&file)?.execute_batch(SCHEMA)?;
    let server = Arc::new(Server::http(address).map_err(|error| error.to_string())?);
    println!("http://{}", server.server_addr());
    let mut threads = Vec::new();
    for _ in 0..THREADS {
        let (server, locks, db) = (Arc::clone(&server), locks.clone(), Connection::open(&file)?);
        let serve = move || server.incoming_requests().for_each(|request| answer(request, &locks, &db));
        threads.push(thread::spawn(serve));
    }

    signals.forever().next(); // the main thread waits here
    let ended = locks.shutdown(GRACE)?; // From now on waiters get `Closed`. Afterwards, no lock of this process is held.
    for _ in &threads {
        server.unblock(); // takes one of the threads out of `incoming_requests`
    }
    for thread in threads {
        thread.join().map_err(|_| "a thread panicked")?;
    }
    eprintln!("stopped; given up: {:?}, not confirmed: {}", ended.given_up, ended.unconfirmed);
    Ok(if ended.given_up.is_empty() && ended.unconfirmed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn answer(request: Request, locks: &Redlock, db: &Connection) {
    let path = request.url().to_owned();
    let outcome = match (request.method(), path.strip_prefix("/orders/").map(str::parse)) {
        (Method::Post, Some(Ok(id))) => ship(db, id),
        (Method::Get, None) if path == "/ready" && locks.is_ready() => Ok("ready".to_owned()),
        (Method::Get, None) if path == "/ready" => Err(Refusal { status: 503, why: "not ready".into() }),
        _ => Err(Refusal { status: 404, why: "try POST /orders/42 or GET /ready".into() }),
    };
    let (status, text) = outcome.map_or_else(|refusal| (refusal.status, refusal.why), |text| (200, text));
    _ = request.respond(Response::from_string(text + "\n").with_status_code(status)); // The caller may have gone.
}
