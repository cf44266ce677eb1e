//! All kinds of functions that can be locked, compiled in edition 2021 and in edition 2024. `run` calls all of them.
#![deny(warnings)]
#![allow(
    clippy::pedantic,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    unsafe_code,
    unreachable_pub,
    dead_code,
    reason = "odd shapes are the point"
)]

use std::cell::Cell;
use std::error::Error as StdError;
use std::fmt::{Debug, Display};
use std::io;
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::Arc;

use redlock_sync::{Error, LockKey, Redlock, assert_locked, distributed_lock, key};

type Alias<T> = Result<T, Error>;

#[derive(Debug)]
enum ShopError {
    Lock(Error),
    Empty,
}

impl From<Error> for ShopError {
    fn from(error: Error) -> Self {
        ShopError::Lock(error)
    }
}

/// Returns whether the library says that this thread holds the lock.
fn held(name: &str) -> bool {
    let name = name.to_owned();
    std::panic::catch_unwind(move || assert_locked!("{name}")).is_ok()
}

// Free functions.

#[distributed_lock("shapes:unit")]
fn nothing_in() -> Result<(), Error> {
    assert_locked!("shapes:unit");
    Ok(())
}

/// A doc comment.
#[distributed_lock("shapes:outer:<id>")]
#[inline(never)]
#[must_use = "for a reason"]
pub(crate) fn attributes(id: u64) -> Option2<u64> {
    #![allow(non_snake_case)]
    let Id = id;
    Ok(Some(Id))
}

type Option2<T> = Result<Option<T>, Error>;

#[distributed_lock("shapes:early:{n}")]
fn early(n: i32) -> Result<i32, ShopError> {
    if n < 0 {
        return Err(ShopError::Empty);
    }
    let parsed: i32 = "5".parse().map_err(|_| ShopError::Empty)?;
    for i in 0.. {
        if i == n {
            return Ok(i + parsed);
        }
    }
    unreachable!()
}

#[distributed_lock("shapes:alias")]
fn alias() -> Alias<u8> {
    Ok(1)
}

#[distributed_lock("shapes:box")]
fn boxed(n: &str) -> Result<u32, Box<dyn StdError>> {
    Ok(n.parse()?)
}

#[distributed_lock("shapes:box-send")]
fn boxed_send(n: &str) -> Result<u32, Box<dyn StdError + Send + Sync>> {
    Ok(n.parse()?)
}

#[distributed_lock("shapes:io")]
fn io_result() -> io::Result<()> {
    Err(io::ErrorKind::NotFound.into())
}

#[distributed_lock("shapes:recursion:{n}")]
fn recursion(n: u32) -> Result<u32, Error> {
    if n == 0 { Ok(0) } else { Ok(recursion(n - 1)? + n) }
}

#[distributed_lock("shapes:same")]
fn recursion_with_one_key(n: u32) -> Result<u32, Error> {
    if n == 0 { Ok(0) } else { Ok(recursion_with_one_key(n - 1)? + n) }
}

// Diverging bodies.

#[distributed_lock("shapes:never", failed = panic)]
fn never() -> ! {
    panic!("on purpose")
}

#[distributed_lock("shapes:todo")]
#[allow(dead_code, clippy::todo)]
fn todo() -> Result<String, Error> {
    todo!()
}

#[distributed_lock("shapes:loop:{n}")]
fn endless(mut n: u8) -> Result<u8, Error> {
    loop {
        n += 1;
        if n == 200 {
            return Ok(n);
        }
    }
}

// Arguments.

#[distributed_lock("shapes:mutated:{id}")]
fn mutated(mut id: u64) -> Result<u64, Error> {
    id += 1;
    assert!(held(&format!("shapes:mutated:{}", id - 1)));
    Ok(id)
}

#[distributed_lock("shapes:moved:{name}")]
fn moved(name: String) -> Result<String, Error> {
    Ok(name)
}

struct Point {
    x: i32,
    y: i32,
    #[allow(dead_code)]
    rest: String,
}

