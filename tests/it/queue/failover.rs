//! A replica takes over without the last writes (9), and a server's clock jumps (17).

use std::time::Duration;

use redlock_sync::{Job, Queue, TaskInfo};
use redlock_tests::{Proxy, Server, eventually};

use super::rig::{SOON, ask, ms, queue, task};

fn claim(mails: &Queue) -> Job {
    mails.try_claim_for(SOON).unwrap().unwrap()
}

/// The new master was disconnected before the last calls reached it. Clients reach the new master by the old address.
#[test]
fn queue_fault_09_a_failover_loses_what_was_not_replicated() {
    let (server, replica) = (Server::start(), Server::start());
    let proxy = Proxy::start(&server);
    replica.replica_of(&server);
    let mails = queue(&proxy.url()).lease(ms(6000));
    mails.push(task("kept")).unwrap();
    let kept = claim(&mails);
    mails.push_all(["acked", "claimed", "waiting"].map(task)).unwrap();
    eventually("the replica has the tasks", SOON, || ask::<usize>(&replica, "ZCARD", "due", &[]) == 4);
    replica.promote();
    claim(&mails).ack().unwrap();
    let lost = claim(&mails);
    assert_eq!(lost.id(), "claimed");
    mails.push(task("missing")).unwrap();
    server.kill();
    proxy.target(&replica);
    proxy.drop_connections();
    eventually("the claim that was not replicated is lost", SOON, || lost.check().is_err());
    assert!(lost.ack().unwrap_err().is_lost());
    kept.extend(ms(6000)).unwrap();
    kept.ack().unwrap();
    // A task that was acked runs again, and a pushed task is missing.
    for id in ["acked", "claimed", "waiting"] {
        let job = claim(&mails);
        assert_eq!((job.id(), job.attempt()), (id, 1));
        job.ack().unwrap();
    }
    assert!(mails.is_empty().unwrap() && mails.try_claim().unwrap().is_none());
}

/// Moves the times in the queue's keys to where a jump of the server's clock would have moved them. No clock is
/// changed.
fn jump(server: &Server, hours: i64) {
    let micros = hours * 3_600_000_000;
    let entries: Vec<String> = ask(server, "ZRANGE", "due", &["0", "-1"]);
    for id in entries {
        ask::<f64>(server, "ZINCRBY", "due", &[&(-micros).to_string(), &id]);
    }
    let last: i64 = ask(server, "GET", "fence", &[]);
    ask::<()>(server, "SET", "fence", &[&(last - micros).to_string(), "KEEPTTL"]);
}

#[test]
fn queue_fault_17_a_clock_that_jumps_makes_tasks_early_or_late() {
    let server = Server::start();
    let mails = queue(&server.url()).lease(ms(6000));
    let due = || mails.peek_due(9).unwrap().iter().map(|entry: &TaskInfo| entry.id().to_owned()).collect::<Vec<_>>();
    // After a jump forward, delayed tasks and claims are due early. A claim goes on unless another worker has taken its
    // task.
    mails.push_all(["goes on", "is taken"].map(task)).unwrap();
    let (goes_on, taken) = (claim(&mails), claim(&mails.clone().renew(false)));
    mails.push(task("delayed").after(Duration::from_secs(1800))).unwrap();
    jump(&server, 1);
    assert!(due().contains(&"delayed".to_owned()));
    goes_on.extend(ms(6000)).unwrap();
    assert_eq!(due().len(), 2);
    let second = claim(&mails);
    assert_eq!((second.id(), second.attempt()), ("is taken", 2));
    assert!(taken.extend(ms(6000)).unwrap_err().is_lost() && taken.ack().unwrap_err().is_lost());
    goes_on.check().unwrap();
    goes_on.ack().unwrap();
    let last = second.fencing_token().unwrap();
    second.ack().unwrap();
    claim(&mails).ack().unwrap();
    // After a jump backward, due tasks are late. Claims are renewed and ended as before, and fencing tokens still rise.
    mails.push(task("held")).unwrap();
    let held = claim(&mails);
    let fence = held.fencing_token().unwrap();
    mails.push(task("late")).unwrap();
    jump(&server, -1);
    assert!(due().is_empty() && mails.try_claim().unwrap().is_none());
    held.extend(ms(6000)).unwrap();
    held.ack().unwrap();
    mails.push(task("new")).unwrap();
    let new = claim(&mails);
    let hour = 3_600_000_000;
    assert!(new.id() == "new" && fence > last && new.fencing_token().unwrap() > fence + hour);
    new.ack().unwrap();
    assert!(mails.peek(1).unwrap()[0].due_in() > Duration::from_secs(3500));
}
