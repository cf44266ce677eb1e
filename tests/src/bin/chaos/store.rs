//! The fenced store. It accepts a write if the fencing token is at least as large as all earlier fencing tokens of the
//! key.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::clock::now;
use crate::history::Stored;

#[derive(Debug, Default)]
struct Books {
    largest: HashMap<usize, u64>,
    writes: Vec<Stored>,
}

/// A service on a port of 127.0.0.1. Each of its threads ends when its client disconnects.
#[derive(Debug)]
pub(crate) struct Store {
    addr: SocketAddr,
    books: Arc<Mutex<Books>>,
}

impl Store {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let addr = listener.local_addr().expect("it has an address");
        let books = Arc::new(Mutex::new(Books::default()));
        let shared = Arc::clone(&books);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let books = Arc::clone(&shared);
                thread::spawn(move || serve(&stream, &books));
            }
        });
        Self { addr, books }
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    pub(crate) fn writes(&self) -> Vec<Stored> {
        self.books.lock().unwrap().writes.clone()
    }
}

fn serve(stream: &TcpStream, books: &Mutex<Books>) {
    _ = stream.set_nodelay(true);
    for line in BufReader::new(stream).lines().map_while(Result::ok) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [key, fence, session] = words[..] else { panic!("the store cannot read `{line}`") };
        {
            let mut books = books.lock().unwrap();
            let (key, fence): (usize, u64) = (key.parse().unwrap(), fence.parse().unwrap());
            let largest = books.largest.entry(key).or_default();
            let accepted = fence >= *largest;
            *largest = fence.max(*largest);
            let session = session.parse().unwrap();
            books.writes.push(Stored { at: now(), session, key, fence, accepted });
        }
        if (&*stream).write_all(b"done\n").is_err() {
            return;
        }
    }
}
