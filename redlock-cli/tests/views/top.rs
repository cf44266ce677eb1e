//! `redlock top`.

use std::fs::File;
use std::io::Write;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use redlock_sync::Task;
use redlock_tests::{Server, eventually, servers};

use crate::terminal::Terminal;
use crate::{LONG, client};

const SMALL: (u32, u32) = (80, 24);

fn one() -> [Server; 1] {
    [Server::start()]
}

#[test]
fn a_lock_is_found_looked_at_and_released() {
    let servers = one();
    let locks = client(&servers).lease(Duration::from_secs(9)).build().unwrap();
    let order = locks.mutex("order:42").holder_name("billing").lock().unwrap();
    let reader = locks.rw_lock("prices").holder_name("shop").read().unwrap();
    locks.count_down_latch("import", 3).count_down().unwrap();
    locks.queue("emails").push(Task::new("welcome")).unwrap();
    let other = client(&servers).build().unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| other.mutex("order:42").try_lock_for(2 * LONG).unwrap().unlock().unwrap());
        let top = Terminal::start(&servers, SMALL, "", "top --every 200ms");
        let screen = top.until(&[
            "order:42",
            "billing",
            "mutex",
            "prices",
            "latch",
            "emails",
            "1 of 1 servers well",
            "waiting: 1",
        ]);
        let row = screen.lines().find(|line| line.contains("order:42")).unwrap();
        assert!(row.trim_end().ends_with('1') && row.contains('█'), "{screen}");
        // The table is sorted by waits, so this lock comes first.
        assert!(screen.find("order:42") < screen.find("prices"), "{screen}");
        top.keys(&["s"]);
        top.until(&["sort: held for"]);
        top.keys(&["/"]);
        top.keys(&["-l", "pri"]);
        let screen = top.until(&["filter: pri_"]);
        assert!(screen.contains("prices") && !screen.contains("order:42"), "{screen}");
        top.keys(&["Enter"]);
        top.keys(&["k"]);
        top.until(&["only a mutex can be taken away"]);
        top.keys(&["Enter"]);
        top.until(&["on 1 of 1 servers", &reader.id().as_str()[..8], "held for"]);
        // A terminal takes Escape and a key that follows at once for a single key. So the test waits.
        top.keys(&["Escape"]);
        eventually("the details are gone", LONG, || !top.screen().contains("Esc: back"));
        top.keys(&["/"]);
        top.until(&["filter: pri_"]);
        top.keys(&["Escape"]);
        top.until(&["order:42", "sort: held for"]);
        top.keys(&["s", "s", "s"]);
        top.until(&["sort: waiting"]);
        top.keys(&["Home", "Enter"]);
        top.until(&["on 1 of 1 servers", &order.id().as_str()[..8], "k: release it"]);
        // The program discards the keys that arrive until it has drawn a question. In a later drawing, time has passed.
        let wait_for_question = || {
            let row = |screen: String| screen.lines().find(|line| line.contains("order:42")).map(str::to_owned);
            let first = row(top.until(&["Take order:42 away from billing", &order.id().as_str()[..8]]));
            eventually("the screen is drawn again", LONG, || row(top.screen()) != first);
        };
        top.keys(&["k"]);
        wait_for_question();
        top.keys(&["n"]);
        eventually("the question is gone", LONG, || !top.screen().contains("Take order:42"));
        order.check().unwrap();
        // A key that arrives together with the question, as in a pasted text, does not answer it.
        top.keys(&["k", "y"]);
        wait_for_question();
        order.check().unwrap();
        top.keys(&["y"]);
        top.until(&["released order:42"]);
        eventually("the holder is told", LONG, || order.check().is_err());
        assert!(order.check().unwrap_err().is_lost());
        waiter.join().unwrap();
        top.keys(&["q"]);
        let screen = top.until(&["ended 0"]);
        assert!(!screen.contains("prices"), "the terminal has what it had before: {screen}");
    });
}

#[test]
fn the_details_stay_with_their_lock() {
    let servers = one();
    let locks = client(&servers).build().unwrap();
    let first = locks.mutex("order:1").holder_name("billing").lock().unwrap();
    let _second = locks.mutex("order:2").holder_name("shop").lock().unwrap();
    let top = Terminal::start(&servers, SMALL, "", "top --every 200ms");
    top.until(&["order:1", "order:2"]);
    // The filter keeps the first lock, by its holder.
    top.keys(&["/"]);
    top.keys(&["-l", "billing"]);
    top.keys(&["Enter"]);
    eventually("the second lock is filtered out", LONG, || !top.screen().contains("order:2"));
    top.keys(&["Enter"]);
    top.until(&["on 1 of 1 servers", "billing"]);
    first.unlock().unwrap();
    let next = locks.mutex("order:1").holder_name("store").lock().unwrap();
    top.until(&["on 1 of 1 servers", "store"]);
    top.keys(&["x", "/", "Escape"]);
    top.until(&["order:1", "order:2"]);
    top.keys(&["s", "s", "s"]);
    top.until(&["sort: name"]);
    top.keys(&["Home", "Enter"]);
    top.until(&["on 1 of 1 servers", "store"]);
    next.unlock().unwrap();
    let screen = top.until(&["is not held any more"]);
    assert!(screen.contains("order:1") && !screen.contains("on 1 of 1 servers"), "{screen}");
}

