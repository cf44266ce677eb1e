//! Each policy for "busy" and for "failed", with each return type that can have it. There are four cases: the lock is
//! free, is busy, cannot be acquired, or is lost during the body.

use std::cell::Cell;
use std::io;
use std::panic::catch_unwind;
use std::time::Duration;

use redlock_sync::{Error, Redlock, distributed_lock, key};
use redlock_tests::Server;

use super::{locks, panic_message, steal, while_busy};

/// An application's own error.
#[derive(Debug, PartialEq)]
enum AppError {
    Lock(Error),
    Body,
}

impl From<Error> for AppError {
    fn from(error: Error) -> AppError {
        AppError::Lock(error)
    }
}

/// What happens during a call.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Case {
    Free,
    Busy,
    Failed,
    Lost,
}

thread_local! {
    static RAN: Cell<bool> = const { Cell::new(false) };
    static FELL_BACK: Cell<bool> = const { Cell::new(false) };
}

/// The client of a case. If the call must fail, then this client has no server.
fn client(case: Case) -> Redlock {
    match case {
        Case::Failed => Redlock::open("redis://127.0.0.1:1/").unwrap(),
        _ => locks().clone(),
    }
}

fn body(case: Case, key: &str) {
    RAN.set(true);
    if case == Case::Lost {
        steal(key);
    }
}

/// The visible outcome of a returned value.
trait Outcome {
    fn outcome(self) -> &'static str;
}

impl Outcome for u8 {
    fn outcome(self) -> &'static str {
        "value"
    }
}

/// For a call that returns `()`, a skipped call looks like any other one.
impl Outcome for () {
    fn outcome(self) -> &'static str {
        "skip"
    }
}

impl<T: Outcome> Outcome for Option<T> {
    fn outcome(self) -> &'static str {
        self.map_or("skip", Outcome::outcome)
    }
}

impl<T: Outcome> Outcome for Result<T, AppError> {
    fn outcome(self) -> &'static str {
        match self {
            Ok(value) => value.outcome(),
            Err(AppError::Lock(Error::Busy { .. })) => "busy",
            Err(AppError::Lock(Error::Unavailable { .. })) => "unavailable",
            Err(AppError::Lock(Error::Lost { .. })) => "lost",
            Err(other) => panic!("{other:?}"),
        }
    }
}

/// The outcome of a call.
fn outcome<R: Outcome>(case: Case, key: &str, call: fn(Case, &str) -> R) -> &'static str {
    RAN.set(false);
    FELL_BACK.set(false);
    let caught = || catch_unwind(|| call(case, key)).map_or("panic", Outcome::outcome);
    let outcome = if case == Case::Busy { while_busy(key, caught) } else { caught() };
    assert_eq!(RAN.get(), matches!(case, Case::Free | Case::Lost), "whether the body ran: {case:?}");
    if FELL_BACK.get() { "fallback" } else { outcome }
}

