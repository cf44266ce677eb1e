//! Threads of one process that read one key without a pause. They use the library, or each has a bare connection.

use std::thread;
use std::time::Duration;

use redlock_tests::bench::raw::RawLock;
use redlock_tests::bench::worker::answer_orders;
use redlock_tests::bench::{Outcome, client, clock};

/// The main function of a worker: `THREADS KEY URL`. Each order is `ours|raw START END HOLD`, with times in
/// nanoseconds. The answer is the number of reads and the longest hold.
pub(super) fn child(args: &[String]) -> Outcome<()> {
    let [threads, key, url] = args else { return Err("readers need their number, a key and a server".into()) };
    let urls = [url.clone()];
    let lock = client(&urls).build()?.rw_lock(key.as_str());
    let threads: u32 = threads.parse()?;
    answer_orders(|words| {
        let [start, end, hold]: [u64; 3] = [words[1].parse()?, words[2].parse()?, words[3].parse()?];
        let is_raw = words[0] == "raw";
        let one = |i: u32| -> Outcome<(u64, u64)> {
            let name = format!("{}-{i}", std::process::id());
            let mut raw = RawLock::of_readers(&urls, "raw", &name, false)?;
            let (mut reads, mut longest) = (0, 0);
            // The threads start at different times, so that their holds do not coincide.
            clock::sleep_until(start + hold * u64::from(i) / u64::from(threads));
            while clock::now() < end {
                let guard = if is_raw { raw.acquire().map(|()| None)? } else { Some(lock.read()?) };
                let from = clock::now();
                if hold > 0 {
                    thread::sleep(Duration::from_nanos(hold));
                }
                longest = longest.max(clock::now() - from);
                match guard {
                    None => raw.release()?,
                    Some(guard) => guard.unlock().map(drop)?,
                }
                reads += 1;
            }
            Ok((reads, longest))
        };
        let parts: Vec<Outcome<(u64, u64)>> = thread::scope(|scope| {
            let one = &one;
            let running: Vec<_> = (0..threads).map(|i| scope.spawn(move || one(i))).collect();
            running.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        let (mut reads, mut longest) = (0, 0);
        for part in parts {
            let part = part?;
            reads += part.0;
            longest = longest.max(part.1);
        }
        Ok(vec![reads, longest])
    })
}
