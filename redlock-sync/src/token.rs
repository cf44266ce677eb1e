//! Tokens, which identify the holders of locks.
//!
//! Each attempt draws a new token. A token is never used again after a release for it was sent. With one token for each
//! `lock()` call, a delayed release of the first attempt could delete the lock of the second attempt. A token is a
//! random UUID (122 bits) and a readable name of the holder.
//!
//! All random bits come from the operating system when they are needed. A generator inside the process would be copied
//! by `fork`, and with the memory of a virtual machine. Two processes would then draw the same tokens, and each would
//! hold, and release, the lock of the other.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use smallvec::SmallVec;
use uuid::Uuid;

use crate::error::Error;
use crate::names::escaped;

/// The random part of a reservation, which no token has.
const RESERVED: &str = "00000000000000000000000000000000";
/// How many characters of the random part are shown. They distinguish tokens, but do not give them away.
const SHOWN_LEN: usize = 8;
/// The prefix in the text of a `LockToken`. Without it, the id of a live guard would be accepted as one.
const LOCK_TOKEN_PREFIX: &str = "left:";
/// Most tokens fit into this many bytes.
const USUAL_TOKEN: usize = 160;
/// The longest host name in a channel. Queues and grants store the channel for each wait.
const MAX_HOST_IN_CHANNEL: usize = 32;
/// The longest name of a holder that is stored with a token.
const MAX_HOLDER_NAME: usize = 200;

/// The unique id of one acquisition. While the lock is held, the servers store it under the lock's key. If threads of
/// one client hand a lock to each other without asking the servers, they have the same id one after the other. Their
/// [fencing tokens](crate::Lease::fencing_token) differ.
///
/// An id is there to be shown. **Its whole text is a secret**: with it, a program can take the lock over. So `Display`
/// and `Debug` show only its first eight characters and the [name of the holder](LockId::holder_name). The same is true
/// of guards and of [`Holder`](crate::Holder). [`as_str`](LockId::as_str) returns the whole text.
///
/// ```
/// # let server = redlock_tests::Server::for_sample();
/// # let url = server.url();
/// let locks = redlock_sync::Redlock::open(&url)?;
/// let guard = locks.mutex("order:42").lock()?;
/// assert!(guard.id().as_str().len() > 32);
/// assert!(guard.id().holder_name().contains(&std::process::id().to_string()));
/// # Ok::<(), redlock_sync::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct LockId(Arc<str>);

impl LockId {
    /// Returns the whole id, as the servers store it. It is a secret, so write to logs only what `Display` shows.
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// let guard = locks.mutex("order:42").lock()?;
    /// assert!(guard.id().as_str().ends_with(guard.id().holder_name()));
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the readable part: host, process and thread, or what [`holder_name`](crate::Mutex::holder_name) set. If
    /// another process granted a mutex without a `holder_name` to a waiter, the part is `granted:` and the id of the
    /// waiter. That id is the name of the client's channel, which contains host and process, and a number. If what
    /// another program stored has no readable part, the result is empty.
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// let guard = locks.mutex("order:42").holder_name("worker-7").lock()?;
    /// assert_eq!(guard.id().holder_name(), "worker-7");
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use]
    pub fn holder_name(&self) -> &str {
        self.0.split_once(':').map_or("", |(_, holder_name)| holder_name)
    }

    pub(crate) fn from_server(value: &str) -> LockId {
        LockId(value.into())
    }

    /// True for a slot that is reserved for a wait (`lua/slots.lua`) and has no holder. The random part of a token is
    /// never 0.
    pub(crate) fn is_reservation(&self) -> bool {
        self.0.strip_prefix(RESERVED).is_some_and(|rest| rest.starts_with(":granted:"))
    }

    /// The first characters of the random part.
    pub(crate) fn shown(&self) -> String {
        random_part_of(&self.0).chars().take(SHOWN_LEN).collect()
    }

    /// The token by which a wait holds a lock that was granted to it. It contains the id of the wait, so a grant cannot
    /// be taken for that of another wait.
    pub(crate) fn granted(random: &str, wait: &str) -> LockId {
        LockId(format!("{random}:granted:{wait}").into())
    }
}

impl fmt::Display for LockId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}…", escaped(&self.shown()))?;
        if self.holder_name().is_empty() { Ok(()) } else { write!(f, ":{}", escaped(self.holder_name())) }
    }
}

impl fmt::Debug for LockId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LockId(\"{self}\")")
    }
}