/// The outcome of an error under this policy.
fn expected(policy: &str, error: &'static str) -> &'static str {
    match policy {
        "error" => error,
        "skip" => "skip",
        "panic" => "panic",
        "fallback" => "fallback",
        other => panic!("{other}"),
    }
}

/// Makes a test for a return type with its pairs of policies.
macro_rules! policies {
    ($name:ident: $ty:ty = $value:expr; $($busy:ident $failed:ident),+ $(,)?) => {
        #[test]
        fn $name() {
            let free = <$ty as Outcome>::outcome($value);
            $({
                #[distributed_lock("{key}", wait = "0s", client = client(case), busy = $busy, failed = $failed)]
                fn locked(case: Case, key: &str) -> $ty {
                    body(case, key);
                    $value
                }
                #[allow(dead_code, clippy::unnecessary_wraps, reason = "for some pairs, and some types")]
                fn fallback(_: Case, _: &str) -> $ty {
                    FELL_BACK.set(true);
                    $value
                }
                let pair = concat!(stringify!($name), "-", stringify!($busy), "-", stringify!($failed));
                let outcome = |case: Case| outcome(case, &format!("policy:{pair}-{case:?}"), locked);
                assert_eq!(outcome(Case::Free), free, "{pair}");
                assert_eq!(outcome(Case::Busy), expected(stringify!($busy), "busy"), "{pair}");
                assert_eq!(outcome(Case::Failed), expected(stringify!($failed), "unavailable"), "{pair}");
                assert_eq!(outcome(Case::Lost), expected(stringify!($failed), "lost"), "{pair}");
            })+
        }
    };
}

policies!(result: Result<u8, AppError> = Ok(1);
    error error, error panic, panic error, panic panic, fallback error, fallback panic);
policies!(unit: () = ();
    skip skip, skip panic, panic skip, panic panic, fallback skip, fallback panic);
policies!(option: Option<u8> = Some(1);
    skip skip, skip panic, panic skip, panic panic, fallback skip, fallback panic);
policies!(result_of_unit: Result<(), AppError> = Ok(());
    error error, error skip, error panic, skip error, skip skip, skip panic,
    panic error, panic skip, panic panic, fallback error, fallback skip, fallback panic);
policies!(result_of_option: Result<Option<u8>, AppError> = Ok(Some(1));
    error error, error skip, error panic, skip error, skip skip, skip panic,
    panic error, panic skip, panic panic, fallback error, fallback skip, fallback panic);
policies!(any_other_type: u8 = 1; panic panic, fallback panic);

/// With each policy, the body's own error is returned, not the loss.
macro_rules! body_error_wins {
    ($($name:ident),+) => {$(
        #[test]
        fn $name() {
            #[distributed_lock("policy:{key}", failed = $name)]
            fn locked(key: &str) -> Result<(), AppError> {
                steal(&key!("policy:{key}"));
                Err(AppError::Body)
            }
            let _ = locks();
            assert_eq!(locked(concat!("body-", stringify!($name))), Err(AppError::Body));
        }
    )+};
}

mod body_error_wins {
    use super::*;
    body_error_wins!(error, skip, panic);
}

/// Without a policy for `busy`, a busy lock does not use the policy for `failed`.
#[test]
fn busy_is_an_error_unless_said_otherwise() {
    #[distributed_lock("policy:default-busy", wait = "0s", failed = panic)]
    fn locked() -> io::Result<()> {
        Ok(())
    }
    let error = while_busy("policy:default-busy", || locked().unwrap_err());
    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
}

#[test]
fn failed_follows_a_panic_when_busy() {
    #[distributed_lock("policy:follow", wait = "0s", busy = panic, client = client(case))]
    fn locked(case: Case) -> u8 {
        body(case, "policy:follow");
        1
    }
    let said = while_busy("policy:follow", || panic_message(|| _ = locked(Case::Busy)));
    assert!(said.starts_with("lock `policy:follow` is held by another holder"), "{said}");
    assert!(panic_message(|| _ = locked(Case::Failed)).starts_with("failed to acquire `"));
    assert_eq!(locked(Case::Free), 1);
    assert!(panic_message(|| _ = locked(Case::Lost)).contains("was lost"));
}

struct Till {
    coins: Vec<u8>,
}

#[allow(clippy::needless_pass_by_value, clippy::unnecessary_wraps, reason = "the two must have the same parameters")]
impl Till {
    #[distributed_lock("policy:till:{name}", wait = "0s", busy = Self::put_aside)]
    fn put<T: Into<Vec<u8>>>(
        &mut self,
        name: &str,
        mut coins: Vec<u8>,
        more: T,
        f: impl Fn(u8) -> u8,
    ) -> Result<usize, Error> {
        coins.extend(more.into());
        self.coins.extend(coins.into_iter().map(f));
        Ok(self.coins.len())
    }

    fn put_aside<T: Into<Vec<u8>>>(
        &mut self,
        name: &str,
        coins: Vec<u8>,
        more: T,
        f: impl Fn(u8) -> u8,
    ) -> Result<usize, Error> {
        assert_eq!((name, &*coins, &*more.into()), ("x", &[1, 2][..], &[3][..]));
        self.coins.push(f(9));
        Ok(100)
    }
}

#[test]
fn a_fallback_gets_the_same_arguments() {
    let mut till = Till { coins: vec![] };
    let busy = while_busy("policy:till:x", || till.put("x", vec![1, 2], [3], |coin| coin * 10));
    assert_eq!((busy, &*till.coins), (Ok(100), &[90][..]));
    assert_eq!(till.put("x", vec![1, 2], [3], |coin| coin), Ok(4));
    assert_eq!(till.coins, [90, 1, 2, 3]);
}

#[test]
fn a_call_does_not_wait_for_a_release_in_the_background() {
    #[distributed_lock("order:{n}", client = locks, release = background)]
    fn work(locks: &Redlock, n: u32) -> Result<u32, Error> {
        Ok(n)
    }
    #[distributed_lock("order:{n}", client = locks, release = background)]
    fn give_up(locks: &Redlock, n: u32) -> Result<u32, Error> {
        assert_eq!(locks.unlock_all()?.given_up, [format!("order:{n}")]);
        Ok(n)
    }
    let server = Server::start();
    let proxy = redlock_tests::Proxy::start(&server);
    let locks = redlock_tests::patient().node(proxy.url()).build().unwrap();
    assert_eq!(work(&locks, 7), Ok(7));
    proxy.wait_count("release", 1, Duration::from_secs(20));
    let held = proxy.on("release", redlock_tests::Act::HoldReply);
    assert_eq!(work(&locks, 7), Ok(7));
    held.wait_hit(Duration::from_secs(20));
    assert_eq!(server.get("order:7"), None);
    held.release();
    // A loss that this process knows of is still reported.
    assert!(give_up(&locks, 7).unwrap_err().is_lost());
}
