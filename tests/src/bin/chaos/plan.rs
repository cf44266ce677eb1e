//! What is injured when: a pure function of the seed and the size of the run.
//!
//! Faults keep within what the library promises exclusion for, unless the run goes `beyond` that:
//!
//! 1. A node that restarts empty casts no vote for a while. Of the nodes that are in this state at the same time as one
//!    that lost its data there are never more than a minority, for else it could not be told from a cold start of all.
//! 2. A node that loses its data in another way (flush, role), or is the only one, is kept from all clients for longer
//!    than the longest lease: when it is back, all that it forgot would have run out anyway.
//! 3. Nodes that are out of reach during an amnesia have no other fault: its end would bring them back too early.
//! 4. At the end of a storm all nodes are out of reach for a moment: what is released then must be free in the calm.
//! 5. A key is deleted by hand only if a majority keeps it while its holder relies on it; see `nemesis/hand.rs`.

use std::fmt;

use crate::event::words;
use crate::group;
use crate::names;
use crate::timing::LONGEST_LEASE;

words! {
    /// The fault.
    Kind {
        Kill = "kill", Empty = "empty", Stop = "stop", Reset = "reset", Refuse = "refuse", Hole = "hole", Latency = "latency", Scripts = "scripts",
        Full = "full", Password = "password", Role = "role", Flush = "flush", Hold = "hold", HoldReply = "hold_reply", ResetBefore = "reset_before",
        ResetAfter = "reset_after", Cut = "cut", Silence = "silence", Error = "error", Delay = "delay", Pause = "pause", Murder = "murder", Delete = "delete",
        Stall = "stall", Amnesia = "amnesia", Crowd = "crowd", Partition = "partition", KillMaster = "kill_master", Forget = "forget", Depose = "depose",
        FailOver = "fail_over", Apart = "apart", KillReplica = "kill_replica", StopSentinel = "stop_sentinel", KillSentinel = "kill_sentinel",
    }
}

impl Kind {
    fn lane(self) -> Kin {
        match self {
            Kind::Pause | Kind::Murder | Kind::Crowd => Kin::Client,
            Kind::Delete => Kin::Hand,
            Kind::Partition => Kin::All,
            _ => Kin::Node,
        }
    }

    /// It strikes clients, or nodes of this kind.
    fn is_for(self, sentinel: bool) -> bool {
        self.lane() == Kin::Client || group::strikes(self.word(), sentinel)
    }

    /// True if it affects single commands.
    fn is_of_commands(self) -> bool {
        use Kind::{Cut, Delay, Error, Hold, HoldReply, ResetAfter, ResetBefore, Silence, Stall};
        matches!(self, Stall | Hold | HoldReply | ResetBefore | ResetAfter | Cut | Silence | Error | Delay)
    }

    /// The server's process is new afterwards.
    pub(crate) fn is_restart(self) -> bool {
        matches!(self, Kind::Kill | Kind::Empty | Kind::Amnesia)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kin {
    Node,
    Client,
    Hand,
    /// All nodes at once.
    All,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Target {
    Node(usize),
    Client(usize),
    Key(usize),
}

/// One fault, in ms from the beginning of the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) at: u64,
    pub(crate) length: u64,
    pub(crate) target: Target,
    pub(crate) kind: Kind,
    /// The command that is affected.
    pub(crate) command: &'static str,
    /// Every such command is affected, not only the next.
    pub(crate) each: bool,
    /// A parameter of the fault: ms of a delay, bytes of a reply, the number of an error, threads of a crowd.
    pub(crate) amount: u64,
}

impl Fault {
    /// Further nodes that it keeps from the clients: the minority after its target (amnesia), or all (partition).
    pub(crate) fn away(&self, nodes: usize) -> Vec<usize> {
        let others = match self.kind {
            Kind::Amnesia => (nodes - 1) / 2,
            Kind::Partition => nodes - 1,
            _ => 0,
        };
        match self.target {
            Target::Node(node) => (1..=others).map(|next| (node + next) % nodes).collect(),
            _ => Vec::new(),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Node(i) => write!(f, "node {i}"),
            Target::Client(i) => write!(f, "client {i}"),
            Target::Key(i) => write!(f, "key {i}"),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>8} ms  {:<9} {:<12}", self.at, self.target.to_string(), self.kind.word())?;
        if self.length > 0 {
            write!(f, " for {} ms", self.length)?;
        }
        if self.kind.is_of_commands() {
            write!(f, ", {} {}", if self.each { "each" } else { "the next" }, self.command)?;
        }
        match self.kind {
            Kind::Latency | Kind::Delay => write!(f, ", by {} ms", self.amount),
            Kind::Cut => write!(f, ", after {} bytes", self.amount),
            Kind::Crowd => write!(f, " of {}", self.amount),
            _ => Ok(()),
        }
    }
}

/// The parameters of the schedule.
#[derive(Debug, Clone)]
pub(crate) struct Terms<'a> {
    pub(crate) nodes: usize,
    pub(crate) sentinel: bool,
    pub(crate) clients: usize,
    pub(crate) keys: usize,
    pub(crate) seconds: u64,
    /// In ms, like the calm.
    pub(crate) storm: u64,
    pub(crate) calm: u64,
    pub(crate) seed: u64,
    pub(crate) kinds: &'a [Kind],
    pub(crate) commands: &'a [&'static str],
    pub(crate) beyond: bool,
    /// The number of threads of a crowd; 0 for no crowds.
    pub(crate) crowd: usize,
    /// The longest time in ms between two faults of a node.
    pub(crate) gap: u64,
}

