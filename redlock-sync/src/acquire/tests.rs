//! What an engine remembers of outages, when a contender gives up, and what it makes of a grant.

use redlock_tests::{Server, servers};

use super::compete::Outcome;
use super::*;
use crate::clock::SystemClock;
use crate::config::{Limits, Pauses, Retry};
use crate::ear::Pushed;
use crate::lock::plain::Plain;
use crate::quorum::Place;
use crate::tests::quorum;

const LONG: Duration = Duration::from_secs(60);
/// Of a grant, and of a lease that is not chosen.
const SPAN: Duration = Duration::from_secs(30);
const TIMEOUT: Duration = Duration::from_secs(2);

fn engine(urls: &[String], unavailable_after: Duration) -> Arc<Engine> {
    let limits = Limits { unavailable_after, node_timeout: TIMEOUT, ..Limits::default() };
    Engine::new(quorum(urls.iter().cloned(), limits, Arc::new(SystemClock)))
}

/// Its server is never asked for anything.
fn idle(unavailable_after: Duration) -> Arc<Engine> {
    engine(&["redis://127.0.0.1:1/".to_owned()], unavailable_after)
}

fn request(terms: Terms) -> Request {
    let key = Key::new("", "k", 100).unwrap();
    Request { primitive: Arc::new(Plain { key: key.clone() }), key, terms }
}

fn taken(token: &LockId) -> Vote {
    Vote::taken(token.as_str().to_owned(), Some(SPAN))
}

fn ballot(engine: &Engine, votes: Vec<Vote>) -> Ballot {
    Ballot { votes, started: engine.quorum.now(), ghost: false }
}

fn busy() -> Error {
    Error::Busy { key: "k".into(), expires_in: None, by_this_thread: false }
}

fn unavailable() -> Error {
    Error::Unavailable { op: "acquire", key: "k".into(), of: 1, nodes: Vec::new() }
}

#[test]
fn a_refusal_tells_if_others_wait_for_a_free_lock_and_if_it_is_clean() {
    let engine = idle(LONG);
    let refusal = |error, votes| Refusal { error, ballot: Some(ballot(&engine, votes)) };
    let free = || Vote::taken(String::new(), Some(Duration::ZERO));
    let held = || taken(&engine.mint.fresh(None).unwrap().0);
    assert!(refusal(busy(), vec![held(), free(), Vote::Absent]).is_queued());
    assert!(!refusal(busy(), vec![held(), held(), Vote::Absent]).is_queued());
    assert!(!refusal(unavailable(), vec![free()]).is_queued());
    assert!(!Refusal { error: busy(), ballot: None }.is_queued());
    assert!(refusal(busy(), vec![held(), free()]).is_clean());
    assert!(!refusal(busy(), vec![held(), Vote::Yes { fence: 0 }]).is_clean());
    assert!(!Refusal { error: busy(), ballot: None }.is_clean());
}

#[test]
fn an_outage_goes_on_from_attempt_to_attempt_until_it_is_over() {
    let engine = idle(LONG);
    let first = engine.quorum.now();
    assert_eq!(engine.outage_since(first, &unavailable()), first);
    assert_eq!(engine.outage_since(engine.quorum.now(), &unavailable()), first);
    let much_later = engine.quorum.now().after(SAME_OUTAGE * 10);
    assert_eq!(engine.outage_since(much_later, &unavailable()), much_later, "no attempt failed in between");
    engine.outage_is_over();
    let next = engine.quorum.now();
    assert_eq!(engine.outage_since(next, &unavailable()), next);
}

#[test]
fn a_contender_gives_up_when_nothing_can_help() {
    let request = request(Terms::default());
    let ends = |patience, wait, error: &Error| {
        let engine = idle(patience);
        let mut contender = Contender::new(&engine, &request, wait, Tick::NEVER, Pauses::default());
        contender.ends_with(error, engine.quorum.now())
    };
    let (none, long) = (Duration::ZERO, LONG * 60);
    let until = Wait::Until(Tick::NEVER);
    assert!(!ends(none, Wait::Forever, &busy()));
    assert!(ends(none, Wait::Forever, &unavailable()));
    assert!(!ends(long, Wait::Forever, &unavailable()));
    assert!(!ends(none, until, &unavailable()), "it has a deadline of its own");
    for hopeless in [Error::Closed, Error::config("no".to_owned())] {
        assert!(ends(long, until, &hopeless), "{hopeless}");
    }
}

#[test]
fn a_busy_lock_ends_an_outage() {
    let engine = idle(Duration::ZERO);
    let request = request(Terms::default());
    let mut contender = Contender::new(&engine, &request, Wait::Until(Tick::NEVER), Tick::NEVER, Pauses::default());
    let first = engine.quorum.now();
    contender.ends_with(&unavailable(), first);
    contender.ends_with(&busy(), first);
    let next = engine.quorum.now();
    assert_eq!(engine.outage_since(next, &unavailable()), next);
}

