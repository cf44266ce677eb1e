//! Valid and invalid settings and node URLs. Invalid ones are refused by one message without a password, and nothing
//! panics.

use std::time::Duration;

use proptest::prelude::{Strategy, any};
use proptest::{collection, option, prop_oneof, sample};
use redlock_sync::{Error, Redlock, Retry};

use super::runner;
use crate::kinds::{Kind, each_kind};

/// No server listens at this address. If a call is not refused, then it fails at once as `Unavailable`.
const NOWHERE: &str = "redis://127.0.0.1:1/";
/// The beginning and the end of each password, by which the tests find it in a message.
const MARKS: [&str; 2] = ["Geheim", "nisvoll"];

/// The message of a `Config` error. Asserts that it is a single line without control characters.
fn refusal(error: &Error) -> &str {
    let Error::Config { message, .. } = error else { panic!("no Config error: {error:?}") };
    assert!(!message.is_empty() && !message.contains(char::is_control), "{message:?}");
    message
}

fn run<T: std::fmt::Debug>(cases: u32, input: &impl Strategy<Value = T>, test: impl Fn(T)) {
    let outcome = runner(cases).run(input, |value| {
        test(value);
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn any_text_is_a_url_or_is_refused() {
    let bytes = collection::vec(any::<u8>(), 0..40).prop_map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let parts =
        ["redis", "rediss", "unix", "redis+unix", "://", ":", "@", "/", "?", "#", "&", "=", "%", "[", "]", "::1"];
    let more =
        ["host", "6379", "db", "pass", "user", "protocol", "-1", "0", "99999999999", "ü", "\n", "\0", " ", ".", "\\"];
    let pieces = sample::select([&parts[..], &more[..]].concat());
    let shaped = collection::vec(pieces, 0..12).prop_map(|pieces| pieces.concat());
    run(3000, &prop_oneof![bytes, shaped.clone(), shaped.prop_map(|rest| format!("redis://{rest}"))], |url: String| {
        if let Err(error) = Redlock::open(&url) {
            assert!(refusal(&error).starts_with("node URL `"), "{error}");
        }
        _ = format!("{:?}", Redlock::builder().node(&url));
    });
}

/// No message contains a password, wherever the URL has it and whatever it contains.
#[test]
fn no_message_about_a_url_has_its_password() {
    let inside = collection::vec(any::<char>(), 0..4).prop_map(|chars| chars.into_iter().collect::<String>());
    let odd = sample::select(vec![
        "@", ":", "/", "?", "#", "&", "%", "=", " ", "\\", "?pass=", "&x=", "://", "[", "%40", "\n",
    ]);
    let inside = prop_oneof![inside, collection::vec(odd, 0..4).prop_map(|odd| odd.concat())];
    let host =
        sample::select(vec!["host:port", "host", "host/0?what=1", "", "host:0", "ho st", "[::1]:7000/x", "host/-1"]);
    let user = sample::select(vec!["anna", "", "ü"]);
    run(3000, &(inside, host, user, 0..6_u8), |(inside, host, user, form)| {
        let password = format!("{}{inside}{}", MARKS[0], MARKS[1]);
        let url = match form {
            0 => format!("redis://{user}:{password}@{host}"),
            1 => format!("http://{user}:{password}@{host}"),
            2 => format!("{user}:{password}@{host}"),
            // By the rules of URLs, these characters end a password in a parameter.
            _ if inside.contains(['&', '#', '?']) => return,
            3 => format!("unix:///a.sock?pass={password}&what={user}"),
            4 => format!("unix:/a.sock?user={user}@{host}&pass={password}"),
            _ => format!("redis+unix://?db=x&pass={password}"),
        };
        let shown = match Redlock::open(&url) {
            Ok(locks) => format!("{locks:?}"),
            Err(error) => format!("{} {error:?}", refusal(&error)),
        };
        let shown = format!("{shown} {:?}", Redlock::builder().node(&url));
        assert!(!MARKS.iter().any(|mark| shown.contains(mark)), "{url:?} is shown as {shown}");
    });
}

/// Durations, most of them near a limit.
fn time() -> impl Strategy<Value = Duration> {
    let edges = [0, 1, 9, 10, 11, 249, 250, 264, 265, 266, 1000, 86_399_999, 86_400_000, 86_400_001, u64::MAX];
    prop_oneof![
        sample::select(edges.to_vec()).prop_map(Duration::from_millis),
        (0..2000_u64).prop_map(Duration::from_millis),
        (0..40_000_000_u64).prop_map(Duration::from_nanos),
        any::<Duration>(),
        proptest::strategy::Just(Duration::MAX),
    ]
}

/// The settings of one lock.
#[derive(Debug, Clone)]
struct Terms {
    lease: Duration,
    min_hold: Duration,
    max_hold: Option<Duration>,
    retry: (Duration, Duration, f64, Option<u32>),
}

fn terms() -> impl Strategy<Value = Terms> {
    let jitter = prop_oneof![0.0..=1.0_f64, any::<f64>(), sample::select(vec![-0.0, 1.0, f64::NAN, f64::INFINITY])];
    let lease = prop_oneof![2 => time(), 3 => (300..90_000_u64).prop_map(Duration::from_millis)];
    let min_hold = prop_oneof![3 => proptest::strategy::Just(Duration::ZERO), 1 => time()];
    let retry = (time(), time(), jitter, option::of(0..3_u32));
    (lease, min_hold, option::weighted(0.3, time()), retry).prop_map(|(lease, min_hold, max_hold, retry)| Terms {
        lease,
        min_hold,
        max_hold,
        retry,
    })
}

impl Terms {
    /// Whether the documentation allows these settings together with the node timeout of the client.
    fn can_work(&self, node_timeout: Duration) -> bool {
        let outlasts = |span: Duration| {
            let drift = span / 100 + Duration::from_millis(2);
            span >= Duration::from_millis(10)
                && span > drift.saturating_add(node_timeout).saturating_add(Duration::from_millis(10))
        };
        let (first, last, jitter, attempts) = self.retry;
        outlasts(self.lease)
            && self.lease <= Duration::from_secs(86_400)
            && self.min_hold <= self.lease
            && self.max_hold.is_none_or(outlasts)
            && first <= last
            && (0.0..=1.0).contains(&jitter)
            && attempts != Some(0)
    }

    fn retry(&self) -> Retry {
        let (first, last, jitter, attempts) = self.retry;
        let retry = Retry::growing(first, last).jitter(jitter);
        attempts.map_or(retry.clone(), |attempts| retry.max_attempts(attempts))
    }
}

fn settings_work_or_are_refused<K: Kind>() {
    let limits = prop_oneof![time(), (1..300_u64).prop_map(Duration::from_millis)];
    let client = (limits, terms());
    let name = prop_oneof![3 => "\\PC{0,12}", 1 => "\\PC{1000,1100}"];
    run(300, &(client, terms(), name), |((node_timeout, defaults), terms, name)| {
        let built = Redlock::builder()
            .node(NOWHERE)
            .node_timeout(node_timeout)
            .lease(defaults.lease)
            .retry(defaults.retry())
            .unavailable_after(Duration::ZERO)
            .build();
        let plain = Terms { min_hold: Duration::ZERO, max_hold: None, ..defaults };
        let can_be = node_timeout >= Duration::from_millis(1) && plain.can_work(node_timeout);
        let locks = match built {
            Ok(locks) => locks,
            Err(error) => {
                assert!(!can_be, "refused: {}", refusal(&error));
                return;
            }
        };
        assert!(can_be, "accepted: {locks:?}");
        let lock = K::new(&locks, &name).lease(terms.lease).min_hold(terms.min_hold).retry(terms.retry());
        let lock = terms.max_hold.into_iter().fold(lock, K::max_hold);
        let error = lock.try_lock().map(drop).unwrap_err();
        let can_be = terms.can_work(node_timeout) && !name.is_empty() && name.len() <= 1024;
        if can_be {
            assert!(error.is_unavailable(), "{terms:?}: {error}");
        } else {
            refusal(&error);
        }
    });
}

each_kind!(settings_work_or_are_refused);
