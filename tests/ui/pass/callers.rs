//! All kinds of functions that can be locked and have `#[track_caller]`. They are compiled in edition 2021 and in
//! edition 2024, and `run` calls all of them.
#![deny(warnings)]
#![allow(
    clippy::pedantic,
    clippy::unwrap_used,
    clippy::panic,
    unsafe_code,
    unreachable_pub,
    reason = "odd shapes are the point"
)]

use std::cell::Cell;
use std::fmt::{Debug, Display};
use std::panic::{Location, catch_unwind};
use std::sync::Arc;

use redlock_sync::{Error, Redlock, assert_locked, distributed_lock};

/// Returns the line of its caller.
#[track_caller]
fn line() -> u32 {
    Location::caller().line()
}

/// Checks that a function returns the line in which it is called.
macro_rules! here {
    ($call:expr) => {{
        let (said, called) = ($call, line!());
        assert_eq!(said, called, "{}", stringify!($call));
    }};
}

// Functions.

#[track_caller]
#[distributed_lock("callers:above")]
fn above() -> Result<u32, Error> {
    assert_locked!("callers:above");
    Ok(Location::caller().line())
}

#[distributed_lock("callers:below:{n}")]
#[track_caller]
fn below(n: u8) -> Result<u32, Error> {
    assert_locked!("callers:below:{n}");
    Ok(line())
}

#[distributed_lock("callers:sometimes")]
#[cfg_attr(not(any()), inline(never), track_caller)]
fn sometimes() -> Result<u32, Error> {
    #![allow(non_snake_case)]
    let Line = line();
    Ok(Line)
}

#[distributed_lock("callers:never")]
#[cfg_attr(any(), track_caller)]
fn never() -> Result<u32, Error> {
    Ok(line())
}

#[distributed_lock("callers:early:{n}")]
#[track_caller]
fn early(mut n: u32) -> Result<u32, Box<dyn std::error::Error>> {
    n += "5".parse::<u32>()?;
    if n > 5 {
        return Ok(line());
    }
    Err(Box::new(Error::Closed))
}

#[distributed_lock("callers:apart:{a}:{name}")]
#[track_caller]
fn taken_apart((a, _): (u8, String), name: String, #[cfg(any())] absent: u8, _: u8) -> Result<(u32, String), Error> {
    let _ = a;
    Ok((line(), name))
}

#[distributed_lock("callers:unused:{id}")]
#[track_caller]
fn unused(id: u8, #[expect(unused_variables)] a: u8, #[expect(unused_mut)] mut b: u8) -> Result<u32, Error> {
    let _ = b;
    Ok(line())
}

#[distributed_lock("callers:falls-back", wait = "0s", busy = fallback)]
#[track_caller]
fn falls_back(a: u8, mut b: u8, #[cfg(any())] absent: u8) -> Result<u32, Error> {
    b += 1;
    assert!(b > 1);
    Ok(line())
}

#[track_caller]
fn fallback(_: u8, _: u8) -> Result<u32, Error> {
    Ok(line())
}

#[distributed_lock("callers:generic:{a}:{N}", guard = lock)]
#[track_caller]
fn generic<'a, 'b: 'a, T: Default, U, const N: usize>(
    a: U,
    _b: &'b str,
    c: impl Fn() -> u32,
) -> Result<(&'a str, T, u32), Error>
where
    U: Display,
{
    lock.check()?;
    let _ = a;
    Ok((_b, T::default(), c() + line()))
}

#[distributed_lock("callers:elided", guard = lock)]
#[track_caller]
fn elided(list: &mut Vec<u32>) -> Result<&mut u32, Error> {
    lock.check()?;
    list.push(line());
    Ok(list.last_mut().unwrap())
}

#[distributed_lock("callers:impl-out", failed = panic, guard = lock)]
#[track_caller]
fn impl_out(n: &u32) -> impl Iterator<Item = u32> + '_ {
    lock.check().unwrap();
    let line = line();
    (0..*n).map(move |i| line + i)
}

#[distributed_lock("callers:impl-out")]
#[track_caller]
fn impl_out_in_result(n: impl Into<u32>) -> Result<impl Iterator<Item = u32>, Error> {
    let line = line();
    Ok((0..n.into()).map(move |i| line + i))
}

#[distributed_lock("callers:diverges", failed = panic)]
#[track_caller]
fn diverges() -> ! {
    std::panic::panic_any(line())
}

/// # Safety
/// The pointer must be valid.
#[distributed_lock("callers:unsafe")]
#[track_caller]
unsafe fn raw(pointer: *const u8) -> Result<(u8, u32), Error> {
    Ok((unsafe { *pointer }, line()))
}

#[distributed_lock("callers:nested-items")]
#[track_caller]
fn nested_items() -> Result<u32, Error> {
    struct Local(u32);
    impl Local {
        fn new(line: u32) -> Self {
            Self(line)
        }
    }
    Ok(Local::new(line()).0)
}

// Names that the expansion uses too.

fn body() -> u8 {
    1
}

#[distributed_lock("callers:names:{key}:{lock}", guard = lease)]
#[track_caller]
fn names(key: u32, lock: u32, hold: u32, value: u32, failed: u32, error: u32) -> Result<u32, Error> {
    lease.check()?;
    assert_eq!(body(), 1);
    Ok(key + lock + hold + value + failed + error + line())
}

// Methods.

#[derive(Clone)]
struct Shop<T> {
    region: T,
    stock: Vec<u32>,
}

