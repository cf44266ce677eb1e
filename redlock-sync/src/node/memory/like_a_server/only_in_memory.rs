//! Scripts on a node in memory that can do what a test cannot have a server do.

use super::enters;
use super::mutex::{ALIVE, SECOND_ALIVE, acquire, release, take};
use super::sides::{call_in_memory, in_memory};
use super::texts::shown;
use crate::node::memory::{Rule, Store};
use crate::protocol::TypedCall;
use crate::protocol::list::{Page, more, page};
use crate::protocol::reply::Reply;

/// The client publishes what its script could not. A grant is for a moment then, and the wait makes an attempt.
#[test]
fn what_a_server_does_not_publish_is_added_to_the_reply() {
    let mut memory = in_memory();
    memory.rules = vec![Rule::NoPublishInScripts];
    let said = |memory: &mut Store, call| shown(call_in_memory(memory, &call));
    assert_eq!(said(&mut memory, take("a")), "1");
    assert_eq!(said(&mut memory, acquire("b", enters(ALIVE))), "[0, 30s, a, 1]");
    assert_eq!(said(&mut memory, release("a")), "[untold, 2, [redlock-sync:1/2 0 0 ]]");
    assert_eq!(said(&mut memory, acquire("b", enters(ALIVE))), "1");
    // A user who may not publish could not do it either.
    memory.refuses = true;
    memory.rules = Vec::new();
    assert_eq!(said(&mut memory, acquire("c", enters(SECOND_ALIVE))), "[0, 30s, b, 1]");
    assert_eq!(said(&mut memory, release("b")), "4");
}

/// Each command takes 100 µs. The test requests the keys that a page leaves out by name, until it has read all keys.
#[test]
fn a_page_of_all_keys_stops_soon_and_names_the_rest() {
    let mut store = in_memory();
    let token = |i: u32| format!("{i:032x}:owner");
    for i in 0..50 {
        let held = store.lasting(&token(i), 30_000);
        store.replace(format!("order:{i:02}").as_bytes(), Some(held));
    }
    store.microseconds_per_command = 100;
    let mut read = |call: TypedCall<Page>| {
        let before = store.clock;
        let page = Page::read(&call_in_memory(&mut store, &call.call).unwrap()).unwrap();
        assert!(store.clock - before < 4000, "{page:?}");
        page
    };
    let mut page = read(page("0", &["*".to_owned()], None));
    let mut calls = 1;
    let mut all = page.listed.len();
    while let Some((told, keys)) = page.more.pop_first() {
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        page = read(more(&keys, false, told));
        (calls, all) = (calls + 1, all + page.listed.len());
    }
    assert!(all == 50 && calls > 4, "{all} in {calls} calls");
}
