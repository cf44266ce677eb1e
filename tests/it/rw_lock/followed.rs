//! Properties of two other systems whose read-write locks this one follows.
//!
//! In the first system, a reader needs that no writer holds the lock, and a writer needs that no other holder does. In
//! the second system, each side has its own expiry. Expired holders are ignored, only the owner deletes its entry, and
//! the key expires.

use redlock_tests::{eventually, servers};

use super::{KEY, SOON, brisk, held, is_clean, ms, open};

#[test]
fn first_system_reading_needs_no_writer_and_writing_needs_neither() {
    for nodes in [1, 3] {
        let servers = servers(nodes);
        let [one, two, three] = [(); 3].map(|()| open(&servers).rw_lock(KEY));
        let (reader, beside) = (one.try_read().unwrap(), two.try_read().unwrap());
        assert!(three.try_write().unwrap_err().is_busy());
        reader.unlock().unwrap();
        assert!(three.try_write().unwrap_err().is_busy(), "a writer got in beside a reader");
        beside.unlock().unwrap();
        let writer = three.try_write().unwrap();
        assert!(one.try_read().unwrap_err().is_busy() && two.try_write().unwrap_err().is_busy());
        writer.unlock().unwrap();
        one.try_read().unwrap().unlock().unwrap();
        assert!(is_clean(&servers));
    }
}

#[test]
fn second_system_reading_and_writing_expire_apart() {
    let servers = servers(1);
    let locks = brisk(&servers, ms(3000));
    let lock = locks.rw_lock(KEY).renew(false);
    let reader = lock.clone().lease(ms(3000)).read().unwrap();
    assert!(servers[0].pttl(KEY).unwrap() <= ms(3000));
    eventually("the key expires with its last holder", SOON, || servers[0].pttl(KEY).is_none());
    assert!(reader.unlock().unwrap_err().is_lost());
    let writer = lock.lease(ms(20_000)).write().unwrap();
    let left = servers[0].pttl(KEY).unwrap();
    assert!(left > ms(10_000) && left <= ms(20_000), "{left:?}");
    writer.unlock().unwrap();
}

#[test]
fn second_system_an_expired_holder_is_ignored_and_only_the_owner_deletes() {
    for nodes in [1, 3] {
        let servers = servers(nodes);
        let (brisk, locks, others) = (brisk(&servers, ms(3000)), open(&servers), open(&servers));
        let expires = brisk.rw_lock(KEY).renew(false).read().unwrap();
        let stays = locks.rw_lock(KEY).read().unwrap();
        assert!(others.rw_lock(KEY).try_write().unwrap_err().is_busy());
        eventually("the first reader's lease expires", SOON, || held(&others) == (0, 1));
        assert!(expires.unlock().unwrap_err().is_lost());
        assert_eq!(others.rw_lock(KEY).inspect().unwrap()[0].id, *stays.id(), "the release removed another holder");
        assert!(others.rw_lock(KEY).try_write().unwrap_err().is_busy());
        stays.unlock().unwrap();

        let expires = brisk.rw_lock(KEY).renew(false).write().unwrap();
        let next = others.rw_lock(KEY).try_write_for(SOON).unwrap();
        assert!(expires.unlock().unwrap_err().is_lost());
        next.check().unwrap();
        assert_eq!(others.rw_lock(KEY).inspect().unwrap()[0].id, *next.id());
        next.unlock().unwrap();
        assert!(is_clean(&servers));
    }
}
