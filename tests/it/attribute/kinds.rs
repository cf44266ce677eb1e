//! `kind = …`, a list of keys, and values that are expressions.

use std::panic::Location;
use std::time::{Duration, Instant};

use redlock_sync::{Error, LostReason, Redlock, assert_locked, distributed_lock};

use super::{is_free, locks, server, steal, while_busy};

#[distributed_lock("kinds:{id}", kind = read, wait = "0s", guard = lock)]
fn reads(id: u8, inside: &dyn Fn()) -> Result<(), Error> {
    lock.check()?;
    inside();
    Ok(())
}

#[distributed_lock("kinds:{id}", kind = write, wait = NO_TIME, fenced = true, guard = lock)]
fn writes(id: u8, inside: &dyn Fn()) -> Result<u64, Error> {
    inside();
    lock.fencing_token()
}

const NO_TIME: Duration = Duration::ZERO;

/// Runs `f` in another thread.
fn elsewhere<R: Send>(f: impl FnOnce() -> R + Send) -> R {
    std::thread::scope(|scope| scope.spawn(f).join().unwrap())
}

#[test]
fn readers_share_and_a_writer_is_alone() {
    let _ = locks();
    let reading = || elsewhere(|| reads(1, &|| ()));
    let writing = || elsewhere(|| writes(1, &|| ()));
    reads(1, &|| {
        assert_eq!(reading(), Ok(()));
        assert!(writing().unwrap_err().is_busy());
    })
    .unwrap();
    let first = writes(1, &|| {
        assert!(reading().unwrap_err().is_busy());
        assert!(writing().unwrap_err().is_busy());
    });
    assert!(writing().unwrap() > first.unwrap());
}

struct Pool {
    locks: Redlock,
    size: u32,
    wait: Duration,
}

impl Pool {
    #[track_caller]
    #[distributed_lock("kinds:pool", kind = semaphore(self.size), wait = self.wait / 2, lease = self.lease(), renew = !self.is_big(), client = self.locks, guard = permit)]
    fn connect(&self, inside: &dyn Fn()) -> Result<(u32, Duration), Error> {
        inside();
        Ok((Location::caller().line(), permit.remaining()))
    }

    fn lease(&self) -> Duration {
        Duration::from_secs(self.size.into())
    }

    fn is_big(&self) -> bool {
        self.size > 100
    }
}

#[distributed_lock("kinds:licence", kind = semaphore(2), wait = "0s", busy = skip)]
fn licensed(inside: &dyn Fn()) -> Result<Option<()>, Error> {
    inside();
    Ok(Some(()))
}

#[test]
fn permits_are_counted() {
    let _ = locks();
    let licensed_elsewhere = || elsewhere(|| licensed(&|| ()));
    let inside = licensed(&|| {
        assert_eq!(licensed_elsewhere(), Ok(Some(())));
        licensed(&|| assert_eq!(licensed_elsewhere(), Ok(None), "a third permit was granted")).unwrap();
    });
    assert_eq!(inside, Ok(Some(())));

    let pool = Pool { locks: locks().clone(), size: 3, wait: Duration::from_millis(20) };
    let connected = pool.connect(&|| {
        let all = [(); 2].map(|()| pool.locks.semaphore("kinds:pool", 3).try_acquire().unwrap());
        assert!(pool.connect(&|| ()).unwrap_err().is_busy(), "a fourth permit after {:?}", pool.wait);
        all.into_iter().try_for_each(redlock_sync::SemaphorePermit::release).unwrap();
    });
    let (line, remaining) = connected.unwrap();
    assert_eq!(line, line!() - 6);
    assert!(remaining <= Duration::from_secs(3) && remaining > Duration::from_secs(1), "{remaining:?}");
    let none = Pool { size: 0, ..pool };
    assert!(matches!(none.connect(&|| ()), Err(Error::Config { .. })), "a semaphore of 0 permits was accepted");
}