/// The right to take over a lock that is held. [`MutexGuard::into_token`](crate::MutexGuard::into_token) makes it, and
/// [`Mutex::adopt`](crate::Mutex::adopt) uses it, in this process or another one. Both need a client of one server. The
/// token does not contain the name of the lock, so send the name along. Its text is a secret: `Debug` shows only the
/// readable part. The [id](LockId) of a guard cannot be used as a `LockToken`.
///
/// ```
/// # let server = redlock_tests::Server::for_sample();
/// # let url = server.url();
/// use redlock_sync::LockToken;
/// let locks = redlock_sync::Redlock::open(&url)?;
/// let token = locks.mutex("order:42").holder_name("billing").lock()?.into_token()?;
/// let sent = token.as_str().to_owned(); // by a pipe, a queue, a database …
/// let received: LockToken = sent.parse()?;
/// assert_eq!(received, token);
/// assert_eq!(format!("{received:?}"), r#"LockToken("billing")"#);
/// # Ok::<(), redlock_sync::Error>(())
/// ```
#[must_use = "if unused the lock stays taken until its lease ends: send the token to the thread or process that adopts it"]
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct LockToken(Arc<str>);

impl LockToken {
    /// Returns the text to send to the process that takes the lock over. There, [`parse`](str::parse) reads it.
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// let token = locks.mutex("order:42").lock()?.into_token()?;
    /// assert_eq!(token.as_str().parse(), Ok(token));
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn new(id: &LockId) -> LockToken {
        LockToken(format!("{LOCK_TOKEN_PREFIX}{}", id.as_str()).into())
    }

    /// The token as stored in Redis.
    pub(crate) fn id(&self) -> LockId {
        LockId(self.0.strip_prefix(LOCK_TOKEN_PREFIX).unwrap_or_default().into())
    }
}

impl std::str::FromStr for LockToken {
    type Err = Error;

    /// Reads what [`LockToken::as_str`] returned.
    ///
    /// # Errors
    /// [`Config`](Error::Config) for a text that no [`into_token`](crate::MutexGuard::into_token) made, such as the
    /// [id](LockId) of a guard.
    fn from_str(text: &str) -> Result<LockToken, Error> {
        if text.strip_prefix(LOCK_TOKEN_PREFIX).is_some_and(is_ours) {
            Ok(LockToken(text.into()))
        } else {
            Err(Error::config("the text is not a lock token: pass the text that `LockToken::as_str` returned"))
        }
    }
}

impl fmt::Debug for LockToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LockToken").field(&self.id().holder_name()).finish()
    }
}

/// Makes the tokens of one client.
#[derive(Debug)]
pub(crate) struct TokenSource {
    /// The middle part of each name: `:host:process:`.
    place: String,
}

impl TokenSource {
    pub(crate) fn new() -> TokenSource {
        TokenSource { place: format!(":{}:{}:", host_name(), process_id()) }
    }

    /// A new token.
    pub(crate) fn fresh(&self, holder_name: Option<&str>) -> Result<LockId, Error> {
        let mut text = SmallVec::<[u8; USUAL_TOKEN]>::new();
        text.extend_from_slice(digits(random()?, &mut Uuid::encode_buffer()).as_bytes());
        if let Some(holder_name) = holder_name {
            text.push(b':');
            text.extend_from_slice(holder_name.as_bytes());
        } else {
            text.extend_from_slice(self.place.as_bytes());
            text.extend_from_slice(itoa::Buffer::new().format(thread_number()).as_bytes());
        }
        // The text is valid, and this check is faster than `from_utf8_lossy`.
        let text = std::str::from_utf8(&text).map_or_else(|_| String::from_utf8_lossy(&text), Cow::Borrowed);
        Ok(LockId(text.into()))
    }
}

/// True for the token of a grant or of a reservation.
pub(crate) fn is_granted(token: &str) -> bool {
    token.split_once(':').is_some_and(|(_, rest)| rest.starts_with("granted:"))
}

/// The id of a wait: what its entry in a server queue begins with.
pub(crate) fn wait_id(wait: &str) -> &str {
    wait.split_once(' ').map_or(wait, |(id, _)| id)
}

/// The random part of a token. It tells tokens apart, also if a server returned only the beginning of a token.
pub(crate) fn random_part_of(token: &str) -> &str {
    token.split_once(':').map_or(token, |(random, _)| random)
}

/// The random part of a granted token, or of an id that is used once: 32 hexadecimal digits.
pub(crate) fn random_part() -> Result<String, Error> {
    Ok(digits(random()?, &mut Uuid::encode_buffer()).to_owned())
}

/// The 32 hexadecimal digits of a random UUID. `buffer` comes from `Uuid::encode_buffer`.
fn digits(random: [u8; 16], buffer: &mut [u8]) -> &str {
    uuid::Builder::from_random_bytes(random).into_uuid().simple().encode_lower(buffer)
}

/// The name of the channel on which a client receives grants and notifications. A granted token contains the channel,
/// so the channel names host and process.
pub(crate) fn channel() -> Result<Arc<str>, Error> {
    let random = u128::from_be_bytes(random()?) >> 64;
    Ok(format!("redlock-sync:{}:{}:{random:016x}", in_channel(&host_name()), process_id()).into())
}

