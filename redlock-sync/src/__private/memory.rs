use std::sync::Arc;

use crate::node;
use crate::node::memory::MemoryReply;
pub use crate::node::memory::Rule;
use crate::testing::Memory;

/// Executes one command on a node, and returns its reply word by word.
#[must_use]
pub fn command(memory: &Memory, node: usize, words: &[&str]) -> Vec<String> {
    let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
    memory.on_node(node, |server| server.execute(0, &words)).map_or_else(Vec::new, words_of)
}

/// Lets all nodes differ from Redis in these ways.
pub fn follow(memory: &Memory, rules: &[Rule]) {
    memory.servers().iter().for_each(|server| server.follow(rules));
}

/// Serves each node on a port of this machine, as long as this process lives. Returns the addresses.
///
/// # Errors
/// If the system has no port or no thread left.
pub fn serve(memory: &Memory) -> std::io::Result<Vec<String>> {
    memory.servers().iter().map(|server| node::memory::serve(Arc::clone(server))).collect()
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
