//! Negative controls: the library broken on purpose. A check that has never failed proves nothing.

use std::borrow::Cow;
use std::cell::Cell;

/// What is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Control {
    /// Half of the nodes, rounded down, count as a majority.
    HalfIsEnough,
    /// A lease is counted from the reply.
    AnchoredAtReply,
    /// With several nodes the token of a grant is used as the holder's.
    GrantIsHeld,
    /// A release does not look whose the lock is.
    ReleaseWithoutCompare,
    /// A fence is not stored on a majority.
    FenceNotStored,
    /// A grant does not say for which wait it was made: an attempt takes one by its random part.
    RepeatedGrant,
    /// A grant is held whatever has become of the attempts of its wait.
    UncertainGrant,
    /// An attempt takes a lock that is free, whoever waits.
    Barging,
    /// A renewal that finds no key sets it.
    ExtendCreates,
    /// Nodes that restarted just now vote.
    NoRestartGuard,
    /// A grant is over before its envelope says so.
    ShortGrant,
    /// An attempt that failed leaves what it has set.
    NoCleanUp,
    /// Two locks can have helper keys of the same names.
    SharedHelpers,
    /// Clients draw the same tokens and ids: children of one process that copied its random generator.
    RepeatedTokens,
    /// A grant is held as it stands, whatever its holder's settings are.
    GrantKeepsSettings,
    /// A release that no majority confirmed is not tried again in the background.
    ReleaseGivesUp,
}

const ALL: [Control; 16] = [
    Control::HalfIsEnough,
    Control::AnchoredAtReply,
    Control::GrantIsHeld,
    Control::ReleaseWithoutCompare,
    Control::FenceNotStored,
    Control::RepeatedGrant,
    Control::UncertainGrant,
    Control::Barging,
    Control::ExtendCreates,
    Control::NoRestartGuard,
    Control::ShortGrant,
    Control::NoCleanUp,
    Control::SharedHelpers,
    Control::RepeatedTokens,
    Control::GrantKeepsSettings,
    Control::ReleaseGivesUp,
];

impl Control {
    /// The control of this name, as it stands here.
    pub(super) fn named(name: &str) -> Control {
        let found = ALL.into_iter().find(|control| format!("{control:?}") == name);
        found.unwrap_or_else(|| panic!("`{name}` is none of {ALL:?}"))
    }
}

thread_local!(static CURRENT: Cell<Option<Control>> = const { Cell::new(None) });

pub(super) fn set(control: Option<Control>) {
    CURRENT.set(control);
}

pub(super) fn current() -> Option<Control> {
    CURRENT.get()
}

/// Asked by the library's own code, by the names that `sabotage.rs` has for them.
pub(crate) fn is_broken(name: &str) -> bool {
    let broken = CURRENT.get().and_then(|control| match control {
        Control::HalfIsEnough => Some("half-is-enough"),
        Control::AnchoredAtReply => Some("deadline-at-reply"),
        Control::GrantIsHeld => Some("grant-as-token"),
        Control::UncertainGrant => Some("uncertain-grant"),
        Control::NoRestartGuard => Some("young-votes"),
        Control::NoCleanUp => Some("no-clean-up"),
        Control::SharedHelpers => Some("shared-helpers"),
        Control::RepeatedTokens => Some("forked-tokens"),
        Control::GrantKeepsSettings => Some("grant-keeps-settings"),
        Control::ReleaseGivesUp => Some("release-gives-up"),
        _ => None,
    });
    broken == Some(name)
}

/// A script, broken if the control wants it so.
pub(super) fn edited<'a>(name: &str, source: &'a str) -> Cow<'a, str> {
    let edits: &[(&str, &str, &str)] = match CURRENT.get() {
        Some(Control::ReleaseWithoutCompare) => {
            &[("release", "if held ~= token and not is_own_grant then", "if false then")]
        }
        Some(Control::FenceNotStored) => &[(
            "fence",
            "if fence <= stored then",
            "if ARGV[2] ~= '0' then return {1, string.format('%.0f', math.max(fence, stored))} end\nif fence <= stored then",
        )],
        Some(Control::RepeatedGrant) => {
            &[("acquire", "string.sub(held, 33) == ':granted:' .. wait", "string.sub(held, 33, 41) == ':granted:'")]
        }
        Some(Control::Barging) => &[("acquire", "if several then return true end", "do return true end")],
        Some(Control::ExtendCreates) => &[(
            "extend",
            "if held == false then return -1 end",
            "if held == false then redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2]) return 1 end",
        )],
        Some(Control::ShortGrant) => &[("release", "polls and 300 or span)", "polls and 300 or 30)")],
        _ => &[],
    };
    edits.iter().filter(|(of, ..)| *of == name).fold(Cow::Borrowed(source), |source, (_, good, bad)| {
        assert!(source.contains(good), "{name}.lua has no `{good}` any more: adapt the control");
        Cow::Owned(source.replace(good, bad))
    })
}
