//! A batch of one call that carries a body: see `node/bodies.rs`.

use std::time::Duration;

use super::{Batch, Due, Line, Members, RoundOp};

impl<'a> Batch<'a> {
    /// One call that carries a body, with so much extra time for what it sends.
    pub(in crate::node) fn alone(
        members: &'a Members,
        line: &'a mut Line,
        op: RoundOp,
        need: usize,
        extra: Duration,
    ) -> Batch<'a> {
        let mut batch = Batch::new(members, line, vec![op], need);
        batch.body = Some(extra);
        batch.extend();
        batch
    }

    /// A body is sent, or sent again.
    pub(super) fn extend(&mut self) {
        let extra = self.body.unwrap_or_default();
        self.deadline = self.deadline.after(extra);
        self.read_by = self.read_by.after(extra);
    }

    /// Remembers how long a body took.
    pub(super) fn note_time(&self, due: Option<&Due>, is_body: bool) {
        if let Some(due) = due.filter(|_| is_body) {
            let now = self.members.clock.now();
            self.members.bodies.note(now.since(due.sent_at), now);
        }
    }
}