#[distributed_lock("shapes:apart:{x}:{b}:<c.0>:{d}")]
fn taken_apart(
    Point { x, y, .. }: Point,
    (a, mut b): (u8, u8),
    c @ (_, _): (u8, u8),
    &d: &u8,
    _: String,
) -> Result<i32, Error> {
    b += a;
    Ok(x + y + i32::from(a + b + c.1 + d))
}

#[distributed_lock("shapes:array:{first}")]
fn slice([first, .., last]: [u8; 4]) -> Result<u8, Error> {
    Ok(first + last)
}

#[distributed_lock("shapes:raw:{r#type}:{ id }:{id:>3}:{name.replace('}', \"-\")}")]
fn odd_holes(r#type: u8, id: u8, name: &str) -> Result<(), Error> {
    assert!(held("shapes:raw:1:2:  2:x-y"));
    let _ = (r#type, id, name);
    Ok(())
}

#[distributed_lock("shapes:raw:{type}")]
fn raw_name(r#type: u8) -> Result<u8, Error> {
    Ok(r#type)
}

// Parameters that the body does not use. The key, the client and the fallback use some of them.

#[distributed_lock("shapes:unused:{id}:{a}", wait = "1s", client = locks)]
fn used_by_the_key(id: u64, (a, _): (u8, u8), locks: &Redlock) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock("shapes:unused", wait = "1s", busy = unused_fallback, prefix = prefix)]
fn used_by_the_fallback(n: u8, mut m: u8, prefix: &str) -> Result<(), Error> {
    m += 1;
    assert!(m > 1);
    Ok(())
}

fn unused_fallback(_: u8, _: u8, _: &str) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock("shapes:lints:{id}")]
fn lints_of_parameters(
    id: u64,
    #[allow(unused_variables)] a: u8,
    #[expect(unused_variables)] b: u8,
    #[cfg_attr(not(any()), expect(unused_variables, unused_mut))] mut c: u8,
    #[expect(unused_variables)] (d, _): (u8, u8),
) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock("shapes:expected")]
#[expect(unused_variables)]
fn lint_of_the_function(a: u8) -> Result<(), Error> {
    Ok(())
}

// Parameters that exist only in some builds. `any()` is false in every build.

#[distributed_lock("shapes:cfg:{id}:{a}", wait = "1s")]
fn some_builds(
    #[cfg(not(any()))] id: u8,
    #[cfg(any())] id: Missing,
    #[cfg(any())] absent: Missing,
    #[cfg(not(any()))] (a, _): (u8, String),
    #[cfg(any())] (a, _): Missing,
    #[cfg_attr(not(any()), cfg(any()))] absent_too: Missing,
) -> Result<u8, Error> {
    assert!(held("shapes:cfg:1:2"));
    Ok(id + a)
}

#[distributed_lock("shapes:cfg-fallback", wait = "1s", busy = some_builds_fallback)]
fn some_builds_with_a_fallback(#[cfg(any())] absent: Missing, #[cfg(not(any()))] mut id: u8) -> Result<u8, Error> {
    id += 1;
    Ok(id)
}

fn some_builds_fallback(#[cfg(any())] absent: Missing, #[cfg(not(any()))] id: u8) -> Result<u8, Error> {
    Ok(id)
}

// Generics and lifetimes.

#[distributed_lock("shapes:generic:{a}:{b:?}:{N}")]
fn generic<T, U, const N: usize>(a: T, b: &U) -> Result<[T; N], Error>
where
    T: Display + Copy,
    U: Debug + ?Sized,
{
    let _ = b;
    Ok([a; N])
}

#[distributed_lock("shapes:borrow")]
fn borrow<'a>(text: &'a str, _other: &str) -> Result<&'a str, Error> {
    Ok(&text[1..])
}

#[distributed_lock("shapes:elided")]
fn elided(list: &mut Vec<u8>) -> Result<&mut u8, Error> {
    list.push(1);
    Ok(list.last_mut().unwrap())
}

#[distributed_lock("shapes:impl-in:{id}")]
fn impl_in(id: impl Display + Copy, f: impl FnOnce() -> u8) -> Result<u8, Error> {
    let _ = id;
    Ok(f())
}

#[distributed_lock("shapes:impl-out", failed = panic)]
fn impl_out(n: u8) -> impl Iterator<Item = u8> {
    (0..n).map(|i| i * 2)
}

