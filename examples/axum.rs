//! A web service with a lock for each order: `REDIS_URL=redis://127.0.0.1/ cargo run --example axum`.

use std::env;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::{Router, routing};
use redlock_sync::{Error, Redlock};
use tokio::net::TcpListener;
use tokio::task::spawn_blocking;

/// Ships an order under its lock. The call blocks its thread while another request has the order, here or on another
/// machine.
fn ship(locks: &Redlock, id: u64) -> Result<String, Error> {
    let guard = locks.mutex(format!("order:{id}")).try_lock_for(Duration::from_secs(5))?;
    // Asks the server. Do this before steps that cannot be undone, such as a COMMIT.
    guard.extend(Duration::from_secs(30))?;
    let done = format!("order {id} is shipped\n");
    match guard.unlock() {
        // Another request may have had the order meanwhile.
        Err(error @ Error::Lost { .. }) => Err(error),
        // If the release is not confirmed, the work is done nevertheless.
        _ => Ok(done),
    }
}

async fn order(State(locks): State<Redlock>, Path(id): Path<u64>) -> (StatusCode, String) {
    match spawn_blocking(move || ship(&locks, id)).await {
        Ok(Ok(done)) => (StatusCode::OK, done),
        Ok(Err(error)) if error.is_busy() => (StatusCode::LOCKED, format!("{error}\n")),
        // `Closed` means that this process shuts down.
        Ok(Err(error)) if error.is_unavailable() || error == Error::Closed => {
            (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n"))
        }
        Ok(Err(error)) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
        Err(panic) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{panic}\n")),
    }
}

async fn ready(State(locks): State<Redlock>) -> StatusCode {
    let is_ready = spawn_blocking(move || locks.is_ready()).await.unwrap_or(false);
    if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let locks = Redlock::open(env::var("REDIS_URL")?)?; // Clones share the connections.
    let orders = Router::new().route("/orders/{id}", routing::post(order)).route("/ready", routing::get(ready));
    let listener = TcpListener::bind(env::args().nth(1).as_deref().unwrap_or("127.0.0.1:3000")).await?;
    println!("http://{}/orders/42", listener.local_addr()?);
    Ok(axum::serve(listener, orders.with_state(locks)).await?)
}
