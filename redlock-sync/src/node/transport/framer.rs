//! Finds the end of each reply in the bytes of a connection. The bytes arrive in pieces of any size. Each byte of an
//! incomplete reply is examined once.
//!
//! The framer counts missing elements and does not recurse. A reply is complete when no element is missing. An array of
//! `n` elements adds `n - 1` to the missing ones. So a deeply nested reply needs no stack, and a reply that arrives
//! byte by byte is not scanned again.

/// The longest bulk string that Redis allows.
const MAX_BULK_STRING: usize = 512 << 20;
/// The longest line: a status, an error or a number. Redis writes shorter ones.
const MAX_LINE: usize = 64 << 10;
/// The most elements that a reply may lack. Replies to the library's calls have far fewer.
const MAX_MISSING: usize = 1 << 24;
/// The free space offered to each read.
const READ_SPACE: usize = 16 << 10;
/// A larger buffer is freed once it is empty.
const MAX_KEPT_BUFFER: usize = 256 << 10;

/// One reply. The frequent forms need no allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WireReply {
    /// `$-1` or `*-1`.
    Nil,
    /// `+OK`.
    Okay,
    Int(i64),
    /// Any other reply, as bytes of the protocol.
    Raw(Vec<u8>),
}

impl WireReply {
    pub(crate) fn is_error(&self) -> bool {
        matches!(self, WireReply::Raw(bytes) if bytes.first() == Some(&b'-'))
    }
}

/// The bytes are not RESP2. The rest of the stream cannot be understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Garbled;

/// Splits a stream of bytes into replies.
#[derive(Debug)]
pub(crate) struct Framer {
    /// `bytes[begin..end]` holds unconsumed bytes. Free space follows.
    bytes: Vec<u8>,
    begin: usize,
    end: usize,
    /// How many bytes of the current reply were examined. It starts at `begin`.
    counted: usize,
    /// How many elements the current reply lacks.
    missing: usize,
}

impl Framer {
    pub(crate) fn new() -> Framer {
        Framer { bytes: Vec::new(), begin: 0, end: 0, counted: 0, missing: 1 }
    }

    /// The free space to read into. [`Framer::filled`] must be called afterwards.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        if self.begin == self.end {
            (self.begin, self.end) = (0, 0);
            if self.bytes.len() > MAX_KEPT_BUFFER {
                self.bytes = Vec::new();
            }
        } else if self.begin > 0 && self.bytes.len() - self.end < READ_SPACE {
            self.bytes.copy_within(self.begin..self.end, 0);
            (self.begin, self.end) = (0, self.end - self.begin);
        }
        if self.bytes.len() - self.end < READ_SPACE {
            // The buffer doubles, so a long reply is copied only a few times.
            self.bytes.resize((self.end * 2).max(self.end + READ_SPACE), 0);
        }
        self.bytes.get_mut(self.end..).unwrap_or_default()
    }

    /// Records how many bytes were read into the free space.
    pub(crate) fn filled(&mut self, read: usize) {
        self.end = (self.end + read).min(self.bytes.len());
    }

    /// True if the next element is one of RESP3. It is then no reply.
    pub(crate) fn is_at_resp3(&self) -> bool {
        let unread = self.bytes.get(self.begin + self.counted..self.end).unwrap_or_default();
        unread.first().is_some_and(|mark| b"_,#!=(%~>|".contains(mark))
    }

    /// True if the next bytes begin an alert of TLS, by which a server refuses what is not TLS.
    pub(crate) fn is_at_tls(&self) -> bool {
        self.bytes.get(self.begin + self.counted..self.end).unwrap_or_default().starts_with(&[0x15])
    }

    /// Takes the next complete reply. `None` if more bytes are needed.
    pub(crate) fn take_reply(&mut self) -> Result<Option<WireReply>, Garbled> {
        while self.missing > 0 {
            let unread = self.bytes.get(self.begin + self.counted..self.end).unwrap_or_default();
            let Some((long, more)) = element(unread)? else { return Ok(None) };
            self.counted += long;
            self.missing =
                (self.missing - 1).checked_add(more).filter(|missing| *missing <= MAX_MISSING).ok_or(Garbled)?;
        }
        let from = self.begin;
        self.begin += self.counted;
        (self.counted, self.missing) = (0, 1);
        reply(self.bytes.get(from..self.begin).unwrap_or_default()).map(Some)
    }
}

/// The length of the first element, and the number of elements nested in it. For an array, the length is that of its
/// header. `None` if the element is incomplete.
fn element(bytes: &[u8]) -> Result<Option<(usize, usize)>, Garbled> {
    let Some((mark, line)) = bytes.split_first() else { return Ok(None) };
    if !b"+-:$*".contains(mark) {
        return Err(Garbled);
    }
    let Some(long) = line.iter().take(MAX_LINE).position(|&byte| byte == b'\n') else {
        return if line.len() < MAX_LINE { Ok(None) } else { Err(Garbled) };
    };
    let (line, head) = (line.get(..long).and_then(|line| line.strip_suffix(b"\r")).ok_or(Garbled)?, long + 2);
    match mark {
        b'$' => match length(line)? {
            None => Ok(Some((head, 0))),
            Some(long) if long > MAX_BULK_STRING => Err(Garbled),
            Some(long) => whole(bytes, head, long),
        },
        b'*' => Ok(Some((head, length(line)?.unwrap_or(0)))),
        b':' => number(line).map(|_| Some((head, 0))),
        _ => Ok(Some((head, 0))),
    }
}

