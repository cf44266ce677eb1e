//! The schedule of faults: a pure function of the seed and the size of the run.
//!
//! Faults stay within the limits in which the library promises exclusion, unless the run has `--beyond`:
//!
//! 1. A node that restarts empty casts no vote for a while. A client must be able to tell this from a cold start of all
//!    nodes. So if a node has lost its data, at most a minority of nodes is in this state at the same time.
//! 2. A node can lose its data in another way (flush, role), or the only node can restart empty. Then no client reaches
//!    the node for longer than the longest lease. By then, all leases that it forgot would have expired anyway.
//! 3. A node that is out of reach during an amnesia has no other fault. The end of that fault would make the node
//!    reachable too early.
//! 4. At the end of a storm, all nodes are out of reach for a moment. A lock that is released in this time must be free
//!    in the calm.
//! 5. A key is deleted by hand only if a majority keeps it while its holder relies on it; see `nemesis/hand.rs`.

use std::fmt;

use crate::args::Options;
use crate::event::words;
use crate::names;
use crate::timing::LONGEST_LEASE;

words! {
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

    /// True if the fault belongs to such a run. A queue of tasks has no second node that keeps its data, and its only
    /// node is not away for longer than a claim.
    fn is_for(self, options: &Options) -> bool {
        use Kind::{Amnesia, Crowd, Delete, Empty, Flush, Forget, Partition, Role};
        let loses_tasks = matches!(self, Empty | Amnesia | Role | Flush | Forget | Delete | Partition | Crowd);
        let is_of_node = self.is_of_any_node() || self.is_of_group() == options.sentinel;
        (self.lane() == Kin::Client || is_of_node) && !(options.has_tasks() && loses_tasks)
    }

    /// True if only a Sentinel group has the fault.
    fn is_of_group(self) -> bool {
        use Kind::{Apart, Depose, FailOver, Forget, KillMaster, KillReplica, KillSentinel, StopSentinel};
        matches!(self, KillMaster | Forget | Depose | FailOver | Apart | KillReplica | StopSentinel | KillSentinel)
    }

    /// True if a single server and a Sentinel group have the fault.
    fn is_of_any_node(self) -> bool {
        matches!(self, Kind::Stop | Kind::Reset | Kind::Scripts)
    }

    /// True if the fault affects single commands.
    fn is_of_commands(self) -> bool {
        use Kind::{Cut, Delay, Error, Hold, HoldReply, ResetAfter, ResetBefore, Silence, Stall};
        matches!(self, Stall | Hold | HoldReply | ResetBefore | ResetAfter | Cut | Silence | Error | Delay)
    }

    /// True if the fault replaces the process of the server.
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

/// One fault. Times are in ms, and `at` counts from the beginning of the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) at: u64,
    pub(crate) length: u64,
    pub(crate) target: Target,
    pub(crate) kind: Kind,
    /// The command that the fault affects.
    pub(crate) command: &'static str,
    /// True if the fault affects each such command, and not only the next one.
    pub(crate) each: bool,
    /// A parameter of the fault: ms of a delay, bytes of a reply, the number of an error, or threads of a crowd.
    pub(crate) amount: u64,
}