/// The default gap.
pub(crate) const GAP: u64 = 1200;

/// Longer than any lease, with room for replies on their way.
const LONG: u64 = LONGEST_LEASE + 700;
/// How long a restarted node casts no vote: servers report their uptime in whole seconds.
pub(crate) const QUARANTINE: u64 = LONGEST_LEASE + 3000;
/// The pause between the end of a fault and the absence of its node, and vice versa, since a fault can end late.
const APART: u64 = 300;
/// The length of a storm, and of the calm after it, in which the locks must come back.
pub(crate) const STORM: u64 = 20_000;
pub(crate) const CALM: u64 = 9_000;

/// The commands that can be affected; the last one means any.
pub(crate) const COMMANDS: [&str; 8] = ["acquire", "extend", "release", "fence", "publish", "SUBSCRIBE", "INFO", "*"];

/// The faults of a run in the order of time.
pub(crate) fn schedule(terms: &Terms<'_>) -> Vec<Fault> {
    let mut maker = Maker {
        terms,
        random: fastrand::Rng::with_seed(terms.seed),
        young: Vec::new(),
        taken: Vec::new(),
        away: Vec::new(),
        partitions: Vec::new(),
    };
    maker.plan_partitions();
    let targets = (0..terms.nodes).map(Target::Node).chain((0..terms.clients).map(Target::Client));
    let mut lanes: Vec<(u64, Target)> = targets.chain([Target::Key(0)]).map(|target| (0, target)).collect();
    for lane in &mut lanes {
        lane.0 = 300 + maker.gap(lane.1);
    }
    let mut faults = Vec::new();
    while let Some(lane) = lanes.iter_mut().min() {
        let (at, target) = *lane;
        let Some((begin, end)) = maker.storm(at) else { break };
        if at < begin {
            lane.0 = begin + maker.gap(target);
            continue;
        }
        let last = maker.end_for(target, end);
        if at >= last {
            lane.0 = end;
            continue;
        }
        if let Some(back) = maker.back(target, at) {
            lane.0 = back + maker.gap(target);
            continue;
        }
        let fault = maker.fault(at, last, target);
        lane.0 = fault.as_ref().map_or(at, |fault| fault.at + fault.length) + maker.gap(target);
        faults.extend(fault);
    }
    faults.append(&mut maker.partitions);
    faults.sort_by_key(|fault| (fault.at, fault.target));
    faults
}

struct Maker<'a> {
    terms: &'a Terms<'a>,
    random: fastrand::Rng,
    /// The nodes that restart: the node, the span in which it casts no vote, and whether it lost its data.
    young: Vec<(usize, u64, u64, bool)>,
    /// The spans in which nodes have faults of their own.
    taken: Vec<(usize, u64, u64)>,
    /// The spans in which nodes are kept free for the amnesia of another node.
    away: Vec<(usize, u64, u64)>,
    /// One at the end of each storm that a calm follows.
    partitions: Vec<Fault>,
}