/// What a wait makes of a grant to it.
struct Mail {
    servers: Vec<Server>,
    engine: Arc<Engine>,
}

const RANDOM: &str = "0123456789abcdef0123456789abcdef";

impl Mail {
    fn new(nodes: usize) -> Mail {
        let servers = servers(nodes);
        let urls: Vec<String> = servers.iter().map(Server::url).collect();
        Mail { engine: engine(&urls, LONG), servers }
    }

    /// True for a lease; false if an attempt has to decide.
    fn open(&self, terms: Terms, span: Duration) -> bool {
        self.open_after(Duration::ZERO, terms, span)
    }

    /// The same, with a grant that comes so long after the attempt that entered the wait.
    fn open_after(&self, age: Duration, terms: Terms, span: Duration) -> bool {
        let request = request(terms);
        let mut contender = Contender::new(&self.engine, &request, Wait::Forever, Tick::NEVER, Pauses::default());
        let entered = Vote::Taken { token: "other".into(), ttl: None, place: Place::New };
        let mut ballot = ballot(&self.engine, vec![entered; self.servers.len()]);
        ballot.started = ballot.started.before(age);
        contender.enter_as("redlock-sync:1/7", &ballot);
        let granted = LockId::granted(RANDOM, "redlock-sync:1/7");
        self.servers.iter().for_each(|server| server.set("k", granted.as_str()));
        let pushed = Pushed { fence: 0, span, age: Duration::ZERO, pauses: Pauses(0), random: Some(RANDOM.into()) };
        match contender.open(RANDOM, &pushed) {
            Outcome::Granted(lease) => {
                assert_eq!(lease.id(), &granted);
                lease.check().unwrap();
                // Not released: the next one is to find it as it is.
                std::mem::forget(lease);
                true
            }
            Outcome::Up => false,
        }
    }
}

#[test]
fn a_grant_is_the_lock_on_one_node_and_a_ticket_on_several() {
    assert!(Mail::new(1).open(Terms::default(), SPAN));
    assert!(!Mail::new(3).open(Terms::default(), SPAN));
}

/// Every combination of settings: a grant is held as it stands only where it is what an attempt would have brought.
#[test]
fn a_grant_that_is_not_what_was_asked_for_takes_an_attempt() {
    let mail = Mail::new(1);
    let both = [false, true];
    let mut held = 0;
    for lease in [SPAN, SPAN / 2, SPAN * 2, Duration::from_millis(500)] {
        for bits in 0..32_u32 {
            let [renew, at_least, max_hold, max_renewals, own_id] =
                [0, 1, 2, 3, 4].map(|bit| both[(bits >> bit & 1) as usize]);
            let terms = Terms {
                lease,
                renew,
                at_least: if at_least { lease / 3 } else { Duration::ZERO },
                max_hold: max_hold.then_some(lease),
                max_renewals: max_renewals.then_some(0),
                lock_id: own_id.then(|| "me".into()),
                ..Terms::default()
            };
            let is_plain = renew && !at_least && !max_hold && !max_renewals && !own_id && lease == SPAN;
            assert_eq!(mail.open(terms.clone(), SPAN), is_plain, "{terms:?}");
            held += usize::from(is_plain);
        }
    }
    assert_eq!(held, 1);
}

#[test]
fn a_grant_that_may_be_old_takes_an_attempt() {
    let mail = Mail::new(1);
    for (age, held) in [(SPAN / 4, true), (SPAN / 2, true), (SPAN * 7 / 10, false), (SPAN * 2, false)] {
        assert_eq!(mail.open_after(age, Terms::default(), SPAN), held, "{age:?}");
    }
    let short = Terms { lease: Duration::from_millis(1), ..Terms::default() };
    assert!(!mail.open(short, Duration::from_millis(1)), "too little would be left");
}

#[test]
fn a_grant_to_a_closed_client_is_given_up() {
    let mail = Mail::new(1);
    assert_eq!(mail.engine.close(), Ok(0));
    assert!(!mail.open(Terms::default(), SPAN));
    assert_eq!(mail.servers[0].get("k"), None);
}

#[test]
fn retries_that_are_counted_end_with_their_count() {
    let mail = Mail::new(1);
    mail.servers[0].set("k", "other");
    let terms = Terms { retry: Retry::every(Duration::from_millis(1)).max_attempts(3), ..Terms::default() };
    let error = mail.engine.acquire(&request(terms), Wait::Forever).map(drop).unwrap_err();
    assert!(error.is_busy(), "{error}");
}

