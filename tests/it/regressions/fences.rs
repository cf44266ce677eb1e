use std::time::Duration;

use crate::handover::rig::{Rig, for_sizes, settings, warm};

fn counters(rig: &Rig) -> Vec<String> {
    rig.servers.iter().flat_map(redlock_tests::Server::keys).filter(|key| key.ends_with(":fence")).collect()
}

#[test]
fn a_lock_that_did_not_ask_for_a_fence_leaves_none() {
    for_sizes(&[1, 3], |rig| {
        let locks = rig.client();
        locks.mutex("asks").lock().unwrap().fencing_token().unwrap();
        for i in 0..20 {
            locks.mutex(format!("does-not-ask:{i}")).lock().unwrap().unlock().unwrap();
        }
        let counters = counters(rig);
        assert!(!counters.is_empty() && counters.iter().all(|key| key == "{asks}:fence"), "{counters:?}");
    });
}

#[test]
fn a_fenced_lock_brings_its_token_along() {
    for_sizes(&[1, 3], |rig| {
        let locks = settings(&rig.proxy_urls()).build().unwrap();
        warm(&locks);
        let rounds = || rig.proxies.iter().map(|proxy| proxy.count("fence")).sum::<usize>();
        let mut last = 0;
        for fenced in [true, false, true, true] {
            let guard = locks.mutex("order:42").fenced(fenced).lock().unwrap();
            let before = rounds();
            let fence = guard.fencing_token().unwrap();
            assert!(fence > last, "{fence} after {last}");
            last = fence;
            // With several nodes, one round stores the fencing token on a majority. Without the setting, another round
            // must fetch it first.
            let n = rig.servers.len();
            let wanted = if n == 1 { usize::from(!fenced) } else { n * (1 + usize::from(!fenced)) };
            assert_eq!(rounds() - before, wanted, "fenced({fenced}) on {n}");
            guard.unlock().unwrap();
        }
    });
}

#[test]
fn a_counter_ends_soon_after_the_clock_has_passed_it() {
    for_sizes(&[1, 3], |rig| {
        let guard = rig.client().mutex("order:42").fenced(true).lock().unwrap();
        guard.fencing_token().unwrap();
        let minutes = |n: u64| Duration::from_secs(n * 60);
        for server in &rig.servers {
            let left = server.pttl("{order:42}:fence").unwrap();
            assert!(left > minutes(19) && left <= minutes(20) + Duration::from_secs(1), "{left:?}");
        }
        // This counter is as after a clock that was an hour ahead and was then set back.
        let ahead = guard.fencing_token().unwrap() + 3_600_000_000;
        guard.unlock().unwrap();
        rig.servers.iter().for_each(|server| server.set("{order:42}:fence", &ahead.to_string()));
        let next = rig.client().mutex("order:42").lock().unwrap();
        assert!(next.fencing_token().unwrap() > ahead);
        let left = rig.servers[0].pttl("{order:42}:fence").unwrap();
        assert!(left > minutes(79) && left <= minutes(80) + Duration::from_secs(1), "{left:?}");
    });
}

/// The counter was set by hand. An error is better than a fencing token that does not rise. The lock is not lost.
#[test]
fn a_counter_that_cannot_rise_is_an_error() {
    let rig = Rig::start(1);
    let locks = rig.client();
    for end in ["9007199254740991", "1000000000000000000", "1e300", "inf", "another type"] {
        rig.servers[0].del("{order:42}:fence");
        if end == "another type" {
            rig.servers[0].ask::<()>(redis::cmd("RPUSH").arg("{order:42}:fence").arg("foreign"));
        } else {
            rig.servers[0].set("{order:42}:fence", end);
        }
        let error = locks.mutex("order:42").fenced(true).try_lock().map(drop).unwrap_err();
        assert!(matches!(error, redlock_sync::Error::Config { .. }), "{end}: {error}");
        assert_eq!(rig.holding("order:42"), 0);
        let guard = locks.mutex("order:42").lock().unwrap();
        let error = guard.fencing_token().unwrap_err();
        assert!(
            matches!(error, redlock_sync::Error::Config { .. }) && error.to_string().contains("fence"),
            "{end}: {error}"
        );
        guard.check().unwrap();
        guard.unlock().unwrap();
    }
    rig.servers[0].del("{order:42}:fence");
    rig.servers[0].set("{order:42}:fence", "not a number");
    assert!(locks.mutex("order:42").fenced(true).lock().unwrap().fencing_token().unwrap() > 0);
}