/// The name of a host as a part of a channel. Scripts and views split the id of a wait at `:`, `/` and spaces.
fn in_channel(host: &str) -> String {
    let safe = |c: char| if c.is_ascii_alphanumeric() || "-._".contains(c) { c } else { '-' };
    host.chars().take(MAX_HOST_IN_CHANNEL).map(safe).collect()
}

/// The only source of random bits for tokens and ids.
fn random() -> Result<[u8; 16], Error> {
    #[cfg(test)]
    if let Some(bytes) = crate::simulation::random() {
        return Ok(bytes);
    }
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|e| {
        Error::config(format!("failed to make a token: the operating system gave no random numbers: {e}"))
    })?;
    Ok(bytes)
}

fn process_id() -> u32 {
    #[cfg(test)]
    if let Some(id) = crate::simulation::process_id() {
        return id;
    }
    std::process::id()
}

/// True if the token was made by this library, so that its holder notifies waits when it releases the lock.
pub(crate) fn is_ours(token: &str) -> bool {
    let Some((random, rest)) = token.split_at_checked(32) else { return false };
    rest.starts_with(':') && random.bytes().all(|b| b.is_ascii_hexdigit())
}

/// Checks a holder name that was set by the caller.
pub(crate) fn check_holder_name(name: &str) -> Result<(), Error> {
    if name.is_empty() || name.len() > MAX_HOLDER_NAME {
        return Err(Error::config(format!(
            "holder_name must have 1 to {MAX_HOLDER_NAME} bytes, but has {}",
            name.len()
        )));
    }
    Ok(())
}

/// A small number for this thread, assigned on first use.
fn thread_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local!(static NUMBER: u64 = NEXT.fetch_add(1, Ordering::Relaxed));
    #[cfg(test)]
    if let Some(number) = crate::simulation::thread_number() {
        return number;
    }
    NUMBER.try_with(|n| *n).unwrap_or(0)
}

#[cfg(unix)]
fn host_name() -> String {
    let uname = rustix::system::uname();
    uname.nodename().to_string_lossy().chars().filter(|c| !c.is_control()).take(64).collect()
}

#[cfg(not(unix))]
fn host_name() -> String {
    std::env::var("COMPUTERNAME").unwrap_or_else(|_| "host".into()).chars().take(64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_fresh_and_name_their_owner() {
        let tokens = TokenSource::new();
        let (a, b) = (tokens.fresh(None).unwrap(), tokens.fresh(None).unwrap());
        assert_ne!(a, b);
        assert!(a.holder_name().contains(&std::process::id().to_string()));
        assert_eq!(tokens.fresh(Some("me:too")).unwrap().holder_name(), "me:too");
        assert_ne!(random_part().unwrap(), random_part().unwrap());
    }

    #[test]
    fn our_tokens_are_known() {
        let tokens = TokenSource::new();
        let granted = LockId::granted(&random_part().unwrap(), "redlock-sync:0123456789abcdef/7");
        let ours = [tokens.fresh(None).unwrap(), tokens.fresh(Some("me")).unwrap(), granted];
        assert!(ours.iter().all(|id| is_ours(id.as_str())));
        let hex = "0123456789abcdef0123456789abcdef";
        for foreign in ["", hex, "me", &format!("{hex}-me:x"), &format!("{hex}x:y"), &format!("x{hex}:y"), "é:x"] {
            assert!(!is_ours(foreign), "{foreign}");
        }
    }

    #[test]
    fn what_is_shown_of_a_token_is_no_token() {
        let random = "0123456789abcdef0123456789abcdef";
        let show = |token: &str| {
            let id = LockId::from_server(token);
            (format!("{id}"), format!("{id:?}"))
        };
        let expected = ("01234567…:billing\\n".to_owned(), "LockId(\"01234567…:billing\\n\")".to_owned());
        assert_eq!(show(&format!("{random}:billing\n")), expected);
        assert!(show(&format!("{random}:billing")).0.parse::<LockToken>().is_err());
        assert_eq!(show("é").0, "é…");
        assert_eq!(show(random).0, "01234567…");
    }

    #[test]
    fn a_channel_names_host_and_process() {
        let channel = channel().unwrap();
        let parts: Vec<&str> = channel.split(':').collect();
        let [prefix, host, process, random] = parts[..] else { panic!("{channel}") };
        assert_eq!((prefix, host), ("redlock-sync", &*in_channel(&host_name())));
        assert_eq!((process, random.len()), (&*std::process::id().to_string(), 16));
        assert_eq!(in_channel("web 3:a/b.\u{e9}_C-1"), "web-3-a-b.-_C-1");
        assert_eq!(in_channel(&"x".repeat(99)).len(), MAX_HOST_IN_CHANNEL);
    }

    #[test]
    fn owners_are_bounded() {
        assert!(check_holder_name("worker").is_ok());
        assert!(check_holder_name("").is_err());
        assert!(check_holder_name(&"x".repeat(201)).is_err());
    }
}
