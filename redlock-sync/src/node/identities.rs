//! Which server each node really is. Locks on "three nodes" are unsafe if two of them are one server, or a server and
//! its replica. So the identity is asked for on each new connection.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::Tick;

/// What a server reported about itself in the handshake. Missing facts are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(super) run_id: String,
    /// The id of its data. Replicas have that of their master.
    pub(super) replid: String,
    /// The id before it became a master.
    pub(super) former_replid: String,
    /// The address of its master, if the server is a replica.
    pub(super) master: Option<String>,
    /// The reported uptime, and when it was reported.
    pub(super) uptime: Option<(Duration, Tick)>,
}

impl Identity {
    /// Limits the uptime to the time since the server was promoted. Writes from before may not have been replicated to
    /// it.
    pub(super) fn was_made_master(&mut self, age: Duration, now: Tick) {
        let up = self.uptime.map_or(age, |(uptime, at)| uptime.saturating_add(now.since(at)).min(age));
        self.uptime = Some((up, now));
    }
}

/// The identities of all nodes.
#[derive(Debug)]
pub(super) struct ServerIdentities {
    addresses: Vec<String>,
    members: Mutex<Vec<Option<Identity>>>,
    /// True while there is a conflict, so that a check without a conflict costs one load.
    in_conflict: AtomicBool,
}

impl ServerIdentities {
    pub(super) fn new(addresses: Vec<String>) -> ServerIdentities {
        let members = Mutex::new(vec![None; addresses.len()]);
        ServerIdentities { addresses, members, in_conflict: AtomicBool::new(false) }
    }

    /// Records which server answered at the address of a node. It may be another one than before.
    pub(super) fn report(&self, member: usize, identity: Identity) {
        self.set(&mut self.members.lock(), member, identity);
    }

    fn set(&self, members: &mut [Option<Identity>], member: usize, identity: Identity) {
        if let Some(slot) = members.get_mut(member) {
            *slot = Some(identity);
        }
        // Stored while `members` is locked, so the later of two reports wins. Pairs with `ServerIdentities::conflict`.
        self.in_conflict.store(find_conflict(members, &self.addresses).is_some(), Ordering::Release);
    }

    /// Returns the identity with the longer of the reported and the known uptime, if the run id is the same. Servers
    /// report whole seconds. Without this, a reconnect could make a server look younger than servers started with it.
    pub(super) fn with_known_uptime(&self, member: usize, mut identity: Identity, now: Tick) -> Identity {
        let members = self.members.lock();
        let same = |former: &&Identity| !former.run_id.is_empty() && former.run_id == identity.run_id;
        if let Some(former) = members.get(member).and_then(Option::as_ref).filter(same) {
            let up = |of: (Duration, Tick)| of.0.saturating_add(now.since(of.1));
            identity.uptime = [identity.uptime, former.uptime].into_iter().flatten().max_by_key(|of| up(*of));
        }
        identity
    }

    /// Like `report`, for one server of a cluster. The node's uptime is that of its youngest server. An id stays known
    /// if one server does not report it.
    pub(super) fn report_part(&self, member: usize, mut identity: Identity) {
        let mut members = self.members.lock();
        if let Some(former) = members.get(member).and_then(Option::as_ref) {
            let both = [identity.uptime, former.uptime];
            let latest = both.iter().flatten().map(|(_, at)| *at).max().unwrap_or(Tick::ZERO);
            identity.uptime = both.into_iter().flatten().min_by_key(|(uptime, at)| *uptime + latest.since(*at));
            if identity.run_id.is_empty() {
                identity.run_id.clone_from(&former.run_id);
            }
        }
        // The former identity was read under the same lock. So of two servers that report together, none is forgotten.
        self.set(&mut members, member, identity);
    }

    /// How long a node has been up, at least.
    pub(super) fn uptime(&self, member: usize, now: Tick) -> Option<Duration> {
        let members = self.members.lock();
        let (uptime, read_at) = members.get(member)?.as_ref()?.uptime?;
        Some(uptime.saturating_add(now.since(read_at)))
    }

    /// The run id of the server, which it chose when it started.
    pub(super) fn run_id(&self, member: usize) -> Option<String> {
        let members = self.members.lock();
        let identity = members.get(member)?.as_ref()?;
        (!identity.run_id.is_empty()).then(|| identity.run_id.clone())
    }

