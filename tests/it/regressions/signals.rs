//! A signal interrupts the system call that waits for a reply, even if it only stops and continues the process. This
//! says nothing about the server.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use redlock_tests::{Act, Proxy, Server, eventually};
use rustix::process::{Pid, Signal, kill_process};

use crate::handover::rig::{SOON, ms};

/// A process that holds the lock.
struct Holder {
    process: Child,
    lines: BufReader<ChildStdout>,
}

impl Holder {
    fn start(settings: &str, proxy: &Proxy) -> Holder {
        let mut process = Command::new(env!("CARGO_BIN_EXE_agent"))
            .args(["wait", "order:42", settings, &proxy.url()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap());
        let mut holder = Holder { process, lines };
        holder.hear();
        holder
    }

    fn tell(&mut self, order: &str) {
        writeln!(self.process.stdin.as_mut().unwrap(), "{order}").unwrap();
    }

    fn hear(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn ask(&mut self, order: &str) -> String {
        self.tell(order);
        self.hear()
    }

    fn end(&mut self, server: &Server) {
        assert_eq!(self.ask("unlock"), "ok");
        assert!(self.process.wait().unwrap().success());
        assert_eq!(server.get("order:42"), None);
    }
}

/// Stops and continues the process, which interrupts each of its threads that waits in a system call.
fn stop_and_go_on(process: u32) {
    let id = Pid::from_raw(i32::try_from(process).unwrap()).unwrap();
    kill_process(id, Signal::STOP).unwrap();
    let stat = format!("/proc/{process}/stat");
    let is_stopped = || {
        let text = std::fs::read_to_string(&stat).unwrap();
        text.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
    };
    eventually("the process is stopped", SOON, is_stopped);
    kill_process(id, Signal::CONT).unwrap();
}

/// The process is stopped several times while it waits for a reply. It must continue to wait for the same reply.
#[test]
fn a_call_survives_signals() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let mut holder = Holder::start("30000/10000", &proxy);
    let held = proxy.on("fence", Act::HoldReply);
    holder.tell("fence");
    eventually("the call is sent", SOON, || held.hits() == 1);
    let calls = proxy.count("fence");
    (0..3).for_each(|_| stop_and_go_on(holder.process.id()));
    held.release();
    assert_eq!(holder.hear(), "ok");
    assert_eq!(proxy.count("fence"), calls, "the call was sent again");
    holder.end(&server);
}

/// The signals interrupt all waits, also those for connections and for the replies of the handshake.
#[test]
fn calls_and_connections_survive_a_storm_of_signals() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let mut holder = Holder::start("30000/2000", &proxy);
    proxy.latency(ms(4));
    let (process, is_over) = (holder.process.id(), AtomicBool::new(false));
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
    holder.end(&server);
}