#[distributed_lock("shapes:impl-out")]
fn impl_out_in_result(n: &[u8]) -> Result<impl Iterator<Item = u8> + '_, Error> {
    let start = n.first().copied().ok_or(Error::Closed)?;
    Ok(n.iter().map(move |i| i + start))
}

#[distributed_lock("shapes:dyn")]
fn dyn_in_out(f: &dyn Fn() -> u8) -> Result<Box<dyn Fn() -> u8>, Error> {
    let n = f();
    Ok(Box::new(move || n))
}

// Unsafe and foreign.

/// # Safety
/// The pointer must be valid.
#[distributed_lock("shapes:unsafe")]
unsafe fn raw(pointer: *const u8) -> Result<u8, Error> {
    Ok(unsafe { *pointer })
}

#[distributed_lock("shapes:extern", failed = panic)]
extern "C" fn foreign(n: u8) -> u8 {
    n
}

// Methods.

#[derive(Debug, Clone)]
struct Shop {
    region: (String, u8),
    stock: Vec<u32>,
}

struct Item {
    sku: &'static str,
}

impl Item {
    fn lot(&self, n: u8) -> String {
        format!("{}-{n}", self.sku)
    }
}

impl Shop {
    const NAME: &'static str = "corner";

    #[distributed_lock("shapes:stock:{item.sku}:<self.region.0>:{self.stock[0]:04}:{Self::NAME}", wait = "5s", lease = "30s", guard = lock)]
    fn reserve(&self, item: &Item) -> Result<u64, ShopError> {
        assert!(held("shapes:stock:A%3A1:north:0007:corner"));
        Ok(lock.fencing_token()?)
    }

    #[distributed_lock("shapes:lot:{item.lot(3)}")]
    fn lot(&mut self, item: &Item) -> Result<&mut u32, Error> {
        let _ = item;
        Ok(&mut self.stock[0])
    }

    #[distributed_lock("shapes:consume:{self.region.1}")]
    fn consume(mut self) -> Result<Vec<u32>, Error> {
        self.stock.push(9);
        Ok(self.stock)
    }

    #[distributed_lock("shapes:arc:{self.region.1}")]
    fn arc(self: Arc<Self>) -> Result<usize, Error> {
        Ok(Arc::strong_count(&self))
    }

    #[distributed_lock("shapes:new")]
    fn new(region: &str) -> Result<Self, Error> {
        Ok(Self { region: (region.to_owned(), 1), stock: vec![7] })
    }
}

struct Holder<'a, T>(&'a T, PhantomData<T>);

impl<'a, T: Debug> Holder<'a, T> {
    #[distributed_lock("shapes:holder:{self.0:?}")]
    fn get(&self) -> Result<&'a T, Error> {
        Ok(self.0)
    }
}

trait Work {
    fn work(&self, n: u8) -> Result<u8, Error>;

    #[distributed_lock("shapes:default:{n}")]
    fn with_a_body(&self, n: u8) -> Result<u8, Error> {
        self.work(n)
    }
}

impl Work for Shop {
    #[distributed_lock("shapes:work:{n}")]
    fn work(&self, n: u8) -> Result<u8, Error> {
        Ok(n + 1)
    }
}

// Names that the expansion uses too.

#[distributed_lock("shapes:names:{key}:{lock}", guard = lease)]
fn names(key: u8, lock: u8, hold: u8, value: u8, failed: u8, error: u8) -> Result<u8, Error> {
    lease.check()?;
    Ok(key + lock + hold + value + failed + error)
}

mod shadows {
    #![allow(dead_code, non_camel_case_types)]
    pub struct Result;
    pub struct Ok;
    pub struct Err;
    pub struct String;
    pub mod std {}
    pub mod core {}
    pub mod redlock_sync {}

    #[::redlock_sync::distributed_lock("shapes:shadows:{a}:{b}", wait = "1s", busy = skip)]
    pub fn shadows(a: u8, b: u8) -> ::core::result::Result<(), ::redlock_sync::Error> {
        let _ = a + b;
        ::core::result::Result::Ok(())
    }
}

// Functions that a macro generates.

