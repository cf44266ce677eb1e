//! Tests of the end of an acquire, and of its reaction to a grant.

use std::time::Duration;

use redlock_tests::{Server, servers};

use super::*;
use crate::clock::SystemClock;
use crate::handover::listener::Notification;
use crate::key::Key;
use crate::lease::{Lease, PendingRelease};
use crate::lock::handle::Handle;
use crate::options::{ClientOptions, LockOptions, Retry};
use crate::protocol::reply::{Acquired, QueuePlace, Vote};
use crate::protocol::{Exclusive, Protocol, WaitArgs};
use crate::quorum::Ballot;
use crate::tests::quorum;

const LONG: Duration = Duration::from_secs(60);
/// The length of a grant, and of a lease whose length does not matter.
const LEASE: Duration = Duration::from_secs(30);
const TIMEOUT: Duration = Duration::from_secs(2);

fn client(urls: &[String]) -> Arc<ClientInner> {
    let settings = ClientOptions { node_timeout: TIMEOUT, ..ClientOptions::default() };
    ClientInner::new(quorum(urls.iter().cloned(), settings, Arc::new(SystemClock)))
}

/// A client whose server is never asked.
fn idle() -> Arc<ClientInner> {
    client(&["redis://127.0.0.1:1/".to_owned()])
}

fn request(options: LockOptions) -> Request {
    let key = Key::new("", "k").unwrap();
    Request { protocol: Arc::new(Protocol::Mutex(Exclusive { key: key.clone() })), key, options: options.into() }
}

fn ballot(client: &ClientInner, votes: Vec<Vote<Acquired>>) -> Ballot<Acquired> {
    Ballot { votes: votes.into(), started: client.quorum.now(), duplicate: false }
}

fn busy() -> Error {
    Error::Busy { key: "k".into(), expires_in: None, by_this_thread: false, is_latch: false }
}

fn unavailable() -> Error {
    Error::Unavailable { op: "acquire", key: "k".into(), of: 1, nodes: Vec::new() }
}

#[test]
fn an_acquire_gives_up_when_nothing_can_help() {
    let ends = |unavailable_after, wait, error: &Error| {
        let request = request(LockOptions { unavailable_after, ..LockOptions::default() });
        let client = idle();
        let mut acquire = AcquireLoop::new(&client, &request, wait);
        acquire.is_fatal(error, client.quorum.now())
    };
    let (none, long) = (Duration::ZERO, LONG * 60);
    let until = MaxWait::Until(Tick::NEVER);
    assert!(!ends(none, MaxWait::Forever, &busy()));
    assert!(ends(none, MaxWait::Forever, &unavailable()));
    assert!(!ends(long, MaxWait::Forever, &unavailable()));
    assert!(ends(none, until, &unavailable()), "the shorter of both counts");
    assert!(!ends(long, until, &unavailable()));
    assert!(ends(long, MaxWait::Until(Tick::ZERO), &unavailable()));
    for hopeless in [Error::Closed, Error::config("no".to_owned())] {
        assert!(ends(long, until, &hopeless), "{hopeless}");
    }
}

#[test]
fn a_busy_lock_ends_an_outage() {
    let client = idle();
    let request = request(LockOptions::default());
    let mut acquire = AcquireLoop::new(&client, &request, MaxWait::Until(Tick::NEVER));
    let first = client.quorum.now();
    acquire.is_fatal(&unavailable(), first);
    acquire.is_fatal(&busy(), first);
    let next = client.quorum.now();
    assert_eq!(client.unavailable_since("k", next, &unavailable()), next);
}

/// Servers, and a client that gets a grant from them while it waits.
struct Mail {
    servers: Vec<Server>,
    client: Arc<ClientInner>,
}

const RANDOM: &str = "0123456789abcdef0123456789abcdef";

impl Mail {
    fn new(nodes: usize) -> Mail {
        let servers = servers(nodes);
        let urls: Vec<String> = servers.iter().map(Server::url).collect();
        Mail { client: client(&urls), servers }
    }

    /// Gives the wait a grant. Returns true if the wait gets a lease, and false if an attempt has to decide.
    fn open(&self, options: LockOptions, lease: Duration) -> bool {
        self.open_after(Duration::ZERO, options, lease)
    }