#[distributed_lock(["kinds:account:<from>", "kinds:account:<to>"], prefix = "bank:", wait = "0s", renew = false, max_hold = "20s", guard = accounts)]
fn transfer(from: u8, to: u8, inside: &dyn Fn()) -> Result<Vec<String>, Error> {
    assert_locked!("bank:kinds:account:{from}");
    inside();
    accounts.check()?;
    assert!(accounts.remaining() <= Duration::from_secs(20));
    Ok(accounts.keys().map(str::to_owned).collect())
}

#[test]
fn several_keys_are_held_together_or_not_at_all() {
    let _ = locks();
    let key = |id| format!("bank:kinds:account:{id}");
    assert_eq!(transfer(7, 3, &|| ()), Ok(vec![key(3), key(7)]));
    assert_eq!(transfer(4, 4, &|| ()), Ok(vec![key(4)]), "equal keys are not one key");
    while_busy(&key(7), || {
        assert!(transfer(3, 7, &|| ()).unwrap_err().is_busy());
        assert!(is_free(&key(3)));
    });
    let nested = transfer(1, 2, &|| assert!(transfer(2, 3, &|| ()).unwrap_err().is_busy(), "the locks nested"));
    assert_eq!(nested, Ok(vec![key(1), key(2)]));
    let lost = transfer(5, 6, &|| steal(&key(6)));
    assert!(matches!(&lost, Err(Error::Lost { key: lost, reason: LostReason::Taken }) if *lost == key(6)), "{lost:?}");
    assert!(is_free(&key(5)) && is_free(&key(1)));
}

#[distributed_lock("kinds:default", client = locks)]
fn waits_as_the_client_says(locks: &Redlock) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock("kinds:busy", client = locks, busy = skip, failed = error)]
fn skips_what_is_busy(locks: &Redlock) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock("kinds:busy", client = locks, failed = skip)]
fn skips_every_failure(locks: &Redlock) {}

#[test]
fn a_client_can_have_a_default_wait() {
    let patient =
        redlock_tests::patient().node(server().url()).default_wait(Duration::from_millis(50)).build().unwrap();
    waits_as_the_client_says(&patient).unwrap();
    while_busy("kinds:default", || {
        let since = Instant::now();
        assert!(waits_as_the_client_says(&patient).unwrap_err().is_busy());
        assert!(since.elapsed() >= Duration::from_millis(50));
    });
}

#[test]
fn a_default_wait_that_ends_follows_busy() {
    let builder = || Redlock::builder().node(server().url());
    let patient = builder().default_wait(Duration::from_millis(5)).build().unwrap();
    while_busy("kinds:busy", || {
        assert_eq!(skips_what_is_busy(&patient), Ok(()));
        skips_every_failure(&patient); // Without `busy` and `wait`, a busy lock is a failure.
    });
    let gone = Redlock::builder().node("redis://127.0.0.1:1/").default_wait(Duration::from_millis(5)).build().unwrap();
    assert!(skips_what_is_busy(&gone).unwrap_err().is_unavailable());

    let without_end = builder().build().unwrap();
    let Err(Error::Config { message, .. }) = skips_what_is_busy(&without_end) else { panic!("the call did not fail") };
    assert!(message.contains("`busy`") && message.contains("default_wait"), "{message}");
}

#[distributed_lock("kinds:{id}", wait = "1h", unavailable_after = "0s", client = locks)]
fn gives_up_at_once(locks: &Redlock, id: u8) -> Result<(), Error> {
    unreachable!("there is no lock {id}")
}

#[distributed_lock("kinds:{id}", once, unavailable_after = "0s", client = locks)]
fn gives_up_once(locks: &Redlock, id: u8) -> Result<(), Error> {
    unreachable!("there is no lock {id}")
}

#[test]
fn a_wait_can_be_shorter_while_the_servers_are_away() {
    let gone = Redlock::open("redis://127.0.0.1:1/").unwrap();
    assert!(gives_up_at_once(&gone, 1).unwrap_err().is_unavailable());
    assert!(gives_up_once(&gone, 1).unwrap_err().is_unavailable());
    let accounts = gone.multi_lock(["a", "b"]).unavailable_after(Duration::ZERO);
    assert!(accounts.try_lock_for(Duration::MAX).unwrap_err().is_unavailable());
}