impl Fault {
    /// The other nodes that the fault makes unreachable: the next minority (amnesia), or all others (partition).
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

pub(crate) const GAP: u64 = 1200;

/// A time that is longer than any lease, with a margin for replies that are still on their way.
const LONG: u64 = LONGEST_LEASE + 700;
/// The time for which a restarted node casts no vote. Servers report their uptime in whole seconds.
pub(crate) const QUARANTINE: u64 = LONGEST_LEASE + 3000;
/// The pause between a fault of a node and the time in which the node is unreachable. A fault can end late.
const APART: u64 = 300;
/// The default lengths of a storm and of the calm after it. In the calm, all locks must become available again.
pub(crate) const STORM: u64 = 20_000;
pub(crate) const CALM: u64 = 9_000;

/// The commands that faults can affect, of tasks and of locks. The last entry means any command.
pub(crate) const TASK_COMMANDS: [&str; 4] = ["push", "claim", "extend", "finish"];
pub(crate) const COMMANDS: [&str; 8] = ["acquire", "extend", "release", "fence", "PUBLISH", "SUBSCRIBE", "INFO", "*"];

/// The faults of a run, sorted by time.
pub(crate) fn schedule(options: &Options) -> Vec<Fault> {
    let mut maker = Maker {
        options,
        random: fastrand::Rng::with_seed(options.seed),
        young: Vec::new(),
        taken: Vec::new(),
        away: Vec::new(),
        partitions: Vec::new(),
    };
    maker.plan_partitions();
    let targets = (0..options.nodes).map(Target::Node).chain((0..options.clients).map(Target::Client));
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
    options: &'a Options,
    random: fastrand::Rng,
    /// The nodes that restart: the node, the span in which it casts no vote, and whether it lost its data.
    young: Vec<(usize, u64, u64, bool)>,
    /// The spans in which a node has a fault of its own.
    taken: Vec<(usize, u64, u64)>,
    /// The spans in which a node has no other fault, because the amnesia of another node makes it unreachable.
    away: Vec<(usize, u64, u64)>,
    /// The partitions, one at the end of each storm that a calm follows.
    partitions: Vec<Fault>,
}

impl Maker<'_> {
    /// The span of the storm at this time, or of the next storm. `None` if the run ends before it.
    fn storm(&self, at: u64) -> Option<(u64, u64)> {
        let &Options { storm, calm, .. } = self.options;
        let length = self.options.seconds * 1000;
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
        let has_partitions = self.options.kinds.contains(&Kind::Partition) && Kind::Partition.is_for(self.options);
        while let Some((begin, end)) = self.storm(at).filter(|_| has_partitions) {
            let fault = self.of_kind(Kind::Partition, end, Target::Node(0));
            let is_followed_by_calm = end + self.options.calm <= self.options.seconds * 1000;
            if is_followed_by_calm && begin + 2 * APART + fault.length < end {
                self.partitions.push(Fault { at: end - fault.length, ..fault });
            }
            at = end;
        }
    }

    /// The time by which faults of this target must end in this storm. Nodes must be well before the partition.
    fn end_for(&self, target: Target, end: u64) -> u64 {
        let last = self.partitions.iter().find(|fault| fault.at < end && fault.at + fault.length == end);
        last.filter(|_| matches!(target, Target::Node(_))).map_or(end, |partition| partition.at - APART)
    }

    fn gap(&mut self, target: Target) -> u64 {
        match target {
            Target::Node(_) => self.random.u64(self.options.gap / 12..=self.options.gap),
            Target::Client(_) => self.random.u64(self.options.gap / 6 * 5..=self.options.gap / 2 * 15),
            Target::Key(_) => self.random.u64(self.options.gap / 4..=self.options.gap / 4 * 5),
        }
    }

