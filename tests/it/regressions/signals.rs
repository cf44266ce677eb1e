//! A signal, also one that only stops a process and lets it go on, ends the system call in which a reply is awaited. That says nothing of the server.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

use redlock_tests::{Act, Proxy, Server, eventually};
use rustix::process::{Pid, Signal, kill_process};

use crate::handover::rig::SOON;

fn stop_and_go_on(process: &Child) {
    let id = Pid::from_child(process);
    kill_process(id, Signal::STOP).unwrap();
    let stat = format!("/proc/{}/stat", process.id());
    let is_stopped = || {
        let text = std::fs::read_to_string(&stat).unwrap();
        text.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
    };
    eventually("it is stopped", SOON, is_stopped);
    kill_process(id, Signal::CONT).unwrap();
}

/// The process is stopped twice while a call is under way; the third copy of it is answered.
#[test]
fn a_call_survives_signals() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let mut process = Command::new(env!("CARGO_BIN_EXE_agent"))
        .args(["wait", "order:42", "30000/10000", &proxy.url()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
    lines.next().unwrap().unwrap();
    let first = proxy.on("fence", Act::HoldReply);
    writeln!(process.stdin.as_mut().unwrap(), "fence").unwrap();
    eventually("the first copy is on its way", SOON, || first.hits() == 1);
    let second = proxy.on("fence", Act::HoldReply);
    stop_and_go_on(&process);
    eventually("the second copy is on its way", SOON, || second.hits() == 1);
    stop_and_go_on(&process);
    assert_eq!(lines.next().unwrap().unwrap(), "ok");
    writeln!(process.stdin.as_mut().unwrap(), "unlock").unwrap();
    assert_eq!(lines.next().unwrap().unwrap(), "ok");
    assert!(process.wait().unwrap().success());
    assert_eq!(server.get("order:42"), None);
}
