// Locks KEY by node-redlock 4 or 5 on the servers of URLS; mod.rs has what a program is told, and says.
const Redis = require("ioredis");
const package_ = require("redlock");

const [urls, key] = process.argv.slice(-2);
const TTL = 10000;
const clients = urls.split(",").map((url) => new (Redis.default || Redis)(url));
const Redlock = package_.default || package_;
const patient = new Redlock(clients);
const hasty = new Redlock(clients, { retryCount: 0 });
const sleep = (s) => new Promise((done) => setTimeout(done, s * 1000));
const now = () => Number(process.hrtime.bigint()) / 1e3;
let held = null;

const lock = (redlock) => (redlock.lock ? redlock.lock(key, TTL) : redlock.acquire([key], TTL)); // Version 4, version 5.
const release = (lock) => (lock.release ? lock.release() : lock.unlock());

const commands = {
  acquire: async () => (held = await lock(hasty)),
  extend: async () => (held = await held.extend(TTL)),
  release: async () => release(held),
};

async function turns(seconds, hold, pause) {
  const start = now();
  const moments = [];
  while (now() < start + seconds * 1e6) {
    const wanted = now();
    let lease = null;
    while (!lease && now() < start + seconds * 1e6) {
      lease = await lock(patient).catch(() => null); // It gave up.
    }
    if (!lease) break;
    moments.push(wanted - start, now() - start);
    await sleep(hold);
    await release(lease);
    await sleep(pause);
  }
  return moments.map(Math.round).join(" ");
}

async function answer(line) {
  const [command, ...numbers] = line.split(" ");
  if (command === "turns") return turns(...numbers.map(Number));
  return commands[command]().then(() => "yes", () => "no");
}

async function main() {
  for (const redlock of [patient, hasty]) redlock.on("error", () => {}); // Version 5 tells here of each attempt that finds the lock taken.
  for (const client of clients) {
    client.on("error", (error) => console.error(String(error)));
    await client.ping();
  }
  console.log("ready");
  for await (const line of require("readline").createInterface({ input: process.stdin })) console.log(await answer(line));
  process.exit(0);
}

main().catch((error) => {
  console.error(String(error));
  process.exit(1);
});