#[test]
fn a_string_that_never_ends_is_not_released() {
    let servers = one();
    let token = format!("{:032x}:billing", 1);
    servers[0].set("order:1", &token);
    let top = Terminal::start(&servers, SMALL, "", "top --every 200ms");
    top.until(&["order:1", "never ends"]);
    top.keys(&["k"]);
    top.until(&["no time to live", "by hand"]);
    top.keys(&["y"]);
    assert_eq!(servers[0].get("order:1"), Some(token));
}

#[test]
fn a_paste_goes_to_the_filter() {
    let servers = one();
    let locks = client(&servers).build().unwrap();
    let _guards = [locks.mutex("order:1").lock().unwrap(), locks.mutex("order:2").lock().unwrap()];
    let top = Terminal::start(&servers, SMALL, "", "top --every 200ms");
    top.until(&["order:1", "order:2"]);
    top.paste("k");
    top.keys(&["/"]);
    top.until(&["filter: _"]);
    top.paste("order:2\nq");
    top.until(&["filter: order:2_"]);
    eventually("the other lock is filtered out", LONG, || !top.screen().contains("order:1"));
}

#[test]
fn the_rows_that_fit_are_shown_and_the_screen_is_drawn_anew() {
    let servers = one();
    let locks = client(&servers).build().unwrap();
    let _guards: Vec<_> = (0..40).map(|at| locks.mutex(format!("order:{at}")).lock().unwrap()).collect();
    let _permits = locks.semaphore("prices", 20).acquire_many(20).unwrap();
    let top = Terminal::start(&servers, SMALL, "", "top");
    top.until(&["holders: 60"]);
    top.keys(&["End"]);
    top.keys(&["/"]);
    top.keys(&["-l", "order:1"]);
    top.until(&["filter: order:1_", "order:1 ", "order:10", "order:15", "order:19"]);
    top.keys(&["Escape"]);
    top.until(&["q quit"]);
    // Another program writes to the terminal.
    let mut terminal = File::options().write(true).open(top.tmux(&["display", "-p", "#{pane_tty}"]).trim()).unwrap();
    terminal.write_all(b"\x1b[Ha message to all\r\nof the users").unwrap();
    top.until(&["a message to all"]);
    top.keys(&["C-l"]);
    top.until(&["1 of 1 servers well"]);
    eventually("the message is gone", LONG, || !top.screen().contains("message"));
    // The end of a long window is not cut off.
    top.keys(&["/"]);
    top.keys(&["-l", "prices"]);
    top.keys(&["Enter"]);
    top.until(&["q quit"]);
    top.keys(&["Enter"]);
    top.until(&["more: `redlock inspect`", "Esc: back"]);
}

#[test]
fn eight_queues_are_shown() {
    let servers = one();
    let locks = client(&servers).build().unwrap();
    (10..21).for_each(|at| _ = locks.queue(format!("mails:{at}")).push("x").unwrap());
    let top = Terminal::start(&servers, SMALL, "", "top");
    let screen = top.until(&["queues: 11", "mails:10", "mails:17", "and 3 more: give a pattern"]);
    assert!(!screen.contains("mails:18"), "{screen}");
}

#[test]
fn it_goes_on_after_a_stop() {
    let servers = one();
    let locks = client(&servers).build().unwrap();
    let _guard = locks.mutex("order:42").lock().unwrap();
    // Like the shell of a user, this one has job control and its own mode of the terminal.
    let shell = "sh -c 'set -m; \"$@\"; stty sane; echo the shell; read line; fg' sh";
    let top = Terminal::start(&servers, SMALL, shell, "top --every 200ms");
    top.until(&["order:42", "q quit"]);
    assert!(Command::new("kill").args(["-TSTP", &program(&top)]).status().unwrap().success());
    top.until(&["the shell"]);
    top.keys(&["Enter"]);
    eventually("the output of the shell is gone", LONG, || !top.screen().contains("the shell"));
    top.until(&["1 of 1 servers well", "order:42", "q quit"]);
    top.keys(&["s"]);
    top.until(&["sort: held for"]);
    top.keys(&["q"]);
    let screen = top.until(&["ended 0"]);
    assert!(!screen.contains("order:42"), "the terminal has what it had before: {screen}");
}

