//! Replies and messages as texts, without the parts that depend on the time. Times to live are rounded up to multiples
//! of five seconds. Numbers that are the server's time become `now`.

use crate::node::{Failure, Value};

pub(super) fn shown(reply: Result<Value, Failure>) -> String {
    match reply {
        Ok(Value::List(mut items)) => {
            // The last number of a claim: the time for which the task had been due.
            if let [Value::Int(1), _, _, _, _, Value::Int(_)] = items[..] {
                items.pop();
            }
            value(&Value::List(items))
        }
        Ok(reply) => value(&reply),
        Err(Failure { kind, executed, .. }) => format!("{kind:?} {executed:?}"),
    }
}

fn value(whole: &Value) -> String {
    match whole {
        Value::Nil => "nil".to_owned(),
        Value::Okay => "OK".to_owned(),
        Value::Int(n @ ..=4) => n.to_string(),
        // A counter that is ahead of the clock stays until the clock has passed it.
        Value::Int(1_000_000_000_000..) => "far".to_owned(),
        Value::Int(ms) => rounded(ms.cast_unsigned()),
        Value::Text(bytes) => timeless(&String::from_utf8_lossy(bytes)),
        Value::List(items) => format!("[{}]", items.iter().map(value).collect::<Vec<_>>().join(", ")),
    }
}

fn rounded(ms: u64) -> String {
    format!("{}s", ms.div_ceil(5000) * 5)
}

/// The text with `now` for each number that is the server's time, in µs or in ms.
fn timeless(text: &str) -> String {
    let is_time = |digits: &str| {
        let time = digits.parse::<u64>();
        matches!(time, Ok(1_500_000_000_000_000..2_500_000_000_000_000 | 1_500_000_000_000..2_500_000_000_000))
    };
    let part = |part: &str| {
        let digits = part.trim_end_matches(|c: char| !c.is_ascii_digit());
        format!("{}{}", if is_time(digits) { "now" } else { digits }, &part[digits.len()..])
    };
    text.split_inclusive(|c: char| !c.is_ascii_digit()).map(part).collect()
}

/// The published messages. A number in them is a span in ms, or a fence.
pub(super) fn said(messages: &[String]) -> String {
    let word = |word: &str| match word.parse::<u64>() {
        Ok(ms @ 5..1_000_000_000_000) => rounded(ms),
        _ => timeless(word),
    };
    let text = |message: &String| message.split(' ').map(word).collect::<Vec<_>>().join(" ");
    messages.iter().map(text).collect::<Vec<_>>().join(", ")
}

/// Compares two texts. Little time passes in memory, and less than five seconds on the server, so a remaining time
/// there can be one unit less.
pub(super) fn are_alike((memory, remote): &(String, String)) -> bool {
    let parts = |text: &str| text.split([' ', ',']).map(str::to_owned).collect::<Vec<_>>();
    let left = |word: &str| word.trim_matches(['[', ']']).strip_suffix('s').and_then(|left| left.parse::<i64>().ok());
    let (memory, remote) = (parts(memory), parts(remote));
    // A number up to 4 is shown unchanged. If it is a remaining time, that time is nearly over.
    let over = |word: &str| word.trim_matches(['[', ']']).parse::<u8>().ok().filter(|ms| *ms <= 4).map(|_| 0);
    let alike = |(in_memory, on_server): (&String, &String)| match left(in_memory) {
        Some(long) => left(on_server).or(over(on_server)).is_some_and(|left| (0..=5).contains(&(long - left))),
        None => in_memory == on_server,
    };
    memory.len() == remote.len() && memory.iter().zip(&remote).all(alike)
}
