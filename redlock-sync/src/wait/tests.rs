//! The line without servers.

use super::*;
use crate::clock::SystemClock;
use std::sync::mpsc;
use std::thread;

fn lines() -> Arc<Lines<u32>> {
    Lines::new(Arc::new(SystemClock))
}

fn at_head(lines: &Arc<Lines<u32>>, key: &Arc<str>, until: Tick) -> Option<Turn<u32>> {
    match lines.enter(key, until, &Terms::default()) {
        Entered::Head(turn) => Some(turn),
        _ => None,
    }
}

fn waiting(lines: &Lines<u32>, key: &Arc<str>) -> usize {
    lines.by_key.lock().get(key).map_or(0, |line| line.waiting.len())
}

fn until_waiting(lines: &Lines<u32>, key: &Arc<str>, n: usize) {
    while waiting(lines, key) != n {
        SystemClock.sleep(Duration::from_millis(1));
    }
}

#[test]
fn first_come_first_served() {
    let (lines, key): (_, Arc<str>) = (lines(), "k".into());
    let head = at_head(&lines, &key, Tick::NEVER).unwrap();
    let (tell, told) = mpsc::channel();
    let threads: Vec<_> = (0..8)
        .map(|i| {
            let (lines, key, tell) = (Arc::clone(&lines), Arc::clone(&key), tell.clone());
            let thread = thread::spawn({
                let lines = Arc::clone(&lines);
                let key = Arc::clone(&key);
                move || {
                    let _turn = at_head(&lines, &key, Tick::NEVER).unwrap();
                    tell.send(i).unwrap();
                }
            });
            until_waiting(&lines, &key, i + 1);
            thread
        })
        .collect();
    drop(head);
    assert_eq!(told.iter().take(8).collect::<Vec<_>>(), (0..8).collect::<Vec<_>>());
    for thread in threads {
        thread.join().unwrap();
    }
    assert!(lines.by_key.lock().is_empty(), "nothing is left of an idle line");
}

#[test]
fn who_gives_up_leaves_no_gap() {
    let (lines, key): (_, Arc<str>) = (lines(), "k".into());
    let head = at_head(&lines, &key, Tick::NEVER).unwrap();
    let soon = SystemClock.now().after(Duration::from_millis(5));
    assert!(at_head(&lines, &key, soon).is_none());
    assert_eq!(waiting(&lines, &key), 0);
    drop(head);
    assert!(at_head(&lines, &key, Tick::ZERO).is_some());
}

#[test]
fn giving_up_while_moving_up_passes_the_turn_on() {
    let (lines, key): (_, Arc<str>) = (lines(), "k".into());
    for _ in 0..200 {
        let head = at_head(&lines, &key, Tick::NEVER).unwrap();
        let racer = {
            let (lines, key) = (Arc::clone(&lines), Arc::clone(&key));
            let until = SystemClock.now().after(Duration::from_micros(fastrand::u64(50..400)));
            thread::spawn(move || drop(at_head(&lines, &key, until)))
        };
        SystemClock.sleep(Duration::from_micros(fastrand::u64(50..400)));
        drop(head);
        racer.join().unwrap();
        assert!(lines.by_key.lock().is_empty());
    }
}

#[test]
fn tickets_are_bounded_and_end() {
    let (lines, key): (_, Arc<str>) = (lines(), "k".into());
    for i in 0..20 {
        lines.add_ticket(&key, LockId::from_server(&format!("t{i}")), Tick::NEVER);
    }
    let ids = lines.tickets(&key);
    assert_eq!(ids.len(), MAX_TICKETS);
    assert_eq!(ids.last().map(LockId::as_str), Some("t19"));
    lines.drop_tickets(&key);
    lines.add_ticket(&key, LockId::from_server("old"), Tick::ZERO);
    assert!(lines.tickets(&key).is_empty());
    lines.add_ticket(&"other".into(), LockId::from_server("new"), Tick::NEVER);
    assert!(!lines.by_key.lock().contains_key(&key));
}

#[test]
fn a_gift_goes_to_the_first_who_wants_it_on_the_same_terms() {
    let (lines, key): (_, Arc<str>) = (lines(), "k".into());
    let turn = at_head(&lines, &key, Tick::NEVER).unwrap();
    assert!(turn.successor(&Terms::default()).is_none());
    let waiter = {
        let (lines, key) = (Arc::clone(&lines), Arc::clone(&key));
        thread::spawn(move || lines.enter(&key, Tick::NEVER, &Terms::default()))
    };
    until_waiting(&lines, &key, 1);
    let other = Terms { renew: false, ..Terms::default() };
    assert!(!turn.has_successor(&other) && turn.successor(&other).is_none());
    turn.successor(&Terms::default()).unwrap().hand(7);
    assert!(matches!(waiter.join().unwrap(), Entered::Handed(7)));
}

#[test]
fn who_runs_out_of_time_while_promised_takes_the_gift() {
    let (lines, key): (_, Arc<str>) = (lines(), "k".into());
    for _ in 0..100 {
        let turn = at_head(&lines, &key, Tick::NEVER).unwrap();
        let waiter = {
            let (lines, key) = (Arc::clone(&lines), Arc::clone(&key));
            let until = SystemClock.now().after(Duration::from_micros(fastrand::u64(100..600)));
            thread::spawn(move || lines.enter(&key, until, &Terms::default()))
        };
        SystemClock.sleep(Duration::from_micros(fastrand::u64(50..600)));
        let spot = turn.successor(&Terms::default());
        let promised = spot.is_some();
        if let Some(spot) = spot {
            SystemClock.sleep(Duration::from_micros(fastrand::u64(0..300)));
            spot.hand(1);
        }
        let got = matches!(waiter.join().unwrap(), Entered::Handed(1));
        assert_eq!(got, promised, "what is handed over arrives");
    }
}

#[test]
fn closing_sends_everybody_away() {
    let (lines, key): (_, Arc<str>) = (lines(), "k".into());
    let _turn = at_head(&lines, &key, Tick::NEVER).unwrap();
    let waiter = {
        let (lines, key) = (Arc::clone(&lines), Arc::clone(&key));
        thread::spawn(move || lines.enter(&key, Tick::NEVER, &Terms::default()))
    };
    until_waiting(&lines, &key, 1);
    lines.close();
    assert!(matches!(waiter.join().unwrap(), Entered::Closed));
    assert!(matches!(lines.enter(&key, Tick::NEVER, &Terms::default()), Entered::Closed));
}
