//! Taking over a lock that its holder has left held.

use std::iter;
use std::sync::Arc;
use std::time::Duration;

use super::attempt::Attempt;
use super::{keep_or_share_head, observed};
use crate::cancel::Cancelling;
use crate::clock::Tick;
use crate::error::{Error, LostReason};
use crate::handover::rules::Chain;
use crate::handover::thread_queue::QueueOutcome;
use crate::inner::ClientInner;
use crate::lease::{Lease, PendingRelease};
use crate::options::{MAX_LEASE, jittered};
use crate::protocol::reply::{Acquired, Vote};
use crate::protocol::{Exclusive, Request};
use crate::quorum::Ballot;
use crate::token::LockId;

/// Takes over a lock that its holder has left held under the token `former`. It does not wait: if `former` does not
/// hold the lock, the lock is lost.
pub(crate) fn adopt(client: &Arc<ClientInner>, request: &Request, former: &LockId) -> Result<Lease, Error> {
    observed(client, request, || take_over(client, request, former))
}

fn take_over(client: &Arc<ClientInner>, request: &Request, former: &LockId) -> Result<Lease, Error> {
    let _call = client.begin_call();
    client.ready()?;
    let (key, kind) = (request.key.as_str(), request.protocol.kind());
    let Some(mutex) = request.protocol.mutex() else {
        return Err(Error::config(format!("lock `{key}` cannot be adopted: it is a {}", kind.name)));
    };
    let head = match client.queues.try_enqueue(request.key.name(), kind, &request.options) {
        Some(QueueOutcome::Head(head)) => Some(head),
        _ => None,
    };
    let until = client.quorum.round_deadline();
    let (mut made, mut pause) = (1, FIRST_PAUSE);
    let lease = loop {
        let adoption = Adoption { attempt: Attempt::prepare(client, request)?, mutex, former };
        let by = client.quorum.round_deadline();
        // If an earlier adoption is still to be rolled back, a node may have its token in place of the former one.
        let from: Vec<LockId> = iter::once(former.clone()).chain(client.backlog.adoptions_of(former)).collect();
        let call = mutex.adopt(&adoption.attempt.id, adoption.attempt.lease, &from, request.options.fenced);
        let mut ballot = client.quorum.round(&call, by);
        // Such a node may have the former token again, although another holder has adopted it.
        client.quorum.disqualify_restarted(&mut ballot.votes);
        let Err(error) = adoption.attempt.judge("adopt", &ballot) else {
            break adoption.adopted(&from, &ballot)?;
        };
        let may_repeat = made < MOST_ATTEMPTS && client.quorum.now() < until;
        if let Some(error) = adoption.refused(&ballot, by, error, may_repeat) {
            return Err(error);
        }
        client.queues.sleep_until(client.quorum.now().after(jittered(pause)), &Cancelling::default());
        (made, pause) = (made + 1, pause * 2);
    };
    if let Some(head) = head {
        keep_or_share_head(&lease, head);
    }
    Ok(lease)
}

/// Several calls can adopt the same token and split the votes. Each then repeats its attempt up to this number, after a
/// random pause. The pause is at most `FIRST_PAUSE` at first, and doubles each time.
const MOST_ATTEMPTS: u32 = 5;
const FIRST_PAUSE: Duration = Duration::from_millis(4);

/// One attempt to adopt a token.
struct Adoption<'a> {
    attempt: Attempt<'a>,
    mutex: &'a Exclusive,
    former: &'a LockId,
}

impl Adoption<'_> {
    /// The lease of an adoption that was won. On the nodes that did not answer, the former tokens are released, and the
    /// next renewal sets the new token. Otherwise such a node would keep a former token until it expires.
    fn adopted(self, from: &[LockId], ballot: &Ballot<Acquired>) -> Result<Lease, Error> {
        let Attempt { client, request, lease, .. } = self.attempt;
        let missed: Vec<bool> = ballot.votes.iter().map(|vote| !vote.is_definite()).collect();
        if missed.contains(&true) {
            let now = client.quorum.now();
            for former in from {
                client.queues.add_leftover_token(request.key.name(), former.clone(), now.after(lease));
                // The lease of the former holder is not known here.
                let (protocol, ends) = (Arc::clone(&request.protocol), now.after(MAX_LEASE));
                client.backlog.add(PendingRelease::of_token(protocol, former.clone(), ends, missed.clone()));
            }
        }
        self.attempt.hold(ballot, None, Chain::default(), None)
    }

    /// Undoes the adoption. Returns the error, or `None` if another attempt is to be made.
    ///
    /// Other calls may adopt the token at the same time, and none may reach a majority. If each released the nodes that
    /// it got, the lock would be lost to all. So each gives its nodes back to the former token and tries again after a
    /// random pause, until one call has a majority.
    fn refused(&self, ballot: &Ballot<Acquired>, by: Tick, error: Error, may_repeat: bool) -> Option<Error> {
        if error.is_busy() && ballot.is_lost_for_good() {
            self.attempt.roll_back(ballot, by);
            let is_taken = |vote: &Vote<Acquired>| matches!(vote, Vote::Taken { .. });
            let reason = if ballot.votes.iter().any(is_taken) { LostReason::Taken } else { LostReason::Deleted };
            return Some(Error::Lost { key: self.attempt.request.key.as_str().to_owned(), reason });
        }
        self.give_back(ballot, by);
        match error {
            Error::Busy { .. } | Error::Unavailable { .. } if ballot.answered() > ballot.yes() && may_repeat => None,
            Error::Busy { .. } => Some(self.unsettled(ballot)),
            error => Some(error),
        }
    }

    /// Gives the nodes back to the former token, so that the adoption can be tried again. This also covers nodes that
    /// execute the adoption later.
    ///
    /// Another call may have adopted the former token meanwhile. Giving nodes back to it does no harm then, since these
    /// nodes are a minority.
    fn give_back(&self, ballot: &Ballot<Acquired>, by: Tick) {
        let Attempt { client, request, id, lease, .. } = &self.attempt;
        if client.quorum.roll_back(ballot, &self.mutex.give_back(id, self.former), by) {
            // A node may keep the token. The backlog gives the lock back there as soon as the servers answer.
            let ends = client.quorum.now().after(*lease);
            let at = ballot.votes.iter().map(Vote::may_be_set).collect();
            let of_token = PendingRelease::of_token(Arc::clone(&request.protocol), id.clone(), ends, at);
            client.backlog.add_adoption(of_token, id.clone(), self.former.clone());
        }
    }

    /// The error if no token has a majority.
    fn unsettled(&self, ballot: &Ballot<Acquired>) -> Error {
        let quorum = &self.attempt.client.quorum;
        let describe = |vote: &Vote<Acquired>| match vote {
            Vote::Failed(failure) => failure.message.clone(),
            Vote::Yes(_) | Vote::Void => "has the token".to_owned(),
            Vote::Absent => "has no such key".to_owned(),
            Vote::Taken { .. } => "has another token, perhaps of another call that adopts the lock".to_owned(),
        };
        let nodes = ballot.votes.iter().enumerate().map(|(i, vote)| quorum.node_error(i, describe(vote))).collect();
        Error::Unavailable { op: "adopt", key: self.attempt.request.key.as_str().to_owned(), of: quorum.len(), nodes }
    }
}
