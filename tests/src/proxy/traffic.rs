//! Handles requests and replies.

use std::time::{Duration, Instant};

use super::resp;
use super::rules::{Rule, strike};
use super::state::{Link, Load, Parcel, Priority, State};
use super::{Act, Seen};

/// A request whose reply has not arrived yet.
#[derive(Debug)]
pub(super) struct Awaited {
    name: String,
    /// The number of replies. It is more than one for SUBSCRIBE and similar commands.
    replies: usize,
    act: Option<(usize, Act)>,
    /// A reply of the proxy itself. It waits for the replies before it.
    own: Option<Vec<u8>>,
}

impl State {
    /// Handles a complete request.
    pub(super) fn request(&mut self, id: u64, request: Vec<u8>) {
        let words = resp::words(&request);
        let Some(command) = words.first() else {
            return self.post(id, Priority::ToServer, None, Load::Bytes(request));
        };
        let name = self.name(command, words.get(1..).unwrap_or_default());
        let awaited = Awaited { replies: replies(command, &words), name: name.clone(), act: None, own: None };
        let subscriber = is_subscription(command);
        self.seen.push(Seen { name: name.clone(), args: words[1..].to_vec(), at: Instant::now(), connection: id });
        let struck = strike(&mut self.rules, &name);
        if let Some(link) = self.links.get_mut(&id) {
            link.subscriber |= subscriber;
        }
        match struck {
            None => self.forward(id, request, awaited, None),
            Some((fault, act)) => self.act(id, request, awaited, fault, act),
        }
    }

    fn act(&mut self, id: u64, request: Vec<u8>, mut awaited: Awaited, fault: usize, act: Act) {
        if matches!(act, Act::HoldReply | Act::ResetAfter | Act::CutReply(_)) {
            awaited.act = Some((fault, act));
            return self.forward(id, request, awaited, None); // The act counts as a hit when the reply arrives.
        }
        self.faults[fault].hits += 1;
        match act {
            Act::Delay(delay) => {
                self.forward(id, request, awaited, None);
                self.delay_last(id, delay);
            }
            Act::BlackHole => {
                self.forward(id, request, awaited, None);
                self.link(id, |link| link.hole = Some(fault));
            }
            Act::Trickle(pause) => {
                self.forward(id, request, awaited, None);
                self.link(id, |link| link.trickle = Some((fault, pause)));
            }
            Act::ResetBefore => self.close(id, true),
            Act::Error(line) => self.answer(id, awaited, format!("-{line}\r\n")),
            Act::Text(text) => self.answer(id, awaited, format!("${}\r\n{text}\r\n", text.len())),
            _hold => self.forward(id, request, awaited, Some(fault)),
        }
    }

    /// Queues a reply of the proxy itself behind the replies that are expected.
    fn answer(&mut self, id: u64, mut awaited: Awaited, reply: String) {
        awaited.own = Some(reply.into_bytes());
        self.link(id, |link| link.awaited.push_back(awaited));
        self.post_own(id);
    }

    fn forward(&mut self, id: u64, request: Vec<u8>, awaited: Awaited, held_by: Option<usize>) {
        self.link(id, |link| link.awaited.push_back(awaited));
        self.post(id, Priority::ToServer, held_by, Load::Bytes(request));
    }

    fn delay_last(&mut self, id: u64, delay: Duration) {
        self.link(id, |link| {
            if let Some(last) = link.lanes[Priority::ToServer as usize].back_mut() {
                last.due += delay;
            }
        });
    }

    /// Handles a complete reply.
    pub(super) fn reply(&mut self, id: u64, reply: Vec<u8>) {
        let answered = self.links.get_mut(&id).and_then(|link| link.answered(&reply));
        let act = answered.and_then(|answered| self.due_on_reply(answered, &reply));
        let (held_by, load) = match act {
            Some((fault, Act::HoldReply)) => (Some(fault), Load::Bytes(reply)),
            Some((_, Act::CutReply(length))) => (None, Load::Cut(reply[..length.min(reply.len())].to_vec())),
            Some((_, Act::ResetAfter)) => (None, Load::Cut(Vec::new())),
            _ => (None, Load::Bytes(reply)),
        };
        self.post(id, Priority::ToClient, held_by, load);
        self.post_own(id);
    }

