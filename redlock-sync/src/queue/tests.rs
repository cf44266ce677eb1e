//! Tests of a queue on nodes in memory, whose clock a test moves.

use std::time::Duration;

use crate::testing::Memory;
use crate::{Error, Pushed, Redlock, Task};

const SOON: Duration = Duration::from_secs(20);

fn task(id: &str) -> Task {
    Task::new(format!("body of {id}")).id(id)
}

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

#[test]
fn a_queue_in_memory_is_the_same() {
    let memory = Memory::new(1);
    let mails = memory.client().queue("q");
    let other = memory.client().queue("q");
    mails.push(task("now")).unwrap();
    mails.push(task("later").after(ms(60_000))).unwrap();
    let job = other.claim().unwrap();
    assert_eq!((job.id(), mails.push(task("now")).unwrap()), ("now", Pushed::RunsAgain));
    job.ack().unwrap();
    let job = other.try_claim_for(SOON).unwrap().unwrap();
    assert_eq!((job.id(), job.attempt()), ("now", 1));
    job.fail("boom").unwrap();
    assert_eq!((mails.dead(1).unwrap()[0].why(), mails.try_claim().unwrap().is_none()), ("boom", true));
    memory.advance(ms(61_000));
    let job = mails.try_claim_for(SOON).unwrap().unwrap();
    assert_eq!(job.id(), "later");
    memory.advance(ms(31_000));
    assert!(job.check().unwrap_err().is_lost());
    let second = other.try_claim_for(SOON).unwrap().unwrap();
    assert!(second.attempt() == 2 && job.ack().unwrap_err().is_lost());
    second.ack().unwrap();
    assert!(mails.is_empty().unwrap());
    assert_eq!((mails.revive_all().unwrap(), mails.remove("now").unwrap(), mails.purge_dead().unwrap()), (1, true, 0));
}

#[test]
fn an_end_behind_the_lease_that_is_not_answered_is_not_known() {
    let memory = Memory::new(1);
    let settings = Redlock::builder().node_timeout(ms(50));
    let mails = memory.build(settings).unwrap().queue("q");
    mails.push(task("a")).unwrap();
    let job = mails.claim().unwrap();
    memory.advance(ms(31_000));
    assert!(job.check().unwrap_err().is_lost());
    memory.take_away(1);
    assert!(matches!(job.ack().unwrap_err(), Error::Unconfirmed { confirmed: 0, of: 1, .. }));
}