/// The element of a bulk string, if its end has arrived.
fn whole(bytes: &[u8], head: usize, long: usize) -> Result<Option<(usize, usize)>, Garbled> {
    let end = head + long + 2;
    match bytes.get(head + long..end) {
        Some(b"\r\n") => Ok(Some((end, 0))),
        Some(_) => Err(Garbled),
        None => Ok(None),
    }
}

/// Parses a length. `None` for -1, which stands for nil.
fn length(line: &[u8]) -> Result<Option<usize>, Garbled> {
    match number(line)? {
        -1 => Ok(None),
        long => usize::try_from(long).map(Some).map_err(|_| Garbled),
    }
}

fn number(line: &[u8]) -> Result<i64, Garbled> {
    std::str::from_utf8(line).ok().and_then(|line| line.parse().ok()).ok_or(Garbled)
}

fn reply(bytes: &[u8]) -> Result<WireReply, Garbled> {
    Ok(match bytes {
        b"$-1\r\n" | b"*-1\r\n" => WireReply::Nil,
        b"+OK\r\n" => WireReply::Okay,
        [b':', line @ .., b'\r', b'\n'] => WireReply::Int(number(line)?),
        other => WireReply::Raw(other.to_vec()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feed(framer: &mut Framer, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let room = framer.room();
            let long = room.len().min(bytes.len());
            room[..long].copy_from_slice(&bytes[..long]);
            framer.filled(long);
            bytes = &bytes[long..];
        }
    }

    fn all(framer: &mut Framer) -> Vec<WireReply> {
        std::iter::from_fn(|| framer.take_reply().unwrap()).collect()
    }

    fn raw(text: &str) -> WireReply {
        WireReply::Raw(text.as_bytes().to_vec())
    }

    const STREAM: &str = ":1\r\n+OK\r\n$-1\r\n*-1\r\n*3\r\n:0\r\n*2\r\n$3\r\na\r\n\r\n*0\r\n$-1\r\n-ERR no\r\n$0\r\n\r\n+QUEUED\r\n:-7\r\n*0\r\n";

    fn replies() -> Vec<WireReply> {
        vec![
            WireReply::Int(1),
            WireReply::Okay,
            WireReply::Nil,
            WireReply::Nil,
            raw("*3\r\n:0\r\n*2\r\n$3\r\na\r\n\r\n*0\r\n$-1\r\n"),
            raw("-ERR no\r\n"),
            raw("$0\r\n\r\n"),
            raw("+QUEUED\r\n"),
            WireReply::Int(-7),
            raw("*0\r\n"),
        ]
    }

    #[test]
    fn replies_end_where_they_end_in_pieces_of_any_size() {
        for piece in 1..=STREAM.len() {
            let (mut framer, mut found) = (Framer::new(), Vec::new());
            for part in STREAM.as_bytes().chunks(piece) {
                feed(&mut framer, part);
                found.extend(all(&mut framer));
            }
            assert_eq!(found, replies(), "in pieces of {piece}");
            assert_eq!(framer.begin, framer.end);
        }
    }

    #[test]
    fn a_reply_that_is_cut_anywhere_waits_for_its_rest() {
        for cut in 0..STREAM.len() {
            let (head, rest) = STREAM.as_bytes().split_at(cut);
            let mut framer = Framer::new();
            feed(&mut framer, head);
            let mut found = all(&mut framer);
            assert_eq!(framer.take_reply(), Ok(None));
            feed(&mut framer, rest);
            found.extend(all(&mut framer));
            assert_eq!(found, replies(), "cut at {cut}");
        }
    }

    #[test]
    fn a_reply_nested_a_million_deep_needs_no_stack() {
        let mut framer = Framer::new();
        let deep = "*1\r\n".repeat(1_000_000) + ":7\r\n";
        feed(&mut framer, deep.as_bytes());
        assert_eq!(framer.take_reply(), Ok(Some(raw(&deep))));
    }

    #[test]
    fn long_replies_grow_the_buffer_and_give_it_back() {
        let (mut framer, body) = (Framer::new(), "x".repeat(3 << 20));
        let bulk = format!("${}\r\n{body}\r\n", body.len());
        for _ in 0..2 {
            feed(&mut framer, bulk.as_bytes());
            feed(&mut framer, b":5\r\n");
            assert_eq!(all(&mut framer), [raw(&bulk), WireReply::Int(5)]);
        }
        framer.room();
        assert!(framer.bytes.len() <= MAX_KEPT_BUFFER, "{}", framer.bytes.len());
    }

    #[test]
    fn what_is_no_reply_is_garbled() {
        let long_line = format!("+{}", "x".repeat(MAX_LINE));
        for text in [
            "HTTP/1.1 400 Bad Request\r\n",
            "%1\r\n",
            "$536870913\r\n",
            "$-2\r\n",
            "*x\r\n",
            "*1048576\r\n*1048576\r\n*99999999\r\n",
            "*9223372036854775807\r\n",
            ":\r\n",
            ":1 2\r\n",
            ":99999999999999999999\r\n",
            "$1\r\nabc",
            "+OK\n",
            &long_line,
        ] {
            let mut framer = Framer::new();
            feed(&mut framer, text.as_bytes());
            assert_eq!(framer.take_reply(), Err(Garbled), "{text:?}");
        }
    }

    #[test]
    fn as_the_redis_crate_reads_it() {
        for reply in replies() {
            if let WireReply::Raw(bytes) = reply {
                assert!(redis::parse_redis_value(&bytes).is_ok(), "{bytes:?}");
            }
        }
    }
}
