//! Metrics of the locks of a program, in the format of Prometheus: `GET /metrics`. `GET /ready` serves a readiness
//! probe.
//!
//! ```text
//! cargo run --example metrics                       # works a little, prints the metrics, and ends
//! cargo run --example metrics -- 127.0.0.1:9187     # works and serves requests until Ctrl-C. Try:
//!     curl http://127.0.0.1:9187/metrics
//! ```
//!
//! `docs/grafana.json` is a dashboard for Grafana that shows these metrics. The program exits with 1 if a metric is
//! missing.
#![allow(clippy::disallowed_methods, reason = "the work to be done under the locks is to sleep")]

use std::error::Error;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::ExitCode;
use std::time::Duration;
use std::{env, thread};

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use redlock_examples::Redis;
use redlock_sync::{Metrics, Redlock, distributed_lock};
use tiny_http::{Request, Response, Server};

/// The upper bounds of the histogram buckets for waits and holds, in seconds.
const BUCKETS: [f64; 12] = [0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0, 300.0];
const THREADS: usize = 4;

/// Restocks a shelf. Its series have the label `lock="shelf:{number}"`, no matter how many shelves there are.
#[distributed_lock("shelf:{number}")]
fn restock(number: usize) -> Result<(), redlock_sync::Error> {
    thread::sleep(Duration::from_millis(5));
    Ok(())
}

/// Counts all shelves. If another thread already counts, the call gives up with `outcome="busy"`.
#[distributed_lock("count", wait = "0s", lease = "3s")]
fn count_all() -> Result<(), redlock_sync::Error> {
    thread::sleep(Duration::from_millis(1200)); // This is longer than a third of the lease, so the lease is renewed.
    Ok(())
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    // The recorder must be installed first. Metrics that are reported before are lost.
    let prometheus = PrometheusBuilder::new().set_buckets(&BUCKETS)?.install_recorder()?;
    let redis = Redis::any();
    println!("{}", redis.describe());
    let prefix = format!("metrics:{}:", std::process::id());
    let settings = Redlock::builder().node(redis.url()).key_prefix(prefix).node_timeout(Duration::from_secs(1));
    let locks = settings.observer(Metrics::new()).build()?;
    Redlock::set_default(locks.clone())?;

    let address = env::args().nth(1);
    let server = Server::http(address.as_deref().unwrap_or("127.0.0.1:0")).map_err(|error| error.to_string())?;
    let port = server.server_addr().to_ip().ok_or("not an IP address")?;
    let answers = (prometheus, locks.clone());
    thread::spawn(move || server.incoming_requests().for_each(|request| answer(request, &answers)));
    println!("http://{port}/metrics");
    if address.is_some() {
        loop {
            work(50)?;
        }
    }
    work(20)?;
    lose_one(&locks)?;
    let mails = locks.queue("mails");
    mails.push("welcome ann@a.example")?;
    mails.claim()?.ack()?;
    let exposed = get(&port.to_string(), "/metrics")?;
    println!("{exposed}\n/ready: {}", get(&port.to_string(), "/ready")?);
    let is_complete = ["shelf:{number}", "count", "busy", "redlock_lost_total", "redlock_renewals_total"];
    Ok(if is_complete.iter().all(|part| exposed.contains(part)) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn work(times: usize) -> Result<(), redlock_sync::Error> {
    thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                scope.spawn(move || {
                    match count_all() {
                        Err(error) if !error.is_busy() => return Err(error),
                        _ => {}
                    }
                    (0..times).try_for_each(|i| restock((i + thread) % 3))
                })
            })
            .collect();
        threads.into_iter().try_for_each(|thread| thread.join().unwrap_or(Ok(())))
    })
}

/// Loses a lock, by releasing it behind the back of its guard.
fn lose_one(locks: &Redlock) -> Result<(), redlock_sync::Error> {
    let _guard = locks.mutex("audit:2026").label("audit:{year}").lock()?;
    locks.unlock_all().map(drop)
}

fn answer(request: Request, (prometheus, locks): &(PrometheusHandle, Redlock)) {
    let (status, text) = match request.url() {
        "/metrics" => (200, prometheus.render()),
        "/ready" => match locks.health() {
            Ok(health) if health.is_ready() => (200, health.to_string()),
            Ok(health) => (503, health.to_string()),
            Err(error) => (503, error.to_string()),
        },
        _ => (404, "there are /metrics and /ready".to_owned()),
    };
    _ = request.respond(Response::from_string(text).with_status_code(status));
}

/// Returns the body of the response.
fn get(host: &str, path: &str) -> Result<String, Box<dyn Error>> {
    let mut stream = TcpStream::connect(host)?;
    write!(stream, "GET {path} HTTP/1.0\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (_head, body) = answer.split_once("\r\n\r\n").ok_or("no answer")?;
    Ok(body.to_owned())
}
