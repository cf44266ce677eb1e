//! The requests of clients to servers, as the proxies logged them. They show the leases that clients extend, and
//! whether ids are unique.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use redlock_tests::Proxy;

use crate::clock::now;
use crate::history::{IdOf, Reused};

/// The pause between two reads of the log of a proxy.
const SWEEP: Duration = Duration::from_millis(200);

/// What the requests so far contained.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    /// The last time at which a client asked a node to extend the lease of a token.
    pub(crate) extended: HashMap<String, u64>,
    /// The use of each id. `None` if the id has had two uses.
    ids: HashMap<(IdOf, String), Option<String>>,
    pub(crate) reused: Vec<Reused>,
}

/// Reads the logs of the proxies until the run is over. Discards all requests that the checkers do not need.
pub(crate) fn sweep(proxies: &[Proxy], is_over: &AtomicBool, heard: &Mutex<Heard>) {
    loop {
        let is_last = is_over.load(Ordering::SeqCst);
        let (at, instant) = (now(), Instant::now());
        for command in proxies.iter().flat_map(Proxy::take_log) {
            let ago = instant.saturating_duration_since(command.at).as_nanos();
            let when = at.saturating_sub(u64::try_from(ago).unwrap_or(0));
            heard.lock().unwrap().hear(&command.name, &command.args, when);
        }
        if is_last {
            return;
        }
        thread::sleep(SWEEP);
    }
}

impl Heard {
    pub(crate) fn count(&self, what: IdOf) -> usize {
        self.ids.keys().filter(|id| id.0 == what).count()
    }

    fn hear(&mut self, name: &str, words: &[String], at: u64) {
        let Some(call) = Call::read(words) else { return };
        match name {
            "extend" => {
                let last = self.extended.entry(call.token().to_owned()).or_default();
                *last = at.max(*last);
            }
            // The fourth argument of `acquire.lua` is a wait: its id, which belongs to one thread of one process, and the
            // random part of the token under which it holds a lock that is granted to it. A call on the fast path has
            // none.
            "acquire" if call.args.len() > 7 && call.is_of_a_mutex() => {
                let (id, random) = call.arg(3).split_once(' ').unwrap_or_default();
                self.note(IdOf::Wait, id, format!("of {} for {}", owner(call.token()), call.key()), at);
                self.note(IdOf::Grant, random, format!("of the wait {id} on {}", call.key()), at);
            }
            _ => {}
        }
    }

    fn note(&mut self, what: IdOf, id: &str, stands_for: String, at: u64) {
        if id.is_empty() {
            return;
        }
        match self.ids.entry((what, id.to_owned())) {
            Entry::Vacant(new) => _ = new.insert(Some(stands_for)),
            Entry::Occupied(mut known) => {
                // The second use of an id is reported only once.
                if let Some(first) = known.get_mut().take_if(|first| *first != stands_for) {
                    self.reused.push(Reused { at, what, id: id.to_owned(), first, second: stands_for });
                }
            }
        }
    }
}

/// A call of a script.
struct Call<'a> {
    keys: &'a [String],
    args: &'a [String],
}

impl Call<'_> {
    fn read(words: &[String]) -> Option<Call<'_>> {
        // The words are the digest or the source of the script, the number of keys, the keys, and the arguments.
        let [_, keys, rest @ ..] = words else { return None };
        let (keys, args) = rest.split_at_checked(keys.parse().ok()?)?;
        Some(Call { keys, args }).filter(|call| !call.keys.is_empty() && !call.args.is_empty())
    }

    fn key(&self) -> &str {
        &self.keys[0]
    }

    /// The token of the call.
    fn token(&self) -> &str {
        self.arg(0)
    }

    /// True if the call is for a mutex. The scripts of other kinds have other arguments, and other helper keys after
    /// the first key.
    fn is_of_a_mutex(&self) -> bool {
        let helper = self.keys.get(1).map_or("", String::as_str);
        ![":permit_queue", ":readers"].iter().any(|other| helper.ends_with(other))
    }

    fn arg(&self, nth: usize) -> &str {
        self.args.get(nth).map_or("", String::as_str)
    }
}

/// The part of a token that is the same for all tokens of a thread.
fn owner(token: &str) -> &str {
    token.find(['-', ':']).map_or(token, |end| &token[end + 1..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(commands: &[(&str, &str)]) -> Heard {
        let mut heard = Heard::default();
        for (name, words) in commands {
            let words: Vec<String> = words
                .split_whitespace()
                .map(|word| if word == "_" { String::new() } else { word.replace('+', " ") })
                .collect();
            heard.hear(name, &words, 7);
        }
        heard
    }

    #[test]
    fn ids_of_their_own_are_good() {
        let waits = ("acquire", "sha 3 order q f ab-1:host:1:2 500 0 w1+r1 600 -1 0 500");
        let again = ("acquire", "sha 3 order q f cd-1:host:1:2 500 0 w1+r1 600 -1 0 500");
        let other = ("acquire", "sha 3 order q f ef-2:host:2:2 500 0 w2+r2 600 -1 0 500");
        let heard = heard(&[waits, again, other, ("GET", "order")]);
        assert!(heard.reused.is_empty(), "{:?}", heard.reused);
        assert_eq!((heard.count(IdOf::Wait), heard.count(IdOf::Grant)), (2, 2));
    }

    #[test]
    fn an_id_of_two_is_found() {
        let one = ("acquire", "sha 3 order q f ab-1:host:1:2 500 0 w1+r1 600 -1 0 500");
        for other in [
            "sha 3 order q f ab-3:host:3:2 500 0 w1+r2 600 -1 0 500",
            "sha 3 {order} q f ab-1:host:1:2 500 0 w1+r2 600 -1 0 500",
            "sha 3 order q f ab-3:host:3:2 500 0 w2+r1 600 -1 0 500",
        ] {
            assert_eq!(heard(&[one, ("acquire", other)]).reused.len(), 1, "{other}");
        }
    }

    #[test]
    fn the_last_extension_of_a_token_is_known() {
        let heard = heard(&[("extend", "sha 1 order ab 500"), ("extend", "sha 4 rates r f w cd 500 r 0")]);
        assert_eq!((heard.extended.get("ab"), heard.extended.get("cd")), (Some(&7), Some(&7)));
    }

    #[test]
    fn other_kinds_have_no_such_ids() {
        let semaphore = ("acquire", "sha 3 p {p}:permit_queue f ab 500 2 0 0 0 500 w1 600 -1 9");
        let reader = ("acquire", "sha 4 p {p}:readers f {p}:writers ab 500 r 0 w1 600 -1 9 0");
        let heard = heard(&[semaphore, semaphore, reader]);
        assert_eq!((heard.count(IdOf::Wait), heard.count(IdOf::Grant), heard.reused.len()), (0, 0, 0));
    }
}