    /// Like `open`, but the grant comes at this time after the attempt that entered the wait.
    fn open_after(&self, age: Duration, options: LockOptions, lease: Duration) -> bool {
        let request = request(options);
        let mut acquire = AcquireLoop::new(&self.client, &request, MaxWait::Forever);
        let entered = Vote::Taken { token: "other".into(), ttl: None, place: QueuePlace::New };
        let mut ballot = ballot(&self.client, vec![entered; self.servers.len()]);
        ballot.started = ballot.started.before(age);
        // The state after an attempt that entered the wait under this id.
        acquire.wait.evidence.record(&ballot, true);
        acquire.wait.begin().id = Some(format!("redlock-sync:1/7 {RANDOM}").into());
        let granted = LockId::granted(RANDOM, "redlock-sync:1/7");
        self.servers.iter().for_each(|server| server.set("k", granted.as_str()));
        let notification = Notification { fence: 0, time: lease, random: Some(RANDOM.into()), key: Some("k".into()) };
        match acquire.lease_from_grant(&notification) {
            Some(lease) => {
                assert_eq!(lease.id(), &granted);
                lease.check().unwrap();
                // The lease is not released, so that the next wait finds the keys unchanged.
                std::mem::forget(lease);
                true
            }
            None => false,
        }
    }
}

#[test]
fn a_grant_is_the_lock_on_one_node_and_a_reservation_on_several() {
    assert!(Mail::new(1).open(LockOptions::default(), LEASE));
    assert!(!Mail::new(3).open(LockOptions::default(), LEASE));
}

/// Tries every combination of settings. A grant is accepted without an attempt only if the attempt would have the same
/// result.
#[test]
fn a_grant_that_is_not_what_was_asked_for_takes_an_attempt() {
    let mail = Mail::new(1);
    let both = [false, true];
    let mut held = 0;
    for lease in [LEASE, LEASE / 2, LEASE * 2, Duration::from_millis(500)] {
        for bits in 0..32_u32 {
            let [renew, min_hold, max_hold, max_renewals, own_id] =
                [0, 1, 2, 3, 4].map(|bit| both[(bits >> bit & 1) as usize]);
            let options = LockOptions {
                lease,
                renew,
                min_hold: if min_hold { lease / 3 } else { Duration::ZERO },
                max_hold: max_hold.then_some(lease),
                max_renewals: max_renewals.then_some(0),
                holder_name: own_id.then(|| "me".into()),
                ..LockOptions::default()
            };
            let is_plain = renew && !min_hold && !max_hold && !max_renewals && !own_id && lease == LEASE;
            assert_eq!(mail.open(options.clone(), LEASE), is_plain, "{options:?}");
            held += usize::from(is_plain);
        }
    }
    assert_eq!(held, 1);
}

#[test]
fn a_grant_that_may_be_old_takes_an_attempt() {
    let mail = Mail::new(1);
    for (age, held) in [(LEASE / 4, true), (LEASE / 2, true), (LEASE * 7 / 10, false), (LEASE * 2, false)] {
        assert_eq!(mail.open_after(age, LockOptions::default(), LEASE), held, "{age:?}");
    }
    let short = LockOptions { lease: Duration::from_millis(1), ..LockOptions::default() };
    assert!(!mail.open(short, Duration::from_millis(1)), "too little would be left");
}

#[test]
fn a_grant_to_a_closed_client_is_given_up() {
    let mail = Mail::new(1);
    assert_eq!(mail.client.end(Duration::ZERO).map(|given_up| given_up.keys.len()), Ok(0));
    assert!(!mail.open(LockOptions::default(), LEASE));
    assert_eq!(mail.servers[0].get("k"), None);
}

#[test]
fn retries_that_are_counted_end_with_their_count() {
    let mail = Mail::new(1);
    mail.servers[0].set("k", "other");
    let options =
        LockOptions { retry: Retry::every(Duration::from_millis(1)).max_attempts(3), ..LockOptions::default() };
    let error = acquire(&mail.client, &request(options), MaxWait::Forever).map(drop).unwrap_err();
    assert!(error.is_busy(), "{error}");
}

// --- a lock that is acquired without waiting -------------------------------------------------------------------------

fn plain_request() -> Request {
    request(LockOptions { lease: LEASE, ..LockOptions::default() })
}

fn try_lock(client: &Arc<ClientInner>) -> Result<Lease, Error> {
    acquire(client, &plain_request(), MaxWait::No)
}

#[test]
fn a_free_lock_for_which_only_dead_waits_are_queued_is_free_for_others() {
    let mail = Mail::new(1);
    mail.servers[0].ask::<()>(redis::cmd("ZADD").arg(plain_request().key.queue()).arg(1).arg("redlock-sync:0/1 1f"));
    try_lock(&mail.client).unwrap().check().unwrap();
}

/// A late copy of an acquire sets its token after the release was confirmed. Nothing but an attempt finds it.
#[test]
fn a_lock_that_is_held_by_a_pending_token_is_free() {
    for nodes in [1, 3] {
        let mail = Mail::new(nodes);
        let late = mail.client.tokens.fresh(None).unwrap();
        let comes = || mail.servers.iter().for_each(|server| server.set("k", late.as_str()));
        comes();
        assert!(try_lock(&mail.client).map(drop).unwrap_err().is_busy());
        let Request { key, protocol, .. } = plain_request();
        let ends = mail.client.quorum.now().after(LONG);
        let pending = PendingRelease::of_token(protocol, key.name(), late.clone(), ends, vec![true; nodes]);
        mail.client.pending.add(PendingRelease { repeats: false, ..pending });
        let until = MaxWait::Until(mail.client.quorum.now().after(LEASE));
        for wait in [MaxWait::No, until, MaxWait::No, until] {
            comes();
            let lease = acquire(&mail.client, &plain_request(), wait).unwrap();
            lease.check().unwrap();
            lease.release().unwrap();
        }
    }
}

