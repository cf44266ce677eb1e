//! `agent contend FILE ROUNDS THREADS LOCKED RETRY_US URL…`: counts in a shared file. Each round reads the file,
//! pauses, and writes it.
//!
//! The file is one record of numbers: the count, the process that counted last, the number of changes between
//! processes, and the process that is in a round. The last number is 1 if a round found another round under way. If
//! `LOCKED` is `no`, updates get lost.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::thread;
use std::time::Duration;

use redlock_sync::{Mutex, Redlock, Retry};

/// The pause between the read and the write. It is long enough for other threads to interfere.
const PAUSE: Duration = Duration::from_micros(50);

pub(crate) fn main(args: &[String]) {
    let [path, rounds, threads, locked, retry, urls @ ..] = args else { panic!("too few arguments: {args:?}") };
    let file = OpenOptions::new().read(true).write(true).open(path).expect("the shared file is there");
    let number = |text: &String| text.parse::<u64>().expect("a number");
    let lock = (locked == "yes").then(|| lock(urls, Duration::from_micros(number(retry))));
    let work = || (0..number(rounds)).for_each(|_| once(&file, lock.as_ref()));
    thread::scope(|scope| (0..number(threads)).for_each(|_| _ = scope.spawn(work)));
}

/// The lock of the counter. The node timeout is long, because the test is about exclusion and not about a busy machine.
fn lock(urls: &[String], retry: Duration) -> Mutex {
    let builder = Redlock::builder().nodes(urls).node_timeout(Duration::from_secs(2));
    builder.retry(Retry::every(retry)).build().expect("the settings are good").mutex("counter")
}

fn once(file: &File, lock: Option<&Mutex>) {
    let guard = lock.map(|lock| lock.lock().expect("the lock is granted"));
    count(file);
    if let Some(guard) = guard {
        guard.check().expect("still held after the write");
        guard.unlock().expect("released");
    }
}

fn count(file: &File) {
    let [counter, last, changes, inside] = read(file);
    let me = u64::from(std::process::id());
    if inside != 0 {
        // Another thread has read and has not written yet. The test detects the lost update.
        write(file, 4, 1);
    }
    write(file, 3, me);
    thread::sleep(PAUSE);
    write(file, 0, counter + 1);
    write(file, 1, me);
    write(file, 2, changes + u64::from(last != me));
    write(file, 3, 0);
}

fn read(file: &File) -> [u64; 4] {
    let mut bytes = [0; 32];
    file.read_exact_at(&mut bytes, 0).expect("the record is there");
    let number = |i: usize| u64::from_le_bytes(bytes[8 * i..8 * i + 8].try_into().expect("eight bytes"));
    [number(0), number(1), number(2), number(3)]
}

fn write(file: &File, place: u64, value: u64) {
    file.write_all_at(&value.to_le_bytes(), 8 * place).expect("the record can be written");
}