    /// Why two nodes are not independent of each other, if that was detected.
    pub(super) fn conflict(&self) -> Option<String> {
        // Pairs with `ServerIdentities::set`: a thread that reads true locks `members` after that report. Otherwise
        // it could find no conflict there.
        if self.in_conflict.load(Ordering::Acquire) {
            return find_conflict(&self.members.lock(), &self.addresses);
        }
        None
    }
}

fn find_conflict(members: &[Option<Identity>], addresses: &[String]) -> Option<String> {
    let known: Vec<_> = members.iter().zip(addresses).enumerate().collect();
    let named = |(i, address): (usize, &String)| format!("node {} ({address})", i + 1);
    known.iter().find_map(|&(i, (a, a_address))| {
        known.iter().find_map(|&(j, (b, b_address))| {
            let how = relation(i, a.as_ref()?, j, b.as_ref(), b_address)?;
            Some(format!("{} {how} {}", named((i, a_address)), named((j, b_address))))
        })
    })
}

/// The relation of `a` to `b`, if there is one. `b` is `None` if that node was not reached yet.
fn relation(i: usize, a: &Identity, j: usize, b: Option<&Identity>, b_address: &str) -> Option<&'static str> {
    if i == j {
        return None;
    }
    if let Some(master) = &a.master {
        let same_data = b.is_some_and(|b| b.master.is_none() && !a.replid.is_empty() && a.replid == b.replid);
        return (same_data || master == b_address).then_some("is a replica of");
    }
    (i < j && !a.run_id.is_empty() && b.is_some_and(|b| b.run_id == a.run_id)).then_some("is the same server as")
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by a panic")]
mod tests {
    use super::*;

    fn identities() -> ServerIdentities {
        ServerIdentities::new(vec!["a:1".into(), "b:2".into(), "c:3".into()])
    }

    fn master(run_id: &str, replid: &str) -> Identity {
        Identity { run_id: run_id.into(), replid: replid.into(), ..Identity::default() }
    }

    fn replica(run_id: &str, replid: &str, of: &str) -> Identity {
        Identity { master: Some(of.into()), ..master(run_id, replid) }
    }

    #[test]
    fn one_server_twice_is_a_conflict_until_it_is_not() {
        let identities = identities();
        identities.report(0, master("x", "r1"));
        assert_eq!(identities.conflict(), None);
        identities.report(2, master("x", "r1"));
        assert_eq!(identities.conflict().unwrap(), "node 1 (a:1) is the same server as node 3 (c:3)");
        identities.report(2, master("y", "r2"));
        assert_eq!(identities.conflict(), None);
    }

    #[test]
    fn a_replica_of_a_member_is_a_conflict() {
        let by_address = identities();
        by_address.report(0, replica("x", "r1", "b:2"));
        assert_eq!(by_address.conflict().unwrap(), "node 1 (a:1) is a replica of node 2 (b:2)");
        let by_data = identities();
        by_data.report(0, replica("x", "r1", "elsewhere:9"));
        by_data.report(1, master("y", "r1"));
        assert_eq!(by_data.conflict().unwrap(), "node 1 (a:1) is a replica of node 2 (b:2)");
    }

    #[test]
    fn members_that_say_nothing_are_no_conflict() {
        let identities = identities();
        identities.report(0, Identity::default());
        identities.report(1, Identity::default());
        identities.report(9, Identity::default());
        assert_eq!(identities.conflict(), None);
        assert_eq!(identities.uptime(0, Tick::ZERO), None);
    }

    #[test]
    fn uptime_goes_on() {
        let identities = identities();
        let second = Duration::from_secs(1);
        let uptime = Some((second, Tick::ZERO.after(second)));
        identities.report(0, Identity { uptime, ..Identity::default() });
        assert_eq!(identities.uptime(0, Tick::ZERO.after(3 * second)), Some(3 * second));
    }

    #[test]
    fn the_uptime_of_one_run_is_counted_on() {
        let identities = identities();
        let second = |n| Duration::from_secs(n);
        let reported = |run_id, up, at| {
            let identity = Identity { uptime: Some((second(up), Tick::ZERO.after(second(at)))), ..master(run_id, "r") };
            identities.report(0, identities.with_known_uptime(0, identity, Tick::ZERO.after(second(at))));
            identities.uptime(0, Tick::ZERO.after(second(at)))
        };
        assert_eq!(reported("x", 0, 10), Some(second(0)));
        assert_eq!(reported("x", 8, 20), Some(second(10)), "as it was reported before");
        assert_eq!(reported("x", 13, 22), Some(second(13)), "it was rounded down before");
        assert_eq!(reported("y", 0, 24), Some(second(0)), "it was restarted");
    }
}