impl Maker<'_> {
    /// The storm at this time, or the next one. `None` if the run is over by then.
    fn storm(&self, at: u64) -> Option<(u64, u64)> {
        let &Terms { storm, calm, .. } = self.terms;
        let length = self.terms.seconds * 1000;
        let (begin, end) = if length < storm + calm {
            (0, length.saturating_sub(500))
        } else {
            let nth = at / (storm + calm) + u64::from(at % (storm + calm) >= storm);
            let begin = nth * (storm + calm);
            (begin, (begin + storm).min(length.saturating_sub(calm)))
        };
        (at < end && begin < end).then_some((begin, end))
    }

    fn plan_partitions(&mut self) {
        let mut at = 0;
        while let Some((begin, end)) =
            self.storm(at).filter(|_| !self.terms.sentinel && self.terms.kinds.contains(&Kind::Partition))
        {
            let fault = self.of_kind(Kind::Partition, end, Target::Node(0));
            let is_followed_by_calm = end + self.terms.calm <= self.terms.seconds * 1000;
            if is_followed_by_calm && begin + 2 * APART + fault.length < end {
                self.partitions.push(Fault { at: end - fault.length, ..fault });
            }
            at = end;
        }
    }

    /// When faults of this target have to end in a storm that ends then: nodes are well before the partition.
    fn end_for(&self, target: Target, end: u64) -> u64 {
        let last = self.partitions.iter().find(|fault| fault.at < end && fault.at + fault.length == end);
        last.filter(|_| matches!(target, Target::Node(_))).map_or(end, |partition| partition.at - APART)
    }

    fn gap(&mut self, target: Target) -> u64 {
        match target {
            Target::Node(_) => self.random.u64(self.terms.gap / 12..=self.terms.gap),
            Target::Client(_) => self.random.u64(1000..9000),
            Target::Key(_) => self.random.u64(self.terms.gap / 4..=self.terms.gap / 4 * 5),
        }
    }

    /// A fault that begins here and ends within the storm. `None` if no drawn fault fits.
    fn fault(&mut self, at: u64, end: u64, target: Target) -> Option<Fault> {
        let kin = match target {
            Target::Node(_) => Kin::Node,
            Target::Client(_) => Kin::Client,
            Target::Key(_) => Kin::Hand,
        };
        let is_here = |kind: &Kind| {
            kind.lane() == kin && kind.is_for(self.terms.sentinel) && (*kind != Kind::Crowd || self.terms.crowd > 0)
        };
        let kinds: Vec<Kind> = self.terms.kinds.iter().copied().filter(is_here).collect();
        (0..6).find_map(|_| {
            let kind = *self.random.choice(&kinds)?;
            // Starting a process or a crowd takes most of a small machine, so these are rarer.
            if matches!(kind, Kind::Murder | Kind::Crowd) && kinds.len() > 1 && self.random.bool() {
                return None;
            }
            let mut fault = self.of_kind(kind, at, target);
            fault.at = self.undisturbed(&fault);
            let is_good = fault.at + fault.length <= end && self.is_allowed(&fault);
            if is_good {
                self.reserve(at, &fault);
            }
            is_good.then_some(fault)
        })
    }

    /// When this node is available again, if it is kept for the amnesia of another.
    fn back(&self, target: Target, at: u64) -> Option<u64> {
        let here =
            self.away.iter().filter(|away| target == Target::Node(away.0) && away.1 <= at && at < away.2 + APART);
        here.map(|away| away.2 + APART).max()
    }

    /// When this fault can begin: faults of the nodes that it keeps away have to end first.
    fn undisturbed(&self, fault: &Fault) -> u64 {
        let away = fault.away(self.terms.nodes);
        let planned = self.taken.iter().chain(&self.away).filter(|span| away.contains(&span.0));
        planned.map(|span| span.2 + APART).fold(fault.at, u64::max)
    }

    /// No other fault is planned from `at` on for the nodes that this fault keeps away; see `back`.
    fn reserve(&mut self, at: u64, fault: &Fault) {
        let until = fault.at + fault.length;
        if let Target::Node(node) = fault.target {
            self.taken.push((node, fault.at, until));
        }
        self.away.extend(fault.away(self.terms.nodes).into_iter().map(|node| (node, at, until)));
    }

    fn of_kind(&mut self, kind: Kind, at: u64, target: Target) -> Fault {
        let length = match kind {
            Kind::Reset | Kind::Scripts | Kind::Delete | Kind::Crowd => 0,
            Kind::Murder => self.random.u64(50..1500),
            // Shorter than most leases.
            Kind::Partition => self.random.u64(500..1300),
            Kind::Role => LONG + 1500 + self.random.u64(..500),
            // Amnesia: until no lock is held on the nodes that are out of reach.
            Kind::Flush | Kind::Amnesia => LONG + self.random.u64(..500),
            Kind::Empty if self.terms.nodes == 1 && !self.terms.beyond => LONG + self.random.u64(..500),
            // Shorter than the timeout of a client: the late reply still counts.
            Kind::Stall => self.random.u64(20..95),
            Kind::Stop | Kind::Pause => {
                if self.random.bool() {
                    self.random.u64(20..LONGEST_LEASE / 2)
                } else {
                    self.random.u64(LONGEST_LEASE..2 * LONGEST_LEASE)
                }
            }
            Kind::Kill | Kind::Empty | Kind::Full | Kind::Password | Kind::Refuse | Kind::Hole => {
                self.random.u64(50..2500)
            }
            _ => self.random.u64(50..2000),
        };
        let amount = match kind {
            Kind::Latency => self.random.u64(1..60),
            Kind::Delay => self.random.u64(5..250),
            Kind::Cut | Kind::Error => self.random.u64(..6),
            Kind::Crowd => self.terms.crowd as u64,
            _ => 0,
        };
        let locks: Vec<usize> = names::exclusive(self.terms.keys).collect();
        let target = if kind == Kind::Delete { Target::Key(locks[self.random.usize(..locks.len())]) } else { target };
        let command = if kind.is_of_commands() { *self.random.choice(self.terms.commands).unwrap_or(&"*") } else { "" };
        let may_repeat = matches!(kind, Kind::Error | Kind::Delay | Kind::ResetBefore | Kind::ResetAfter);
        let each = may_repeat && self.random.u8(..3) == 0 || kind == Kind::Stall;
        Fault { at, length, target, kind, command, each, amount }
    }

    /// Keeps the fault within the promises, and records what later faults depend on.
    fn is_allowed(&mut self, fault: &Fault) -> bool {
        let Target::Node(node) = fault.target else {
            return fault.kind != Kind::Delete || self.terms.nodes > 1 || self.terms.beyond;
        };
        // It takes a minority to be out of reach besides.
        if fault.kind == Kind::Amnesia && self.terms.nodes < 3 {
            return false;
        }
        if !fault.kind.is_restart() || self.terms.beyond {
            // The other node, which becomes its master, exists only once.
            return fault.kind != Kind::Role || node == 0;
        }
        let (from, until, lost) = (fault.at, fault.at + fault.length + QUARANTINE, fault.kind != Kind::Kill);
        // The servers must be old enough that a restart is recognized.
        if self.terms.nodes > 1 && from < QUARANTINE {
            return false;
        }
        let at_once: Vec<_> = self.young.iter().filter(|y| y.0 != node && y.1 < until && from < y.2).collect();
        let minority = (self.terms.nodes - 1) / 2;
        let mut nodes: Vec<usize> = at_once.iter().map(|y| y.0).chain([node]).collect();
        nodes.sort_unstable();
        nodes.dedup();
        let allowed = self.terms.nodes == 1 || nodes.len() <= minority || !(lost || at_once.iter().any(|y| y.3));
        if allowed {
            self.young.push((node, from, until, lost));
        }
        allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(nodes: usize, seed: u64) -> Vec<Fault> {
        schedule(&Terms {
            nodes,
            sentinel: false,
            clients: 8,
            keys: 3,
            seconds: 60,
            storm: STORM,
            calm: CALM,
            seed,
            kinds: Kind::ALL,
            commands: &COMMANDS,
            beyond: false,
            crowd: 32,
            gap: GAP,
        })
    }

    #[test]
    fn a_seed_gives_one_schedule() {
        assert_eq!(made(5, 7), made(5, 7));
        assert_ne!(made(5, 7), made(5, 8));
        let text = made(5, 7).iter().fold(String::new(), |text, fault| text + &format!("{fault}\n"));
        assert!(text.contains("pause") && text.contains("the next"), "{text}");
    }

    #[test]
    fn all_kinds_occur_and_none_is_forgotten() {
        let all: Vec<Fault> = (0..40).flat_map(|seed| made(3, seed)).collect();
        for &kind in Kind::ALL.iter().filter(|kind| kind.is_for(false)) {
            assert!(all.iter().any(|fault| fault.kind == kind), "{}", kind.word());
            assert_eq!(kind.word().parse(), Ok(kind));
        }
    }

    #[test]
    fn faults_of_one_target_follow_each_other_and_calm_stays_calm() {
        for fault in (0..20).flat_map(|seed| made(3, seed)) {
            let end = fault.at + fault.length;
            assert!(
                fault.at % (STORM + CALM) < STORM && end <= fault.at / (STORM + CALM) * (STORM + CALM) + STORM,
                "{fault}"
            );
        }
        for node in 0..3 {
            let of_node: Vec<Fault> = made(3, 1).into_iter().filter(|f| f.target == Target::Node(node)).collect();
            assert!(of_node.len() > 5 && of_node.windows(2).all(|two| two[0].at + two[0].length < two[1].at));
        }
    }

    #[test]
    fn nothing_else_happens_to_nodes_that_are_away_for_an_amnesia() {
        let mut strikes = 0;
        for (nodes, seed) in (0..60).flat_map(|seed| [(3, seed), (5, seed)]) {
            let faults = made(nodes, seed);
            let spans = |of: &Fault| -> Vec<(usize, u64, u64)> {
                let own = match of.target {
                    Target::Node(node) => vec![node],
                    _ => Vec::new(),
                };
                let all = own.into_iter().chain(of.away(nodes));
                all.map(|node| (node, of.at, of.at + of.length)).collect()
            };
            for (i, amnesia) in faults.iter().enumerate().filter(|(_, fault)| fault.kind == Kind::Amnesia) {
                strikes += 1;
                let away = amnesia.away(nodes);
                assert_eq!(away.len(), (nodes - 1) / 2);
                let others = faults.iter().enumerate().filter(|(other, _)| *other != i).map(|(_, other)| other);
                for (node, from, until) in others.flat_map(spans).filter(|span| away.contains(&span.0)) {
                    let is_apart = until + APART <= amnesia.at || amnesia.at + amnesia.length + APART <= from;
                    assert!(is_apart, "N = {nodes}, seed {seed}: node {node} from {from} during {amnesia}");
                }
            }
        }
        assert!(strikes > 100, "{strikes}");
    }

    #[test]
    fn before_a_partition_all_nodes_are_well_and_behind_it_is_calm() {
        for faults in (0..20).map(|seed| made(3, seed)) {
            let partitions: Vec<&Fault> = faults.iter().filter(|fault| fault.kind == Kind::Partition).collect();
            assert_eq!(partitions.len(), 2, "two storms in a minute");
            for partition in partitions {
                let end = |fault: &Fault| fault.at + fault.length;
                assert_eq!(end(partition) % (STORM + CALM), STORM);
                let at_nodes = |fault: &&Fault| matches!(fault.target, Target::Node(_)) && *fault != partition;
                let near = |fault: &&Fault| end(fault) + APART > partition.at && fault.at < end(partition) + CALM;
                assert_eq!(faults.iter().filter(at_nodes).find(near), None);
            }
        }
    }

    #[test]
    fn a_node_that_lost_its_data_is_one_of_a_minority() {
        for (nodes, seed) in [(3, 1), (3, 2), (5, 3), (5, 4), (1, 5)] {
            let restarts: Vec<Fault> = made(nodes, seed).into_iter().filter(|fault| fault.kind.is_restart()).collect();
            let until = |fault: &Fault| fault.at + fault.length + QUARANTINE;
            for at in restarts.iter().map(|fault| fault.at) {
                let young: Vec<&Fault> = restarts.iter().filter(|fault| fault.at <= at && at < until(fault)).collect();
                let mut targets: Vec<Target> = young.iter().map(|fault| fault.target).collect();
                targets.sort_unstable();
                targets.dedup();
                let is_lost = young.iter().any(|fault| fault.kind != Kind::Kill);
                assert!(nodes == 1 || !is_lost || targets.len() <= (nodes - 1) / 2, "{young:?}");
            }
            let short = |fault: &&Fault| fault.kind == Kind::Empty && fault.length <= LONGEST_LEASE;
            assert!(nodes > 1 || restarts.iter().find(short).is_none(), "the only node comes back too early");
        }
    }
}
