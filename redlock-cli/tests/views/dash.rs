//! `redlock dash` in a browser. With `SHOTS=docs/pictures`, the pictures of the documentation are written to that
//! folder. All other pictures go to the target directory.

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use redlock_sync::{Redlock, Task};
use redlock_tests::{Server, servers};

use crate::browser::Browser;
use crate::page::Dash;
use crate::terminal::Terminal;
use crate::{LONG, client};

const WIDE: (u32, u32) = (1440, 900);
const PHONE: (u32, u32) = (390, 844);

/// The pictures that the documentation uses.
const KEPT: [&str; 3] = ["dash.png", "dash-phone.png", "top.png"];

fn shot(name: &str) -> PathBuf {
    let folder = std::env::var_os("SHOTS").filter(|_| KEPT.contains(&name));
    let target = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("shots");
    folder.map_or(target, |folder| PathBuf::from("..").join(folder)).join(name)
}

/// A JavaScript expression for the text of a lock's row.
fn row(name: &str) -> String {
    format!(
        "[...document.querySelectorAll('#locks tbody tr')].find((row) => row.cells[0].textContent === {name:?})?.innerText"
    )
}

fn fill(server: &Server, many: usize) {
    let script = "for i = 1, ARGV[1] do redis.call('SET', 'order:' .. i, string.format('%032x', i) .. ':shop', 'PX', 600000) end";
    server.ask::<()>(redis::cmd("EVAL").arg(script).arg(0).arg(many));
}

#[test]
fn a_lock_comes_is_waited_for_is_released_and_goes() {
    let server = Server::start();
    fill(&server, 1999);
    let locks = client(std::slice::from_ref(&server)).lease(Duration::from_secs(9)).build().unwrap();
    let dash = Dash::start(&server, &["--allow-release"]);
    let mut browser = Browser::start();
    browser.look(WIDE.0, WIDE.1, "light");
    browser.go(&dash.origin());
    browser.until("document.querySelectorAll('#locks tbody tr').length === 500");
    browser.value("document.getElementById('filter').value = '<', document.getElementById('filter').dispatchEvent(new Event('input'))");
    let name = "<img src=x onerror=alert(1)>";
    let guard = locks.mutex(name).holder_name("<b>billing</b>").lock().unwrap();
    let (taken, row) = (Instant::now(), row(name));
    browser.until(&row);
    println!("a lock among 2000 was shown after {:?}", taken.elapsed());
    assert!(browser.value(&row).as_str().unwrap().contains("<b>billing</b>"));
    let other = client(std::slice::from_ref(&server)).build().unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| other.mutex(name).try_lock_for(2 * LONG).unwrap().unlock().unwrap());
        browser.until(&format!("{row}.trim().endsWith('1')"));
        // The test releases the lock with the keyboard only.
        browser.value("document.querySelector('#locks tbody button').focus()");
        browser.key("Enter");
        browser.until("document.getElementById('details').open");
        browser.until("[...document.querySelectorAll('#details-body button')].find((one) => one.textContent === 'Release by force').focus() ?? true");
        browser.key("Enter");
        browser.until(
            "document.getElementById('details-body').innerText.includes('Take the lock away from <b>billing</b>')",
        );
        guard.check().unwrap();
        let pressed = Instant::now();
        browser.value("document.querySelector('#details-body button').focus()");
        browser.key("Enter");
        redlock_tests::eventually("the holder is told", LONG, || guard.check().is_err());
        println!("the holder was told after {:?}, with a lease of 9 s", pressed.elapsed());
        browser.until("document.getElementById('details-said').textContent === 'released'");
        browser.key("Escape");
        waiter.join().unwrap();
    });
    browser.until(&format!("!{row}"));
    assert_eq!(browser.value("document.images.length + document.scripts.length"), 1, "a name is text");
}

#[test]
fn a_dead_task_is_revived_and_another_removed() {
    let server = Server::start();
    let locks = client(std::slice::from_ref(&server)).build().unwrap();
    let queue = locks.queue("e-mails <&>");
    for id in ["ann", "bob"] {
        queue.push(Task::new("<script>alert(1)</script>").id(id)).unwrap();
        queue.claim().unwrap().fail("no such address").unwrap();
    }
    let dash = Dash::start(&server, &["--allow-release"]);
    let mut browser = Browser::start();
    browser.go(&dash.origin());
    browser.until("document.querySelector('#queues tbody button').textContent === '2'");
    browser.value("document.querySelector('#queues tbody button').click()");
    browser.until("document.querySelectorAll('#details .entry').length === 2");
    let press = |what: &str| {
        format!(
            "[...document.querySelectorAll('#details .entry button')].find((one) => one.textContent === '{what}').click()"
        )
    };
    browser.value(&press("Revive"));
    browser.until("document.querySelectorAll('#details .entry').length === 1");
    browser.value(&press("Remove"));
    browser.until("document.querySelectorAll('#details .entry').length === 0");
    assert_eq!((queue.len().unwrap(), queue.dead_len().unwrap()), (1, 0));
    assert_eq!(queue.peek(1).unwrap()[0].id(), "ann");
    browser.until("!document.querySelector('#queues tbody button')");
}

