use std::collections::HashSet;
use std::process::Command;

use crate::handover::rig::Rig;

/// Each child prints the token of a lock that it took, the id of its wait, and the token of its grant.
const TOLD_BY_A_CHILD: usize = 3;

#[test]
fn forked_workers_never_share_a_token_or_an_id() {
    let rig = Rig::start(1);
    for order in ["fork-open", "open-fork"] {
        let output =
            Command::new(env!("CARGO_BIN_EXE_agent")).args(["workers", order]).args(rig.urls()).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
        let told: Vec<_> = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()).collect();
        // The random part of each token or id: the last part of a channel, or the first of a token. The rest names the
        // process and the host, or is missing.
        let random = |id: &str| match id.strip_prefix("redlock-sync:") {
            Some(wait) => wait.rsplit(':').next().unwrap().split('/').next().unwrap().to_owned(),
            None => id.split([':', '-', '/']).next().unwrap().to_owned(),
        };
        let unique: HashSet<String> = told.iter().map(|words| random(words[1])).collect();
        assert_eq!((told.len(), unique.len()), (3 * TOLD_BY_A_CHILD, 3 * TOLD_BY_A_CHILD), "{order}: {told:#?}");
    }
}
