use crate::node::memory::Reply;
use crate::testing::Memory;

/// Executes one command on a node, and returns its reply word by word.
#[must_use]
pub fn command(memory: &Memory, node: usize, words: &[&str]) -> Vec<String> {
    let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
    memory.on_node(node, |server| server.execute(0, &words)).map_or_else(Vec::new, words_of)
}

fn words_of(reply: Reply) -> Vec<String> {
    match reply {
        Reply::Nil => Vec::new(),
        Reply::Ok => vec!["OK".into()],
        Reply::Int(n) => vec![n.to_string()],
        Reply::Bulk(bytes) => vec![String::from_utf8_lossy(&bytes).into_owned()],
        Reply::List(items) => items.into_iter().flat_map(words_of).collect(),
        Reply::Error(message) => vec![message.into_owned()],
    }
}
