//! Permits of a semaphore, and several keys at once.

use std::time::Duration;

use redis::{Cmd, cmd};
use redlock_tests::Server;
use redlock_tests::bench::delay::Delay;
use redlock_tests::bench::raw::{Wire, packed};
use redlock_tests::bench::stats::p50_in_turns;
use redlock_tests::bench::table::{Bar, Line};
use redlock_tests::bench::{Outcome, Plan, client, clock};

/// The raw script of a permit that expires. It removes expired permits, and adds a permit if there is room.
const ACQUIRE: &str = "local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[3]) then return 0 end
redis.call('ZADD', KEYS[1], now + ARGV[2], ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1";
const RELEASE: &str = "return redis.call('ZREM', KEYS[1], ARGV[1])";
const TOKEN: &str = "0123456789abcdef0123456789abcdef:some-host:12345:1";

/// The number of pairs in a block.
const BLOCK: usize = 50;
const KEYS: usize = 8;
const AWAY: Duration = Duration::from_millis(5);

fn script(wire: &mut Wire, source: &str, args: &[&str]) -> Outcome<Vec<u8>> {
    let digest = match wire.call(&packed(cmd("SCRIPT").arg("LOAD").arg(source)))? {
        redis::Value::BulkString(bytes) => String::from_utf8(bytes)?,
        other => return Err(format!("SCRIPT LOAD: {other:?}").into()),
    };
    Ok(packed(Cmd::new().arg("EVALSHA").arg(digest).arg(1).arg("raw").arg(args)))
}

pub(super) fn permits(plan: Plan) -> Outcome<Vec<Line>> {
    let server = Server::start();
    let mut lines = Vec::new();
    for k in [10, 100] {
        let mut wire = Wire::open(&server.url())?;
        let acquire = script(&mut wire, ACQUIRE, &[TOKEN, "30000", &k.to_string()])?;
        let release = script(&mut wire, RELEASE, &[TOKEN])?;
        let semaphore = client(&[server.url()]).build()?.semaphore(format!("ours:{k}"), k);
        let mut raw = |samples: &mut Vec<u64>| {
            for _ in 0..BLOCK {
                let start = clock::now();
                wire.call(&acquire)?;
                wire.call(&release)?;
                samples.push(clock::now() - start);
            }
            Ok(())
        };
        let mut ours = |samples: &mut Vec<u64>| {
            for _ in 0..BLOCK {
                let start = clock::now();
                semaphore.acquire()?.release()?;
                samples.push(clock::now() - start);
            }
            Ok(())
        };
        let free = p50_in_turns(plan.rounds(), plan.count(50), &mut raw, &mut ours)?;
        lines.push(Line::new(format!("a permit of {k}, all free, p50"), "us", free, Bar::RatioAtMost(1.3)));
        let held = semaphore.acquire_many(k - 1)?;
        let last = p50_in_turns(plan.rounds(), plan.count(50), &mut raw, &mut ours)?;
        lines.push(Line::new(format!("the last permit of {k}, p50"), "us", last, Bar::None));
        held.release()?;
    }
    Ok(lines)
}

/// A lock of several keys. Raw is one request and its reply at the same distance. With a round trip for each key, ours
/// would take eight times as long.
pub(super) fn several_keys(plan: Plan) -> Outcome<Vec<Line>> {
    let server = Server::start();
    let delay = Delay::start(&[server.addr()], AWAY)?;
    let urls = delay.urls();
    let (mut wire, ping) = (Wire::open(urls.first().ok_or("no way to the server")?)?, packed(&cmd("PING")));
    let locks = client(&urls).build()?;
    let keys = locks.multi_lock((0..KEYS).map(|key| format!("key:{key}")));
    let mut raw = |samples: &mut Vec<u64>| {
        let start = clock::now();
        wire.call(&ping)?;
        samples.push(clock::now() - start);
        Ok(())
    };
    let mut ours = |samples: &mut Vec<u64>| {
        let start = clock::now();
        let guard = keys.lock()?;
        samples.push(clock::now() - start);
        Ok(guard.unlock()?)
    };
    let lock = p50_in_turns(plan.rounds(), plan.count(20), &mut raw, &mut ours)?;
    Ok(vec![Line::new("lock of 8 free keys, 5 ms away, p50", "us", lock, Bar::RatioAtMost(1.5))])
}