    /// Draws a fault that begins at `at` or later and ends within the storm. Returns `None` if no drawn fault fits.
    fn fault(&mut self, at: u64, end: u64, target: Target) -> Option<Fault> {
        let kin = match target {
            Target::Node(_) => Kin::Node,
            Target::Client(_) => Kin::Client,
            Target::Key(_) => Kin::Hand,
        };
        let is_here = |kind: &Kind| {
            kind.lane() == kin && kind.is_for(self.options) && (*kind != Kind::Crowd || self.options.crowd > 0)
        };
        let kinds: Vec<Kind> = self.options.kinds.iter().copied().filter(is_here).collect();
        (0..6).find_map(|_| {
            let kind = *self.random.choice(&kinds)?;
            // To start a process or a crowd takes most of the time of a small machine, so these faults are rarer.
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

    /// The time at which this node may have faults again, if the amnesia of another node makes it unreachable.
    fn back(&self, target: Target, at: u64) -> Option<u64> {
        let here =
            self.away.iter().filter(|away| target == Target::Node(away.0) && away.1 <= at && at < away.2 + APART);
        here.map(|away| away.2 + APART).max()
    }

    /// The time at which this fault can begin. Other faults of the nodes that it makes unreachable must end first.
    fn undisturbed(&self, fault: &Fault) -> u64 {
        let away = fault.away(self.options.nodes);
        let planned = self.taken.iter().chain(&self.away).filter(|span| away.contains(&span.0));
        planned.map(|span| span.2 + APART).fold(fault.at, u64::max)
    }

    /// Reserves the nodes of this fault. From `at` on, the nodes that it makes unreachable get no other fault; see
    /// `back`.
    fn reserve(&mut self, at: u64, fault: &Fault) {
        let until = fault.at + fault.length;
        if let Target::Node(node) = fault.target {
            self.taken.push((node, fault.at, until));
        }
        self.away.extend(fault.away(self.options.nodes).into_iter().map(|node| (node, at, until)));
    }

    fn of_kind(&mut self, kind: Kind, at: u64, target: Target) -> Fault {
        let length = match kind {
            Kind::Reset | Kind::Scripts | Kind::Delete | Kind::Crowd => 0,
            Kind::Murder => self.random.u64(50..1500),
            // The partition is shorter than most leases.
            Kind::Partition => self.random.u64(500..1300),
            Kind::Role => LONG + 1500 + self.random.u64(..500),
            // The nodes are unreachable until no lock is held on them.
            Kind::Flush | Kind::Amnesia => LONG + self.random.u64(..500),
            Kind::Empty if self.options.nodes == 1 && !self.options.beyond => LONG + self.random.u64(..500),
            // The delay is shorter than the timeout of a client, so the late reply still counts.
            Kind::Stall => self.random.u64(20..95),
            // A worker can learn what became of its claim before the lease of the claim ends.
            _ if self.options.has_tasks() && kind.lane() == Kin::Node => self.random.u64(20..850),
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
            Kind::Crowd => self.options.crowd as u64,
            _ => 0,
        };
        let locks: Vec<usize> = names::exclusive(self.options.keys).collect();
        let target = if kind == Kind::Delete { Target::Key(locks[self.random.usize(..locks.len())]) } else { target };
        let command =
            if kind.is_of_commands() { *self.random.choice(&self.options.commands).unwrap_or(&"*") } else { "" };
        let may_repeat = matches!(kind, Kind::Error | Kind::Delay | Kind::ResetBefore | Kind::ResetAfter);
        let each = may_repeat && self.random.u8(..3) == 0 || kind == Kind::Stall;
        Fault { at, length, target, kind, command, each, amount }
    }

    /// Checks that the fault stays within the promises. Records the restarts that later faults depend on.
    fn is_allowed(&mut self, fault: &Fault) -> bool {
        let Target::Node(node) = fault.target else {
            return fault.kind != Kind::Delete || self.options.nodes > 1 || self.options.beyond;
        };
        // An amnesia needs a minority of nodes that are unreachable too.
        if fault.kind == Kind::Amnesia && self.options.nodes < 3 {
            return false;
        }
        if !fault.kind.is_restart() || self.options.beyond {
            // A `role` fault makes a second server the master of the node. There is only one such server, for node 0.
            return fault.kind != Kind::Role || node == 0;
        }
        let (from, until, lost) = (fault.at, fault.at + fault.length + QUARANTINE, fault.kind != Kind::Kill);
        // The servers must have run for long enough that the library recognizes a restart.
        if self.options.nodes > 1 && from < QUARANTINE {
            return false;
        }
        let at_once: Vec<_> = self.young.iter().filter(|y| y.0 != node && y.1 < until && from < y.2).collect();
        let minority = (self.options.nodes - 1) / 2;
        let mut nodes: Vec<usize> = at_once.iter().map(|y| y.0).chain([node]).collect();
        nodes.sort_unstable();
        nodes.dedup();
        let allowed = self.options.nodes == 1 || nodes.len() <= minority || !(lost || at_once.iter().any(|y| y.3));
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
        schedule(&Options { nodes, keys: 3, crowd: 32, seed, ..Options::default() })
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
        for &kind in Kind::ALL.iter().filter(|kind| kind.is_for(&Options::default())) {
            assert!(all.iter().any(|fault| fault.kind == kind), "{}", kind.word());
            assert_eq!(kind.word().parse(), Ok(kind));
        }
    }

    #[test]
    fn a_group_and_a_queue_have_faults_of_their_own() {
        let of = |sentinel, tasks| {
            let options = Options { nodes: 1, seconds: 600, sentinel, tasks, seed: 7, ..Options::default() };
            let faults = schedule(&options);
            move |kind| faults.iter().any(|fault| fault.kind == kind)
        };
        let (group, server) = (of(true, 0), of(false, 0));
        assert!(group(Kind::Depose) && group(Kind::Forget) && group(Kind::Stop) && !group(Kind::Hold));
        assert!(server(Kind::Empty) && server(Kind::Hold) && server(Kind::Stop) && !server(Kind::Depose));
        let (group, server) = (of(true, 9), of(false, 9));
        assert!(group(Kind::Depose) && group(Kind::Murder) && !group(Kind::Forget));
        assert!(server(Kind::Kill) && server(Kind::Hold) && !server(Kind::Empty) && !server(Kind::Crowd));
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