// --- the engine ---------------------------------------------------------------------------------------------------------

fn plain_request() -> Request {
    request(Terms { lease: SPAN, ..Terms::default() })
}

fn try_lock(engine: &Arc<Engine>) -> Result<Lease, Error> {
    engine.acquire(&plain_request(), Wait::No)
}

#[test]
fn a_free_lock_for_which_only_the_dead_wait_is_free_for_those_who_do_not() {
    let mail = Mail::new(1);
    mail.servers[0].ask::<()>(redis::cmd("ZADD").arg(plain_request().key.queue()).arg(1).arg("redlock-sync:0/1"));
    try_lock(&mail.engine).unwrap().check().unwrap();
}

#[test]
fn a_lock_that_stands_on_a_ticket_is_free() {
    let mail = Mail::new(3);
    let ghost = mail.engine.mint.fresh(None).unwrap().0;
    mail.servers.iter().for_each(|server| server.set("k", ghost.as_str()));
    assert!(try_lock(&mail.engine).map(drop).unwrap_err().is_busy());
    let (key, now) = (plain_request().key, mail.engine.quorum.now());
    mail.engine.lines.add_ticket(key.name(), ghost.clone(), now.after(SPAN));
    // This one refuses: it may go on standing on the ticket.
    mail.servers[2].fill();
    let lease = try_lock(&mail.engine).unwrap();
    assert_eq!(mail.engine.lines.tickets(key.name()), std::slice::from_ref(&ghost));
    mail.servers[2].unfill();
    lease.finish().unwrap();
    try_lock(&mail.engine).unwrap().finish().unwrap();
    assert!(mail.engine.lines.tickets(key.name()).is_empty(), "all have had another one since");
}

#[test]
fn a_wait_that_may_be_queued_is_taken_out_by_the_release() {
    let mail = Mail::new(1);
    let queue = plain_request().key.queue().to_owned();
    for (keeps_wait, left) in [(false, 1), (true, 0)] {
        mail.servers[0].ask::<()>(&redis::cmd("FLUSHALL"));
        let entry = Some(Entry { id: "redlock-sync:0/1", stays: SPAN });
        let what = Try { entry, keeps_wait, ..Try::default() };
        let lease = mail
            .engine
            .attempt(&plain_request(), &what, mail.engine.quorum.round_deadline())
            .unwrap_or_else(|refusal| panic!("{}", refusal.error));
        // As a late copy of an attempt would.
        mail.servers[0].ask::<()>(redis::cmd("ZADD").arg(&queue).arg(2).arg("redlock-sync:0/1"));
        mail.servers[0].ask::<()>(redis::cmd("ZADD").arg(&queue).arg(1).arg("-another"));
        lease.finish().unwrap();
        let queued: usize = mail.servers[0].ask(redis::cmd("ZCARD").arg(&queue));
        assert_eq!(queued, left, "{keeps_wait}");
    }
}

#[test]
fn the_end_of_a_client_gives_up_what_it_holds() {
    let mail = Mail::new(1);
    let other = {
        let key = Key::new("", "other", 100).unwrap();
        let request = Request { primitive: Arc::new(Plain { key: key.clone() }), key, terms: Terms::default() };
        mail.engine.acquire(&request, Wait::No).unwrap()
    };
    let lease = try_lock(&mail.engine).unwrap();
    let inspect = Plain { key: plain_request().key }.inspect();
    let holder = || mail.engine.holder(&plain_request().key, &inspect);
    assert_eq!(holder().unwrap().map(|holder| holder.id), Some(lease.id().clone()));
    assert_eq!(mail.engine.unlock_all(), Ok(2));
    assert_eq!((lease.check().is_err(), other.check().is_err()), (true, true));
    assert_eq!((holder(), mail.engine.unlock_all()), (Ok(None), Ok(0)));
    let lease = try_lock(&mail.engine).unwrap();
    assert_eq!(mail.engine.close(), Ok(1));
    assert!(lease.check().is_err() && mail.servers[0].get("k").is_none());
    assert_eq!((holder(), mail.engine.unlock_all()), (Err(Error::Closed), Err(Error::Closed)));
    assert_eq!(try_lock(&mail.engine).map(drop), Err(Error::Closed));
}

#[test]
fn without_a_majority_nobody_can_say_who_holds_it() {
    let mail = Mail::new(3);
    let key = plain_request().key;
    let inspect = Plain { key: key.clone() }.inspect();
    mail.servers[1..].iter().for_each(Server::kill);
    let error = mail.engine.holder(&key, &inspect).unwrap_err();
    assert!(matches!(error, Error::Unavailable { op: "inspect", of: 3, .. }), "{error}");
}