    /// Returns the act on a reply, and counts it as a hit. If the server did not know the script, it has not executed
    /// the command. Then the act is kept for the next command of this name, which should be EVAL.
    fn due_on_reply(&mut self, answered: Awaited, reply: &[u8]) -> Option<(usize, Act)> {
        let (fault, act) = answered.act?;
        if !reply.starts_with(b"-NOSCRIPT") {
            self.faults[fault].hits += 1;
            return Some((fault, act));
        }
        let lasting = self.rules.iter().any(|rule| rule.fault == fault);
        if !lasting && !self.faults[fault].released {
            self.rules.insert(0, Rule { name: answered.name, left: Some(1), act, fault });
        }
        None
    }

    /// Sends replies of the proxy itself that no other reply precedes.
    fn post_own(&mut self, id: u64) {
        while let Some(own) = self.links.get_mut(&id).and_then(Link::take_own) {
            self.post(id, Priority::ToClient, None, Load::Bytes(own));
            self.link(id, |link| link.wake(Priority::ToClient));
        }
    }

    /// Puts a parcel at the end of a lane. The caller writes it, or wakes the thread that does.
    pub(super) fn post(&mut self, id: u64, lane: Priority, held_by: Option<usize>, load: Load) {
        let mut due = Instant::now() + self.latency;
        let (Some((size, pause)), Load::Bytes(bytes)) = (self.pace(id, lane), &load) else {
            return self.link(id, |link| link.lanes[lane as usize].push_back(Parcel { due, held_by, load }));
        };
        self.link(id, |link| {
            let lane = &mut link.lanes[lane as usize];
            due = lane.back().map_or(due, |last| due.max(last.due));
            for piece in bytes.chunks(size) {
                due += pause;
                lane.push_back(Parcel { due, held_by, load: Load::Bytes(piece.to_vec()) });
            }
        });
    }

    /// The size of the pieces in which bytes pass, and the pause before each piece. `None` if they pass at once.
    fn pace(&self, id: u64, lane: Priority) -> Option<(usize, Duration)> {
        let trickle = self.links.get(&id)?.trickle.filter(|(fault, _)| !self.faults[*fault].released);
        match (trickle, lane) {
            (Some((_, pause)), Priority::ToClient) => Some((1, pause)),
            _ => self.bandwidth.map(|rate| ((rate / 100).max(1) as usize, Duration::from_millis(10))),
        }
    }

    /// Closes a lane: no more parcels follow.
    pub(super) fn end(&mut self, id: u64, lane: Priority, reset: bool) {
        self.post(id, lane, None, Load::End { reset });
        self.link(id, |link| link.wake(lane));
    }

    fn link(&mut self, id: u64, work: impl FnOnce(&mut Link)) {
        if let Some(link) = self.links.get_mut(&id) {
            work(link);
        }
    }

    /// The name of a command for rules and for the log; see [`Seen::name`].
    fn name(&self, command: &str, args: &[String]) -> String {
        let command = command.to_ascii_uppercase();
        let digest = match (command.as_str(), args) {
            ("EVALSHA" | "EVALSHA_RO", [digest, ..]) => digest.to_ascii_lowercase(),
            ("EVAL" | "EVAL_RO", [body, ..]) => redis::Script::new(body).get_hash().to_owned(),
            ("SET", [_, _, nx, px, _]) if nx == "NX" && px == "PX" => return "acquire".to_owned(),
            _ => return command,
        };
        self.scripts.get(&digest).cloned().unwrap_or(command)
    }
}

impl Link {
    /// Returns the request whose last reply is `reply`. Returns `None` for a message that no request asked for.
    fn answered(&mut self, reply: &[u8]) -> Option<Awaited> {
        let push = reply.first() == Some(&b'>');
        let word = if push || self.subscriber { resp::first_word(reply) } else { None };
        let first = self.awaited.front_mut()?;
        let confirms = word.as_ref().is_some_and(|word| is_subscription(word));
        let message = push || word.is_some_and(|word| word.ends_with("message"));
        if (confirms && !is_subscription(&first.name)) || (message && !confirms) {
            return None;
        }
        first.replies -= 1;
        if first.replies > 0 { None } else { self.awaited.pop_front() }
    }

    fn take_own(&mut self) -> Option<Vec<u8>> {
        let own = self.awaited.front_mut()?.own.take()?;
        self.awaited.pop_front();
        Some(own)
    }
}

/// True for a command that begins or ends a subscription, and for its confirmation.
fn is_subscription(word: &str) -> bool {
    word.to_ascii_lowercase().ends_with("subscribe")
}

/// The number of replies to a request.
fn replies(command: &str, words: &[String]) -> usize {
    if is_subscription(command) { words.len().saturating_sub(1).max(1) } else { 1 }
}
