//! Functions that run once for each key.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use redlock_sync::{Error, RunOutcome, distributed_lock};
use redlock_tests::eventually;

use super::{is_free, locks, server, steal, while_busy};

/// Whether the job of this key is done.
fn is_done(key: &str) -> bool {
    locks().once(key).is_done().unwrap()
}

#[distributed_lock("once:{date}", once)]
fn plain(date: &str, outcome: Result<(), Error>, runs: &mut u32) -> Result<(), Error> {
    *runs += 1;
    outcome
}

#[test]
fn a_success_is_not_run_again_and_a_failure_is() {
    let _ = locks();
    let mut runs = 0;
    assert_eq!(plain("a", Err(Error::Closed), &mut runs), Err(Error::Closed));
    assert!(!is_done("once:a") && is_free("once:a"));
    assert_eq!(plain("a", Ok(()), &mut runs), Ok(()));
    assert_eq!(plain("a", Err(Error::Closed), &mut runs), Ok(()), "the body ran again");
    assert_eq!(runs, 2);
    assert!(is_done("once:a") && is_free("once:a"));
    let busy = while_busy("once:b", || plain("b", Ok(()), &mut runs));
    assert!(busy.unwrap_err().is_busy());
    assert_eq!(runs, 2);
}

#[distributed_lock("once:lost:{date}", once, done = nine, client = locks(), guard = lease)]
fn loses_or_nine(date: &str) -> Result<u8, Error> {
    steal(lease.key());
    lease.check().map(|()| 7)
}

#[allow(clippy::unnecessary_wraps, reason = "as the function in whose place it is called")]
fn nine(_: &str) -> Result<u8, Error> {
    Ok(9)
}

#[test]
fn a_lock_that_was_lost_is_an_error() {
    let _ = locks();
    assert!(loses_or_nine("a").unwrap_err().is_lost());
    server().del("once:lost:a");
    // The body had ended before the loss was known, so the job is done.
    assert_eq!(loses_or_nine("a"), Ok(9));
}

#[distributed_lock("once:value:{number}", once, remember = "1h30m", lease = "5s", busy = skip, failed = panic)]
fn value(number: u8, panics: bool) -> Option<u8> {
    assert!(!panics, "of the body");
    Some(number)
}

#[test]
fn what_is_no_result_succeeds_unless_it_panics() {
    let _ = locks();
    catch_unwind(AssertUnwindSafe(|| value(1, true))).unwrap_err();
    // A panic drops the guard, which does not wait for the server.
    eventually("the lock is free", Duration::from_secs(20), || is_free("once:value:1"));
    assert!(!is_done("once:value:1"));
    assert_eq!(value(1, false), Some(1));
    let left = server().pttl("{once:value:1}:done").unwrap();
    assert!(left <= Duration::from_secs(90 * 60) && left > Duration::from_secs(89 * 60), "{left:?}");
    assert_eq!(value(1, true), None);
    assert_eq!(while_busy("once:value:2", || value(2, true)), None);
}

#[distributed_lock("once:nested:{name}", once, busy = skip)]
fn nested(name: &str, depth: u8, runs: &mut u32) -> Result<(), Error> {
    *runs += 1;
    if depth > 0 { nested(name, depth - 1, runs) } else { Ok(()) }
}

#[test]
fn a_call_within_its_own_body_is_not_skipped_as_busy() {
    let (_, mut runs) = (locks(), 0);
    assert!(matches!(nested("a", 1, &mut runs), Err(Error::WouldDeadlock { key }) if key == "once:nested:a"));
    assert!(!is_done("once:nested:a") && is_free("once:nested:a"));
    assert_eq!((nested("a", 0, &mut runs), runs), (Ok(()), 2));
}

struct Reports {
    remember: Duration,
}

impl Reports {
    #[distributed_lock("once:method:{id}", once, remember = self.remember, done = Self::before, busy = Self::before)]
    #[track_caller]
    fn write(&self, id: u8, text: String) -> Result<String, Error> {
        if text.is_empty() { Err(Error::Closed) } else { Ok(text) }
    }

    #[allow(
        clippy::unnecessary_wraps,
        clippy::unused_self,
        clippy::needless_pass_by_value,
        reason = "as the method in whose place it is called"
    )]
    fn before(&self, id: u8, text: String) -> Result<String, Error> {
        Ok(format!("{id}: not {text}"))
    }
}

#[test]
fn a_method_can_have_fallbacks() {
    let _ = locks();
    let reports = Reports { remember: Duration::from_secs(60) };
    let write = |text: &str| reports.write(1, text.to_owned());
    assert_eq!(while_busy("once:method:1", || write("a")), Ok("1: not a".to_owned()));
    assert_eq!(write(""), Err(Error::Closed));
    assert_eq!(write("b"), Ok("b".to_owned()));
    assert_eq!(write("c"), Ok("1: not c".to_owned()));
    let wrong = Reports { remember: Duration::ZERO }.write(2, "d".to_owned());
    assert!(matches!(wrong, Err(Error::Config { .. })));
}

#[distributed_lock("once:waits:{name}", once, wait = "30s")]
fn waits(name: &str, runs: &mut u32) -> Result<(), Error> {
    *runs += 1;
    Ok(())
}

#[distributed_lock("once:waits:{name}", once, wait = Duration::from_millis(1), busy = skip)]
fn waits_briefly(name: &str) -> Result<(), Error> {
    panic!("{name} runs")
}

#[test]
fn a_call_with_wait_waits_for_the_other_run() {
    let (_, mut runs) = (locks(), 0);
    assert_eq!(while_busy("once:waits:b", || waits_briefly("b")), Ok(()));
    let elsewhere = redlock_tests::open(server().url());
    let (say, said) = mpsc::channel();
    thread::scope(|scope| {
        let other = scope.spawn(move || {
            elsewhere.once("once:waits:a").run(|_| {
                say.send(()).unwrap();
                let is_queue = |key: &String| key == "{once:waits:a}:waits";
                eventually("the call waits", Duration::from_secs(20), || server().keys().iter().any(is_queue));
                Ok::<_, Error>(1)
            })
        });
        said.recv().unwrap();
        assert_eq!((waits("a", &mut runs), runs), (Ok(()), 0), "the body ran again");
        assert_eq!(other.join().unwrap(), Ok(RunOutcome::Ran(1)));
    });
    assert_eq!((waits("c", &mut runs), runs), (Ok(()), 1));
}