/// The release of the pending token frees another key.
#[test]
fn an_attempt_is_not_repeated_for_ever_if_the_release_frees_nothing() {
    let mail = Mail::new(1);
    let id = mail.client.tokens.fresh(None).unwrap();
    let now = mail.client.quorum.now();
    let protocol = Arc::new(Protocol::Mutex(Exclusive { key: Key::new("", "other").unwrap() }));
    mail.servers[0].set("k", id.as_str());
    let pending = PendingRelease::of_token(protocol, &"k".into(), id, now.after(LONG), vec![true]);
    mail.client.pending.add(PendingRelease { repeats: false, ..pending });
    assert!(try_lock(&mail.client).map(drop).unwrap_err().is_busy());
    let until = MaxWait::Until(now.after(Duration::from_secs(2)));
    assert!(acquire(&mail.client, &plain_request(), until).map(drop).unwrap_err().is_busy());
    let stats: String = mail.servers[0].ask(redis::cmd("INFO").arg("commandstats"));
    let calls = stats.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls=")?.split(',').next());
    let calls: usize = calls.unwrap().parse().unwrap();
    assert!(calls < 60, "{calls} attempts and releases");
}

#[test]
fn a_wait_that_may_be_queued_is_taken_out_by_the_release() {
    let mail = Mail::new(1);
    let queue = plain_request().key.queue().to_owned();
    for (keeps_wait, left) in [(false, 1), (true, 0)] {
        mail.servers[0].ask::<()>(&redis::cmd("FLUSHALL"));
        let wait = Some(WaitArgs { id: "redlock-sync:0/1 1f", stays: LEASE });
        let options = AttemptOptions { wait, keeps_wait, ..AttemptOptions::default() };
        let lease = attempt(&mail.client, &plain_request(), &options, mail.client.quorum.round_deadline())
            .unwrap_or_else(|refusal| panic!("{}", refusal.error));
        // The entry is like one of a late copy of an attempt.
        mail.servers[0].ask::<()>(redis::cmd("ZADD").arg(&queue).arg(2).arg("redlock-sync:0/1 1f"));
        mail.servers[0].ask::<()>(redis::cmd("ZADD").arg(&queue).arg(1).arg("-another 2f"));
        lease.release().unwrap();
        let queued: usize = mail.servers[0].ask(redis::cmd("ZCARD").arg(&queue));
        assert_eq!(queued, left, "{keeps_wait}");
    }
}

fn handle(client: &Arc<ClientInner>) -> Handle {
    let key = Ok(plain_request().key);
    Handle::new(Arc::clone(client), key, Arc::default(), |key| Protocol::Mutex(Exclusive { key }))
}

#[test]
fn the_end_of_a_client_gives_up_what_it_holds() {
    let mail = Mail::new(1);
    let other = {
        let key = Key::new("", "other").unwrap();
        let request = Request {
            protocol: Arc::new(Protocol::Mutex(Exclusive { key: key.clone() })),
            key,
            options: Arc::default(),
        };
        acquire(&mail.client, &request, MaxWait::No).unwrap()
    };
    let lease = try_lock(&mail.client).unwrap();
    let handle = handle(&mail.client);
    let holder = || handle.inspect();
    let unlock_all = || mail.client.unlock_all().map(|given_up| given_up.keys.len());
    assert_eq!(holder().unwrap()[0].id, *lease.id());
    assert_eq!(unlock_all(), Ok(2));
    assert_eq!((lease.check().is_err(), other.check().is_err()), (true, true));
    assert_eq!((holder(), unlock_all()), (Ok(vec![]), Ok(0)));
    let lease = try_lock(&mail.client).unwrap();
    assert_eq!(mail.client.end(Duration::ZERO).unwrap().keys, ["k"]);
    assert!(lease.check().is_err() && mail.servers[0].get("k").is_none());
    assert_eq!((holder(), unlock_all()), (Err(Error::Closed), Err(Error::Closed)));
    assert_eq!(try_lock(&mail.client).map(drop), Err(Error::Closed));
}

#[test]
fn without_a_majority_the_holder_is_not_known() {
    let mail = Mail::new(3);
    mail.servers[1..].iter().for_each(Server::kill);
    let error = handle(&mail.client).inspect().unwrap_err();
    assert!(matches!(error, Error::Unavailable { op: "inspect", of: 3, .. }), "{error}");
}
