//! A worker of a queue of tasks, which a test kills.

use std::io::{Read, Write, stdin, stdout};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use redlock_sync::{Error, Job, Redlock, Retry, Verdict};
use redlock_tests::{ended, fork};
use rustix::process::{Signal, kill_process};

/// A time that is longer than any operation here.
const GRACE: Duration = Duration::from_secs(60);

/// `queue URL`: four threads handle the tasks of the queue `q` until the end of stdin. They print a line for each claim
/// and each end: `claimed ID FENCE`, `acked ID FENCE` or `refused ID FENCE`.
///
/// `queue fork URL`: a forked child ends its copies of workers that have tasks under way.
pub(crate) fn main(args: &[String]) {
    match args {
        [url] => work_on(url),
        [what, url] if what == "fork" => copies(url),
        other => panic!("a URL is wanted, not {other:?}"),
    }
}

fn work_on(url: &str) {
    let locks = Redlock::builder().node(url).node_timeout(Duration::from_millis(400)).build().unwrap();
    let retry = Retry::every(Duration::from_millis(1)).max_attempts(100);
    let mails = locks.queue("q").lease(Duration::from_millis(1200)).retry(retry);
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let mails = mails.clone();
            thread::spawn(move || {
                while let Ok(job) = mails.claim() {
                    work(job);
                }
            })
        })
        .collect();
    stdin().read_to_end(&mut Vec::new()).unwrap();
    locks.shutdown(Duration::ZERO).unwrap();
    for thread in threads {
        thread.join().unwrap();
    }
    // After a shutdown, the queue starts no worker.
    assert!(mails.worker(1, |_: &Job| Verdict::Done).is_err());
}

fn copies(url: &str) {
    let mails = Redlock::open(url).unwrap().queue("forked");
    let (tell, begun) = mpsc::channel();
    let [first, second] = [0, 1].map(|_| {
        let tell = tell.clone();
        mails.push("a task that takes long").unwrap();
        let hang = move |_: &Job| {
            tell.send(()).unwrap();
            thread::sleep(2 * GRACE);
        };
        mails.worker(2, hang).unwrap()
    });
    for _ in 0..2 {
        begun.recv_timeout(GRACE).unwrap();
    }
    let forked = Instant::now();
    let child = fork(|| {
        assert_eq!(first.join(), Err(Error::Closed));
        assert_eq!(second.stop(GRACE), 0);
    });
    let status = loop {
        if let Some(status) = ended(child) {
            break status;
        }
        if forked.elapsed() > GRACE / 2 {
            kill_process(child, Signal::KILL).unwrap();
            panic!("the child waits for threads that it does not have");
        }
        thread::sleep(Duration::from_millis(5));
    };
    assert!(status.success(), "the child died: {status}");
}

fn work(job: Job) {
    let (id, fence) = (job.id().to_owned(), job.fencing_token().unwrap());
    say("claimed", &id, fence);
    thread::sleep(Duration::from_millis(80));
    let what = if job.ack().is_ok() { "acked" } else { "refused" };
    say(what, &id, fence);
}

fn say(what: &str, id: &str, fence: u64) {
    let mut out = stdout().lock();
    writeln!(out, "{what} {id} {fence}").unwrap();
    out.flush().unwrap();
}