#[test]
fn a_string_that_never_ends_has_no_button() {
    let server = Server::start();
    server.set("order:1", &format!("{:032x}:billing", 1));
    let dash = Dash::start(&server, &["--allow-release"]);
    let mut browser = Browser::start();
    browser.go(&dash.origin());
    browser.until("document.querySelector('#locks tbody tr')?.innerText.includes('never ends')");
    browser.value("document.querySelector('#locks tbody button').click()");
    browser.until("document.getElementById('details-body').innerText.includes('billing')");
    assert_eq!(browser.value("document.querySelectorAll('#details-body button').length"), 0);
}

#[test]
fn a_token_is_asked_for_in_the_page() {
    let server = Server::start();
    let file = server.dir().join("token");
    std::fs::write(&file, "0123456789abcdef").unwrap();
    let dash = Dash::start(&server, &["--token-file", file.to_str().unwrap()]);
    let mut browser = Browser::start();
    browser.go(&dash.origin());
    browser.until("document.getElementById('login').open");
    for (token, is_open) in [("wrong", true), ("0123456789abcdef", false)] {
        browser.value(&format!(
            "document.getElementById('token').value = '{token}', document.getElementById('login-form').requestSubmit()"
        ));
        if is_open {
            browser.until("document.getElementById('login-said').textContent === 'the token is wrong'");
        }
    }
    browser.until(
        "!document.getElementById('login').open && document.getElementById('state').textContent.includes('1 of 1 servers well')",
    );
    assert_eq!(browser.value("document.cookie"), "", "no script reads the cookie");
}

/// Prints the times that a browser needs for each new snapshot. The test has no limit for them.
#[test]
fn five_thousand_locks() {
    let server = Server::start();
    fill(&server, 5000);
    let dash = Dash::start(&server, &[]);
    let mut browser = Browser::start();
    browser.look(WIDE.0, WIDE.1, "dark");
    browser.go(&dash.origin());
    browser.until("document.querySelectorAll('#locks tbody tr').length === 500");
    let all = "document.getElementById('more').click(), document.querySelectorAll('#locks tbody tr').length";
    for (rows, first) in [("500 rows", "0"), ("5000 rows", all)] {
        let count = browser.value(first);
        let took = browser.value("(() => { const at = performance.now(); for (let i = 0; i < 5; i++) { state.locks = grouped(); show(); } return (performance.now() - at) / 5; })()");
        println!("{rows} ({count}): {took} ms for a snapshot");
    }
    browser.picture(&shot("dash-5000.png"));
}

/// Takes the locks of a shop, as an example for the pictures.
fn shop(locks: &Redlock, then: impl FnOnce()) {
    let held: Vec<_> = [("order:4711", "billing-2"), ("order:4712", "billing-1"), ("report:daily", "cron")]
        .map(|(name, holder)| locks.mutex(name).holder_name(holder).lock().unwrap())
        .into();
    let readers = (
        locks.rw_lock("prices").holder_name("shop-1").read().unwrap(),
        locks.semaphore("geocoder", 3).holder_name("map").acquire_many(2).unwrap(),
    );
    locks.count_down_latch("import", 3).count_down().unwrap();
    let mails = locks.queue("emails");
    for id in ["a", "b", "c", "d"] {
        mails.push(Task::new("welcome").id(id)).unwrap();
    }
    mails.claim().unwrap().fail("550 no such address").unwrap();
    let job = mails.claim().unwrap();
    then();
    drop((held, readers, job));
}

