//! Settings of the client and its addresses: prefix, unix socket, password, database.

use redlock_tests::Server;

use super::rig::{locks_on, open, patient};
use crate::kinds::{Kind, each_kind};
use crate::place::{Place, each_kind_and_place};

/// Takes a lock through this URL, and checks its key on the server.
fn works<K: Kind>(url: &str, keys: impl Fn() -> Vec<String>) {
    let guard = K::new(&redlock_tests::open(url), "order:42").lock().unwrap();
    assert_eq!(keys(), ["order:42"]);
    assert!(guard.fencing_token().unwrap() > 0);
    K::unlock(guard).unwrap();
    assert!(keys().is_empty());
}

fn a_unix_socket_works<K: Kind>() {
    let server = Server::builder().unix_socket().start();
    works::<K>(&server.unix_url(), || locks_on(&server));
}

fn a_password_works<K: Kind>() {
    let server = Server::builder().password("Sesame1").unix_socket().start();
    works::<K>(&server.url(), || locks_on(&server));
    works::<K>(&server.unix_url(), || locks_on(&server));
    let named = format!("redis://default:Sesame1@127.0.0.1:{}/", server.port());
    works::<K>(&named, || locks_on(&server));
}

/// The keys in a database, except fence counters.
fn keys_in(server: &Server, database: u32) -> Vec<String> {
    let mut client = server.client();
    redis::cmd("SELECT").arg(database).exec(&mut client).unwrap();
    let keys: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut client).unwrap();
    keys.into_iter().filter(|key| !key.ends_with(":fence")).collect()
}

fn a_database_index_works<K: Kind>() {
    let server = Server::builder().unix_socket().start();
    works::<K>(&format!("{}3", server.url()), || keys_in(&server, 3));
    works::<K>(&format!("{}?db=4", server.unix_url()), || keys_in(&server, 4));
    assert!(server.keys().is_empty());
    let (three, four) = (format!("{}3", server.url()), format!("{}4", server.url()));
    let _held = K::new(&redlock_tests::open(three), "order:42").lock().unwrap();
    K::unlock(K::new(&redlock_tests::open(four), "order:42").try_lock().unwrap()).unwrap();
}

fn a_prefix_is_part_of_the_key<K: Kind, P: Place>() {
    let server = P::one();
    let one = std::slice::from_ref(&server);
    let locks = P::client(one, patient().key_prefix("Lock:"));
    let guard = K::new(&locks, "order:42").lock().unwrap();
    assert_eq!(guard.key(), "Lock:order:42");
    guard.fencing_token().unwrap();
    assert_eq!(server.keys(), ["Lock:order:42", "{Lock:order:42}:fence"]);
    assert!(K::new(&open(one), "Lock:order:42").try_lock().err().unwrap().is_busy());
    K::unlock(K::new(&open(one), "order:42").try_lock().unwrap()).unwrap();
}

/// A fence counter is in the same hash slot as its lock.
fn fences_share_the_slot<K: Kind, P: Place>() {
    let server = P::one();
    let locks = open(std::slice::from_ref(&server));
    for key in ["order:42", "user:{7}:cart", "ü"] {
        let guard = K::new(&locks, key).lock().unwrap();
        guard.fencing_token().unwrap();
        K::unlock(guard).unwrap();
        let fence = server.keys().pop().unwrap();
        assert_eq!(slot_of(fence.as_bytes()), slot_of(key.as_bytes()), "{fence}");
        server.del(&fence);
    }
}

/// The hash slot by the cluster specification: CRC16 (XMODEM) modulo 16384, of the text between the first braces, or of
/// the whole key.
fn slot_of(key: &[u8]) -> u16 {
    let open = key.iter().position(|&byte| byte == b'{');
    let tag = open.and_then(|at| {
        let rest = &key[at + 1..];
        let close = rest.iter().position(|&byte| byte == b'}')?;
        (close > 0).then_some(&rest[..close])
    });
    let crc = tag.unwrap_or(key).iter().fold(0_u16, |crc, &byte| {
        (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 })
    });
    crc % 16384
}

each_kind_and_place!(every: a_prefix_is_part_of_the_key, fences_share_the_slot);

each_kind!(a_unix_socket_works, a_password_works, a_database_index_works,);
