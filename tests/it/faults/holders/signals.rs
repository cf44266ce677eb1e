//! A signal interrupts the system call that waits for a reply, even if it only stops and continues the process. This
//! says nothing about the server.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use redlock_tests::{Act, Proxy, Server, eventually};
use rustix::process::{Pid, Signal, kill_process};

use crate::faults::rig::{KEY, SOON, ms};
use crate::process::{Process, stop};

/// A process that holds the lock.
fn holder(settings: &str, proxy: &Proxy) -> Process {
    let holder = Process::start(&["wait", KEY, settings], &[proxy.url()]);
    holder.line();
    holder
}

fn unlock(mut holder: Process, server: &Server) {
    assert_eq!(holder.ask("unlock"), "ok");
    assert!(holder.wait().success());
    assert_eq!(server.get(KEY), None);
}

/// Stops and continues the process, which interrupts each of its threads that waits in a system call.
fn stop_and_go_on(process: Pid) {
    stop(process);
    kill_process(process, Signal::CONT).unwrap();
}

/// The process is stopped several times while it waits for a reply. It must continue to wait for the same reply.
#[test]
fn a_call_survives_signals() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let mut holder = holder("30000/10000", &proxy);
    let held = proxy.on("fence", Act::HoldReply);
    holder.tell("fence");
    eventually("the call is sent", SOON, || held.hits() == 1);
    let calls = proxy.count("fence");
    (0..3).for_each(|_| stop_and_go_on(holder.id()));
    held.release();
    assert_eq!(holder.line(), "ok");
    assert_eq!(proxy.count("fence"), calls, "the call was sent again");
    unlock(holder, &server);
}

/// The signals interrupt all waits, also those for connections and for the replies of the handshake.
#[test]
fn calls_and_connections_survive_a_storm_of_signals() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let mut holder = holder("30000/2000", &proxy);
    proxy.latency(ms(4));
    let (process, is_over) = (holder.id(), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::SeqCst) {
                stop_and_go_on(process);
                thread::sleep(ms(1));
            }
        });
        let mut said = Vec::new();
        for i in 0..40 {
            if i % 4 == 0 {
                proxy.drop_connections();
            }
            said.push(holder.ask("fence"));
        }
        is_over.store(true, Ordering::SeqCst);
        assert!(said.iter().all(|word| word == "ok"), "{said:?}");
    });
    proxy.heal();
    unlock(holder, &server);
}
