// Takes the lock KEY again and again for so many SECONDS, by the defaults of node-redlock 4 or 5; see mod.rs for what it prints.
const Redis = require("ioredis");
const package_ = require("redlock");

const [url, key, ...numbers] = process.argv.slice(-5);
const [seconds, hold, pause] = numbers.map(Number);
const TTL = 10000;
const client = new (Redis.default || Redis)(url);
const redlock = new (package_.default || package_)([client]);
const sleep = (s) => new Promise((done) => setTimeout(done, s * 1000));
const now = () => Number(process.hrtime.bigint()) / 1e3;

async function once() {
  const lock = redlock.acquire && !redlock.lock ? await redlock.acquire([key], TTL) : await redlock.lock(key, TTL);
  return () => (lock.release ? lock.release() : lock.unlock());
}

async function main() {
  const start = now();
  const waits = [];
  while (now() < start + seconds * 1e6) {
    const wanted = now();
    let release = null;
    while (!release && now() < start + seconds * 1e6) {
      release = await once().catch(() => null); // It gave up.
    }
    if (!release) break;
    waits.push(wanted - start, now() - start);
    await sleep(hold);
    await release();
    await sleep(pause);
  }
  console.log(waits.map(Math.round).join(" "));
  process.exit(0);
}

redlock.on("error", () => {}); // Version 5 tells here of each attempt that finds the lock taken.
client.on("error", (error) => console.error(String(error)));
client.ping().then(() => console.log("ready"));
process.stdin.once("data", main);
