use crate::node::memory::MemoryReply;
use crate::testing::Memory;

/// Executes one command on a node, and returns its reply word by word.
#[must_use]
pub fn command(memory: &Memory, node: usize, words: &[&str]) -> Vec<String> {
    let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
    memory.on_node(node, |server| server.execute(0, &words)).map_or_else(Vec::new, words_of)
}

fn words_of(reply: MemoryReply) -> Vec<String> {
    match reply {
        MemoryReply::Nil => Vec::new(),
        MemoryReply::Ok => vec!["OK".into()],
        MemoryReply::Int(n) => vec![n.to_string()],
        MemoryReply::Bulk(bytes) => vec![String::from_utf8_lossy(&bytes).into_owned()],
        MemoryReply::List(items) => items.into_iter().flat_map(words_of).collect(),
        MemoryReply::Error(message) => vec![message.into_owned()],
    }
}
