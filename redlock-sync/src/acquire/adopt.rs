//! Taking over a lock that its holder has left held.

use std::iter;
use std::sync::Arc;
use std::time::Duration;

use super::attempt::{judge, take_back, undo};
use super::{keep, observed};
use crate::cancel::Cancelling;
use crate::clock::Tick;
use crate::error::{Error, LostReason};
use crate::handover::queue::Entered;
use crate::handover::rules::Chain;
use crate::inner::ClientInner;
use crate::lease::{Core, Lease, Origin};
use crate::node::Lane;
use crate::options::jittered;
use crate::protocol::reply::{Acquired, Vote};
use crate::protocol::{Adopt, Request};
use crate::quorum::Ballot;
use crate::token::LockId;

/// Takes over a lock that its holder has left held, by its token. Nothing is waited for: if that token does not hold the lock, it is lost.
pub(crate) fn adopt(client: &Arc<ClientInner>, request: &Request, former: &LockId) -> Result<Lease, Error> {
    observed(client, request, || take_over(client, request, former))
}

fn take_over(client: &Arc<ClientInner>, request: &Request, former: &LockId) -> Result<Lease, Error> {
    let _competing = client.competes();
    client.ready()?;
    request.options.check(&client.quorum.limits)?;
    let (key, kind) = (request.key.as_str(), request.protocol.kind());
    let Some(adopting) = request.protocol.adopting() else {
        return Err(Error::config(format!("lock `{key}` cannot be adopted: it is a {}", kind.name)));
    };
    let head = match client.queues.try_enter(request.key.name(), kind, &request.options) {
        Some(Entered::Head(head)) => Some(head),
        _ => None,
    };
    let until = client.quorum.round_deadline();
    let attempt = Attempt { client, request, adopting, former };
    let (mut made, mut pause) = (1, FIRST_PAUSE);
    let lease = loop {
        let (refused, error) = match attempt.make()? {
            Outcome::Adopted(lease) => break lease,
            Outcome::Refused(refused, error) => (refused, error),
        };
        let may_repeat = made < TRIES && client.quorum.now() < until;
        if let Some(error) = attempt.ends_with(&refused, error, may_repeat) {
            return Err(error);
        }
        client.queues.rest(client.quorum.now().after(jittered(pause)), &Cancelling::default());
        (made, pause) = (made + 1, pause * 2);
    };
    if let Some(head) = head {
        keep(&lease, head);
    }
    Ok(lease)
}

/// Most attempts of a call that adopts a token which others adopt too, if the votes are split; and the longest pause after the first one, doubled each time.
const TRIES: u32 = 5;
const FIRST_PAUSE: Duration = Duration::from_millis(4);

/// What each attempt needs.
struct Attempt<'a> {
    client: &'a Arc<ClientInner>,
    request: &'a Request,
    adopting: &'a dyn Adopt,
    former: &'a LockId,
}

enum Outcome {
    Adopted(Lease),
    /// With what the round set, which is still there.
    Refused(Refused, Error),
}

/// A round that was not won.
struct Refused {
    ballot: Ballot<Acquired>,
    id: LockId,
    length: Duration,
    by: Tick,
}

impl Attempt<'_> {
    fn make(&self) -> Result<Outcome, Error> {
        let Attempt { client, request, adopting, former } = *self;
        let quorum = &client.quorum;
        let by = quorum.round_deadline();
        let length = Core::first_lease(&request.options);
        quorum.note_lease(length);
        let (id, next) = client.tokens.fresh(request.options.holder_name.as_deref())?;
        // Where an earlier adoption is still to be undone, its token stands for the former one.
        let from: Vec<LockId> = iter::once(former.clone()).chain(client.backlog.adoptions_of(former)).collect();
        let call = adopting.adopt(&id, length, &from, request.options.fenced);
        let ballot = quorum.round(&call, Lane::Ordinary, by, &|_| true);
        if let Err(error) = judge(client, request, "adopt", &ballot, length) {
            return Ok(Outcome::Refused(Refused { ballot, id, length, by }, error));
        }
        let missed: Vec<bool> = ballot.votes.iter().map(|vote| !vote.is_definite()).collect();
        if missed.contains(&true) {
            // They are freed there, and the next renewal sets ours: else that node would have a former token to its end.
            let ends = quorum.now().after(length);
            for former in &from {
                client.left_token(request, former, ends, missed.clone());
            }
        }
        let start = client.start(request, id, Origin { wait: None, chain: Chain::default(), next: Some(next) });
        Ok(Outcome::Adopted(client.lease(&Arc::new(Core::won(start, &ballot)))?))
    }

    /// Undoes what was set; the error, unless another attempt is to be made.
    ///
    /// Others may adopt the token at the same time, and each may have too few nodes. Were they to free what they got, the lock would be lost to all of them.
    /// So each gives its nodes back to the former token, and tries again after a random pause, until one has a majority.
    fn ends_with(&self, refused: &Refused, error: Error, may_repeat: bool) -> Option<Error> {
        let (client, key, ballot) = (self.client, self.request.key.as_str(), &refused.ballot);
        if error.is_busy() && ballot.is_lost_for_good() {
            take_back(client, self.request, ballot, &refused.id, refused.length, refused.by);
            let is_taken = |vote: &Vote<Acquired>| matches!(vote, Vote::Taken { .. });
            let reason = if ballot.votes.iter().any(is_taken) { LostReason::Taken } else { LostReason::Deleted };
            return Some(Error::Lost { key: key.to_owned(), reason });
        }
        self.give_back(refused);
        match error {
            Error::Busy { .. } | Error::Unavailable { .. } if ballot.tally().no > 0 && may_repeat => None,
            Error::Busy { .. } => Some(self.unsettled(ballot)),
            error => Some(error),
        }
    }

    /// Gives the nodes back to the former token, also those that execute the adoption later: it can be tried again then. What is given back to a token that
    /// another call has adopted meanwhile harms none: these nodes are a minority.
    fn give_back(&self, Refused { ballot, id, length, by }: &Refused) {
        let quorum = &self.client.quorum;
        if let Some(at) = undo(quorum, ballot, &self.adopting.give_back(id, self.former), *by) {
            self.client.left_adoption(self.request, id, self.former, quorum.now().after(*length), at);
        }
    }

    /// The error if no token has a majority.
    fn unsettled(&self, ballot: &Ballot<Acquired>) -> Error {
        let quorum = &self.client.quorum;
        let said = |vote: &Vote<Acquired>| match vote {
            Vote::Failed(failure) => failure.message.clone(),
            Vote::Yes(_) | Vote::Void => "has the token".to_owned(),
            Vote::Absent => "has no such key".to_owned(),
            Vote::Taken { .. } => "has another token, such as that of another call that adopts the lock".to_owned(),
        };
        let nodes = ballot.votes.iter().enumerate().map(|(i, vote)| quorum.node_error(i, said(vote))).collect();
        Error::Unavailable { op: "adopt", key: self.request.key.as_str().to_owned(), of: quorum.len(), nodes }
    }
}