impl<T: Display + Debug + Clone + Default> Shop<T> {
    const NAME: &'static str = "corner";

    #[distributed_lock("callers:reserve:{self.region}:{Self::NAME}", wait = "5s", guard = lock)]
    #[track_caller]
    pub fn reserve(&self, n: u8) -> Result<u32, Error> {
        lock.check()?;
        let _ = (n, &self.region);
        Ok(line())
    }

    #[distributed_lock("callers:lot", busy = Self::lot_fallback, wait = "1s")]
    #[track_caller]
    fn lot<U: Default>(&mut self, other: impl Display) -> Result<(&mut u32, U), Error> {
        let _ = other;
        self.stock.push(line());
        Ok((self.stock.last_mut().unwrap(), U::default()))
    }

    fn lot_fallback<U: Default>(&mut self, _: impl Display) -> Result<(&mut u32, U), Error> {
        Ok((self.stock.last_mut().unwrap(), U::default()))
    }

    #[distributed_lock("callers:consume:{self.region}")]
    #[track_caller]
    fn consume(mut self) -> Result<Vec<u32>, Error> {
        self.stock = vec![line()];
        Ok(self.stock)
    }

    #[distributed_lock("callers:arc")]
    #[track_caller]
    #[expect(unused_variables)]
    fn arc(self: Arc<Self>, unused: u8) -> Result<u32, Error> {
        #![allow(non_snake_case)]
        let Count = Arc::strong_count(&self);
        assert_eq!(Count, 1);
        Ok(line())
    }

    #[distributed_lock("callers:new")]
    #[track_caller]
    fn new(region: T) -> Result<Self, Error> {
        Ok(Self { region, stock: vec![line()] })
    }

    #[distributed_lock("callers:named-in-the-body")]
    #[track_caller]
    fn named_in_the_body() -> Result<u32, Error> {
        let _ = vec![Self::NAME];
        Ok(line())
    }

    /// # Safety
    /// None needed.
    #[distributed_lock("callers:unsafe-method")]
    #[track_caller]
    unsafe fn unsafe_method(&self) -> Result<u32, Error> {
        Ok(line())
    }
}

impl Shop<u8> {
    #[distributed_lock("callers:free")]
    #[track_caller]
    fn without_self(n: u32) -> Result<u32, Error> {
        Ok(n + line())
    }
}

trait Work {
    fn name(&self) -> String;

    #[distributed_lock("callers:default:{self.name()}")]
    #[track_caller]
    fn with_a_body(&self, n: u32) -> Result<u32, Error> {
        Ok(n + line())
    }
}

impl Work for Shop<String> {
    fn name(&self) -> String {
        self.region.clone()
    }
}

// The order of drops.

struct Noisy<'a>(&'a Cell<u32>);

impl Drop for Noisy<'_> {
    fn drop(&mut self) {
        assert_locked!("callers:drops");
        self.0.set(self.0.get() + 1);
    }
}

#[distributed_lock("callers:drops")]
#[track_caller]
fn drops(
    _a: Noisy<'_>,
    _: Noisy<'_>,
    (_b, _): (Noisy<'_>, Noisy<'_>),
    #[expect(unused_variables)] c: Noisy<'_>,
    drops: &Cell<u32>,
) -> Result<u32, Error> {
    let _d = Noisy(drops);
    Ok(line())
}

/// Calls all functions. It needs a default client.
pub fn run(locks: &Redlock) {
    functions();
    let guard = locks.mutex("callers:falls-back").lock().unwrap().into_send();
    here!(falls_back(1, 2).unwrap());
    guard.unlock().unwrap();
    methods();
    let count = Cell::new(0);
    let noisy = || Noisy(&count);
    here!(drops(noisy(), noisy(), (noisy(), noisy()), noisy(), &count).unwrap());
    assert_eq!(count.get(), 6);
}

fn functions() {
    here!(above().unwrap());
    here!(below(1).unwrap());
    here!(sometimes().unwrap());
    assert_ne!(never().unwrap(), line!());
    here!(early(1).unwrap());
    assert!(early(0).unwrap_err().is::<Error>());
    here!(taken_apart((1, String::new()), "x".into(), 2).unwrap().0);
    here!(unused(1, 2, 3).unwrap());
    here!(generic::<u8, _, 3>(1, "x", || 0).unwrap().2);
    here!(*elided(&mut vec![]).unwrap());
    here!(impl_out(&1).next().unwrap());
    here!(impl_out_in_result(1_u8).unwrap().next().unwrap());
    here!(*catch_unwind(|| diverges()).unwrap_err().downcast::<u32>().unwrap());
    here!(unsafe { raw(&1) }.unwrap().1);
    here!(nested_items().unwrap());
    here!(names(0, 0, 0, 0, 0, 0).unwrap());
    here!(falls_back(1, 2).unwrap());
}

fn methods() {
    let mut shop = Shop::new(String::from("north")).unwrap();
    here!(shop.reserve(1).unwrap());
    here!(*shop.lot::<u8>("x").unwrap().0);
    assert!(shop.lot_fallback::<u8>("x").is_ok());
    here!(shop.clone().consume().unwrap().pop().unwrap());
    here!(Arc::new(shop.clone()).arc(1).unwrap());
    here!(Shop::new(String::new()).unwrap().stock.pop().unwrap());
    here!(Shop::<String>::named_in_the_body().unwrap());
    here!(unsafe { shop.unsafe_method() }.unwrap());
    here!(Shop::without_self(0).unwrap());
    here!(shop.with_a_body(0).unwrap());
}