macro_rules! locked {
    ($name:ident, $key:literal, $arg:ident) => {
        #[distributed_lock($key)]
        fn $name($arg: u8) -> Result<u8, Error> {
            Ok($arg)
        }
    };
}

locked!(from_a_macro, "shapes:macro:{id}", id);

// The order of drops.

struct Noisy<'a>(&'a Cell<u32>, &'static str);

impl Drop for Noisy<'_> {
    fn drop(&mut self) {
        assert!(held(self.1), "dropped after the release");
        self.0.set(self.0.get() + 1);
    }
}

impl Noisy<'_> {
    fn drops(&self) -> u32 {
        self.0.get()
    }
}

#[distributed_lock("shapes:drops")]
fn drops(
    a: Noisy<'_>,
    _: Noisy<'_>,
    (_b, _): (Noisy<'_>, Noisy<'_>),
    _c: Noisy<'_>,
    #[expect(unused_variables)] d: Noisy<'_>,
    #[expect(unused_variables, unused_mut)] mut e: Noisy<'_>,
    drops: &Cell<u32>,
) -> Result<u32, Error> {
    let _ = &a;
    Ok(Noisy(drops, "shapes:drops").drops())
}

// Names of other crates.

mod renamed {
    pub use redlock_sync as locks;
}

#[distributed_lock("shapes:renamed:{a}:{b}", crate = renamed::locks)]
fn crate_path(a: u8, b: u8) -> Result<String, Error> {
    Ok(key!("shapes:renamed:{a}:{b}", crate = renamed::locks))
}

// Clients.

struct Owner {
    locks: Redlock,
    shared: Arc<Redlock>,
    behind: std::sync::Mutex<Redlock>,
}

impl Owner {
    #[distributed_lock("shapes:own", client = self.locks)]
    fn own(&self) -> Result<(), Error> {
        assert_locked!("shapes:own", client = self.locks);
        Ok(())
    }

    #[distributed_lock("shapes:shared", client = self.shared)]
    fn shared(&self) -> Result<(), Error> {
        assert_locked!("shapes:shared", client = &*self.shared);
        Ok(())
    }

    #[distributed_lock("shapes:fallible", client = self.find()?)]
    fn fallible(&self) -> Result<(), Error> {
        Ok(())
    }

    #[distributed_lock("shapes:behind", client = self.behind.lock().unwrap())]
    fn behind(&self) -> Result<(), Error> {
        assert!(self.behind.try_lock().is_ok());
        Ok(())
    }

    fn find(&self) -> Result<&Redlock, Error> {
        Ok(&self.locks)
    }
}

// Derived keys.

#[derive(LockKey)]
#[lock_key("shapes:{id}:<self.note.len()>")]
struct Order {
    id: u64,
    note: String,
}

#[derive(LockKey)]
#[lock_key("shapes:{0:04}:{1.0}")]
struct Pair(u8, (u8, u8));

#[derive(LockKey)]
#[lock_key("shapes:{type}:{r#match}")]
struct Keywords {
    r#type: u8,
    r#match: u8,
}

#[derive(LockKey)]
#[lock_key("shapes:unit")]
struct Unit;

#[derive(LockKey)]
enum Kinds<'a, T: ?Sized, const N: usize> {
    #[lock_key("shapes:all")]
    All,
    #[lock_key("shapes:one:{0}")]
    One(&'a T),
    #[lock_key("shapes:many:{list:?}:{N}")]
    Many { list: [u8; N] },
}