#[test]
fn names_of_all_sorts_leave_the_screen_whole() {
    let servers = one();
    let locks = client(&servers).build().unwrap();
    let names = [
        "锁:订单".to_owned(),
        "a\u{1b}[2J\u{9b}31m\u{202e}b\nc".to_owned(),
        "<script>'\"".to_owned(),
        "a\u{fe0f}\u{2800}b\\".to_owned(),
        "x".repeat(1024),
    ];
    let _guards: Vec<_> = names.iter().map(|name| locks.mutex(name).holder_name("持有者").lock().unwrap()).collect();
    let top = Terminal::start(&servers, (120, 30), "", "top");
    let screen =
        top.until(&["锁:订单", "a\\u{1b}[2J\\u{9b}", "a\\u{fe0f}\\u{2800}b\\\\", "<script>'\"", "xxxx", "持有者"]);
    for name in ["锁:订单", "<script>", "xxxx"] {
        let row = screen.lines().find(|line| line.contains(name)).unwrap();
        assert!(row.contains("mutex") && row.contains("持有者") && row.trim_end().ends_with('0'), "{row}");
    }
    // The size changes many times, down to a size that fits nothing.
    for step in 0..40 {
        top.resize(20 + step * 37 % 160, 3 + step * 7 % 50);
    }
    top.resize(200, 60);
    top.until(&["锁:订单", "mutex", "q quit"]);
    top.keys(&["End", "Enter"]);
    top.until(&["Esc: back"]);
}

#[test]
fn a_server_that_hangs_or_is_gone_is_said_to() {
    let servers = servers(3);
    let locks = client(&servers).build().unwrap();
    let _guard = locks.mutex("order:42").lock().unwrap();
    servers[2].del("order:42");
    // In one scan, the lock could have changed between two servers.
    let slow = Terminal::start(&servers, (160, 24), "", "top --every 60s");
    assert!(!slow.until(&["3 of 3 servers well", "order:42"]).contains("servers differ"));
    slow.keys(&["r"]);
    slow.until(&["! order:42", "servers differ"]);
    let top = Terminal::start(&servers, (160, 24), "", "top --every 200ms");
    top.until(&["3 of 3 servers well", "! order:42", "servers differ"]);
    servers[0].stop();
    top.until(&["2 of 3 servers well", "DOWN", "order:42"]);
    servers[1].kill();
    top.until(&["1 of 3 servers well", "no majority", "s ago", "order:42"]);
    servers[0].cont();
    top.until(&["2 of 3 servers well"]);
    top.keys(&["C-c"]);
    top.until(&["ended 0"]);
}

#[test]
fn a_signal_gives_the_terminal_back() {
    let servers = one();
    let locks = client(&servers).build().unwrap();
    let _held = locks.mutex("order:42").lease(Duration::from_secs(60)).lock().unwrap().into_token().unwrap();
    let top = Terminal::start(&servers, SMALL, "NO_COLOR=1", "top --every 200ms");
    top.until(&["holders: 1,", "order:42", "q quit"]);
    let colours = top.tmux(&["capture-pane", "-p", "-e"]);
    assert!(!colours.contains("\u{1b}[31m") && !colours.contains("\u{1b}[33m"), "{colours:?}");
    assert!(Command::new("kill").args(["-TERM", &program(&top)]).status().unwrap().success());
    top.until(&["ended 0"]);
    // Closing the terminal ends the program too, even if the program was started with SIGHUP ignored.
    for start in ["", "sh -c 'trap \"\" HUP; exec \"$@\"' sh"] {
        let closed = Terminal::start(&servers, SMALL, start, "top");
        closed.until(&["order:42"]);
        let program = program(&closed);
        drop(closed);
        let is_there = || Command::new("kill").args(["-0", &program]).stderr(Stdio::null()).status().unwrap().success();
        eventually("it ends with its terminal", LONG, || !is_there());
    }
}

/// The process id of the program that runs in the terminal.
fn program(terminal: &Terminal) -> String {
    let tty = terminal.tmux(&["display", "-p", "#{pane_tty}"]);
    let found =
        Command::new("pgrep").args(["-x", "redlock", "-t", tty.trim().trim_start_matches("/dev/")]).output().unwrap();
    String::from_utf8(found.stdout).unwrap().trim().to_owned()
}

#[test]
fn without_a_terminal_it_prints_everything_once() {
    let servers = one();
    let locks = client(&servers).build().unwrap();
    let _guard = locks.mutex("order:42").holder_name("billing").lock().unwrap();
    locks.queue("emails").push("x").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_redlock"));
    let output = command
        .args(["--node", &servers[0].url(), "top"])
        .env("REDLOCK_NODE_TIMEOUT", "900ms")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && said.starts_with("ready: 1 of 1"), "{said}");
    assert!(said.contains("order:42  mutex") && said.contains(":billing") && said.contains("emails"), "{said}");
    assert!(!said.contains('\u{1b}'), "{said:?}");
}
