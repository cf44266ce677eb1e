//! A worker of a queue of tasks, to be killed.

use std::io::{Read, Write, stdin, stdout};
use std::thread;
use std::time::Duration;

use redlock_sync::{Job, Redlock, Retry, Verdict};

/// `queue URL`: four threads handle the tasks of the queue `q` until the end of stdin. Of each claim one line is printed, and one of each end:
/// `claimed ID FENCE`, `acked ID FENCE`, `refused ID FENCE`.
pub(crate) fn main(args: &[String]) {
    let [url] = args else { panic!("a URL is wanted, not {args:?}") };
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
    locks.close().unwrap();
    for thread in threads {
        thread.join().unwrap();
    }
    // A worker of the library ends as well.
    assert!(mails.worker(1, |_: &Job| Verdict::Done).is_err());
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
