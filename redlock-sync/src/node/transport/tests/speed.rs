//! The throughput of pairs of acquire and release, compared with bare connections in the same run. All threads share
//! the client. In the comparison each thread has its own connection.
//!
//! `REDLOCK_TRANSPORT_SECONDS=1 cargo test --release -p redlock-sync --lib -- --nocapture transport::tests::speed`
//! measures each case for that many seconds and prints the ratios.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use redlock_tests::Server;

use super::servers::{Client, acquire, release};
use super::*;
use crate::node::Answers;

const SMALL: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";

fn packed(words: &[&str]) -> Vec<u8> {
    let mut cmd = redis::cmd(words[0]);
    words[1..].iter().for_each(|word| _ = cmd.arg(*word));
    cmd.get_packed_command()
}

/// The pairs per second of this many threads. Each gets its work from `start`.
fn pairs<W: FnMut()>(threads: usize, time: Duration, start: &(impl Fn(usize) -> W + Sync)) -> f64 {
    let (count, is_over, is_on) = (AtomicU64::new(0), AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        for t in 0..threads {
            let (count, is_over, is_on) = (&count, &is_over, &is_on);
            scope.spawn(move || {
                let mut pair = start(t);
                while !is_over.load(Ordering::Relaxed) {
                    pair();
                    count.fetch_add(u64::from(is_on.load(Ordering::Relaxed)), Ordering::Relaxed);
                }
            });
        }
        SystemClock.sleep(time / 5);
        is_on.store(true, Ordering::Relaxed);
        let began = now();
        SystemClock.sleep(time);
        let measured = count.load(Ordering::Relaxed);
        let took = now().since(began);
        is_over.store(true, Ordering::Relaxed);
        f64::from(u32::try_from(measured).unwrap_or(u32::MAX)) / took.as_secs_f64()
    })
}

/// A pair on its own connection. It contains only the work that every implementation must do.
fn bare(server: &Server, sha: &str, t: usize) -> impl FnMut() + use<> {
    let mut socket = TcpStream::connect(server.addr()).unwrap();
    socket.set_nodelay(true).unwrap();
    let (key, token) = (format!("bare:{t}"), format!("{t:032x}:host:1234:1"));
    let lock = packed(&["SET", &key, &token, "NX", "PX", "60000"]);
    let unlock = packed(&["EVALSHA", sha, "1", &key, &token]);
    let mut reply = [0; 64];
    move || {
        for (command, said) in [(&lock, "+OK\r\n"), (&unlock, ":1\r\n")] {
            socket.write_all(command).unwrap();
            let read = socket.read(&mut reply).unwrap();
            assert_eq!(&reply[..read], said.as_bytes());
        }
    }
}

fn key_of(t: usize) -> (String, String) {
    (format!("speed:{t}"), format!("{t:032x}:host:1234:1"))
}

/// A pair of scripts. The thread waits for both replies.
fn waiting_pair(client: &Client, t: usize) -> impl FnMut() {
    let (key, token) = key_of(t);
    move || {
        for call in [acquire(&key, &token), release(&key, &token)] {
            let said = client.ask(&call);
            assert!(said.results[0].is_ok(), "{said:?}");
        }
    }
}

/// A pair of `SET NX` and a release for which the thread does not wait.
fn dropping_pair(client: &Client, t: usize) -> impl FnMut() {
    let (key, token) = key_of(t);
    let lock = Payload { form: Form::SetNx { lease: 2 * SOON }, ..payload(acquire(&key, &token)) };
    let free = release(&key, &token);
    move || {
        let connection = client.server().connections(&free).choose(&free, false, now(), None).unwrap();
        let End::Reply(WireReply::Okay) = call(&connection, &lock, soon()) else { panic!("it is free") };
        let checked = |answers: Answers| assert!(matches!(&answers.results[..], [Ok(_)]), "{answers:?}");
        client.post(&free, checked);
    }
}

#[test]
fn pairs_of_many_threads() {
    let seconds = std::env::var("REDLOCK_TRANSPORT_SECONDS").ok().map(|text| text.parse::<f64>().unwrap());
    let (time, rounds) = (Duration::from_secs_f64(seconds.unwrap_or(0.05)), if seconds.is_some() { 5 } else { 1 });
    let threads: &[usize] = if seconds.is_some() { &[1, 2, 4, 8, 32, 128] } else { &[1, 8] };
    let server = Server::start();
    let sha: String = server.ask(redis::cmd("SCRIPT").arg("LOAD").arg(SMALL));
    let client = Client::new(&[server.url()], SOON);
    // Loads the scripts into the server.
    waiting_pair(&client, 0)();
    for &threads in threads {
        let mut ratios = [Vec::new(), Vec::new()];
        for _ in 0..rounds {
            let raw = pairs(threads, time, &|t| bare(&server, &sha, t));
            ratios[0].push(pairs(threads, time, &|t| waiting_pair(&client, t)) / raw);
            ratios[1].push(pairs(threads, time, &|t| dropping_pair(&client, t)) / raw);
        }
        let [waits, drops] = ratios.map(|mut ratios| {
            ratios.sort_by(f64::total_cmp);
            format!("{:.2} ({:.2} to {:.2})", ratios[rounds / 2], ratios[0], ratios[rounds - 1])
        });
        let line = format!("{threads:>4} threads: lock + unlock by scripts {waits}, native lock + drop {drops}\n");
        std::io::stderr().write_all(line.as_bytes()).unwrap();
    }
}