fn derived() {
    let order = Order { id: 7, note: "abc".into() };
    assert_eq!(order.lock_key(), "shapes:7:3");
    assert_eq!(Pair(7, (8, 9)).lock_key(), "shapes:0007:8");
    assert_eq!(Keywords { r#type: 7, r#match: 8 }.lock_key(), "shapes:7:8");
    assert_eq!(Unit.lock_key(), "shapes:unit");
    assert_eq!(Kinds::<str, 0>::All.lock_key(), "shapes:all");
    assert_eq!(Kinds::<str, 0>::One("x").lock_key(), "shapes:one:x");
    assert_eq!(Kinds::Many::<u8, 2> { list: [1, 2] }.lock_key(), "shapes:many:[1, 2]:2");
    Redlock::default_client().unwrap().mutex(&order).lock().unwrap().unlock().unwrap();
}

/// Calls all functions. It needs a default client.
pub fn run(locks: &Redlock) {
    free(locks);
    methods();
    nothing_in().unwrap();
    let owner = Owner { locks: locks.clone(), shared: Arc::new(locks.clone()), behind: locks.clone().into() };
    owner.own().unwrap();
    owner.shared().unwrap();
    owner.fallible().unwrap();
    owner.behind().unwrap();
    derived();
}

fn free(locks: &Redlock) {
    assert_eq!(attributes(3), Ok(Some(3)));
    assert_eq!(early(3).unwrap(), 8);
    assert!(matches!(early(-3), Err(ShopError::Empty)));
    assert_eq!(alias(), Ok(1));
    assert_eq!(boxed("5").unwrap(), 5);
    assert!(boxed("x").unwrap_err().is::<std::num::ParseIntError>());
    assert_eq!(boxed_send("5").unwrap(), 5);
    assert_eq!(io_result().unwrap_err().kind(), io::ErrorKind::NotFound);
    assert_eq!(recursion(3), Ok(6));
    assert_eq!(recursion_with_one_key(3), Ok(6));
    assert!(std::panic::catch_unwind(|| never()).is_err());
    assert!(!held("shapes:never"));
    assert_eq!(endless(1), Ok(200));
    assert_eq!(mutated(1), Ok(2));
    assert_eq!(moved("x".into()).unwrap(), "x");
    let point = Point { x: 1, y: 2, rest: String::new() };
    assert_eq!(taken_apart(point, (1, 1), (0, 1), &1, String::new()), Ok(8));
    odd_holes(1, 2, "x}y").unwrap();
    assert_eq!(raw_name(3), Ok(3));
    assert_eq!(slice([1, 2, 3, 4]), Ok(5));
    used_by_the_key(1, (2, 3), locks).unwrap();
    used_by_the_fallback(1, 2, "app:").unwrap();
    lints_of_parameters(1, 2, 3, 4, (5, 6)).unwrap();
    lint_of_the_function(1).unwrap();
    assert_eq!(some_builds(1, (2, String::new())), Ok(3));
    assert_eq!(some_builds_with_a_fallback(1), Ok(2));
    assert_eq!(generic::<_, _, 2>(5, "x"), Ok([5, 5]));
    assert_eq!(borrow("abc", ""), Ok("bc"));
    let mut list = vec![];
    *elided(&mut list).unwrap() = 5;
    assert_eq!(list, [5]);
    assert_eq!(impl_in(1, || 3), Ok(3));
    assert_eq!(impl_out(3).collect::<Vec<_>>(), [0, 2, 4]);
    assert_eq!(impl_out_in_result(&[1, 2]).unwrap().collect::<Vec<_>>(), [2, 3]);
    assert_eq!(dyn_in_out(&|| 5).unwrap()(), 5);
    assert_eq!(unsafe { raw(&9) }, Ok(9));
    assert_eq!(foreign(4), 4);
    assert_eq!(names(1, 2, 3, 4, 5, 6), Ok(21));
    shadows::shadows(1, 2).unwrap();
    assert_eq!(from_a_macro(5), Ok(5));
    let count = Cell::new(0);
    let noisy = || Noisy(&count, "shapes:drops");
    assert_eq!(drops(noisy(), noisy(), (noisy(), noisy()), noisy(), noisy(), noisy(), &count), Ok(0));
    assert_eq!(count.get(), 8);
    assert_eq!(crate_path(1, 2).unwrap(), "shapes:renamed:1:2");
}

fn methods() {
    let mut shop = Shop::new("north").unwrap();
    let item = Item { sku: "A:1" };
    let first = shop.reserve(&item).unwrap();
    assert!(shop.reserve(&item).unwrap() > first);
    *shop.lot(&item).unwrap() += 1;
    assert_eq!(shop.clone().consume().unwrap(), [8, 9]);
    assert_eq!(Arc::new(shop.clone()).arc(), Ok(1));
    assert_eq!(Holder(&Rc::new(5), PhantomData).get().unwrap(), &Rc::new(5));
    assert_eq!(shop.with_a_body(5), Ok(6));
}
