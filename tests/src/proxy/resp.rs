//! The part of RESP that is needed to split a stream into whole requests and replies.

/// The length of the first value in `buffer`, if the value is complete. It can be RESP2 or RESP3, nested, or an inline
/// command.
pub(super) fn frame(buffer: &[u8]) -> Option<usize> {
    let line = line(buffer)?;
    let (kind, header) = buffer[..line].split_first()?;
    let count = || number(header);
    match kind {
        b'$' | b'=' | b'!' => Some(line + count().map_or(0, |bytes| bytes + 2)).filter(|end| *end <= buffer.len()),
        b'*' | b'~' | b'>' => items(buffer, line, count().unwrap_or(0)),
        b'%' => items(buffer, line, count().unwrap_or(0) * 2),
        b'|' => items(buffer, line, count().unwrap_or(0) * 2 + 1), // Attributes belong to the value after them.
        _ => Some(line),
    }
}

/// The end of `count` values that start at `at`.
fn items(buffer: &[u8], mut at: usize, count: usize) -> Option<usize> {
    for _ in 0..count {
        at += frame(&buffer[at..])?;
    }
    Some(at)
}

/// The length of the first line with its line end.
fn line(buffer: &[u8]) -> Option<usize> {
    let end = buffer.iter().position(|byte| *byte == b'\n')?;
    Some(end + 1)
}

/// Parses a count. Returns `None` for the null values `$-1` and `*-1`.
fn number(header: &[u8]) -> Option<usize> {
    std::str::from_utf8(header).ok()?.trim_end().parse().ok()
}

/// The words of a whole request.
pub(super) fn words(request: &[u8]) -> Vec<String> {
    match request.first() {
        Some(b'*') => bulks(request),
        _ => text(request).split_whitespace().map(str::to_owned).collect(),
    }
}

fn bulks(request: &[u8]) -> Vec<String> {
    let mut words = Vec::new();
    let mut rest = &request[line(request).unwrap_or(request.len())..];
    while let (Some(head), Some(end)) = (line(rest), frame(rest)) {
        let body = &rest[head..end];
        words.push(text(body.strip_suffix(b"\r\n").unwrap_or(body)));
        rest = &rest[end..];
    }
    words
}

/// The first word of a reply that is an array or a push of strings, such as `message` or `subscribe`.
pub(super) fn first_word(reply: &[u8]) -> Option<String> {
    match reply.first()? {
        b'*' | b'>' => bulks(reply).into_iter().next().map(|word| word.to_ascii_lowercase()),
        _ => None,
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALUES: [&str; 18] = [
        "+OK\r\n",
        "-ERR no\r\n",
        ":42\r\n",
        "$-1\r\n",
        "$0\r\n\r\n",
        "$4\r\na\r\nb\r\n",
        "*-1\r\n",
        "*0\r\n",
        "*2\r\n$1\r\na\r\n*2\r\n:1\r\n*1\r\n$-1\r\n",
        "_\r\n",
        "#t\r\n",
        ",1.5\r\n",
        "(123\r\n",
        "!5\r\nERR a\r\n",
        "=5\r\ntxt:a\r\n",
        "%1\r\n+a\r\n:1\r\n",
        ">2\r\n+message\r\n+a\r\n",
        "|1\r\n+ttl\r\n:1\r\n+OK\r\n",
    ];

    #[test]
    fn a_frame_is_whole_or_nothing() {
        for value in VALUES {
            let whole = value.as_bytes();
            assert_eq!(frame(whole), Some(whole.len()), "{value:?}");
            for cut in 0..whole.len() {
                assert_eq!(frame(&whole[..cut]), None, "{value:?} cut at {cut}");
            }
        }
    }

    #[test]
    fn a_frame_ends_where_the_next_begins() {
        for value in VALUES {
            for next in VALUES {
                assert_eq!(frame([value, next].concat().as_bytes()), Some(value.len()));
            }
        }
    }

    #[test]
    fn words_of_requests() {
        assert_eq!(words(b"*2\r\n$3\r\nGET\r\n$4\r\na\r\nb\r\n"), ["GET", "a\r\nb"]);
        assert_eq!(words(b"PING  hello\r\n"), ["PING", "hello"]);
        assert_eq!(words(b"\r\n"), [""; 0]);
        assert_eq!(words(b"*1\r\n$0\r\n\r\n"), [""]);
    }

    #[test]
    fn first_words_of_replies() {
        assert_eq!(first_word(b"*3\r\n$7\r\nmessage\r\n$1\r\na\r\n$1\r\nb\r\n").as_deref(), Some("message"));
        assert_eq!(first_word(b"$7\r\nmessage\r\n"), None);
        assert_eq!(first_word(b"*0\r\n"), None);
    }
}