#[test]
fn pictures() {
    let server = Server::builder().persistent().start();
    let locks = client(std::slice::from_ref(&server)).build().unwrap();
    let dash = Dash::start(&server, &["--allow-release"]);
    let mut browser = Browser::start();
    browser.look(WIDE.0, 600, "light");
    browser.go(&dash.origin());
    browser.until("document.getElementById('state').textContent.includes('1 of 1 servers well')");
    browser.picture(&shot("dash-empty.png"));
    shop(&locks, || {
        let waits = client(std::slice::from_ref(&server)).build().unwrap();
        thread::scope(|scope| {
            let cancel = redlock_sync::Cancel::new();
            let wait = |name: &'static str| {
                let (waits, cancel) = (&waits, cancel.clone());
                scope.spawn(move || _ = waits.mutex(name).cancel(&cancel).try_lock_for(2 * LONG));
            };
            wait("order:4711");
            browser.until("document.getElementById('counts').textContent.includes('1 wait')");
            thread::sleep(Duration::from_secs(4));
            browser.picture(&shot("dash.png"));
            let is_since = format!("/for \\d+s or more/.test({})", row("order:4711"));
            assert_eq!(browser.value(&is_since), false, "a wide page has a column for it");
            browser.look(PHONE.0, PHONE.1, "dark");
            browser.until(&is_since);
            browser.picture(&shot("dash-phone.png"));
            assert_eq!(browser.value("document.documentElement.scrollWidth"), 390, "nothing is wider than a phone");
            browser.look(WIDE.0, 600, "dark");
            browser.value("document.querySelector('#locks tbody button').click()");
            browser.picture(&shot("dash-details.png"));
            let top = Terminal::start(std::slice::from_ref(&server), (100, 18), "", "top");
            top.until(&["order:4711", "emails"]);
            thread::sleep(Duration::from_secs(3));
            let text = serde_json::to_string(&top.screen()).unwrap();
            browser.go("about:blank");
            browser.look(880, 360, "dark");
            browser.value(&format!(
                "document.body.append(Object.assign(document.createElement('pre'), {{ textContent: {text} }})), document.body.style = \
                 'margin:0;background:#16181c;color:#e6e6e6;font:14px/1.35 DejaVu Sans Mono,monospace;padding:0 16px', 0"
            ));
            browser.picture(&shot("top.png"));
            cancel.cancel();
        });
    });
}

#[test]
fn odd_names_and_a_server_that_is_down() {
    let three = servers(3);
    let locks = client(&three).build().unwrap();
    let names = [
        "锁:订单".to_owned(),
        "a\u{1b}[2J\u{202e}b\nc".to_owned(),
        "<script>alert(1)</script>".to_owned(),
        "x".repeat(1024),
    ];
    let _guards: Vec<_> = names.iter().map(|name| locks.mutex(name).lock().unwrap()).collect();
    let dash = Dash::with(&three, &[]);
    let mut browser = Browser::start();
    browser.look(WIDE.0, WIDE.1, "light");
    browser.go(&dash.origin());
    browser.until(&row("<script>alert(1)</script>"));
    browser.until(&row("a\\u{1b}[2J\\u{202e}b\\nc"));
    // The page has the rules of the library. In these blocks, no newer version of Unicode assigns another character.
    let blocks = ['\0'..'\u{370}', '\u{2000}'..'\u{2072}', '\u{e000}'..'\u{e010}', '\u{fe00}'..'\u{fe10}'];
    let unseen: String = blocks.into_iter().flatten().collect();
    for name in [" a  b ", "a\\u{1b}b", "\u{1d159}\u{1d173}\u{13441}\u{e0001}\u{e0101}\u{f0000}日\u{301}🔒", &unseen]
    {
        let text = serde_json::to_string(name).unwrap();
        let library = [redlock_sync::__private::escaped(name), redlock_sync::__private::printable(name)];
        let page = browser.value(&format!("[escaped({text}), printable({text})]"));
        assert_eq!(page, serde_json::json!(library));
    }
    three[0].kill();
    browser.until("document.querySelector('#servers').innerText.includes('down: ')");
    browser.picture(&shot("dash-odd.png"));
    browser.look(PHONE.0, PHONE.1, "light");
    browser.picture(&shot("dash-odd-phone.png"));
    assert_eq!(browser.value("document.documentElement.scrollWidth"), 390, "nothing is wider than a phone");
    three[1].kill();
    browser.until("document.getElementById('state').textContent.includes('no majority')");
    // The page has not seen the locks since, so it does not count on.
    browser.until("age() > 5000");
    let is_held = "[...document.querySelectorAll('#locks tbody tr')].every((row) => \
                   state.locks.some((lock) => row.cells[3].textContent === `${time(lock.held)} or more`))";
    assert_eq!(browser.value(&format!("show(), {is_held}")), true);
}
