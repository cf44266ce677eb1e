//! A look at the servers for many leases at once: do they still have the tokens?
//!
//! It only raises a suspicion. The lease may have ended meanwhile, or been passed on, or a renewal may have set its
//! token again. So its renewal thread asks again, in a round of that lease.

use std::sync::Arc;
use std::time::Duration;

use super::LeaseInner;
use crate::clock::Tick;
use crate::protocol::held::{Gone, StoredToken, ask_for, parts};
use crate::protocol::reply::{PerNode, Vote};

/// A younger lease is not looked after. Most locks are held for less.
const SETTLED: Duration = Duration::from_secs(1);

/// A lease that is looked after.
struct Look {
    /// Its place among all leases.
    lease: usize,
    /// The nodes that have the token, as far as is known.
    nodes: PerNode<bool>,
    stored: Vec<StoredToken>,
}

/// The places of the leases whose tokens no majority of the nodes has any more, as far as servers answer until `by`.
///
/// In a cluster, nothing is asked: each key would need a call of its own.
pub(in crate::lease) fn suspects(leases: &[Arc<LeaseInner>], by: Tick) -> Vec<usize> {
    let Some(quorum) = leases.first().map(|lease| &lease.quorum).filter(|quorum| !quorum.nodes.are_in_slots()) else {
        return Vec::new();
    };
    let settled = quorum.now().before(SETTLED);
    let looks = leases.iter().enumerate().filter_map(|(place, lease)| lease.look(place, settled));
    let mut looks: Vec<Look> = looks.collect();
    let of_look = |(place, look): (usize, &mut Look)| {
        std::mem::take(&mut look.stored).into_iter().map(move |token| (place, token))
    };
    let (owners, tokens): (Vec<usize>, Vec<StoredToken>) = looks.iter_mut().enumerate().flat_map(of_look).unzip();
    let mut owners = owners.iter();
    for part in parts(&tokens) {
        // One call at a time: over a slow link, a renewal waits for no more than that.
        let ballot = quorum.round(&ask_for(part), by.min(quorum.round_deadline()));
        let asked: Vec<usize> = owners.by_ref().take(part.len()).copied().collect();
        for (node, vote) in ballot.votes.iter().enumerate() {
            let Vote::Yes(Gone(gone)) = vote else { continue };
            for owner in gone.iter().filter_map(|place| asked.get(*place)) {
                if let Some(has_it) = looks.get_mut(*owner).and_then(|look| look.nodes.get_mut(node)) {
                    *has_it = false;
                }
            }
        }
        if !ballot.won() {
            break;
        }
    }
    let is_lost = |look: &Look| look.nodes.iter().filter(|has_it| **has_it).count() < quorum.need();
    looks.iter().filter(|look| is_lost(look)).map(|look| look.lease).collect()
}

impl LeaseInner {
    /// `None` if the lease is over, is not settled, or is the claim of a task. Also while a round is under way: that
    /// finds a loss itself.
    fn look(&self, place: usize, settled: Tick) -> Option<Look> {
        if self.born > settled || !self.state.lock().now.is_live() {
            return None;
        }
        let nodes = self.rounds.try_lock()?.expiry.nodes();
        Some(Look { lease: place, nodes, stored: self.protocol().lock()?.stored(&self.id) })
    }
}
